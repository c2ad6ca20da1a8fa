//! What an agent takes, gives away and keeps, in a real Kubernetes API.

use std::time::Duration;

use farshore_chaos::kit::{Finished, KitError, Kubernetes, Process, wait_for};
use farshore_chaos::world::declare::{config_map, service, source};
use farshore_chaos::world::{Place, SharedCluster};
use farshore_shared::wire::{ServiceState, ServiceStatus};

const SOON: Duration = Duration::from_secs(90);

/// For all tests of this file but one; each has a namespace, a fleet and a site of its own.
static CLUSTER: SharedCluster = SharedCluster::new();

async fn in_place(name: &'static str, manifests: &[(&str, &str)]) -> Result<Place, KitError> {
    Place::with(CLUSTER.get().await?, name, manifests).await
}

/// Runs `farshore` beside the site, as its operator.
async fn farshore(place: &Place, arguments: &[&str]) -> Result<Finished, KitError> {
    let mut all: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    all.push(format!("--state={}", place.site.state().display()));
    all.push(format!("--kubeconfig={}", place.kubernetes.kubeconfig().display()));
    Process::start("farshore", &all)?.output(SOON).await
}

#[tokio::test]
async fn an_object_that_moves_to_another_service_keeps_its_uid() -> Result<(), KitError> {
    let files = [("moved.yaml", &*config_map("moved", "1")), ("stays.yaml", &config_map("stays", "1"))];
    let mut place = in_place("moving", &files).await?;
    place.until_state(ServiceState::Applied).await?;
    let uid = place.look("configmap", "moved", "{.metadata.uid}").expect("it is there");
    // The other service is there; both change with one commit of the application.
    let mark = place.kubernetes.audit_mark()?;
    place.world.app.commit(&[("other/own.yaml", &config_map("own", "1"))])?;
    let other = service("heir", "app", "other", "raw").replace("namespace: heir", "namespace: moving");
    place.declare("", &other)?;
    place.until("configmap", "own", "{.data.value}", Some("1")).await?;
    place.world.app.repo().remove("manifests/moved.yaml")?;
    let commit = place.world.app.commit(&[("other/moved.yaml", &config_map("moved", "1"))])?;
    let label = "{.metadata.labels.farshore\\.dev/service}";
    place.until("configmap", "moved", label, Some("heir")).await?;
    place.until_commit(&commit).await?;
    assert_eq!(place.look("configmap", "moved", "{.metadata.uid}"), Ok(uid));
    let writes = place.kubernetes.audit_writes_since(mark)?;
    let deleted = writes.iter().filter(|write| write.verb == "delete" && write.uri.contains("/moving/"));
    assert_eq!(deleted.count(), 0, "it was deleted in between");
    Ok(())
}

#[tokio::test]
async fn a_service_with_another_name_adopts_what_it_had() -> Result<(), KitError> {
    let mut place = in_place("renamed", &[("a.yaml", &config_map("a", "1"))]).await?;
    place.until_state(ServiceState::Applied).await?;
    let uid = place.look("configmap", "a", "{.metadata.uid}").expect("it is there");
    let app = source("app", &place.world.app.url());
    let other =
        service("new-name", "app", "manifests", "raw").replace("namespace: new-name", "namespace: renamed");
    place.world.declared.commit(&[("fleet.yaml", &format!("{app}---\n{other}"))])?;
    place.world.fleet.approve("fleet").await?;
    let is_applied =
        |found: &ServiceStatus| found.name.as_str() == "new-name" && found.state == ServiceState::Applied;
    place.until_status("applied under the new name", |status| status.services.iter().any(is_applied)).await?;
    place.until("configmap", "a", "{.metadata.labels.farshore\\.dev/service}", Some("new-name")).await?;
    assert_eq!(place.look("configmap", "a", "{.metadata.uid}"), Ok(uid));
    Ok(())
}

const CLAIM: &str = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: { name: data }\nspec:\n  \
    accessModes: [ReadWriteOnce]\n  resources: { requests: { storage: 1Gi } }\n";

