//! A cluster that refuses, changes or keeps things back: each trouble is told where it is, keeps nothing else from
//! going on, and is over by itself when its cause is.

use std::sync::Arc;
use std::time::Duration;

use farshore_chaos::kit::{KitError, Kubernetes, wait_for};
use farshore_chaos::world::declare::{config_map, source};
use farshore_chaos::world::{Place, SharedCluster};
use farshore_shared::wire::{ServiceState, ServiceStatus};

static CLUSTER: SharedCluster = SharedCluster::with_controllers();

/// Longer, and it does not happen.
const SOON: Duration = Duration::from_secs(90);

fn secret(name: &str) -> String {
    format!("apiVersion: v1\nkind: Secret\nmetadata: {{ name: {name} }}\nstringData: {{ value: \"1\" }}\n")
}

/// Whether just these objects failed.
fn failed(service: &ServiceStatus, objects: &[&str]) -> bool {
    let mut names: Vec<&str> = service.failures.iter().map(|failure| failure.object.as_str()).collect();
    names.sort_unstable();
    service.state == ServiceState::Failed && names == objects
}

/// A namespace that is there before the service is.
async fn namespace(name: &str) -> Result<Arc<Kubernetes>, KitError> {
    let kubernetes = CLUSTER.get().await?;
    kubernetes.kubectl(&["create", "namespace", name])?;
    Ok(kubernetes)
}

#[tokio::test]
async fn a_quota_refuses_only_what_is_beyond_it_until_it_is_raised() -> Result<(), KitError> {
    let kubernetes = namespace("scarce").await?;
    let files = [("a.yaml", &*secret("a")), ("b.yaml", &secret("b")), ("c.yaml", &config_map("c", "1"))];
    let place = Place::of(kubernetes, "scarce", "", &files).await?;
    place.create(
        "apiVersion: v1\nkind: ResourceQuota\nmetadata: { name: few }\nspec: { hard: { count/secrets: 1 } }\n",
    )?;
    place.until("resourcequota", "few", "{.status.hard.count/secrets}", Some("1")).await?;
    let place = place.started().await?;
    let service = place.until_service("short of one Secret", |service| service.failures.len() == 1).await?;
    assert!(service.failures[0].message.contains("exceeded quota"), "{service:?}");
    place.until("configmap", "c", "{.data.value}", Some("1")).await?;
    place.patch("resourcequota", "few", r#"{"spec": {"hard": {"count/secrets": "9"}}}"#)?;
    place.until_state(ServiceState::Applied).await.map(|_service| ())
}

#[tokio::test]
async fn a_namespace_that_does_not_end_is_told_and_used_again_when_it_has() -> Result<(), KitError> {
    let kubernetes = namespace("ending").await?;
    let place = Place::of(kubernetes, "ending", "", &[("a.yaml", &config_map("a", "1"))]).await?;
    let held =
        config_map("held", "1").replace("{ name: held }", "{ name: held, finalizers: [example.com/never] }");
    place.create(&held)?;
    place.kubectl(&["delete", "namespace", "ending", "--wait=false"])?;
    let place = place.started().await?;
    let service = place.until_state(ServiceState::Failed).await?;
    let said = format!("{} {:?}", service.message, service.failures);
    assert!(said.contains("ending") && said.contains("being deleted"), "{said}");
    place.patch("configmap", "held", r#"{"metadata": {"finalizers": null}}"#)?;
    place.until_state(ServiceState::Applied).await?;
    place.until("configmap", "a", "{.data.value}", Some("1")).await
}

#[tokio::test]
async fn a_finalizer_that_never_ends_is_told_and_keeps_nothing_else() -> Result<(), KitError> {
    let held =
        config_map("held", "1").replace("{ name: held }", "{ name: held, finalizers: [example.com/never] }");
    let files =
        [("held.yaml", &*held), ("other.yaml", &config_map("other", "1")), ("a.yaml", &config_map("a", "1"))];
    let mut place = Place::with(CLUSTER.get().await?, "finalizer", &files).await?;
    place.until_state(ServiceState::Applied).await?;
    let commit = place.world.app.commit_without(&["manifests/held.yaml", "manifests/other.yaml"])?;
    place.until("configmap", "other", "{.metadata.name}", None).await?;
    let service = place
        .until_service("waiting for a finalizer", |service| {
            format!("{service:?}").contains("example.com/never")
        })
        .await?;
    assert!(
        service.failures.iter().all(|failure| failure.object == "ConfigMap finalizer/held"),
        "{service:?}"
    );
    place.world.commit(&[("a.yaml", &config_map("a", "2"))])?;
    place.until("configmap", "a", "{.data.value}", Some("2")).await?;
    place.patch("configmap", "held", r#"{"metadata": {"finalizers": null}}"#)?;
    let service = place.until_state(ServiceState::Applied).await?;
    assert_ne!(service.commit, commit);
    place.until("configmap", "held", "{.metadata.name}", None).await
}

#[tokio::test]
async fn a_service_that_leaves_while_somebody_deletes_its_namespace_is_gone_for_good() -> Result<(), KitError>
{
    let files = [("a.yaml", &*config_map("a", "1")), ("b.yaml", &secret("b"))];
    let mut place = Place::with(CLUSTER.get().await?, "leaving", &files).await?;
    place.until_state(ServiceState::Applied).await?;
    place.kubectl(&["delete", "namespace", "leaving", "--wait=false"])?;
    let app = source("app", &place.world.app.url());
    place.world.declared.commit(&[("fleet.yaml", &app)])?;
    place.world.fleet.approve("fleet").await?;
    place.until_status("without services", |status| status.services.is_empty()).await?;
    place.until("namespace", "leaving", "{.metadata.name}", None).await?;
    let inventory = place.site.state().join("inventory");
    let left: Vec<_> = std::fs::read_dir(&inventory).into_iter().flatten().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    Ok(())
}

/// Refuses `ConfigMap`s of the namespace `admitted` that are named `bad`, and writes a value of its own into all.
const ADMISSION: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: { name: no-bad-names }
spec:
  matchConstraints: { resourceRules: [{ apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps] }] }
  validations: [{ expression: "object.metadata.name != 'bad'", message: "no name is bad here" }]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: { name: no-bad-names }
spec:
  policyName: no-bad-names
  validationActions: [Deny]
  matchResources: { namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: admitted } } }
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: { name: our-value }
spec:
  matchConstraints: { resourceRules: [{ apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps] }] }
  reinvocationPolicy: Never
  mutations:
    - patchType: ApplyConfiguration
      applyConfiguration: { expression: 'Object{data: {"value": "theirs"}}' }
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: { name: our-value }
spec:
  policyName: our-value
  matchResources: { namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: admitted } } }
