//! What an agent keeps, repairs, removes and leaves alone in a real Kubernetes API.

use std::borrow::Borrow;
use std::time::Duration;

use farshore_chaos::kit::{KitError, Kubernetes};
use farshore_chaos::world::declare::{config_map, source};
use farshore_chaos::world::{Place, SharedCluster};
use farshore_shared::wire::ServiceState;

const SOON: Duration = Duration::from_secs(60);

/// For all tests of this file but one; each has a namespace, a fleet and a site of its own.
static CLUSTER: SharedCluster = SharedCluster::new();

/// Starts a site with these manifests.
async fn begun<K: Borrow<Kubernetes>>(
    kubernetes: K,
    name: &'static str,
    manifests: &[(&str, &str)],
) -> Result<Place<K>, KitError> {
    Place::of(kubernetes, name, "", manifests).await?.patience(SOON).started().await
}

/// Starts a site with these manifests, and returns when it says that they are applied.
async fn in_place(name: &'static str, manifests: &[(&str, &str)]) -> Result<Place, KitError> {
    let place = begun(CLUSTER.get().await?, name, manifests).await?;
    place.until_state(ServiceState::Applied).await?;
    Ok(place)
}

/// Takes the only service out of the fleet repository, which has to be approved.
async fn remove_service(place: &mut Place) -> Result<(), KitError> {
    let text = source("app", &place.world.app.url());
    place.world.declared.commit(&[("fleet.yaml", &text)])?;
    place.world.fleet.approve("fleet").await
}

