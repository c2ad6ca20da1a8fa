//! Label selectors, with the meaning that Kubernetes gives them.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use farshore_shared::names::{LabelKey, LabelValue, Labels};

/// Which clusters: those for which every line holds. Without any line, every cluster.
///
/// The fields and their meaning are those of `LabelSelector` in `k8s.io/apimachinery`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels that a cluster must have, with these values.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub match_labels: Labels,
    /// Demands that one value does not express.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
}

/// One demand on one label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "RequirementForm", into = "RequirementForm")]
pub struct Requirement {
    /// The label.
    pub key: LabelKey,
    /// What is demanded of it.
    pub test: Test,
}

/// What a [`Requirement`] demands of a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// It has one of these values.
    In(BTreeSet<LabelValue>),
    /// It has none of these values; a cluster without the label passes.
    NotIn(BTreeSet<LabelValue>),
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
}

/// How a [`Requirement`] is written.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RequirementForm {
    /// The label.
    key: LabelKey,
    /// How it is compared.
    operator: Operator,
    /// At least one for `In` and `NotIn`, none for the others.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    values: BTreeSet<LabelValue>,
}

/// How a label is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Operator {
    /// See [`Test::In`].
    In,
    /// See [`Test::NotIn`].
    NotIn,
    /// See [`Test::Exists`].
    Exists,
    /// See [`Test::DoesNotExist`].
    DoesNotExist,
}

/// Why an operator and its values do not go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRequirement {
    /// `In` or `NotIn` without a value.
    #[error("{0:?} needs at least one value")]
    NoValues(Operator),
    /// `Exists` or `DoesNotExist` with a value.
    #[error("{0:?} takes no values")]
    Values(Operator),
}

impl Test {
    /// Puts an operator and its values together.
    ///
    /// # Errors
    /// [`BadRequirement`], when there are none where some are needed, or the reverse.
    pub fn new(operator: Operator, values: BTreeSet<LabelValue>) -> Result<Self, BadRequirement> {
        match (operator, values.is_empty()) {
            (Operator::In | Operator::NotIn, true) => Err(BadRequirement::NoValues(operator)),
            (Operator::Exists | Operator::DoesNotExist, false) => Err(BadRequirement::Values(operator)),
            (Operator::In, false) => Ok(Self::In(values)),
            (Operator::NotIn, false) => Ok(Self::NotIn(values)),
            (Operator::Exists, true) => Ok(Self::Exists),
            (Operator::DoesNotExist, true) => Ok(Self::DoesNotExist),
        }
    }
}

impl TryFrom<RequirementForm> for Requirement {
    type Error = BadRequirement;

    fn try_from(form: RequirementForm) -> Result<Self, BadRequirement> {
        Ok(Self { key: form.key, test: Test::new(form.operator, form.values)? })
    }
}

impl From<Requirement> for RequirementForm {
    fn from(requirement: Requirement) -> Self {
        let (operator, values) = match requirement.test {
            Test::In(values) => (Operator::In, values),
            Test::NotIn(values) => (Operator::NotIn, values),
            Test::Exists => (Operator::Exists, BTreeSet::new()),
            Test::DoesNotExist => (Operator::DoesNotExist, BTreeSet::new()),
        };
        Self { key: requirement.key, operator, values }
    }
}

impl Requirement {
    /// Whether labels fulfil it.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.contains(value)),
            Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
        }
    }
}

impl LabelSelector {
    /// Whether it selects a cluster with these labels.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.matches(labels))
    }

    /// The label keys that it looks at.
    #[must_use]
    pub fn keys(&self) -> BTreeSet<LabelKey> {
        let expressions = self.match_expressions.iter().map(|requirement| &requirement.key);
        self.match_labels.keys().chain(expressions).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(k, v)| (k.parse().expect("a key"), v.parse().expect("a value"))).collect()
    }

    fn selects(selector: serde_json::Value, pairs: &[(&str, &str)]) -> bool {
        serde_json::from_value::<LabelSelector>(selector).expect("a selector").matches(&labels(pairs))
    }

    #[test]
    fn a_selector_means_what_kubernetes_means() {
        let edge = [("tier", "edge"), ("region", "north")];
        let expression = |operator: &str, values: &[&str]| serde_json::json!({"matchExpressions": [{"key": "tier", "operator": operator, "values": values}]});
        assert!(selects(serde_json::json!({}), &[]), "no line selects everything");
        assert!(selects(serde_json::json!({"matchLabels": {"tier": "edge"}}), &edge));
        assert!(!selects(serde_json::json!({"matchLabels": {"tier": "edge", "x": ""}}), &edge));
        assert!(selects(expression("In", &["core", "edge"]), &edge));
        assert!(!selects(expression("In", &["core"]), &edge));
        assert!(!selects(expression("In", &["core"]), &[]));
        assert!(!selects(expression("NotIn", &["edge"]), &edge));
        assert!(selects(expression("NotIn", &["edge"]), &[]), "an absent label is not in any set");
        assert!(selects(expression("Exists", &[]), &edge) && !selects(expression("Exists", &[]), &[]));
        assert!(
            selects(expression("DoesNotExist", &[]), &[]) && !selects(expression("DoesNotExist", &[]), &edge)
        );
    }

    #[test]
    fn operators_without_their_values_are_refused_from_json_too() {
        for wrong in [r#"{"key":"a","operator":"In"}"#, r#"{"key":"a","operator":"Exists","values":["b"]}"#] {
            assert!(serde_json::from_str::<Requirement>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_keys_are_those_of_labels_and_expressions() {
        let selector: LabelSelector = serde_json::from_value(serde_json::json!({
            "matchLabels": {"b": "1"},
            "matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]
        }))
        .expect("a selector");
        let keys: Vec<String> = selector.keys().into_iter().map(String::from).collect();
        assert_eq!(keys, ["a", "b"]);
    }
}
