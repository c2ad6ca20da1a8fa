//! What shall happen when somebody else changes what a service owns, and what a site tells of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::UnixSeconds;

/// What a site does about drift: a change, by somebody else, of a field that a service owns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DriftPolicy {
    /// It is put back.
    #[default]
    Correct,
    /// It stays, and is told of.
    Alert,
    /// It stays, and nobody is told.
    Ignore,
}

/// What a service says about drift.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DriftRule {
    /// What is done about it.
    #[serde(default)]
    pub policy: DriftPolicy,
    /// Fields that others may change all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<DriftException>,
}

/// Fields of some objects that others may change: they are set when an object is made, and belong to
/// whoever changes them from then on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
// A declaration may not have a field that is not known; a reader of documents ignores it.
#[schemars(deny_unknown_fields)]
pub struct DriftException {
    /// Of which kind: `Deployment`, or `Deployment.apps` with its API group; `*` stands for any text.
    #[serde(default = "DriftException::any")]
    pub kind: String,
    /// Of which name; `*` stands for any text.
    #[serde(default = "DriftException::any")]
    pub name: String,
    /// The fields, each with all that is below it: JSON pointers (RFC 6901) into the manifest.
    pub pointers: Vec<String>,
}

impl DriftException {
    fn any() -> String {
        "*".to_owned()
    }

    /// Whether it speaks of this object.
    #[must_use]
    pub fn covers(&self, group: &str, kind: &str, name: &str) -> bool {
        let whole = format!("{kind}.{group}");
        (matches(&self.kind, kind) || matches(&self.kind, &whole)) && matches(&self.name, name)
    }
}

impl DriftRule {
    /// Whether it says nothing but what holds anyway.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The fields of this object that others may change.
    pub fn exceptions(&self, group: &str, kind: &str, name: &str) -> Vec<&str> {
        let covering = self.except.iter().filter(|exception| exception.covers(group, kind, name));
        covering.flat_map(|exception| exception.pointers.iter().map(String::as_str)).collect()
    }
}

/// Whether a text fits a pattern in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    // The first place is as good as any other: what follows may be longer, never shorter.
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// One object of a service that somebody else changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectDrift {
    /// `Kind.group namespace/name`.
    pub object: String,
    /// The field manager that did it, as Kubernetes names it; empty where the target does not tell, as of a deletion.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub manager: String,
    /// When the site found it.
    pub at: UnixSeconds,
    /// What was changed: JSON pointers into the manifest, the first few. None when the object was deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// What the site did about it.
    pub action: DriftAction,
}

/// What a site did about an object that somebody else changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DriftAction {
    /// It was put back.
    Corrected,
    /// It stays as it was found: the service's policy is to tell.
    Reported,
    /// Somebody changes it again as soon as it is put back: that is done ever more rarely.
    Damped,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text_and_everything_else_for_itself() {
        for (pattern, text) in [
            ("*", ""),
            ("*", "web"),
            ("web", "web"),
            ("web-*", "web-"),
            ("*-web", "a-web"),
            ("a*b*c", "abc"),
            ("a*b*c", "aXbbYbc"),
            ("**", "a"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("web", "webs"), ("web", "Web"), ("", "a"), ("a*a", "a"), ("a*b*c", "acb"), ("*-web", "web")]
        {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn an_exception_names_kinds_with_or_without_their_group() {
        let exception = |kind: &str| DriftException {
            kind: kind.to_owned(),
            name: "web-*".to_owned(),
            pointers: vec!["/spec/replicas".to_owned()],
        };
        let rule = DriftRule { except: vec![exception("Deployment")], ..DriftRule::default() };
        assert_eq!(rule.exceptions("apps", "Deployment", "web-1"), ["/spec/replicas"]);
        assert!(rule.exceptions("apps", "Deployment", "db").is_empty());
        assert!(rule.exceptions("apps", "DaemonSet", "web-1").is_empty());
        assert!(exception("Deployment.apps").covers("apps", "Deployment", "web-1"));
        assert!(exception("*.apps").covers("apps", "DaemonSet", "web-1"));
        assert!(!exception("Deployment.extensions").covers("apps", "Deployment", "web-1"));
    }

    #[test]
    fn what_is_not_said_holds_as_it_did_before() {
        let rule: DriftRule = serde_json::from_str("{}").expect("a rule");
        assert!(rule.is_default());
        let rule: DriftRule =
            serde_json::from_str(r#"{"policy":"alert","except":[{"pointers":["/data"]}],"new":1}"#)
                .expect("a rule");
        assert_eq!(rule.policy, DriftPolicy::Alert);
        assert_eq!(rule.exceptions("", "ConfigMap", "a"), ["/data"]);
    }
}
