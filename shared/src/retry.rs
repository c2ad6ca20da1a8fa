//! How a failed call is repeated, and how delays are spread over a fleet.
//!
//! This module alone knows the `backoff` crate, which is not maintained (RUSTSEC-2025-0012): to
//! replace it is to change this file.

use std::time::Duration;

use backoff::ExponentialBackoff;
use backoff::backoff::Backoff as _;

use crate::digest::Digest;

/// A growing delay between attempts, randomised by half in either direction.
#[derive(Debug)]
pub struct Schedule {
    inner: ExponentialBackoff,
    most: Duration,
}

impl Schedule {
    /// Starts at `first`, doubles with every attempt, never exceeds `most`, and never ends.
    #[must_use]
    pub fn new(first: Duration, most: Duration) -> Self {
        let mut inner = ExponentialBackoff {
            initial_interval: first,
            multiplier: 2.0,
            randomization_factor: 0.5,
            max_interval: most,
            max_elapsed_time: None,
            ..ExponentialBackoff::default()
        };
        inner.reset();
        Self { inner, most }
    }

    /// The delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        self.inner.next_backoff().unwrap_or(self.most).min(self.most)
    }

    /// Begins anew, after a success.
    pub fn reset(&mut self) {
        self.inner.reset();
    }
}

/// A share of one in `[0, 1)` that depends only on the texts: the same site waits the same share in
/// every round, and a fleet's shares are spread evenly.
#[must_use]
pub fn hashed_share(texts: &[&str]) -> f64 {
    let digest = Digest::of_parts(texts.iter().map(|text| text.as_bytes()));
    let head: [u8; 4] = digest.as_bytes()[..4].try_into().expect("a digest has more than four bytes");
    f64::from(u32::from_be_bytes(head)) / (f64::from(u32::MAX) + 1.0)
}

/// A delay that a server asked for, clamped to `most` and spread by up to half of it more.
///
/// Everybody who was told the same number comes back at a different time.
#[must_use]
pub fn spread(asked: Duration, most: Duration, share: f64) -> Duration {
    let asked = asked.min(most);
    asked + asked.mul_f64(0.5 * share.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_and_stay_below_the_limit() {
        let most = Duration::from_secs(60);
        let mut schedule = Schedule::new(Duration::from_secs(1), most);
        let delays: Vec<_> = (0..20).map(|_| schedule.next_delay()).collect();
        assert!(delays[0] <= Duration::from_millis(1500), "{:?}", delays[0]);
        assert!(delays.iter().all(|d| *d <= most));
        assert!(delays[10..].iter().all(|d| *d >= most / 2 - Duration::from_millis(1)), "{delays:?}");
        schedule.reset();
        assert!(schedule.next_delay() <= Duration::from_millis(1500));
    }

    #[test]
    fn a_thousand_names_are_spread_over_the_whole_interval() {
        let mut tenths = [0; 10];
        for n in 0..1000 {
            let share = hashed_share(&["poll", &format!("shop-{n}")]);
            assert!((0.0..1.0).contains(&share));
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a share below one times ten is a digit"
            )]
            let tenth = (share * 10.0) as usize;
            tenths[tenth] += 1;
        }
        assert!(tenths.iter().all(|n| (60..140).contains(n)), "{tenths:?}");
    }

    #[test]
    fn a_server_s_delay_is_clamped_and_spread() {
        let most = Duration::from_secs(600);
        assert_eq!(spread(Duration::from_secs(100), most, 0.0), Duration::from_secs(100));
        assert_eq!(spread(Duration::from_secs(100), most, 1.0), Duration::from_secs(150));
        assert_eq!(spread(Duration::from_secs(1_000_000), most, 0.0), most);
    }
}
