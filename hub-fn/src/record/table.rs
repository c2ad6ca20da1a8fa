//! The table of groups: which has a body, and where.

use std::collections::{BTreeMap, BTreeSet};

use farshore_shared::digest::Digest;
use farshore_shared::names::{LabelKey, Name};
use farshore_shared::wire::{GroupId, Tombstone, UnixSeconds};
use serde::{Deserialize, Serialize};

/// Over how many objects the table of groups is spread.
pub const TABLE_SHARDS: usize = 16;

/// Every group that has a body.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Table(pub BTreeMap<GroupId, GroupRef>);

/// Where a group's body is, and what the publisher must know of it to decide the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupRef {
    /// The label values that its clusters share.
    pub values: BTreeMap<LabelKey, String>,
    /// The label keys by which clusters were told apart when the group was last judged whole. While clusters
    /// move because other keys are used now, the group is judged by these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<BTreeSet<LabelKey>>,
    /// The body's sequence.
    pub sequence: u64,
    /// The digest of the body's envelope.
    pub digest: Digest,
    /// The digest of what the body says, without its sequence and times.
    pub content: Digest,
    /// When the body expires.
    pub expires: UnixSeconds,
    /// The services in it, with their incarnations.
    pub services: BTreeMap<Name, u64>,
    /// The tombstones in it.
    pub tombstones: Vec<Buried>,
}

/// A tombstone in a body, and since when it is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Buried {
    /// The service.
    pub service: Name,
    /// Which life of that name has ended.
    pub incarnation: u64,
    /// The sequence of the first body with it; 0 where that was not noted.
    #[serde(default)]
    pub since: u64,
}

impl Buried {
    /// As a body says it.
    #[must_use]
    pub fn tombstone(&self) -> Tombstone {
        Tombstone { service: self.service.clone(), incarnation: self.incarnation }
    }
}

impl Table {
    /// In which shard a group is.
    #[must_use]
    pub fn shard_of(id: &GroupId) -> usize {
        usize::from(id.as_bytes()[0]) % TABLE_SHARDS
    }

    /// One of the shards.
    #[must_use]
    pub fn shard(&self, n: usize) -> Self {
        let of_shard = self.0.iter().filter(|(id, _)| Self::shard_of(id) == n);
        Self(of_shard.map(|(id, group)| (*id, group.clone())).collect())
    }

    /// The shards, in order.
    #[must_use]
    pub fn shards(&self) -> Vec<Self> {
        let mut shards = vec![Self::default(); TABLE_SHARDS];
        for (id, group) in &self.0 {
            shards[Self::shard_of(id)].0.insert(*id, group.clone());
        }
        shards
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shards_of_a_table_are_the_table() {
        let group = |n: u64| GroupRef {
            values: BTreeMap::new(),
            keys: None,
            sequence: n,
            digest: Digest::of(b"d"),
            content: Digest::of(b"c"),
            expires: 1,
            services: BTreeMap::new(),
            tombstones: vec![],
        };
        let table = Table((0..100u64).map(|n| (Digest::of(&n.to_be_bytes()), group(n))).collect());
        let shards = table.shards();
        assert_eq!(shards.len(), TABLE_SHARDS);
        assert!(shards.iter().all(|shard| !shard.0.is_empty()));
        let again = Table(shards.into_iter().flat_map(|shard| shard.0).collect());
        assert_eq!(again, table);
    }
}
