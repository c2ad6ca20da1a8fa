//! The index: what a replica may look up faster than in the record, and may lose at any time.
//!
//! Everything here can be rebuilt from the objects; an index that is away, empty or full of rubbish
//! costs latency only. Nothing here may be the reason for which something is published, signed or
//! removed.
//!
//! - [`Index`]: the port. [`memory`] and `redis` implement it.

use std::error::Error;
use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use farshore_shared::names::Name;
use farshore_shared::wire::UnixSeconds;

use crate::record::SeenTable;

pub mod measured;
pub mod memory;
mod news;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redis")]
mod redis_seen;

pub use news::{News, NewsStream};

/// How long an entry is kept unless said otherwise.
pub const TTL: Duration = Duration::from_secs(300);

/// The most bytes of one entry: no document of the wire is larger.
pub const MOST_BYTES: usize = 4 * 1024 * 1024;

/// One value and how new it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its version, a sequence number for instance; the higher one wins.
    pub version: u64,
    /// At most [`MOST_BYTES`].
    pub bytes: Bytes,
}

/// Whether an index keeps when clusters were heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "what is not kept belongs into the record"]
pub enum Kept {
    /// It does.
    Yes,
    /// It does not: the record has to.
    No,
}

/// When the clusters of a shard were heard, as far as an index knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenShard {
    /// Since when it listens, if anything was ever noted: whom it does not know may have been heard before.
    pub since: Option<UnixSeconds>,
    /// The times.
    pub times: SeenTable,
}

/// A map that forgets.
#[async_trait]
pub trait Index: Send + Sync + Debug {
    /// The entry of a key; `None` when there is none, or none any more.
    ///
    /// # Errors
    /// When the index is away, or what it holds is not what was put.
    async fn get(&self, key: &str) -> Result<Option<Entry>, IndexError>;

    /// Keeps an entry for the index's time to live, unless it holds a higher version.
    ///
    /// A lower version does not prolong the higher one either, so that a version which is wrong and
    /// too high is gone after the time to live.
    ///
    /// # Errors
    /// When the index is away, or the entry has more than [`MOST_BYTES`].
    async fn put(&self, key: &str, entry: &Entry) -> Result<(), IndexError>;

    /// Forgets the entry of a key.
    ///
    /// # Errors
    /// When the index is away.
    async fn forget(&self, key: &str) -> Result<(), IndexError>;

    /// Whether `holder` holds the lease of this name from now on for `ttl`: it was free, or its own.
    ///
    /// It only saves work: two holders at once must do no harm, because the index may forget the
    /// first one.
    ///
    /// # Errors
    /// When the index is away.
    async fn lease(&self, name: &str, holder: &str, ttl: Duration) -> Result<bool, IndexError>;

    /// Keeps when clusters were heard, until they are forgotten, or nothing was noted near them for a few days; it may
    /// be lost, and of two times for one cluster the one that is noted last stays.
    ///
    /// # Errors
    /// When the index is away.
    async fn note_seen(&self, times: &SeenTable) -> Result<Kept, IndexError>;

    /// When the clusters of a shard of the record were heard; `None` when this index does not keep it.
    ///
    /// # Errors
    /// When the index is away.
    async fn seen(&self, shard: u16) -> Result<Option<SeenShard>, IndexError>;

    /// Forgets when clusters were heard: they were removed.
    ///
    /// # Errors
    /// When the index is away. Whoever counts the fleet finds later that the directory does not have them.
    async fn forget_seen(&self, clusters: &[Name]) -> Result<(), IndexError>;

    /// Tells every process that listens at this moment. It may be lost, and it may come twice.
    ///
    /// # Errors
    /// When the index is away.
    async fn tell(&self, news: &News) -> Result<(), IndexError>;

    /// What is told from now on. The stream never ends; [`News::Missed`] says that some may be lost.
    fn hear(&self) -> NewsStream;
}

/// A call to the index that failed; the caller goes on without it.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// It did not answer in time, or is known to be away.
    #[error("the index did not answer (key {key})")]
    Away {
        /// The key or name that was asked for.
        key: String,
        /// Why.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// It answered, and the answer is of no use.
    #[error("the index gave an answer of no use (key {key}, {reason})")]
    Garbage {
        /// The key or name that was asked for.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An entry is too large to be kept.
    #[error("an entry is too large for the index (key {key}, {size} bytes, limit {MOST_BYTES})")]
    TooLarge {
        /// Its key.
        key: String,
        /// Its size in bytes.
        size: usize,
    },
}

/// Refuses what no index keeps.
fn check_size(key: &str, entry: &Entry) -> Result<(), IndexError> {
    let size = entry.bytes.len();
    if size > MOST_BYTES {
        return Err(IndexError::TooLarge { key: key.to_owned(), size });
    }
    Ok(())
}
