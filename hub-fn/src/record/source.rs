//! How sources are, the changes of them that wait, and what operators say to those.

use std::collections::BTreeMap;

use farshore_shared::digest::Digest;
use farshore_shared::names::Name;
use farshore_shared::wire::UnixSeconds;
use serde::{Deserialize, Serialize};

/// How a source is doing: what `farshore get sources` shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceHead {
    /// The source's name; `fleet` is the fleet repository.
    pub source: String,
    /// Where it is.
    pub url: String,
    /// The last published commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// How it is.
    pub state: SourceState,
    /// What a person should know, and do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
    /// A change that waits for an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldChange>,
    /// Services of this source that are not as declared, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<Name, String>,
    /// Given by root.
    pub epoch: u64,
    /// The sequence of the publication that it belongs to.
    pub sequence: u64,
    /// When it was signed.
    pub issued: UnixSeconds,
}

/// How a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceState {
    /// Its newest commit is published.
    Ready,
    /// Its newest commit is published as far as it can be read.
    Degraded,
    /// Its newest commit waits for an approval.
    Held,
    /// It could not be fetched.
    Failed,
}

/// A change that is published only after an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldChange {
    /// Its id: what `farshore approve` takes. It is the digest of all that follows.
    pub change: String,
    /// The source.
    pub scope: String,
    /// The last published commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The commit that waits.
    pub to: String,
    /// Why.
    pub why: HoldCause,
    /// Cluster-service pairs that it removes.
    pub removes: u64,
    /// Cluster-service pairs that there are.
    pub of: u64,
}

/// Why a change is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HoldCause {
    /// The commit does not descend from the last published one.
    NotDescending,
    /// It removes more than the budget.
    MassRemoval,
    /// Nothing is left after it: a repository that was emptied or exchanged looks like this.
    NothingLeft,
}

impl HeldChange {
    /// Describes a change; its id follows from the rest.
    #[must_use]
    pub fn new(scope: &str, from: Option<&str>, to: &str, why: HoldCause, removes: u64, of: u64) -> Self {
        let (removes_text, of_text) = (removes.to_string(), of.to_string());
        let why_text = format!("{why:?}");
        let parts = [scope, from.unwrap_or(""), to, &why_text, &removes_text, &of_text];
        let digest = Digest::of_parts(parts.iter().map(|part| part.as_bytes()));
        Self {
            change: digest.to_string()[..12].to_owned(),
            scope: scope.to_owned(),
            from: from.map(ToOwned::to_owned),
            to: to.to_owned(),
            why,
            removes,
            of,
        }
    }

    /// Whether its id is that of the change that it describes.
    #[must_use]
    pub fn is_named_rightly(&self) -> bool {
        let Self { change, scope, from, to, why, removes, of } = self;
        Self::new(scope, from.as_deref(), to, *why, *removes, *of).change == *change
    }

    /// What a person should know and do.
    #[must_use]
    pub fn explain(&self) -> String {
        let Self { change, to, removes, of, .. } = self;
        let short = &to[..to.len().min(12)];
        let before = self.from.as_deref().map_or("none", |from| &from[..from.len().min(12)]);
        let what = match self.why {
            HoldCause::NotDescending => format!(
                "commit {short} does not descend from the last published one ({before}): a force-push, or a server restored from a backup; it would remove {removes} of {of} cluster-service pairs"
            ),
            HoldCause::MassRemoval => {
                format!("commit {short} would remove {removes} of {of} cluster-service pairs")
            }
            HoldCause::NothingLeft => {
                format!(
                    "commit {short} would leave nothing: it removes {removes} of {of} cluster-service pairs"
                )
            }
        };
        format!("{what}: it is held, sites keep what they have; to let it through: farshore approve {change}")
    }
}

/// An operator's word for one held change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// The whole change, so that the approval names commit, scope and count.
    pub held: HeldChange,
    /// When it was signed.
    pub issued: UnixSeconds,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_change_is_named_by_everything_it_says() {
        let held = HeldChange::new("fleet", Some("aa"), "bb", HoldCause::MassRemoval, 11, 20);
        assert!(held.is_named_rightly());
        for other in [
            HeldChange { scope: "up".into(), ..held.clone() },
            HeldChange { from: None, ..held.clone() },
            HeldChange { to: "cc".into(), ..held.clone() },
            HeldChange { why: HoldCause::NotDescending, ..held.clone() },
            HeldChange { removes: 12, ..held.clone() },
            HeldChange { of: 21, ..held.clone() },
        ] {
            assert!(!other.is_named_rightly(), "{other:?}");
        }
    }
}
