//! In which order kinds are written that have their turn at the same time. Pure.

use crate::object::ObjectKey;

/// Lower is written first: what others live in, what others are made of, what others use, then the rest,
/// and last what can refuse others. Removals go the other way.
#[must_use]
pub fn rank(key: &ObjectKey) -> u8 {
    match (key.group.as_str(), key.kind.as_str()) {
        ("", "Namespace") => 0,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => 1,
        ("", "ServiceAccount" | "Secret" | "ConfigMap" | "PersistentVolume" | "PersistentVolumeClaim")
        | ("rbac.authorization.k8s.io" | "storage.k8s.io" | "scheduling.k8s.io", _) => 2,
        ("admissionregistration.k8s.io" | "apiregistration.k8s.io", _) => 4,
        _ => 3,
    }
}

/// Whether others cannot even be written without it, whatever wave they are in.
#[must_use]
pub fn is_needed_first(key: &ObjectKey) -> bool {
    rank(key) < 2
}
