//! Sources: how each is, and what waits for an approval. Pure.

use std::collections::BTreeSet;

use clap::ValueEnum;
use farshore_hub_fn::record::{self, HoldCause, Intent, IntentSource, SourceHead};
use farshore_shared::names::Name;
use schemars::JsonSchema;
use serde::Serialize;

use super::short;
use crate::table::{Cell, Tone};

/// How a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SourceState {
    /// Its newest commit is published.
    Ready,
    /// Its newest commit is published as far as it can be read.
    Degraded,
    /// Its newest commit waits for an approval.
    Held,
    /// It could not be fetched.
    Failed,
    /// It was not looked at yet.
    Pending,
}

/// A source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SourceRow {
    /// Its name; `fleet` is the fleet repository.
    pub(super) name: String,
    /// How it is.
    pub(super) state: SourceState,
    /// The last published commit.
    pub(super) revision: Option<String>,
    /// What a person should know first; empty when there is nothing.
    pub(super) message: String,
    /// All that a person should know.
    pub(super) messages: Vec<String>,
    /// Where it is.
    pub(super) url: String,
    /// A change that waits for an approval.
    pub(super) held: Option<Held>,
}

/// A change that waits for an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Held {
    /// What `farshore approve` takes.
    change: String,
    /// The last published commit.
    from: Option<String>,
    /// The commit that waits.
    to: String,
    /// Why.
    why: Why,
    /// Cluster-service pairs that it removes.
    removes: u64,
    /// Cluster-service pairs that there are.
    of: u64,
}

/// Why a change waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Why {
    /// The commit does not descend from the last published one.
    NotDescending,
    /// It removes more than the budget.
    MassRemoval,
    /// Nothing is left after it.
    NothingLeft,
}

/// Every source that has been looked at or is declared, by name.
pub(super) fn rows(intent: &Intent, heads: &[SourceHead]) -> Vec<SourceRow> {
    let known: BTreeSet<&str> = heads.iter().map(|head| head.source.as_str()).collect();
    let waiting = intent.sources.iter().filter(|(name, _)| !known.contains(name.as_str()));
    let waiting = waiting.map(|(name, source)| pending(name, source));
    let mut rows: Vec<SourceRow> = heads.iter().map(seen).chain(waiting).collect();
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    rows
}

fn pending(name: &Name, source: &IntentSource) -> SourceRow {
    SourceRow {
        name: name.to_string(),
        state: SourceState::Pending,
        revision: source.commit.clone(),
        message: "not looked at yet".into(),
        messages: vec![],
        url: source.spec.git.url.to_string(),
        held: None,
    }
}

fn seen(head: &SourceHead) -> SourceRow {
    let held = head.held.as_ref().map(|held| Held {
        change: held.change.clone(),
        from: held.from.clone(),
        to: held.to.clone(),
        why: match held.why {
            HoldCause::NotDescending => Why::NotDescending,
            HoldCause::MassRemoval => Why::MassRemoval,
            HoldCause::NothingLeft => Why::NothingLeft,
        },
        removes: held.removes,
        of: held.of,
    });
    SourceRow {
        name: head.source.clone(),
        state: match head.state {
            record::SourceState::Ready => SourceState::Ready,
            record::SourceState::Degraded => SourceState::Degraded,
            record::SourceState::Held => SourceState::Held,
            record::SourceState::Failed => SourceState::Failed,
        },
        revision: head.commit.clone(),
        message: head.messages.first().cloned().unwrap_or_default(),
        messages: head.messages.clone(),
        url: head.url.clone(),
        held,
    }
}

/// The columns.
pub(super) const HEADER: [&str; 6] = ["NAME", "STATE", "COMMIT", "CHANGE", "URL", "MESSAGE"];

impl SourceRow {
    /// Its cells.
    pub(super) fn cells(&self) -> [Cell; 6] {
        let state = match self.state {
            SourceState::Ready => Cell::toned("ready", Tone::Good),
            SourceState::Degraded => Cell::toned("degraded", Tone::Wait),
            SourceState::Held => Cell::toned("held", Tone::Wait),
            SourceState::Failed => Cell::toned("failed", Tone::Bad),
            SourceState::Pending => Cell::toned("pending", Tone::Wait),
        };
        let message = match self.messages.len() {
            0 | 1 => self.message.clone(),
            many => format!("{} (and {} more: -o json)", self.message, many - 1),
        };
        [
            Cell::plain(&self.name),
            state,
            Cell::plain(short(self.revision.as_deref())),
            Cell::plain(self.held.as_ref().map_or("", |held| held.change.as_str())),
            Cell::plain(&self.url),
            Cell::plain(&message),
        ]
    }
}
