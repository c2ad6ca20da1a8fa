//! Limits of requests per second, for one caller among a million: one number each.
//!
//! The generic cell rate algorithm (ITU-T I.371, appendix A): per caller the time at which it would have been
//! quiet had it kept to the rate; a request that comes too early before that is one too many. Callers share a
//! fixed number of cells by hash, so that memory does not grow with them; two that share one share its limit.

use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How many requests, how fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests a second in the long run.
    pub per_second: u32,
    /// Requests at once.
    pub burst: u32,
}

/// The limits of many callers.
#[derive(Debug)]
pub struct Buckets {
    /// Microseconds between two requests.
    step: u64,
    /// How many microseconds a caller may be ahead.
    slack: u64,
    cells: Box<[AtomicU64]>,
    /// Keyed, so that nobody can choose a name that shares another one's cell.
    hasher: RandomState,
}

impl Buckets {
    /// A rate for each caller, in so many cells of 8 bytes.
    #[must_use]
    pub fn new(rate: Rate, cells: usize) -> Self {
        let step = 1_000_000 / u64::from(rate.per_second.clamp(1, 1_000_000));
        let slack = step * u64::from(rate.burst.max(1) - 1);
        let cells = (0..cells.max(1)).map(|_| AtomicU64::new(0)).collect();
        Self { step, slack, cells, hasher: RandomState::new() }
    }

    /// Takes one request of a caller at this time since some start; the error is how long it should have
    /// waited.
    ///
    /// # Errors
    /// When it is one too many. It does not count then.
    pub fn take(&self, caller: impl Hash, now: Duration) -> Result<(), Duration> {
        let cells = self.cells.len() as u64;
        let at = usize::try_from(self.hasher.hash_one(caller) % cells).unwrap_or(0);
        let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX / 2);
        let taken = self.cells[at].fetch_update(Ordering::Relaxed, Ordering::Relaxed, |quiet| {
            let ahead = quiet.saturating_sub(now);
            (ahead <= self.slack).then(|| quiet.max(now) + self.step)
        });
        taken.map(|_| ()).map_err(|quiet| Duration::from_micros(quiet.saturating_sub(now + self.slack)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_may_burst_and_then_keeps_to_its_rate() {
        let buckets = Buckets::new(Rate { per_second: 5, burst: 20 }, 1 << 16);
        let mut now = Duration::from_secs(1);
        for n in 0..20 {
            assert_eq!(buckets.take("shop-1", now), Ok(()), "{n}");
        }
        assert_eq!(buckets.take("shop-1", now), Err(Duration::from_millis(200)));
        assert_eq!(buckets.take("shop-2", now), Ok(()), "each for itself");
        let mut taken = 0;
        for _ in 0..1000 {
            now += Duration::from_millis(10);
            taken += u32::from(buckets.take("shop-1", now).is_ok());
        }
        assert_eq!(taken, 50, "ten seconds at five a second");
        now += Duration::from_secs(60);
        assert!((0..20).all(|_| buckets.take("shop-1", now).is_ok()), "rested");
        assert!(buckets.take("shop-1", now).is_err(), "and no more for a longer rest");
    }

    #[test]
    fn an_ordinary_fleet_is_never_limited_by_those_it_shares_cells_with() {
        let buckets = Buckets::new(Rate { per_second: 5, burst: 20 }, 1 << 10);
        // Sixteen clusters to a cell, as a quarter of a million cells have for four million; a poll a minute.
        let mut refused = 0;
        for minute in 0..5 {
            for cluster in 0..16 * 1024_u32 {
                let now = Duration::from_secs(60 * minute) + Duration::from_millis(3) * cluster;
                refused += u32::from(buckets.take(cluster, now).is_err());
            }
        }
        assert_eq!(refused, 0);
    }
}
