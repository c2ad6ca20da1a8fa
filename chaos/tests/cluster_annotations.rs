//! What the annotations that people already have for Argo CD, Helm and Flux mean here, in a real Kubernetes API: all of
//! them in one service, because that is what a repository looks like whose owner moves from one tool to another.

use farshore_chaos::kit::{AuditMark, KitError, Kubernetes};
use farshore_chaos::world::Place;
use farshore_chaos::world::declare::config_map;
use farshore_shared::wire::ServiceState;
use serde_json::Value;

const NAME: &str = "annotated";

/// A `ConfigMap` with an annotation.
fn noted(name: &str, value: &str, annotation: &str) -> String {
    config_map(name, value).replace("metadata: {", &format!("metadata: {{ annotations: {{ {annotation} }},"))
}

/// What runs before a revision.
fn migration(image: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: migrate\n  \
         annotations: {{ argocd.argoproj.io/hook: PreSync }}\nspec:\n  template:\n    spec:\n      \
         restartPolicy: Never\n      containers: [{{ name: a, image: \"{image}\" }}]\n"
    )
}

/// A Secret whose type can only be changed by making it anew.
fn anew(kind: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{ name: anew, annotations: {{ kustomize.toolkit.fluxcd.io/force: \
         enabled }} }}\ntype: example.com/{kind}\n"
    )
}

/// Whether all of a revision is what it says.
fn revision(value: &str) -> Vec<(String, String)> {
    let files = [
        ("migrate", migration(&format!("m:{value}"))),
        ("early", noted("early", value, "argocd.argoproj.io/sync-wave: \"-1\"")),
        ("plain", config_map("plain", value)),
        ("late", noted("late", value, "argocd.argoproj.io/sync-wave: \"2\"")),
        (
            "heavy",
            noted("heavy", value, "helm.sh/hook: \"post-install,post-upgrade\", helm.sh/hook-weight: \"5\""),
        ),
        (
            "light",
            noted("light", value, "helm.sh/hook: \"post-install,post-upgrade\", helm.sh/hook-weight: \"-5\""),
        ),
        ("installed", noted("installed", value, "helm.sh/hook: post-install")),
        ("upgraded", noted("upgraded", value, "helm.sh/hook: post-upgrade")),
        ("once", noted("once", value, "kustomize.toolkit.fluxcd.io/ssa: IfNotPresent")),
        ("theirs", noted("theirs", value, "kustomize.toolkit.fluxcd.io/reconcile: disabled")),
        ("absent", noted("absent", value, "kustomize.toolkit.fluxcd.io/reconcile: disabled")),
        ("anew", anew(&format!("v{value}"))),
    ];
    files.map(|(name, text)| (format!("{name}.yaml"), text)).to_vec()
}

/// What leaves with the second revision: all but one of it says that it stays.
fn leaving() -> [(&'static str, String); 4] {
    [
        ("kept-argo", noted("kept-argo", "1", "argocd.argoproj.io/sync-options: Prune=false")),
        ("kept-helm", noted("kept-helm", "1", "helm.sh/resource-policy: keep")),
        ("kept-flux", noted("kept-flux", "1", "kustomize.toolkit.fluxcd.io/prune: disabled")),
        ("gone", config_map("gone", "1")),
    ]
}

/// Ends the Job of this image, as its controller would. There is none here.
async fn migrated(place: &Place<Kubernetes>, image: &str) -> Result<(), KitError> {
    place.until("job", "migrate", "{.spec.template.spec.containers[0].image}", Some(image)).await?;
    let done = r#"{"status":{"succeeded":1,"startTime":"2026-11-21T09:00:00Z","completionTime":"2026-11-21T09:00:01Z",
        "conditions":[{"type":"SuccessCriteriaMet","status":"True"},{"type":"Complete","status":"True"}]}}"#;
    place
        .kubectl(&["patch", "job", "migrate", "--subresource=status", "--type=merge", "--patch", done])
        .map(|_patched| ())
}

