//! How long the objects of one place have been waited for. Pure: it is told the time.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use farshore_shared::digest::Digest;
use farshore_shared::wire::{Progress, UnixSeconds};

use crate::health::Health;
use crate::object::ObjectKey;
use crate::waves::{Phase, Place};

/// The most different states of one place's objects that count as progress: what goes on changing for
/// longer than that goes round in circles.
const STATES_LIMIT: usize = 4096;

/// What one look at an object showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// What was looked at.
    pub at: Looked,
    /// How it is.
    pub sight: Sight,
}

/// What can be looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Looked {
    /// An object.
    Object(ObjectKey),
    /// What is no object, such as a document that is no manifest, in words.
    Other(String),
}

/// How something is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    /// As its kind says, in a state that is told apart from others by a number, if it has any.
    Judged(Health, Option<u64>),
    /// Nobody could tell: the API does not answer. That is nobody's failure, and no time passes.
    Hidden(String),
}

/// What is known after a look at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All of it is healthy.
    Healthy,
    /// It is waited for.
    Waiting(Progress),
    /// It failed, or there was no progress for too long.
    Failed(Progress),
}

/// The time.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// For intervals; it does not jump.
    pub instant: Instant,
    /// For people.
    pub at: UnixSeconds,
}

/// What is remembered between looks, for one revision of one service.
#[derive(Debug)]
pub struct Watch {
    revision: Digest,
    place: Option<Place>,
    /// Objects that were found current since they were written last.
    current: BTreeSet<ObjectKey>,
    /// Hooks that were begun, so that one that is gone is known to have been there.
    begun: BTreeSet<(ObjectKey, Phase)>,
    /// States that objects of this place have been in.
    states: HashSet<(Looked, u64)>,
    /// For how long there has been no progress, as far as anybody could see.
    idle: Duration,
    /// When it was last looked, if that look was answered.
    looked: Option<Instant>,
    /// What is waited for first, and since when.
    waiting: Option<(Looked, UnixSeconds)>,
}

impl Watch {
    /// Nothing was looked at yet.
    #[must_use]
    pub fn new(revision: Digest) -> Self {
        Self {
            revision,
            place: None,
            current: BTreeSet::new(),
            begun: BTreeSet::new(),
            states: HashSet::new(),
            idle: Duration::ZERO,
            looked: None,
            waiting: None,
        }
    }

    /// The revision that is watched.
    #[must_use]
    pub fn revision(&self) -> Digest {
        self.revision
    }

    /// Whether an object has been found current since it was written last.
    #[must_use]
    pub fn is_current(&self, key: &ObjectKey) -> bool {
        self.current.contains(key)
    }

    /// An object was written: it is looked at again.
    pub fn written(&mut self, key: &ObjectKey) {
        self.current.remove(key);
    }

    /// A hook has begun.
    pub fn begun(&mut self, key: &ObjectKey, phase: Phase) {
        self.begun.insert((key.clone(), phase));
    }

    /// Whether a hook has begun while this was remembered.
    #[must_use]
    pub fn has_begun(&self, key: &ObjectKey, phase: Phase) -> bool {
        self.begun.contains(&(key.clone(), phase))
    }

    /// There was no look, because the API is away: the time until the next one does not count.
    pub fn pause(&mut self) {
        self.looked = None;
    }

