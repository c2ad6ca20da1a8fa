//! How many requests of one class are worked on at once, and how many may wait for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a request waits for its turn: less than an agent's patience.
const TURN: Duration = Duration::from_secs(10);

/// The places of one class, and its queue.
#[derive(Debug)]
pub struct Places {
    free: Arc<Semaphore>,
    queued: AtomicUsize,
    queue: usize,
    turn: Duration,
}

/// More wait than may, or it took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy;

impl Places {
    /// So many at once, and so many that wait.
    #[must_use]
    pub fn new(at_once: usize, queue: usize) -> Self {
        let free = Arc::new(Semaphore::new(at_once.clamp(1, Semaphore::MAX_PERMITS)));
        Self { free, queued: AtomicUsize::new(0), queue, turn: TURN }
    }

    /// How many wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// A place, in the order of coming.
    ///
    /// # Errors
    /// [`Busy`].
    pub async fn take(&self) -> Result<OwnedSemaphorePermit, Busy> {
        if let Ok(place) = Arc::clone(&self.free).try_acquire_owned() {
            return Ok(place);
        }
        let _queued = Queued::enter(&self.queued, self.queue)?;
        match tokio::time::timeout(self.turn, Arc::clone(&self.free).acquire_owned()).await {
            Ok(place) => place.map_err(|_closed| Busy),
            Err(_elapsed) => Err(Busy),
        }
    }
}

/// One that waits; it leaves the queue when it is dropped, also where its caller has gone.
struct Queued<'a>(&'a AtomicUsize);

impl<'a> Queued<'a> {
    fn enter(count: &'a AtomicUsize, most: usize) -> Result<Self, Busy> {
        let queued = Self(count);
        if count.fetch_add(1, Ordering::Relaxed) >= most { Err(Busy) } else { Ok(queued) }
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn who_finds_no_place_waits_in_a_queue_that_is_bounded() {
        let places = Places::new(1, 1);
        let first = places.take().await.expect("a place");
        let mut second = Box::pin(places.take());
        assert!(second.as_mut().now_or_never().is_none(), "it waits");
        assert_eq!(places.queued(), 1);
        assert_eq!(places.take().await.expect_err("the queue is full"), Busy);
        assert_eq!(places.queued(), 1);
        drop(first);
        let second = second.await.expect("its turn");
        assert_eq!(places.queued(), 0);
        let brief = Places { turn: Duration::from_millis(10), ..Places::new(1, 1) };
        let _only = brief.take().await.expect("a place");
        assert_eq!(brief.take().await.expect_err("nobody leaves"), Busy, "after its time");
        drop(second);
        drop(places.take().await.expect("a place"));
    }

    #[tokio::test]
    async fn who_goes_away_leaves_the_queue() {
        let places = Places::new(1, 1);
        let _first = places.take().await.expect("a place");
        let mut gone = Box::pin(places.take());
        assert!(gone.as_mut().now_or_never().is_none());
        drop(gone);
        assert_eq!(places.queued(), 0);
    }
}
