//! The index of one process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use farshore_shared::names::Name;
use futures::{StreamExt as _, stream};
use moka::future::Cache;
use moka::ops::compute::Op;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::{Entry, Index, IndexError, Kept, News, NewsStream, SeenShard, TTL, check_size};
use crate::record::SeenTable;

/// What all entries together may hold, unless said otherwise.
const MOST_BYTES_OF_ALL: u64 = 64 * 1024 * 1024;
/// What an entry costs beside its key and bytes, so that many empty ones are bounded, too.
const OVERHEAD: usize = 128;
const MOST_LEASES: usize = 10_000;
/// How much of the news may wait for a slow listener, who then looks at everything.
const NEWS_WAITING: usize = 64;

/// An index in memory: bounded in bytes, and gone with the process.
#[derive(Debug)]
pub struct Memory {
    entries: Cache<String, Entry>,
    leases: Mutex<HashMap<String, Lease>>,
    news: broadcast::Sender<News>,
}

#[derive(Debug)]
struct Lease {
    holder: String,
    until: Instant,
}

impl Memory {
    /// An empty index that keeps entries for [`TTL`].
    #[must_use]
    pub fn new() -> Self {
        Self::with(TTL, MOST_BYTES_OF_ALL)
    }

    /// An empty index with its own time to live, and its own limit on the bytes of all entries.
    #[must_use]
    pub fn with(ttl: Duration, most_bytes: u64) -> Self {
        let entries = Cache::builder()
            .max_capacity(most_bytes)
            .weigher(|key: &String, entry: &Entry| {
                u32::try_from(key.len() + entry.bytes.len() + OVERHEAD).unwrap_or(u32::MAX)
            })
            .time_to_live(ttl)
            .build();
        let (news, _) = broadcast::channel(NEWS_WAITING);
        Self { entries, leases: Mutex::default(), news }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Index for Memory {
    async fn get(&self, key: &str) -> Result<Option<Entry>, IndexError> {
        Ok(self.entries.get(key).await)
    }

    async fn put(&self, key: &str, entry: &Entry) -> Result<(), IndexError> {
        check_size(key, entry)?;
        let new = entry.clone();
        self.entries
            .entry(key.to_owned())
            .and_compute_with(async |held| match held {
                Some(held) if held.value().version > new.version => Op::Nop,
                _ => Op::Put(new),
            })
            .await;
        Ok(())
    }

    async fn forget(&self, key: &str) -> Result<(), IndexError> {
        self.entries.invalidate(key).await;
        Ok(())
    }

    async fn lease(&self, name: &str, holder: &str, ttl: Duration) -> Result<bool, IndexError> {
        let now = Instant::now();
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        leases.retain(|_name, lease| lease.until > now);
        match leases.get(name) {
            Some(lease) if lease.holder != holder => return Ok(false),
            // A lease only saves work: with too many of them, the work is done.
            None if leases.len() >= MOST_LEASES => return Ok(true),
            Some(_) | None => {}
        }
        leases.insert(name.to_owned(), Lease { holder: holder.to_owned(), until: now + ttl });
        Ok(true)
    }

    async fn note_seen(&self, _: &SeenTable) -> Result<Kept, IndexError> {
        Ok(Kept::No)
    }

    async fn seen(&self, _: u16) -> Result<Option<SeenShard>, IndexError> {
        Ok(None)
    }

    async fn forget_seen(&self, _: &[Name]) -> Result<(), IndexError> {
        Ok(())
    }

    async fn tell(&self, news: &News) -> Result<(), IndexError> {
        // Nobody may be listening.
        let _ = self.news.send(news.clone());
        Ok(())
    }

    fn hear(&self) -> NewsStream {
        let heard = stream::unfold(self.news.subscribe(), async |mut heard| match heard.recv().await {
            Ok(news) => Some((news, heard)),
            Err(RecvError::Lagged(_)) => Some((News::Missed, heard)),
            Err(RecvError::Closed) => None,
        });
        // Without its index nobody tells anything any more; a stream that ended would be polled again.
        heard.chain(stream::pending()).boxed()
    }
}
