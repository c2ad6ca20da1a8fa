//! What an apply would change, asked of the API server itself.

use farshore_agent::target::{Preview, Target as _};
use farshore_agent::terms::Terms;
use serde_json::json;

use crate::cluster::{Place, config_map, deployment};

fn lines(preview: Preview) -> Vec<String> {
    let (Preview::New(found) | Preview::Changed(found)) = preview else { panic!("{preview:?}") };
    found.lines.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_preview_tells_what_would_change_and_changes_nothing() {
    let place = Place::named("preview").await;
    let next = place.manifest(config_map("a", "2")).await;
    let preview = place.target.preview(&place.owner, &next).await.expect("a dry run");
    assert!(matches!(preview, Preview::New(_)), "{preview:?}");
    assert!(lines(preview).contains(&"+ .data.a: \"2\"".to_owned()));
    assert!(place.config_maps().get_opt("a").await.expect("the API answers").is_none());

    let (manifest, _) = place.config_map("a").await;
    assert_eq!(place.target.preview(&place.owner, &manifest).await, Ok(Preview::Same));
    let preview = place.target.preview(&place.owner, &next).await.expect("a dry run");
    assert_eq!(lines(preview), ["~ .data.a: \"1\" -> \"2\""]);
    let live = place.config_maps().get("a").await.expect("it is there");
    assert_eq!(live.data["data"]["a"], "1");
}

#[tokio::test]
async fn a_preview_hides_the_values_of_secrets() {
    let place = Place::named("preview-secret").await;
    let secret = |value: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"key": value}});
    place.apply(&place.manifest(secret("hunter2")).await).await;
    let next = place.manifest(secret("correct horse")).await;
    let told = lines(place.target.preview(&place.owner, &next).await.expect("a dry run"));
    assert_eq!(told, ["~ .data.key: (hidden) -> (hidden)"]);
}

#[tokio::test]
async fn a_preview_has_the_same_conflicts_and_refusals_as_the_apply() {
    let place = Place::named("preview-refused").await;
    place.apply(&place.manifest(deployment("web")).await).await;
    let mut other = deployment("web");
    other["spec"]["selector"]["matchLabels"] = json!({"app": "other"});
    other["spec"]["template"]["metadata"]["labels"] = json!({"app": "other"});
    let mut manifest = place.manifest(other).await;
    let error = place.target.preview(&place.owner, &manifest).await.expect_err("it cannot change");
    assert!(error.message.contains("farshore.dev/recreate"), "{error}");
    manifest.terms = Terms { recreate: true, ..Terms::default() };
    assert_eq!(place.target.preview(&place.owner, &manifest).await, Ok(Preview::Anew));
    let mut odd = config_map("a", "1");
    odd["data"]["a"] = json!({"no": "text"});
    let manifest = place.manifest(odd).await;
    assert!(place.target.preview(&place.owner, &manifest).await.is_err());
}
