//! A moment on two clocks: the site's, which says what time it is and may be set at any time, and one that only goes
//! forward. How long something takes or waits is counted by the second; the first is shown to people.

use std::time::Duration;

use farshore_shared::clock;
use farshore_shared::wire::UnixSeconds;
use tokio::time::Instant;

/// How far the two may go apart before the site's clock counts as set, in seconds.
pub const APART: u64 = 5;

/// A moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// What the site's clock shows.
    pub wall: UnixSeconds,
    /// How long something has lasted that began once: it never goes back.
    pub steady: Duration,
}

impl Moment {
    /// Now, counted from a beginning.
    #[must_use]
    pub fn since(began: Instant) -> Self {
        Self { wall: clock::now(), steady: began.elapsed() }
    }

    /// By how many seconds the site's clock went further since an earlier moment than time did: less than zero where
    /// it went back, none where both agree.
    #[must_use]
    pub fn set_since(self, earlier: Self) -> Option<i64> {
        let steady = self.steady.saturating_sub(earlier.steady).as_secs();
        let expected = earlier.wall.saturating_add(steady);
        let by = i64::try_from(self.wall.abs_diff(expected)).unwrap_or(i64::MAX);
        (by.unsigned_abs() > APART).then_some(if self.wall < expected { -by } else { by })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(wall: u64, steady: u64) -> Moment {
        Moment { wall, steady: Duration::from_secs(steady) }
    }

    #[test]
    fn a_clock_that_was_set_is_told_from_one_that_goes() {
        let (now, in_2038) = (1_800_000_000, 2_147_483_647);
        let before = moment(now, 100);
        assert_eq!(moment(now + 7200, 7300).set_since(before), None);
        assert_eq!(moment(now + 5, 102).set_since(before), None, "two seconds are never two seconds");
        assert_eq!(moment(in_2038, 102).set_since(before), Some(347_483_645));
        assert_eq!(moment(now + 2, 102).set_since(moment(in_2038, 100)), Some(-347_483_647));
        assert_eq!(moment(0, 102).set_since(before), Some(-1_800_000_002));
        assert_eq!(moment(u64::MAX, 100).set_since(moment(0, 0)), Some(i64::MAX), "nothing overflows");
    }
}
