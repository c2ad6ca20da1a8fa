//! What an agent takes, gives away, keeps and may do, in a real Kubernetes API.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use farshore_chaos::kit::{ApiRequest, AuditMark, Finished, KitError, Kubernetes, Process, wait_for};
use farshore_chaos::world::declare::{config_map, service, source};
use farshore_chaos::world::{Site, Target, World};
use farshore_shared::wire::{ServiceState, ServiceStatus};
use tokio::sync::Mutex;

const SOON: Duration = Duration::from_secs(90);

/// One API server for all tests of this file; each has a namespace, a fleet and a site of its own.
static SERVER: Mutex<Weak<Kubernetes>> = Mutex::const_new(Weak::new());

async fn server() -> Result<Arc<Kubernetes>, KitError> {
    let mut shared = SERVER.lock().await;
    if let Some(running) = shared.upgrade() {
        return Ok(running);
    }
    let started = Arc::new(Kubernetes::start().await?);
    *shared = Arc::downgrade(&started);
    Ok(started)
}

/// A site with a service of its own name, in a namespace of that name.
struct Place {
    name: &'static str,
    site: Site,
    world: World,
    kubernetes: Arc<Kubernetes>,
}

impl Place {
    async fn with(name: &'static str, manifests: &[(&str, &str)]) -> Result<Self, KitError> {
        Self::in_cluster(server().await?, name, manifests).await
    }

