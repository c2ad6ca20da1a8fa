//! When which source is looked at next: by its own interval, sooner where something was said, later
//! and later while it fails. What is told the time decides nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use farshore_shared::digest::Digest;
use farshore_shared::retry::{Schedule, hashed_share};

use crate::record::HeldChange;

/// The share of an interval by which one round differs from the next, so that a hundred sources that
/// were declared in one commit are not fetched in one moment for ever.
const JITTER: f64 = 0.1;
/// The first delay after a failure, where the source's interval is not shorter: most failures are short.
const FIRST_RETRY: Duration = Duration::from_secs(10);
/// The longest delay while a source fails.
const LAST_RETRY: Duration = Duration::from_secs(15 * 60);

/// The next look at each source. A source that is not on it is due.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    plans: BTreeMap<String, Plan>,
}

/// What is known of one source.
#[derive(Debug)]
struct Plan {
    /// When it is due by itself.
    next: Instant,
    /// What the last look was for; none if somebody else looked.
    basis: Option<Digest>,
    /// How many looks there were: each is late by another share.
    round: u64,
    /// How it was.
    last: Last,
    /// Something was said while a look was under way, which may have missed it.
    is_pushed: bool,
}

#[derive(Debug)]
enum Last {
    Good,
    Held(HeldChange),
    Failed { schedule: Schedule, times: u32 },
}

/// How a look ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// It was read.
    Good,
    /// Its newest commit waits for an approval.
    Held(HeldChange),
}

impl Agenda {
    /// Whether a source is due: by time, or because what it is looked at for is not what it was.
    pub(super) fn is_due(&self, source: &str, basis: Digest, now: Instant) -> bool {
        self.plans.get(source).is_none_or(|plan| {
            plan.is_pushed || now >= plan.next || plan.basis.is_some_and(|before| before != basis)
        })
    }

    /// A look begins: what was said before it is heard by it.
    pub(super) fn begin(&mut self, source: &str) {
        if let Some(plan) = self.plans.get_mut(source) {
            plan.is_pushed = false;
        }
    }

    /// A source was read; `basis` is what it would be looked at for from now on.
    pub(super) fn looked(
        &mut self,
        source: &str,
        (basis, ending): (Digest, Ending),
        interval: Duration,
        now: Instant,
    ) {
        let round = self.round(source);
        let late = interval.mul_f64(JITTER * hashed_share(&[source, &round.to_string()]));
        let last = match ending {
            Ending::Good => Last::Good,
            Ending::Held(held) => Last::Held(held),
        };
        let is_pushed = self.plans.get(source).is_some_and(|plan| plan.is_pushed);
        let plan = Plan { next: now + interval + late, basis: Some(basis), round, last, is_pushed };
        self.plans.insert(source.to_owned(), plan);
    }

    /// A source could not be read: how long until the next try, and how often in a row that happened.
    pub(super) fn failed(
        &mut self,
        source: &str,
        basis: Digest,
        interval: Duration,
        now: Instant,
    ) -> (Duration, u32) {
        let round = self.round(source);
        let before = self.plans.remove(source);
        let is_pushed = before.as_ref().is_some_and(|plan| plan.is_pushed);
        let (mut schedule, times) = match before.map(|plan| plan.last) {
            Some(Last::Failed { schedule, times }) => (schedule, times.saturating_add(1)),
            Some(Last::Good | Last::Held(_)) | None => {
                (Schedule::new(interval.min(FIRST_RETRY), LAST_RETRY.max(interval)), 1)
            }
        };
        let delay = schedule.next_delay();
        let last = Last::Failed { schedule, times };
        let plan = Plan { next: now + delay, basis: Some(basis), round, last, is_pushed };
        self.plans.insert(source.to_owned(), plan);
        (delay, times)
    }

    /// Another publisher looked at it `ago`, and it is ours now: it is due when it would have been.
    pub(super) fn adopt(&mut self, source: &str, interval: Duration, ago: Duration, now: Instant) {
        let next = now + interval.saturating_sub(ago);
        let plan = Plan { next, basis: None, round: 0, last: Last::Good, is_pushed: false };
        self.plans.entry(source.to_owned()).or_insert(plan);
    }

    /// Somebody says that a source has something new: it is due.
    pub(super) fn push(&mut self, source: &str) {
        if let Some(plan) = self.plans.get_mut(source) {
            plan.is_pushed = true;
        }
    }

    /// Everything is due.
    pub(super) fn push_all(&mut self) {
        self.plans.values_mut().for_each(|plan| plan.is_pushed = true);
    }

    /// Forgets a source, which is another publisher's now.
    pub(super) fn forget(&mut self, source: &str) {
        self.plans.remove(source);
    }

    /// Forgets what is not declared any more: it is never due again.
    pub(super) fn keep(&mut self, declared: &BTreeSet<String>) {
        self.plans.retain(|source, _| declared.contains(source));
    }

    /// When the next of these sources is due, where any has been looked at.
    pub(super) fn next(&self, counts: impl Fn(&str) -> bool, now: Instant) -> Option<Instant> {
        let counted = self.plans.iter().filter(|(source, _)| counts(source));
        counted.map(|(_, plan)| if plan.is_pushed { now } else { plan.next }).min()
    }

    /// Every change that waits for an approval.
    pub(super) fn held(&self) -> impl Iterator<Item = &HeldChange> {
        self.plans.values().filter_map(|plan| match &plan.last {
            Last::Held(held) => Some(held),
            Last::Good | Last::Failed { .. } => None,
        })
    }

