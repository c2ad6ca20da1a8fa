//! Fields that somebody else owns, and fields that cannot be changed.

use farshore_agent::object::{Manifest, SERVICE_LABEL};
use farshore_agent::plan::Item;
use farshore_agent::target::{Retry, Target as _};
use farshore_agent::terms::{ADOPT_ANNOTATION, FORCE_ANNOTATION, Owned, RECREATE_ANNOTATION, Terms};
use farshore_shared::wire::{ApplyPolicy, PruneBudget};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{Place, config_map, deployment};

/// A manifest with what its annotations say of it.
async fn with_terms(place: &Place, body: Value) -> Manifest {
    let mut manifest = place.manifest(body).await;
    manifest.terms = Terms::of(&manifest, ApplyPolicy::default(), PruneBudget::default());
    manifest
}

fn annotated(mut body: Value, annotation: &str) -> Value {
    body["metadata"]["annotations"][annotation] = "true".into();
    body
}

/// What somebody else applies, by server-side apply.
async fn by_others(place: &Place, manager: &str, body: &Value) {
    let name = body["metadata"]["name"].as_str().expect("a name");
    let by = PatchParams::apply(manager);
    place.config_maps().patch(name, &by, &Patch::Apply(body)).await.expect("nobody is in the way");
}

async fn value(place: &Place, name: &str, key: &str) -> Value {
    place.config_maps().get(name).await.expect("it is there").data["data"][key].clone()
}

#[tokio::test]
async fn what_somebody_else_owns_is_told_with_manager_and_fields_and_left_alone() {
    let place = Place::named("conflict").await;
    by_others(&place, "helm", &config_map("a", "theirs")).await;
    let manifest = place.manifest(config_map("a", "ours")).await;
    let error = place.target.apply(&place.owner, &manifest).await.expect_err("helm owns it");
    assert!(error.message.starts_with("conflict: \"helm\" owns .data.a ("), "{error}");
    assert!(error.message.contains("farshore.dev/force"), "{error}");
    assert_eq!(error.retry, Retry::Worthwhile);
    assert_eq!(value(&place, "a", "a").await, "theirs");
    let live = place.config_maps().get("a").await.expect("it is there");
    assert_eq!(live.metadata.labels, None, "nothing of ours is on it");
}

#[tokio::test]
async fn what_somebody_else_wants_to_be_the_same_is_owned_by_both() {
    let place = Place::named("agree").await;
    by_others(&place, "helm", &config_map("a", "1")).await;
    let (manifest, _) = place.config_map("a").await;
    assert_eq!(manifest.terms, Terms::default());
}

#[tokio::test]
async fn an_object_that_asks_for_it_takes_the_fields_of_others() {
    let place = Place::named("forced").await;
    by_others(&place, "helm", &config_map("a", "theirs")).await;
    let manifest = with_terms(&place, annotated(config_map("a", "ours"), FORCE_ANNOTATION)).await;
    place.apply(&manifest).await;
    assert_eq!(value(&place, "a", "a").await, "ours");
}

#[tokio::test]
async fn a_field_that_was_ours_is_taken_back_and_one_that_was_not_is_told() {
    let place = Place::named("taken-back").await;
    let (_, item) = place.config_map("a").await;
    place.edit("a", json!({"data": {"a": "theirs", "c": "theirs"}})).await;
    let next = |data: Value| {
        let mut body = config_map("a", "ours");
        body["data"] = data;
        body
    };
    // Another manifest than the one that was applied: what was ours in that one is in the inventory.
    let mut manifest = place.manifest(next(json!({"a": "new", "b": "1", "c": "new"}))).await;
    manifest.terms.owned = Owned::Fields(item.fields.clone());
    let error = place.target.apply(&place.owner, &manifest).await.expect_err("c was never ours");
    assert!(error.message.starts_with("conflict: \"kubectl-edit\" owns .data.a, .data.c"), "{error}");
    assert_eq!(value(&place, "a", "a").await, "theirs");

    let mut manifest = place.manifest(next(json!({"a": "new", "b": "1"}))).await;
    manifest.terms.owned = Owned::Fields(item.fields);
    place.apply(&manifest).await;
    assert_eq!(value(&place, "a", "a").await, "new");
    assert_eq!(value(&place, "a", "c").await, "theirs");
}

