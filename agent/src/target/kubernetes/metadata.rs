//! What is read of an object in the cluster: its metadata, and from that who it belongs to and
//! whether what we own in it is still as we applied it.

use std::collections::BTreeMap;

use farshore_shared::digest::{Digest, Hasher};
use farshore_shared::names::Name;
use serde::{Deserialize, Deserializer};

use crate::object::{CLUSTER_ANNOTATION, FIELD_MANAGER, Owner, SERVICE_LABEL};
use crate::target::{Live, Sighting, Stamp};
use crate::terms::{self, AGENT_LABEL, FieldMarks};

/// An object without its body, as `PartialObjectMetadata` shows it; other fields are ignored.
#[derive(Debug, Deserialize)]
pub(super) struct Partial {
    /// All that is read.
    pub(super) metadata: Metadata,
}

/// The part of `metadata` that decides something here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    /// The name.
    #[serde(default)]
    pub(super) name: String,
    /// The namespace, for objects that live in one.
    pub(super) namespace: Option<String>,
    /// Which life of the name this is.
    #[serde(default)]
    pub(super) uid: String,
    /// Which state of the object this is; a text, in which every API server writes a number.
    #[serde(default)]
    pub(super) resource_version: String,
    /// Counts the changes of what is desired, for kinds that have it.
    #[serde(default)]
    generation: u64,
    /// When the deletion of this object was asked for.
    pub(super) deletion_timestamp: Option<String>,
    /// Who has to act before a deletion ends.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub(super) finalizers: Vec<String>,
    #[serde(default, deserialize_with = "null_is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_is_empty")]
    annotations: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_is_empty")]
    managed_fields: Vec<ManagedFields>,
}

/// Who owns which fields. Kubernetes API reference, `ManagedFieldsEntry` v1.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagedFields {
    #[serde(default)]
    manager: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    time: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    fields_v1: FieldSet,
}

/// A set of fields as a trie. Kubernetes API reference, `FieldsV1`: every value is a map again.
#[derive(Debug, Default, Deserialize)]
pub(super) struct FieldSet(pub(super) BTreeMap<String, FieldSet>);

/// Reads null as nothing: a Go program writes an empty list or map as either.
pub(super) fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Metadata {
    /// Whether the object carries this owner's marks.
    pub(super) fn is_marked(&self, owner: &Owner) -> bool {
        self.labels.get(SERVICE_LABEL).map(String::as_str) == Some(owner.service.as_str())
            && self.annotations.get(CLUSTER_ANNOTATION).map(String::as_str) == Some(owner.cluster.as_str())
    }

    /// Whether the object carries the mark of this site.
    pub(super) fn is_from(&self, cluster: &Name) -> bool {
        self.annotations.get(CLUSTER_ANNOTATION).map(String::as_str) == Some(cluster.as_str())
    }

    /// A digest that changes whenever somebody changes, takes over or removes what we own, and only then.
    ///
    /// When somebody else gives one of our fields another value, the API server takes that field out
    /// of our entry, so the set of fields tells. A write under our own manager's name leaves the set
    /// as it is and moves the entry's time. Somebody who deletes the object changes all that we own in
    /// it, also while finalizers keep it. What others own is not looked at.
    pub(super) fn fingerprint(&self) -> Digest {
        let mut ours: Vec<&ManagedFields> =
            self.managed_fields.iter().filter(|entry| entry.is_ours()).collect();
        ours.sort_by(|a, b| a.api_version.cmp(&b.api_version));
        let mut hasher = Hasher::default();
        feed_number(&mut hasher, usize::from(self.deletion_timestamp.is_some()));
        for entry in ours {
            feed(&mut hasher, &entry.api_version);
            feed(&mut hasher, &entry.time);
            entry.fields_v1.feed(&mut hasher);
        }
        hasher.finish()
    }

    /// The fields that are ours, to be remembered.
    pub(super) fn fields(&self) -> FieldMarks {
        FieldMarks::of(self.own_paths().iter().map(String::as_str))
    }

    /// The fields that are ours, however many.
    pub(super) fn all_fields(&self) -> FieldMarks {
        FieldMarks::of_all(self.own_paths().iter().map(String::as_str))
    }

    fn own_paths(&self) -> Vec<String> {
        let ours = self.managed_fields.iter().filter(|entry| entry.is_ours());
        ours.flat_map(|entry| entry.fields_v1.paths()).collect()
    }

    /// Whether annotations say that the object stays when it leaves its service.
    pub(super) fn is_kept(&self) -> bool {
        terms::keeps_by(&self.annotations)
    }

    /// Whether its label says that the agent is made of it.
    pub(super) fn is_of_the_agent(&self) -> bool {
        self.labels.get(AGENT_LABEL).is_some_and(|said| said == "true")
    }

    /// Which state of the object this is.
    pub(super) fn stamp(&self) -> Stamp {
        Stamp { version: self.resource_version.parse().unwrap_or(0), generation: self.generation }
    }

    /// What the port calls this.
    pub(super) fn sighting(self) -> Sighting {
        let (fingerprint, stamp) = (self.fingerprint(), self.stamp());
        Sighting { uid: self.uid, fingerprint, stamp }
    }

    /// What the port calls this.
    pub(super) fn live(self) -> Live {
        let fingerprint = self.fingerprint();
        Live::Present { uid: self.uid, fingerprint }
    }
}

