//! When clusters were heard, in Redis: how it is laid out there. Pure but for the commands it makes.
//!
//! Each of the 1,024 shards is [`PARTS`] hashes of cluster → seconds, small enough (250 clusters of a
//! million) that Redis keeps them in its compact form: some 33 bytes a cluster, where a large hash takes a
//! hundred. `farshore:seen:since` says since when this Redis listens.

use std::collections::BTreeMap;

use farshore_shared::digest::Digest;
use farshore_shared::names::Name;
use farshore_shared::wire::UnixSeconds;
use redis::Pipeline;

use super::SeenShard;
use crate::record::{SeenTable, shard_of};

/// How many hashes a shard is.
const PARTS: u8 = 4;
/// How long a hash is kept to which nothing was added, in seconds.
const LIFE: u64 = 3 * 86_400;
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

/// The commands that read a shard.
pub(super) fn read(shard: u16) -> Pipeline {
    let mut pipe = redis::pipe();
    pipe.cmd("GET").arg(SINCE);
    for part in 0..PARTS {
        pipe.cmd("HGETALL").arg(key(shard, part));
    }
    pipe
}

/// What [`read`] was answered. Somebody else's fields are left out.
pub(super) type Answer = (
    Option<String>,
    BTreeMap<String, String>,
    BTreeMap<String, String>,
    BTreeMap<String, String>,
    BTreeMap<String, String>,
);

/// The times in an answer.
pub(super) fn found((since, a, b, c, d): Answer) -> SeenShard {
    let fields = [a, b, c, d].into_iter().flatten();
    let times = fields.filter_map(|(cluster, at)| Some((cluster.try_into().ok()?, at.parse().ok()?)));
    SeenShard { since: since.and_then(|since| since.parse().ok()), times: times.collect() }
}