#[tokio::test]
async fn a_claim_that_left_is_kept_until_the_service_names_its_kind() -> Result<(), KitError> {
    let files = [("a.yaml", &*config_map("a", "1")), ("data.yaml", CLAIM)];
    let mut place = in_place("claims", &files).await?;
    place.until("pvc", "data", "{.status.phase}", Some("Pending")).await?;
    // A volume is bound to it by a controller that is not there.
    let bound = ["patch", "pvc", "data", "--subresource=status", "--type=merge", "-p"];
    place.kubectl(&[&bound[..], &[r#"{"status":{"phase":"Bound"}}"#]].concat())?;
    place.until_state(ServiceState::Applied).await?;
    place.world.app.commit_without(&["manifests/data.yaml"])?;
    let said = place.until_service("told of", |status| status.message.contains("kept")).await?;
    assert_eq!(said.state, ServiceState::Applied, "nobody has to wait for it");
    assert!(said.message.contains("PersistentVolumeClaim claims/data"), "{said:?}");
    assert!(said.message.contains("spec.prune.kinds"), "{said:?}");
    // The API keeps a claim until its controller lets go of it; there is none here.
    place.kubectl(&["patch", "pvc", "data", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#])?;
    assert!(place.look("pvc", "data", "{.metadata.uid}").expect("the API answers").is_some());
    place.declare("  prune: { kinds: [PersistentVolumeClaim] }\n", "")?;
    place.until("pvc", "data", "{.metadata.uid}", None).await?;
    place.until_service("silent", |status| status.message.is_empty()).await.map(|_| ())
}

#[tokio::test]
async fn a_namespace_and_a_definition_go_with_nothing_but_their_names() -> Result<(), KitError> {
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: { name: guarded-inner }\n";
    let inner =
        config_map("inner", "1").replace("{ name: inner }", "{ name: inner, namespace: guarded-inner }");
    let files = [("a.yaml", &*config_map("a", "1")), ("namespace.yaml", namespace), ("inner.yaml", &inner)];
    let mut place = in_place("guarded", &files).await?;
    place.until_state(ServiceState::Applied).await?;
    place.kubernetes.kubectl(&["create", "configmap", "theirs", "--namespace=guarded-inner"])?;
    place.world.app.commit_without(&["manifests/namespace.yaml", "manifests/inner.yaml"])?;
    place.until_service("told of", |status| status.message.contains("Namespace guarded-inner")).await?;
    let inside = place.kubernetes.kubectl(&["get", "configmaps", "--namespace=guarded-inner", "-o=name"])?;
    assert_eq!(inside.trim(), "configmap/theirs", "what is not ours lives on in it");
    Ok(())
}

#[tokio::test]
async fn a_mass_removal_at_a_site_is_held_and_goes_through_when_the_budget_is_raised() -> Result<(), KitError>
{
    let manifests: Vec<(String, String)> =
        (0..20).map(|n| (format!("o{n}.yaml"), config_map(&format!("o{n}"), "1"))).collect();
    let files: Vec<(&str, &str)> =
        manifests.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
    let mut place = in_place("mass", &files).await?;
    place.until_state(ServiceState::Applied).await?;
    let gone: Vec<String> = (0..15).map(|n| format!("manifests/o{n}.yaml")).collect();
    place.world.app.commit_without(&gone.iter().map(String::as_str).collect::<Vec<_>>())?;
    let said = place.until_state(ServiceState::Held).await?;
    assert!(said.message.contains("15 of 20 objects are kept"), "{said:?}");
    let count = || place.kubectl(&["get", "configmaps", "-o=name"]).map(|text| text.lines().count());
    assert_eq!(count()?, 20);
    place.declare("  prune: { count: 15 }\n", "")?;
    wait_for("fifteen to go", SOON, async || match place.kubectl(&["get", "configmaps", "-o=name"]) {
        Ok(text) if text.lines().count() == 5 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await
}

#[tokio::test]
async fn a_deletion_that_is_denied_is_tried_until_it_is_not() -> Result<(), KitError> {
    let files = [("a.yaml", &*config_map("a", "1")), ("b.yaml", &config_map("b", "1"))];
    let mut place = in_place("refusing", &files).await?;
    place.until_state(ServiceState::Applied).await?;
    let policy = r#"{"apiVersion":"v1","kind":"List","items":[
        {"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy",
         "metadata":{"name":"refusing"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],
            "apiVersions":["v1"],"operations":["DELETE"],"resources":["configmaps"]}]},
            "validations":[{"expression":"false","message":"not on a Friday"}]}},
        {"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding",
         "metadata":{"name":"refusing"},"spec":{"policyName":"refusing","validationActions":["Deny"],
            "matchResources":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"refusing"}}}}}]}"#;
    place.kubernetes.kubectl_with_input(&["apply", "-f", "-"], policy)?;
    wait_for("the policy to be read", SOON, async || {
        match place.kubectl(&["delete", "configmap", "a", "--dry-run=server"]) {
            Err(_) => Ok(()),
            Ok(text) => Err(text),
        }
    })
    .await?;
    place.world.app.commit_without(&["manifests/a.yaml"])?;
    let said = place.until_state(ServiceState::Failed).await?;
    assert!(said.message.contains("not on a Friday"), "{said:?}");
    // A site that starts again still knows of it.
    place.site.kill()?;
    place.site.start().await?;
    place.kubernetes.kubectl(&["delete", "validatingadmissionpolicybinding", "refusing"])?;
    place.until("configmap", "a", "{.metadata.uid}", None).await
}

