//! Clusters: whether each is as it should be. Pure.

use clap::ValueEnum;
use farshore_hub_fn::handlers::operators::answers::ClusterItem;
use farshore_hub_fn::publish::intend::labels_of;
use farshore_hub_fn::publish::state::Published;
use farshore_hub_fn::record::{self, Counts, Facts, RosterRef};
use farshore_hub_fn::status::judge::{Evidence, age, heard, judge};
use farshore_shared::digest::Digest;
use farshore_shared::names::{Labels, Name};
use farshore_shared::wire::{Roster, ServiceState, ServiceStatus, UnixSeconds};
use schemars::JsonSchema;
use serde::Serialize;

use crate::record::Known;
use crate::table::{Cell, Tone};
use crate::time::rfc3339;

/// How a cluster is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ClusterState {
    /// It holds what is published, and all of it is applied.
    Converged,
    /// It is on its way.
    Converging,
    /// A service failed.
    Failed,
    /// It was not heard for three polls and a minute; it keeps what it has.
    Unreachable,
    /// It was never heard since it enrolled.
    NeverSeen,
}

/// A registered cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterRow {
    /// Its name.
    pub(super) name: Name,
    /// How it is.
    pub(super) state: ClusterState,
    /// The sequence of the group document that it holds.
    pub(super) revision: Option<String>,
    /// What a person should look at first; empty when there is nothing.
    pub(super) message: String,
    /// Its labels: those of its registration, overridden by those of the fleet repository.
    pub(super) labels: Labels,
    /// When it was last heard (RFC 3339).
    pub(super) last_seen: Option<String>,
    /// The group that it is in.
    pub(super) group: Option<String>,
    /// Its services, as it last told them; a hub that is asked for a list does not send them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) services: Option<Vec<ClusterService>>,
    /// What its agent wants a person to look at.
    pub(super) alarms: Vec<String>,
    #[serde(skip)]
    seen: Option<UnixSeconds>,
    /// Services that are applied, and all of them.
    #[serde(skip)]
    applied: (u32, u32),
}

/// A service at a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterService {
    /// Its name.
    name: Name,
    /// How far it is.
    state: AtSite,
    /// The commit that is applied or being applied.
    commit: String,
    /// Why, where there is something to say.
    message: String,
    /// Objects that are as they should be.
    objects: u32,
    /// Drift repairs since the agent began to count.
    repairs: u64,
}

/// How far a service is at a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum AtSite {
    /// Every object is as it should be.
    Applied,
    /// Something must come first.
    Waiting,
    /// A removal is held back until a person decides, or somebody at the site has stopped what would come next.
    Held,
    /// An object, or the rendering, failed.
    Failed,
}

/// What is known of each cluster, as rows.
pub(super) fn rows(clusters: &[Known], published: &Published, now: UnixSeconds) -> Vec<ClusterRow> {
    clusters.iter().map(|known| row(known, published, now)).collect()
}

fn row(known: &Known, published: &Published, now: UnixSeconds) -> ClusterRow {
    let name = known.registration.cluster.clone();
    let status = known.status.as_ref();
    let facts = status.map(|status| Facts::of_status(status, known.received));
    let seen = heard(facts.as_ref(), [known.seen, None]).map(|seen| seen.min(now));
    let roster = known.roster.as_ref().map(reference);
    let group = known.roster.as_ref().and_then(|roster| published.table.0.get(&roster.group));
    let (state, message) = judge(
        &Evidence {
            roster: roster.as_ref(),
            published: group.map(|group| group.sequence),
            facts: facts.as_ref(),
            heard: seen,
            listening_since: None,
        },
        now,
    );
    ClusterRow {
        labels: labels_of(&published.intent, &name, &known.registration.labels),
        name,
        state: state.into(),
        revision: status.and_then(|status| status.holds).map(|holds| holds.group.to_string()),
        message,
        last_seen: seen.and_then(rfc3339),
        group: known.roster.as_ref().map(|roster| roster.group.to_string()),
        services: Some(status.map_or_else(Vec::new, |s| s.services.iter().map(ClusterService::of).collect())),
        alarms: status.map_or_else(Vec::new, |status| status.alarms.clone()),
        seen,
        applied: facts.map_or((0, 0), |facts| (facts.applied, facts.services)),
    }
}

