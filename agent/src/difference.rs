//! What differs between an object as it is and as it would be, for a person to read. Pure.
//!
//! Bounded in lines and in characters of a value. Values of a Secret are never shown. What the API server
//! keeps of its own in an object is no difference.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use crate::object::ObjectKey;
use crate::target::Preview;

/// The most lines of one object.
pub const LINES_LIMIT: usize = 60;
/// The most characters of one value.
const VALUE_LIMIT: usize = 120;
/// The deepest field that is looked into.
const DEPTH_LIMIT: usize = 100;

/// One field that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The field, as `.spec.replicas`.
    pub path: String,
    /// What it is; none where it is not there.
    pub before: Option<String>,
    /// What it would be; none where it would go.
    pub after: Option<String>,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match (&self.before, &self.after) {
            (None, Some(after)) => write!(f, "+ {path}: {after}"),
            (Some(before), None) => write!(f, "- {path}: {before}"),
            (Some(before), Some(after)) => write!(f, "~ {path}: {before} -> {after}"),
            (None, None) => write!(f, "  {path}"),
        }
    }
}

/// All fields that differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Difference {
    /// The first of them.
    pub lines: Vec<Line>,
    /// How many more there are.
    pub more: usize,
}

impl Difference {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(f, "  {line}")?;
        }
        if self.more > 0 {
            writeln!(f, "  ... and {} more", self.more)?;
        }
        Ok(())
    }
}

impl Preview {
    /// What would become of an object.
    #[must_use]
    pub fn of(live: Option<&Value>, next: &Value, key: &ObjectKey) -> Self {
        let difference = difference(live, next, key);
        match live {
            None => Self::New(difference),
            Some(_) if difference.is_empty() => Self::Same,
            Some(_) => Self::Changed(difference),
        }
    }
}

/// Compares an object, if it is there, with what it would be.
#[must_use]
pub fn difference(live: Option<&Value>, next: &Value, key: &ObjectKey) -> Difference {
    let is_secret = key.group.is_empty() && key.kind == "Secret";
    let mut walk = Walk { is_secret, found: Difference::default() };
    walk.compare(&mut String::new(), live.unwrap_or(&Value::Null), next, 0);
    walk.found
}

struct Walk {
    is_secret: bool,
    found: Difference,
}

/// What the API server writes itself.
const ITS_OWN: [&str; 9] = [
    ".metadata.managedFields",
    ".metadata.resourceVersion",
    ".metadata.generation",
    ".metadata.uid",
    ".metadata.creationTimestamp",
    ".metadata.selfLink",
    ".apiVersion",
    ".kind",
    ".status",
];

impl Walk {
    fn compare(&mut self, path: &mut String, before: &Value, after: &Value, depth: usize) {
        if before == after || ITS_OWN.contains(&path.as_str()) {
            return;
        }
        match (before, after) {
            _ if depth > DEPTH_LIMIT => self.differ(path, before, after),
            (Value::Object(old), Value::Object(new)) => {
                let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
                for key in keys {
                    let inside = |map: &serde_json::Map<String, Value>| map.get(key).cloned();
                    let (old, new) = (inside(old).unwrap_or_default(), inside(new).unwrap_or_default());
                    self.below(path, &field(key), &old, &new, depth);
                }
            }
            (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
                for (n, (old, new)) in old.iter().zip(new).enumerate() {
                    self.below(path, &format!("[{n}]"), old, new, depth);
                }
            }
            // What comes or goes as a whole is told field by field.
            (Value::Null, Value::Object(new)) if !new.is_empty() => {
                for (key, new) in new {
                    self.below(path, &field(key), &Value::Null, new, depth);
                }
            }
            (Value::Object(old), Value::Null) if !old.is_empty() => {
                for (key, old) in old {
                    self.below(path, &field(key), old, &Value::Null, depth);
                }
            }
            _ => self.differ(path, before, after),
        }
    }

    fn below(&mut self, path: &mut String, step: &str, before: &Value, after: &Value, depth: usize) {
        let length = path.len();
        path.push_str(step);
        self.compare(path, before, after, depth + 1);
        path.truncate(length);
    }

    fn differ(&mut self, path: &str, before: &Value, after: &Value) {
        if self.found.lines.len() == LINES_LIMIT {
            self.found.more += 1;
            return;
        }
        // kubectl keeps the whole object in an annotation.
        let secret = [".data", ".stringData", ".metadata.annotations"];
        let hidden = self.is_secret && secret.iter().any(|map| path.starts_with(map));
        let shown = |value: &Value| match value {
            Value::Null => None,
            _ if hidden => Some("(hidden)".to_owned()),
            value => Some(short(value)),
        };
        let line = Line { path: path.to_owned(), before: shown(before), after: shown(after) };
        self.found.lines.push(line);
    }
}

/// A step into a mapping; a key that is no plain word is quoted.
fn field(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/' | '.' | '$');
    if !key.is_empty() && key.chars().all(plain) { format!(".{key}") } else { format!(".{key:?}") }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(VALUE_LIMIT) {
        None => text,
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], text.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(kind: &str) -> ObjectKey {
        ObjectKey { group: String::new(), kind: kind.into(), namespace: None, name: "a".into() }
    }

    fn lines(kind: &str, before: &Value, after: &Value) -> Vec<String> {
        difference(Some(before), after, &key(kind)).lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_changes_comes_and_goes_is_told_by_field() {
        let before = json!({"data": {"a": "1", "b": "1", "c": {"d": 1}}, "list": [1, 2]});
        let after = json!({"data": {"a": "2", "c": {"d": 1}, "e f": true}, "list": [1, 3]});
        let told =
            ["~ .data.a: \"1\" -> \"2\"", "- .data.b: \"1\"", "+ .data.\"e f\": true", "~ .list[1]: 2 -> 3"];
        assert_eq!(lines("ConfigMap", &before, &after), told);
    }

    #[test]
    fn what_the_api_server_keeps_is_no_difference() {
        let before = json!({"metadata": {"name": "a", "uid": "1", "managedFields": [1]}, "status": {"x": 1}});
        let after = json!({"metadata": {"name": "a", "managedFields": []}});
        assert_eq!(Preview::of(Some(&before), &after, &key("ConfigMap")), Preview::Same);
    }

    #[test]
    fn no_value_of_a_secret_is_shown() {
        let before = json!({"data": {"a": "b2xk", "gone": "c2VjcmV0"}, "type": "Opaque",
            "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "c2VjcmV0"}}});
        let after = json!({"data": {"a": "bmV3"}, "stringData": {"b": "plain"}, "type": "Other"});
        let told = lines("Secret", &before, &after);
        let all = told.join("\n");
        for value in ["b2xk", "bmV3", "c2VjcmV0", "plain"] {
            assert!(!all.contains(value), "{all}");
        }
        assert!(told.contains(&"~ .data.a: (hidden) -> (hidden)".to_owned()), "{all}");
        assert!(told.contains(&"~ .type: \"Opaque\" -> \"Other\"".to_owned()), "{all}");
    }

    #[test]
    fn a_difference_is_bounded_in_lines_and_in_each_of_them() {
        let after: serde_json::Map<String, Value> =
            (0..1000).map(|n| (format!("k{n}"), "ü".repeat(100_000).into())).collect();
        let after = json!({ "data": after });
        let Preview::New(found) = Preview::of(None, &after, &key("ConfigMap")) else { panic!("it is new") };
        assert_eq!((found.lines.len(), found.more), (LINES_LIMIT, 1000 - LINES_LIMIT));
        assert!(found.to_string().len() < 100_000);
    }
}
