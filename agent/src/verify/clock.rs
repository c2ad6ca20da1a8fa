//! How far the site's clock is believed.
//!
//! A lower bound of the true time rises from the dates of verified documents, by bounded steps. A
//! clock below it, or far beyond it, is distrusted: then expiry decides nothing (invariant 4 of `ARCHITECTURE.md`).

use farshore_shared::wire::UnixSeconds;
use jiff::Timestamp;

/// No document is older than the program that reads it: 2026-01-01.
pub const EARLIEST: UnixSeconds = 1_767_225_600;
/// How far a clock may be behind without being distrusted: two good clocks differ by less.
pub const SKEW: UnixSeconds = 3_600;
/// How far a clock may be beyond the lower bound: a site may have been switched off for that long.
pub const BEYOND: UnixSeconds = 10 * 365 * 86_400;
/// How far one document moves the lower bound beyond what was believed: 30 days, so that a wrong or
/// hostile date does little harm.
pub const STEP: UnixSeconds = 30 * 86_400;

/// What the site's clock shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// Now.
    pub now: UnixSeconds,
}

/// Whether a clock can be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// It can.
    Good,
    /// It shows a time that is over, such as 1970.
    Behind {
        /// The lower bound of the true time.
        bound: UnixSeconds,
    },
    /// It shows a time that is too far away, such as 2038.
    Ahead {
        /// The lower bound of the true time.
        bound: UnixSeconds,
    },
}

impl Clock {
    /// Compares with the lower bound that a site has recorded; 0 where it has none.
    #[must_use]
    pub fn trust(self, recorded: UnixSeconds) -> Trust {
        let bound = recorded.max(EARLIEST);
        if self.now.saturating_add(SKEW) < bound {
            Trust::Behind { bound }
        } else if self.now > bound.saturating_add(BEYOND) {
            Trust::Ahead { bound }
        } else {
            Trust::Good
        }
    }

    /// The lower bound after a document of that date was verified.
    #[must_use]
    pub fn raised(self, recorded: UnixSeconds, issued: UnixSeconds) -> UnixSeconds {
        let bound = recorded.max(EARLIEST);
        let believed = if self.trust(recorded) == Trust::Good { bound.max(self.now) } else { bound };
        recorded.max(issued.min(believed.saturating_add(STEP)))
    }

    /// What a person should hear about the clock, if anything. It is the same all day: an alarm that is another each
    /// time would be reported each time.
    #[must_use]
    pub fn alarm(self, recorded: UnixSeconds) -> Option<String> {
        let (side, bound) = match self.trust(recorded) {
            Trust::Good => return None,
            Trust::Behind { bound } => ("behind", bound),
            Trust::Ahead { bound } => ("far ahead of", bound),
        };
        Some(format!(
            "the clock of this site is {side} the signed documents (clock {}, documents {}): expiry is not checked until it is set, and maintenance windows go by it",
            day(self.now),
            day(bound)
        ))
    }
}

/// The day of a time, in UTC.
fn day(at: UnixSeconds) -> String {
    let time = i64::try_from(at).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map_or_else(|| at.to_string(), |time| time.strftime("%F").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_at_1970_or_2038_is_distrusted() {
        assert!(matches!(Clock { now: 0 }.trust(0), Trust::Behind { .. }));
        assert!(matches!(Clock { now: 2_147_483_647 }.trust(0), Trust::Ahead { .. }));
        assert_eq!(Clock { now: EARLIEST + 400 * 86_400 }.trust(0), Trust::Good);
        assert_eq!(Clock { now: EARLIEST }.trust(EARLIEST + SKEW), Trust::Good);
        let alarm = Clock { now: 0 }.alarm(0).expect("it is distrusted");
        assert!(
            alarm.contains("behind the signed documents (clock 1970-01-01, documents 2026-01-01)"),
            "{alarm}"
        );
        let ahead = Clock { now: 2_147_483_647 }.alarm(0).expect("it is distrusted");
        assert!(ahead.contains("far ahead of the signed documents (clock 2038-01-19,"), "{ahead}");
    }

    #[test]
    fn the_lower_bound_rises_by_bounded_steps_and_never_falls() {
        let now = EARLIEST + 86_400;
        let clock = Clock { now };
        assert_eq!(clock.raised(0, now - 10), now - 10);
        assert_eq!(clock.raised(now, now - 10), now);
        assert_eq!(clock.raised(0, u64::MAX), now + STEP);
        let stopped = Clock { now: 0 };
        assert_eq!(stopped.raised(now, u64::MAX), now + STEP, "a stopped clock moves by one step too");
    }
}
