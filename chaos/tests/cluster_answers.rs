//! What an agent does about the answers of the API that are no yes, and about none at all, in a real Kubernetes API.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farshore_chaos::kit::{ApiRequest, AuditMark, KitError, Kubernetes, Webhook, wait_for};
use farshore_chaos::world::declare::{config_map, service};
use farshore_chaos::world::{Place, SharedCluster};
use farshore_shared::wire::{ServiceState, ServiceStatus};
use serde_json::json;

const SOON: Duration = Duration::from_secs(90);

/// For all tests of this file; each has a namespace, a fleet and a site of its own.
static CLUSTER: SharedCluster = SharedCluster::new();

async fn in_place(name: &'static str, manifests: &[(&str, &str)]) -> Result<Place, KitError> {
    Place::with(CLUSTER.get().await?, name, manifests).await
}

/// Waits until the site says this of a service.
async fn until_said(
    place: &Place,
    service: &str,
    is_so: impl Fn(&ServiceStatus) -> bool,
) -> Result<(), KitError> {
    let is_it = |found: &ServiceStatus| found.name.as_str() == service && is_so(found);
    let what = format!("telling so of {service}");
    place.until_status(&what, |status| status.services.iter().any(is_it)).await.map(|_status| ())
}

/// What the agents wrote at addresses that contain this.
fn writes(place: &Place, since: AuditMark, at: &str) -> Result<Vec<ApiRequest>, KitError> {
    let mut writes = place.kubernetes.audit_writes_since(since)?;
    writes.retain(|write| write.user_agent.starts_with("farshore-agent/") && write.uri.contains(at));
    Ok(writes)
}

/// From now on no write of a `ConfigMap` in this place is answered: the webhook that is asked first never says a word.
async fn hang(place: &Place) -> Result<std::net::TcpListener, KitError> {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("it is bound").port();
    let hook = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration", "metadata": {"name": place.name}, "webhooks": [{
            "name": "silent.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 30, "failurePolicy": "Fail",
            "clientConfig": {"url": format!("https://127.0.0.1:{port}/")},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": place.name}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]}]});
    place.kubernetes.kubectl_with_input(&["apply", "-f", "-"], &hook.to_string())?;
    wait_for("the hook to be asked", SOON, async || {
        let asked = ["create", "configmap", "probe", "--dry-run=server", "--request-timeout=1s"];
        place.kubectl(&asked).map_or(Ok(()), Err)
    })
    .await?;
    Ok(silent)
}