#[tokio::test]
async fn what_somebody_else_owns_fails_alone_until_the_service_says_to_take_it() -> Result<(), KitError> {
    let kubernetes = CLUSTER.get().await?;
    kubernetes.kubectl(&["create", "namespace", "disputed"])?;
    let theirs = config_map("theirs", "of helm");
    let apply = ["apply", "--server-side", "--field-manager=helm", "--namespace=disputed", "-f", "-"];
    kubernetes.kubectl_with_input(&apply, &theirs)?;
    let files = [("theirs.yaml", &*config_map("theirs", "ours")), ("ours.yaml", &config_map("ours", "1"))];
    let mut place = in_place("disputed", &files).await?;
    let said = place.until_state(ServiceState::Failed).await?;
    let told = &said.failures[0].message;
    assert!(told.starts_with("conflict: \"helm\" owns .data.value ("), "{told}");
    place.until("configmap", "ours", "{.data.value}", Some("1")).await?;
    assert_eq!(place.look("configmap", "theirs", "{.data.value}"), Ok(Some("of helm".to_owned())));
    place.declare("  apply: { conflicts: force }\n", "")?;
    place.until("configmap", "theirs", "{.data.value}", Some("ours")).await?;
    place.until_state(ServiceState::Applied).await.map(|_| ())
}

#[tokio::test]
async fn a_state_folder_from_a_backup_deletes_nothing_that_is_declared() -> Result<(), KitError> {
    let files = [("a.yaml", &*config_map("a", "1")), ("b.yaml", &config_map("b", "1"))];
    let mut place = in_place("backup", &files).await?;
    place.until_state(ServiceState::Applied).await?;
    place.site.kill()?;
    let backup = place.site.back_up()?;
    place.site.start().await?;
    // Since the backup, one object went and one came, and one went and came back as another.
    place.world.app.commit_without(&["manifests/b.yaml"])?;
    place.until("configmap", "b", "{.metadata.uid}", None).await?;
    let commit =
        place.world.commit(&[("b.yaml", &config_map("b", "2")), ("c.yaml", &config_map("c", "1"))])?;
    place.until_commit(&commit).await?;
    place.site.kill()?;
    let uids = |place: &Place| ["a", "b", "c"].map(|name| place.look("configmap", name, "{.metadata.uid}"));
    let before = uids(&place);
    let mark = place.kubernetes.audit_mark()?;
    place.site.restore(&backup)?;
    // At first without the hub: what it holds is old, and in force.
    place.world.hub.kill()?;
    place.site.start().await?;
    place.until("configmap", "b", "{.data.value}", Some("1")).await?;
    place.world.hub.start().await?;
    place.until("configmap", "b", "{.data.value}", Some("2")).await?;
    assert_eq!(uids(&place), before);
    let writes = place.kubernetes.audit_writes_since(mark)?;
    let deleted = writes.iter().filter(|write| write.verb == "delete" && write.uri.contains("/backup/"));
    assert_eq!(deleted.count(), 0);
    Ok(())
}

