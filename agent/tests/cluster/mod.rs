//! An API server that the tests of one run share, and a place of its own in it for each test.

mod contract;
pub(crate) mod kubelet;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use farshore_agent::object::{Manifest, Owner};
use farshore_agent::plan::Item;
use farshore_agent::target::kubernetes::{Kubernetes, Options};
use farshore_agent::target::{Applied, Live, ObjectError, Target as _};
use farshore_agent::terms::Owned;
use farshore_chaos::kit;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Mutex;

/// The API server; it runs while a test holds it, and what tests write into it is not looked at by others.
static SERVER: Mutex<Weak<kit::Kubernetes>> = Mutex::const_new(Weak::new());

/// The API server of this moment.
pub(crate) async fn server() -> Arc<kit::Kubernetes> {
    let mut shared = SERVER.lock().await;
    if let Some(running) = shared.upgrade() {
        return running;
    }
    let started = Arc::new(kit::Kubernetes::start().await.expect("an API server"));
    *shared = Arc::downgrade(&started);
    started
}

/// A target with this kubeconfig.
pub(crate) async fn target(kubeconfig: &Path) -> Kubernetes {
    Kubernetes::connect(Some(kubeconfig), Options::default()).await.expect("a kubeconfig")
}

/// A copy of a kubeconfig with another text in the place of one.
pub(crate) fn changed_kubeconfig(kubeconfig: &Path, from: &str, to: &str) -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("kubeconfig");
    let text = std::fs::read_to_string(kubeconfig).expect("the kit's kubeconfig");
    assert!(text.contains(from), "{from} is not in {text}");
    std::fs::write(&path, text.replace(from, to)).expect("a file");
    (folder, path)
}

/// A namespace, a service and a client of its own for one test.
pub(crate) struct Place {
    pub(crate) server: Arc<kit::Kubernetes>,
    pub(crate) target: Kubernetes,
    pub(crate) owner: Owner,
    pub(crate) namespace: String,
    client: kube::Client,
}

impl Place {
    /// The namespace and the service have the same name.
    pub(crate) async fn named(name: &str) -> Self {
        let server = server().await;
        let target = target(&server.kubeconfig()).await;
        target.ready().await.expect("the kit waited for the API");
        let owner = owner(name);
        target.ensure_namespace(&owner, name).await.expect("a namespace");
        let client = client(&server.kubeconfig()).await;
        Self { server, target, owner, namespace: name.to_owned(), client }
    }

    /// Manifests in their places, with our marks on them.
    pub(crate) async fn located(&self, bodies: Vec<Value>) -> Vec<Result<Manifest, ObjectError>> {
        let read = |body| Manifest::read(body, "test".into()).expect("a whole manifest");
        let manifests = bodies.into_iter().map(read).collect();
        let mut located = self.target.locate(manifests, Some(&self.namespace)).await;
        located.iter_mut().flatten().for_each(|manifest| manifest.mark(&self.owner));
        located
    }

    pub(crate) async fn manifest(&self, body: Value) -> Manifest {
        self.located(vec![body]).await.remove(0).expect("a known kind")
    }

    /// Applies, and lists what was applied.
    pub(crate) async fn apply(&self, manifest: &Manifest) -> Item {
        let applied = self.target.apply(&self.owner, manifest).await;
        let Applied { uid, fingerprint, fields, .. } = applied.expect("a good manifest");
        Item { uid: Some(uid), fingerprint: Some(fingerprint), fields, ..Item::new(manifest) }
    }

    /// Applies what is in place again, as the repair of drift does.
    pub(crate) async fn repair(&self, manifest: &Manifest) -> Item {
        let mut manifest = manifest.clone();
        manifest.terms.owned = Owned::Everything;
        self.apply(&manifest).await
    }

    /// A `ConfigMap` that is in place.
    pub(crate) async fn config_map(&self, name: &str) -> (Manifest, Item) {
        let manifest = self.manifest(config_map(name, "1")).await;
        let item = self.apply(&manifest).await;
        (manifest, item)
    }

    pub(crate) async fn observe(&self, item: &Item) -> Live {
        let mut live = self.target.observe(&self.owner, std::slice::from_ref(item)).await;
        live.remove(0).expect("the API answers")
    }

    /// Everybody else's way to the nodes.
    pub(crate) fn nodes(&self) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Node"), "nodes");
        Api::all_with(self.client.clone(), &resource)
    }

    /// Everybody else's way to the objects of this namespace.
    pub(crate) fn api(&self, group: &str, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    pub(crate) fn config_maps(&self) -> Api<DynamicObject> {
        self.api("", "v1", "ConfigMap", "configmaps")
    }

    /// What somebody else writes into a `ConfigMap`, by an update.
    pub(crate) async fn edit(&self, name: &str, change: Value) {
        let by = PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
        self.config_maps().patch(name, &by, &Patch::Merge(change)).await.expect("a good change");
    }
}

async fn client(kubeconfig: &Path) -> kube::Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("the kit's kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    kube::Client::try_from(config.expect("the kit's kubeconfig")).expect("a client")
}

/// A service of this name, in the cluster of all tests.
pub(crate) fn owner(service: &str) -> Owner {
    Owner { cluster: "shop-7".parse().expect("a name"), service: service.parse().expect("a name") }
}

/// What a target shows of an item that nobody touched.
pub(crate) fn untouched(item: &Item) -> Live {
    Live::Present {
        uid: item.uid.clone().expect("it was applied"),
        fingerprint: item.fingerprint.expect("it was applied"),
    }
}

/// Demands that nobody touched any of these.
pub(crate) fn assert_untouched(items: &[Item], live: &[Result<Live, ObjectError>]) {
    assert_eq!(items.len(), live.len());
    for (item, live) in items.iter().zip(live) {
        assert_eq!(live.as_ref(), Ok(&untouched(item)), "{}", item.key);
    }
}

pub(crate) fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": value, "b": "1"}})
}

pub(crate) fn deployment(name: &str) -> Value {
    let pod = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": pod}})
}

pub(crate) fn job(name: &str) -> Value {
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a:1"}]}});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": pod}})
}

/// A definition of the kind `Till` with a schema of about this many bytes.
pub(crate) fn definition(group: &str, size: usize) -> Value {
    let note = "A sentence that explains a field to a person who reads the schema of this kind. ".repeat(12);
    let field = |n: usize| (format!("field{n}"), json!({"type": "string", "description": note}));
    let fields: serde_json::Map<String, Value> = (0..size / 1000).map(field).collect();
    let spec = json!({"type": "object", "properties": {
        "lanes": {"type": "integer"}, "more": {"type": "object", "properties": fields}}});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("tills.{group}"), "creationTimestamp": null},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"kind": "Till", "listKind": "TillList", "plural": "tills", "singular": "till"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

pub(crate) fn till(group: &str) -> Value {
    let api_version = format!("{group}/v1");
    json!({"apiVersion": api_version, "kind": "Till", "metadata": {"name": "one"}, "spec": {"lanes": 4}})
}
