//! What an API server refuses for reasons of its own, object by object.

use std::time::Duration;

use farshore_agent::plan::Item;
use farshore_agent::target::kubernetes::{Kubernetes, Options};
use farshore_agent::target::{Retry, Target as _};
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::cluster::{Place, assert_untouched, config_map};
use crate::{PATIENCE, wait_for};

fn policy(name: &str, namespace: &str, expression: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
         "metadata": {"name": name}, "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}]},
            "validations": [{"expression": expression, "message": "red is not allowed"}]}},
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
         "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}}}]})
}

#[tokio::test]
async fn an_admission_policy_that_rejects_names_its_reason_and_the_others_go_on() {
    let place = Place::named("admission").await;
    let policy = policy("no-red", "admission", "object.data['a'] != 'red'");
    place.server.kubectl_with_input(&["apply", "-f", "-"], &policy.to_string()).expect("a good policy");
    let red = place.manifest(config_map("red", "red")).await;
    let refused = wait_for("the policy to be read", PATIENCE, async || {
        match place.target.apply(&place.owner, &red).await {
            Err(error) => Ok(error),
            Ok(_) => Err("it is applied".to_owned()),
        }
    });
    let error = refused.await.expect("it is refused");
    assert!(error.message.starts_with("refused by admission: "), "{error}");
    assert!(error.message.contains("red is not allowed") && error.message.contains("'no-red'"), "{error}");
    assert_eq!(error.retry, Retry::Pointless);
    place.config_map("green").await;
}

#[tokio::test]
async fn an_admission_webhook_that_does_not_answer_is_worth_another_try() {
    let place = Place::named("webhook").await;
    let hook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "silent"}, "webhooks": [{"name": "silent.example.com", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "timeoutSeconds": 1, "failurePolicy": "Fail",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "webhook"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]}]});
    place.server.kubectl_with_input(&["apply", "-f", "-"], &hook.to_string()).expect("a good hook");
    let manifest = place.manifest(config_map("a", "1")).await;
    let refused = wait_for("the hook to be read", PATIENCE, async || {
        match place.target.apply(&place.owner, &manifest).await {
            Err(error) => Ok(error),
            Ok(_) => Err("it is applied".to_owned()),
        }
    });
    let error = refused.await.expect("it is refused");
    assert!(error.message.contains("silent.example.com"), "{error}");
    assert_eq!(error.retry, Retry::Worthwhile);
    place.server.kubectl(&["delete", "validatingwebhookconfiguration", "silent"]).expect("deleted");
    let applied = wait_for("the hook to be gone", PATIENCE, async || {
        place.target.apply(&place.owner, &manifest).await.map_err(|error| error.to_string())
    });
    applied.await.expect("nobody is asked any more");
}

#[tokio::test]
async fn a_quota_that_is_used_up_says_so_and_the_others_go_on() {
    let place = Place::named("quota").await;
    place.config_map("a").await;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "few", "namespace": "quota"}, "spec": {"hard": {"configmaps": "1"}}});
    place.server.kubectl_with_input(&["apply", "-f", "-"], &quota.to_string()).expect("a good quota");
    // As its controller would write it.
    let status = r#"{"status":{"hard":{"configmaps":"1"},"used":{"configmaps":"1"}}}"#;
    let patch = [
        "patch",
        "resourcequota",
        "few",
        "--namespace=quota",
        "--subresource=status",
        "--type=merge",
        "-p",
        status,
    ];
    place.server.kubectl(&patch).expect("a good status");
    let manifest = place.manifest(config_map("b", "1")).await;
    let refused = wait_for("the quota to be read", PATIENCE, async || {
        match place.target.apply(&place.owner, &manifest).await {
            Err(error) if error.message.contains("exceeded quota: few") => Ok(error),
            other => Err(format!("{other:?}")),
        }
    });
    let error = refused.await.expect("it is refused");
    assert!(error.message.contains("raise it, or make room"), "{error}");
    assert_eq!(error.retry, Retry::Worthwhile);
    place.config_map("a").await;
}

#[tokio::test]
async fn an_object_at_the_size_limit_is_applied_and_observed() {
    let place = Place::named("limit").await;
    let mut body = config_map("large", "1");
    body["data"]["a"] = "x".repeat(1_048_000).into();
    let manifest = place.manifest(body).await;
    let item = place.apply(&manifest).await;
    assert_untouched(
        std::slice::from_ref(&item),
        &place.target.observe(&place.owner, std::slice::from_ref(&item)).await,
    );
}

#[tokio::test]
async fn ten_thousand_objects_of_one_service_are_applied_and_observed() {
    let place = Place::named("many").await;
    let bodies = (0..10_000).map(|n| config_map(&format!("a{n}"), "1")).collect();
    let located = place.located(bodies).await.into_iter().map(|manifest| manifest.expect("a known kind"));
    let manifests: Vec<_> = located.collect();
    let applies: Vec<_> = manifests.iter().map(|manifest| place.apply(manifest)).collect();
    // As many at once as there may ever be: the connection lets through what the API server bears.
    let items: Vec<Item> = futures::stream::iter(applies).buffered(128).collect().await;
    assert_untouched(&items, &place.target.observe(&place.owner, &items).await);
}

#[tokio::test]
async fn an_api_server_that_sheds_load_loses_no_apply() {
    let place = Place::named("shed").await;
    // A flow of its own with a few seats and no queue: whatever comes when they are taken is turned away.
    let flow = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
         "metadata": {"name": "narrow"}, "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"}}}},
        {"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "narrow"},
         "spec": {"matchingPrecedence": 2, "priorityLevelConfiguration": {"name": "narrow"},
            "rules": [{"subjects": [{"kind": "User", "user": {"name": "shed"}}],
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                    "namespaces": ["*"], "clusterScope": true}]}]}}]});
    place.server.kubectl_with_input(&["apply", "-f", "-"], &flow.to_string()).expect("a good flow");
    let grant = ["create", "clusterrolebinding", "shed", "--clusterrole=cluster-admin", "--user=shed"];
    place.server.kubectl(&grant).expect("a binding");
    let (admin, shed) = ("\"token\":\"kit-admin\"", r#""token":"kit-admin","as":"shed""#);
    let (_folder, kubeconfig) = crate::cluster::changed_kubeconfig(&place.server.kubeconfig(), admin, shed);
    let options = Options { request: Duration::from_secs(60), ..Options::default() };
    let target = Kubernetes::connect(Some(&kubeconfig), options).await.expect("a kubeconfig");
    let bodies = (0..60).map(|n| config_map(&format!("a{n}"), "1")).collect();
    let manifests = place.located(bodies).await;
    let applied = wait_for("the rights to be known", PATIENCE, async || {
        let manifest = manifests[0].as_ref().expect("a known kind");
        target.apply(&place.owner, manifest).await.map_err(|error| error.to_string())
    });
    applied.await.expect("it may");
    let applies: Vec<_> = manifests
        .iter()
        .map(|manifest| target.apply(&place.owner, manifest.as_ref().expect("a known kind")))
        .collect();
    let outcomes: Vec<_> = futures::stream::iter(applies).buffer_unordered(60).collect().await;
    let failed: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
    let metrics = place.server.kubectl(&["get", "--raw", "/metrics"]).expect("the API server counts");
    let mut rejected = metrics.lines().filter(|line| {
        line.starts_with("apiserver_flowcontrol_rejected_requests_total{")
            && line.contains("flow_schema=\"narrow\"")
    });
    assert!(rejected.next().is_some(), "nothing was turned away, so nothing was tried");
}
