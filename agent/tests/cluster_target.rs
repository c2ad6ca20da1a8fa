//! The Kubernetes target against a real API server.
#![cfg(feature = "kubernetes")]

use std::time::Duration;

use farshore_agent::health::Health;
use farshore_agent::object::ObjectKey;
use farshore_agent::plan::Item;
use farshore_agent::target::kubernetes::{Kubernetes, Options};
use farshore_agent::target::{Deleted, Live, ObjectError, Retry, Target as _};
use farshore_chaos::kit::{ProxyMode, TcpProxy, wait_for};
use futures::StreamExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

mod bounds;
mod cluster;
mod target_contract;

use cluster::kubelet::Kubelet;
use cluster::{Place, assert_untouched, config_map, definition, deployment, job, owner, till, untouched};

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_cluster_keeps_every_promise_of_a_target() {
    target_contract::holds(&Place::named("contract").await).await;
}

#[tokio::test]
async fn a_foreign_change_to_an_owned_field_is_seen_and_put_back() {
    let place = Place::named("put-back").await;
    let (manifest, item) = place.config_map("a").await;
    assert_eq!(place.observe(&item).await, untouched(&item));
    let mut before = item;
    for change in [
        json!({"data": {"a": "2"}}),
        json!({"data": {"b": null}}),
        json!({"data": null}),
        json!({"metadata": {"labels": {"farshore.dev/service": null}}}),
        json!({"metadata": {"annotations": {"farshore.dev/cluster": "shop-8"}}}),
        json!({"metadata": {"managedFields": [{}]}}),
    ] {
        place.edit("a", change.clone()).await;
        assert_ne!(place.observe(&before).await, untouched(&before), "{change}");
        before = place.repair(&manifest).await;
        assert_eq!(place.observe(&before).await, untouched(&before), "{change}");
        let live = place.config_maps().get("a").await.expect("it is there");
        assert_eq!(live.data["data"], json!({"a": "1", "b": "1"}), "{change}");
        assert_eq!(live.metadata.labels.expect("our label")["farshore.dev/service"], "put-back");
    }
}

#[tokio::test]
async fn every_way_to_change_an_owned_field_is_seen() {
    let place = Place::named("every-way").await;
    let mut body = deployment("web");
    body["spec"]["replicas"] = 2.into();
    let manifest = place.manifest(body).await;
    let deployments = place.api("apps", "v1", "Deployment", "deployments");
    let by = PatchParams { field_manager: Some("somebody".into()), ..PatchParams::default() };
    for way in ["replace", "strategic merge", "scale", "remove", "item of a list"] {
        let item = place.repair(&manifest).await;
        match way {
            "replace" => {
                let mut live = deployments.get("web").await.expect("it is there");
                live.data["spec"]["replicas"] = 3.into();
                deployments.replace("web", &PostParams::default(), &live).await.expect("a good change");
            }
            "strategic merge" => {
                let image =
                    json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "a:2"}]}}}});
                deployments.patch("web", &by, &Patch::Strategic(image)).await.expect("a good change");
            }
            "scale" => {
                let scale = json!({"spec": {"replicas": 5}});
                deployments.patch_scale("web", &by, &Patch::Merge(scale)).await.expect("a good change");
            }
            "remove" => {
                deployments
                    .patch("web", &by, &Patch::Merge(json!({"spec": {"replicas": null}})))
                    .await
                    .expect("a good change");
            }
            _ => {
                let containers =
                    json!({"spec": {"template": {"spec": {"containers": [{"name": "b", "image": "b:1"}]}}}});
                deployments.patch("web", &by, &Patch::Merge(containers)).await.expect("a good change");
            }
        }
        assert_ne!(place.observe(&item).await, untouched(&item), "{way}");
    }
    let item = place.repair(&manifest).await;
    assert_eq!(place.observe(&item).await, untouched(&item));
    let live = deployments.get("web").await.expect("it is there");
    assert_eq!(live.data["spec"]["replicas"], 2);
    let containers = live.data["spec"]["template"]["spec"]["containers"].as_array().expect("a list");
    assert!(containers.iter().any(|container| container["image"] == "a:1"), "{containers:?}");
}