    async fn in_cluster(
        kubernetes: Arc<Kubernetes>,
        name: &'static str,
        manifests: &[(&str, &str)],
    ) -> Result<Self, KitError> {
        let world = World::on_disk(name, manifests).await?;
        let site = world.site(name, Target::Kubernetes(kubernetes.kubeconfig())).await?;
        Ok(Self { name, site, world, kubernetes })
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<String, KitError> {
        self.kubernetes.kubectl(&[&["--namespace", self.name], arguments].concat())
    }

    /// A value of an object, by its path; none when there is no such object.
    fn look(&self, kind: &str, name: &str, path: &str) -> Result<Option<String>, String> {
        let output = format!("--output=jsonpath={path}");
        match self.kubectl(&["get", kind, name, "--ignore-not-found", &output]) {
            Ok(text) => Ok((!text.is_empty()).then_some(text)),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn until(&self, kind: &str, name: &str, path: &str, wanted: Option<&str>) -> Result<(), KitError> {
        wait_for(&format!("{path} of {kind} {name} to be {wanted:?}"), SOON, async || {
            match self.look(kind, name, path)? {
                found if found.as_deref() == wanted => Ok(()),
                found => Err(format!("it is {found:?}")),
            }
        })
        .await
    }

    /// Waits until the site says this of a service.
    async fn until_said(
        &self,
        service: &str,
        what: &str,
        is_so: impl Fn(&ServiceStatus) -> bool,
    ) -> Result<ServiceStatus, KitError> {
        wait_for(&format!("{service} to be {what}"), SOON, async || {
            let status = self.world.fleet.status(self.name).map_err(|error| error.to_string())?;
            let status = status.ok_or("no status has come")?;
            let found = status.services.into_iter().find(|status| status.name.as_str() == service);
            match found {
                Some(service) if is_so(&service) => Ok(service),
                other => Err(format!("it is {other:?}, {:?}", status.alarms)),
            }
        })
        .await
    }

    async fn until_applied(&self, commit: &str) -> Result<ServiceStatus, KitError> {
        let is_so = |status: &ServiceStatus| {
            status.state == ServiceState::Applied && status.commit.starts_with(commit)
        };
        self.until_said(self.name, "applied", is_so).await
    }

    /// What the fleet repository says from now on of the service of this place, and more.
    fn declare(&mut self, spec: &str, more: &str) -> Result<String, KitError> {
        let app = source("app", &self.world.app.url());
        let own = service(self.name, "app", "manifests", "raw");
        let text = format!("{app}---\n{own}{spec}---\n{more}");
        self.world.declared.commit(&[("fleet.yaml", &text)])
    }

    /// Runs `farshore` beside the site, as its operator.
    async fn farshore(&self, arguments: &[&str]) -> Result<Finished, KitError> {
        let mut all: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        all.push(format!("--state={}", self.site.state().display()));
        all.push(format!("--kubeconfig={}", self.kubernetes.kubeconfig().display()));
        Process::start("farshore", &all)?.output(SOON).await
    }
}

#[tokio::test]
async fn an_object_that_moves_to_another_service_keeps_its_uid() -> Result<(), KitError> {
    let files = [("moved.yaml", &*config_map("moved", "1")), ("stays.yaml", &config_map("stays", "1"))];
    let mut place = Place::with("moving", &files).await?;
    place.until_applied("").await?;
    let uid = place.look("configmap", "moved", "{.metadata.uid}").expect("it is there");
    // Both services change with one commit of the application, and one of the fleet.
    let mark = place.kubernetes.audit_mark()?;
    let text = config_map("moved", "1");
    place.world.app.commit(&[("other/moved.yaml", &text)])?;
    place.world.app.commit_without(&["manifests/moved.yaml"])?;
    let other = service("heir", "app", "other", "raw").replace("namespace: heir", "namespace: moving");
    place.declare("", &other)?;
    let label = "{.metadata.labels.farshore\\.dev/service}";
    place.until("configmap", "moved", label, Some("heir")).await?;
    let commit = place.world.app.repo().git(&["rev-parse", "HEAD"])?;
    place.until_applied(commit.trim()).await?;
    assert_eq!(place.look("configmap", "moved", "{.metadata.uid}"), Ok(uid));
    let writes = place.kubernetes.audit_writes_since(mark)?;
    let deleted = writes.iter().filter(|write| write.verb == "delete" && write.uri.contains("/moving/"));
    assert_eq!(deleted.count(), 0, "it was deleted in between");
    Ok(())
}

#[tokio::test]
async fn a_service_with_another_name_adopts_what_it_had() -> Result<(), KitError> {
    let mut place = Place::with("renamed", &[("a.yaml", &config_map("a", "1"))]).await?;
    place.until_applied("").await?;
    let uid = place.look("configmap", "a", "{.metadata.uid}").expect("it is there");
    let app = source("app", &place.world.app.url());
    let other =
        service("new-name", "app", "manifests", "raw").replace("namespace: new-name", "namespace: renamed");
    place.world.declared.commit(&[("fleet.yaml", &format!("{app}---\n{other}"))])?;
    let held = place.world.fleet.until_source("fleet", "held").await;
    if let Ok(held) = held {
        let change = held["held"]["change"].as_str().expect("a held change has an id");
        let approved = place.world.fleet.farshore(&["approve", change]).await?;
        assert!(approved.status.success(), "{approved:?}");
    }
    place.until_said("new-name", "applied", |status| status.state == ServiceState::Applied).await?;
    place.until("configmap", "a", "{.metadata.labels.farshore\\.dev/service}", Some("new-name")).await?;
    assert_eq!(place.look("configmap", "a", "{.metadata.uid}"), Ok(uid));
    Ok(())
}

const CLAIM: &str = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: { name: data }\nspec:\n  \
    accessModes: [ReadWriteOnce]\n  resources: { requests: { storage: 1Gi } }\n";

#[tokio::test]
async fn a_claim_that_left_is_kept_until_the_service_names_its_kind() -> Result<(), KitError> {
    let files = [("a.yaml", &*config_map("a", "1")), ("data.yaml", CLAIM)];
    let mut place = Place::with("claims", &files).await?;
    place.until("pvc", "data", "{.status.phase}", Some("Pending")).await?;
    // A volume is bound to it by a controller that is not there.
    let bound = ["patch", "pvc", "data", "--subresource=status", "--type=merge", "-p"];
    place.kubectl(&[&bound[..], &[r#"{"status":{"phase":"Bound"}}"#]].concat())?;
    place.until_applied("").await?;
    place.world.app.commit_without(&["manifests/data.yaml"])?;
    let said = place.until_said("claims", "told of", |status| status.message.contains("kept")).await?;
    assert_eq!(said.state, ServiceState::Applied, "nobody has to wait for it");
    assert!(said.message.contains("PersistentVolumeClaim claims/data"), "{said:?}");
    assert!(said.message.contains("spec.prune.kinds"), "{said:?}");
    // The API keeps a claim until its controller lets go of it; there is none here.
    place.kubectl(&["patch", "pvc", "data", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#])?;
    assert!(place.look("pvc", "data", "{.metadata.uid}").expect("the API answers").is_some());
    place.declare("  prune: { kinds: [PersistentVolumeClaim] }\n", "")?;
    place.until("pvc", "data", "{.metadata.uid}", None).await?;
    place.until_said("claims", "silent", |status| status.message.is_empty()).await.map(|_| ())
}

#[tokio::test]
async fn a_namespace_and_a_definition_go_with_nothing_but_their_names() -> Result<(), KitError> {
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: { name: guarded-inner }\n";
    let inner =
        config_map("inner", "1").replace("{ name: inner }", "{ name: inner, namespace: guarded-inner }");
    let files = [("a.yaml", &*config_map("a", "1")), ("namespace.yaml", namespace), ("inner.yaml", &inner)];
    let mut place = Place::with("guarded", &files).await?;
    place.until_applied("").await?;
    place.kubernetes.kubectl(&["create", "configmap", "theirs", "--namespace=guarded-inner"])?;
    place.world.app.commit_without(&["manifests/namespace.yaml", "manifests/inner.yaml"])?;
    place
        .until_said("guarded", "told of", |status| status.message.contains("Namespace guarded-inner"))
        .await?;
    let inside = place.kubernetes.kubectl(&["get", "configmaps", "--namespace=guarded-inner", "-o=name"])?;
    assert_eq!(inside.trim(), "configmap/theirs", "what is not ours lives on in it");
    Ok(())
}

#[tokio::test]
async fn a_mass_removal_at_a_site_is_held_and_goes_through_when_the_budget_is_raised() -> Result<(), KitError>
{
    let manifests: Vec<(String, String)> =
        (0..20).map(|n| (format!("o{n}.yaml"), config_map(&format!("o{n}"), "1"))).collect();
    let files: Vec<(&str, &str)> =
        manifests.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
    let mut place = Place::with("mass", &files).await?;
    place.until_applied("").await?;
    let gone: Vec<String> = (0..15).map(|n| format!("manifests/o{n}.yaml")).collect();
    place.world.app.commit_without(&gone.iter().map(String::as_str).collect::<Vec<_>>())?;
    let said = place.until_said("mass", "held", |status| status.state == ServiceState::Held).await?;
    assert!(said.message.contains("15 of 20 objects are kept"), "{said:?}");
    let count = || place.kubectl(&["get", "configmaps", "-o=name"]).map(|text| text.lines().count());
    assert_eq!(count()?, 20);
    place.declare("  prune: { count: 15 }\n", "")?;
    wait_for("fifteen to go", SOON, async || match place.kubectl(&["get", "configmaps", "-o=name"]) {
        Ok(text) if text.lines().count() == 5 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await
}

#[tokio::test]
async fn a_deletion_that_is_denied_is_tried_until_it_is_not() -> Result<(), KitError> {
    let files = [("a.yaml", &*config_map("a", "1")), ("b.yaml", &config_map("b", "1"))];
    let mut place = Place::with("refusing", &files).await?;
    place.until_applied("").await?;
    let policy = r#"{"apiVersion":"v1","kind":"List","items":[
        {"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy",
         "metadata":{"name":"refusing"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],
            "apiVersions":["v1"],"operations":["DELETE"],"resources":["configmaps"]}]},
            "validations":[{"expression":"false","message":"not on a Friday"}]}},
        {"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding",
         "metadata":{"name":"refusing"},"spec":{"policyName":"refusing","validationActions":["Deny"],
            "matchResources":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"refusing"}}}}}]}"#;
    place.kubernetes.kubectl_with_input(&["apply", "-f", "-"], policy)?;
    wait_for("the policy to be read", SOON, async || {
        match place.kubectl(&["delete", "configmap", "a", "--dry-run=server"]) {
            Err(_) => Ok(()),
            Ok(text) => Err(text),
        }
    })
    .await?;
    place.world.app.commit_without(&["manifests/a.yaml"])?;
    let said = place.until_said("refusing", "failed", |status| status.state == ServiceState::Failed).await?;
    assert!(said.message.contains("not on a Friday"), "{said:?}");
    // A site that starts again still knows of it.
    place.site.kill()?;
    place.site.start().await?;
    place.kubernetes.kubectl(&["delete", "validatingadmissionpolicybinding", "refusing"])?;
    place.until("configmap", "a", "{.metadata.uid}", None).await
}

#[tokio::test]
async fn what_somebody_else_owns_fails_alone_until_the_service_says_to_take_it() -> Result<(), KitError> {
    let kubernetes = server().await?;
    kubernetes.kubectl(&["create", "namespace", "disputed"])?;
    let theirs = config_map("theirs", "of helm");
    let apply = ["apply", "--server-side", "--field-manager=helm", "--namespace=disputed", "-f", "-"];
    kubernetes.kubectl_with_input(&apply, &theirs)?;
    let files = [("theirs.yaml", &*config_map("theirs", "ours")), ("ours.yaml", &config_map("ours", "1"))];
    let mut place = Place::with("disputed", &files).await?;
    let said = place.until_said("disputed", "failed", |status| status.state == ServiceState::Failed).await?;
    let told = &said.failures[0].message;
    assert!(told.starts_with("conflict: \"helm\" owns .data.value ("), "{told}");
    place.until("configmap", "ours", "{.data.value}", Some("1")).await?;
    assert_eq!(place.look("configmap", "theirs", "{.data.value}"), Ok(Some("of helm".to_owned())));
    place.declare("  apply: { conflicts: force }\n", "")?;
    place.until("configmap", "theirs", "{.data.value}", Some("ours")).await?;
    place.until_applied("").await.map(|_| ())
}

/// What is published for agents, by its file.
fn published(file: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes");
    std::fs::read_to_string(folder.join(file)).expect("it is published")
}

/// A site whose service, of the same name, is applied as the account `deployer` of its namespace. The agent has the
/// rights that are published, and no others.
async fn tenant(name: &'static str, manifests: &[(&str, &str)]) -> Result<(Place, AuditMark), KitError> {
    let kubernetes = server().await?;
    let tenant = published("tenant.yaml").replace("namespace: shop", &format!("namespace: {name}"));
    let tenant = tenant.replace("metadata: { name: shop }", &format!("metadata: {{ name: {name} }}"));
    for yaml in [published("agent.yaml"), published("watches.yaml"), tenant] {
        kubernetes.kubectl_with_input(&["apply", "-f", "-"], &yaml)?;
    }
    may(&kubernetes, "farshore:agent", &["list", "configmaps", "--all-namespaces"]).await?;
    may(&kubernetes, "farshore:agent", &["impersonate", "serviceaccounts/deployer", "-n", name]).await?;
    may(&kubernetes, &format!("{name}:deployer"), &["patch", "configmaps", "-n", name]).await?;
    let file = |suffix: &str, text: String| {
        let path = kubernetes.kubeconfig().with_file_name(format!("{name}.{suffix}"));
        std::fs::write(&path, text).expect("a file");
        path
    };
    let token = kubernetes.kubectl(&["create", "token", "agent", "--namespace=farshore"])?;
    let own = format!("\"token\":\"{}\"", token.trim());
    let admin = std::fs::read_to_string(kubernetes.kubeconfig()).expect("a kubeconfig");
    let kubeconfig = file("kubeconfig", admin.replace("\"token\":\"kit-admin\"", &own));
    let accounts = file("accounts", format!("accounts: [{{service: {name}, account: {name}/deployer}}]"));
    let world = World::on_disk(name, manifests).await?;
    let site = world.fleet.site(name, &world.hub.address(), Target::Kubernetes(kubeconfig))?;
    let mut site = site.option(format!("--accounts={}", accounts.display())).option("--sweep=1h");
    let mark = kubernetes.audit_mark()?;
    site.start().await?;
    Ok((Place { name, site, world, kubernetes }, mark))
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

/// What the agent of a place wrote there, or to everything if it is not told where.
fn writes(place: &Place, since: AuditMark, at: &str) -> Result<Vec<ApiRequest>, KitError> {
    let mut writes = place.kubernetes.audit_writes_since(since)?;
    writes.retain(|write| write.user_agent.starts_with("farshore-agent/") && write.uri.contains(at));
    Ok(writes)
}

#[tokio::test]
async fn a_service_with_an_account_writes_where_that_may_and_nowhere_else() -> Result<(), KitError> {
    let kubernetes = server().await?;
    kubernetes.kubectl(&["create", "namespace", "not-the-tenant"])?;
    let outside = config_map("outside", "1")
        .replace("{ name: outside }", "{ name: outside, namespace: not-the-tenant }");
    let files = [("a.yaml", &*config_map("a", "1")), ("outside.yaml", &outside)];
    let (mut place, mark) = tenant("tenant", &files).await?;
    let said = place.until_said("tenant", "failed", |status| status.state == ServiceState::Failed).await?;
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
    place.until_applied("").await?;
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
    place.until_said("acting", "failed", |status| status.state == ServiceState::Failed).await?;
    assert_eq!(place.look("configmap", "a", "{.data.value}"), Ok(Some("theirs".to_owned())));
    Ok(())
}

/// From now on no write of a `ConfigMap` in this place is answered: the webhook that is asked first never says a word.
async fn hang(place: &Place) -> Result<std::net::TcpListener, KitError> {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("it is bound").port();
    let hook = serde_json::json!({"apiVersion": "admissionregistration.k8s.io/v1",
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
    let mut place = Place::with("hooked", &[("a.yaml", &config_map("a", "1"))]).await?;
    place.site = place.site.option("--leader-elect=default/hooked");
    place.site.start().await?;
    place.world.app.commit(&borrowed(&files("1")))?;
    place.world.app.commit(&[("quick/q.yaml", &config_map("q", "1"))])?;
    place.declare("", &service("hooked-not", "app", "quick", "raw"))?;
    let is_applied = |status: &ServiceStatus| status.state == ServiceState::Applied;
    place.until_said("hooked-not", "applied", is_applied).await?;
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
    let mut place = Place::with("overtaken", &[("a.yaml", &config_map("a", "1"))]).await?;
    place.until_applied("").await?;
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
    place.until_said("overtaken", "paused", is_paused).await?;
    assert!(begun.elapsed() < SOON_ENOUGH, "the pause waited for {:?}", begun.elapsed());
    place.kubernetes.kubectl(&["delete", "validatingwebhookconfiguration", place.name]).map(|_| ())
}

#[tokio::test]
async fn a_state_folder_from_a_backup_deletes_nothing_that_is_declared() -> Result<(), KitError> {
    let files = [("a.yaml", &*config_map("a", "1")), ("b.yaml", &config_map("b", "1"))];
    let mut place = Place::with("backup", &files).await?;
    place.until_applied("").await?;
    place.site.kill()?;
    let backup = tempfile::tempdir().expect("a folder");
    copy(&place.site.state(), backup.path());
    place.site.start().await?;
    // Since the backup, one object went and one came, and one went and came back as another.
    place.world.app.commit_without(&["manifests/b.yaml"])?;
    place.until("configmap", "b", "{.metadata.uid}", None).await?;
    let commit =
        place.world.commit(&[("b.yaml", &config_map("b", "2")), ("c.yaml", &config_map("c", "1"))])?;
    place.until_applied(&commit).await?;
    place.site.kill()?;
    let uids = |place: &Place| ["a", "b", "c"].map(|name| place.look("configmap", name, "{.metadata.uid}"));
    let before = uids(&place);
    let mark = place.kubernetes.audit_mark()?;
    std::fs::remove_dir_all(place.site.state()).expect("removed");
    copy(backup.path(), &place.site.state());
    // At first without the hub: what it holds is old, and in force.
    place.world.hub.kill()?;
    place.site.start().await?;
    place.until("configmap", "b", "{.data.value}", Some("1")).await?;
    place.world.hub.start().await?;
    place.until("configmap", "b", "{.data.value}", Some("2")).await?;
    assert_eq!(uids(&place), before);
    let writes = place.kubernetes.audit_writes_since(mark)?;
    let deleted = writes.iter().filter(|write| write.verb == "delete" && write.uri.contains("/backup/"));
    assert_eq!(deleted.count(), 0);
    Ok(())
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).expect("copied");
        }
    }
}

#[tokio::test]
async fn an_etcd_from_an_older_snapshot_loses_nothing_that_is_declared() -> Result<(), KitError> {
    let mut kubernetes = Kubernetes::start().await?;
    let files = [("a.yaml", &*config_map("a", "1")), ("b.yaml", &config_map("b", "1"))];
    let world = World::on_disk("snapshot", &files).await?;
    let site = world.site("snapshot", Target::Kubernetes(kubernetes.kubeconfig())).await?;
    let mut place = Place { name: "snapshot", site, world, kubernetes: server().await? };
    place.until_applied("").await?;
    kubernetes.kubectl(&["create", "configmap", "theirs", "--namespace=snapshot"])?;
    let backup = kubernetes.back_up().await?;
    let commit =
        place.world.commit(&[("a.yaml", &config_map("a", "2")), ("c.yaml", &config_map("c", "1"))])?;
    place.until_applied(&commit).await?;
    place.world.app.commit_without(&["manifests/b.yaml"])?;
    let get = |kubernetes: &Kubernetes, name: &str| {
        let get = [
            "get",
            "configmap",
            name,
            "--namespace=snapshot",
            "--ignore-not-found",
            "-o=jsonpath={.data.value}",
        ];
        kubernetes.kubectl(&get).map_err(|error| error.to_string())
    };
    wait_for("b to go", SOON, async || match get(&kubernetes, "b")? {
        gone if gone.is_empty() => Ok(()),
        value => Err(value),
    })
    .await?;
    kubernetes.restore(&backup).await?;
    for (name, value) in [("a", "2"), ("c", "1")] {
        wait_for(&format!("{name} to be {value}"), SOON, async || match get(&kubernetes, name)? {
            found if found == value => Ok(()),
            found => Err(format!("it is {found:?}")),
        })
        .await?;
    }
    let left = kubernetes.kubectl(&["get", "configmaps", "--namespace=snapshot", "-o=name"])?;
    let mut left: Vec<&str> = left.lines().collect();
    left.sort_unstable();
    // What was deleted since is there again, and in no inventory: nobody's to delete.
    assert_eq!(left, ["configmap/a", "configmap/b", "configmap/c", "configmap/theirs"]);
    Ok(())
}

#[tokio::test]
async fn a_person_sees_what_would_change_and_takes_over_what_kubectl_applied() -> Result<(), KitError> {
    let kubernetes = server().await?;
    kubernetes.kubectl(&["create", "namespace", "looked-at"])?;
    let theirs = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: theirs, labels: { old: tool } }\n\
        data: { value: before }\n";
    kubernetes.kubectl_with_input(&["apply", "--namespace=looked-at", "-f", "-"], theirs)?;
    let files = [("theirs.yaml", &*config_map("theirs", "after")), ("ours.yaml", &config_map("ours", "1"))];
    let mut place = Place::with("looked-at", &files).await?;
    place.until_said("looked-at", "failed", |status| status.state == ServiceState::Failed).await?;