#[tokio::test]
async fn an_etcd_from_an_older_snapshot_loses_nothing_that_is_declared() -> Result<(), KitError> {
    let files = [("a.yaml", &*config_map("a", "1")), ("b.yaml", &config_map("b", "1"))];
    let mut place = Place::with(Kubernetes::start().await?, "snapshot", &files).await?;
    place.until_state(ServiceState::Applied).await?;
    place.kubectl(&["create", "configmap", "theirs"])?;
    let backup = place.kubernetes.back_up().await?;
    let commit =
        place.world.commit(&[("a.yaml", &config_map("a", "2")), ("c.yaml", &config_map("c", "1"))])?;
    place.until_commit(&commit).await?;
    place.world.app.commit_without(&["manifests/b.yaml"])?;
    place.until("configmap", "b", "{.data.value}", None).await?;
    place.kubernetes.restore(&backup).await?;
    for (name, value) in [("a", "2"), ("c", "1")] {
        place.until("configmap", name, "{.data.value}", Some(value)).await?;
    }
    let left = place.kubectl(&["get", "configmaps", "-o=name"])?;
    let mut left: Vec<&str> = left.lines().collect();
    left.sort_unstable();
    // What was deleted since is there again, and in no inventory: nobody's to delete.
    assert_eq!(left, ["configmap/a", "configmap/b", "configmap/c", "configmap/theirs"]);
    Ok(())
}

