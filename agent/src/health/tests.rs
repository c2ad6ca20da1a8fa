use serde_json::json;

use super::*;

/// An object of a kind with parts of its metadata, spec and status.
fn object(version: &str, kind: &str, metadata: &Value, spec: &Value, status: &Value) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec, "status": status})
}

fn condition_of(kind: &str, status: &str, reason: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": "as it says"})
}

/// What is wanted of a judgement, and a word of the reason.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    Current,
    Progressing(&'static str),
    Failed(&'static str),
}
use Wanted::{Current, Failed, Progressing};

fn assert_judged(judged: &Health, wanted: Wanted, object: &Value) {
    let fits = match (judged, wanted) {
        (Health::Current, Current) => true,
        (Health::Progressing(why), Progressing(word)) | (Health::Failed(why), Failed(word)) => {
            why.contains(word)
        }
        _ => false,
    };
    assert!(fits, "{judged:?} is not {wanted:?}: {object}");
}

/// Each case: spec, status, what is wanted.
fn table(version: &str, kind: &str, cases: &[(Value, Value, Wanted)]) {
    for (spec, status, wanted) in cases {
        let object = object(version, kind, &json!({"name": "a", "generation": 2}), spec, status);
        assert_judged(&judge(&object), *wanted, &object);
    }
}

#[test]
fn what_all_kinds_share_comes_first() {
    for (metadata, status, wanted) in [
        (json!({"deletionTimestamp": "2026-11-21T09:00:00Z"}), json!({}), Progressing("being deleted")),
        (json!({"generation": 3}), json!({"observedGeneration": 2}), Progressing("generation 2 of 3")),
        (json!({"generation": 3}), json!({"observedGeneration": 3}), Current),
        (json!({"generation": 3}), json!({}), Current),
        (
            json!({}),
            json!({"conditions": [condition_of("Reconciling", "True", "Busy")]}),
            Progressing("as it says"),
        ),
        (json!({}), json!({"conditions": [condition_of("Stalled", "True", "Stuck")]}), Failed("as it says")),
        (json!({}), json!({"conditions": [condition_of("Stalled", "False", "")]}), Current),
    ] {
        let object = object("shop.example/v1", "Till", &metadata, &json!({}), &status);
        assert_judged(&judge(&object), wanted, &object);
    }
}

#[test]
fn kinds_of_others_are_judged_by_ready_and_available() {
    let with = |conditions: &[Value]| json!({"conditions": conditions});
    table(
        "shop.example/v1",
        "Till",
        &[
            (json!({}), json!({}), Current),
            (json!({}), with(&[condition_of("Ready", "True", "")]), Current),
            (json!({}), with(&[condition_of("Ready", "False", "Closed")]), Progressing("as it says")),
            (json!({}), with(&[condition_of("Ready", "Unknown", "")]), Progressing("Ready is Unknown")),
            (json!({}), with(&[condition_of("Available", "False", "")]), Progressing("as it says")),
            (
                json!({}),
                with(&[condition_of("Available", "False", ""), condition_of("Ready", "True", "")]),
                Current,
            ),
            (json!({}), with(&[condition_of("Odd", "False", "")]), Current),
        ],
    );
}

#[test]
fn a_deployment_is_current_when_all_its_replicas_are_new_and_available() {
    let spec = json!({"replicas": 3, "progressDeadlineSeconds": 600});
    let status = |replicas: i64, updated: i64, available: i64, reason: &str, is_available: &str| {
        json!({"observedGeneration": 2, "replicas": replicas, "updatedReplicas": updated,
            "availableReplicas": available, "readyReplicas": available, "conditions": [
                condition_of("Progressing", "True", reason), condition_of("Available", is_available, "")]})
    };
    let new = "NewReplicaSetAvailable";
    table(
        "apps/v1",
        "Deployment",
        &[
            (spec.clone(), status(3, 3, 3, new, "True"), Current),
            (spec.clone(), json!({}), Progressing("0 of 3 replicas are there")),
            (
                spec.clone(),
                status(3, 1, 3, new, "True"),
                Progressing("1 of 3 replicas are of the newest form"),
            ),
            (spec.clone(), status(4, 3, 3, new, "True"), Progressing("1 old replicas")),
            (spec.clone(), status(3, 3, 2, new, "True"), Progressing("2 of 3 replicas are available")),
            (spec.clone(), status(3, 3, 3, "ReplicaSetUpdated", "True"), Progressing("newest replica set")),
            (spec.clone(), status(3, 3, 3, new, "False"), Progressing("not available: as it says")),
            (spec.clone(), status(3, 1, 1, "ProgressDeadlineExceeded", "False"), Failed("progress deadline")),
            (json!({"replicas": 3}), status(3, 3, 3, "ReplicaSetUpdated", "True"), Current),
            (json!({"replicas": 0}), status(0, 0, 0, new, "True"), Current),
            (json!({}), status(1, 1, 1, new, "True"), Current),
        ],
    );
}

#[test]
fn a_stateful_set_is_current_when_its_replicas_are_ready_in_its_newest_form() {
    let spec = json!({"replicas": 2});
    let status = |replicas: i64, ready: i64, current: i64, revisions: [&str; 2]| {
        json!({"observedGeneration": 2, "replicas": replicas, "readyReplicas": ready, "currentReplicas": current,
            "updatedReplicas": current, "currentRevision": revisions[0], "updateRevision": revisions[1]})
    };
    let partitioned = |partition: i64| json!({"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": partition}}});
    table(
        "apps/v1",
        "StatefulSet",
        &[
            (spec.clone(), status(2, 2, 2, ["a", "a"]), Current),
            (spec.clone(), json!({}), Progressing("0 of 2 replicas are there")),
            (spec.clone(), status(2, 1, 2, ["a", "a"]), Progressing("1 of 2 replicas are ready")),
            (spec.clone(), status(3, 3, 2, ["a", "a"]), Progressing("1 old replicas")),
            (
                spec.clone(),
                status(2, 2, 1, ["a", "b"]),
                Progressing("1 of 2 replicas are of the current form"),
            ),
            (spec.clone(), status(2, 2, 2, ["a", "b"]), Progressing("newest form")),
            (partitioned(1), status(2, 2, 1, ["a", "b"]), Current),
            (
                partitioned(1),
                status(2, 2, 0, ["a", "b"]),
                Progressing("0 of 1 replicas are of the newest form"),
            ),
            (json!({"replicas": 2, "updateStrategy": {"type": "OnDelete"}}), json!({}), Current),
        ],
    );
}

