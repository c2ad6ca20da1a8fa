//! How many bytes a view may take, and its caches of signed documents, which are bounded by them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use farshore_shared::digest::Digest;
use farshore_shared::names::Name;
use farshore_shared::wire::{Group, GroupId, Roster};
use moka::future::Cache;
use moka::policy::EvictionPolicy;

use super::Signed;
use crate::record::Table;

/// The most bytes of all clusters in memory, unless said otherwise.
pub const MEMORY_LIMIT: usize = 1 << 30;
/// The most bytes of signed documents in memory, unless said otherwise.
pub const DOCUMENTS_LIMIT: u64 = 512 << 20;
/// What one that is remembered takes beside its bytes, and how many times those: it is kept as it is sent, and
/// opened.
const OVERHEAD: usize = 512;
const COPIES: usize = 2;
/// How long a body that never changes is kept without being asked for.
const IDLE: Duration = Duration::from_secs(600);

/// How many bytes a view may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Of clusters: what is known of each without reading its documents.
    pub clusters: usize,
    /// Of signed documents and what is made of them, about: half of it for bodies of groups, a quarter for shards
    /// of their table, the rest for rosters and compressed answers.
    pub documents: u64,
}

impl Default for Room {
    fn default() -> Self {
        Self { clusters: MEMORY_LIMIT, documents: DOCUMENTS_LIMIT }
    }
}

/// One shard of the table of groups, with the bytes that it had.
#[derive(Debug)]
pub(super) struct Shelved {
    pub(super) table: Table,
    pub(super) size: usize,
}

/// What is published now is what everybody asks for next: it takes the room of what was asked for least recently,
/// however often that was.
fn newest_first() -> EvictionPolicy {
    EvictionPolicy::lru()
}

/// What something of so many bytes counts in a cache.
fn weight(bytes: usize) -> u32 {
    u32::try_from(bytes + OVERHEAD).unwrap_or(u32::MAX)
}

/// Rosters, which are replaced.
pub(super) fn rosters(documents: u64) -> Cache<Name, Arc<Signed<Roster>>> {
    let weigher = |_: &Name, roster: &Arc<Signed<Roster>>| weight(COPIES * roster.size);
    Cache::builder()
        .max_capacity(documents / 8)
        .weigher(weigher)
        .eviction_policy(newest_first())
        .time_to_live(IDLE)
        .build()
}

/// Bodies of groups, which never change.
pub(super) fn groups(documents: u64) -> Cache<(GroupId, u64), Arc<Signed<Group>>> {
    let weigher = |_: &(GroupId, u64), group: &Arc<Signed<Group>>| weight(COPIES * group.size);
    Cache::builder()
        .max_capacity(documents / 2)
        .weigher(weigher)
        .eviction_policy(newest_first())
        .time_to_idle(IDLE)
        .build()
}

/// Shards of the table of groups.
pub(super) fn tables(documents: u64) -> Cache<Digest, Arc<Shelved>> {
    let weigher = |_: &Digest, table: &Arc<Shelved>| weight(COPIES * table.size);
    Cache::builder()
        .max_capacity(documents / 4)
        .weigher(weigher)
        .eviction_policy(newest_first())
        .time_to_idle(IDLE)
        .build()
}

/// Compressed answers.
pub(super) fn packed(documents: u64) -> Cache<(GroupId, u64), Bytes> {
    let weigher = |_: &(GroupId, u64), bytes: &Bytes| weight(bytes.len());
    Cache::builder()
        .max_capacity(documents / 8)
        .weigher(weigher)
        .eviction_policy(newest_first())
        .time_to_idle(IDLE)
        .build()
}
