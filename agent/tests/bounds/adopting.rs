//! Objects that others have applied, taken over.

use farshore_agent::object::Manifest;
use farshore_agent::target::{Effect, Target as _};
use farshore_agent::terms::{ADOPT_ANNOTATION, Terms};
use farshore_shared::wire::{ApplyPolicy, PruneBudget};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{Place, config_map, deployment};

fn web(replicas: u32) -> Value {
    let mut body = deployment("web");
    body["spec"]["replicas"] = replicas.into();
    body
}

async fn adopting(place: &Place, mut body: Value) -> Manifest {
    body["metadata"]["annotations"][ADOPT_ANNOTATION] = "true".into();
    let mut manifest = place.manifest(body).await;
    manifest.terms = Terms::of(&manifest, ApplyPolicy::default(), PruneBudget::default());
    manifest
}

/// The managers of an object that own more than its status.
async fn managers(place: &Place) -> Vec<String> {
    let live = place.api("apps", "v1", "Deployment", "deployments").get("web").await.expect("it is there");
    let fields = live.metadata.managed_fields.expect("somebody owns it").into_iter();
    fields.filter(|entry| entry.subresource.is_none()).filter_map(|entry| entry.manager).collect()
}

/// What kubectl applies, in the way that it does by default.
fn by_kubectl(place: &Place, body: &Value) {
    let namespace = format!("--namespace={}", place.namespace);
    let apply = ["apply", "-f", "-", &namespace];
    place.server.kubectl_with_input(&apply, &body.to_string()).expect("a good manifest");
}

#[tokio::test]
async fn what_kubectl_applied_is_taken_over_with_its_fields_and_nothing_restarts() {
    let place = Place::named("from-kubectl").await;
    let deployments = place.api("apps", "v1", "Deployment", "deployments");
    let mut theirs = web(2);
    theirs["metadata"]["labels"] = json!({"left": "over"});
    theirs["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 7.into();
    by_kubectl(&place, &theirs);
    let before = deployments.get("web").await.expect("it is there");

    // What is not asked for is not done: the label of kubectl stays, because it is not ours.
    place.apply(&place.manifest(web(2)).await).await;
    let live = deployments.get("web").await.expect("it is there");
    assert_eq!(live.metadata.labels.as_ref().expect("labels")["left"], "over");

    let mut ours = web(2);
    ours["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 7.into();
    place.apply(&adopting(&place, ours).await).await;
    let after = deployments.get("web").await.expect("it is there");
    assert_eq!(after.metadata.uid, before.metadata.uid);
    assert_eq!(after.data["spec"]["template"], before.data["spec"]["template"], "no Pod is made anew");
    let labels = after.metadata.labels.expect("our own");
    assert!(!labels.contains_key("left"), "what the manifest does not have goes: {labels:?}");
    let annotations = after.metadata.annotations.expect("our own");
    assert!(!annotations.contains_key("kubectl.kubernetes.io/last-applied-configuration"));
    assert_eq!(managers(&place).await, ["farshore"]);
}

#[tokio::test]
async fn what_flux_argo_and_helm_own_otherwise_is_taken_over_where_asked() {
    let place = Place::named("from-others").await;
    for (n, manager) in ["kustomize-controller", "argocd-controller", "helm"].into_iter().enumerate() {
        let name = format!("a{n}");
        let theirs = config_map(&name, "theirs");
        let by = PatchParams::apply(manager);
        place.config_maps().patch(&name, &by, &Patch::Apply(&theirs)).await.expect("applied");
        let mut ours = config_map(&name, "ours");
        ours["data"] = json!({"a": "ours"});
        let refused = place.target.apply(&place.owner, &place.manifest(ours.clone()).await).await;
        let error = refused.expect_err("it is not ours yet");
        assert!(error.message.contains(manager) && error.message.contains(ADOPT_ANNOTATION), "{error}");
        place.apply(&adopting(&place, ours).await).await;
        let live = place.config_maps().get(&name).await.expect("it is there");
        assert_eq!(live.data["data"], json!({"a": "ours"}), "{manager}");
    }
}

#[tokio::test]
async fn who_only_edits_is_not_succeeded() {
    let place = Place::named("from-editors").await;
    by_kubectl(&place, &config_map("a", "1"));
    place.edit("a", json!({"data": {"a": "edited"}})).await;
    let manifest = adopting(&place, config_map("a", "ours")).await;
    let error = place.target.apply(&place.owner, &manifest).await.expect_err("somebody edited it");
    assert!(error.message.starts_with("conflict: \"kubectl-edit\" owns .data.a"), "{error}");
}

#[tokio::test]
async fn an_adoption_that_is_rehearsed_changes_nothing_and_tells_the_same() {
    let place = Place::named("rehearsed").await;
    by_kubectl(&place, &web(2));
    let manifest = place.manifest(web(2)).await;
    let rehearsed = place.target.adopt(&place.owner, &manifest, Effect::Rehearsed).await.expect("it may");
    assert_eq!(managers(&place).await, ["kubectl-client-side-apply"]);
    let taken = place.target.adopt(&place.owner, &manifest, Effect::Lasting).await.expect("it may");
    assert_eq!(taken, rehearsed);
    assert_eq!(taken[0].manager, "kubectl-client-side-apply");
    assert!(taken[0].fields > 5, "{taken:?}");
    assert_eq!(managers(&place).await, ["farshore"]);
    let again = place.target.adopt(&place.owner, &manifest, Effect::Lasting).await;
    assert_eq!(again, Ok(vec![]));
    let absent = place.manifest(config_map("absent", "1")).await;
    assert_eq!(place.target.adopt(&place.owner, &absent, Effect::Lasting).await, Ok(vec![]));
}
