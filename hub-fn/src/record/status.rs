//! What sites say of themselves, in the record: a log that is appended to before a `204`, the shards that it
//! is folded into, and one object that counts them.
//!
//! A shard is one of 16 *leaves*, each of 64 of the [`SHARDS`](super::SHARDS) that everything about clusters
//! is spread over. A leaf that has grown beyond [`SPLIT_AT`] clusters is split, once and for ever: then each
//! of its 64 shards is an object of its own, and the leaf only says so. So a small fleet costs at most 16
//! objects a fold, and a million clusters are 1,024 objects of a thousand each.

use std::collections::BTreeMap;

use farshore_shared::digest::Digest;
use farshore_shared::dsse::Envelope;
use farshore_shared::names::Name;
use farshore_shared::wire::{GroupId, Holds, ServiceState, UnixSeconds};
use serde::{Deserialize, Serialize};
use ulid::Ulid;

use super::{SHARDS, key, shard};
use crate::objects::Key;

/// Where the log of reports begins.
pub const STATUS_LOG: &str = "status-log/";
/// How many leaves there are.
pub const LEAVES: u16 = 16;
/// A leaf that holds more clusters than this is split.
pub const SPLIT_AT: usize = 1000;
/// The most bytes of one object of the log, before compression.
pub const STATUS_LOG_LIMIT: usize = 16 << 20;
/// The most bytes of one object of statuses, and of what is packed in it.
pub const STATUS_SHARD_LIMIT: usize = 512 << 20;
/// The most bytes of the summary.
pub const SUMMARY_LIMIT: u64 = 16 << 20;
/// Where statuses of the layout before the log are: one object per cluster, below its shard's number.
pub const OLD_STATUSES: [&str; 2] = ["status/0", "status/1"];

/// One part of the log.
#[must_use]
pub fn status_log(id: Ulid) -> Key {
    key(format!("{STATUS_LOG}{id}"))
}

/// One object of statuses.
#[must_use]
pub fn status_place(place: Place) -> Key {
    match place {
        Place::Leaf(leaf) => key(format!("status/leaves/{leaf:02}")),
        Place::Shard(shard) => key(format!("status/shards/{shard:04}")),
    }
}

/// The counts.
#[must_use]
pub fn status_summary() -> Key {
    key("status/summary".into())
}

/// Where an object of statuses is laid aside that cannot be read.
#[must_use]
pub fn status_damaged(digest: Digest) -> Key {
    key(format!("status/damaged/{digest}"))
}

/// An object of statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// One of [`LEAVES`].
    Leaf(u16),
    /// One of [`SHARDS`], below a leaf that was split.
    Shard(u16),
}

impl Place {
    /// The leaf of a shard.
    #[must_use]
    pub fn leaf_of(shard: u16) -> Self {
        Self::Leaf(shard / (SHARDS / LEAVES))
    }

    /// The shards in it, in order.
    #[must_use]
    pub fn shards(self) -> std::ops::Range<u16> {
        match self {
            Self::Leaf(leaf) => {
                let wide = SHARDS / LEAVES;
                leaf * wide..(leaf + 1) * wide
            }
            Self::Shard(shard) => shard..shard + 1,
        }
    }
}

/// The shard of a cluster.
#[must_use]
pub fn shard_of(cluster: &Name) -> u16 {
    shard(cluster, SHARDS)
}

/// One report, as it was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Whose.
    pub cluster: Name,
    /// When a hub received it, in milliseconds since 1970.
    pub received: u64,
    /// A `Status`, as the cluster signed it.
    pub envelope: Envelope,
}

/// A part of the log: JSON, compressed with zstd.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StatusLog(pub Vec<Report>);

/// What a list of clusters shows of a report, without the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// Which life of the site's state folder.
    pub state_id: String,
    /// The report's number in it.
    pub sequence: u64,
    /// When a hub received it, in milliseconds since 1970.
    pub received: u64,
    /// How often the site polls, in seconds.
    pub poll_seconds: u64,
    /// What is accepted at the site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<Holds>,
    /// How far the service is that is least far; none where there is no service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<ServiceState>,
    /// Services at the site.
    pub services: u32,
    /// Those that are applied.
    pub applied: u32,
    /// What a person should look at first; cut after 300 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// How a cluster is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterState {
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

/// Clusters by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// See [`ClusterState::Converged`].
    pub converged: u64,
    /// See [`ClusterState::Converging`].
    pub converging: u64,
    /// See [`ClusterState::Failed`].
    pub failed: u64,
    /// See [`ClusterState::Unreachable`].
    pub unreachable: u64,
    /// See [`ClusterState::NeverSeen`].
    pub never_seen: u64,
}

impl Counts {
    /// Counts one cluster.
    pub fn add(&mut self, state: ClusterState) {
        *match state {
            ClusterState::Converged => &mut self.converged,
            ClusterState::Converging => &mut self.converging,
            ClusterState::Failed => &mut self.failed,
            ClusterState::Unreachable => &mut self.unreachable,
            ClusterState::NeverSeen => &mut self.never_seen,
        } += 1;
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.converged + self.converging + self.failed + self.unreachable + self.never_seen
    }
}

/// How the fleet was when it was counted last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// When.
    pub at: UnixSeconds,
    /// Every enrolled cluster.
    pub fleet: Counts,
    /// By group; clusters that have no roster yet are in none.
    pub groups: BTreeMap<GroupId, Counts>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_their_places_and_none_is_a_folder_of_another() {
        let keys = [
            status_log(Ulid::from_parts(1, 2)),
            status_place(Place::Leaf(9)),
            status_place(Place::Shard(628)),
            status_summary(),
            status_damaged(Digest::of(b"x")),
        ];
        let listed = keys.map(|key| key.to_string()).join("\n");
        insta::assert_snapshot!(listed.replace(&Digest::of(b"x").to_string(), "DIGEST"), @r"
        status-log/00000000010000000000000002
        status/leaves/09
        status/shards/0628
        status/summary
        status/damaged/DIGEST
        ");
    }

    #[test]
    fn every_shard_is_in_exactly_one_leaf() {
        let all: Vec<u16> = (0..LEAVES).flat_map(|leaf| Place::Leaf(leaf).shards()).collect();
        assert_eq!(all, (0..SHARDS).collect::<Vec<u16>>());
        assert!((0..SHARDS).all(|shard| Place::leaf_of(shard).shards().contains(&shard)));
    }
}
