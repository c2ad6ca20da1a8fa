//! What is deleted, what is not, and what is said of it.

use farshore_agent::plan::Item;
use farshore_agent::target::{Deleted, Retry, Target as _};
use serde_json::json;

use crate::cluster::{Place, config_map};
use crate::{PATIENCE, wait_for};

#[tokio::test]
async fn an_object_whose_annotation_says_so_is_kept_whoever_wrote_it() {
    let place = Place::named("kept").await;
    let (_, item) = place.config_map("a").await;
    for annotation in [
        json!({"farshore.dev/prune": "disabled"}),
        json!({"kustomize.toolkit.fluxcd.io/prune": "disabled"}),
        json!({"helm.sh/resource-policy": "keep"}),
        json!({"argocd.argoproj.io/sync-options": "Prune=false"}),
    ] {
        place.edit("a", json!({"metadata": {"annotations": annotation}})).await;
        assert_eq!(place.target.delete(&place.owner, &item).await, Ok(Deleted::Kept), "{annotation}");
        let names = annotation.as_object().expect("annotations").keys();
        let none: serde_json::Map<_, _> = names.map(|name| (name.clone(), json!(null))).collect();
        place.edit("a", json!({"metadata": {"annotations": none}})).await;
    }
    assert_eq!(place.target.delete(&place.owner, &item).await, Ok(Deleted::Gone));
}

#[tokio::test]
async fn a_denied_deletion_is_that_object_s_error_and_the_others_go_on() {
    let place = Place::named("denied").await;
    let (_, denied) = place.config_map("denied").await;
    let (_, free) = place.config_map("free").await;
    let policy = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
         "metadata": {"name": "deny-delete"}, "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["DELETE"], "resources": ["configmaps"], "resourceNames": ["denied"]}]},
            "validations": [{"expression": "false", "message": "it is needed"}]}},
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
         "metadata": {"name": "deny-delete"}, "spec": {"policyName": "deny-delete",
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "denied"}}}}}]});
    place.server.kubectl_with_input(&["apply", "-f", "-"], &policy.to_string()).expect("a good policy");
    // Until the policy is read, the deletion succeeds; then the object is made anew and tried again.
    let mut item = denied;
    let error = loop {
        match place.target.delete(&place.owner, &item).await {
            Err(error) => break error,
            Ok(_) => item = place.config_map("denied").await.1,
        }
    };
    assert!(error.message.contains("it is needed"), "{error}");
    assert_eq!(place.target.delete(&place.owner, &free).await, Ok(Deleted::Gone));
    let binding = ["delete", "validatingadmissionpolicybinding", "deny-delete"];
    place.server.kubectl(&binding).expect("deleted");
    let gone = wait_for("the deletion to be allowed", PATIENCE, async || {
        place.target.delete(&place.owner, &item).await.map_err(|error| error.to_string())
    });
    assert_eq!(gone.await.expect("nobody denies it any more"), Deleted::Gone);
}

#[tokio::test]
async fn a_deletion_that_waits_for_a_finalizer_is_under_way_and_not_done() {
    let place = Place::named("waits").await;
    let mut body = config_map("a", "1");
    body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let item: Item = place.apply(&place.manifest(body).await).await;
    for _ in 0..2 {
        assert_eq!(place.target.delete(&place.owner, &item).await, Ok(Deleted::Going));
    }
    place.edit("a", json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(place.target.delete(&place.owner, &item).await, Ok(Deleted::Gone));
}

#[tokio::test]
async fn what_a_restored_etcd_shows_under_another_life_is_not_ours_to_delete() {
    let place = Place::named("other-life").await;
    let (manifest, before) = place.config_map("a").await;
    place.config_maps().delete("a", &kube::api::DeleteParams::default()).await.expect("deleted");
    // The same object with all our marks, in another life of its name.
    let after = place.apply(&manifest).await;
    assert_ne!(before.uid, after.uid);
    assert_eq!(place.target.delete(&place.owner, &before).await, Ok(Deleted::NotOurs));
    assert_eq!(place.target.delete(&place.owner, &after).await, Ok(Deleted::Gone));
}

#[tokio::test]
async fn an_object_in_a_namespace_that_is_going_says_so() {
    let place = Place::named("going").await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "going-away"}});
    let namespace = place.apply(&place.manifest(namespace).await).await;
    assert_eq!(place.target.delete(&place.owner, &namespace).await, Ok(Deleted::Going));
    let mut body = config_map("a", "1");
    body["metadata"]["namespace"] = "going-away".into();
    let manifest = place.manifest(body).await;
    let error = place.target.apply(&place.owner, &manifest).await.expect_err("it is going");
    assert!(error.message.contains("the namespace is being deleted"), "{error}");
    assert_eq!(error.retry, Retry::Worthwhile);
}