#[test]
fn a_daemon_set_is_current_when_every_node_has_it_in_its_newest_form() {
    let status = |updated: i64, available: i64| {
        json!({"observedGeneration": 2, "desiredNumberScheduled": 3, "currentNumberScheduled": 3,
            "updatedNumberScheduled": updated, "numberAvailable": available, "numberReady": available})
    };
    table(
        "apps/v1",
        "DaemonSet",
        &[
            (json!({}), status(3, 3), Current),
            (json!({}), json!({}), Progressing("has not seen it")),
            (json!({}), json!({"observedGeneration": 2, "desiredNumberScheduled": 0}), Current),
            (json!({}), status(1, 3), Progressing("1 of 3 nodes have its newest form")),
            (json!({}), status(3, 2), Progressing("2 of 3 nodes have it available")),
            (json!({"updateStrategy": {"type": "OnDelete"}}), status(1, 3), Current),
        ],
    );
}

#[test]
fn replica_sets_are_current_when_their_replicas_are_ready() {
    let status = |replicas: i64, ready: i64| {
        json!({"observedGeneration": 2, "replicas": replicas, "fullyLabeledReplicas": replicas,
            "availableReplicas": ready, "readyReplicas": ready})
    };
    let failing = json!({"observedGeneration": 2, "conditions": [condition_of("ReplicaFailure", "True", "FailedCreate")]});
    for (version, kind) in [("apps/v1", "ReplicaSet"), ("v1", "ReplicationController")] {
        table(
            version,
            kind,
            &[
                (json!({"replicas": 2}), status(2, 2), Current),
                (json!({"replicas": 2}), status(2, 1), Progressing("1 of 2 replicas are available")),
                (json!({"replicas": 2}), status(3, 3), Progressing("1 old replicas")),
                (json!({"replicas": 2}), failing.clone(), Progressing("as it says")),
            ],
        );
    }
}

