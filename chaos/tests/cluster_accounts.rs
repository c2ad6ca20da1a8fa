//! What an agent may do where each service is applied as an account of its own, in a real Kubernetes API with RBAC.

use std::sync::Arc;
use std::time::Duration;

use farshore_chaos::kit::{ApiRequest, AuditMark, KitError, Kubernetes, wait_for};
use farshore_chaos::world::declare::{config_map, service};
use farshore_chaos::world::{Place, SharedCluster};
use farshore_shared::wire::{ServiceState, ServiceStatus};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(90);

/// For all tests of this file; each has a namespace, a fleet and a site of its own.
static CLUSTER: SharedCluster = SharedCluster::new();

/// What is published for agents, by its file.
fn published(file: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes");
    std::fs::read_to_string(folder.join(file)).expect("it is published")
}

/// What a tenant may do with the kinds of its services.
const VERBS: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];

/// A namespace with the account `deployer`, which has the rights that are published, except for one verb.
async fn admit(kubernetes: &Kubernetes, name: &str, without: &str) -> Result<(), KitError> {
    let rest: Vec<&str> = VERBS.into_iter().filter(|verb| *verb != without).collect();
    let tenant = published("tenant.yaml").replace("namespace: shop", &format!("namespace: {name}"));
    let tenant = tenant.replace("metadata: { name: shop }", &format!("metadata: {{ name: {name} }}"));
    let tenant = tenant.replace(&VERBS.join(", "), &rest.join(", "));
    kubernetes.kubectl_with_input(&["apply", "-f", "-"], &tenant)?;
    may(kubernetes, "farshore:agent", &["impersonate", "serviceaccounts/deployer", "-n", name]).await?;
    may(kubernetes, &format!("{name}:deployer"), &[rest[0], "configmaps", "-n", name]).await
}

/// A site that is not started, whose services of these names are each applied as the account `deployer` of a namespace
/// of the same name. The agent has the rights that are published, and no others.
async fn site(name: &'static str, services: &[&str], manifests: &[(&str, &str)]) -> Result<Place, KitError> {
    let kubernetes = published_rights().await?;
    let kubeconfig = kubernetes.kubeconfig_of("farshore", "agent")?;
    let rules = services.iter().map(|name| format!("{{service: {name}, account: {name}/deployer}}"));
    let rules: Vec<String> = rules.collect();
    let accounts = kubernetes.kubeconfig().with_file_name(format!("{name}.accounts"));
    std::fs::write(&accounts, format!("accounts: [{}]", rules.join(", "))).expect("a file");
    let place = Place::of(kubernetes, name, "", manifests).await?;
    let place = place.option(format!("--kubeconfig={}", kubeconfig.display()));
    Ok(place.option(format!("--accounts={}", accounts.display())))
}

/// A cluster whose agent has what is published for it.
async fn published_rights() -> Result<Arc<Kubernetes>, KitError> {
    let kubernetes = CLUSTER.get().await?;
    for file in ["agent.yaml", "watches.yaml"] {
        kubernetes.kubectl_with_input(&["apply", "-f", "-"], &published(file))?;
    }
    may(&kubernetes, "farshore:agent", &["list", "configmaps", "--all-namespaces"]).await?;
    Ok(kubernetes)
}

/// A running site of one service, whose tenant has the rights that are published.
async fn tenant(name: &'static str, manifests: &[(&str, &str)]) -> Result<(Place, AuditMark), KitError> {
    let place = site(name, &[name], manifests).await?;
    admit(&place.kubernetes, name, "").await?;
    let mark = place.kubernetes.audit_mark()?;
    Ok((place.option("--sweep=1h").started().await?, mark))
}

/// Waits until the API server has read that an account may do this.
async fn may(kubernetes: &Kubernetes, account: &str, deed: &[&str]) -> Result<(), KitError> {
    let who = format!("--as=system:serviceaccount:{account}");
    wait_for(&format!("{account} to be allowed to {deed:?}"), SOON, async || {
        let answer = kubernetes.kubectl(&[&["auth", "can-i"], deed, &[&who]].concat());
        answer.map(|_| ()).map_err(|error| error.to_string())
    })
    .await
}

/// What the agents wrote at addresses that contain this.
fn writes(place: &Place, since: AuditMark, at: &str) -> Result<Vec<ApiRequest>, KitError> {
    let mut writes = place.kubernetes.audit_writes_since(since)?;
    writes.retain(|write| write.user_agent.starts_with("farshore-agent/") && write.uri.contains(at));
    Ok(writes)
}