    // Beside the running agent.
    let said = place.farshore(&["diff"]).await?;
    assert!(said.status.success(), "{said:?}");
    let conflict = "! ConfigMap looked-at/theirs: conflict: \"kubectl-client-side-apply\" owns .data.value";
    assert!(said.stdout.contains(conflict), "{}", said.stdout);
    assert!(said.stdout.contains("1 objects stay as they are"), "{}", said.stdout);
    let said = place.farshore(&["adopt", "looked-at"]).await?;
    assert_eq!(said.status.code(), Some(4), "{said:?}");
    assert!(said.stdout.contains("kubectl-client-side-apply ("), "{}", said.stdout);
    assert_eq!(place.look("configmap", "theirs", "{.data.value}"), Ok(Some("before".to_owned())));
    let said = place.farshore(&["adopt", "looked-at", "--yes"]).await?;
    assert!(said.status.success(), "{said:?}");
    place.until("configmap", "theirs", "{.data.value}", Some("after")).await?;
    assert_eq!(place.look("configmap", "theirs", "{.metadata.labels.old}"), Ok(None));
    place.until_applied("").await?;

    place.site.kill()?;
    place.kubectl(&["patch", "configmap", "ours", "--type=merge", "-p", r#"{"data":{"value":"2"}}"#])?;
    let said = place.farshore(&["diff", "looked-at", "--output=json"]).await?;
    assert!(said.stdout.contains(r#""path": ".data.value""#), "{}", said.stdout);
    let said = place.farshore(&["diff", "no-such-service"]).await?;
    assert_eq!(said.status.code(), Some(3), "{said:?}");
    assert!(said.stderr.contains("there are: looked-at"), "{}", said.stderr);
    Ok(())
}

#[tokio::test]
async fn an_agent_that_is_killed_in_the_middle_of_an_upgrade_leaves_no_lock_and_finishes_it()
-> Result<(), KitError> {
    let files = |value: &str| -> Vec<(String, String)> {
        (0..300).map(|n| (format!("o{n}.yaml"), config_map(&format!("o{n}"), value))).collect()
    };
    let borrowed = |files: &[(String, String)]| -> Vec<(String, String)> { files.to_vec() };
    let first = borrowed(&files("1"));
    let first: Vec<(&str, &str)> = first.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
    let mut place = Place::with("upgrading", &first).await?;
    place.until_applied("").await?;
    let second = files("2");
    let second: Vec<(&str, &str)> =
        second.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
    let commit = place.world.commit(&second)?;
    let upgraded = |place: &Place| -> Result<usize, String> {
        let values = place.kubectl(&["get", "configmaps", "-o=jsonpath={.items[*].data.value}"]);
        let values = values.map_err(|error| error.to_string())?;
        Ok(values.split_whitespace().filter(|value| *value == "2").count())
    };
    wait_for("the upgrade to begin", SOON, async || match upgraded(&place)? {
        0 => Err("nothing is upgraded".to_owned()),
        some => Ok(some),
    })
    .await?;
    place.site.kill()?;
    place.site.start().await?;
    place.until_applied(&commit).await?;
    assert_eq!(upgraded(&place), Ok(300));
    Ok(())
}
