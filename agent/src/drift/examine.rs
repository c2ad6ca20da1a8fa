//! Whether an object that looks changed is drift, and whose. Pure.
//!
//! Whoever gives one of our fields another value takes it over, unless it writes under our own name. So
//! a field that is still ours and has another value than the manifest says was changed at our own write,
//! by admission or by the API's way of writing a value: it is not fought, as long as fields that were
//! taken over explain why the object looks changed.

use serde_json::Value;

use super::compare::{Difference, Same, compare};
use super::fields::{Owners, segments};
use crate::object::FIELD_MANAGER;

/// What a look at a live object showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examined {
    /// Whether it is drift.
    pub found: Found,
    /// Who did it, as far as the object tells; empty when it does not.
    pub manager: String,
}

/// Whether an object is as it was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It is, but for what others may change.
    AsApplied,
    /// Every value is, but these fields (JSON pointers) are not ours any more: nobody would notice who
    /// changes them next.
    Disowned(Vec<String>),
    /// These fields have other values.
    Changed(Vec<String>),
    /// It is being deleted, which nobody can take back.
    Going,
}

/// Examines a live object whose metadata told of a change. `exceptions` are JSON pointers into the
/// manifest: what others may change.
#[must_use]
pub fn examine(manifest: &Value, live: &Value, exceptions: &[&str]) -> Examined {
    let owners = Owners::of(live);
    if live.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null()) {
        return Examined { found: Found::Going, manager: String::new() };
    }
    if is_file(live) {
        return Examined { found: file(manifest, live, exceptions), manager: String::new() };
    }
    let differences = compare(manifest, live, &owners.ours);
    let taken = differences.iter().any(|found| found.owner == Same::No);
    let counts = |found: &&Difference| !is_excepted(&found.pointer, exceptions);
    let pointers = |differs: &dyn Fn(&&Difference) -> bool| -> Vec<String> {
        let found = differences.iter().filter(counts).filter(differs);
        found.map(|found| found.pointer.clone()).collect()
    };
    let changed = if taken {
        pointers(&|found| found.value == Same::No && found.owner == Same::No)
    } else {
        pointers(&|found| found.value == Same::No)
    };
    let disowned = pointers(&|found| found.value == Same::Yes);
    let (found, fields) = match (changed.is_empty(), disowned.is_empty()) {
        (true, true) => (Found::AsApplied, vec![]),
        (true, false) => (Found::Disowned(disowned.clone()), disowned),
        (false, _) => (Found::Changed(changed.clone()), changed),
    };
    let manager = match (&found, taken) {
        (Found::AsApplied | Found::Going, _) => String::new(),
        (_, false) => FIELD_MANAGER.to_owned(),
        (_, true) => owners.culprit(manifest, &fields).map(|who| who.name.clone()).unwrap_or_default(),
    };
    Examined { found, manager }
}

/// No API server gave it a life of its own: nobody keeps account of its fields, and all that is in it counts.
fn is_file(live: &Value) -> bool {
    live.pointer("/metadata/uid").is_none()
}

fn file(manifest: &Value, live: &Value, exceptions: &[&str]) -> Found {
    let mut said = manifest.clone();
    leave_to_others(&mut said, live, exceptions);
    if said == *live {
        return Found::AsApplied;
    }
    let changed = compare(&said, live, &[]).into_iter().filter(|found| found.value == Same::No);
    Found::Changed(changed.map(|found| found.pointer).collect())
}

/// Takes out of a manifest what others may change and have changed. What nobody has changed stays in it:
/// to leave that out would remove it. Where nobody keeps account of owners, as in a file, what others have
/// written is taken over instead.
pub fn leave_to_others(manifest: &mut Value, live: &Value, exceptions: &[&str]) {
    if exceptions.is_empty() {
        return;
    }
    let theirs = compare(manifest, live, &Owners::of(live).ours);
    let theirs = theirs.iter().filter(|found| found.owner == Same::No);
    let theirs = theirs.filter(|found| is_excepted(&found.pointer, exceptions));
    // The last first: an item that goes moves those behind it.
    for found in theirs.collect::<Vec<_>>().into_iter().rev() {
        match (manifest.pointer_mut(&found.pointer), live.pointer(&found.pointer)) {
            (Some(said), Some(written)) if is_file(live) => said.clone_from(written),
            _ => remove(manifest, &found.pointer),
        }
    }
}

