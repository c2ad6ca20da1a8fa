//! What a hub asks of its fleet, and what it turns away, for the load that it sees. Pure: it is told the load
//! once a tick.
//!
//! Sites poll once an interval. A hub that sees more polls than it can bear stretches the interval by a factor,
//! slowly, because sites notice only at their next poll; while that is not enough, it turns requests away,
//! what costs most and matters least first. A poll that brings nothing new is turned away last.

use std::time::Duration;

/// The share of what it can bear that a hub aims at.
const AIM: f64 = 0.8;
/// How fast the factor follows: half of the error within one interval of the fleet.
const GAIN: f64 = 0.5;
/// The interval is stretched so many times at the most.
const FACTOR_LIMIT: f64 = 60.0;
/// The longest interval that is asked for.
const LONGEST: Duration = Duration::from_secs(3600);

/// What a process was made for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Capacity {
    /// Polls a second that it can bear.
    pub polls: f64,
    /// By how much a timer may be late.
    pub lag: Duration,
    /// How often sites are told to poll.
    pub interval: Duration,
}

/// What was seen in the last tick, smoothed over a few.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// Requests a second.
    pub rate: f64,
    /// By how much timers were late.
    pub lag: Duration,
}

/// What is turned away: everything up to here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shed {
    /// Nothing.
    Nothing,
    /// Requests to enrol.
    Enrolling,
    /// And reports, which wait at their sites.
    Reports,
    /// And artifacts, and agents that would wait for news.
    Content,
    /// And polls of whoever holds nothing yet.
    Documents,
    /// And all polls.
    Polls,
}

impl Shed {
    const ALL: [Self; 6] =
        [Self::Nothing, Self::Enrolling, Self::Reports, Self::Content, Self::Documents, Self::Polls];

    /// As a number, to be kept in an atomic.
    #[must_use]
    pub fn level(self) -> u8 {
        u8::try_from(Self::ALL.iter().position(|shed| *shed == self).unwrap_or(0)).unwrap_or(0)
    }
}

/// What a hub does about its load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// The delay that sites are asked for, where it is longer than their interval.
    pub poll_after: Option<Duration>,
    /// What is turned away.
    pub shed: Shed,
}

/// Remembers by how much the interval is stretched.
#[derive(Debug, Clone, PartialEq)]
pub struct Controller {
    capacity: Capacity,
    factor: f64,
}

impl Controller {
    /// Nothing is stretched yet.
    #[must_use]
    pub fn new(capacity: Capacity) -> Self {
        Self { capacity, factor: 1.0 }
    }

    /// What to do from now on, after a tick of this length in which this was seen.
    pub fn step(&mut self, seen: Seen, tick: Duration) -> Decision {
        let Capacity { polls, lag, interval } = self.capacity;
        let pressure = (seen.rate / polls).max(seen.lag.as_secs_f64() / lag.as_secs_f64());
        let error = (pressure / AIM - 1.0).clamp(-1.0, 4.0);
        let share = tick.as_secs_f64() / interval.as_secs_f64();
        self.factor = (self.factor * (1.0 + GAIN * error * share)).clamp(1.0, FACTOR_LIMIT);
        // A stretch of a few hundredths is the jitter of the fleet.
        let stretched = interval.mul_f64(self.factor).min(LONGEST);
        let poll_after = (self.factor > 1.05 && stretched > interval).then_some(stretched);
        Decision { poll_after, shed: shed(pressure) }
    }
}

fn shed(pressure: f64) -> Shed {
    match pressure {
        p if p >= 4.0 => Shed::Polls,
        p if p >= 2.5 => Shed::Documents,
        p if p >= 2.0 => Shed::Content,
        p if p >= 1.5 => Shed::Reports,
        p if p >= 1.25 => Shed::Enrolling,
        _ => Shed::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const CAPACITY: Capacity =
        Capacity { polls: 1000.0, lag: Duration::from_millis(500), interval: Duration::from_secs(60) };

    fn at(rate: f64) -> Seen {
        Seen { rate, lag: Duration::ZERO }
    }

    /// A fleet that polls once an interval, and notices at a poll how long its next one is to be: what was
    /// asked of a site is `asked`, as old as its last poll.
    fn settle(clusters: f64, seconds: usize) -> (Vec<f64>, Decision) {
        let (mut controller, mut interval, mut rates) = (Controller::new(CAPACITY), 60.0, Vec::new());
        let mut decision = controller.step(at(0.0), SECOND);
        for _ in 0..seconds {
            let rate = clusters / interval;
            decision = controller.step(at(rate), SECOND);
            let asked = decision.poll_after.map_or(60.0, |after| after.as_secs_f64());
            // In one second a share of the fleet polls, and takes up what is asked now.
            interval += (asked - interval) / interval;
            rates.push(rate);
        }
        (rates, decision)
    }

    #[test]
    fn a_hub_that_bears_its_fleet_asks_for_nothing() {
        let (_, decision) = settle(40_000.0, 600);
        assert_eq!(decision, Decision { poll_after: None, shed: Shed::Nothing });
    }

    #[test]
    fn a_fleet_that_is_too_large_settles_at_what_its_hub_can_bear() {
        for clusters in [60_000.0, 100_000.0, 200_000.0, 1_000_000.0] {
            let (rates, decision) = settle(clusters, 7200);
            let settled = &rates[3600..];
            let most = settled.iter().copied().fold(0.0, f64::max);
            let least = settled.iter().copied().fold(f64::MAX, f64::min);
            assert!(least > 700.0 && most < 900.0, "{clusters} clusters: {least}..{most}");
            assert_eq!(decision.shed, Shed::Nothing, "{clusters}");
            assert!(decision.poll_after.is_some(), "{clusters}");
        }
    }

    #[test]
    fn what_costs_most_is_turned_away_first_and_a_poll_last() {
        let shed = |rate| Controller::new(CAPACITY).step(at(rate), SECOND).shed;
        let steps: Vec<Shed> = [1000.0, 1250.0, 1500.0, 2000.0, 2500.0, 4000.0].map(shed).to_vec();
        assert_eq!(steps, Shed::ALL);
        let late = Seen { rate: 0.0, lag: Duration::from_secs(1) };
        assert_eq!(Controller::new(CAPACITY).step(late, SECOND).shed, Shed::Content, "late timers are load");
        assert_eq!(Shed::ALL.map(Shed::level), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_longer_interval_is_bounded_and_is_taken_back() {
        let mut controller = Controller::new(CAPACITY);
        let mut decision = controller.step(at(1e9), SECOND);
        for _ in 0..10_000 {
            decision = controller.step(at(1e9), SECOND);
        }
        assert_eq!(decision.poll_after, Some(LONGEST));
        for _ in 0..10_000 {
            decision = controller.step(at(0.0), SECOND);
        }
        assert_eq!(decision.poll_after, None);
    }
}
