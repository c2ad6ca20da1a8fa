//! Field sets as the API server keeps them (`FieldsV1`), and paths as it writes them in its messages.

use std::fmt::Write as _;

use serde_json::Value;

use super::metadata::FieldSet;

impl FieldSet {
    /// The path of every member, as in `.spec.containers[name="a"].image`.
    ///
    /// Structured merge diff v6, `fieldpath.Path.String`; Kubernetes API reference, `FieldsV1`.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.walk(&mut String::new(), &mut paths);
        paths
    }

    fn walk(&self, path: &mut String, paths: &mut Vec<String>) {
        for (name, below) in &self.0 {
            let length = path.len();
            if name != "." {
                path.push_str(&step(name));
                below.walk(path, paths);
            }
            // A member without members below it is a leaf; one with them says so by a dot.
            if name == "." || below.0.is_empty() {
                paths.push(path.clone());
            }
            path.truncate(length);
        }
    }
}

/// One step of a path: into a field, to the item of a list with a key or a value, or by a number.
fn step(name: &str) -> String {
    match name.split_once(':') {
        Some(("f", field)) => format!(".{field}"),
        Some(("k", key)) => match serde_json::from_str(key) {
            Ok(Value::Object(key)) => {
                let parts: Vec<String> = key.iter().map(|(name, value)| format!("{name}={value}")).collect();
                format!("[{}]", parts.join(","))
            }
            Ok(_) | Err(_) => format!("[{key}]"),
        },
        Some(("v", value)) => format!("[={value}]"),
        Some(("i", index)) => format!("[{index}]"),
        Some(_) | None => name.to_owned(),
    }
}

/// How many members a field set has that is kept as JSON.
pub(super) fn count(set: &Value) -> usize {
    let Some(members) = set.as_object() else { return 0 };
    members
        .iter()
        .map(|(name, below)| match below.as_object() {
            _ if name == "." => 1,
            Some(inside) if !inside.is_empty() => count(below),
            Some(_) | None => 1,
        })
        .sum()
}

/// The union of two field sets that are kept as JSON.
pub(super) fn unite(into: &mut Value, from: &Value) {
    let (Some(into), Some(from)) = (into.as_object_mut(), from.as_object()) else { return };
    for (name, below) in from {
        match into.get_mut(name) {
            Some(known) => unite_leaves(known, below),
            None => drop(into.insert(name.clone(), below.clone())),
        }
    }
}

/// A leaf that meets a branch stays a member of it: a dot says so.
fn unite_leaves(known: &mut Value, below: &Value) {
    let is_leaf = |set: &Value| set.as_object().is_none_or(serde_json::Map::is_empty);
    let (was_leaf, meets_leaf) = (is_leaf(known), is_leaf(below));
    unite(known, below);
    if was_leaf != meets_leaf
        && let Some(members) = known.as_object_mut()
    {
        members.insert(".".to_owned(), Value::Object(serde_json::Map::new()));
    }
}

/// Some paths in one text: the first few, and how many more.
pub(super) fn some(paths: &[&str], most: usize) -> String {
    let mut text = paths.iter().take(most).copied().collect::<Vec<_>>().join(", ");
    if paths.len() > most {
        write!(text, " and {} more", paths.len() - most).expect("a string takes whatever is written");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_are_those_of_the_api_s_own_messages() {
        let set: FieldSet = serde_json::from_value(json!({
            "f:data": {".": {}, "f:a": {}},
            "f:metadata": {"f:annotations": {"f:farshore.dev/cluster": {}}, "f:finalizers": {"v:\"x/y\"": {}}},
            "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}},
                       "f:list": {"i:3": {}}}
        }))
        .expect("a field set");
        let mut paths = set.paths();
        paths.sort_unstable();
        let all = [
            ".data",
            ".data.a",
            ".metadata.annotations.farshore.dev/cluster",
            ".metadata.finalizers[=\"x/y\"]",
            ".spec.list[3]",
            ".spec.ports[port=80,protocol=\"TCP\"]",
            ".spec.ports[port=80,protocol=\"TCP\"].name",
        ];
        assert_eq!(paths, all);
    }

    #[test]
    fn a_union_has_the_members_of_both() {
        let mut set = json!({"f:data": {"f:a": {}}, "f:spec": {}});
        let other = json!({"f:data": {".": {}, "f:b": {}}, "f:spec": {"f:x": {}}, "f:type": {}});
        unite(&mut set, &other);
        let all =
            json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}, "f:spec": {".": {}, "f:x": {}}, "f:type": {}});
        assert_eq!(set, all);
        assert_eq!(count(&set), 6);
        let mut again = set.clone();
        unite(&mut again, &other);
        assert_eq!(again, all);
    }

    #[test]
    fn many_paths_are_told_by_the_first_of_them() {
        assert_eq!(some(&[".a", ".b", ".c"], 2), ".a, .b and 1 more");
    }
}
