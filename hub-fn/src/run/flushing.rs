//! When last-seen times are flushed.

use std::sync::Arc;
use std::time::Duration;

use farshore_shared::exit::chain;
use tokio::sync::watch;
use tracing::warn;

use crate::index::Index;
use crate::objects::Objects;
use crate::seen::Seen;
use crate::view::View;

/// How often last-seen times are flushed.
const FLUSH: Duration = Duration::from_secs(15);

/// From where last-seen times are taken, and to where.
#[derive(Clone)]
pub(super) struct Flusher {
    pub(super) view: View,
    pub(super) seen: Arc<Seen>,
    pub(super) index: Arc<dyn Index>,
    pub(super) objects: Arc<dyn Objects>,
}

impl Flusher {
    /// Flushes now and then, until told to stop.
    pub(super) async fn run(self, mut stop: watch::Receiver<bool>) {
        loop {
            // Cancel-safe: the time starts anew.
            tokio::select! {
                () = tokio::time::sleep(FLUSH) => self.flush().await,
                _ = stop.changed() => return,
            }
        }
    }

    /// Flushes what was heard until now.
    pub(super) async fn flush(&self) {
        for (cluster, at) in self.view.drain_seen() {
            self.seen.note(&cluster, at);
        }
        if let Err(failure) = self.seen.flush(&*self.index, &*self.objects).await {
            warn!(error = %chain(&failure), "last-seen times are not in the record yet");
        }
    }
}
