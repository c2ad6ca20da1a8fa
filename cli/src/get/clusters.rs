//! Clusters: whether each is as it should be. Pure.

use clap::ValueEnum;
use farshore_hub_fn::publish::intend::labels_of;
use farshore_hub_fn::publish::state::Published;
use farshore_hub_fn::record::Table;
use farshore_shared::names::{Labels, Name};
use farshore_shared::wire::{ServiceState, ServiceStatus, UnixSeconds};
use schemars::JsonSchema;
use serde::Serialize;

use crate::record::Known;
use crate::table::{Cell, Tone};
use crate::time::{age, rfc3339};

/// A cluster is unreachable when it was not heard for so many polls,
const POLLS_MISSED: u64 = 3;
/// and so many seconds.
const GRACE: u64 = 60;
/// The poll interval of a cluster that has not told its own, in seconds.
const POLL: u64 = 120;

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
    /// Its services, as it last told them.
    pub(super) services: Vec<ClusterService>,
    /// What its agent wants a person to look at.
    pub(super) alarms: Vec<String>,
    #[serde(skip)]
    seen: Option<UnixSeconds>,
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
    /// A removal is held back until a person decides.
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
    // A site's own clock may be ahead: it does not count beyond ours.
    let seen = known.seen.or_else(|| status.map(|status| status.at.min(now)));
    let (state, message) = judge(known, &published.table, seen, now);
    ClusterRow {
        labels: labels_of(&published.intent, &name, &known.registration.labels),
        name,
        state,
        revision: status.and_then(|status| status.holds).map(|holds| holds.group.to_string()),
        message,
        last_seen: seen.and_then(rfc3339),
        group: known.roster.as_ref().map(|roster| roster.group.to_string()),
        services: status.map_or_else(Vec::new, |s| s.services.iter().map(ClusterService::of).collect()),
        alarms: status.map_or_else(Vec::new, |status| status.alarms.clone()),
        seen,
    }
}

fn judge(
    known: &Known,
    table: &Table,
    seen: Option<UnixSeconds>,
    now: UnixSeconds,
) -> (ClusterState, String) {
    let Some(seen) = seen else {
        return (ClusterState::NeverSeen, "enrolled, but never heard: is its agent running?".into());
    };
    let status = known.status.as_ref();
    let poll = status.map_or(POLL, |status| status.poll_seconds);
    if now.saturating_sub(seen) > poll.saturating_mul(POLLS_MISSED).saturating_add(GRACE) {
        return (ClusterState::Unreachable, format!("not heard for {}", age(seen, now)));
    }
    let Some(status) = status else {
        return (ClusterState::Converging, "has not told its state yet".into());
    };
    let problem = status.services.iter().find(|service| service.state == ServiceState::Failed);
    if let Some(service) = problem {
        return (ClusterState::Failed, told(service));
    }
    let problem = status.services.iter().find(|service| service.state != ServiceState::Applied);
    if let Some(service) = problem {
        return (ClusterState::Converging, told(service));
    }
    let alarm = status.alarms.first().cloned();
    match lag(known, table) {
        Some(lag) => (ClusterState::Converging, alarm.unwrap_or(lag)),
        None => (ClusterState::Converged, alarm.unwrap_or_default()),
    }
}

/// What a cluster does not hold of what is published for it.
fn lag(known: &Known, table: &Table) -> Option<String> {
    let Some(roster) = &known.roster else { return Some("no roster is published for it yet".into()) };
    let Some(group) = table.0.get(&roster.group) else {
        return Some("nothing is published for its group yet".into());
    };
    let Some(holds) = known.status.as_ref().and_then(|status| status.holds) else {
        return Some("has accepted nothing yet".into());
    };
    // The roster, too: bodies of two groups may have the same sequence.
    if holds.epoch == roster.epoch && holds.group == group.sequence && holds.roster >= roster.sequence {
        return None;
    }
    Some(match holds.group == group.sequence {
        true => "has not accepted its newest roster yet".into(),
        false => format!("holds {}, published is {}", holds.group, group.sequence),
    })
}

fn told(service: &ServiceStatus) -> String {
    let state = match service.state {
        ServiceState::Applied => "applied",
        ServiceState::Waiting => "waiting",
        ServiceState::Held => "held",
        ServiceState::Failed => "failed",
    };
    let failure = service.failures.first().map(|failure| format!("{}: {}", failure.object, failure.message));
    let why = if service.message.is_empty() { failure.unwrap_or_default() } else { service.message.clone() };
    let colon = if why.is_empty() { "" } else { ": " };
    format!("service {} {state}{colon}{why}", service.name)
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
        let state = match self.state {
            ClusterState::Converged => Cell::toned("converged", Tone::Good),
            ClusterState::Converging => Cell::toned("converging", Tone::Wait),
            ClusterState::Failed => Cell::toned("failed", Tone::Bad),
            ClusterState::Unreachable => Cell::toned("unreachable", Tone::Bad),
            ClusterState::NeverSeen => Cell::toned("never-seen", Tone::Wait),
        };
        let applied = self.services.iter().filter(|service| service.state == AtSite::Applied).count();
        let labels: Vec<String> = self.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let seen = self.seen.map_or_else(String::new, |seen| format!("{} ago", age(seen, now)));
        [
            Cell::plain(self.name.as_str()),
            state,
            Cell::plain(&format!("{applied}/{}", self.services.len())),
            Cell::plain(self.revision.as_deref().unwrap_or_default()),
            Cell::plain(&seen),
            Cell::plain(&labels.join(",")),
            Cell::plain(&self.message),
        ]
    }
}