    /// Every source that fails, with how often in a row.
    pub(super) fn failing(&self) -> impl Iterator<Item = (&str, u32)> {
        self.plans.iter().filter_map(|(source, plan)| match plan.last {
            Last::Failed { times, .. } => Some((source.as_str(), times)),
            Last::Good | Last::Held(_) => None,
        })
    }

    /// How many sources were looked at.
    pub(super) fn len(&self) -> usize {
        self.plans.len()
    }

    fn round(&self, source: &str) -> u64 {
        self.plans.get(source).map_or(0, |plan| plan.round.wrapping_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::HoldCause;

    const MINUTE: Duration = Duration::from_secs(60);

    fn basis(text: &str) -> Digest {
        Digest::of(text.as_bytes())
    }

    fn looked(agenda: &mut Agenda, source: &str, interval: Duration, now: Instant) {
        agenda.looked(source, (basis("1"), Ending::Good), interval, now);
    }

    #[test]
    fn a_source_is_due_by_its_own_interval() {
        let (mut agenda, start) = (Agenda::default(), Instant::now());
        assert!(agenda.is_due("a", basis("1"), start));
        looked(&mut agenda, "a", MINUTE, start);
        looked(&mut agenda, "b", 10 * MINUTE, start);
        assert!(!agenda.is_due("a", basis("1"), start + MINUTE / 2));
        assert!(agenda.is_due("a", basis("1"), start + MINUTE + MINUTE / 10));
        assert!(!agenda.is_due("b", basis("1"), start + 9 * MINUTE));
        assert!(agenda.next(|_| true, start).is_some_and(|next| next <= start + MINUTE + MINUTE / 10));
        assert!(agenda.next(|source| source == "b", start).is_some_and(|next| next >= start + 10 * MINUTE));
        agenda.keep(&BTreeSet::from(["b".to_owned()]));
        assert!(agenda.is_due("a", basis("1"), start), "a is not declared any more, and forgotten");
    }

    #[test]
    fn a_source_that_is_wanted_for_something_else_is_due_at_once() {
        let (mut agenda, start) = (Agenda::default(), Instant::now());
        looked(&mut agenda, "a", MINUTE, start);
        assert!(agenda.is_due("a", basis("2"), start));
    }

    #[test]
    fn a_source_that_fails_is_tried_later_and_later_and_no_other_waits() {
        let (mut agenda, start) = (Agenda::default(), Instant::now());
        looked(&mut agenda, "good", MINUTE, start);
        let delays: Vec<Duration> =
            (0..20).map(|_| agenda.failed("bad", basis("1"), 2 * MINUTE, start).0).collect();
        assert!(delays[0] <= FIRST_RETRY * 3 / 2, "{:?}", delays[0]);
        assert!(delays.iter().all(|delay| *delay <= LAST_RETRY));
        assert!(delays[12..].iter().all(|delay| *delay >= LAST_RETRY / 3), "{delays:?}");
        assert_eq!(agenda.failing().collect::<Vec<_>>(), [("bad", 20)]);
        assert!(!agenda.is_due("bad", basis("1"), start + MINUTE));
        assert!(agenda.is_due("good", basis("1"), start + MINUTE + MINUTE / 10));
        looked(&mut agenda, "bad", 2 * MINUTE, start);
        assert_eq!(agenda.failing().count(), 0);
        let (delay, times) = agenda.failed("bad", basis("1"), 2 * MINUTE, start);
        assert!(delay <= FIRST_RETRY * 3 / 2 && times == 1, "a success begins anew ({delay:?})");
    }

    #[test]
    fn what_is_said_before_a_look_is_heard_by_it_and_what_is_said_during_it_by_the_next() {
        let (mut agenda, start) = (Agenda::default(), Instant::now());
        looked(&mut agenda, "a", MINUTE, start);
        agenda.push("a");
        assert!(agenda.is_due("a", basis("1"), start));
        assert_eq!(agenda.next(|_| true, start), Some(start));
        agenda.begin("a");
        looked(&mut agenda, "a", MINUTE, start);
        assert!(!agenda.is_due("a", basis("1"), start));
        agenda.begin("a");
        agenda.push("a");
        looked(&mut agenda, "a", MINUTE, start);
        assert!(agenda.is_due("a", basis("1"), start));
    }

    #[test]
    fn a_source_that_was_anothers_is_due_when_it_would_have_been() {
        let (mut agenda, start) = (Agenda::default(), Instant::now());
        agenda.adopt("a", 2 * MINUTE, MINUTE, start);
        assert!(!agenda.is_due("a", basis("any"), start));
        assert!(agenda.is_due("a", basis("any"), start + MINUTE));
        agenda.adopt("b", MINUTE, 5 * MINUTE, start);
        assert!(agenda.is_due("b", basis("any"), start), "nobody looked for too long");
    }

    #[test]
    fn a_held_change_is_remembered_until_the_source_is_read_again() {
        let (mut agenda, start) = (Agenda::default(), Instant::now());
        let held = HeldChange::new("a", None, "b", HoldCause::NotDescending, 0, 0);
        agenda.looked("a", (basis("1"), Ending::Held(held.clone())), MINUTE, start);
        assert_eq!(agenda.held().collect::<Vec<_>>(), [&held]);
        looked(&mut agenda, "a", MINUTE, start);
        assert_eq!(agenda.held().count(), 0);
    }
}