#[tokio::test]
async fn a_field_that_left_the_manifest_leaves_the_object() {
    let place = Place::named("field-left").await;
    let (manifest, item) = place.config_map("a").await;
    let mut body = manifest.body;
    body["data"] = json!({"a": "1"});
    let next = place.apply(&place.manifest(body).await).await;
    assert_ne!(next.fingerprint, item.fingerprint);
    let live = place.config_maps().get("a").await.expect("it is there");
    assert_eq!(live.data["data"], json!({"a": "1"}));
}

#[tokio::test]
async fn a_forced_apply_of_somebody_else_is_seen_and_one_that_agrees_is_not() {
    let place = Place::named("other-appliers").await;
    let (manifest, item) = place.config_map("a").await;
    let apply = async |value: &str| {
        let by = PatchParams::apply("helm").force();
        let body =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": value}});
        place.config_maps().patch("a", &by, &Patch::Apply(body)).await.expect("a good change");
    };
    apply("1").await;
    assert_eq!(place.observe(&item).await, untouched(&item));
    apply("2").await;
    assert_ne!(place.observe(&item).await, untouched(&item));
    place.repair(&manifest).await;
    let live = place.config_maps().get("a").await.expect("it is there");
    assert_eq!(live.data["data"]["a"], "1");
}

#[tokio::test]
async fn what_others_own_is_nobody_s_drift_and_survives_an_apply() {
    let place = Place::named("coexist").await;
    let manifest = place.manifest(deployment("web")).await;
    let item = place.apply(&manifest).await;
    let deployments = place.api("apps", "v1", "Deployment", "deployments");
    let by = PatchParams { field_manager: Some("autoscaler".into()), ..PatchParams::default() };
    for change in [
        json!({"metadata": {"annotations": {"theirs": "1"}, "labels": {"theirs": "1"}}}),
        json!({"spec": {"replicas": 3}}),
    ] {
        deployments.patch("web", &by, &Patch::Merge(change)).await.expect("a good change");
    }
    let status = json!({"status": {"observedGeneration": 1, "replicas": 3}});
    deployments.patch_status("web", &by, &Patch::Merge(status)).await.expect("a good status");
    assert_eq!(place.observe(&item).await, untouched(&item));
    assert_eq!(place.apply(&manifest).await, item);
    let live = deployments.get("web").await.expect("it is there");
    assert_eq!(live.data["spec"]["replicas"], 3);
    assert_eq!(live.metadata.annotations.expect("annotations")["theirs"], "1");
}

#[tokio::test]
async fn an_unchanged_apply_writes_nothing() {
    let place = Place::named("unchanged").await;
    let (manifest, item) = place.config_map("a").await;
    let before = place.config_maps().get("a").await.expect("it is there").metadata.resource_version;
    let mark = place.server.audit_mark().expect("an audit log");
    assert_eq!(place.apply(&manifest).await, item);
    assert_eq!(place.config_maps().get("a").await.expect("it is there").metadata.resource_version, before);

    let asked = place.server.audit_writes_since(mark).expect("an audit log");
    let path = "/api/v1/namespaces/unchanged/configmaps/a";
    let asked: Vec<_> = asked.iter().filter(|write| write.uri.starts_with(path)).collect();
    let [apply] = asked.as_slice() else { panic!("not one request: {asked:?}") };
    assert_eq!(apply.uri, format!("{path}?fieldManager=farshore&fieldValidation=Strict"));
    assert!(apply.user_agent.starts_with("farshore-agent/"), "{apply:?}");
}

#[tokio::test]
async fn a_write_under_our_own_name_is_seen() {
    let place = Place::named("own-name").await;
    let (manifest, item) = place.config_map("a").await;
    // Entries are dated in whole seconds: within the second of our own apply this is not seen.
    let applied = jiff::Timestamp::now().as_second();
    wait_for("the next second", PATIENCE, async || match jiff::Timestamp::now().as_second() {
        now if now > applied => Ok(()),
        now => Err(format!("it is {now}")),
    })
    .await
    .expect("the clock goes on");
    place.edit("a", json!({"data": {"theirs": "1"}})).await;
    assert_eq!(place.observe(&item).await, untouched(&item));
    let mut body = manifest.body.clone();
    body["data"]["a"] = "2".into();
    let by = PatchParams::apply("farshore").force();
    place.config_maps().patch("a", &by, &Patch::Apply(body)).await.expect("a good change");
    assert_ne!(place.observe(&item).await, untouched(&item));
}

