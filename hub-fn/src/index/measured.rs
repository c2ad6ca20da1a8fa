//! Any index, with its calls counted and timed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use farshore_shared::names::Name;

use super::{Entry, Index, IndexError, Kept, News, NewsStream, SeenShard};
use crate::metrics;
use crate::record::SeenTable;

/// An index whose calls are counted.
#[derive(Debug)]
pub struct Measured(Arc<dyn Index>);

impl Measured {
    /// Counts the calls to this index.
    #[must_use]
    pub fn new(inner: Arc<dyn Index>) -> Self {
        Self(inner)
    }
}

/// In the order of the labels.
#[derive(Clone, Copy)]
enum Call {
    Get,
    Put,
    Forget,
    Lease,
    Tell,
    NoteSeen,
    Seen,
}

async fn timed<T>(
    call: Call,
    work: impl Future<Output = Result<T, IndexError>> + Send,
) -> Result<T, IndexError> {
    let began = Instant::now();
    let outcome = work.await;
    metrics::index().count(call as usize, began.elapsed(), &outcome);
    outcome
}

#[async_trait]
impl Index for Measured {
    async fn get(&self, key: &str) -> Result<Option<Entry>, IndexError> {
        timed(Call::Get, self.0.get(key)).await
    }

    async fn put(&self, key: &str, entry: &Entry) -> Result<(), IndexError> {
        timed(Call::Put, self.0.put(key, entry)).await
    }

    async fn forget(&self, key: &str) -> Result<(), IndexError> {
        timed(Call::Forget, self.0.forget(key)).await
    }

    async fn lease(&self, name: &str, holder: &str, ttl: Duration) -> Result<bool, IndexError> {
        timed(Call::Lease, self.0.lease(name, holder, ttl)).await
    }

    async fn tell(&self, news: &News) -> Result<(), IndexError> {
        timed(Call::Tell, self.0.tell(news)).await
    }

    async fn note_seen(&self, times: &SeenTable) -> Result<Kept, IndexError> {
        timed(Call::NoteSeen, self.0.note_seen(times)).await
    }

    async fn seen(&self, shard: u16) -> Result<Option<SeenShard>, IndexError> {
        timed(Call::Seen, self.0.seen(shard)).await
    }

    async fn forget_seen(&self, clusters: &[Name]) -> Result<(), IndexError> {
        timed(Call::NoteSeen, self.0.forget_seen(clusters)).await
    }

    fn hear(&self) -> NewsStream {
        self.0.hear()
    }
}