/// Returns after the site has looked at everything, from beginning to end, at least once more: it has then put the
/// `ConfigMap` `probe` back, and once more.
async fn passes(place: &Place) -> Result<(), KitError> {
    for _ in 0..2 {
        place.kubectl(&["delete", "configmap", "probe"])?;
        place.until("configmap", "probe", "{.data.value}", Some("1")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_foreign_change_to_an_owned_field_is_put_back() -> Result<(), KitError> {
    let place = in_place("owned", &[("a.yaml", &config_map("a", "ours"))]).await?;
    for merge in [r#"{"data":{"value":"theirs"}}"#, r#"{"data":null}"#] {
        place.kubectl(&["patch", "configmap", "a", "--type=merge", "--patch", merge])?;
        place.until("configmap", "a", "{.data.value}", Some("ours")).await?;
    }
    // By somebody who takes the field over with server-side apply, which is the strongest claim there is.
    let theirs = config_map("a", "theirs");
    let force = ["--namespace=owned", "apply", "--server-side", "--force-conflicts", "-f", "-"];
    place.kubernetes.kubectl_with_input(&force, &theirs)?;
    place.until("configmap", "a", "{.data.value}", Some("ours")).await
}

#[tokio::test]
async fn a_field_of_somebody_else_is_left_alone() -> Result<(), KitError> {
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: { name: web }\nspec:\n  \
        selector: { matchLabels: { app: web } }\n  template:\n    metadata: { labels: { app: web } }\n    \
        spec: { containers: [{ name: web, image: \"web:1\" }] }\n";
    let files = [("web.yaml", deployment), ("probe.yaml", &config_map("probe", "1"))];
    let place = begun(CLUSTER.get().await?, "foreign", &files).await?;
    place.until("deployment", "web", "{.spec.replicas}", Some("1")).await?;
    place.kubernetes.report_available("foreign", "web")?;
    place.until_state(ServiceState::Applied).await?;
    let mark = place.kubernetes.audit_mark()?;
    place.kubectl(&["scale", "deployment", "web", "--replicas=7"])?;
    place.kubectl(&["annotate", "deployment", "web", "who=somebody-else"])?;
    place.kubectl(&["label", "deployment", "web", "who=somebody-else"])?;
    passes(&place).await?;
    for (path, wanted) in [
        ("{.spec.replicas}", "7"),
        ("{.metadata.annotations.who}", "somebody-else"),
        ("{.metadata.labels.who}", "somebody-else"),
    ] {
        assert_eq!(place.look("deployment", "web", path), Ok(Some(wanted.to_owned())), "{path}");
    }
    let writes = place.kubernetes.audit_writes_since(mark)?;
    let ours = writes.iter().filter(|write| !write.user_agent.starts_with("kubectl/"));
    let on_web: Vec<_> =
        ours.filter(|write| write.uri.contains("/namespaces/foreign/deployments/web")).collect();
    assert!(on_web.is_empty(), "the agent wrote although nothing of its own had changed: {on_web:?}");
    Ok(())
}

#[tokio::test]
async fn a_deleted_object_returns() -> Result<(), KitError> {
    let place = in_place("deleted", &[("a.yaml", &config_map("a", "1"))]).await?;
    let before = place.look("configmap", "a", "{.metadata.uid}");
    place.kubectl(&["delete", "configmap", "a"])?;
    place.until("configmap", "a", "{.data.value}", Some("1")).await?;
    assert_ne!(place.look("configmap", "a", "{.metadata.uid}"), before);
    Ok(())
}

#[tokio::test]
async fn an_object_that_a_commit_removes_is_deleted_and_no_other() -> Result<(), KitError> {
    let files = [("a.yaml", &*config_map("a", "1")), ("b.yaml", &config_map("b", "1"))];
    let mut place = in_place("shrinking", &files).await?;
    let kept = place.look("configmap", "b", "{.metadata.uid}");
    place.world.app.commit_without(&["manifests/a.yaml"])?;
    place.until("configmap", "a", "{.metadata.uid}", None).await?;
    assert_eq!(place.look("configmap", "b", "{.metadata.uid}"), kept);
    // The namespace was made by the agent and is nobody's to delete.
    remove_service(&mut place).await?;
    place.until("configmap", "b", "{.metadata.uid}", None).await?;
    assert_eq!(place.look("namespace", "shrinking", "{.status.phase}"), Ok(Some("Active".to_owned())));
    Ok(())
}

#[tokio::test]
async fn an_object_that_the_agent_never_applied_is_never_touched() -> Result<(), KitError> {
    let files = [("a.yaml", &*config_map("a", "1")), ("probe.yaml", &config_map("probe", "1"))];
    let mut place = in_place("bystander", &files).await?;
    place.kubectl(&["create", "configmap", "theirs", "--from-literal=value=theirs"])?;
    // Somebody copied our object with all its marks, as `kubectl get -o yaml` and an editor do.
    let copy = place.kubectl(&["get", "configmap", "a", "--output=json"])?;
    let copy = copy.replace(r#""name": "a""#, r#""name": "copy""#);
    let mut copy: serde_json::Value = serde_json::from_str(&copy).expect("kubectl prints JSON");
    for given in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        copy["metadata"].as_object_mut().expect("metadata").remove(given);
    }
    place.kubernetes.kubectl_with_input(&["create", "-f", "-"], &copy.to_string())?;
    let versions = |place: &Place| {
        ["theirs", "copy"]
            .map(|name| place.look("configmap", name, "{.metadata.uid}/{.metadata.resourceVersion}"))
    };
    let before = versions(&place);
    assert!(before.iter().all(|version| matches!(version, Ok(Some(_)))), "{before:?}");
    passes(&place).await?;
    // Removals are the moment in which a careless agent takes more than its own.
    place.world.app.commit_without(&["manifests/a.yaml"])?;
    place.until("configmap", "a", "{.metadata.uid}", None).await?;
    remove_service(&mut place).await?;
    place.until("configmap", "probe", "{.metadata.uid}", None).await?;
    assert_eq!(versions(&place), before);
    Ok(())
}

#[tokio::test]
async fn a_broken_aggregated_api_fails_only_its_own_objects() -> Result<(), KitError> {
    let kubernetes = CLUSTER.get().await?;
    let broken = "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\n\
        metadata: { name: v1.broken.example }\n\
        spec: { group: broken.example, version: v1, groupPriorityMinimum: 100, versionPriority: 100,\n  \
        insecureSkipTLSVerify: true, service: { namespace: nowhere, name: nothing } }\n";
    kubernetes.kubectl_with_input(&["apply", "--server-side", "-f", "-"], broken)?;
    let thing = "apiVersion: broken.example/v1\nkind: Thing\nmetadata: { name: one }\nspec: {}\n";
    let files = [("a.yaml", &*config_map("a", "1")), ("thing.yaml", thing)];
    let place = begun(kubernetes, "partly", &files).await?;
    place.until("configmap", "a", "{.data.value}", Some("1")).await?;
    let failures = place.until_state(ServiceState::Failed).await?.failures;
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].object.contains("Thing"), "{failures:?}");
    // What it can reach it keeps repairing.
    place.kubectl(&["delete", "configmap", "a"])?;
    place.until("configmap", "a", "{.data.value}", Some("1")).await
}

#[tokio::test]
async fn an_api_that_is_away_at_the_start_is_waited_for() -> Result<(), KitError> {
    let mut kubernetes = Kubernetes::start().await?;
    kubernetes.stop_api();
    let mut place = begun(kubernetes, "patient", &[("a.yaml", &config_map("a", "1"))]).await?;
    let silence = format!("target does not answer ({}", place.kubernetes.url());
    place.site.process().wait_for_line(&silence, SOON).await?;
    place.kubernetes.start_api().await?;
    place.until("configmap", "a", "{.data.value}", Some("1")).await?;
    assert_eq!(place.site.process().ended()?, None, "it waited, and did not end");
    Ok(())
}
