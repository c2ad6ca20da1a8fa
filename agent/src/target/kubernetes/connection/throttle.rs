//! How many requests there are at once, and in a second.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

/// Who may send a request, and when. Whoever waits longest goes first.
pub(super) struct Throttle {
    places: Semaphore,
    /// The time between two requests and when the next may go; none without a limit.
    pace: Option<(Duration, Mutex<Instant>)>,
}

impl Throttle {
    pub(super) fn new(in_flight: usize, per_second: Option<u32>) -> Self {
        let places = Semaphore::new(in_flight.clamp(1, Semaphore::MAX_PERMITS));
        let step = per_second.map(|most| Duration::from_secs(1) / most.max(1));
        Self { places, pace: step.map(|step| (step, Mutex::new(Instant::now()))) }
    }

    /// Returns when a request may be sent; it is over when the answer is dropped.
    pub(super) async fn turn(&self) -> SemaphorePermit<'_> {
        let place = self.places.acquire().await.expect("it is never closed");
        if let Some((step, next)) = &self.pace {
            sleep_until(reserved(*step, next)).await;
        }
        place
    }
}

/// When this request may go. What was not used for a second is lost.
fn reserved(step: Duration, next: &Mutex<Instant>) -> Instant {
    let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    let earliest = now.checked_sub(Duration::from_secs(1)).unwrap_or(now);
    let at = (*next).max(earliest);
    *next = at + step;
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_more_requests_go_at_once_than_may() {
        let throttle = Throttle::new(2, None);
        let (first, second) = (throttle.turn().await, throttle.turn().await);
        assert!(futures::FutureExt::now_or_never(throttle.turn()).is_none());
        drop(first);
        assert!(futures::FutureExt::now_or_never(throttle.turn()).is_some());
        drop(second);
    }

    #[test]
    fn requests_are_spread_over_the_second_and_what_was_not_used_is_lost() {
        let step = Duration::from_millis(100);
        let begun = Instant::now();
        let next = Mutex::new(begun);
        let times: Vec<_> = (0..25).map(|_| reserved(step, &next)).collect();
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == step));
        let idle = Mutex::new(begun.checked_sub(Duration::from_secs(60)).unwrap_or(begun));
        let at_once = (0..100).map(|_| reserved(step, &idle)).filter(|at| *at <= Instant::now()).count();
        assert!(at_once <= 12, "{at_once}");
    }
}
