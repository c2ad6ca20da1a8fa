//! When last-seen times are flushed.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use farshore_shared::exit::chain;
use tokio::sync::watch;
use tracing::warn;

use crate::index::Index;
use crate::objects::Objects;
use crate::record::SHARDS;
use crate::seen::Seen;
use crate::view::View;

/// How often the last-seen times of each cluster are flushed.
pub(super) const FLUSH: Duration = Duration::from_secs(15);
/// In so many parts, one after the other: a million at once would hold up polls, and everybody in Redis.
const PARTS: u16 = 64;

/// From where last-seen times are taken, and to where.
#[derive(Clone)]
pub(super) struct Flusher {
    pub(super) view: View,
    pub(super) seen: Arc<Seen>,
    pub(super) index: Arc<dyn Index>,
    pub(super) objects: Arc<dyn Objects>,
}

impl Flusher {
    /// Flushes part by part, until told to stop.
    pub(super) async fn run(self, mut stop: watch::Receiver<bool>) {
        let (mut parts, mut index) = ((0..PARTS).cycle(), Answering::Yes);
        loop {
            // Cancel-safe: the time starts anew.
            tokio::select! {
                () = tokio::time::sleep(FLUSH / u32::from(PARTS)) => {}
                _ = stop.changed() => return,
            }
            let part = parts.next().expect("a cycle has no end");
            self.take(part * (SHARDS / PARTS)..(part + 1) * (SHARDS / PARTS));
            if index == Answering::Yes && self.seen.pass_on(&*self.index).await.is_err() {
                index = Answering::No;
            }
            if part == PARTS - 1 {
                self.store().await;
                index = Answering::Yes;
            }
        }
    }

    /// Flushes what was heard until now.
    pub(super) async fn flush(&self) {
        self.take(0..SHARDS);
        self.store().await;
    }

    fn take(&self, shards: Range<u16>) {
        for (cluster, at) in self.view.drain_seen(shards) {
            self.seen.note(&cluster, at);
        }
    }

    async fn store(&self) {
        if let Err(failure) = self.seen.flush(&*self.index, &*self.objects).await {
            warn!(error = %chain(&failure), "last-seen times are not in the record yet");
        }
    }
}

/// Whether the index has answered since the last round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answering {
    Yes,
    No,
}
