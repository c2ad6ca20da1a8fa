//! When clusters were last heard: kept in memory, flushed to the record in batches, merged by the later
//! time. What is lost with a replica is heard again at the next poll.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use farshore_shared::names::Name;
use farshore_shared::wire::UnixSeconds;

use crate::objects::{Objects, ObjectsError, update};
use crate::record::{self, SeenTable};

/// The most bytes of one last-seen table.
pub const SEEN_LIMIT: u64 = 32 << 20;

/// The times that are not flushed yet.
#[derive(Debug, Default)]
pub struct Seen {
    fresh: Mutex<BTreeMap<Name, UnixSeconds>>,
}

impl Seen {
    /// Notes that a cluster was heard.
    pub fn note(&self, cluster: &Name, now: UnixSeconds) {
        let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        match fresh.get_mut(cluster) {
            Some(at) => *at = now,
            None => drop(fresh.insert(cluster.clone(), now)),
        }
    }

    /// Merges everything that was noted into the record.
    ///
    /// # Errors
    /// [`ObjectsError`]; what was not written by then is noted again, unless something later was.
    pub async fn flush(&self, objects: &dyn Objects) -> Result<(), ObjectsError> {
        let fresh = std::mem::take(&mut *self.fresh.lock().unwrap_or_else(PoisonError::into_inner));
        let mut shards: BTreeMap<u16, SeenTable> = BTreeMap::new();
        for (cluster, at) in fresh {
            shards.entry(record::seen_shard(&cluster)).or_default().insert(cluster, at);
        }
        while let Some((shard, times)) = shards.pop_first() {
            if let Err(error) = merge(objects, shard, &times).await {
                for (cluster, at) in times.iter().chain(shards.values().flatten()) {
                    self.note_at_least(cluster, *at);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn note_at_least(&self, cluster: &Name, at: UnixSeconds) {
        let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        let known = fresh.entry(cluster.clone()).or_insert(at);
        *known = at.max(*known);
    }
}

async fn merge(objects: &dyn Objects, shard: u16, times: &SeenTable) -> Result<(), ObjectsError> {
    update(objects, &record::seen(shard), SEEN_LIMIT, |stored| {
        // A damaged table is begun anew: it holds nothing that does not come again.
        let mut table: SeenTable =
            stored.and_then(|stored| serde_json::from_slice(&stored.bytes).ok()).unwrap_or_default();
        for (cluster, at) in times {
            let known = table.entry(cluster.clone()).or_insert(*at);
            *known = (*known).max(*at);
        }
        Some(Bytes::from(serde_json::to_vec(&table).expect("names and numbers make JSON")))
    })
    .await?;
    Ok(())
}
