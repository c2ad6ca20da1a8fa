use serde_json::json;

use super::*;

fn manifest(kind: &str, name: &str, annotations: &[(&str, &str)]) -> Manifest {
    let annotations: serde_json::Map<_, _> =
        annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
    let version = match kind {
        "CustomResourceDefinition" => "apiextensions.k8s.io/v1",
        "Job" => "batch/v1",
        _ => "v1",
    };
    let body =
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "annotations": annotations}});
    Manifest::read(body, "test".into()).expect("a manifest")
}

/// What is to be done with a Job of these annotations, in short.
fn role(annotations: &[(&str, &str)], occasion: Occasion) -> String {
    match annotations::read(&manifest("Job", "a", annotations), occasion) {
        Ok(Role::Member { place, keeping: Keeping::Enforced }) => format!("member in {place}"),
        Ok(Role::Member { place, keeping: Keeping::MadeOnce }) => format!("made once in {place}"),
        Ok(Role::Hook { places, deletion }) => {
            let places: Vec<String> = places.iter().map(ToString::to_string).collect();
            let deletion = match deletion {
                Deletion { after_success: true, after_failure: true } => ", removed",
                Deletion { after_success: true, .. } => ", removed after success",
                Deletion { after_failure: true, .. } => ", removed after failure",
                Deletion { .. } => "",
            };
            format!("hook in {}{deletion}", places.join(" and "))
        }
        Ok(Role::LeftAlone) => "left alone".into(),
        Err(why) => format!("error: {why}"),
    }
}

type Case = (&'static [(&'static str, &'static str)], Occasion, &'static str);

fn assert_roles(cases: &[Case]) {
    for (annotations, occasion, wanted) in cases {
        assert_eq!(role(annotations, *occasion), *wanted, "{annotations:?}");
    }
}

#[test]
fn annotations_of_farshore_argo_cd_and_flux_have_their_meaning() {
    use Occasion::Install;
    assert_roles(&[
        (&[], Install, "member in wave 0"),
        (&[("farshore.dev/wave", "-3")], Install, "member in wave -3"),
        (&[("argocd.argoproj.io/sync-wave", "5")], Install, "member in wave 5"),
        (&[("argocd.argoproj.io/sync-wave", "5"), ("farshore.dev/wave", "2")], Install, "member in wave 2"),
        (&[("argocd.argoproj.io/hook", "PreSync")], Install, "hook in hooks before"),
        (
            &[("argocd.argoproj.io/hook", "Sync"), ("argocd.argoproj.io/sync-wave", "1")],
            Install,
            "hook in wave 1",
        ),
        (
            &[("argocd.argoproj.io/hook", "PreSync, PostSync")],
            Install,
            "hook in hooks before and hooks after",
        ),
        (&[("argocd.argoproj.io/hook", "Skip")], Install, "left alone"),
        (&[("argocd.argoproj.io/hook", "SyncFail")], Install, "left alone"),
        (
            &[("argocd.argoproj.io/hook", "PostSync"), ("helm.sh/hook", "pre-install")],
            Install,
            "hook in hooks after",
        ),
        (
            &[
                ("argocd.argoproj.io/hook", "PostSync"),
                ("argocd.argoproj.io/hook-delete-policy", "HookSucceeded,HookFailed"),
            ],
            Install,
            "hook in hooks after, removed",
        ),
        (&[("farshore.dev/test", "true")], Install, "hook in tests"),
        (&[("farshore.dev/test", "false")], Install, "member in wave 0"),
        (&[("kustomize.toolkit.fluxcd.io/reconcile", "Disabled")], Install, "left alone"),
        (&[("kustomize.toolkit.fluxcd.io/ssa", "Ignore")], Install, "left alone"),
        (&[("kustomize.toolkit.fluxcd.io/ssa", "IfNotPresent")], Install, "made once in wave 0"),
        (&[("kustomize.toolkit.fluxcd.io/ssa", "Merge")], Install, "member in wave 0"),
    ]);
}