#[tokio::test]
async fn a_service_with_an_account_writes_where_that_may_and_nowhere_else() -> Result<(), KitError> {
    let kubernetes = CLUSTER.get().await?;
    kubernetes.kubectl(&["create", "namespace", "not-the-tenant"])?;
    let outside = config_map("outside", "1")
        .replace("{ name: outside }", "{ name: outside, namespace: not-the-tenant }");
    let files = [("a.yaml", &*config_map("a", "1")), ("outside.yaml", &outside)];
    let (mut place, mark) = tenant("tenant", &files).await?;
    let said = place.until_state(ServiceState::Failed).await?;
    let [failure] = &said.failures[..] else { panic!("{said:?}") };
    assert!(failure.object.contains("not-the-tenant/outside"), "{failure:?}");
    assert!(failure.message.contains("system:serviceaccount:tenant:deployer"), "{failure:?}");
    place.until("configmap", "a", "{.data.value}", Some("1")).await?;
    let yaml = place.site.process().wait_for_line("grants it: {\"apiVersion\"", SOON).await?;
    assert!(yaml.contains("\"namespace\":\"not-the-tenant\""), "{yaml}");
    assert!(!writes(&place, mark, "/not-the-tenant/")?.is_empty(), "it was tried, and refused");
    let there = ["get", "configmaps", "--namespace=not-the-tenant", "-o=name"];
    assert_eq!(place.kubernetes.kubectl(&there)?, "");
    Ok(())
}

