//! Two services that declare one object: the first has it, and the second is told so.

use std::collections::BTreeSet;

use farshore_shared::names::Name;

use crate::apply::Desired;
use crate::object::ObjectKey;
use crate::plan::Completeness;
use crate::target::{ObjectError, Retry};

/// Takes out of what a service shall be the objects that others have. Nothing is removed on the word
/// of what is left: it is not all of it.
///
/// `owner` says which other service has an object and goes on to declare it.
pub(super) fn refuse(
    desired: &mut Desired,
    service: &Name,
    owner: impl Fn(&ObjectKey) -> Option<Name>,
) -> Vec<ObjectError> {
    let mut refused = vec![];
    let mut taken = BTreeSet::new();
    for manifest in &desired.manifests {
        let Some(other) = owner(&manifest.key).filter(|other| other != service) else { continue };
        taken.insert(manifest.key.clone());
        refused.push(ObjectError {
            key: manifest.key.clone(),
            message: format!(
                "service {other} declares it as well, and has it ({}): remove it from one of them",
                manifest.origin
            ),
            retry: Retry::Pointless,
        });
    }
    if !taken.is_empty() {
        desired.manifests.retain(|manifest| !taken.contains(&manifest.key));
        desired.completeness = Completeness::Partial;
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Claimed;
    use crate::object::Manifest;
    use crate::plan::Removal;
    use farshore_shared::wire::ProtectedKinds;
    use serde_json::json;

    fn manifest(name: &str) -> Manifest {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        Manifest::read(body, format!("{name}.yaml")).expect("a manifest")
    }

    #[test]
    fn what_another_service_has_is_refused_and_the_rest_is_applied_without_a_removal() {
        let name = |text: &str| -> Name { text.parse().expect("a name") };
        let mut desired = Desired {
            manifests: vec![manifest("a"), manifest("b"), manifest("c")],
            completeness: Completeness::Complete,
            removal: Removal::Tombstone { kinds: ProtectedKinds::default() },
            revision: None,
            aside: BTreeSet::new(),
            once: BTreeSet::new(),
            claimed: Claimed::default(),
        };
        let owner = |key: &ObjectKey| match key.name.as_str() {
            "a" => Some(name("first")),
            "b" => Some(name("second")),
            _ => None,
        };
        let refused = refuse(&mut desired, &name("second"), owner);
        assert_eq!(refused.len(), 1);
        assert!(refused[0].message.contains("service first declares it as well"), "{refused:?}");
        assert_eq!(
            desired.manifests.iter().map(|manifest| manifest.key.name.as_str()).collect::<Vec<_>>(),
            ["b", "c"]
        );
        assert_eq!(desired.completeness, Completeness::Partial);
    }
}
