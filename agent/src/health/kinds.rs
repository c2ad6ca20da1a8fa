//! The judges of single kinds: kstatus (kubernetes-sigs/cli-utils), `pkg/kstatus/status/core.go`, the
//! function named at each. Pure.

use serde_json::Value;

use super::{Condition, Health, condition, conditions, number, word};

/// Judges one kind; what all kinds share has been looked at before.
pub type Judge = fn(&Value) -> Health;

/// The groups that the API server itself serves: their kinds without a judge need no look.
const BUILT_IN: [&str; 20] = [
    "",
    "apps",
    "batch",
    "policy",
    "autoscaling",
    "extensions",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
];

/// Whether the API server itself serves the group.
#[must_use]
pub fn is_built_in(group: &str) -> bool {
    BUILT_IN.contains(&group) || group == "storage.k8s.io" || group == "resource.k8s.io"
}

/// The judge of a kind of Kubernetes itself, where there is anything to judge.
#[must_use]
pub fn judge_of(group: &str, kind: &str) -> Option<Judge> {
    Some(match (group, kind) {
        ("apps", "Deployment") => deployment,
        ("apps", "StatefulSet") => stateful_set,
        ("apps", "DaemonSet") => daemon_set,
        ("apps", "ReplicaSet") | ("", "ReplicationController") => replica_set,
        ("", "Pod") => pod,
        ("batch", "Job") => job,
        ("", "PersistentVolumeClaim") => claim,
        ("", "Service") => service,
        ("", "Namespace") => namespace,
        ("policy", "PodDisruptionBudget") => disruption_budget,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition,
        ("apiregistration.k8s.io", "APIService") => api_service,
        _ => return None,
    })
}

/// A count that has to be reached, or not to be exceeded.
fn fewer(have: i64, want: i64, what: &str) -> Option<Health> {
    (have < want).then(|| Health::Progressing(format!("{have} of {want} {what}")))
}

fn status(object: &Value, field: &str) -> i64 {
    number(object, &format!("/status/{field}")).unwrap_or(0)
}

fn replicas(object: &Value) -> i64 {
    number(object, "/spec/replicas").unwrap_or(1)
}

/// `deploymentConditions`. Failed is one whose own deadline has passed without progress.
fn deployment(object: &Value) -> Health {
    let progressing = condition(object, "Progressing");
    if let Some(late) = progressing.filter(|condition| condition.reason == "ProgressDeadlineExceeded") {
        return Health::failed(late.told("its progress deadline has passed"));
    }
    let want = replicas(object);
    let has = status(object, "replicas");
    let updated = status(object, "updatedReplicas");
    let count = fewer(has, want, "replicas are there")
        .or_else(|| fewer(updated, want, "replicas are of the newest form"))
        .or_else(|| (has > want).then(|| going(has - want)))
        .or_else(|| fewer(status(object, "availableReplicas"), updated, "replicas are available"))
        .or_else(|| fewer(status(object, "readyReplicas"), want, "replicas are ready"));
    if let Some(health) = count {
        return health;
    }
    // Without a deadline its controller does not say whether it makes progress.
    let has_deadline =
        number(object, "/spec/progressDeadlineSeconds").is_some_and(|s| s != i64::from(i32::MAX));
    let is_done =
        |condition: Condition<'_>| condition.is_true() && condition.reason == "NewReplicaSetAvailable";
    if has_deadline && !progressing.is_some_and(is_done) {
        return Health::progressing("its newest replica set is not available yet");
    }
    match condition(object, "Available") {
        Some(available) if available.is_true() => Health::Current,
        Some(available) => Health::progressing(available.told("it is not available")),
        None => Health::progressing("it is not available yet"),
    }
}

fn going(count: i64) -> Health {
    Health::Progressing(format!("{count} old replicas have not ended yet"))
}

