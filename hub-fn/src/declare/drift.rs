//! `spec.drift` of a service: what its sites do when somebody else changes what it owns.

use farshore_shared::wire::{DriftException, DriftPolicy, DriftRule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields::{Fields, Scribe, items, text};
use super::mistake::known_words;
use super::yaml::{Kind, Node};

const POLICIES: [&str; 3] = ["correct", "alert", "ignore"];
const POINTER: &str = "a JSON pointer (RFC 6901), such as /spec/replicas";
/// The most exceptions of one service.
const EXCEPTIONS_LIMIT: usize = 64;
/// The most pointers of one exception.
const POINTERS_LIMIT: usize = 64;
/// The most bytes of a pointer, or of a pattern.
const TEXT_LIMIT: usize = 512;

/// What a service says about drift: written as the name of a policy, or as a mapping.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "DriftForm", into = "DriftForm")]
pub struct DriftSpec(pub DriftRule);

/// How a [`DriftSpec`] is written.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum DriftForm {
    /// A policy without exceptions.
    Bare(DriftPolicy),
    /// A policy with its exceptions.
    Options(DriftOptions),
}

/// A policy with its exceptions.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DriftOptions {
    /// What is done about it; `correct` where absent.
    #[serde(default)]
    policy: DriftPolicy,
    /// Fields that others may change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    except: Vec<DriftException>,
}

impl From<DriftForm> for DriftSpec {
    fn from(form: DriftForm) -> Self {
        Self(match form {
            DriftForm::Bare(policy) => DriftRule { policy, except: vec![] },
            DriftForm::Options(DriftOptions { policy, except }) => DriftRule { policy, except },
        })
    }
}

impl From<DriftSpec> for DriftForm {
    fn from(DriftSpec(DriftRule { policy, except }): DriftSpec) -> Self {
        if except.is_empty() { Self::Bare(policy) } else { Self::Options(DriftOptions { policy, except }) }
    }
}

/// Reads `spec.drift`.
pub(super) fn read(node: &Node, scribe: &mut Scribe<'_>) -> Option<DriftSpec> {
    if let Kind::Scalar(_) = node.kind {
        let policy = policy(node, "spec.drift", scribe)?;
        return Some(DriftSpec(DriftRule { policy, except: vec![] }));
    }
    let mut fields = Fields::open(node, "spec.drift", scribe)?;
    let policy = match fields.take("policy") {
        Some(node) => policy(node, "spec.drift.policy", scribe),
        None => Some(DriftPolicy::default()),
    };
    let except = fields.take("except").map(|node| exceptions(node, scribe)).unwrap_or_default();
    fields.close(scribe);
    Some(DriftSpec(DriftRule { policy: policy?, except }))
}

fn policy(node: &Node, path: &str, scribe: &mut Scribe<'_>) -> Option<DriftPolicy> {
    match text(node, path, "correct, alert or ignore", scribe)? {
        "correct" => Some(DriftPolicy::Correct),
        "alert" => Some(DriftPolicy::Alert),
        "ignore" => Some(DriftPolicy::Ignore),
        other => {
            let what = format!("unknown policy {other:?}");
            scribe.wrong(node.at, path, what, known_words(other, &POLICIES));
            None
        }
    }
}

fn exceptions(node: &Node, scribe: &mut Scribe<'_>) -> Vec<DriftException> {
    let listed = items(node, "spec.drift.except", "exceptions", scribe);
    within(node, "spec.drift.except", listed.len(), EXCEPTIONS_LIMIT, scribe);
    let listed = listed.into_iter().take(EXCEPTIONS_LIMIT);
    listed.filter_map(|(path, item)| exception(item, &path, scribe)).collect()
}

fn exception(node: &Node, path: &str, scribe: &mut Scribe<'_>) -> Option<DriftException> {
    let mut fields = Fields::open(node, path, scribe)?;
    let mut pattern = |field: &'static str, fields: &mut Fields<'_>| {
        let at = fields.path(field);
        match fields.take(field) {
            Some(node) => bounded(node, &at, "a name, in which * stands for any text", scribe),
            None => Some("*".to_owned()),
        }
    };
    let (kind, name) = (pattern("kind", &mut fields), pattern("name", &mut fields));
    let at = fields.path("pointers");
    let pointers = fields.demand("pointers", "a list of JSON pointers", scribe);
    let pointers = pointers.map(|node| {
        let listed = items(node, &at, "JSON pointers", scribe);
        within(node, &at, listed.len(), POINTERS_LIMIT, scribe);
        if listed.is_empty() {
            scribe.wrong(node.at, &at, "no pointer is there", format!("expected: {POINTER}"));
        }
        let listed = listed.into_iter().take(POINTERS_LIMIT);
        listed.filter_map(|(path, item)| pointer(item, &path, scribe)).collect()
    });
    fields.close(scribe);
    Some(DriftException { kind: kind?, name: name?, pointers: pointers? })
}

/// RFC 6901 section 3. The whole document is no exception but a policy, and without its name an object
/// is none.
fn pointer(node: &Node, path: &str, scribe: &mut Scribe<'_>) -> Option<String> {
    let pointer = bounded(node, path, POINTER, scribe)?;
    let escapes = pointer.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    let fixed = ["/apiVersion", "/kind", "/metadata", "/metadata/name", "/metadata/namespace"];
    let why = match pointer.as_str() {
        "" => "this is the whole object: for that there is policy: ignore",
        text if !text.starts_with('/') || !escapes => "this is no JSON pointer",
        text if fixed.contains(&text) => "this field makes the object what it is",
        _ => return Some(pointer),
    };
    scribe.wrong(node.at, path, format!("{why} (got {pointer:?})"), format!("expected: {POINTER}"));
    None
}

fn bounded(node: &Node, path: &str, right: &str, scribe: &mut Scribe<'_>) -> Option<String> {
    let text = text(node, path, right, scribe)?;
    if text.len() <= TEXT_LIMIT {
        return Some(text.to_owned());
    }
    let what = format!("this has {} bytes (limit {TEXT_LIMIT})", text.len());
    scribe.wrong(node.at, path, what, format!("expected: {right}"));
    None
}

fn within(node: &Node, path: &str, count: usize, limit: usize, scribe: &mut Scribe<'_>) {
    if count > limit {
        let what = format!("there are {count} (limit {limit})");
        scribe.wrong(node.at, path, what, "expected: fewer");
    }
}
