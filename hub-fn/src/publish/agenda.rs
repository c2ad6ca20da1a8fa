//! When which source is looked at next: every source has its own interval.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use farshore_shared::retry::hashed_share;

/// The share of an interval by which one round differs from the next, so that a hundred sources that
/// were declared in one commit are not fetched in one moment for ever.
const JITTER: f64 = 0.1;

/// The next look at each source. A source that is not on it is due.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    next: BTreeMap<String, Instant>,
}

impl Agenda {
    /// Whether a source is due.
    pub(super) fn is_due(&self, source: &str, now: Instant) -> bool {
        self.next.get(source).is_none_or(|next| now >= *next)
    }

    /// Notes that a source was looked at and everything of it was as it should be.
    pub(super) fn looked(&mut self, source: &str, interval: Duration, now: Instant) {
        let round =
            self.next.get(source).map_or(0, |next| next.saturating_duration_since(now).subsec_nanos());
        let jitter = interval.mul_f64(JITTER * hashed_share(&[source, &round.to_string()]));
        self.next.insert(source.to_owned(), now + interval + jitter);
    }

    /// A source that failed, or is held, is due at every step.
    pub(super) fn failed(&mut self, source: &str) {
        self.next.remove(source);
    }

    /// Everything is due.
    pub(super) fn forget(&mut self) {
        self.next.clear();
    }

    /// When the next source is due, where any has been looked at.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next.values().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_due_by_its_own_interval_and_at_once_after_a_failure() {
        let (mut agenda, start) = (Agenda::default(), Instant::now());
        let minute = Duration::from_secs(60);
        assert!(agenda.is_due("a", start));
        agenda.looked("a", minute, start);
        agenda.looked("b", 10 * minute, start);
        assert!(!agenda.is_due("a", start + minute / 2));
        assert!(agenda.is_due("a", start + minute + minute / 10));
        assert!(!agenda.is_due("b", start + 9 * minute));
        assert!(agenda.next().is_some_and(|next| next <= start + minute + minute / 10));
        agenda.failed("b");
        assert!(agenda.is_due("b", start));
        agenda.forget();
        assert!(agenda.is_due("a", start) && agenda.next().is_none());
    }
}