#[tokio::test]
async fn an_admission_webhook_that_does_not_answer_keeps_no_other_service_waiting() -> Result<(), KitError> {
    const OBJECTS: usize = 40;
    let files = |value: &str| -> Vec<(String, String)> {
        let name = |n: usize| if n == 0 { "a".to_owned() } else { format!("a{n}") };
        (0..OBJECTS).map(|n| (format!("manifests/{}.yaml", name(n)), config_map(&name(n), value))).collect()
    };
    fn borrowed(files: &[(String, String)]) -> Vec<(&str, &str)> {
        files.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect()
    }
    let mut place = in_place("hooked", &[("a.yaml", &config_map("a", "1"))]).await?;
    place.site = place.site.option("--leader-elect=default/hooked");
    place.site.start().await?;
    place.world.app.commit(&borrowed(&files("1")))?;
    place.world.app.commit(&[("quick/q.yaml", &config_map("q", "1"))])?;
    place.declare("", &service("hooked-not", "app", "quick", "raw"))?;
    let is_applied = |status: &ServiceStatus| status.state == ServiceState::Applied;
    until_said(&place, "hooked-not", is_applied).await?;
    let _silent = hang(&place).await?;
    let mark = place.kubernetes.audit_mark()?;
    let (many, q) = (files("2"), config_map("q", "2"));
    place.world.app.commit(&[borrowed(&many), vec![("quick/q.yaml", &q)]].concat())?;
    wait_for("the first service to be under way", SOON, async || {
        let wrote = writes(&place, mark, "/namespaces/hooked/configmaps/a");
        if wrote.map_err(|error| error.to_string())?.is_empty() { Err("it is not") } else { Ok(()) }
            .map_err(ToOwned::to_owned)
    })
    .await?;
    let hanging = place.kubernetes.audit_mark()?;
    let begun = Instant::now();
    wait_for("the other service", SOON, async || {
        let value = ["get", "configmap", "q", "--namespace=hooked-not", "--output=jsonpath={.data.value}"];
        match place.kubernetes.kubectl(&value) {
            Ok(value) if value == "2" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    assert!(begun.elapsed() < Duration::from_secs(20), "it waited for {:?}", begun.elapsed());
    wait_for("the lease to be renewed time and again", SOON, async || {
        let renewed = writes(&place, hanging, "/leases/hooked").map_err(|error| error.to_string())?.len();
        if renewed >= 5 { Ok(()) } else { Err(format!("{renewed} times")) }
    })
    .await?;
    let said = place.site.process().stderr();
    assert_eq!(said.matches("this agent leads").count(), 1, "it has lost its lease: {said}");
    place.kubernetes.kubectl(&["delete", "validatingwebhookconfiguration", place.name])?;
    place.until("configmap", "a", "{.data.value}", Some("2")).await
}

#[tokio::test]
async fn a_newer_commit_and_a_pause_end_what_hangs_at_a_webhook() -> Result<(), KitError> {
    const SOON_ENOUGH: Duration = Duration::from_secs(25);
    let mut place = in_place("overtaken", &[("a.yaml", &config_map("a", "1"))]).await?;
    place.until_state(ServiceState::Applied).await?;
    let _silent = hang(&place).await?;
    let under_way = async |place: &Place, since: AuditMark| {
        wait_for("the service to be under way", SOON, async || {
            let wrote = writes(place, since, "/namespaces/overtaken/configmaps/m");
            match wrote.map_err(|error| error.to_string())?.is_empty() {
                true => Err("nothing was written".to_owned()),
                false => Ok(()),
            }
        })
        .await
    };
    let mark = place.kubernetes.audit_mark()?;
    let many: Vec<(String, String)> =
        (0..200).map(|n| (format!("manifests/m{n}.yaml"), config_map(&format!("m{n}"), "1"))).collect();
    let files: Vec<(&str, &str)> = many.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
    place.world.app.commit(&files)?;
    under_way(&place, mark).await?;

    let begun = Instant::now();
    let gone: Vec<&str> = files.iter().map(|(file, _)| *file).collect();
    place.world.app.commit_without(&gone)?;
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: { name: mended }\n";
    place.world.app.commit(&[("manifests/mended.yaml", secret)])?;
    place.until("secret", "mended", "{.metadata.name}", Some("mended")).await?;
    assert!(begun.elapsed() < SOON_ENOUGH, "the newer commit waited for {:?}", begun.elapsed());

    let mark = place.kubernetes.audit_mark()?;
    place.world.app.commit(&files)?;
    under_way(&place, mark).await?;
    let begun = Instant::now();
    let controls = place.site.state().join("controls");
    std::fs::create_dir_all(&controls).expect("a folder");
    std::fs::write(controls.join("pause"), "1h tills are counted").expect("written");
    let is_paused = |status: &ServiceStatus| status.message.contains("paused at the site");
    place.until_service("paused", is_paused).await?;
    assert!(begun.elapsed() < SOON_ENOUGH, "the pause waited for {:?}", begun.elapsed());
    place.kubernetes.kubectl(&["delete", "validatingwebhookconfiguration", place.name]).map(|_| ())
}

/// Names, the code with which each of them is refused, and what a person is told.
const TROUBLE: [(&str, u16, &str); 5] = [
    ("away", 503, "the API has trouble (503)"),
    ("broken", 500, "the API has trouble (500)"),
    ("busy", 429, "the API is overloaded"),
    ("clash", 409, "something else changed it meanwhile"),
    ("wrong", 422, "refused by admission"),
];

/// From now on each of them is refused.
fn trouble(webhook: &Webhook) {
    for (name, code, _told) in TROUBLE {
        webhook.refuse(name, json!({"code": code, "message": format!("{name} today")}));
    }
}

/// A namespace, and a webhook that is asked about each `ConfigMap` in it.
async fn guarded(name: &str) -> Result<(Arc<Kubernetes>, Webhook), KitError> {
    let kubernetes = CLUSTER.get().await?;
    kubernetes.kubectl(&["create", "namespace", name])?;
    let webhook = Webhook::start().await?;
    webhook.refuse("probe", json!({"code": 400, "message": "it is asked"}));
    webhook.guard(&kubernetes, name)?;
    wait_for("the webhook to be asked", SOON, async || {
        let probe = ["create", "configmap", "probe", "--dry-run=server", "--namespace", name];
        match kubernetes.kubectl(&probe) {
            Err(error) if error.to_string().contains("it is asked") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    Ok((kubernetes, webhook))
}

#[tokio::test]
async fn what_is_answered_with_trouble_fails_alone_is_tried_again_and_arrives_when_that_is_over()
-> Result<(), KitError> {
    let (kubernetes, webhook) = guarded("troubled").await?;
    trouble(&webhook);
    let names = TROUBLE.map(|(name, ..)| name);
    let files = |value: &str| {
        [&names[..], &["well"]].concat().iter().map(|n| config_map(n, value) + "---\n").collect()
    };
    let (first, second): (String, String) = (files("1"), files("2"));
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: { name: s }\nstringData: { value: \"1\" }\n";
    let mut place =
        Place::with(kubernetes, "troubled", &[("all.yaml", &first), ("secret.yaml", secret)]).await?;
    let service = place
        .until_service("short of those in trouble", |service| {
            service.state == ServiceState::Failed && service.failures.len() == names.len()
        })
        .await?;
    for (name, _code, told) in TROUBLE {
        let object = format!("ConfigMap troubled/{name}");
        let failure = service.failures.iter().find(|failure| failure.object == object);
        let message = failure.map(|failure| failure.message.as_str()).unwrap_or_default();
        assert!(message.contains(told) && message.contains(&format!("{name} today")), "{name}: {service:?}");
    }
    place.until("configmap", "well", "{.data.value}", Some("1")).await?;
    place.until("secret", "s", "{.metadata.name}", Some("s")).await?;
    let asked = names.map(|name| webhook.asked(name).len());
    wait_for("each to be tried again", SOON, async || {
        let again = names.map(|name| webhook.asked(name).len());
        if again.iter().zip(&asked).all(|(now, then)| now > then) {
            Ok(())
        } else {
            Err(format!("{again:?}"))
        }
    })
    .await?;
    webhook.allow();
    place.until_state(ServiceState::Applied).await?;

    // The same for what is there and changes.
    trouble(&webhook);
    place.world.commit(&[("all.yaml", &second)])?;
    place.until("configmap", "well", "{.data.value}", Some("2")).await?;
    place.until_service("short of them again", |service| service.failures.len() == names.len()).await?;
    for name in names {
        assert_eq!(place.look("configmap", name, "{.data.value}"), Ok(Some("1".to_owned())), "{name}");
    }
    webhook.allow();
    place.until_state(ServiceState::Applied).await?;
    for name in names {
        place.until("configmap", name, "{.data.value}", Some("2")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn who_is_asked_to_come_back_later_does_so_then_and_keeps_nobody_waiting() -> Result<(), KitError> {
    const LATER: Duration = Duration::from_secs(3);
    let (kubernetes, webhook) = guarded("later").await?;
    let status =
        json!({"code": 429, "message": "too much today", "details": {"retryAfterSeconds": LATER.as_secs()}});
    webhook.refuse_times(2, "busy", status);
    let files = [("busy.yaml", &*config_map("busy", "1")), ("well.yaml", &config_map("well", "1"))];
    let place = Place::with(kubernetes, "later", &files).await?;
    place.until_state(ServiceState::Applied).await?;
    let (busy, well) = (webhook.asked("busy"), webhook.asked("well"));
    assert_eq!((busy.len(), well.len()), (3, 1), "each was asked about as often as it had to be");
    for two in busy.windows(2) {
        assert!(two[1] - two[0] >= LATER, "{:?} later", two[1] - two[0]);
    }
    assert!(well[0] < busy[1], "the other one waited");
    Ok(())
}