#[tokio::test]
async fn a_person_sees_what_would_change_and_takes_over_what_kubectl_applied() -> Result<(), KitError> {
    let kubernetes = CLUSTER.get().await?;
    kubernetes.kubectl(&["create", "namespace", "looked-at"])?;
    let theirs = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: theirs, labels: { old: tool } }\n\
        data: { value: before }\n";
    kubernetes.kubectl_with_input(&["apply", "--namespace=looked-at", "-f", "-"], theirs)?;
    let files = [("theirs.yaml", &*config_map("theirs", "after")), ("ours.yaml", &config_map("ours", "1"))];
    let mut place = in_place("looked-at", &files).await?;
    place.until_state(ServiceState::Failed).await?;

    // Beside the running agent.
    let said = farshore(&place, &["diff"]).await?;
    assert!(said.status.success(), "{said:?}");
    let conflict = "! ConfigMap looked-at/theirs: conflict: \"kubectl-client-side-apply\" owns .data.value";
    assert!(said.stdout.contains(conflict), "{}", said.stdout);
    assert!(said.stdout.contains("1 objects stay as they are"), "{}", said.stdout);
    let said = farshore(&place, &["adopt", "looked-at"]).await?;
    assert_eq!(said.status.code(), Some(4), "{said:?}");
    assert!(said.stdout.contains("kubectl-client-side-apply ("), "{}", said.stdout);
    assert_eq!(place.look("configmap", "theirs", "{.data.value}"), Ok(Some("before".to_owned())));
    let said = farshore(&place, &["adopt", "looked-at", "--yes"]).await?;
    assert!(said.status.success(), "{said:?}");
    place.until("configmap", "theirs", "{.data.value}", Some("after")).await?;
    assert_eq!(place.look("configmap", "theirs", "{.metadata.labels.old}"), Ok(None));
    place.until_state(ServiceState::Applied).await?;

    place.site.kill()?;
    place.kubectl(&["patch", "configmap", "ours", "--type=merge", "-p", r#"{"data":{"value":"2"}}"#])?;
    let said = farshore(&place, &["diff", "looked-at", "--output=json"]).await?;
    assert!(said.stdout.contains(r#""path": ".data.value""#), "{}", said.stdout);
    let said = farshore(&place, &["diff", "no-such-service"]).await?;
    assert_eq!(said.status.code(), Some(3), "{said:?}");
    assert!(said.stderr.contains("there are: looked-at"), "{}", said.stderr);
    Ok(())
}

#[tokio::test]
async fn an_agent_that_is_killed_in_the_middle_of_an_upgrade_leaves_no_lock_and_finishes_it()
-> Result<(), KitError> {
    let files = |value: &str| -> Vec<(String, String)> {
        (0..300).map(|n| (format!("o{n}.yaml"), config_map(&format!("o{n}"), value))).collect()
    };
    let borrowed = |files: &[(String, String)]| -> Vec<(String, String)> { files.to_vec() };
    let first = borrowed(&files("1"));
    let first: Vec<(&str, &str)> = first.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
    let mut place = in_place("upgrading", &first).await?;
    place.until_state(ServiceState::Applied).await?;
    let second = files("2");
    let second: Vec<(&str, &str)> =
        second.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
    let commit = place.world.commit(&second)?;
    let upgraded = |place: &Place| -> Result<usize, String> {
        let values = place.kubectl(&["get", "configmaps", "-o=jsonpath={.items[*].data.value}"]);
        let values = values.map_err(|error| error.to_string())?;
        Ok(values.split_whitespace().filter(|value| *value == "2").count())
    };
    wait_for("the upgrade to begin", SOON, async || match upgraded(&place)? {
        0 => Err("nothing is upgraded".to_owned()),
        some => Ok(some),
    })
    .await?;
    place.site.kill()?;
    place.site.start().await?;
    place.until_commit(&commit).await?;
    assert_eq!(upgraded(&place), Ok(300));
    Ok(())
}

#[tokio::test]
async fn a_revision_without_content_is_an_error_and_takes_nothing_away() -> Result<(), KitError> {
    let files = [("a.yaml", &*config_map("a", "1")), ("b.yaml", &config_map("b", "1"))];
    let mut place = in_place("emptied", &files).await?;
    place.until_state(ServiceState::Applied).await?;
    let uids = |place: &Place| ["a", "b"].map(|name| place.look("configmap", name, "{.metadata.uid}"));
    let before = uids(&place);
    let mark = place.kubernetes.audit_mark()?;
    // As a values file does that switches everything off, a merge that went wrong, and a disk that was full.
    for (round, nothing) in ["# nothing\n", "---\n---\n", ""].into_iter().enumerate() {
        place.world.commit(&[("a.yaml", nothing), ("b.yaml", nothing)])?;
        let is_told = |service: &ServiceStatus| {
            service.state == ServiceState::Failed && service.message.contains("no manifest below the path")
        };
        place.until_service("short of its content", is_told).await?;
        // What was healthy last is kept meanwhile.
        place.patch("configmap", "b", r#"{"data":{"value":"theirs"}}"#)?;
        place.until("configmap", "b", "{.data.value}", Some("1")).await?;
        let value = format!("mended {round}");
        let (a, b) = (config_map("a", &value), config_map("b", "1"));
        let commit = place.world.commit(&[("a.yaml", &a), ("b.yaml", &b)])?;
        place.until_commit(&commit).await?;
        assert_eq!(place.look("configmap", "a", "{.data.value}"), Ok(Some(value)));
    }
    assert_eq!(uids(&place), before);
    let deleted = place.writes(mark)?.iter().filter(|write| write.verb == "delete").count();
    assert_eq!(deleted, 0);
    Ok(())
}

#[tokio::test]
async fn an_object_that_left_stays_while_another_file_cannot_be_read() -> Result<(), KitError> {
    let files = [("a.yaml", &*config_map("a", "1")), ("b.yaml", &config_map("b", "1"))];
    let mut place = in_place("half-read", &files).await?;
    place.until_state(ServiceState::Applied).await?;
    let uid = place.look("configmap", "b", "{.metadata.uid}");
    let mark = place.kubernetes.audit_mark()?;
    // Nobody knows whether what cannot be read is what is missing.
    place.world.app.repo().remove("manifests/b.yaml")?;
    place.world.commit(&[("a.yaml", &config_map("a", "2")), ("c.yaml", "kind: [ConfigMap\n")])?;
    place.until("configmap", "a", "{.data.value}", Some("2")).await?;
    place.until_state(ServiceState::Failed).await?;
    assert_eq!(place.look("configmap", "b", "{.metadata.uid}"), uid);
    let deleted = place.writes(mark)?.iter().filter(|write| write.verb == "delete").count();
    assert_eq!(deleted, 0);
    place.world.commit(&[("c.yaml", &config_map("c", "1"))])?;
    place.until("configmap", "b", "{.metadata.uid}", None).await
}

const DEFINITION: &str = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
    metadata: { name: tills.kept.example }\nspec:\n  group: kept.example\n  scope: Namespaced\n  \
    names: { kind: Till, plural: tills }\n  versions:\n    - name: v1\n      served: true\n      storage: true\n      \
    schema: { openAPIV3Schema: { type: object, x-kubernetes-preserve-unknown-fields: true } }\n";

#[tokio::test]
async fn a_definition_and_what_the_agent_is_made_of_and_lives_in_outlive_their_service()
-> Result<(), KitError> {
    let kubernetes = CLUSTER.get().await?;
    let namespace = |name: &str, labels: &str| {
        format!("apiVersion: v1\nkind: Namespace\nmetadata: {{ name: {name}, labels: {{ {labels} }} }}\n")
    };
    // As the published agent.yaml has it.
    kubernetes
        .kubectl_with_input(&["apply", "-f", "-"], &namespace("home", "farshore.dev/agent: \"true\""))?;
    let agent = config_map("agent", "1")
        .replace("{ name: agent }", "{ name: agent, labels: { farshore.dev/agent: \"true\" } }");
    let (home, other) = (namespace("home", ""), namespace("not-home", ""));
    let files = [
        ("definition.yaml", DEFINITION),
        ("agent.yaml", &*agent),
        ("home.yaml", &home),
        ("not-home.yaml", &other),
        ("a.yaml", &config_map("a", "1")),
        ("stays.yaml", &config_map("stays", "1")),
    ];
    // With a word that lets namespaces go.
    let spec = "  prune: { kinds: [Namespace], count: 9 }\n";
    let mut place = Place::of(kubernetes, "made-of", spec, &files).await?.started().await?;
    place.until_state(ServiceState::Applied).await?;
    place.create("apiVersion: kept.example/v1\nkind: Till\nmetadata: { name: theirs }\n")?;
    let mark = place.kubernetes.audit_mark()?;
    let left = ["definition", "agent", "home", "not-home", "a"].map(|file| format!("manifests/{file}.yaml"));
    place.world.app.commit_without(&left.each_ref().map(String::as_str))?;
    place.until("configmap", "a", "{.metadata.uid}", None).await?;
    place.until("namespace", "not-home", "{.status.phase}", Some("Terminating")).await?;
    // There is no controller that would end it.
    let ended =
        r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"not-home"},"spec":{"finalizers":[]}}"#;
    let end = ["replace", "--raw=/api/v1/namespaces/not-home/finalize", "--filename=-"];
    place.kubernetes.kubectl_with_input(&end, ended)?;
    place.until("namespace", "not-home", "{.metadata.uid}", None).await?;
    // The definition and what the agent is made of.
    let is_told = |service: &ServiceStatus| {
        let message = &service.message;
        message.contains("2 objects that left are kept") && message.contains("name Agent in spec.prune.kinds")
    };
    place.until_service("told of what stays", is_told).await?;
    assert_eq!(place.look("crd", "tills.kept.example", "{.metadata.deletionTimestamp}"), Ok(None));
    assert_eq!(place.look("till", "theirs", "{.metadata.name}"), Ok(Some("theirs".to_owned())));
    assert_eq!(place.look("configmap", "agent", "{.data.value}"), Ok(Some("1".to_owned())));
    assert_eq!(place.look("namespace", "home", "{.status.phase}"), Ok(Some("Active".to_owned())));
    let deleted: Vec<_> = place.kubernetes.audit_writes_since(mark)?;
    let home =
        deleted.iter().filter(|write| write.verb == "delete" && write.uri.contains("/namespaces/home"));
    assert_eq!(home.count(), 0);
    Ok(())
}