/// What is to be known of a roster to judge its cluster.
fn reference(roster: &Roster) -> RosterRef {
    RosterRef {
        group: roster.group,
        floor: roster.floor,
        epoch: roster.epoch,
        sequence: roster.sequence,
        digest: Digest::of(&[]),
        expires: roster.expires,
        labels: None,
        tombstones: vec![],
        footprint: Default::default(),
    }
}

/// What a hub says of a cluster, as a row.
pub(super) fn told(item: ClusterItem) -> ClusterRow {
    ClusterRow {
        name: item.name,
        state: item.state.into(),
        revision: item.holds.map(|holds| holds.group.to_string()),
        message: item.message,
        labels: item.labels,
        last_seen: item.last_seen.and_then(rfc3339),
        group: item.group.map(|group| group.to_string()),
        services: None,
        alarms: vec![],
        seen: item.last_seen,
        applied: (item.applied, item.services),
    }
}

impl From<record::ClusterState> for ClusterState {
    fn from(state: record::ClusterState) -> Self {
        match state {
            record::ClusterState::Converged => Self::Converged,
            record::ClusterState::Converging => Self::Converging,
            record::ClusterState::Failed => Self::Failed,
            record::ClusterState::Unreachable => Self::Unreachable,
            record::ClusterState::NeverSeen => Self::NeverSeen,
        }
    }
}

impl ClusterState {
    /// What the command line and a hub call it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Converged => "converged",
            Self::Converging => "converging",
            Self::Failed => "failed",
            Self::Unreachable => "unreachable",
            Self::NeverSeen => "never-seen",
        }
    }

    fn tone(self) -> Tone {
        match self {
            Self::Converged => Tone::Good,
            Self::Converging | Self::NeverSeen => Tone::Wait,
            Self::Failed | Self::Unreachable => Tone::Bad,
        }
    }
}

/// Rows by state.
pub(super) fn count(rows: &[ClusterRow]) -> Counts {
    let mut counts = Counts::default();
    for row in rows {
        counts.add(match row.state {
            ClusterState::Converged => record::ClusterState::Converged,
            ClusterState::Converging => record::ClusterState::Converging,
            ClusterState::Failed => record::ClusterState::Failed,
            ClusterState::Unreachable => record::ClusterState::Unreachable,
            ClusterState::NeverSeen => record::ClusterState::NeverSeen,
        });
    }
    counts
}

/// The fleet by state, in one line.
pub(super) fn counted(counts: &Counts) -> String {
    let Counts { converged, converging, failed, unreachable, never_seen } = counts;
    format!(
        "{} clusters: {converged} converged, {converging} converging, {failed} failed, {unreachable} unreachable, {never_seen} never seen",
        counts.total()
    )
}

impl ClusterService {
    fn of(status: &ServiceStatus) -> Self {
        let state = match status.state {
            ServiceState::Applied => AtSite::Applied,
            ServiceState::Waiting => AtSite::Waiting,
            ServiceState::Held => AtSite::Held,
            ServiceState::Failed => AtSite::Failed,
        };
        let ServiceStatus { name, commit, message, objects, repairs, .. } = status.clone();
        Self { name, state, commit, message, objects, repairs }
    }
}

/// The columns.
pub(super) const HEADER: [&str; 7] = ["NAME", "STATE", "SERVICES", "REVISION", "SEEN", "LABELS", "MESSAGE"];

impl ClusterRow {
    /// Its cells.
    pub(super) fn cells(&self, now: UnixSeconds) -> [Cell; 7] {
        let (applied, services) = self.applied;
        let labels: Vec<String> = self.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let seen =
            self.seen.map_or_else(String::new, |seen| format!("{} ago", age(now.saturating_sub(seen))));
        [
            Cell::plain(self.name.as_str()),
            Cell::toned(self.state.word(), self.state.tone()),
            Cell::plain(&format!("{applied}/{services}")),
            Cell::plain(self.revision.as_deref().unwrap_or_default()),
            Cell::plain(&seen),
            Cell::plain(&labels.join(",")),
            Cell::plain(&self.message),
        ]
    }
}
