//! A connection that is watched, so that one which does nothing does not hold its place for ever.
//!
//! Hyper bounds the time for the headers of an HTTP/1.1 request with a timer for each, which costs a tenth
//! of a poll, and nothing else: not how long a peer may be silent after its handshake, nor how long it may
//! leave an answer unread. Here all three are counters that the server looks at now and then.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use http::Version;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What has happened on a connection. Nothing here wakes anybody: it is looked at now and then.
#[derive(Debug, Default)]
pub struct Activity {
    bytes: Count,
    read: Count,
    /// What was read when the last request began or was answered.
    asked: Count,
    requests: Count,
    answered: AtomicU64,
    is_http1: AtomicBool,
}

/// A number that one task writes and others read: it needs no locked instruction.
#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Count {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    fn add(&self, value: u64) {
        self.set(self.get().wrapping_add(value));
    }
}

impl Activity {
    /// Notes that the headers of a request have come in. The task of the connection says so.
    pub fn note_request(&self, version: Version) {
        if self.requests.get() == 0 {
            self.is_http1.store(version < Version::HTTP_2, Ordering::Relaxed);
        }
        self.requests.add(1);
        self.asked.set(self.read.get());
    }

    /// Notes that a request is answered, so that its body is not taken for the headers of the next. Any
    /// task may say so.
    pub fn note_answer(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        self.asked.set(self.read.get());
    }

    /// How it is at this moment.
    #[must_use]
    pub fn sample(&self) -> Sample {
        let requests = self.requests.get();
        let is_idle = self.answered.load(Ordering::Relaxed) == requests;
        let is_http1 = self.is_http1.load(Ordering::Relaxed);
        let is_in_headers = is_http1 && is_idle && self.read.get() > self.asked.get();
        Sample { bytes: self.bytes.get(), requests, is_http1, is_in_headers }
    }

    fn was_read(&self, bytes: usize) {
        self.read.add(bytes as u64);
        self.moved(bytes);
    }

    fn moved(&self, bytes: usize) {
        self.bytes.add(bytes as u64);
    }
}

/// A connection at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    bytes: u64,
    requests: u64,
    is_http1: bool,
    /// Bytes have come that belong to no request yet.
    is_in_headers: bool,
}

/// How long a connection may do nothing.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Until the first request, and for the headers of each one over HTTP/1.1.
    pub first: Duration,
    /// Without a byte in either direction.
    pub quiet: Duration,
}

/// What was seen of a connection over time. *Pure*: it is told the time.
#[derive(Debug, Clone, Copy)]
pub struct Watch {
    began: Instant,
    /// The number of bytes, and since when.
    bytes: (u64, Instant),
    /// The number of requests before the headers that are coming in, and since when they are.
    headers: Option<(u64, Instant)>,
}

impl Watch {
    /// Begins with a connection.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { began: now, bytes: (0, now), headers: None }
    }

    /// Takes a sample; says why the connection is to be cut, once it is.
    pub fn look(&mut self, sample: Sample, now: Instant, patience: Patience) -> Option<&'static str> {
        let over = |since: Instant, limit: Duration| now.saturating_duration_since(since) >= limit;
        if sample.bytes != self.bytes.0 {
            self.bytes = (sample.bytes, now);
        }
        self.headers = match (self.headers, sample.is_in_headers) {
            (Some((requests, since)), true) if requests == sample.requests => Some((requests, since)),
            (_, true) => Some((sample.requests, now)),
            (_, false) => None,
        };
        if sample.requests == 0 {
            return over(self.began, patience.first).then_some("no request came in time");
        }
        if over(self.bytes.1, patience.quiet) {
            return Some("nothing was sent or read for too long");
        }
        // HTTP/2 has no headers that come line by line, and its pings are no requests.
        let is_stuck = sample.is_http1 && self.headers.is_some_and(|(_, since)| over(since, patience.first));
        is_stuck.then_some("the headers of a request took too long")
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

    const PATIENCE: Patience = Patience { first: Duration::from_secs(10), quiet: Duration::from_secs(300) };

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn a_peer_that_never_asks_is_cut_and_so_is_one_on_which_nothing_moves() {
        let (activity, start) = (Activity::default(), Instant::now());
        let mut watch = Watch::new(start);
        activity.was_read(1);
        assert_eq!(watch.look(activity.sample(), after(start, 9), PATIENCE), None);
        let why = watch.look(activity.sample(), after(start, 10), PATIENCE);
        assert_eq!(why, Some("no request came in time"), "a byte is no request");
        activity.note_request(Version::HTTP_2);
        assert_eq!(watch.look(activity.sample(), after(start, 308), PATIENCE), None);
        let why = watch.look(activity.sample(), after(start, 309), PATIENCE);
        assert_eq!(why, Some("nothing was sent or read for too long"));
        activity.moved(1);
        assert_eq!(watch.look(activity.sample(), after(start, 310), PATIENCE), None);
    }

    #[test]
    fn headers_that_trickle_are_noticed_on_http1_and_neither_bodies_nor_pings_are_taken_for_them() {
        for (version, is_answered, is_stuck) in
            [(Version::HTTP_11, true, true), (Version::HTTP_11, false, false), (Version::HTTP_2, true, false)]
        {
            let (activity, start) = (Activity::default(), Instant::now());
            let mut watch = Watch::new(start);
            activity.note_request(version);
            if is_answered {
                activity.note_answer();
            }
            let mut look = |at| watch.look(activity.sample(), after(start, at), PATIENCE);
            assert_eq!(look(1), None, "idle");
            activity.was_read(1);
            assert_eq!(look(2), None, "begun a moment ago");
            activity.was_read(1);
            assert_eq!(look(12).is_some(), is_stuck, "{version:?} {is_answered}");
            activity.note_request(version);
            activity.note_answer();
            assert_eq!(look(13), None, "it was a request");
            activity.was_read(1);
            assert_eq!(look(14), None, "those of another one");
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
        assert_eq!(activity.sample().bytes, 11);
    }
}
