//! The directory: who is enrolled, with which key, in which group. What replicas and publishers load
//! at scale, instead of two objects per cluster.
//!
//! It is a snapshot and a log. The snapshot is 1,024 shards, named by their digests in a [`Manifest`], which
//! the signed [`DirectoryHead`] names. The log is numbered objects, each created once and signed; a part
//! says how some clusters are now. A reader takes the snapshot, then every part after its position, in any
//! order: of two entries for one cluster the newer one counts ([`Entry::is_newer_than`]), so that order and
//! repetition do not matter.
//!
//! Rosters and registrations themselves stay objects of their own. Whoever writes one appends to the log
//! afterwards; a publisher that was killed in between has left a directory that is behind, never one that
//! is ahead, and the next publisher decides the same change again.

use std::collections::BTreeMap;

use farshore_shared::digest::Digest;
use farshore_shared::keys::PublicKey;
use farshore_shared::names::{Labels, Name};
use farshore_shared::wire::{Footprint, GroupId, Roster, Tombstone, UnixSeconds};
use serde::{Deserialize, Serialize};

/// The most bytes of a part of the log, in its envelope.
pub const LOG_LIMIT: usize = 4 << 20;
/// The most bytes of a manifest.
pub const MANIFEST_LIMIT: usize = 1 << 20;
/// The most bytes of one shard, compressed and not.
pub const SHARD_LIMIT: usize = 64 << 20;

/// The pointer to the newest snapshot; it moves by compare-and-swap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DirectoryHead {
    /// Given by root.
    pub epoch: u64,
    /// The last part of the log that the snapshot holds; the first part is 1, and 0 is none.
    pub position: u64,
    /// The [`Manifest`].
    pub manifest: Digest,
    /// When it was signed.
    pub issued: UnixSeconds,
}

/// The shards of a snapshot. Believed for its digest in the signed head.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Every shard that has an entry, by its number.
    pub shards: BTreeMap<u16, ShardRef>,
}

/// Where a shard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShardRef {
    /// SHA-256 of its compressed bytes.
    pub digest: Digest,
    /// Bytes, compressed.
    pub size: u64,
    /// Clusters in it.
    pub clusters: u32,
}

/// A shard: its entries, sorted by cluster, in JSON and compressed with zstd. Believed for its digest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShardPart(pub Vec<Entry>);

/// One part of the log, created once under its position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogPart {
    /// Given by root.
    pub epoch: u64,
    /// Its number.
    pub position: u64,
    /// How some clusters are now.
    pub entries: Vec<Entry>,
}

/// How one cluster is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Which.
    pub cluster: Name,
    /// The epoch of its registration, or of its removal.
    pub epoch: u64,
    /// The sequence of its registration, or of its removal.
    pub sequence: u64,
    /// What it signs with; none once it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PublicKey>,
    /// Labels of its registration.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Its roster, once it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roster: Option<RosterRef>,
}

/// What is to be known of a roster without reading it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RosterRef {
    /// The group.
    pub group: GroupId,
    /// The lowest group sequence that the cluster may accept.
    pub floor: u64,
    /// Given by root.
    pub epoch: u64,
    /// Higher is newer, within one epoch.
    pub sequence: u64,
    /// The digest of its envelope.
    pub digest: Digest,
    /// After this it is not accepted any more.
    pub expires: UnixSeconds,
    /// The labels in it, where they are not those of the registration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Labels>,
    /// The tombstones in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tombstones: Vec<Tombstone>,
    /// What it says of its agent's footprint.
    #[serde(default, skip_serializing_if = "Footprint::is_empty")]
    pub footprint: Footprint,
}

impl RosterRef {
    /// What an entry says of a roster whose envelope has this digest, of a cluster that was registered so.
    #[must_use]
    pub fn of(roster: &Roster, digest: Digest, registered: &Labels) -> Self {
        Self {
            group: roster.group,
            floor: roster.floor,
            epoch: roster.epoch,
            sequence: roster.sequence,
            digest,
            expires: roster.expires,
            labels: (roster.labels != *registered).then(|| roster.labels.clone()),
            tombstones: roster.tombstones.clone(),
            footprint: roster.footprint,
        }
    }
}

impl Entry {
    /// Whether it is of a later life of the cluster, or has a later roster in the same one.
    #[must_use]
    pub fn is_newer_than(&self, other: &Self) -> bool {
        self.order() > other.order()
    }

    /// That a cluster is no part of the fleet any more.
    #[must_use]
    pub fn removed(cluster: Name, epoch: u64, sequence: u64) -> Self {
        Self { cluster, epoch, sequence, key: None, labels: Labels::default(), roster: None }
    }

    /// Whether the cluster is enrolled.
    #[must_use]
    pub fn is_enrolled(&self) -> bool {
        self.key.is_some()
    }

    fn order(&self) -> (u64, u64, u64, u64) {
        let roster = self.roster.as_ref().map_or((0, 0), |roster| (roster.epoch, roster.sequence));
        (self.epoch, self.sequence, roster.0, roster.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_entries_the_later_life_counts_and_then_the_later_roster() {
        let roster = |sequence| RosterRef {
            group: Digest::of(b"g"),
            floor: 1,
            epoch: 1,
            sequence,
            digest: Digest::of(b"r"),
            expires: 1,
            labels: None,
            tombstones: vec![],
            footprint: Default::default(),
        };
        let entry = |sequence, roster| Entry {
            cluster: "harbour".parse().expect("a name"),
            epoch: 1,
            sequence,
            key: None,
            labels: Labels::default(),
            roster,
        };
        assert!(entry(5, Some(roster(9))).is_newer_than(&entry(5, Some(roster(8)))));
        assert!(entry(5, Some(roster(9))).is_newer_than(&entry(5, None)));
        assert!(entry(6, None).is_newer_than(&entry(5, Some(roster(9)))), "removed, or enrolled anew");
        assert!(!entry(5, Some(roster(9))).is_newer_than(&entry(5, Some(roster(9)))));
    }
}
