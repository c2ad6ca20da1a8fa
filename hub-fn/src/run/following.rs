//! Notices that the head has moved: at once where it is told, within the view's staleness where it is not.

use std::sync::Arc;

use futures::StreamExt as _;
use tokio::sync::watch;
use tracing::debug;

use crate::index::{Index, News};
use crate::view::{Freshness, STALENESS, View};

/// Keeps `head` at the sequence of the newest publication that this process sees.
pub(super) async fn head(
    view: View,
    index: Arc<dyn Index>,
    head: watch::Sender<u64>,
    mut stop: watch::Receiver<bool>,
) {
    let mut news = index.hear();
    loop {
        // Cancel-safe: news that are not taken stay, and the time starts anew.
        let freshness = tokio::select! {
            Some(heard) = news.next() => match heard {
                News::Head { .. } | News::Missed => Freshness::Now,
                News::Directory { .. } | News::Pushed { .. } | News::Requests => continue,
            },
            () = tokio::time::sleep(STALENESS) => Freshness::Recent,
            _ = stop.changed() => return,
        };
        match view.publication(freshness).await {
            Ok(publication) => {
                let sequence = publication.map_or(0, |publication| publication.head.sequence);
                head.send_if_modified(|known| std::mem::replace(known, sequence) != sequence);
            }
            Err(error) => debug!(%error, "the head cannot be read"),
        }
    }
}
