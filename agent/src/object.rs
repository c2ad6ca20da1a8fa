//! One Kubernetes object as a document: its key, its body, and Farshore's marks on it.

use std::fmt;

use farshore_shared::digest::Digest;
use farshore_shared::names::Name;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::terms::Terms;
use crate::waves::annotations;

/// The label that says which service an object belongs to.
pub const SERVICE_LABEL: &str = "farshore.dev/service";
/// The annotation that says which cluster's agent put an object there.
pub const CLUSTER_ANNOTATION: &str = "farshore.dev/cluster";
/// The name under which fields are owned in Kubernetes.
pub const FIELD_MANAGER: &str = "farshore";

/// On whose behalf something is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// This site's cluster.
    pub cluster: Name,
    /// The service.
    pub service: Name,
}

/// What makes an object the same object: API group, kind, namespace and name.
///
/// The version of its API is no part of that: `apps/v1` and `apps/v1beta1` show one object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectKey {
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The namespace; none for an object of the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl ObjectKey {
    /// That of a namespace.
    #[must_use]
    pub fn namespace(name: &str) -> Self {
        Self { group: String::new(), kind: "Namespace".to_owned(), namespace: None, name: name.to_owned() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " {namespace}/{}", self.name),
            None => write!(f, " {}", self.name),
        }
    }
}

/// One object as it shall be.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// What it is.
    pub key: ObjectKey,
    /// The version of its API, without the group: `v1`.
    pub version: String,
    /// The whole document.
    pub body: Value,
    /// Where it came from, for a person: a file of the artifact and the number of the document in it.
    pub origin: String,
    /// How it is to be applied.
    pub terms: Terms,
}

/// Why a document is not a manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {why}")]
pub struct BadManifest {
    /// The file, and the number of the document in it.
    pub origin: String,
    /// What is wrong with it, and what would be right.
    pub why: String,
}

impl Manifest {
    /// Reads the parts of the key from a document.
    ///
    /// # Errors
    /// [`BadManifest`] for anything without `apiVersion`, `kind` and `metadata.name`.
    pub fn read(mut body: Value, origin: String) -> Result<Self, BadManifest> {
        let bad = |why: &str| BadManifest { origin: origin.clone(), why: why.to_owned() };
        if !body.is_object() {
            return Err(bad("a manifest is a mapping with apiVersion, kind and metadata"));
        }
        let text = |value: &Value, field: &str| {
            value.get(field).and_then(Value::as_str).filter(|text| !text.is_empty()).map(ToOwned::to_owned)
        };
        let api_version =
            text(&body, "apiVersion").ok_or_else(|| bad("apiVersion is missing (such as v1 or apps/v1)"))?;
        let kind = text(&body, "kind").ok_or_else(|| bad("kind is missing (such as Deployment)"))?;
        let metadata = body.get("metadata").ok_or_else(|| bad("metadata is missing"))?;
        let name = match (text(metadata, "name"), text(metadata, "generateName")) {
            (Some(name), _) => name,
            (None, Some(start)) if annotations::is_hook(&body) => named(&mut body, &start),
            (None, Some(_)) => {
                return Err(bad("metadata.generateName cannot be kept in place: give it metadata.name"));
            }
            (None, None) => return Err(bad("metadata.name is missing")),
        };
        let metadata = &body["metadata"];
        let namespace = text(metadata, "namespace");
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let key = ObjectKey { group: group.to_owned(), kind, namespace, name };
        Ok(Self { key, version: version.to_owned(), body, origin, terms: Terms::default() })
    }

