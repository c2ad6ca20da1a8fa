//! What controllers say of workloads, where none run.

use serde_json::{Value, json};

use super::{KitError, Kubernetes};

impl Kubernetes {
    /// Says of a Deployment what its controller would once all its replicas are available.
    ///
    /// # Errors
    /// When there is no such Deployment.
    pub fn report_available(&self, namespace: &str, deployment: &str) -> Result<(), KitError> {
        let namespace = format!("--namespace={namespace}");
        let text = self.kubectl(&["get", "deployment", deployment, &namespace, "--output=json"])?;
        let object: Value = serde_json::from_str(&text).map_err(|error| KitError::Answer {
            what: "kubectl get".to_owned(),
            answer: error.to_string(),
        })?;
        let replicas = &object["spec"]["replicas"];
        let condition = |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason});
        let status = json!({"status": {"observedGeneration": object["metadata"]["generation"], "replicas": replicas,
            "updatedReplicas": replicas, "availableReplicas": replicas, "readyReplicas": replicas,
            "conditions": [condition("Available", "MinimumReplicasAvailable"),
                condition("Progressing", "NewReplicaSetAvailable")]}});
        let patch = status.to_string();
        self.kubectl(&[
            "patch",
            "deployment",
            deployment,
            &namespace,
            "--subresource=status",
            "--type=merge",
            "--patch",
            &patch,
        ])
        .map(|_patched| ())
    }
}