#[tokio::test]
async fn repairs_hooks_and_removals_go_as_the_account_too() -> Result<(), KitError> {
    let hook = config_map("hook", "1")
        .replace("{ name: hook }", "{ name: hook, annotations: { helm.sh/hook: pre-install } }");
    let files = [("a.yaml", &*config_map("a", "1")), ("b.yaml", &config_map("b", "1")), ("hook.yaml", &hook)];
    let (mut place, mark) = tenant("acting", &files).await?;
    place.until_state(ServiceState::Applied).await?;
    place.kubectl(&["patch", "configmap", "a", "--type=merge", "-p", r#"{"data":{"value":"theirs"}}"#])?;
    place.until("configmap", "a", "{.data.value}", Some("1")).await?;
    place.kubectl(&["delete", "configmap", "b"])?;
    place.until("configmap", "b", "{.data.value}", Some("1")).await?;
    place.world.app.commit_without(&["manifests/b.yaml"])?;
    place.until("configmap", "b", "{.metadata.uid}", None).await?;
    let wrote = writes(&place, mark, "/acting/")?;
    for (verb, object) in [("patch", "a?"), ("patch", "b?"), ("patch", "hook?"), ("delete", "b")] {
        let path = format!("/configmaps/{object}");
        assert!(wrote.iter().any(|write| write.verb == verb && write.uri.contains(&path)), "{verb} {object}");
    }
    // The agent itself may not write at all: what it wrote, it wrote as the account. Without the right of that nothing
    // is put back, and the service says what would grant it.
    place.kubectl(&["delete", "rolebinding", "farshore:deployer"])?;
    wait_for("the right to be gone", SOON, async || {
        let who = "--as=system:serviceaccount:acting:deployer";
        place.kubectl(&["auth", "can-i", "patch", "configmaps", who]).map_or(Ok(()), Err)
    })
    .await?;
    place.kubectl(&["patch", "configmap", "a", "--type=merge", "-p", r#"{"data":{"value":"theirs"}}"#])?;
    place.site.process().wait_for_line("grants it: {\"apiVersion\"", SOON).await?;
    place.until_state(ServiceState::Failed).await?;
    assert_eq!(place.look("configmap", "a", "{.data.value}"), Ok(Some("theirs".to_owned())));
    Ok(())
}

/// A running site with two services of two tenants, of which one lacks a verb.
async fn lacking(
    verb: &str,
    [name, other]: [&'static str; 2],
    manifests: &[(&str, &str)],
) -> Result<Place, KitError> {
    let mut place = site(name, &[name, other], manifests).await?;
    admit(&place.kubernetes, name, verb).await?;
    admit(&place.kubernetes, other, "").await?;
    place.world.app.commit(&[("other/o.yaml", &config_map("o", "1"))])?;
    place.declare("", &service(other, "app", "other", "raw"))?;
    place.started().await
}

/// Waits until a service of the site says that it lacks a verb, while the other is well and follows its commits; gives
/// it what is printed, as it is printed.
async fn told_and_given(verb: &str, place: &mut Place, other: &'static str) -> Result<(), KitError> {
    let words = format!(
        "cannot {verb} resource \"configmaps\" in API group \"\" in the namespace \"{}\"",
        place.name
    );
    let says = |service: &ServiceStatus| {
        let failures = service.failures.iter().map(|failure| failure.message.as_str());
        failures.chain([service.message.as_str()]).any(|said| said.contains(&words))
    };
    let is_it = |service: &ServiceStatus| service.state == ServiceState::Failed && says(service);
    place.until_service(&format!("without the right to {verb}"), is_it).await?;

    place.world.app.commit(&[("other/o.yaml", &config_map("o", "2"))])?;
    wait_for("the other service to follow", SOON, async || {
        let get = ["get", "configmap", "o", "--namespace", other, "--output=jsonpath={.data.value}"];
        match place.kubernetes.kubectl(&get) {
            Ok(value) if value == "2" => Ok(()),
            found => Err(format!("{found:?}")),
        }
    })
    .await?;
    let is_well =
        |service: &ServiceStatus| service.name.as_str() == other && service.state == ServiceState::Applied;
    place.until_status("well beside it", |status| status.services.iter().any(is_well)).await?;

    let said = place.site.process().wait_for_line(&format!("\"verbs\":[\"{verb}\"]"), SOON).await?;
    let (_before, yaml) =
        said.split_once("`kubectl apply -f -` with this grants it: ").expect("it is printed");
    let mut documents = serde_json::Deserializer::from_str(yaml).into_iter::<Value>();
    let list = documents.next().expect("it is there").expect("JSON is YAML");
    let printed = &yaml[..documents.byte_offset()];
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": [verb]}]);
    assert_eq!((&list["items"][0]["kind"], &list["items"][0]["rules"]), (&json!("Role"), &rules));
    place.kubernetes.kubectl_with_input(&["apply", "-f", "-"], printed).map(|_applied| ())
}

#[tokio::test]
async fn who_may_not_create_is_told_so_and_arrives_with_what_is_printed() -> Result<(), KitError> {
    let files = [("a.yaml", &*config_map("a", "1")), ("b.yaml", &config_map("b", "1"))];
    let mut place = lacking("create", ["no-create", "may-create"], &files).await?;
    told_and_given("create", &mut place, "may-create").await?;
    place.until_state(ServiceState::Applied).await?;
    place.until("configmap", "b", "{.data.value}", Some("1")).await
}

#[tokio::test]
async fn who_may_not_patch_is_told_so_and_arrives_with_what_is_printed() -> Result<(), KitError> {
    let files = [("a.yaml", &*config_map("a", "1")), ("b.yaml", &config_map("b", "1"))];
    let mut place = lacking("patch", ["no-patch", "may-patch"], &files).await?;
    told_and_given("patch", &mut place, "may-patch").await?;
    place.until_state(ServiceState::Applied).await?;
    place.until("configmap", "b", "{.data.value}", Some("1")).await
}

#[tokio::test]
async fn who_may_not_get_is_told_so_and_is_repaired_with_what_is_printed() -> Result<(), KitError> {
    let mut place = lacking("get", ["no-get", "may-get"], &[("a.yaml", &config_map("a", "1"))]).await?;
    // An apply needs no look; a repair does.
    place.until("configmap", "a", "{.data.value}", Some("1")).await?;
    told_and_given("get", &mut place, "may-get").await?;
    place.until_state(ServiceState::Applied).await?;
    place.patch("configmap", "a", r#"{"data":{"value":"theirs"}}"#)?;
    place.until("configmap", "a", "{.data.value}", Some("1")).await
}

#[tokio::test]
async fn who_may_not_delete_is_told_so_and_is_rid_of_it_with_what_is_printed() -> Result<(), KitError> {
    let files = [("a.yaml", &*config_map("a", "1")), ("b.yaml", &config_map("b", "1"))];
    let mut place = lacking("delete", ["no-delete", "may-delete"], &files).await?;
    place.until_state(ServiceState::Applied).await?;
    place.world.app.commit_without(&["manifests/b.yaml"])?;
    told_and_given("delete", &mut place, "may-delete").await?;
    place.until("configmap", "b", "{.metadata.uid}", None).await?;
    place.until_state(ServiceState::Applied).await.map(|_service| ())
}

#[tokio::test]
async fn an_agent_that_may_not_watch_a_kind_looks_at_it_and_says_which_rule_it_lacks() -> Result<(), KitError>
{
    // Of all kinds, what is published leaves Secrets out.
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: { name: s }\nstringData: { value: ours }\n";
    let place = site("unwatched", &["unwatched"], &[("s.yaml", secret)]).await?;
    admit(&place.kubernetes, "unwatched", "").await?;
    let mut place = place.started().await?;
    let told = "changes of secrets are seen by the sweep only: the agent's ClusterRole lacks ";
    let status = place.until_status("without the right to watch", |status| {
        status.alarms.iter().any(|alarm| alarm.contains(told))
    });
    let status = status.await?;
    let alarm = status.alarms.iter().find_map(|alarm| alarm.split_once(told)).expect("it was just there");
    let theirs = r#"{"data":{"value":"dGhlaXJz"}}"#;
    place.patch("secret", "s", theirs)?;
    place.until("secret", "s", "{.data.value}", Some("b3Vycw==")).await?;

    // The rule as it is printed. Whoever was refused asks again after five minutes, or when he starts.
    let role = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{ name: secrets }}\nrules:\n- {}\n",
        alarm.1
    );
    place.kubernetes.kubectl_with_input(&["apply", "-f", "-"], &role)?;
    let bind = ["create", "clusterrolebinding", "secrets", "--clusterrole=secrets"];
    place.kubernetes.kubectl(&[&bind[..], &["--serviceaccount=farshore:agent"]].concat())?;
    may(&place.kubernetes, "farshore:agent", &["watch", "secrets", "--all-namespaces"]).await?;
    place = place.option("--sweep=1h");
    place.site.start().await?;
    place.until_status("with all it needs", |status| status.alarms.is_empty()).await?;
    place.patch("secret", "s", theirs)?;
    place.until("secret", "s", "{.data.value}", Some("b3Vycw==")).await
}