fn is_excepted(pointer: &str, exceptions: &[&str]) -> bool {
    exceptions.iter().any(|exception| {
        pointer.strip_prefix(exception).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

fn remove(document: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return };
    match document.pointer_mut(parent) {
        Some(Value::Object(map)) => {
            let name = segments(&format!("/{last}")).next().unwrap_or_default();
            map.remove(&name);
        }
        Some(Value::Array(items)) => {
            if let Some(index) = last.parse::<usize>().ok().filter(|index| *index < items.len()) {
                items.remove(index);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manifest() -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"farshore.dev/service": "web"}},
            "data": {"a": "1", "b": "1"}})
    }

    /// A live object in which each of these owns these fields of `data`.
    fn live(data: Value, owners: &[(&str, &str, &[&str])]) -> Value {
        let entry = |(manager, time, fields): &(&str, &str, &[&str])| {
            let fields: serde_json::Map<String, Value> =
                fields.iter().map(|field| (format!("f:{field}"), json!({}))).collect();
            let ours = *manager == "farshore";
            let mut set = json!({"f:data": fields});
            if ours {
                set["f:metadata"] = json!({"f:labels": {"f:farshore.dev/service": {}}});
            }
            json!({"manager": manager, "operation": if ours { "Apply" } else { "Update" },
                "time": time, "fieldsType": "FieldsV1", "fieldsV1": set})
        };
        let entries: Vec<Value> = owners.iter().map(entry).collect();
        let mut body = manifest();
        body["metadata"]["uid"] = "1".into();
        body["data"] = data;
        body["metadata"]["managedFields"] = entries.into();
        body
    }

    #[test]
    fn a_field_with_another_owner_and_another_value_is_drift_and_its_owner_is_named() {
        let body = live(json!({"a": "2", "b": "1"}), &[("farshore", "1", &["b"]), ("editor", "2", &["a"])]);
        let examined = examine(&manifest(), &body, &[]);
        assert_eq!(examined.found, Found::Changed(vec!["/data/a".into()]));
        assert_eq!(examined.manager, "editor");
        let examined = examine(&manifest(), &body, &["/data"]);
        assert_eq!(examined.found, Found::AsApplied, "others may change it");
    }

    #[test]
    fn a_field_with_another_owner_and_the_same_value_has_to_become_ours_again() {
        let body = live(json!({"a": "1", "b": "1"}), &[("editor", "2", &["a"])]);
        let Found::Disowned(fields) = examine(&manifest(), &body, &[]).found else {
            panic!("it is disowned")
        };
        assert_eq!(fields, ["/data/a", "/data/b", "/metadata/labels/farshore.dev~1service"]);
    }

    #[test]
    fn what_admission_changed_at_our_own_write_is_not_fought() {
        let body = live(
            json!({"a": "2", "b": "by admission"}),
            &[("farshore", "1", &["b"]), ("editor", "2", &["a"])],
        );
        assert_eq!(examine(&manifest(), &body, &[]).found, Found::Changed(vec!["/data/a".into()]));
        assert_eq!(examine(&manifest(), &body, &["/data/a"]).found, Found::AsApplied);
    }

    #[test]
    fn a_write_under_our_own_name_is_drift() {
        let body =
            live(json!({"a": "2", "b": "1"}), &[("farshore", "7", &["a", "b"]), ("editor", "2", &["c"])]);
        let examined = examine(&manifest(), &body, &[]);
        assert_eq!(
            (examined.found, examined.manager.as_str()),
            (Found::Changed(vec!["/data/a".into()]), "farshore")
        );
        let same = live(json!({"a": "1", "b": "1"}), &[("farshore", "7", &["a", "b"])]);
        assert_eq!(examine(&manifest(), &same, &[]).found, Found::AsApplied);
    }

    #[test]
    fn what_is_being_deleted_is_waited_for() {
        let mut body = live(json!({"a": "2"}), &[]);
        body["metadata"]["deletionTimestamp"] = "2026-11-21T09:00:00Z".into();
        assert_eq!(examine(&manifest(), &body, &[]).found, Found::Going);
    }

    #[test]
    fn what_others_may_change_is_left_to_them_once_they_have() {
        let body = live(json!({"a": "2", "b": "1"}), &[("farshore", "1", &["b"]), ("editor", "2", &["a"])]);
        let mut said = manifest();
        leave_to_others(&mut said, &body, &["/data"]);
        assert_eq!(said["data"], json!({"b": "1"}), "only what was changed");
        let mut said = manifest();
        leave_to_others(&mut said, &body, &["/data/b", "/spec", "/data/ab"]);
        assert_eq!(said, manifest());
    }

    #[test]
    fn in_a_file_what_others_may_change_is_taken_over() {
        let mut body = manifest();
        body["data"] = json!({"a": "2"});
        let mut said = manifest();
        leave_to_others(&mut said, &body, &["/data"]);
        assert_eq!(said["data"], json!({"a": "2"}));
        assert_eq!(examine(&manifest(), &body, &["/data"]).found, Found::AsApplied);
        assert_eq!(examine(&manifest(), &body, &["/data/b"]).found, Found::Changed(vec!["/data/a".into()]));
        body = manifest();
        assert_eq!(examine(&manifest(), &body, &[]).found, Found::AsApplied);
        body["data"]["theirs"] = "1".into();
        assert_eq!(
            examine(&manifest(), &body, &[]).found,
            Found::Changed(vec![]),
            "whoever reads the file reads all"
        );
    }

    #[test]
    fn items_of_lists_are_left_to_others_too() {
        let said =
            json!({"spec": {"list": [{"name": "a", "x": 1}, {"name": "b", "x": 1}, {"name": "c", "x": 1}]}});
        let mut body = said.clone();
        body["metadata"] = json!({"uid": "1", "managedFields": [{"manager": "farshore", "operation": "Apply", "fieldsV1":
            {"f:spec": {"f:list": {"k:{\"name\":\"b\"}": {".": {}, "f:name": {}, "f:x": {}}}}}}]});
        body["spec"]["list"] = json!([{"name": "b", "x": 1}]);
        let mut left = said;
        leave_to_others(&mut left, &body, &["/spec/list/0", "/spec/list/2"]);
        assert_eq!(left["spec"]["list"], json!([{"name": "b", "x": 1}]));
    }
}
