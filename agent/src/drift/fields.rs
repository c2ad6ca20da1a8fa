//! Who owns which fields of an object, as Kubernetes tracks it. Pure.
//!
//! Kubernetes documentation, "Server-Side Apply", field management; API reference, `ManagedFieldsEntry`
//! and `FieldsV1` v1.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::object::FIELD_MANAGER;

/// A set of fields as a trie: every value is a map again. Keys are `f:NAME` for a field, `k:{...}` for
/// the item of a list with these values, `v:VALUE` for an item of a set, `i:INDEX` for the item at a
/// place, and `.` for the thing itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct FieldSet(BTreeMap<String, FieldSet>);

impl FieldSet {
    /// What is owned below a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Self> {
        self.0.get(&format!("f:{name}"))
    }

    /// Whether it ends here: what is below belongs to it as a whole.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.0.keys().all(|key| key == ".")
    }

    /// Whether it speaks of single items of a list.
    #[must_use]
    pub fn has_items(&self) -> bool {
        self.0.keys().any(|key| !key.starts_with("f:") && key != ".")
    }

    /// What is owned of an item of a list, which stands at this index in the manifest: the values that
    /// tell it apart, and the fields below it.
    #[must_use]
    pub fn item(&self, index: usize, item: &Value) -> Option<(Identity, &Self)> {
        self.0.iter().find_map(|(key, fields)| {
            let identity = match key.split_once(':')? {
                ("k", text) => Identity::Keys(serde_json::from_str(text).ok()?),
                ("v", text) => Identity::Value(serde_json::from_str(text).ok()?),
                ("i", text) => Identity::Index(text.parse().ok()?),
                _ => return None,
            };
            identity.may_be(index, item).then_some((identity, fields))
        })
    }

    /// The names of the fields that tell the items of a list apart, where any item says so.
    #[must_use]
    pub fn keys(&self) -> Option<Vec<String>> {
        let text = self.0.keys().find_map(|key| key.strip_prefix("k:"))?;
        let keys: BTreeMap<String, Value> = serde_json::from_str(text).ok()?;
        Some(keys.into_keys().collect())
    }

    /// Whether this set has the field at a JSON pointer into this document, or something that it is a
    /// part of.
    #[must_use]
    pub fn has(&self, document: &Value, pointer: &str) -> bool {
        let mut place = (self, document);
        for segment in segments(pointer) {
            let (fields, value) = place;
            if fields.is_whole() {
                return true;
            }
            let next = match value {
                Value::Array(items) => {
                    let index = segment.parse::<usize>().ok().filter(|index| *index < items.len());
                    index.and_then(|index| Some((fields.item(index, &items[index])?.1, &items[index])))
                }
                value => {
                    fields.field(&segment).map(|fields| (fields, value.get(&segment).unwrap_or(&Value::Null)))
                }
            };
            let Some(next) = next else { return false };
            place = next;
        }
        true
    }
}

/// What tells the item of a list apart from others.
#[derive(Debug, Clone, PartialEq)]
pub enum Identity {
    /// The values of some of its fields.
    Keys(BTreeMap<String, Value>),
    /// Its value.
    Value(Value),
    /// Its place.
    Index(usize),
}

impl Identity {
    /// Whether an item of a manifest is that one. What it leaves out may have been filled in.
    fn may_be(&self, index: usize, item: &Value) -> bool {
        match self {
            Self::Keys(keys) => keys.iter().all(|(key, value)| item.get(key).is_none_or(|has| has == value)),
            Self::Value(value) => value == item,
            Self::Index(place) => *place == index,
        }
    }

    /// That item in a live list.
    #[must_use]
    pub fn find<'a>(&self, live: &'a [Value]) -> Option<&'a Value> {
        match self {
            Self::Keys(keys) => {
                live.iter().find(|item| keys.iter().all(|(key, value)| item.get(key) == Some(value)))
            }
            Self::Value(value) => live.iter().find(|item| *item == value),
            Self::Index(place) => live.get(*place),
        }
    }
}

/// The parts of a JSON pointer, RFC 6901 section 4.
pub fn segments(pointer: &str) -> impl Iterator<Item = String> + '_ {
    pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~"))
}

/// A part of a JSON pointer as it is written, RFC 6901 section 3.
#[must_use]
pub fn escaped(part: &str) -> String {
    part.replace('~', "~0").replace('/', "~1")
}