/// `stsConditions`.
fn stateful_set(object: &Value) -> Health {
    if word(object, "/spec/updateStrategy/type") == "OnDelete" {
        return Health::Current;
    }
    let want = replicas(object);
    let has = status(object, "replicas");
    let count = fewer(has, want, "replicas are there")
        .or_else(|| fewer(status(object, "readyReplicas"), want, "replicas are ready"))
        .or_else(|| (has > want).then(|| going(has - want)));
    if let Some(health) = count {
        return health;
    }
    if let Some(partition) = number(object, "/spec/updateStrategy/rollingUpdate/partition").filter(|p| *p > 0)
    {
        let updated = status(object, "updatedReplicas");
        return fewer(updated, want - partition, "replicas are of the newest form")
            .unwrap_or(Health::Current);
    }
    if let Some(health) = fewer(status(object, "currentReplicas"), want, "replicas are of the current form") {
        return health;
    }
    match word(object, "/status/currentRevision") == word(object, "/status/updateRevision") {
        true => Health::Current,
        false => Health::progressing("not all replicas are of the newest form yet"),
    }
}

/// `daemonsetConditions`.
fn daemon_set(object: &Value) -> Health {
    let observed = number(object, "/status/observedGeneration");
    let Some((want, _)) = number(object, "/status/desiredNumberScheduled").zip(observed) else {
        return unseen();
    };
    fewer(status(object, "currentNumberScheduled"), want, "nodes have it")
        .or_else(|| match word(object, "/spec/updateStrategy/type") {
            // Its Pods are replaced when somebody deletes them.
            "OnDelete" => None,
            _ => fewer(status(object, "updatedNumberScheduled"), want, "nodes have its newest form"),
        })
        .or_else(|| fewer(status(object, "numberAvailable"), want, "nodes have it available"))
        .or_else(|| fewer(status(object, "numberReady"), want, "nodes have it ready"))
        .unwrap_or(Health::Current)
}

fn unseen() -> Health {
    Health::progressing("its controller has not seen it yet")
}

/// `replicasetConditions`; a `ReplicationController` has the same counts.
fn replica_set(object: &Value) -> Health {
    if let Some(failure) = condition(object, "ReplicaFailure").filter(Condition::is_true) {
        return Health::progressing(failure.told("its Pods cannot be made"));
    }
    let want = replicas(object);
    let has = status(object, "replicas");
    fewer(status(object, "fullyLabeledReplicas"), want, "replicas are there")
        .or_else(|| fewer(status(object, "availableReplicas"), want, "replicas are available"))
        .or_else(|| fewer(status(object, "readyReplicas"), want, "replicas are ready"))
        .or_else(|| (has > want).then(|| going(has - want)))
        .unwrap_or(Health::Current)
}

/// `podConditions`, but for what passes by itself: a container in a crash loop may only wait for its
/// database, and a Pod without a node for one that comes back. Both are waited for until the time is up.
fn pod(object: &Value) -> Health {
    match word(object, "/status/phase") {
        "Succeeded" => Health::Current,
        "Failed" => Health::failed(ended_badly(object)),
        "Running" if condition(object, "Ready").is_some_and(|ready| ready.is_true()) => Health::Current,
        "" => unseen(),
        phase => match waiting_containers(object).as_slice() {
            [] => match condition(object, "PodScheduled").filter(|scheduled| !scheduled.is_true()) {
                Some(unscheduled) => Health::progressing(unscheduled.told("it has no node")),
                None => Health::progressing(format!("it is not ready (phase {phase})")),
            },
            waiting => Health::progressing(format!("it is not ready ({})", waiting.join(", "))),
        },
    }
}

fn ended_badly(object: &Value) -> String {
    match (word(object, "/status/reason"), word(object, "/status/message")) {
        ("", "") => "it ended without success".to_owned(),
        (reason, "") => format!("it ended without success ({reason})"),
        (_, message) => format!("it ended without success: {message}"),
    }
}

