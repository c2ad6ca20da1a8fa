//! When somebody changes an object again as soon as it is put back: whether, and how long to wait. Pure.
//!
//! To go on would load the API for nothing and hide from everybody that two programs want two things.
//! So after a few repairs in a short time of what one manager did, the object is put back ever more
//! rarely, and once its changes end it is as any other.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use farshore_shared::names::Name;

use crate::object::ObjectKey;

/// The most objects that are remembered.
const FIGHTS_LIMIT: usize = 4_096;

/// When it is a fight, and how it is damped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FightRule {
    /// So many repairs of one object, of what one manager did, ...
    pub repairs: usize,
    /// ... within this time are no fight yet.
    pub window: Duration,
    /// The first pause; each further one is twice as long.
    pub first: Duration,
    /// The longest pause.
    pub most: Duration,
}

impl Default for FightRule {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { repairs: 5, window: seconds(600), first: seconds(60), most: seconds(3600) }
    }
}

/// What to do about an object that was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Put it back.
    Repair,
    /// Leave it until then: it is a fight.
    Wait(Duration),
}

/// All objects that were put back lately. Times are since any fixed moment.
#[derive(Debug, Default)]
pub struct Fights {
    rule: FightRule,
    objects: BTreeMap<ObjectKey, Fight>,
}

#[derive(Debug)]
struct Fight {
    service: Name,
    repairs: VecDeque<(Duration, String)>,
    /// The pause that is on, or was last.
    pause: Option<Pause>,
}

#[derive(Debug, Clone, Copy)]
struct Pause {
    ends: Duration,
    length: Duration,
    left: Left,
}

/// What a pause leaves undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// A change, which is to be looked at when it ends.
    Change,
    /// A change that somebody is about to look at.
    Taken,
    /// Nothing any more.
    Nothing,
}

impl Fight {
    fn last(&self) -> Duration {
        self.repairs.back().map_or(Duration::ZERO, |(at, _)| *at)
    }

    /// How long after the last repair a change counts as an answer to it.
    fn memory(&self, rule: &FightRule) -> Duration {
        self.pause.map_or(rule.window, |pause| rule.window.max(pause.length * 2))
    }
}

impl Fights {
    /// With another rule than the usual one.
    #[must_use]
    pub fn new(rule: FightRule) -> Self {
        Self { rule, objects: BTreeMap::new() }
    }

    /// What to do about an object that this manager changed.
    pub fn turn(&mut self, key: &ObjectKey, manager: &str, now: Duration) -> Turn {
        let rule = self.rule;
        let Some(fight) = self.objects.get_mut(key) else { return Turn::Repair };
        if let Some(pause) = fight.pause.as_mut().filter(|pause| pause.ends > now) {
            pause.left = Left::Change;
            return Turn::Wait(pause.ends);
        }
        if now.saturating_sub(fight.last()) > fight.memory(&rule) {
            self.objects.remove(key);
            return Turn::Repair;
        }
        let length = match fight.pause {
            // What was left undone while it lasted is done now.
            Some(pause) if pause.left != Left::Nothing => {
                fight.pause = Some(Pause { left: Left::Nothing, ..pause });
                return Turn::Repair;
            }
            Some(pause) => (pause.length * 2).min(rule.most),
            None => {
                let recent = |(at, who): &&(Duration, String)| {
                    now.saturating_sub(*at) <= rule.window && who == manager
                };
                if fight.repairs.iter().filter(recent).count() < rule.repairs {
                    return Turn::Repair;
                }
                rule.first
            }
        };
        let ends = now + length;
        fight.pause = Some(Pause { ends, length, left: Left::Change });
        Turn::Wait(ends)
    }

    /// An object was put back.
    pub fn repaired(&mut self, service: &Name, key: &ObjectKey, manager: &str, now: Duration) {
        self.forget_old(now);
        if self.objects.len() >= FIGHTS_LIMIT && !self.objects.contains_key(key) {
            return;
        }
        let fight = self.objects.entry(key.clone()).or_insert_with(|| Fight {
            service: service.clone(),
            repairs: VecDeque::new(),
            pause: None,
        });
        fight.service.clone_from(service);
        fight.repairs.push_back((now, manager.to_owned()));
        // Twice as many: two managers may take turns.
        while fight.repairs.len() > 2 * self.rule.repairs {
            fight.repairs.pop_front();
        }
    }

    /// The objects whose pause has ended and that were changed while it lasted: each once.
    pub fn take_due(&mut self, now: Duration) -> Vec<(Name, ObjectKey)> {
        let mut due = vec![];
        for (key, Fight { service, pause, .. }) in &mut self.objects {
            if let Some(pause) =
                pause.as_mut().filter(|pause| pause.left == Left::Change && pause.ends <= now)
            {
                pause.left = Left::Taken;
                due.push((service.clone(), key.clone()));
            }
        }
        due
    }