    /// Takes what was seen at a place, and says whether it may be gone beyond.
    ///
    /// `patience` is how long there may be no progress. Progress is a state that no look has shown before
    /// at this place: what alternates between two makes none.
    pub fn note(&mut self, place: Place, looks: Vec<Look>, now: Now, patience: Duration) -> Verdict {
        if self.place != Some(place) {
            self.place = Some(place);
            self.states.clear();
            (self.idle, self.looked, self.waiting) = (Duration::ZERO, None, None);
        }
        let progress = self.take(&looks);
        let is_answered = looks.iter().all(|look| matches!(look.sight, Sight::Judged(..)));
        self.pass_time(now.instant, progress, is_answered);
        let mut waited: Vec<(Looked, Health)> = looks.into_iter().filter_map(Look::unfinished).collect();
        waited.sort_by(|a, b| (a.1.rank(), &a.0).cmp(&(b.1.rank(), &b.0)));
        let others = u32::try_from(waited.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let Some((first, health)) = waited.into_iter().next() else { return Verdict::Healthy };
        let since = match &self.waiting {
            Some((object, since)) if *object == first => *since,
            Some(_) | None => now.at,
        };
        self.waiting = Some((first.clone(), since));
        let told = |why: String| Progress {
            stage: place.to_string(),
            object: first.to_string(),
            why,
            since,
            others,
        };
        match health {
            Health::Failed(why) => Verdict::Failed(told(why)),
            Health::Progressing(why) if self.idle >= patience => {
                Verdict::Failed(told(format!("no progress for {} s: {why}", patience.as_secs())))
            }
            Health::Progressing(why) => Verdict::Waiting(told(why)),
            Health::Current => Verdict::Healthy,
        }
    }

    /// Remembers the states, and says whether any of them is new.
    fn take(&mut self, looks: &[Look]) -> bool {
        let mut progress = false;
        for Look { at, sight } in looks {
            let Sight::Judged(health, state) = sight else { continue };
            if let (Looked::Object(key), Health::Current) = (at, health) {
                progress |= self.current.insert(key.clone());
            }
            if let Some(state) = state
                && self.states.len() < STATES_LIMIT
            {
                progress |= self.states.insert((at.clone(), *state));
            }
        }
        progress
    }

    /// Only time between two answered looks counts: while the API is away nobody knows of any progress.
    fn pass_time(&mut self, now: Instant, progress: bool, is_answered: bool) {
        if progress {
            self.idle = Duration::ZERO;
        } else if let (Some(before), true) = (self.looked, is_answered) {
            self.idle += now.saturating_duration_since(before);
        }
        self.looked = is_answered.then_some(now);
    }
}

impl Look {
    /// How an object is.
    #[must_use]
    pub fn judged(key: ObjectKey, health: Health, state: Option<u64>) -> Self {
        Self { at: Looked::Object(key), sight: Sight::Judged(health, state) }
    }