#[test]
fn a_pod_is_current_when_it_is_ready_or_has_succeeded() {
    let crashing = json!([{"name": "web", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
    let nowhere =
        json!({"phase": "Pending", "conditions": [condition_of("PodScheduled", "False", "Unschedulable")]});
    let ready = json!({"phase": "Running", "conditions": [condition_of("Ready", "True", "")]});
    let cases = [
        (json!({}), ready.clone(), Current),
        (json!({}), json!({"phase": "Succeeded"}), Current),
        (json!({}), json!({}), Progressing("has not seen it")),
        (json!({}), json!({"phase": "Running"}), Progressing("phase Running")),
        (
            json!({}),
            json!({"phase": "Running", "containerStatuses": crashing}),
            Progressing("web: CrashLoopBackOff"),
        ),
        (json!({}), nowhere, Progressing("it has no node")),
        (json!({}), json!({"phase": "Failed", "reason": "Evicted"}), Failed("Evicted")),
    ];
    table("v1", "Pod", &cases);
    let running = object("v1", "Pod", &json!({}), &json!({}), &ready);
    assert_judged(&judge_run(&running), Progressing("runs"), &running);
    let done = object("v1", "Pod", &json!({}), &json!({}), &json!({"phase": "Succeeded"}));
    assert_judged(&judge_run(&done), Current, &done);
}

#[test]
fn a_job_is_current_when_it_is_complete_and_a_suspended_one_has_not_run() {
    let said = |kind: &str| json!({"startTime": "2026-11-21T09:00:00Z", "conditions": [condition_of(kind, "True", "Why")]});
    let running = json!({"startTime": "2026-11-21T09:00:00Z", "active": 1, "failed": 2});
    let cases = [
        (json!({}), said("Complete"), Current),
        (json!({}), said("Failed"), Failed("as it says")),
        (json!({}), said("Suspended"), Current),
        (json!({}), json!({}), Progressing("not started")),
        (json!({}), running, Progressing("1 active, 2 failed")),
    ];
    table("batch/v1", "Job", &cases);
    let suspended = object("batch/v1", "Job", &json!({}), &json!({}), &said("Suspended"));
    assert_judged(&judge_run(&suspended), Progressing("suspended"), &suspended);
}

#[test]
fn claims_services_namespaces_and_budgets_have_their_own_signs() {
    table(
        "v1",
        "PersistentVolumeClaim",
        &[
            (json!({}), json!({"phase": "Bound"}), Current),
            (json!({}), json!({"phase": "Pending"}), Progressing("not bound")),
            (json!({}), json!({"phase": "Lost"}), Failed("lost")),
        ],
    );
    table(
        "v1",
        "Service",
        &[
            (json!({"type": "LoadBalancer"}), json!({}), Progressing("no address")),
            (json!({"type": "LoadBalancer", "clusterIP": "10.0.0.7"}), json!({}), Current),
            (json!({}), json!({}), Current),
        ],
    );
    table(
        "v1",
        "Namespace",
        &[
            (json!({}), json!({"phase": "Active"}), Current),
            (json!({}), json!({"phase": "Terminating"}), Progressing("Terminating")),
        ],
    );
    table(
        "policy/v1",
        "PodDisruptionBudget",
        &[
            (json!({}), json!({}), Progressing("has not seen it")),
            (json!({}), json!({"observedGeneration": 2}), Current),
        ],
    );
}

#[test]
fn definitions_and_apis_are_current_when_they_are_served() {
    let with =
        |kind: &str, status: &str, reason: &str| json!({"conditions": [condition_of(kind, status, reason)]});
    table(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &[
            (json!({}), json!({}), Progressing("not established")),
            (json!({}), with("Established", "True", "InitialNamesAccepted"), Current),
            (json!({}), with("Established", "False", "Installing"), Progressing("not established")),
            (json!({}), with("Established", "False", "NotAccepted"), Failed("not established")),
            (json!({}), with("NamesAccepted", "False", "Conflict"), Failed("not accepted")),
        ],
    );
    table(
        "apiregistration.k8s.io/v1",
        "APIService",
        &[
            (json!({}), json!({}), Progressing("has not seen it")),
            (json!({}), with("Available", "True", ""), Current),
            (json!({}), with("Available", "False", "MissingEndpoints"), Progressing("as it says")),
        ],
    );
    table("batch/v1", "CronJob", &[(json!({}), json!({}), Current)]);
}

#[test]
fn only_kinds_with_health_are_looked_at() {
    let is_judged = |version: &str, kind: &str, spec: Value| {
        let body = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": spec});
        super::is_judged(&Manifest::read(body, "test".into()).expect("a manifest"))
    };
    for (version, kind) in
        [("apps/v1", "Deployment"), ("batch/v1", "Job"), ("shop.example/v1", "Till"), ("v1", "Pod")]
    {
        assert!(is_judged(version, kind, json!({})), "{kind}");
    }
    for (version, kind) in [
        ("v1", "ConfigMap"),
        ("v1", "Secret"),
        ("batch/v1", "CronJob"),
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("networking.k8s.io/v1", "Ingress"),
        ("v1", "Service"),
    ] {
        assert!(!is_judged(version, kind, json!({})), "{kind}");
    }
    assert!(is_judged("v1", "Service", json!({"type": "LoadBalancer"})));
    assert!(is_judged("snapshot.storage.k8s.io/v1", "VolumeSnapshot", json!({})), "it is a definition's");
}

#[test]
fn odd_objects_are_judged_and_long_reasons_are_cut() {
    for odd in [json!(null), json!([]), json!({"kind": 7}), json!({"status": [], "metadata": "x"})] {
        assert_eq!(judge(&odd), Health::Current, "{odd}");
    }
    let mut object =
        object("apps/v1", "Deployment", &json!({}), &json!({"replicas": "three"}), &json!("none"));
    assert_judged(&judge(&object), Progressing("0 of 1"), &object);
    let long = json!({"type": "Ready", "status": "False", "message": "ä".repeat(5000)});
    object =
        super::tests::object("a.example/v1", "A", &json!({}), &json!({}), &json!({"conditions": [long]}));
    let Health::Progressing(why) = judge(&object) else { panic!("it is not ready") };
    assert!(why.chars().count() <= WHY_LIMIT + 3, "{}", why.len());
}