#[test]
fn hooks_of_helm_have_their_meaning_at_an_install_and_at_an_upgrade() {
    use Occasion::{Install, Upgrade};
    assert_roles(&[
        (
            &[("helm.sh/hook", "pre-install,pre-upgrade"), ("helm.sh/hook-weight", "-5")],
            Install,
            "hook in hooks before, wave -5",
        ),
        (&[("helm.sh/hook-weight", "7")], Install, "member in wave 0"),
        (&[("helm.sh/hook", "pre-install")], Upgrade, "left alone"),
        (&[("helm.sh/hook", "pre-upgrade")], Install, "left alone"),
        (&[("helm.sh/hook", "post-install,post-upgrade")], Upgrade, "hook in hooks after"),
        (&[("helm.sh/hook", "pre-delete")], Upgrade, "left alone"),
        (&[("helm.sh/hook", "crd-install")], Upgrade, "member in namespaces and definitions"),
        (
            &[
                ("helm.sh/hook", "test"),
                ("helm.sh/hook-delete-policy", "before-hook-creation,hook-succeeded"),
            ],
            Upgrade,
            "hook in tests, removed after success",
        ),
    ]);
}

#[test]
fn what_cannot_be_read_is_that_objects_error_and_says_what_would_be_right() {
    for (annotations, word) in [
        (("farshore.dev/wave", "first"), "whole number"),
        (("argocd.argoproj.io/sync-wave", "1.5"), "whole number"),
        (("farshore.dev/wave", "99999999999"), "whole number"),
        (("argocd.argoproj.io/hook", "presync"), "PreSync"),
        (("helm.sh/hook", "pre-instal"), "pre-install"),
        (("farshore.dev/test", "yes"), "\"true\""),
    ] {
        let told = role(&[annotations], Occasion::Install);
        assert!(told.starts_with("error: ") && told.contains(word) && told.contains(annotations.0), "{told}");
    }
    let policy = [("helm.sh/hook", "test"), ("helm.sh/hook-delete-policy", "never")];
    assert!(role(&policy, Occasion::Install).contains("hook-succeeded"));
    let manifests = vec![manifest("Job", "bad", &[("farshore.dev/wave", "x")]), manifest("Job", "good", &[])];
    let arranged = arrange(manifests, Occasion::Install);
    assert_eq!((arranged.failures.len(), arranged.members.len(), arranged.aside.len()), (1, 1, 1));
}

#[test]
fn namespaces_and_definitions_come_first_unless_they_say_otherwise() {
    let place = |manifest: &Manifest| match annotations::read(manifest, Occasion::Install) {
        Ok(Role::Member { place, .. }) => place,
        other => panic!("{other:?}"),
    };
    let first = place(&manifest("Namespace", "shop", &[]));
    assert_eq!(first, place(&manifest("CustomResourceDefinition", "tills.shop", &[])));
    let named = place(&manifest("Namespace", "shop", &[("farshore.dev/wave", "2")]));
    let config = place(&manifest("ConfigMap", "a", &[("farshore.dev/wave", "-9")]));
    assert!(first < config && config < named);
}

#[test]
fn hooks_have_their_turns_by_place_kind_and_name() {
    let before = ("argocd.argoproj.io/hook", "PreSync");
    let manifests = vec![
        manifest("Job", "after", &[("argocd.argoproj.io/hook", "PostSync")]),
        manifest("Job", "b", &[before]),
        manifest("Job", "a", &[before]),
        manifest("ServiceAccount", "z", &[before]),
        manifest("Job", "early", &[before, ("argocd.argoproj.io/sync-wave", "-1")]),
    ];
    let arranged = arrange(manifests, Occasion::Install);
    let names: Vec<&str> = arranged.hooks.iter().map(|hook| hook.manifest.key.name.as_str()).collect();
    assert_eq!(names, ["early", "z", "a", "b", "after"]);
}