#[tokio::test]
async fn a_site_that_lost_its_inventory_knows_its_objects_by_their_marks() {
    let place = Place::named("lost").await;
    let (manifest, _) = place.config_map("a").await;
    place.edit("a", json!({"data": {"a": "theirs"}})).await;
    assert_eq!(manifest.terms.owned, Owned::Unknown);
    place.apply(&manifest).await;
    assert_eq!(value(&place, "a", "a").await, "1");
}

fn selecting(app: &str) -> Value {
    let mut body = deployment("web");
    body["spec"]["selector"]["matchLabels"] = json!({"app": app});
    body["spec"]["template"]["metadata"]["labels"] = json!({"app": app});
    body
}

#[tokio::test]
async fn an_object_whose_field_cannot_change_says_how_to_ask_and_is_made_anew_where_asked() {
    let place = Place::named("immutable").await;
    let deployments = place.api("apps", "v1", "Deployment", "deployments");
    let before: Item = place.apply(&place.manifest(selecting("one")).await).await;
    let manifest = place.manifest(selecting("two")).await;
    let error = place.target.apply(&place.owner, &manifest).await.expect_err("it cannot change");
    assert!(error.message.contains("field is immutable"), "{error}");
    assert!(error.message.contains("farshore.dev/recreate: \"true\""), "{error}");
    assert_eq!(error.retry, Retry::Pointless);
    let live = deployments.get("web").await.expect("it is there");
    assert_eq!(live.metadata.uid, before.uid);

    let manifest = with_terms(&place, annotated(selecting("two"), RECREATE_ANNOTATION)).await;
    let after = place.apply(&manifest).await;
    assert_ne!(after.uid, before.uid);
    let live = deployments.get("web").await.expect("it is there");
    assert_eq!(live.data["spec"]["selector"]["matchLabels"]["app"], "two");
}

#[tokio::test]
async fn what_is_not_ours_is_never_deleted_to_be_made_anew() {
    let place = Place::named("not-anew").await;
    let deployments = place.api("apps", "v1", "Deployment", "deployments");
    let theirs = PatchParams::apply("kubectl");
    deployments.patch("web", &theirs, &Patch::Apply(selecting("one"))).await.expect("nobody is in the way");
    let before = deployments.get("web").await.expect("it is there").metadata.uid;
    let body = annotated(annotated(selecting("two"), RECREATE_ANNOTATION), ADOPT_ANNOTATION);
    let manifest = with_terms(&place, annotated(body, FORCE_ANNOTATION)).await;
    let error = place.target.apply(&place.owner, &manifest).await.expect_err("it is not ours");
    assert!(error.message.contains("does not carry our mark"), "{error}");
    assert_eq!(deployments.get("web").await.expect("it is there").metadata.uid, before);
}