/// The objects that the agent applied since then, in order, each once.
fn applied(place: &Place<Kubernetes>, since: AuditMark) -> Result<Vec<String>, KitError> {
    let mut names: Vec<String> = vec![];
    for write in place.writes(since)? {
        let path = write.uri.split('?').next().unwrap_or_default();
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        if write.verb == "patch" && !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Demands that these were applied one after the other, whatever was in between.
fn assert_order(applied: &[String], wanted: &[&str]) {
    let place = |name: &&str| applied.iter().position(|other| other == name);
    let places: Vec<Option<usize>> = wanted.iter().map(place).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{wanted:?} in {applied:?}");
}

fn values(place: &Place<Kubernetes>, names: &[&str]) -> Vec<Option<String>> {
    names
        .iter()
        .map(|name| place.look("configmap", name, "{.data.value}").expect("the API answers"))
        .collect()
}

fn uids(place: &Place<Kubernetes>, names: &[&str]) -> Vec<Option<String>> {
    names
        .iter()
        .map(|name| place.look("configmap", name, "{.metadata.uid}").expect("the API answers"))
        .collect()
}

#[tokio::test]
async fn annotations_for_argo_cd_helm_and_flux_mean_here_what_they_mean_there() -> Result<(), KitError> {
    let kubernetes = Kubernetes::start().await?;
    kubernetes.kubectl(&["create", "namespace", NAME])?;
    let first = revision("1");
    let leaving = leaving();
    let left: Vec<(String, &str)> =
        leaving.iter().map(|(name, text)| (format!("{name}.yaml"), &**text)).collect();
    let files = first.iter().map(|(file, text)| (&**file, &**text));
    let files: Vec<(&str, &str)> = files.chain(left.iter().map(|(file, text)| (&**file, *text))).collect();
    let mut place = Place::of(kubernetes, NAME, "", &files).await?;
    place.create(&config_map("theirs", "by hand"))?;
    let mark = place.kubernetes.audit_mark()?;
    place.site.start().await?;

    // Before its hook has ended, nothing else of the revision is there.
    place.until("job", "migrate", "{.metadata.name}", Some("migrate")).await?;
    place.until_service("waiting for its hook", |service| service.progress.is_some()).await?;
    assert_eq!(applied(&place, mark)?, ["migrate"]);
    migrated(&place, "m:1").await?;
    place.until_state(ServiceState::Applied).await?;
    let order = applied(&place, mark)?;
    assert_order(&order, &["migrate", "early", "plain", "late", "light", "installed", "heavy"]);
    for one in ["once", "anew", "kept-argo", "kept-helm", "kept-flux", "gone"] {
        assert_order(&order, &["early", one, "late"]);
    }
    for never in ["theirs", "absent", "upgraded"] {
        assert!(!order.iter().any(|name| name == never), "{never} in {order:?}");
    }
    assert_eq!(values(&place, &["theirs", "once"]), [Some("by hand".to_owned()), Some("1".to_owned())]);

    second(&mut place, &leaving.each_ref().map(|(name, _text)| *name)).await
}

/// The second revision: an upgrade, from which some objects have left.
async fn second(place: &mut Place<Kubernetes>, leaving: &[&str]) -> Result<(), KitError> {
    place.patch("configmap", "once", r#"{"data":{"value":"by hand"}}"#)?;
    place.kubectl(&["delete", "configmap", "installed"])?;
    let secret = place.look("secret", "anew", "{.metadata.uid}");
    let before = uids(place, leaving);
    let mark = place.kubernetes.audit_mark()?;
    for name in leaving {
        place.world.app.repo().remove(format!("manifests/{name}.yaml"))?;
    }
    let second = revision("2");
    let files: Vec<(&str, &str)> = second.iter().map(|(file, text)| (&**file, &**text)).collect();
    let commit = place.world.commit(&files)?;
    migrated(place, "m:2").await?;
    place.until_commit(&commit).await?;

    place.until("configmap", "gone", "{.metadata.uid}", None).await?;
    let (_gone, kept) = leaving.split_last().expect("there are four");
    assert_eq!(uids(place, kept), before[..kept.len()], "what says that it stays has stayed");
    assert_order(
        &applied(place, mark)?,
        &["migrate", "early", "plain", "late", "light", "upgraded", "heavy"],
    );
    let hand = || Some("by hand".to_owned());
    let two = || Some("2".to_owned());
    assert_eq!(
        values(place, &["once", "theirs", "absent", "installed", "plain", "upgraded"]),
        [hand(), hand(), None, None, two(), two()]
    );
    assert_eq!(place.look("secret", "anew", "{.type}"), Ok(Some("example.com/v2".to_owned())));
    assert_ne!(place.look("secret", "anew", "{.metadata.uid}"), secret, "it was made anew");
    // What was left alone carries no mark of ours, and is in nobody's list.
    let theirs = place.kubectl(&["get", "configmap", "theirs", "--output=json"])?;
    let theirs: Value = serde_json::from_str(&theirs).expect("kubectl prints JSON");
    assert_eq!(theirs["metadata"]["labels"], Value::Null, "{theirs:#}");
    place.kubectl(&["delete", "configmap", "once"])?;
    place.until("configmap", "once", "{.data.value}", Some("2")).await
}