#[tokio::test]
async fn many_objects_are_observed_in_order_whether_listed_unlabelled_or_gone() {
    let place = Place::named("observed").await;
    let mut items = Vec::new();
    for n in 0..6 {
        items.push(place.config_map(&format!("a{n}")).await.1);
    }
    place.edit("a2", json!({"metadata": {"labels": {"farshore.dev/service": null}}})).await;
    place.config_maps().delete("a4", &DeleteParams::default()).await.expect("deleted");
    let live = place.target.observe(&place.owner, &items).await;
    for (n, (item, live)) in items.iter().zip(&live).enumerate() {
        let live = live.as_ref().expect("the API answers");
        match n {
            2 => assert!(
                matches!(live, Live::Present { uid, .. } if Some(uid) == item.uid.as_ref()),
                "{live:?}"
            ),
            4 => assert_eq!(*live, Live::Absent),
            _ => assert_eq!(*live, untouched(item)),
        }
    }
    assert_ne!(live[2], Ok(untouched(&items[2])));
}

#[tokio::test]
async fn objects_of_two_namespaces_and_of_the_whole_cluster_are_told_apart() {
    let place = Place::named("two-places").await;
    place.target.ensure_namespace(&place.owner, "two-places-too").await.expect("a namespace");
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "two:places", "namespace": "wrong"}, "rules": []});
    let mut elsewhere = config_map("a", "1");
    elsewhere["metadata"]["namespace"] = "two-places-too".into();
    let mut items = Vec::new();
    for manifest in place.located(vec![config_map("a", "1"), elsewhere, role]).await {
        items.push(place.apply(&manifest.expect("a known kind")).await);
    }
    let namespaces: Vec<_> = items.iter().map(|item| item.key.namespace.as_deref()).collect();
    assert_eq!(namespaces, [Some("two-places"), Some("two-places-too"), None]);
    let live = place.target.observe(&place.owner, &items).await;
    assert_untouched(&items, &live);
    assert_eq!(place.target.delete(&place.owner, &items[1]).await, Ok(Deleted::Gone));
    assert_eq!(place.observe(&items[0]).await, untouched(&items[0]));
    assert_eq!(place.observe(&items[1]).await, Live::Absent);
}

#[tokio::test]
async fn only_what_is_ours_is_deleted() {
    let place = Place::named("ours").await;
    let (_, item) = place.config_map("a").await;
    let other_life = Item { uid: Some("00000000-0000-0000-0000-000000000000".into()), ..item.clone() };
    assert_eq!(place.target.delete(&place.owner, &other_life).await, Ok(Deleted::NotOurs));

    let (manifest, unmarked) = place.config_map("b").await;
    for mark in [
        json!({"labels": {"farshore.dev/service": null}}),
        json!({"annotations": {"farshore.dev/cluster": "x"}}),
    ] {
        place.edit("b", json!({"metadata": mark})).await;
        assert_eq!(place.target.delete(&place.owner, &unmarked).await, Ok(Deleted::NotOurs));
        place.repair(&manifest).await;
    }
    assert!(matches!(place.observe(&unmarked).await, Live::Present { .. }));

    let unconfirmed = Item { uid: None, ..item.clone() };
    assert_eq!(place.target.delete(&place.owner, &unconfirmed).await, Ok(Deleted::Gone));
    assert_eq!(place.observe(&item).await, Live::Absent);
    assert_eq!(place.target.delete(&place.owner, &item).await, Ok(Deleted::Gone));
}

