//! A connection that is watched, so that one which does nothing does not hold its place for ever.
//!
//! Hyper bounds the time for the headers of an HTTP/1.1 request with a timer for each, which costs a tenth
//! of a poll, and nothing else: not how long a peer may be silent after its handshake, nor how long it may
//! leave an answer unread. Here all three are counters that are looked at now and then.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Version;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What has happened on a connection. Nothing here wakes anybody: it is looked at now and then.
#[derive(Debug, Default)]
pub struct Activity {
    bytes: AtomicU64,
    read: AtomicU64,
    /// What was read when the last request began or was answered.
    asked: AtomicU64,
    requests: AtomicU64,
    answered: AtomicU64,
    is_http1: AtomicBool,
}

impl Activity {
    /// Notes that the headers of a request have come in.
    pub fn note_request(&self, version: Version) {
        if self.requests.fetch_add(1, Ordering::Relaxed) == 0 {
            self.is_http1.store(version < Version::HTTP_2, Ordering::Relaxed);
        }
        self.asked.store(self.read.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Notes that a request is answered, so that its body is not taken for the headers of the next.
    pub fn note_answer(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        self.asked.store(self.read.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Ends, with the reason, once there was no request within `first`, or the headers of another HTTP/1.1
    /// request took longer than that, or no byte has moved for `quiet`. It is noticed after twice the time
    /// at the latest.
    pub async fn stalled(&self, first: Duration, quiet: Duration) -> &'static str {
        tokio::time::sleep(first).await;
        if self.requests.load(Ordering::Relaxed) == 0 {
            return "no request came in time";
        }
        let mut still = Duration::ZERO;
        loop {
            let before = self.sample();
            // HTTP/2 has no headers that come line by line, and its pings are no requests.
            let pause = if self.is_http1.load(Ordering::Relaxed) { first.min(quiet) } else { quiet };
            tokio::time::sleep(pause).await;
            let after = self.sample();
            still = if after.bytes == before.bytes { still + pause } else { Duration::ZERO };
            if still >= quiet {
                return "nothing was sent or read for too long";
            }
            if after.is_stuck_since(&before) {
                return "the headers of a request took too long";
            }
        }
    }

    fn sample(&self) -> Sample {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let requests = load(&self.requests);
        let is_idle = load(&self.answered) == requests;
        let is_in_headers =
            self.is_http1.load(Ordering::Relaxed) && is_idle && load(&self.read) > load(&self.asked);
        Sample { bytes: load(&self.bytes), requests, is_in_headers }
    }

    fn was_read(&self, bytes: usize) {
        self.read.fetch_add(bytes as u64, Ordering::Relaxed);
        self.moved(bytes);
    }

    fn moved(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// A connection at one moment.
struct Sample {
    bytes: u64,
    requests: u64,
    /// Bytes have come that belong to no request yet.
    is_in_headers: bool,
}

impl Sample {
    /// Whether the headers of one request were not complete at both moments.
    fn is_stuck_since(&self, before: &Self) -> bool {
        before.is_in_headers && self.is_in_headers && self.requests == before.requests
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
        self.activity.was_read(buffer.filled().len() - before);
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
        activity.note_request(Version::HTTP_2);
        assert_eq!(activity.stalled(FIRST, QUIET).await, "nothing was sent or read for too long");
    }

    #[test]
    fn headers_that_trickle_are_noticed_on_http1_and_neither_bodies_nor_pings_are_taken_for_them() {
        for (version, is_answered, is_stuck) in
            [(Version::HTTP_11, true, true), (Version::HTTP_11, false, false), (Version::HTTP_2, true, false)]
        {
            let activity = Activity::default();
            activity.note_request(version);
            if is_answered {
                activity.note_answer();
            }
            let idle = activity.sample();
            activity.was_read(1);
            let begun = activity.sample();
            activity.was_read(1);
            let later = activity.sample();
            assert!(!begun.is_stuck_since(&idle), "begun a moment ago");
            assert_eq!(later.is_stuck_since(&begun), is_stuck, "{version:?} {is_answered}");
            activity.note_request(version);
            activity.note_answer();
            assert!(!activity.sample().is_stuck_since(&begun), "it was a request");
        }
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
