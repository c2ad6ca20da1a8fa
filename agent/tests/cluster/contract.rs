//! A place in a cluster, as the contract of all targets wants it: with somebody else in it.

use farshore_agent::object::{CLUSTER_ANNOTATION, Manifest, ObjectKey, SERVICE_LABEL};
use farshore_agent::target::kubernetes::Kubernetes;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use super::Place;
use crate::target_contract::World;

/// The contract speaks of `ConfigMap`s only.
impl World for Place {
    type Target = Kubernetes;

    fn target(&self) -> &Kubernetes {
        &self.target
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The API refuses data that is no text.
    async fn spoiled(&self, name: &str) -> Manifest {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"value": {"no": "text"}},
            "metadata": {"name": name, "namespace": self.namespace}});
        Manifest::read(body, "contract".into()).expect("a manifest")
    }

    async fn meddle(&self, key: &ObjectKey, pointer: &str, value: Value) {
        let change = pointer
            .rsplit('/')
            .filter(|part| !part.is_empty())
            .fold(value, |inner, part| json!({ part: inner }));
        self.edit(&key.name, change).await;
    }

    async fn unmark(&self, key: &ObjectKey) {
        let metadata = json!({"labels": {SERVICE_LABEL: null}, "annotations": {CLUSTER_ANNOTATION: null}});
        self.edit(&key.name, json!({"metadata": metadata})).await;
    }

    async fn remove(&self, key: &ObjectKey) {
        self.config_maps().delete(&key.name, &DeleteParams::default()).await.expect("it is there");
    }

    async fn plant_foreign(&self, manifest: &Manifest) {
        let object = serde_json::from_value(manifest.body.clone()).expect("an object");
        self.config_maps().create(&PostParams::default(), &object).await.expect("nothing is there");
    }

    async fn read(&self, key: &ObjectKey) -> Option<Value> {
        let object = self.config_maps().get_opt(&key.name).await.expect("the API answers")?;
        Some(serde_json::to_value(object).expect("an object is JSON"))
    }
}
