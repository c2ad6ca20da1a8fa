//! A body that is streamed, and what it keeps meanwhile: a place among those that are sent at once, an open file,
//! a connection to the bucket. Nobody keeps them without taking anything: after a time without progress the body is
//! given up, whoever is to blame, the peer or the bucket.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame, SizeHint};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use crate::objects::{ObjectsError, Operation};

type Stream = UnsyncBoxBody<Bytes, ObjectsError>;

/// A body, with what is dropped together with it.
#[derive(Debug)]
pub(super) struct Kept<T> {
    sending: Arc<Mutex<Sending<T>>>,
    watch: AbortHandle,
}

#[derive(Debug)]
struct Sending<T> {
    /// None once it was given up.
    open: Option<(Stream, T)>,
    /// When the last piece was taken.
    moved: Instant,
    /// Whoever waits for the next piece.
    waits: Option<Waker>,
}

/// Nobody took the next piece, or there was none.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the answer made no progress (limit {limit:?})")]
struct NoProgress {
    limit: Duration,
}

impl<T: Send + 'static> Kept<T> {
    /// Keeps this until the body is sent, or for as long as it may make no progress. Its task ends with it.
    pub(super) fn new(stream: Stream, kept: T, limit: Duration) -> Self {
        let sending = Sending { open: Some((stream, kept)), moved: Instant::now(), waits: None };
        let sending = Arc::new(Mutex::new(sending));
        let watch = tokio::spawn(give_up_when_stalled(Arc::downgrade(&sending), limit));
        Self { sending, watch: watch.abort_handle() }
    }
}

impl<T> Kept<T> {
    fn sending(&self) -> MutexGuard<'_, Sending<T>> {
        locked(&self.sending)
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl<T: Send + 'static> Body for Kept<T> {
    type Data = Bytes;
    type Error = ObjectsError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ObjectsError>>> {
        let mut sending = self.sending();
        let Some((stream, _kept)) = &mut sending.open else {
            return Poll::Ready(Some(Err(given_up(NoProgress { limit: sending.moved.elapsed() }))));
        };
        let polled = Pin::new(stream).poll_frame(context);
        match &polled {
            Poll::Ready(_) => sending.moved = Instant::now(),
            Poll::Pending => sending.waits = Some(context.waker().clone()),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.sending().open.as_ref().is_some_and(|(stream, _)| stream.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.sending().open.as_ref().map_or_else(SizeHint::default, |(stream, _)| stream.size_hint())
    }
}

/// Drops what a body keeps once it has stood still for so long.
async fn give_up_when_stalled<T>(sending: Weak<Mutex<Sending<T>>>, limit: Duration) {
    let mut until = Instant::now() + limit;
    loop {
        sleep_until(until).await;
        let Some(sending) = sending.upgrade() else { return };
        let mut sending = locked(&sending);
        until = sending.moved + limit;
        if until <= Instant::now() {
            debug!(?limit, "an answer makes no progress: it is given up");
            let (dropped, waits) = (sending.open.take(), sending.waits.take());
            drop(sending);
            drop(dropped);
            // It finds that there is nothing any more, and cuts the answer.
            waits.into_iter().for_each(Waker::wake);
            return;
        }
    }
}

fn given_up(why: NoProgress) -> ObjectsError {
    ObjectsError::Unreachable { operation: Operation::Read, key: "answer".to_owned(), source: why.into() }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    const LIMIT: Duration = Duration::from_millis(300);

    fn body(pieces: impl futures::Stream<Item = u8> + Send + 'static) -> Stream {
        let frame = |n| Ok::<_, ObjectsError>(Frame::data(Bytes::from(vec![n])));
        StreamBody::new(futures::StreamExt::map(pieces, frame)).boxed_unsync()
    }

    #[tokio::test]
    async fn what_a_body_keeps_is_free_again_when_nobody_reads_it() {
        let (place, kept) = (Arc::new(()), Instant::now());
        let mut sent = Kept::new(body(futures::stream::repeat(1)), Arc::clone(&place), LIMIT);
        while Arc::strong_count(&place) == 2 {
            tokio::task::yield_now().await;
            assert!(kept.elapsed() < 100 * LIMIT, "it is kept for ever");
        }
        assert!(kept.elapsed() >= LIMIT, "not before its time");
        assert!(sent.frame().await.is_some_and(|frame| frame.is_err()), "and the answer is cut");
    }

    #[tokio::test]
    async fn a_body_that_is_read_slowly_and_steadily_is_sent_whole() {
        let mut ticks = tokio::time::interval(LIMIT / 3);
        let mut sent = Kept::new(body(futures::stream::iter(0..9)), (), LIMIT);
        let mut read = 0;
        while let Some(frame) = sent.frame().await {
            read += frame.expect("a piece").data_ref().map_or(0, Bytes::len);
            ticks.tick().await;
        }
        assert_eq!(read, 9);
    }

    #[tokio::test]
    async fn who_waits_for_a_bucket_that_stands_still_is_told() {
        let mut sent = Kept::new(body(futures::stream::pending()), (), LIMIT);
        assert!(sent.frame().await.is_some_and(|frame| frame.is_err()));
    }

    #[tokio::test]
    async fn nothing_of_a_body_is_left_when_it_is_dropped() {
        let place = Arc::new(());
        let sent = Kept::new(body(futures::stream::repeat(1)), Arc::clone(&place), Duration::from_secs(3600));
        let (watch, began) = (sent.watch.clone(), Instant::now());
        drop(sent);
        assert_eq!(Arc::strong_count(&place), 1);
        while !watch.is_finished() {
            tokio::task::yield_now().await;
            assert!(began.elapsed() < 100 * LIMIT, "its task waits for what there is not any more");
        }
    }
}