#[tokio::test]
async fn an_object_with_a_finalizer_is_going_once_it_is_deleted() {
    let place = Place::named("finalizer").await;
    let mut body = config_map("a", "1");
    body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let manifest = place.manifest(body).await;
    let item = place.apply(&manifest).await;
    assert_eq!(place.target.delete(&place.owner, &item).await, Ok(Deleted::Going));
    assert_eq!(place.target.delete(&place.owner, &item).await, Ok(Deleted::Going));
    assert!(matches!(place.observe(&item).await, Live::Present { .. }));
    assert_ne!(place.observe(&item).await, untouched(&item));
    let going = place.target.apply(&place.owner, &manifest).await.expect_err("it is going");
    assert!(
        going.message.contains("it is being deleted") && going.message.contains("example.com/hold"),
        "{going}"
    );
    place.edit("a", json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(place.observe(&item).await, Live::Absent);
}

#[tokio::test]
async fn a_definition_and_its_objects_come_and_go_in_one_go() {
    let place = Place::named("definition").await;
    let bodies = vec![till("go.example.com"), definition("go.example.com", 1000)];
    let [till, definition] = place.located(bodies).await.try_into().expect("two answers");
    let (till, definition) = (till.expect("it is defined alongside"), definition.expect("a known kind"));
    assert_eq!(till.key.namespace.as_deref(), Some("definition"));
    let early = place.target.apply(&place.owner, &till).await.expect_err("the definition is not there");
    assert!(early.message.contains("a CustomResourceDefinition or an API is missing"), "{early}");

    let definition_item = place.apply(&definition).await;
    let till_item = place.apply(&till).await;
    assert_eq!(place.observe(&definition_item).await, untouched(&definition_item));
    assert_eq!(place.observe(&till_item).await, untouched(&till_item));
    assert_eq!(place.apply(&definition).await, definition_item);

    assert_eq!(place.target.delete(&place.owner, &definition_item).await, Ok(Deleted::Going));
    let items = [till_item.clone(), till_item.clone()];
    let gone = wait_for("the kind to go", PATIENCE, async || {
        let live = place.target.observe(&place.owner, &items).await;
        if live == [Ok(Live::Absent), Ok(Live::Absent)] { Ok(()) } else { Err(format!("{live:?}")) }
    });
    gone.await.expect("the definition was deleted");
    assert_eq!(place.target.delete(&place.owner, &till_item).await, Ok(Deleted::Gone));
}

#[tokio::test]
async fn a_definition_of_half_a_megabyte_is_applied() {
    let place = Place::named("large").await;
    let manifest = place.manifest(definition("large.example.com", 520_000)).await;
    assert!(manifest.body.to_string().len() > 500_000);
    let item = place.apply(&manifest).await;
    assert_eq!(place.observe(&item).await, untouched(&item));
}

#[tokio::test]
async fn an_api_without_a_backend_fails_only_its_own_objects() {
    let place = Place::named("broken-api").await;
    let service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1beta1.metrics.k8s.io"}, "spec": {"group": "metrics.k8s.io", "version": "v1beta1",
            "service": {"name": "nowhere", "namespace": "kube-system"}, "insecureSkipTLSVerify": true,
            "groupPriorityMinimum": 100, "versionPriority": 100}});
    place.apply(&place.manifest(service).await).await;
    let metrics =
        json!({"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics", "metadata": {"name": "a"}});
    let broken = wait_for("the API to be broken", PATIENCE, async || {
        let bodies = vec![metrics.clone(), config_map("a", "1"), deployment("web")];
        let located: [Result<_, ObjectError>; 3] =
            place.located(bodies).await.try_into().expect("three answers");
        match located {
            [Err(error), Ok(_), Ok(_)] if error.message.contains("503") => Ok(error),
            other => Err(format!("{other:?}")),
        }
    });
    let error = broken.await.expect("its backend is missing");
    assert_eq!(error.retry, Retry::Worthwhile);
    assert!(
        error.message.starts_with("cannot find out about kind PodMetrics of metrics.k8s.io/v1beta1"),
        "{error}"
    );

    let (_, item) = place.config_map("a").await;
    let mut lost = Item { version: "v1beta1".into(), ..item.clone() };
    lost.key.group = "metrics.k8s.io".into();
    lost.key.kind = "PodMetrics".into();
    let live = place.target.observe(&place.owner, &[lost.clone(), item.clone()]).await;
    assert!(live[0].is_err(), "{live:?}");
    assert_eq!(live[1], Ok(untouched(&item)));
    assert!(place.target.delete(&place.owner, &lost).await.is_err());
}

#[tokio::test]
async fn an_object_of_a_version_that_is_not_served_any_more_is_found_and_deleted() {
    let place = Place::named("older-version").await;
    let manifest = place.manifest(deployment("web")).await;
    let item = Item { version: "v1beta1".into(), ..place.apply(&manifest).await };
    assert_eq!(place.observe(&item).await, untouched(&item));
    assert_eq!(place.target.delete(&place.owner, &item).await, Ok(Deleted::Gone));
    assert_eq!(place.observe(&item).await, Live::Absent);
}

