//! When clusters were last heard: kept in memory, flushed in batches to the index, or to the record where the
//! index keeps no times, merged by the later time. What is lost with a replica is heard again at the next poll.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use farshore_shared::names::Name;
use farshore_shared::wire::UnixSeconds;
use tracing::debug;

use crate::index::{Index, IndexError, Kept};
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

    /// Brings everything that was noted into the index, if that keeps times; else it stays noted.
    ///
    /// # Errors
    /// [`IndexError`]; everything is noted still.
    pub async fn pass_on(&self, index: &dyn Index) -> Result<(), IndexError> {
        let fresh = std::mem::take(&mut *self.fresh.lock().unwrap_or_else(PoisonError::into_inner));
        if fresh.is_empty() {
            return Ok(());
        }
        let kept = index.note_seen(&fresh).await;
        if !matches!(kept, Ok(Kept::Yes)) {
            self.take_back(fresh);
        }
        kept.map(|_| ())
    }

    /// Brings everything that was noted to where it is kept: into the index, or, where that keeps no times or
    /// is away, into the record, merged by the later time.
    ///
    /// # Errors
    /// [`ObjectsError`]; what was not written by then is noted again, unless something later was.
    pub async fn flush(&self, index: &dyn Index, objects: &dyn Objects) -> Result<(), ObjectsError> {
        let fresh = std::mem::take(&mut *self.fresh.lock().unwrap_or_else(PoisonError::into_inner));
        if fresh.is_empty() {
            return Ok(());
        }
        match index.note_seen(&fresh).await {
            Ok(Kept::Yes) => return Ok(()),
            Ok(Kept::No) => {}
            Err(error) => debug!(%error, "index takes no last-seen times: they go into the record"),
        }
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

    fn take_back(&self, times: SeenTable) {
        let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        // What was noted meanwhile is less, and later.
        let later = std::mem::replace(&mut *fresh, times);
        fresh.extend(later);
    }

    fn note_at_least(&self, cluster: &Name, at: UnixSeconds) {
        let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        let known = fresh.entry(cluster.clone()).or_insert(at);
        *known = at.max(*known);
    }
}

/// Merges times into one table of the record, by the later time.
pub(crate) async fn merge(objects: &dyn Objects, shard: u16, times: &SeenTable) -> Result<(), ObjectsError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::memory::Memory;
    use crate::objects::Condition;
    use crate::objects::disk::Disk;

    async fn read(objects: &Disk, cluster: &Name) -> Option<UnixSeconds> {
        let stored =
            objects.get(&record::seen(record::seen_shard(cluster)), SEEN_LIMIT).await.expect("a disk")?;
        serde_json::from_slice::<SeenTable>(&stored.bytes).expect("a table").get(cluster).copied()
    }

    #[tokio::test]
    async fn the_later_time_wins_whoever_flushes_last_and_a_damaged_table_is_begun_anew() {
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        let objects = Disk::open(folder.path()).expect("an empty folder");
        let cluster: Name = "harbour".parse().expect("a name");
        let (one, other) = (Seen::default(), Seen::default());
        one.note(&cluster, 20);
        other.note(&cluster, 10);
        one.flush(&Memory::new(), &objects).await.expect("a disk");
        other.flush(&Memory::new(), &objects).await.expect("a disk");
        assert_eq!(read(&objects, &cluster).await, Some(20));
        let key = record::seen(record::seen_shard(&cluster));
        let _ = objects.put(&key, Bytes::from_static(b"{"), Condition::Always).await.expect("a disk");
        one.note(&cluster, 30);
        one.flush(&Memory::new(), &objects).await.expect("a disk");
        assert_eq!(read(&objects, &cluster).await, Some(30));
    }

    #[tokio::test]
    async fn what_could_not_be_flushed_is_flushed_the_next_time() {
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        let objects = Disk::open(folder.path()).expect("an empty folder");
        let (seen, cluster) = (Seen::default(), "harbour".parse::<Name>().expect("a name"));
        seen.note(&cluster, 20);
        // A folder in the table's place, as no store of ours makes it.
        let key = record::seen(record::seen_shard(&cluster));
        let blocked =
            crate::objects::faulty::Faulty::new(std::sync::Arc::new(objects), std::sync::Arc::new(Down));
        seen.flush(&Memory::new(), &blocked).await.expect_err("the store is away");
        let objects = Disk::open_existing(folder.path()).expect("the same folder");
        seen.flush(&Memory::new(), &objects).await.expect("a disk");
        assert_eq!(read(&objects, &cluster).await, Some(20), "{key}");
    }

    #[tokio::test]
    async fn what_the_index_does_not_keep_stays_for_the_record() {
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        let objects = Disk::open(folder.path()).expect("an empty folder");
        let (seen, index) = (Seen::default(), Memory::new());
        let [cluster, other] = ["harbour", "vault"].map(|name| name.parse::<Name>().expect("a name"));
        seen.note(&cluster, 20);
        seen.pass_on(&index).await.expect("memory answers");
        seen.note(&other, 30);
        seen.pass_on(&index).await.expect("memory answers");
        seen.flush(&index, &objects).await.expect("a disk");
        assert_eq!(read(&objects, &cluster).await, Some(20));
        assert_eq!(read(&objects, &other).await, Some(30));
    }

    #[derive(Debug)]
    struct Down;

    #[async_trait::async_trait]
    impl crate::objects::faulty::Steps for Down {
        async fn before(&self, _: crate::objects::Operation, _: &str) -> crate::objects::faulty::Decision {
            crate::objects::faulty::Decision::Fail
        }
    }
}
