//! What a service says of how its objects are applied and removed.
//!
//! The types are those of the wire and of declarations alike: a reader of documents ignores what it does
//! not know, a declaration may not have it.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What a change of one service may remove.
///
/// A removal is held when it exceeds both limits. What is of a protected kind is kept unless it is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
// A declaration may not have a field that is not known; a reader of documents ignores it.
#[schemars(deny_unknown_fields)]
pub struct PruneBudget {
    /// Objects.
    #[serde(default = "PruneBudget::default_limit")]
    pub count: u32,
    /// Per cent of the service's objects.
    #[serde(default = "PruneBudget::default_limit")]
    pub percent: u32,
    /// Protected kinds that may be removed as well.
    #[serde(default, skip_serializing_if = "ProtectedKinds::is_empty")]
    pub kinds: ProtectedKinds,
}

impl PruneBudget {
    fn default_limit() -> u32 {
        10
    }

    /// Whether removing `removed` of `total` exceeds both limits.
    #[must_use]
    pub fn exceeded(&self, removed: usize, total: usize) -> bool {
        removed as u128 > u128::from(self.count)
            && removed as u128 * 100 > u128::from(self.percent) * total as u128
    }
}

impl Default for PruneBudget {
    fn default() -> Self {
        let limit = Self::default_limit();
        Self { count: limit, percent: limit, kinds: ProtectedKinds::default() }
    }
}

/// A kind whose objects are not removed unless the signed document names it: with such an object goes more
/// than itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProtectedKind {
    /// `CustomResourceDefinition`: every object of the kind goes with it.
    CustomResourceDefinition,
    /// `Namespace`: everything in it goes with it.
    Namespace,
    /// `PersistentVolume`.
    PersistentVolume,
    /// `PersistentVolumeClaim`: the data may go with it.
    PersistentVolumeClaim,
    /// What the agent itself is made of.
    Agent,
}

impl ProtectedKind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::CustomResourceDefinition,
        Self::Namespace,
        Self::PersistentVolume,
        Self::PersistentVolumeClaim,
        Self::Agent,
    ];

    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CustomResourceDefinition => "CustomResourceDefinition",
            Self::Namespace => "Namespace",
            Self::PersistentVolume => "PersistentVolume",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::Agent => "Agent",
        }
    }

    /// The protected kind of an API group and kind, if it is one.
    #[must_use]
    pub fn of(group: &str, kind: &str) -> Option<Self> {
        match (group, kind) {
            ("apiextensions.k8s.io", "CustomResourceDefinition") => Some(Self::CustomResourceDefinition),
            ("", "Namespace") => Some(Self::Namespace),
            ("", "PersistentVolume") => Some(Self::PersistentVolume),
            ("", "PersistentVolumeClaim") => Some(Self::PersistentVolumeClaim),
            _ => None,
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for ProtectedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Not the name of a [`ProtectedKind`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("kind is not a protected one ({0:?})")]
pub struct NotProtected(pub String);

impl FromStr for ProtectedKind {
    type Err = NotProtected;

    fn from_str(text: &str) -> Result<Self, NotProtected> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| NotProtected(text.to_owned()))
    }
}

/// A set of [`ProtectedKind`]s. Written as a list of their names; names that are not known are passed over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProtectedKinds(u8);

impl ProtectedKinds {
    /// Whether it names none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// Whether it names this one.
    #[must_use]
    pub fn contains(self, kind: ProtectedKind) -> bool {
        self.0 & kind.bit() != 0
    }

    /// The kinds, in order.
    pub fn iter(self) -> impl Iterator<Item = ProtectedKind> {
        ProtectedKind::ALL.into_iter().filter(move |kind| self.contains(*kind))
    }
}

impl FromIterator<ProtectedKind> for ProtectedKinds {
    fn from_iter<I: IntoIterator<Item = ProtectedKind>>(kinds: I) -> Self {
        Self(kinds.into_iter().fold(0, |bits, kind| bits | kind.bit()))
    }
}

impl Serialize for ProtectedKinds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(ProtectedKind::as_str))
    }
}

impl<'de> Deserialize<'de> for ProtectedKinds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }
}

impl JsonSchema for ProtectedKinds {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ProtectedKinds".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "array",
            "items": { "enum": ProtectedKind::ALL.map(ProtectedKind::as_str) },
        })
    }
}

/// How the objects of one service are applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub struct ApplyPolicy {
    /// What happens where somebody else owns a field that this service wants to be otherwise.
    #[serde(default, skip_serializing_if = "is_default")]
    pub conflicts: Conflicts,
    /// Whether an object is deleted and made anew where a field of it cannot be changed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub recreate: bool,
    /// Whether what kubectl, Helm, Argo CD or Flux applied before is taken over with all fields.
    #[serde(default, skip_serializing_if = "is_default")]
    pub adopt: bool,
}

impl ApplyPolicy {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_default(&self) -> bool {
        is_default(self)
    }
}

/// What happens where somebody else owns a field that a service wants to be otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Conflicts {
    /// The object fails, and the message names who owns which fields.
    #[default]
    Report,
    /// The field is taken.
    Force,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_budget_holds_only_when_both_limits_are_exceeded() {
        let budget = PruneBudget::default();
        assert!(!budget.exceeded(10, 10), "ten of ten is within the count");
        assert!(budget.exceeded(11, 20));
        assert!(!budget.exceeded(11, 200), "eleven of two hundred is within the share");
        assert!(!budget.exceeded(0, 0));
    }

    #[test]
    fn kinds_are_a_list_of_names_and_one_that_is_not_known_is_passed_over() {
        let said = json!({"count": 1, "percent": 2, "kinds": ["Namespace", "FutureKind", "Agent"]});
        let budget: PruneBudget = serde_json::from_value(said).expect("it is understood");
        assert!(budget.kinds.contains(ProtectedKind::Agent));
        assert!(!budget.kinds.contains(ProtectedKind::PersistentVolume));
        let written = serde_json::to_value(budget).expect("JSON");
        assert_eq!(written, json!({"count": 1, "percent": 2, "kinds": ["Namespace", "Agent"]}));
        let bare = serde_json::to_value(PruneBudget::default()).expect("JSON");
        assert_eq!(bare, json!({"count": 10, "percent": 10}));
    }

    #[test]
    fn a_kind_is_protected_in_its_own_group_only() {
        assert_eq!(ProtectedKind::of("", "Namespace"), Some(ProtectedKind::Namespace));
        assert_eq!(ProtectedKind::of("shop.example", "Namespace"), None);
        for kind in ProtectedKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        assert!("Pod".parse::<ProtectedKind>().is_err());
    }

    #[test]
    fn a_policy_that_says_nothing_is_written_as_nothing() {
        assert_eq!(serde_json::to_value(ApplyPolicy::default()).expect("JSON"), json!({}));
        let forced: ApplyPolicy = serde_json::from_value(json!({"conflicts": "force"})).expect("understood");
        assert_eq!(
            (forced.conflicts, forced.recreate, forced.is_default()),
            (Conflicts::Force, false, false)
        );
    }
}
