//! When clusters were heard, in Redis: how it is laid out there. Pure but for the commands it makes.
//!
//! Each of the 1,024 shards is [`PARTS`] hashes of cluster → seconds, small enough (250 clusters of a
//! million) that Redis keeps them in its compact form: some 33 bytes a cluster, where a large hash takes a
//! hundred. A hash expires when nothing is added to it any more; a single field of it does not, and whoever counts the
//! fleet deletes those of clusters that are gone. `farshore:seen:since` says since when this Redis listens.

use std::collections::BTreeMap;

use farshore_shared::digest::Digest;
use farshore_shared::names::Name;
use farshore_shared::wire::UnixSeconds;
use redis::{Cmd, Pipeline};

use super::SeenShard;
use crate::record::{SeenTable, shard_of};

/// How many hashes a shard is.
const PARTS: u8 = 4;
/// How long a hash is kept to which nothing was added, in seconds.
const LIFE: u64 = 3 * 86_400;
/// How many fields are read at once, about.
const AT_ONCE: usize = 1_000;
/// How many clusters of a shard are read at the most: a hundred times those of a fleet of a million.
pub(super) const SHARD_LIMIT: usize = 100_000;
const SINCE: &str = "farshore:seen:since";

fn key(shard: u16, part: u8) -> String {
    format!("farshore:seen:{shard}:{part}")
}

fn part_of(cluster: &Name) -> u8 {
    Digest::of(cluster.as_str().as_bytes()).as_bytes()[2] % PARTS
}

/// The commands that note times, all in one round trip.
pub(super) fn note(times: &SeenTable) -> Pipeline {
    let mut hashes: BTreeMap<(u16, u8), Vec<(&str, UnixSeconds)>> = BTreeMap::new();
    for (cluster, at) in times {
        hashes.entry((shard_of(cluster), part_of(cluster))).or_default().push((cluster.as_str(), *at));
    }
    let mut pipe = redis::pipe();
    if let Some(first) = times.values().min() {
        pipe.cmd("SET").arg(SINCE).arg(first).arg("NX").ignore();
        pipe.cmd("EXPIRE").arg(SINCE).arg(LIFE).ignore();
    }
    for ((shard, part), fields) in hashes {
        let key = key(shard, part);
        pipe.cmd("HSET").arg(&key).arg(&fields).ignore();
        pipe.cmd("EXPIRE").arg(&key).arg(LIFE).ignore();
    }
    pipe
}

/// The commands that forget clusters, all in one round trip.
pub(super) fn forget(clusters: &[Name]) -> Pipeline {
    let mut hashes: BTreeMap<(u16, u8), Vec<&str>> = BTreeMap::new();
    for cluster in clusters {
        hashes.entry((shard_of(cluster), part_of(cluster))).or_default().push(cluster.as_str());
    }
    let mut pipe = redis::pipe();
    for ((shard, part), fields) in hashes {
        pipe.cmd("HDEL").arg(key(shard, part)).arg(&fields).ignore();
    }
    pipe
}

/// The commands that begin to read a shard, in one round trip: mostly they read all of it.
pub(super) fn begin(shard: u16) -> Pipeline {
    let mut pipe = redis::pipe();
    pipe.cmd("GET").arg(SINCE);
    for part in 0..PARTS {
        pipe.add_command(scan(shard, part, 0));
    }
    pipe
}

/// Redis does nothing else meanwhile: a hash that has grown large is read piece by piece.
fn scan(shard: u16, part: u8, cursor: u64) -> Cmd {
    let mut command = redis::cmd("HSCAN");
    command.arg(key(shard, part)).arg(cursor).arg("COUNT").arg(AT_ONCE);
    command
}

/// A piece of a hash, and where the next one begins; 0 for none.
pub(super) type Page = (u64, Vec<(String, String)>);

/// What [`begin`] was answered.
pub(super) type Begun = (Option<String>, Page, Page, Page, Page);

/// A shard that is being read.
pub(super) struct Reading {
    shard: u16,
    found: SeenShard,
    /// The parts that are not read to their end, and where to go on.
    left: Vec<(u8, u64)>,
}

impl Reading {
    /// With what was read first.
    pub(super) fn of(shard: u16, (since, a, b, c, d): Begun) -> Self {
        let since = since.and_then(|since| since.parse().ok());
        let found = SeenShard { since, times: SeenTable::new() };
        let mut reading = Self { shard, found, left: Vec::new() };
        for (part, page) in (0..PARTS).zip([a, b, c, d]) {
            reading.add(part, page);
        }
        reading
    }

    /// The command that reads on; none if all is read that is taken. Where somebody else writes, there is no end.
    pub(super) fn more(&self) -> Option<Cmd> {
        let (part, cursor) = self.left.last().filter(|_| self.found.times.len() < SHARD_LIMIT)?;
        Some(scan(self.shard, *part, *cursor))
    }

    /// Takes what that was answered.
    pub(super) fn take(&mut self, page: Page) {
        if let Some((part, _)) = self.left.pop() {
            self.add(part, page);
        }
    }

    /// Whether there is more than is read.
    pub(super) fn is_cut(&self) -> bool {
        !self.left.is_empty()
    }

    /// All that was read.
    pub(super) fn found(self) -> SeenShard {
        self.found
    }

    /// Somebody else's fields are left out.
    fn add(&mut self, part: u8, (next, fields): Page) {
        let times = fields.into_iter();
        let times = times.filter_map(|(cluster, at)| Some((cluster.try_into().ok()?, at.parse().ok()?)));
        self.found.times.extend(times);
        if next != 0 {
            self.left.push((part, next));
        }
    }
}