impl ManagedFields {
    fn is_ours(&self) -> bool {
        self.manager == FIELD_MANAGER && self.operation == "Apply" && self.subresource.is_empty()
    }
}

impl FieldSet {
    fn feed(&self, hasher: &mut Hasher) {
        feed_number(hasher, self.0.len());
        for (name, fields) in &self.0 {
            feed(hasher, name);
            fields.feed(hasher);
        }
    }
}

fn feed(hasher: &mut Hasher, text: &str) {
    feed_number(hasher, text.len());
    hasher.update(text.as_bytes());
}

fn feed_number(hasher: &mut Hasher, number: usize) {
    hasher.update(&u64::try_from(number).expect("a length in memory fits in 64 bits").to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "time": "2026-11-21T09:00:00Z",
               "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn fingerprint(entries: &[Value]) -> Digest {
        let metadata = json!({"name": "a", "uid": "1", "managedFields": entries});
        serde_json::from_value::<Metadata>(metadata).expect("metadata").fingerprint()
    }

    #[test]
    fn what_others_own_leaves_the_fingerprint_alone() {
        let ours = entry("farshore", "Apply", &json!({"f:data": {".": {}, "f:a": {}}}));
        let alone = fingerprint(std::slice::from_ref(&ours));
        let other = entry("kubectl-edit", "Update", &json!({"f:data": {"f:b": {}}}));
        let mut status = entry("farshore", "Apply", &json!({"f:status": {}}));
        status["subresource"] = "status".into();
        let update = entry("farshore", "Update", &json!({"f:data": {"f:c": {}}}));
        assert_eq!(alone, fingerprint(&[other, status, ours, update]));
    }

    #[test]
    fn a_field_taken_from_us_changes_the_fingerprint() {
        let before = fingerprint(&[entry("farshore", "Apply", &json!({"f:data": {"f:a": {}, "f:b": {}}}))]);
        let after = fingerprint(&[entry("farshore", "Apply", &json!({"f:data": {"f:a": {}}}))]);
        let nested = fingerprint(&[entry("farshore", "Apply", &json!({"f:data": {"f:a": {"f:b": {}}}}))]);
        assert!(before != after && before != nested && after != nested);
        assert!(fingerprint(&[]) != after);
    }

    #[test]
    fn a_deletion_that_a_finalizer_holds_changes_the_fingerprint() {
        let read = |body: Value| serde_json::from_value::<Metadata>(body).expect("metadata").fingerprint();
        let going = json!({"deletionTimestamp": "2026-11-21T09:00:00Z", "finalizers": ["a"]});
        assert!(read(json!({"finalizers": ["a"]})) != read(going));
    }

    #[test]
    fn a_write_under_our_own_name_changes_the_fingerprint() {
        let ours = entry("farshore", "Apply", &json!({"f:data": {"f:a": {}}}));
        let mut later = ours.clone();
        later["time"] = "2026-11-21T09:00:07Z".into();
        assert!(fingerprint(&[ours]) != fingerprint(&[later]));
    }

    #[test]
    fn marks_are_this_service_s_and_this_cluster_s() {
        let owner = |cluster: &str, service: &str| Owner {
            cluster: cluster.parse().expect("a name"),
            service: service.parse().expect("a name"),
        };
        let metadata: Metadata = serde_json::from_value(json!({
            "labels": {SERVICE_LABEL: "web"}, "annotations": {CLUSTER_ANNOTATION: "shop-7"}
        }))
        .expect("metadata");
        assert!(metadata.is_marked(&owner("shop-7", "web")));
        assert!(!metadata.is_marked(&owner("shop-8", "web")));
        assert!(!metadata.is_marked(&owner("shop-7", "db")));
        assert!(!Metadata::default().is_marked(&owner("shop-7", "web")));
    }
}
