//! A connection that is watched, so that one which does nothing does not hold its place for ever.
//!
//! Hyper bounds the time for the headers of an HTTP/1.1 request, and nothing else: not how long a peer may
//! be silent after its handshake, nor how long it may leave an answer unread.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// What has happened on a connection.
#[derive(Debug, Default)]
pub struct Activity {
    bytes: AtomicU64,
    request: Notify,
}

impl Activity {
    /// Notes that a request has come in.
    pub fn note_request(&self) {
        self.request.notify_one();
    }

    /// Ends, with the reason, once there was no request within `first`, or no byte has moved for `quiet`
    /// (noticed after twice that time at the latest).
    pub async fn stalled(&self, first: Duration, quiet: Duration) -> &'static str {
        if tokio::time::timeout(first, self.request.notified()).await.is_err() {
            return "no request came in time";
        }
        loop {
            let before = self.bytes.load(Ordering::Relaxed);
            tokio::time::sleep(quiet).await;
            if self.bytes.load(Ordering::Relaxed) == before {
                return "nothing was sent or read for too long";
            }
        }
    }

    fn moved(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// A connection whose bytes are counted.
#[derive(Debug)]
pub struct Watched<I> {
    io: I,
    activity: Arc<Activity>,
}

impl<I> Watched<I> {
    /// Counts into `activity`.
    #[must_use]
    pub fn new(io: I, activity: Arc<Activity>) -> Self {
        Self { io, activity }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Watched<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(context, buffer))?;
        self.activity.moved(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Watched<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.io).poll_write(context, bytes))?;
        self.activity.moved(count);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const FIRST: Duration = Duration::from_millis(1);
    const QUIET: Duration = Duration::from_millis(1);

    #[tokio::test]
    async fn a_peer_that_never_asks_is_stalled_and_so_is_one_on_which_nothing_moves() {
        let activity = Activity::default();
        assert_eq!(activity.stalled(FIRST, QUIET).await, "no request came in time");
        activity.note_request();
        assert_eq!(activity.stalled(FIRST, QUIET).await, "nothing was sent or read for too long");
    }

    #[tokio::test]
    async fn bytes_are_counted_in_both_directions() {
        let (near, mut far) = tokio::io::duplex(64);
        let activity = Arc::new(Activity::default());
        let mut watched = Watched::new(near, Arc::clone(&activity));
        watched.write_all(b"four").await.expect("a pipe");
        far.write_all(b"seven!!").await.expect("a pipe");
        let mut seven = [0; 7];
        watched.read_exact(&mut seven).await.expect("a pipe");
        assert_eq!(activity.bytes.load(Ordering::Relaxed), 11);
    }
}