#[tokio::test]
async fn what_is_made_anew_is_proven_to_be_ours_as_what_is_deleted() {
    let place = Place::named("proven-anew").await;
    let deployments = place.api("apps", "v1", "Deployment", "deployments");
    let applied = place.apply(&place.manifest(selecting("one")).await).await;
    // By force, so that nothing else is in the way.
    let body = annotated(annotated(selecting("two"), RECREATE_ANNOTATION), FORCE_ANNOTATION);
    let wanted = with_terms(&place, body).await;
    let uid = || async { deployments.get("web").await.expect("it is there").metadata.uid };
    let by = PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
    let edit = async |metadata: Value| {
        let change = Patch::Merge(json!({"metadata": metadata}));
        deployments.patch("web", &by, &change).await.expect("a good change");
    };
    let refused = async |manifest: &Manifest, why: &str| {
        let error = place.target.apply(&place.owner, manifest).await.expect_err("it is not proven");
        assert!(error.message.contains(why), "{error}");
        assert_eq!((uid().await, error.retry), (applied.uid.clone(), Retry::Pointless));
    };
    edit(json!({"labels": {SERVICE_LABEL: "another"}})).await;
    refused(&wanted, "does not carry our mark").await;
    edit(json!({"labels": {SERVICE_LABEL: place.owner.service}})).await;

    let mut earlier = wanted.clone();
    earlier.terms.listed = Some("earlier-life".into());
    refused(&earlier, "listed earlier-life").await;

    edit(json!({"annotations": {"helm.sh/resource-policy": "keep"}})).await;
    refused(&wanted, "says that it stays").await;
    assert!(place.target.preview(&place.owner, &wanted).await.is_err(), "a preview promises nothing else");
    edit(json!({"annotations": {"helm.sh/resource-policy": null}})).await;

    let mut listed = wanted;
    listed.terms.listed.clone_from(&applied.uid);
    assert_ne!(place.apply(&listed).await.uid, applied.uid);
}

#[tokio::test]
async fn among_more_fields_than_are_remembered_only_those_that_are_ours_are_taken() {
    let place = Place::named("many-fields").await;
    let body = |value: &str, more: &[&str]| {
        let mut body = config_map("a", value);
        (0..1_100).for_each(|n| body["data"][format!("k{n}")] = value.into());
        more.iter().for_each(|key| body["data"][*key] = value.into());
        body
    };
    let item = place.apply(&place.manifest(body("1", &[])).await).await;
    assert!(item.fields.are_too_many());
    place.edit("a", json!({"data": {"foreign": "theirs"}})).await;
    let next = async |value: &str, more: &[&str]| {
        let mut manifest = place.manifest(body(value, more)).await;
        manifest.terms.owned = Owned::TooMany;
        manifest
    };
    let with_theirs = next("2", &["foreign"]).await;
    let error = place.target.apply(&place.owner, &with_theirs).await.expect_err("it was never ours");
    assert!(error.message.starts_with("conflict: \"kubectl-edit\" owns .data.foreign ("), "{error}");
    assert_eq!(
        (value(&place, "a", "foreign").await, value(&place, "a", "k7").await),
        ("theirs".into(), "1".into())
    );

    // Who applied the same value owns the field with us.
    let both =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k7": "1"}});
    by_others(&place, "helm", &both).await;
    place.apply(&next("2", &[]).await).await;
    assert_eq!(
        (value(&place, "a", "foreign").await, value(&place, "a", "k7").await),
        ("theirs".into(), "2".into())
    );
}

#[tokio::test]
async fn what_another_service_applied_is_not_ours_because_nothing_is_remembered() {
    let place = Place::named("unremembered").await;
    place.config_map("a").await;
    place
        .edit("a", json!({"data": {"a": "theirs"}, "metadata": {"labels": {SERVICE_LABEL: "another"}}}))
        .await;
    let manifest = place.manifest(config_map("a", "2")).await;
    assert_eq!(manifest.terms.owned, Owned::Unknown);
    let error = place.target.apply(&place.owner, &manifest).await.expect_err("it is another's");
    assert!(error.message.contains("owns .data.a"), "{error}");
    assert_eq!(value(&place, "a", "a").await, "theirs");
}

#[tokio::test]
async fn what_is_wrong_beside_an_immutable_field_deletes_nothing() {
    let place = Place::named("wrong-too").await;
    let before = place.apply(&place.manifest(selecting("one")).await).await;
    let mut body = annotated(selecting("two"), RECREATE_ANNOTATION);
    body["spec"]["template"]["spec"]["containers"][0]["name"] = "Not A Name".into();
    let manifest = with_terms(&place, body).await;
    let error = place.target.apply(&place.owner, &manifest).await.expect_err("it is wrong");
    assert!(error.message.contains("containers[0].name"), "{error}");
    let live = place.api("apps", "v1", "Deployment", "deployments").get("web").await.expect("it is there");
    assert_eq!(live.metadata.uid, before.uid);
}
