//! When a site polls. Pure: every site has its own phase, hashed from its name, so that a fleet's polls
//! are spread over the interval whatever happened before: an outage, a power cut, a wake to everybody.
//!
//! A failed poll changes nothing about when the next one is due. A hub that was away for a day is
//! polled at the same even rate as before.

use std::time::Duration;

use farshore_shared::retry::{hashed_share, spread};

/// The share of the interval by which single polls differ from a site's phase.
const JITTER: f64 = 0.1;

/// How long after `now` (since the Unix epoch) the next poll is due: in the next round at this site's
/// phase, moved by up to a tenth of the interval that differs from round to round.
///
/// Never zero; at most a little more than two intervals.
#[must_use]
pub fn until_next_poll(name: &str, interval: Duration, now: Duration) -> Duration {
    let interval = interval.max(Duration::from_secs(1));
    let phase = interval.mul_f64(hashed_share(&["phase", name]));
    // Half an interval at least lies between two polls, so that one that was early is not repeated.
    let earliest = now + interval / 2;
    let round = earliest.saturating_sub(phase).as_nanos() / interval.as_nanos() + 1;
    let start = u64::try_from(round * interval.as_nanos() / 1_000_000).unwrap_or(u64::MAX);
    let jitter = interval.mul_f64(JITTER * hashed_share(&["jitter", name, &round.to_string()]));
    (Duration::from_millis(start) + phase + jitter).saturating_sub(now)
}

/// How long after it was woken a site polls: its own share of the window in which all that were woken shall come,
/// which is `most` at the longest.
#[must_use]
pub fn until_woken_poll(name: &str, window: Duration, most: Duration) -> Duration {
    window.min(most).mul_f64(hashed_share(&["woken", name]))
}

/// How long a site waits that was asked to wait: as long as it was asked, and up to half of it more, so that
/// those who were asked in one moment do not come back in one. What is asked counts up to `most`.
#[must_use]
pub fn until_asked(name: &str, asked: Duration, most: Duration) -> Duration {
    spread(asked, most, hashed_share(&["asked", name]))
}

/// A duration around `about` that differs from site to site and round to round by up to a tenth.
#[must_use]
pub fn about(name: &str, about: Duration, round: u64) -> Duration {
    about.mul_f64(0.9 + 0.2 * hashed_share(&["about", name, &round.to_string()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_site_polls_once_an_interval() {
        let mut now = Duration::from_secs(1_800_000_000);
        let start = now;
        for _ in 0..1000 {
            let wait = until_next_poll("shop-7", MINUTE, now);
            assert!(wait > MINUTE / 2 && wait < 2 * MINUTE + MINUTE / 5, "{wait:?}");
            now += wait;
        }
        let mean = (now - start).as_secs_f64() / 1000.0;
        assert!((59.0..61.5).contains(&mean), "{mean}");
    }

    #[test]
    fn a_site_polls_within_two_intervals_whatever_its_clock_shows() {
        for seconds in [0, 1, 30, 2_147_483_647, 4_294_967_296, 253_402_300_799] {
            for name in ["shop-7", "harbour", "depot"] {
                let wait = until_next_poll(name, MINUTE, Duration::from_secs(seconds));
                assert!(
                    wait > Duration::ZERO && wait < 2 * MINUTE + MINUTE / 5,
                    "{name} at {seconds}: {wait:?}"
                );
            }
        }
    }

    /// How many of a fleet come in each second of this many, when each waits so long.
    fn arrivals(seconds: usize, wait: impl Fn(&str) -> Duration) -> Vec<u32> {
        let mut by_second = vec![0_u32; seconds];
        for n in 0..6000 {
            let second = usize::try_from(wait(&format!("shop-{n}")).as_secs()).expect("a second");
            by_second[second] += 1;
        }
        by_second
    }

    #[test]
    fn a_fleet_that_is_asked_to_wait_in_one_moment_comes_back_spread() {
        let by_second = arrivals(46, |name| until_asked(name, Duration::from_secs(30), MINUTE));
        assert!(by_second[..30].iter().all(|n| *n == 0), "nobody comes before: {by_second:?}");
        assert!(by_second[30..45].iter().all(|n| (320..480).contains(n)), "{by_second:?}");
        let clamped = arrivals(91, |name| until_asked(name, Duration::MAX, MINUTE));
        assert!(clamped[60..90].iter().all(|n| (140..260).contains(n)), "{clamped:?}");
    }

    #[test]
    fn a_fleet_that_is_woken_in_one_moment_polls_over_the_whole_window() {
        let by_second = arrivals(60, |name| until_woken_poll(name, MINUTE, 10 * MINUTE));
        assert!(by_second.iter().all(|n| (60..140).contains(n)), "{by_second:?}");
        let clamped = arrivals(10, |name| until_woken_poll(name, 60 * MINUTE, MINUTE / 6));
        assert!(clamped.iter().all(|n| (500..700).contains(n)), "{clamped:?}");
        assert_eq!(until_woken_poll("shop-7", Duration::ZERO, MINUTE), Duration::ZERO);
    }

    /// What was asked is a least: a site's own phase counts where it is later, so that a fleet that is told to
    /// poll half as often as it did goes on as evenly as before.
    #[test]
    fn a_fleet_that_is_slowed_down_stays_spread() {
        let now = Duration::from_secs(1_800_000_000);
        let by_second = arrivals(210, |name| {
            until_next_poll(name, MINUTE, now).max(until_asked(name, 2 * MINUTE, 60 * MINUTE))
        });
        assert!(by_second.iter().all(|n| *n < 150), "{by_second:?}");
    }

    #[test]
    fn a_fleet_that_boots_in_one_moment_polls_spread() {
        let now = Duration::from_secs(1_800_000_000);
        let mut by_second = [0_u32; 60];
        for n in 0..6000 {
            let due = now + until_next_poll(&format!("shop-{n}"), MINUTE, now);
            by_second[usize::try_from(due.as_secs() % 60).expect("a second of a minute")] += 1;
        }
        assert!(by_second.iter().all(|n| (60..140).contains(n)), "{by_second:?}");
    }
}
