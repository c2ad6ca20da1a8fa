//! Which kinds belong to the whole cluster, for a target that has no API server to ask.

use std::collections::HashMap;

use serde_json::Value;

use crate::object::{Manifest, ObjectKey};

/// The kinds of Kubernetes itself that have no namespace: group and kind.
const CLUSTER_KINDS: [(&str, &str); 34] = [
    ("", "ComponentStatus"),
    ("", "Namespace"),
    ("", "Node"),
    ("", "PersistentVolume"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "APIService"),
    ("certificates.k8s.io", "CertificateSigningRequest"),
    ("certificates.k8s.io", "ClusterTrustBundle"),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
    ("internal.apiserver.k8s.io", "StorageVersion"),
    ("networking.k8s.io", "IPAddress"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "ServiceCIDR"),
    ("node.k8s.io", "RuntimeClass"),
    ("policy", "PodSecurityPolicy"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("resource.k8s.io", "DeviceClass"),
    ("resource.k8s.io", "DeviceTaintRule"),
    ("resource.k8s.io", "ResourceSlice"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "CSINode"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "VolumeAttachment"),
    ("storage.k8s.io", "VolumeAttributesClass"),
    ("storagemigration.k8s.io", "StorageVersionMigration"),
];

/// What is known of the scopes of kinds: Kubernetes' own, and those that the manifests define.
pub(super) struct Scopes {
    /// Group and kind; whether it is of the whole cluster.
    defined: HashMap<(String, String), bool>,
}

impl Scopes {
    /// Learns the kinds that these manifests define.
    pub(super) fn of(manifests: &[Manifest]) -> Self {
        let definitions = manifests.iter().filter(|manifest| {
            (manifest.key.group.as_str(), manifest.key.kind.as_str())
                == ("apiextensions.k8s.io", "CustomResourceDefinition")
        });
        let defined = definitions.filter_map(|manifest| {
            let text = |pointer| manifest.body.pointer(pointer).and_then(Value::as_str);
            let key = (text("/spec/group")?.to_owned(), text("/spec/names/kind")?.to_owned());
            Some((key, text("/spec/scope")? == "Cluster"))
        });
        Self { defined: defined.collect() }
    }

    /// Whether a kind is of the whole cluster. One that nobody defines lives in a namespace.
    pub(super) fn is_cluster(&self, key: &ObjectKey) -> bool {
        let own = CLUSTER_KINDS.contains(&(key.group.as_str(), key.kind.as_str()));
        own || self.defined.get(&(key.group.clone(), key.kind.clone())).copied().unwrap_or(false)
    }
}
