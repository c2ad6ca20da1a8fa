//! What every service's content is, from what was seen of its source. Pure.
//!
//! A source that cannot be fetched, that went backwards, or a path that vanished or was emptied keeps
//! the last content of what depends on it: that is the source's or the service's error alone.

use std::collections::BTreeMap;

use farshore_shared::digest::Digest;
use farshore_shared::names::Name;
use farshore_shared::wire::Artifact;

use crate::record::{FLEET, HeldChange, Intent, Made, Published, SourceState};

/// What was seen of one source, and made of its services.
#[derive(Debug, Clone)]
pub enum SourceSeen {
    /// It could not be fetched.
    Failed(String),
    /// Its newest commit waits for an approval.
    Held(HeldChange),
    /// It was read.
    Ready {
        /// Its newest commit.
        commit: String,
        /// The content of each of its services, or why there is none.
        services: BTreeMap<Name, Result<Content, String>>,
    },
}

/// The content of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// What the artifact was made from.
    pub key: Digest,
    /// The artifact.
    pub artifact: Artifact,
}

/// How a source came out of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceReport {
    /// How it is.
    pub state: SourceState,
    /// What a person should know.
    pub messages: Vec<String>,
    /// What waits for an approval.
    pub held: Option<HeldChange>,
    /// Services that are not as declared, and why.
    pub services: BTreeMap<Name, String>,
}

impl SourceReport {
    fn of(state: SourceState, messages: Vec<String>, held: Option<HeldChange>) -> Self {
        Self { state, messages, held, services: BTreeMap::new() }
    }
}

/// Puts what was seen into the intent. A service that is published for the first time gets
/// `sequence` as its incarnation.
pub fn settle(
    intent: &mut Intent,
    seen: &BTreeMap<String, SourceSeen>,
    sequence: u64,
) -> BTreeMap<String, SourceReport> {
    let mut reports = BTreeMap::new();
    for (source, seen) in seen {
        let report = match seen {
            SourceSeen::Failed(message) => SourceReport::of(SourceState::Failed, vec![message.clone()], None),
            SourceSeen::Held(held) => {
                SourceReport::of(SourceState::Held, vec![held.explain()], Some(held.clone()))
            }
            SourceSeen::Ready { commit, services } => take(intent, source, commit, services, sequence),
        };
        reports.insert(source.clone(), report);
    }
    reports
}

fn take(
    intent: &mut Intent,
    source: &str,
    commit: &str,
    services: &BTreeMap<Name, Result<Content, String>>,
    sequence: u64,
) -> SourceReport {
    let mut report = SourceReport::of(SourceState::Ready, vec![], None);
    for (name, content) in services {
        let Some(service) = intent.services.get_mut(name) else { continue };
        match content {
            Err(message) => {
                report.state = SourceState::Degraded;
                report.messages.push(format!("service {name}: {message}"));
                report.services.insert(name.clone(), message.clone());
            }
            Ok(content) => {
                let before = service.published.as_ref();
                let made = Made::of(&service.spec);
                let same = before.filter(|before| {
                    before.key == content.key
                        && before.artifact == content.artifact
                        && before.made.source == made.source
                });
                // The commit in which this content came stays, so that a commit beside it changes nothing.
                let commit = same.map_or_else(|| commit.to_owned(), |before| before.commit.clone());
                let incarnation = before.map_or(sequence, |before| before.incarnation);
                let Content { key, artifact } = content.clone();
                service.published = Some(Published { incarnation, commit, key, artifact, made });
            }
        }
    }
    if source != FLEET
        && let Some(source) = source.parse::<Name>().ok().and_then(|name| intent.sources.get_mut(&name))
    {
        source.commit = Some(commit.to_owned());
    }
    report
}

#[cfg(test)]
mod tests;