/// The first few containers that wait, and what for: `web: CrashLoopBackOff`.
fn waiting_containers(object: &Value) -> Vec<String> {
    let statuses = ["initContainerStatuses", "containerStatuses"].into_iter();
    let containers =
        statuses.filter_map(|field| object.pointer(&format!("/status/{field}"))?.as_array()).flatten();
    let waiting = containers.filter_map(|container| {
        let reason = container.pointer("/state/waiting/reason")?.as_str()?;
        Some(format!("{}: {reason}", container.get("name").and_then(Value::as_str).unwrap_or("a container")))
    });
    waiting.take(3).collect()
}

/// `jobConditions`, but that a Job that runs is not current yet: who puts one into a wave means its result.
fn job(object: &Value) -> Health {
    match condition(object, "Suspended").filter(Condition::is_true) {
        Some(_) => Health::Current,
        None => run_of_job(object),
    }
}

/// A Job is done when it is complete, and not before.
pub(super) fn run_of_job(object: &Value) -> Health {
    for ended in conditions(object).filter(Condition::is_true) {
        match ended.kind {
            "Complete" => return Health::Current,
            "Failed" => return Health::failed(ended.told("the Job failed")),
            "Suspended" => return Health::progressing("the Job is suspended"),
            _ => {}
        }
    }
    if word(object, "/status/startTime").is_empty() {
        return Health::progressing("the Job has not started yet");
    }
    let [active, failed] = ["active", "failed"].map(|field| status(object, field));
    Health::Progressing(format!("the Job runs ({active} active, {failed} failed)"))
}

/// A Pod that shall end is done when it has succeeded.
pub(super) fn run_of_pod(object: &Value) -> Health {
    match word(object, "/status/phase") {
        "Running" => Health::progressing("the Pod runs"),
        _ => pod(object),
    }
}

/// `pvcConditions`.
fn claim(object: &Value) -> Health {
    match word(object, "/status/phase") {
        "Bound" => Health::Current,
        // Its volume is gone; no controller makes that good.
        "Lost" => Health::failed("its volume is lost"),
        _ => Health::progressing("it is not bound to a volume"),
    }
}

/// `serviceConditions`: whether anybody brings traffic to it from outside is not the cluster's to say.
fn service(object: &Value) -> Health {
    let is_balanced = word(object, "/spec/type") == "LoadBalancer";
    match is_balanced && word(object, "/spec/clusterIP").is_empty() {
        true => Health::progressing("it has no address yet"),
        false => Health::Current,
    }
}

/// Not in kstatus: a Namespace is usable while it is active.
fn namespace(object: &Value) -> Health {
    match word(object, "/status/phase") {
        "Active" => Health::Current,
        phase => Health::progressing(format!("it is not active (phase {phase:?})")),
    }
}

/// `pdbConditions`, where its controller has seen it.
fn disruption_budget(object: &Value) -> Health {
    if number(object, "/status/observedGeneration").is_none() {
        return unseen();
    }
    match condition(object, "DisruptionAllowed").filter(|condition| condition.reason == "SyncFailed") {
        Some(failed) => Health::progressing(failed.told("its controller cannot work it out")),
        None => Health::Current,
    }
}

/// `crdConditions`.
fn definition(object: &Value) -> Health {
    if let Some(refused) = condition(object, "NamesAccepted").filter(|condition| condition.status == "False")
    {
        return Health::failed(refused.told("its names are not accepted"));
    }
    match condition(object, "Established") {
        Some(established) if established.is_true() => Health::Current,
        Some(refused) if refused.status == "False" && refused.reason != "Installing" => {
            Health::failed(refused.told("it is not established"))
        }
        Some(_) | None => Health::progressing("it is not established yet"),
    }
}

/// Not in kstatus: the API server says whether it reaches the backend.
fn api_service(object: &Value) -> Health {
    match condition(object, "Available") {
        Some(available) if available.is_true() => Health::Current,
        Some(away) => Health::progressing(away.told("its backend is not available")),
        None => unseen(),
    }
}
