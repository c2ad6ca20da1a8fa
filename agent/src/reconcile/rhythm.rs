//! When the reconciler looks again, and at what. It is told the time.

use std::time::Duration;

use farshore_shared::names::Name;
use farshore_shared::retry::Schedule;
use farshore_shared::wire::{ServiceState, ServiceStatus};
use tokio::time::Instant;

use super::{Extent, Pass};
use crate::schedule::about;

/// The first pause before what did not succeed is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// How soon it is looked again at what is under way, at first and at last.
const LOOK: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// How soon the next pass is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// A revision was given up: the one before it comes back now.
    AtOnce,
    /// Something waits for health: it may be there any moment.
    UnderWay,
    /// Something is wrong, or has to come from elsewhere.
    Troubled,
    /// Everything is as it should be.
    Calm,
}

impl Urgency {
    /// How soon another pass is due after this one.
    #[must_use]
    pub fn of(pass: &Pass) -> Self {
        let is_calm = |state| matches!(state, ServiceState::Applied | ServiceState::Held);
        let is_under_way =
            |service: &ServiceStatus| service.progress.is_some() && service.state == ServiceState::Waiting;
        if pass.again {
            return Self::AtOnce;
        }
        if pass.services.iter().any(is_under_way) {
            return Self::UnderWay;
        }
        match pass.reached && pass.services.iter().all(|service| is_calm(service.state)) {
            true => Self::Calm,
            false => Self::Troubled,
        }
    }
}

/// The pauses between the passes of one site.
#[derive(Debug)]
pub struct Rhythm {
    name: Name,
    retry: Schedule,
    look: Schedule,
    round: u64,
    /// When everything is due again, whatever is under way.
    whole: Instant,
    /// How often everything is due.
    sweep: Duration,
}

impl Rhythm {
    /// Nothing was looked at yet. No pause after a failure is longer than `longest`.
    #[must_use]
    pub fn new(name: Name, longest: Duration, now: Instant) -> Self {
        let (retry, look) = (Schedule::new(RETRY, longest), Schedule::new(LOOK.0, LOOK.1.min(longest)));
        Self { name, retry, look, round: 0, whole: now, sweep: longest }
    }

    /// A pass over an extent begins; everything is due again after about a `sweep`.
    pub fn begin(&mut self, extent: Extent, sweep: Duration, now: Instant) {
        self.round += 1;
        let next = now + about(self.name.as_str(), sweep, self.round);
        if extent == Extent::Everything {
            self.whole = next;
        } else if sweep < self.sweep {
            self.whole = self.whole.min(next);
        }
        self.sweep = sweep;
    }

    /// There are new orders: what they bring is looked at closely.
    pub fn ordered(&mut self) {
        self.look.reset();
    }

    /// The pause after a pass, and the extent of the next one.
    pub fn after(&mut self, urgency: Urgency, now: Instant) -> (Duration, Extent) {
        if urgency != Urgency::UnderWay {
            self.look.reset();
        }
        match urgency {
            Urgency::AtOnce => (Duration::ZERO, Extent::Everything),
            Urgency::UnderWay => {
                let soon = self.look.next_delay().min(self.sweep);
                // What is under way keeps nobody else from being repaired.
                let extent = if now + soon < self.whole { Extent::Unfinished } else { Extent::Everything };
                (soon, extent)
            }
            Urgency::Troubled => (self.retry.next_delay().min(self.sweep), Extent::Everything),
            Urgency::Calm => {
                self.retry.reset();
                (self.whole.saturating_duration_since(now), Extent::Everything)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWEEP: Duration = Duration::from_secs(60);

    #[test]
    fn what_is_under_way_is_looked_at_soon_and_everything_once_a_sweep_all_the_same() {
        let begun = Instant::now();
        let mut rhythm = Rhythm::new("shop-7".parse().expect("a name"), SWEEP, begun);
        let (mut now, mut extent, mut last_whole, mut looks) = (begun, Extent::Everything, begun, 0);
        while now < begun + 10 * SWEEP {
            rhythm.begin(extent, SWEEP, now);
            if extent == Extent::Everything {
                assert!(now - last_whole < 2 * SWEEP, "{:?}", now - last_whole);
                last_whole = now;
            }
            let (pause, next) = rhythm.after(Urgency::UnderWay, now);
            assert!(pause <= LOOK.1);
            (now, extent, looks) = (now + pause, next, looks + 1);
        }
        assert!(looks > 100, "{looks} looks in ten sweeps");
    }

    #[test]
    fn a_shorter_sweep_counts_at_once_and_a_longer_one_from_the_next_look_at_everything_on() {
        let now = Instant::now();
        let mut rhythm = Rhythm::new("shop-7".parse().expect("a name"), SWEEP, now);
        let long = 100 * SWEEP;
        rhythm.begin(Extent::Everything, long, now);
        assert!(rhythm.after(Urgency::Calm, now).0 > long / 2);
        rhythm.begin(Extent::Ordered, SWEEP, now);
        assert!(rhythm.after(Urgency::Calm, now).0 < 2 * SWEEP);
        rhythm.begin(Extent::Ordered, long, now);
        assert!(rhythm.after(Urgency::Calm, now).0 < 2 * SWEEP);
        rhythm.begin(Extent::Everything, long, now);
        assert!(rhythm.after(Urgency::Calm, now).0 > long / 2);
        rhythm.begin(Extent::Everything, Duration::from_secs(1), now);
        assert!(rhythm.after(Urgency::Troubled, now).0 <= Duration::from_secs(1), "nor is a retry rarer");
    }

    #[test]
    fn a_calm_site_is_looked_at_once_a_sweep_and_a_troubled_one_later_and_later() {
        let now = Instant::now();
        let mut rhythm = Rhythm::new("shop-7".parse().expect("a name"), SWEEP, now);
        rhythm.begin(Extent::Everything, SWEEP, now);
        let (pause, extent) = rhythm.after(Urgency::Calm, now);
        assert!(pause > SWEEP / 2 && pause < 2 * SWEEP && extent == Extent::Everything, "{pause:?}");
        let pauses: Vec<_> = (0..10).map(|_| rhythm.after(Urgency::Troubled, now).0).collect();
        assert!(pauses[0] <= Duration::from_secs(3) && pauses[9] > Duration::from_secs(20), "{pauses:?}");
        assert_eq!(rhythm.after(Urgency::AtOnce, now), (Duration::ZERO, Extent::Everything));
    }
}
