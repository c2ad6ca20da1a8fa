//! Whether an object does what it was made for, from the whole of it. Pure, but for [`rules`].
//!
//! The kinds of Kubernetes itself are judged by the conventions of kstatus (kubernetes-sigs/cli-utils,
//! `pkg/kstatus/status`: `generic.go` for what all kinds share, `core.go` for each kind); where we depart
//! from them, the function says so. Kinds of others are judged by `observedGeneration` and conditions, or
//! by the rules of the service ([`rules`]).
//!
//! - [`kinds`]: the judges of single kinds.
//! - [`progress`]: what has to change in an object for it to be under way.
//! - [`rules`]: rules that come with a service; [`cel`] evaluates one, in a process of its own.

pub mod cel;
pub mod kinds;
pub mod progress;
pub mod rules;

use serde_json::Value;

use crate::object::Manifest;

/// The most characters of a reason: what a controller says of itself may be long.
const WHY_LIMIT: usize = 300;

/// How an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It does what it was made for.
    Current,
    /// It does not yet. Why.
    Progressing(String),
    /// It does not, and will not without a change. Why.
    Failed(String),
}

impl Health {
    fn progressing(why: impl AsRef<str>) -> Self {
        Self::Progressing(short(why.as_ref()))
    }

    fn failed(why: impl AsRef<str>) -> Self {
        Self::Failed(short(why.as_ref()))
    }
}

/// Judges a whole object, as the API shows it.
#[must_use]
pub fn judge(object: &Value) -> Health {
    if let Some(health) = of_any_kind(object) {
        return health;
    }
    let (group, kind) = group_and_kind(object);
    match kinds::judge_of(group, kind) {
        Some(judge) => judge(object),
        None => by_ready(object),
    }
}

/// Whether there is anything to judge in an object, so that it is worth a look. `ConfigMap`s and their
/// like are what they should be once they are written.
#[must_use]
pub fn is_judged(manifest: &Manifest) -> bool {
    let key = &manifest.key;
    match (key.group.as_str(), key.kind.as_str()) {
        ("", "Service") => {
            manifest.body.pointer("/spec/type").and_then(Value::as_str) == Some("LoadBalancer")
        }
        (group, kind) if kinds::is_built_in(group) => kinds::judge_of(group, kind).is_some(),
        _ => true,
    }
}

/// How a run of something that ends is: a Job or a Pod that succeeded is done, one that is suspended or
/// runs is not. Anything else is done when it is healthy.
#[must_use]
pub fn judge_run(object: &Value) -> Health {
    match group_and_kind(object) {
        ("batch", "Job") => kinds::run_of_job(object),
        ("", "Pod") => kinds::run_of_pod(object),
        _ => judge(object),
    }
}

/// What all kinds share (kstatus, `checkGenericProperties`).
fn of_any_kind(object: &Value) -> Option<Health> {
    if object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()) {
        return Some(Health::progressing("it is being deleted"));
    }
    let generation = number(object, "/metadata/generation");
    let observed = number(object, "/status/observedGeneration");
    if let (Some(generation), Some(observed)) = (generation, observed)
        && observed != generation
    {
        return Some(Health::Progressing(format!(
            "its controller has not seen its newest form yet (generation {observed} of {generation})"
        )));
    }
    if let Some(condition) = condition(object, "Reconciling").filter(Condition::is_true) {
        return Some(Health::progressing(condition.told("it is being reconciled")));
    }
    let stalled = condition(object, "Stalled").filter(Condition::is_true)?;
    Some(Health::failed(stalled.told("it is stalled")))
}

/// A kind that nobody here knows: it is ready if it says so, or says nothing of it (kstatus,
/// `checkReadyCondition`). `Available` counts where there is no `Ready`, as for an Argo CD or OLM kind.
fn by_ready(object: &Value) -> Health {
    let said = ["Ready", "Available"].into_iter().find_map(|kind| condition(object, kind));
    match said {
        Some(condition) if !condition.is_true() => Health::progressing(
            condition.told(&format!("its condition {} is {}", condition.kind, condition.status)),
        ),
        Some(_) | None => Health::Current,
    }
}

/// One entry of `status.conditions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Condition<'a> {
    kind: &'a str,
    status: &'a str,
    reason: &'a str,
    message: &'a str,
}

impl Condition<'_> {
    fn is_true(&self) -> bool {
        self.status == "True"
    }

    /// What it says, or what it means where it says nothing.
    fn told(&self, meaning: &str) -> String {
        match (self.message, self.reason) {
            ("", "") => meaning.to_owned(),
            ("", reason) => format!("{meaning} ({reason})"),
            (message, _) => format!("{meaning}: {message}"),
        }
    }
}

fn conditions(object: &Value) -> impl Iterator<Item = Condition<'_>> {
    let entries = object.pointer("/status/conditions").and_then(Value::as_array);
    entries.into_iter().flatten().filter_map(|entry| {
        let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
        let kind = entry.get("type")?.as_str()?;
        Some(Condition { kind, status: text("status"), reason: text("reason"), message: text("message") })
    })
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<Condition<'a>> {
    conditions(object).find(|condition| condition.kind == kind)
}

fn group_and_kind(object: &Value) -> (&str, &str) {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    (group, text("kind"))
}

fn number(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer)?.as_i64()
}

fn word<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn short(why: &str) -> String {
    match why.char_indices().nth(WHY_LIMIT) {
        None => why.to_owned(),
        Some((end, _)) => format!("{}...", &why[..end]),
    }
}

#[cfg(test)]
mod tests;
