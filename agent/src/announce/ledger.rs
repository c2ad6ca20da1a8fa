//! Which statuses are written, and when: what changed, and no service more often than every few seconds. Pure.
//! Times are seconds of a clock that nobody sets.

use std::collections::{BTreeMap, BTreeSet};

use farshore_shared::names::Name;
use serde_json::Value;

/// A service's status is written at most so often, in seconds.
const PAUSE: u64 = 10;
/// So many statuses at once,
const BURST: usize = 20;
/// and that many more each second.
const RATE: u64 = 2;

/// The statuses of a site.
#[derive(Debug)]
pub struct Ledger {
    wanted: BTreeMap<Name, Value>,
    written: BTreeMap<Name, (Value, u64)>,
    /// Services that may be shown, by this process or by one before it.
    shown: BTreeSet<Name>,
    /// Those of them that are no services any more: they stay here until their status is gone.
    gone: BTreeSet<Name>,
    room: usize,
    refilled: u64,
}

impl Ledger {
    /// Nothing was written by this process; these may have been shown by one before it.
    #[must_use]
    pub fn new(now: u64, shown: BTreeSet<Name>) -> Self {
        let (wanted, written, gone) = Default::default();
        Self { wanted, written, shown, gone, room: BURST, refilled: now }
    }

    /// What a service shall be shown as.
    pub fn want(&mut self, service: &Name, status: Value) {
        self.gone.remove(service);
        self.shown.insert(service.clone());
        self.wanted.insert(service.clone(), status);
    }

    /// These are the services, and there are no others: whatever else is shown has been removed.
    pub fn only(&mut self, services: &BTreeSet<Name>) {
        self.wanted.retain(|service, _| services.contains(service));
        self.written.retain(|service, _| services.contains(service));
        self.gone.extend(self.shown.difference(services).cloned());
        self.shown.retain(|service| services.contains(service));
    }

    /// The services whose status shall go.
    #[must_use]
    pub fn gone(&self) -> Vec<Name> {
        self.gone.iter().cloned().collect()
    }

    /// The status of a service is gone.
    pub fn taken_down(&mut self, service: &Name) {
        self.gone.remove(service);
    }

    /// What is to be written now, as much as there is room for.
    pub fn due(&mut self, now: u64) -> Vec<(Name, Value)> {
        let more = now.saturating_sub(self.refilled).saturating_mul(RATE);
        self.room = self.room.saturating_add(usize::try_from(more).unwrap_or(usize::MAX)).min(BURST);
        self.refilled = now;
        let due = self.wanted.iter().filter(|(service, _)| self.due_at(service).is_some_and(|at| at <= now));
        let due: Vec<_> =
            due.take(self.room).map(|(service, status)| (service.clone(), status.clone())).collect();
        self.room -= due.len();
        due
    }

    /// When something is to be written.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        let taking_down = (!self.gone.is_empty()).then_some(0);
        self.wanted.keys().filter_map(|service| self.due_at(service)).chain(taking_down).min()
    }

    /// A status was written.
    pub fn done(&mut self, service: &Name, status: Value, now: u64) {
        self.written.insert(service.clone(), (status, now));
    }

    fn due_at(&self, service: &Name) -> Option<u64> {
        match (self.wanted.get(service), self.written.get(service)) {
            (Some(wanted), Some((written, at))) => (wanted != written).then(|| at.saturating_add(PAUSE)),
            (Some(_), None) => Some(0),
            (None, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn write(ledger: &mut Ledger, now: u64) -> usize {
        let due = ledger.due(now);
        let count = due.len();
        due.into_iter().for_each(|(service, status)| ledger.done(&service, status, now));
        count
    }

    #[test]
    fn a_status_is_written_when_it_changed_and_not_more_often_than_every_ten_seconds() {
        let mut ledger = Ledger::new(100, BTreeSet::new());
        ledger.want(&name("web"), json!(1));
        assert_eq!(write(&mut ledger, 100), 1);
        ledger.want(&name("web"), json!(1));
        assert_eq!((ledger.next_due(), write(&mut ledger, 1000)), (None, 0), "it is idle");
        ledger.want(&name("web"), json!(2));
        assert_eq!(write(&mut ledger, 1000), 1);
        ledger.want(&name("web"), json!(3));
        assert_eq!((ledger.next_due(), write(&mut ledger, 1009)), (Some(1010), 0));
        ledger.want(&name("web"), json!(4));
        assert_eq!(ledger.due(1010), [(name("web"), json!(4))]);
    }

    #[test]
    fn many_statuses_are_spread_over_time_and_each_is_written() {
        let mut ledger = Ledger::new(100, BTreeSet::new());
        (0..100).for_each(|n| ledger.want(&name(&format!("s{n}")), json!(n)));
        assert_eq!(write(&mut ledger, 100), 20);
        assert_eq!(write(&mut ledger, 100), 0);
        let written: usize = (101..141).map(|now| write(&mut ledger, now)).sum();
        assert_eq!((written, ledger.next_due()), (80, None));
    }

    #[test]
    fn a_service_that_was_removed_is_taken_down_once_and_until_it_is() {
        let mut ledger = Ledger::new(100, [name("old")].into());
        ledger.want(&name("web"), json!(1));
        ledger.want(&name("shop"), json!(1));
        write(&mut ledger, 100);
        for _ in 0..2 {
            ledger.only(&[name("shop")].into());
            assert_eq!((ledger.gone(), ledger.next_due()), (vec![name("old"), name("web")], Some(0)));
        }
        ledger.want(&name("old"), json!(1));
        ledger.taken_down(&name("web"));
        ledger.only(&[name("shop"), name("old")].into());
        assert_eq!((ledger.gone(), ledger.due(200)), (vec![], vec![(name("old"), json!(1))]));
    }
}