#[tokio::test]
async fn what_the_api_refuses_is_said_with_its_reason() {
    let place = Place::named("refusals").await;
    let mut unknown_field = deployment("a");
    unknown_field["spec"]["replica"] = 1.into();
    let mut no_namespace = config_map("a", "1");
    no_namespace["metadata"]["namespace"] = "not-there".into();
    let mut changed = deployment("web");
    place.apply(&place.manifest(changed.clone()).await).await;
    changed["spec"]["selector"]["matchLabels"] = json!({"app": "other"});
    changed["spec"]["template"]["metadata"]["labels"] = json!({"app": "other"});
    let (long, longer) = ("x".repeat(2_000_000), "x".repeat(4_000_000));
    for (body, message, retry) in [
        (unknown_field, ".spec.replica: field not declared in schema", Retry::Pointless),
        (no_namespace, "namespace not-there does not exist", Retry::Worthwhile),
        (config_map("Not_A_Name", "1"), "invalid: metadata.name: ", Retry::Pointless),
        (config_map("../secrets/a", "1"), "the name cannot be part of an address", Retry::Pointless),
        (config_map("a", &long), "invalid: Too long: may not be more than", Retry::Pointless),
        (config_map("a", &longer), "too large for the API", Retry::Pointless),
        (changed, "spec.selector: Invalid value", Retry::Pointless),
    ] {
        let manifest = place.manifest(body).await;
        let error = place.target.apply(&place.owner, &manifest).await.expect_err("a bad manifest");
        assert!(error.message.contains(message) && error.retry == retry, "{error} {:?}", error.retry);
    }
}

#[tokio::test]
async fn a_kind_that_is_an_answer_or_is_unknown_is_not_located() {
    let place = Place::named("kinds").await;
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {"name": "a"}});
    let unknown = json!({"apiVersion": "shop.example/v1", "kind": "Shelf", "metadata": {"name": "a"}});
    let [review, unknown] = place.located(vec![review, unknown]).await.try_into().expect("two answers");
    let review = review.expect_err("it is an answer");
    assert!(review.message.contains("cannot be kept"), "{review}");
    let unknown = unknown.expect_err("nobody defines it");
    assert!(unknown.message.starts_with("kind Shelf of shop.example/v1 is not known here"), "{unknown}");
}

#[tokio::test]
async fn who_may_do_nothing_is_told_what_is_not_allowed() {
    let place = Place::named("forbidden").await;
    let (manifest, item) = place.config_map("a").await;
    let token = "\"token\":\"kit-admin\"";
    let nobody = r#""token":"kit-admin","as":"nobody""#;
    let (_folder, kubeconfig) = cluster::changed_kubeconfig(&place.server.kubeconfig(), token, nobody);
    let nobody = cluster::target(&kubeconfig).await;
    nobody.ready().await.expect("everybody may see that");
    let error = nobody.apply(&place.owner, &manifest).await.expect_err("not allowed");
    assert!(error.message.starts_with("not allowed to apply configmaps: "), "{error}");
    assert_eq!(error.retry, Retry::Pointless);
    for live in nobody.observe(&place.owner, &[item.clone(), item.clone()]).await {
        let error = live.expect_err("not allowed");
        assert!(error.message.starts_with("not allowed to list configmaps: "), "{error}");
    }
    assert!(nobody.delete(&place.owner, &item).await.is_err());
    assert!(nobody.ensure_namespace(&place.owner, "forbidden-too").await.is_err());
}