    /// `group/version`, or `version` for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.key.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.key.group, self.version)
        }
    }

    /// Moves the object into a namespace, or out of all namespaces.
    pub fn set_namespace(&mut self, namespace: Option<&str>) {
        self.key.namespace = namespace.map(ToOwned::to_owned);
        let metadata = field(&mut self.body, "metadata");
        match namespace {
            Some(namespace) => metadata.insert("namespace".into(), namespace.into()),
            None => metadata.remove("namespace"),
        };
    }

    /// Puts our marks on it: nothing without them is ever deleted.
    pub fn mark(&mut self, owner: &Owner) {
        let metadata = field(&mut self.body, "metadata");
        let entry = |metadata: &mut Map<String, Value>, map: &str, key: &str, value: &Name| {
            let map = metadata.entry(map).or_insert_with(|| Value::Object(Map::new()));
            if !map.is_object() {
                *map = Value::Object(Map::new());
            }
            if let Value::Object(map) = map {
                map.insert(key.to_owned(), value.as_str().into());
            }
        };
        entry(metadata, "labels", SERVICE_LABEL, &owner.service);
        entry(metadata, "annotations", CLUSTER_ANNOTATION, &owner.cluster);
    }

    /// Puts an annotation on it.
    pub fn annotate(&mut self, key: &str, value: &str) {
        let metadata = field(&mut self.body, "metadata");
        let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
        if !annotations.is_object() {
            *annotations = Value::Object(Map::new());
        }
        annotations[key] = value.into();
    }

    /// The digest of the whole document: equal digests need no apply.
    ///
    /// # Panics
    /// Never: JSON values have string keys only.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&serde_json::to_vec(&self.body).expect("a JSON value has string keys only"))
    }
}

/// Gives a hook a name that begins as it says. It is the same as long as the hook is, so that what is left of
/// an earlier run is found.
fn named(body: &mut Value, start: &str) -> String {
    let digest = Digest::of(&serde_json::to_vec(body).expect("a JSON value has string keys only"));
    let name = format!("{start}{}", digest.short());
    let metadata = field(body, "metadata");
    metadata.remove("generateName");
    metadata.insert("name".to_owned(), name.as_str().into());
    name
}

/// Whether an object carries this owner's marks.
#[must_use]
pub fn is_marked(body: &Value, owner: &Owner) -> bool {
    let mark = |map: &str, key: &str| body.get("metadata")?.get(map)?.get(key)?.as_str();
    mark("labels", SERVICE_LABEL) == Some(owner.service.as_str())
        && mark("annotations", CLUSTER_ANNOTATION) == Some(owner.cluster.as_str())
}

fn field<'a>(value: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !value.get(name).is_some_and(Value::is_object) {
        value[name] = Value::Object(Map::new());
    }
    value[name].as_object_mut().expect("it was made an object above")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_manifest_needs_version_kind_and_name() {
        let read = |body| Manifest::read(body, "a.yaml".into());
        let good = read(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}}))
            .expect("a whole manifest");
        assert_eq!(good.key.to_string(), "Deployment.apps shop/web");
        assert_eq!(good.api_version(), "apps/v1");
        for (body, why) in [
            (json!([]), "mapping"),
            (json!({"kind": "A", "metadata": {"name": "a"}}), "apiVersion"),
            (json!({"apiVersion": "v1", "metadata": {"name": "a"}}), "kind"),
            (json!({"apiVersion": "v1", "kind": "A"}), "metadata"),
            (json!({"apiVersion": "v1", "kind": "A", "metadata": {"generateName": "a-"}}), "generateName"),
        ] {
            let refused = read(body).expect_err("not a manifest").to_string();
            assert!(refused.starts_with("a.yaml: ") && refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn a_hook_that_only_says_how_its_name_begins_has_one_that_stays() {
        let read = |image: &str, hook: &str| {
            let body = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"image": image},
                "metadata": {"generateName": "migrate-", "annotations": {hook: "PreSync"}}});
            Manifest::read(body, "a.yaml".into())
        };
        let hook = |image: &str| read(image, "argocd.argoproj.io/hook").expect("a hook");
        let name = hook("a:1").key.name;
        assert!(name.starts_with("migrate-") && name.len() == "migrate-".len() + 8, "{name}");
        assert_eq!(name, hook("a:1").key.name);
        assert_ne!(name, hook("a:2").key.name);
        assert_eq!(
            hook("a:1").body["metadata"],
            json!({"name": name, "annotations": {"argocd.argoproj.io/hook": "PreSync"}})
        );
        assert!(read("a:1", "some/annotation").is_err());
    }

    #[test]
    fn marks_are_put_beside_the_user_s_own_labels() {
        let owner =
            Owner { cluster: "shop-7".parse().expect("a name"), service: "web".parse().expect("a name") };
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"x": "y"}, "annotations": null}});
        let mut manifest = Manifest::read(body, "a".into()).expect("a manifest");
        assert!(!is_marked(&manifest.body, &owner));
        manifest.mark(&owner);
        assert!(is_marked(&manifest.body, &owner));
        assert_eq!(manifest.body["metadata"]["labels"]["x"], "y");
    }
}