/// Somebody who wrote fields of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manager {
    /// The name under which it did.
    pub name: String,
    /// When, as the API writes it: later texts are later.
    pub time: String,
    /// Which fields it owns.
    pub fields: FieldSet,
}

/// Who owns the fields of one object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owners {
    /// What we own, per version of the API; nothing when our entry is gone.
    pub ours: Vec<FieldSet>,
    /// Everybody else, and whatever was written under our name by other means than apply.
    pub others: Vec<Manager>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(default)]
    manager: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    time: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    fields_v1: FieldSet,
}

impl Owners {
    /// Reads `metadata.managedFields` of a whole object. Entries that cannot be read own nothing.
    #[must_use]
    pub fn of(body: &Value) -> Self {
        let mut owners = Self::default();
        let entries = body.pointer("/metadata/managedFields").and_then(Value::as_array);
        for entry in entries.into_iter().flatten() {
            let Ok(Entry { manager, operation, time, subresource, fields_v1 }) = Entry::deserialize(entry)
            else {
                continue;
            };
            if manager == FIELD_MANAGER && operation == "Apply" && subresource.is_empty() {
                owners.ours.push(fields_v1);
            } else {
                owners.others.push(Manager { name: manager, time, fields: fields_v1 });
            }
        }
        owners
    }

    /// Whoever owns one of these fields of the manifest, the latest of them; else whoever wrote last,
    /// since what is removed belongs to nobody.
    #[must_use]
    pub fn culprit(&self, manifest: &Value, pointers: &[String]) -> Option<&Manager> {
        let owns = |manager: &&Manager| pointers.iter().any(|pointer| manager.fields.has(manifest, pointer));
        let latest = |a: &&Manager, b: &&Manager| a.time.cmp(&b.time);
        self.others.iter().filter(owns).max_by(latest).or_else(|| self.others.iter().max_by(latest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(value: Value) -> FieldSet {
        serde_json::from_value(value).expect("a set of fields")
    }

    #[test]
    fn a_pointer_is_followed_through_lists_by_what_tells_their_items_apart() {
        let fields = set(json!({"f:spec": {
            "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:name": {}}},
            "f:list": {}, "f:names": {"v:\"b\"": {}}}}));
        let manifest = json!({"spec": {"ports": [{"port": 81, "name": "x"}, {"port": 80, "name": "web"}],
            "list": [{"a": 1}], "names": ["a", "b"]}});
        for has in
            ["/spec/ports/1/name", "/spec/ports/1/port", "/spec/list/0/a", "/spec/list", "/spec/names/1"]
        {
            assert!(fields.has(&manifest, has), "{has}");
        }
        for lacks in ["/spec/ports/0/name", "/spec/ports/1/x", "/spec/names/0", "/spec/other", "/status"] {
            assert!(!fields.has(&manifest, lacks), "{lacks}");
        }
    }

    #[test]
    fn pointers_are_escaped_and_read_back() {
        let pointer = format!("/metadata/labels/{}", escaped("farshore.dev/a~b"));
        assert_eq!(pointer, "/metadata/labels/farshore.dev~1a~0b");
        assert_eq!(segments(&pointer).last().as_deref(), Some("farshore.dev/a~b"));
    }

    #[test]
    fn the_latest_owner_of_a_field_is_named_and_else_who_wrote_last() {
        let entry = |manager: &str, operation: &str, time: &str, fields: Value| json!({"manager": manager, "operation": operation, "time": time, "fieldsV1": fields});
        let body = json!({"metadata": {"managedFields": [
            entry("farshore", "Apply", "2026-11-21T09:00:00Z", json!({"f:data": {"f:a": {}}})),
            entry("editor", "Update", "2026-11-21T09:00:05Z", json!({"f:data": {"f:b": {}}})),
            entry("controller", "Update", "2026-11-21T09:00:09Z", json!({"f:status": {}})),
            7]}});
        let owners = Owners::of(&body);
        assert_eq!(owners.ours, [set(json!({"f:data": {"f:a": {}}}))]);
        let manifest = json!({"data": {"a": "1", "b": "1"}});
        let name = |pointer: &str| {
            let culprit = owners.culprit(&manifest, &[pointer.to_owned()]);
            culprit.map(|manager| manager.name.clone())
        };
        assert_eq!(name("/data/b").as_deref(), Some("editor"));
        assert_eq!(name("/data/c").as_deref(), Some("controller"));
        assert_eq!(Owners::of(&json!({})).culprit(&manifest, &[]), None);
    }
}