#[tokio::test]
async fn who_may_not_list_everywhere_lists_where_the_service_is_at_home() {
    let place = Place::named("at-home").await;
    place.target.ensure_namespace(&place.owner, "at-home-too").await.expect("a namespace");
    let mut items = vec![place.config_map("a").await.1, place.config_map("b").await.1];
    for namespace in ["at-home", "at-home-too"] {
        let mut body = config_map("c", "1");
        body["metadata"]["namespace"] = namespace.into();
        items.push(place.apply(&place.manifest(body).await).await);
        let role =
            ["create", "role", "local", "--verb=get,list", "--resource=configmaps", "--namespace", namespace];
        place.server.kubectl(&role).expect("a role");
        let binding =
            ["create", "rolebinding", "local", "--role=local", "--user=local", "--namespace", namespace];
        place.server.kubectl(&binding).expect("a role binding");
    }
    let token = "\"token\":\"kit-admin\"";
    let local = r#""token":"kit-admin","as":"local""#;
    let (_folder, kubeconfig) = cluster::changed_kubeconfig(&place.server.kubeconfig(), token, local);
    let local = cluster::target(&kubeconfig).await;
    let seen = wait_for("the roles to be known", PATIENCE, async || {
        let live = local.observe(&place.owner, &items).await;
        if live.iter().all(Result::is_ok) { Ok(live) } else { Err(format!("{live:?}")) }
    });
    assert_untouched(&items, &seen.await.expect("it may list there"));

    let mut elsewhere = items[3].clone();
    elsewhere.key.namespace = Some("default".into());
    items.extend([elsewhere.clone(), elsewhere]);
    let live = local.observe(&place.owner, &items).await;
    assert_untouched(&items[..4], &live[..4]);
    assert!(live[4..].iter().all(Result::is_err), "{live:?}");
}

#[tokio::test]
async fn a_namespace_is_usable_when_its_apply_returns_and_not_while_it_goes() {
    let place = Place::named("namespaces").await;
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "namespaces-new"}});
    let manifest = place.manifest(body).await;
    let item = place.apply(&manifest).await;
    let inside = |name: &str| {
        let mut inside = config_map(name, "1");
        inside["metadata"]["namespace"] = "namespaces-new".into();
        inside
    };
    place.apply(&place.manifest(inside("a")).await).await;
    assert_eq!(place.target.ensure_namespace(&place.owner, "namespaces-new").await, Ok(()));

    // No controller empties namespaces here, so it stays as it is: going.
    assert_eq!(place.target.delete(&place.owner, &item).await, Ok(Deleted::Going));
    let late = place.manifest(inside("b")).await;
    for refused in [
        place.target.ensure_namespace(&place.owner, "namespaces-new").await.expect_err("it is going"),
        place.target.apply(&place.owner, &manifest).await.expect_err("it is going"),
        place.target.apply(&place.owner, &late).await.expect_err("it is going"),
    ] {
        assert!(refused.message.contains("namespace is being deleted"), "{refused}");
        assert_eq!(refused.retry, Retry::Worthwhile);
    }
}

#[tokio::test]
async fn an_api_that_is_away_is_unreachable_and_comes_back() {
    let server = cluster::server().await;
    let address = server.url().replace("https://", "");
    let cable = TcpProxy::start(&address).await.expect("a cable");
    let (_folder, kubeconfig) = cluster::changed_kubeconfig(&server.kubeconfig(), &address, &cable.address());
    cable.set_mode(ProxyMode::Refuse).await.expect("it is cut");
    let target = cluster::target(&kubeconfig).await;
    let away = target.ready().await.expect_err("the cable is cut").to_string();
    assert!(away.starts_with("target does not answer (https://127.0.0.1:"), "{away}");
    assert!(away.contains("Connection refused"), "{away}");
    for _ in 0..2 {
        cable.set_mode(ProxyMode::Forward).await.expect("it is whole");
        let back =
            wait_for("the API", PATIENCE, async || target.ready().await.map_err(|error| error.to_string()));
        back.await.expect("the cable is whole");
        target.ensure_namespace(&owner("cable"), "cable").await.expect("a namespace");
        cable.set_mode(ProxyMode::Refuse).await.expect("it is cut");
        target.ready().await.expect_err("the cable is cut");
    }
}