"#;

#[tokio::test]
async fn what_admission_refuses_fails_alone_and_what_it_changes_is_not_fought() -> Result<(), KitError> {
    let kubernetes = namespace("admitted").await?;
    let files = [("a.yaml", &*config_map("a", "ours")), ("bad.yaml", &config_map("bad", "ours"))];
    let place = Place::of(kubernetes, "admitted", "", &files).await?;
    place.create(ADMISSION)?;
    // The API server reads new policies after a while.
    wait_for("the policies to be in force", SOON, async || {
        let created = place.kubectl(&["create", "configmap", "bad", "--dry-run=server"]);
        let mutated = place.kubectl(&["create", "configmap", "a", "--dry-run=server", "--output=yaml"]);
        match (created, mutated) {
            (Err(_refused), Ok(text)) if text.contains("theirs") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    let place = place.started().await?;
    let service =
        place.until_service("refused one", |service| failed(service, &["ConfigMap admitted/bad"])).await?;
    assert!(service.failures[0].message.contains("no name is bad here"), "{service:?}");
    place.until("configmap", "a", "{.data.value}", Some("theirs")).await?;
    // The refused one is tried again and again; what admission changed is not.
    let mark = place.kubernetes.audit_mark()?;
    wait_for("the refused one to be tried three times", SOON, async || {
        let writes = place.writes(mark).map_err(|error| error.to_string())?;
        let bad = writes.iter().filter(|write| write.uri.contains("/configmaps/bad?")).count();
        if bad >= 3 { Ok(()) } else { Err(format!("{writes:?}")) }
    })
    .await?;
    let writes = place.writes(mark)?;
    assert!(!writes.iter().any(|write| write.uri.contains("/configmaps/a?")), "{writes:?}");
    place.kubernetes.kubectl(&["delete", "validatingadmissionpolicybinding", "no-bad-names"])?;
    place.until_state(ServiceState::Applied).await.map(|_service| ())
}

#[tokio::test]
async fn a_webhook_that_does_not_answer_fails_what_it_guards_and_nothing_else() -> Result<(), KitError> {
    let kubernetes = namespace("unanswered").await?;
    let files = [("a.yaml", &*config_map("a", "1")), ("b.yaml", &secret("b"))];
    let place = Place::of(kubernetes, "unanswered", "", &files).await?;
    // It is connected to, and never says anything.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("bound").port();
    place.create(&format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {{ name: silent }}\n\
         webhooks:\n- name: silent.example.com\n  admissionReviewVersions: [v1]\n  sideEffects: None\n  timeoutSeconds: 1\n  \
         failurePolicy: Fail\n  clientConfig: {{ url: \"https://127.0.0.1:{port}/\" }}\n  \
         namespaceSelector: {{ matchLabels: {{ kubernetes.io/metadata.name: unanswered }} }}\n  \
         rules: [{{ apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps] }}]\n"
    ))?;
    wait_for("the webhook to be asked", SOON, async || {
        match place.kubectl(&["create", "configmap", "x", "--dry-run=server"]) {
            Err(_refused) => Ok(()),
            Ok(said) => Err(said),
        }
    })
    .await?;
    let place = place.started().await?;
    let service = place
        .until_service("without its ConfigMap", |service| failed(service, &["ConfigMap unanswered/a"]))
        .await?;
    assert!(service.failures[0].message.contains("silent.example.com"), "{service:?}");
    place.until("secret", "b", "{.metadata.name}", Some("b")).await?;
    place.kubernetes.kubectl(&["delete", "validatingwebhookconfiguration", "silent"])?;
    place.until_state(ServiceState::Applied).await.map(|_service| ())
}

#[tokio::test]
async fn an_object_at_the_size_limit_arrives_and_one_beyond_it_is_its_own_error() -> Result<(), KitError> {
    let (large, beyond) = ("x".repeat(1_000_000), "x".repeat(1_100_000));
    let annotated = config_map("annotated", "1").replace(
        "{ name: annotated }",
        &format!("{{ name: annotated, annotations: {{ a: {} }} }}", "x".repeat(263_000)),
    );
    let files = [
        ("large.yaml", &*config_map("large", &large)),
        ("beyond.yaml", &config_map("beyond", &beyond)),
        ("annotated.yaml", &annotated),
    ];
    let place = Place::with(CLUSTER.get().await?, "sized", &files).await?;
    let failing = ["ConfigMap sized/beyond", "manifests/annotated.yaml (document 1) (ConfigMap annotated)"];
    let service = place.until_service("short of two", |service| failed(service, &failing)).await?;
    let said: Vec<&str> = service.failures.iter().map(|failure| failure.message.as_str()).collect();
    assert!(said.iter().any(|said| said.contains("limit 262144")), "{said:?}");
    assert!(said.iter().any(|said| said.contains("may not be more than 1048576 bytes")), "{said:?}");
    place.until("configmap", "large", "{.metadata.name}", Some("large")).await
}

#[tokio::test]
async fn large_objects_do_not_stay_in_the_memory_of_the_agent() -> Result<(), KitError> {
    let text = "x".repeat(500_000);
    let files: Vec<(String, String)> =
        (0..100).map(|number| (format!("{number}.yaml"), config_map(&format!("c{number}"), &text))).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
    let mut place =
        Place::of(CLUSTER.get().await?, "heavy", "", &files).await?.option("--sweep=5s").started().await?;
    place.until_state(ServiceState::Applied).await?;
    // As after a reboot, with sweeps over all of it; somebody changes one, which is read and put back.
    place.site.start().await?;
    place.patch("configmap", "c7", r#"{"data": {"value": "theirs"}}"#)?;
    place.until("configmap", "c7", "{.data.value}", Some(&text)).await?;
    let text =
        std::fs::read_to_string(format!("/proc/{}/status", place.site.process().id())).expect("it runs");
    let kilobytes = text.lines().find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB"));
    let kilobytes: u64 = kilobytes.and_then(|number| number.parse().ok()).expect("Linux tells");
    // All objects together have 50 MB.
    assert!(kilobytes < 25_000, "{kilobytes} kB of its own");
    Ok(())
}