    /// What is not healthy, and why.
    fn unfinished(self) -> Option<(Looked, Health)> {
        match self.sight {
            Sight::Judged(Health::Current, _) => None,
            Sight::Judged(health, _) => Some((self.at, health)),
            Sight::Hidden(why) => Some((self.at, Health::Progressing(why))),
        }
    }
}

impl Health {
    /// What failed is told before what is waited for.
    fn rank(&self) -> u8 {
        match self {
            Self::Failed(_) => 0,
            Self::Progressing(_) => 1,
            Self::Current => 2,
        }
    }
}

impl std::fmt::Display for Looked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Object(key) => key.fmt(f),
            Self::Other(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(300);

    fn key(name: &str) -> ObjectKey {
        ObjectKey {
            group: "apps".into(),
            kind: "Deployment".into(),
            namespace: Some("shop".into()),
            name: name.into(),
        }
    }

    fn under_way(name: &str, state: u64) -> Look {
        Look::judged(key(name), Health::Progressing(format!("state {state}")), Some(state))
    }

    fn healthy(name: &str) -> Look {
        Look::judged(key(name), Health::Current, Some(99))
    }

    /// Looks at a place at whole seconds from the first one on.
    struct Case {
        watch: Watch,
        begun: Instant,
    }

    impl Case {
        fn new() -> Self {
            Self { watch: Watch::new(Digest::of(b"1")), begun: Instant::now() }
        }

        fn look(&mut self, wave: i32, second: u64, looks: Vec<Look>) -> Verdict {
            let place = Place { wave, ..Place::DEFAULT };
            let now = Now { instant: self.begun + Duration::from_secs(second), at: 1000 + second };
            self.watch.note(place, looks, now, PATIENCE)
        }
    }

    fn waiting(verdict: &Verdict) -> &Progress {
        match verdict {
            Verdict::Waiting(progress) => progress,
            other => panic!("it should be waited for: {other:?}"),
        }
    }

    #[test]
    fn the_first_object_that_is_waited_for_is_named_with_since_when_and_what_it_lacks() {
        let mut case = Case::new();
        let verdict = case.look(2, 0, vec![healthy("a"), under_way("c", 1), under_way("b", 1)]);
        let told = waiting(&verdict);
        assert_eq!((told.object.as_str(), told.stage.as_str()), ("Deployment.apps shop/b", "wave 2"));
        assert_eq!((told.why.as_str(), told.since, told.others), ("state 1", 1000, 1));
        let verdict = case.look(2, 10, vec![under_way("c", 1), under_way("b", 2)]);
        assert_eq!(waiting(&verdict).since, 1000, "it is still the same object");
        let verdict = case.look(2, 20, vec![healthy("b"), under_way("c", 1)]);
        assert_eq!((waiting(&verdict).since, waiting(&verdict).others), (1020, 0));
        assert_eq!(case.look(2, 30, vec![healthy("c")]), Verdict::Healthy);
    }

    #[test]
    fn time_runs_out_without_progress_only() {
        let mut case = Case::new();
        for state in 0..10 {
            let verdict = case.look(0, state * 299, vec![under_way("a", state)]);
            assert!(matches!(verdict, Verdict::Waiting(_)), "state {state}");
        }
        let begun = 9 * 299;
        assert!(matches!(case.look(0, begun + 299, vec![under_way("a", 9)]), Verdict::Waiting(_)));
        let Verdict::Failed(told) = case.look(0, begun + 300, vec![under_way("a", 9)]) else {
            panic!("nothing has changed for 300 s")
        };
        assert_eq!(told.why, "no progress for 300 s: state 9");
        assert_eq!(
            case.look(0, begun + 301, vec![healthy("a")]),
            Verdict::Healthy,
            "late is better than never"
        );
    }

    #[test]
    fn what_alternates_between_states_makes_no_progress() {
        let mut case = Case::new();
        let mut verdict = Verdict::Healthy;
        for round in 0..40 {
            verdict = case.look(0, round * 10, vec![under_way("a", round % 2)]);
        }
        assert!(matches!(verdict, Verdict::Failed(_)), "{verdict:?}");
    }

    #[test]
    fn every_wave_has_its_own_time() {
        let mut case = Case::new();
        case.look(0, 0, vec![under_way("a", 1)]);
        case.look(0, 290, vec![healthy("a")]);
        case.look(1, 290, vec![under_way("b", 1)]);
        assert!(matches!(case.look(1, 580, vec![under_way("b", 1)]), Verdict::Waiting(_)));
        assert!(matches!(case.look(1, 590, vec![under_way("b", 1)]), Verdict::Failed(_)));
    }

    #[test]
    fn while_the_api_is_away_no_time_passes() {
        let mut case = Case::new();
        let hidden = || Look { at: Looked::Object(key("a")), sight: Sight::Hidden("no answer".into()) };
        case.look(0, 0, vec![under_way("a", 1)]);
        for second in [100, 1000, 5000] {
            assert_eq!(waiting(&case.look(0, second, vec![hidden()])).why, "no answer");
        }
        assert!(matches!(case.look(0, 5001, vec![under_way("a", 1)]), Verdict::Waiting(_)));
        assert!(matches!(case.look(0, 5300, vec![under_way("a", 1)]), Verdict::Waiting(_)));
        assert!(matches!(case.look(0, 5301, vec![under_way("a", 1)]), Verdict::Failed(_)));
    }

    #[test]
    fn what_has_failed_is_not_waited_for() {
        let mut case = Case::new();
        let failed = Look::judged(key("b"), Health::Failed("it is stuck".into()), None);
        let Verdict::Failed(told) = case.look(0, 0, vec![under_way("a", 1), failed]) else {
            panic!("b has failed")
        };
        assert_eq!((told.object.as_str(), told.why.as_str()), ("Deployment.apps shop/b", "it is stuck"));
    }

    #[test]
    fn an_object_that_was_current_is_looked_at_again_when_it_was_written() {
        let mut case = Case::new();
        case.look(0, 0, vec![healthy("a")]);
        assert!(case.watch.is_current(&key("a")));
        case.watch.written(&key("a"));
        assert!(!case.watch.is_current(&key("a")));
    }
}