#[tokio::test]
async fn an_api_that_hangs_is_unreachable_and_no_request_waits_for_ever() {
    let server = cluster::server().await;
    let address = server.url().replace("https://", "");
    let cable = TcpProxy::start(&address).await.expect("a cable");
    let (_folder, kubeconfig) = cluster::changed_kubeconfig(&server.kubeconfig(), &address, &cable.address());
    let request = Duration::from_millis(500);
    let options = Options { request, ..Options::default() };
    let target = Kubernetes::connect(Some(&kubeconfig), options).await.expect("a kubeconfig");
    cable.set_mode(ProxyMode::Blackhole).await.expect("it swallows");
    let hangs = target.ready().await.expect_err("nothing comes back").to_string();
    assert!(hangs.ends_with("no answer from the API within 500ms"), "{hangs}");
    let refused = target.ensure_namespace(&owner("hangs"), "hangs").await.expect_err("nothing comes back");
    assert_eq!(refused.retry, Retry::Worthwhile);
    assert_eq!(refused.message, "cannot get namespaces: no answer from the API within 500ms");
    cable.set_mode(ProxyMode::Forward).await.expect("it is whole");
    wait_for("the API", PATIENCE, async || target.ready().await.map_err(|error| error.to_string()))
        .await
        .expect("the cable is whole");
}

#[tokio::test]
async fn sixteen_applies_at_a_time_do_not_disturb_one_another_and_every_page_is_read() {
    let place = Place::named("at-a-time").await;
    let bodies = (0..600).map(|n| config_map(&format!("a{n}"), "1")).collect();
    let located = place.located(bodies).await.into_iter().map(|manifest| manifest.expect("a known kind"));
    let manifests: Vec<_> = located.collect();
    let applies: Vec<_> = manifests.iter().map(|manifest| place.apply(manifest)).collect();
    let items: Vec<Item> = futures::stream::iter(applies).buffered(16).collect().await;
    let live = place.target.observe(&place.owner, &items).await;
    assert_untouched(&items, &live);
}

#[tokio::test]
async fn an_object_is_inspected_whole_with_what_its_controller_says_of_it() {
    let place = Place::named("inspected").await;
    let manifest = place.manifest(deployment("web")).await;
    let inspect = async || place.target.inspect(&place.owner, &manifest.key, &manifest.version).await;
    assert_eq!(inspect().await, Ok(None));
    place.apply(&manifest).await;
    let status = json!({"status": {"observedGeneration": 1, "replicas": 1}});
    let by = PatchParams::default();
    let deployments = place.api("apps", "v1", "Deployment", "deployments");
    deployments.patch_status("web", &by, &Patch::Merge(status)).await.expect("a good status");
    let object = inspect().await.expect("the API answers").expect("it is there");
    assert_eq!(object["status"]["replicas"], 1);
    let health = farshore_agent::health::judge(&object);
    assert!(
        matches!(&health, Health::Progressing(why) if why.contains("0 of 1 replicas are of the newest form"))
    );
    let unknown = ObjectKey { kind: "Till".into(), group: "nowhere.example".into(), ..manifest.key.clone() };
    assert_eq!(place.target.inspect(&place.owner, &unknown, "v1").await, Ok(None));
}

#[tokio::test]
async fn the_end_of_what_the_newest_pod_of_a_job_printed_is_read() {
    let place = Place::named("printed").await;
    let kubelet = Kubelet::printing("one\ntwo\n").await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "printed"}});
    let nodes = place.nodes();
    let node = serde_json::from_value(node).expect("a node");
    nodes.create(&PostParams::default(), &node).await.expect("a good node");
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}}}});
    let by = PatchParams::default();
    nodes.patch_status("printed", &by, &Patch::Merge(status)).await.expect("a good status");
    let job = place.manifest(job("smoke")).await;
    place.apply(&job).await;
    let tail = async || place.target.log_tail(&place.owner, &job.key, 2048).await;
    let none = tail().await.expect_err("no controller has made a Pod");
    assert!(none.message.contains("no Pod"), "{none}");
    let pods = place.api("", "v1", "Pod", "pods");
    for name in ["smoke-1", "smoke-2"] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {"batch.kubernetes.io/job-name": "smoke"}},
            "spec": {"nodeName": "printed", "containers": [{"name": "a", "image": "a:1"}]}});
        let pod = serde_json::from_value(pod).expect("a Pod");
        pods.create(&PostParams::default(), &pod).await.expect("a good Pod");
    }
    assert_eq!(tail().await.as_deref(), Ok("one\ntwo\n"));
    let asked = kubelet.asked();
    assert!(asked.iter().any(|line| line.contains("/containerLogs/printed/smoke-2/a?")), "{asked:?}");
    assert!(asked.iter().all(|line| line.contains("tailLines=50")), "{asked:?}");
}