    /// When the next of them is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        let pauses = self.objects.values().filter_map(|fight| fight.pause);
        pauses.filter(|pause| pause.left == Left::Change).map(|pause| pause.ends).min()
    }

    /// Whether a pause is on for an object.
    #[must_use]
    pub fn is_damped(&self, key: &ObjectKey, now: Duration) -> bool {
        self.objects.get(key).and_then(|fight| fight.pause).is_some_and(|pause| pause.ends > now)
    }

    /// How often an object was put back lately.
    #[must_use]
    pub fn repairs(&self, key: &ObjectKey) -> usize {
        self.objects.get(key).map_or(0, |fight| fight.repairs.len())
    }

    fn forget_old(&mut self, now: Duration) {
        let rule = self.rule;
        self.objects.retain(|_, fight| now.saturating_sub(fight.last()) <= fight.memory(&rule));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { group: String::new(), kind: "ConfigMap".into(), namespace: None, name: name.into() }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Somebody changes the object every second, and it is put back whenever it may be: when it was.
    fn played(fights: &mut Fights, manager: impl Fn(u64) -> &'static str, until: u64) -> Vec<u64> {
        let web: Name = "web".parse().expect("a name");
        let mut repaired = vec![];
        for second in 0..until {
            if fights.turn(&key("a"), manager(second), seconds(second)) == Turn::Repair {
                fights.repaired(&web, &key("a"), manager(second), seconds(second));
                repaired.push(second);
            }
        }
        repaired
    }

    #[test]
    fn a_fight_is_damped_ever_more() {
        let mut fights = Fights::default();
        let repaired = played(&mut fights, |_| "controller", 4 * 3600);
        assert_eq!(repaired[..5], [0, 1, 2, 3, 4]);
        // The change of second 5 waits for a minute, the one after the next repair for two, and so on.
        assert_eq!(repaired[5..9], [65, 66 + 120, 187 + 240, 428 + 480]);
        let pauses: Vec<u64> = repaired.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.iter().all(|pause| *pause <= 3601), "{pauses:?}");
        assert!(repaired.len() < 15, "{repaired:?}");
    }

    #[test]
    fn a_few_changes_are_no_fight_and_one_object_s_fight_is_no_other_s() {
        let mut fights = Fights::default();
        let web: Name = "web".parse().expect("a name");
        for round in 0..50 {
            let now = seconds(round * 200);
            assert_eq!(
                fights.turn(&key("a"), "somebody", now),
                Turn::Repair,
                "every few minutes is no fight"
            );
            fights.repaired(&web, &key("a"), "somebody", now);
        }
        played(&mut fights, |_| "controller", 20);
        assert_eq!(fights.turn(&key("b"), "controller", seconds(20)), Turn::Repair);
    }

    #[test]
    fn changes_of_different_managers_are_counted_apart() {
        let mut fights = Fights::default();
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        let many = |second: u64| names[usize::try_from(second % 10).expect("small")];
        assert_eq!(played(&mut fights, many, 30).len(), 30);
        let mut fights = Fights::default();
        let two = |second: u64| if second.is_multiple_of(2) { "one" } else { "other" };
        assert_eq!(played(&mut fights, two, 40).len(), 10, "two that take turns are a fight all the same");
    }

    #[test]
    fn when_the_changes_end_it_is_an_object_as_any_other() {
        let mut fights = Fights::default();
        played(&mut fights, |_| "controller", 70);
        assert_eq!(fights.turn(&key("a"), "controller", seconds(71)), Turn::Wait(seconds(186)));
        assert!(fights.is_damped(&key("a"), seconds(71)));
        assert_eq!(fights.turn(&key("a"), "controller", seconds(9000)), Turn::Repair);
        assert!(!fights.is_damped(&key("a"), seconds(9001)));
        assert_eq!(fights.next_due(), None);
    }

    #[test]
    fn what_was_changed_during_a_pause_is_due_at_its_end() {
        let mut fights = Fights::default();
        played(&mut fights, |_| "controller", 6);
        assert_eq!(fights.next_due(), Some(seconds(65)));
        assert!(fights.take_due(seconds(64)).is_empty());
        let due = fights.take_due(seconds(65));
        let due: Vec<_> = due.iter().map(|(service, key)| (service.as_str(), key.name.as_str())).collect();
        assert_eq!(due, [("web", "a")]);
        assert!(fights.take_due(seconds(66)).is_empty() && fights.next_due().is_none(), "it is taken once");
        assert_eq!(fights.turn(&key("a"), "controller", seconds(66)), Turn::Repair);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut fights = Fights::default();
        let web: Name = "web".parse().expect("a name");
        for n in 0..2 * FIGHTS_LIMIT {
            fights.repaired(&web, &key(&n.to_string()), "somebody", seconds(1));
        }
        assert_eq!(fights.objects.len(), FIGHTS_LIMIT);
        fights.repaired(&web, &key("later"), "somebody", seconds(10_000));
        assert_eq!(fights.objects.len(), 1);
    }
}
