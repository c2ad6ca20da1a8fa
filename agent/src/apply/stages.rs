//! One service as far as the health of its earlier waves allows. Nothing here waits: what is not healthy
//! yet is found again by the next pass.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use farshore_shared::wire::{HealthRule, OnFailure};

use super::{Outcome, apply_all, delete_all};
use crate::health::rules::Judges;
use crate::object::{Manifest, ObjectKey, Owner};
use crate::plan::{Cause, Inventory, Item};
use crate::rollout::{Now, Record, Verdict, Watch};
use crate::store::StoreError;
use crate::target::Target;
use crate::waves::{Hook, Phase, Place, annotations};

/// Where the record of a rollout is kept.
pub trait Logbook: Send + Sync {
    /// Writes it so that it survives a power cut.
    ///
    /// # Errors
    /// [`StoreError`].
    fn save(&self, record: &Record) -> Result<(), StoreError>;
}

/// What a service says of its own rollout.
#[derive(Debug, Clone, Copy)]
pub struct Policy<'a> {
    /// How objects of some kinds are judged.
    pub rules: &'a [HealthRule],
    /// Who evaluates that.
    pub judges: &'a Judges,
    /// How long there may be no progress.
    pub patience: Duration,
    /// What happens after that.
    pub on_failure: OnFailure,
}

/// An object that a service consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// Which.
    pub key: ObjectKey,
    /// The version of its API.
    pub version: String,
    /// When it is its turn.
    pub place: Place,
    /// Whether there is anything to judge in it.
    pub is_judged: bool,
}

impl Seat {
    /// A claim may be bound by nobody but a Pod of a later wave: it holds up no wave, only the end.
    pub(super) fn is_claim(&self) -> bool {
        self.key.group.is_empty() && self.key.kind == "PersistentVolumeClaim"
    }
}

/// A service on its way to a revision that has not been healthy yet.
pub struct Course<'a> {
    /// Every object of the service.
    pub seats: Vec<Seat>,
    /// What runs once, in the order of its turns.
    pub hooks: Vec<Hook>,
    /// What can never be healthy, such as a document that is no manifest: name and reason.
    pub blemishes: Vec<(String, String)>,
    /// What the service says of it.
    pub policy: Policy<'a>,
    /// How long has been waited.
    pub watch: &'a mut Watch,
    /// What has run.
    pub record: &'a mut Record,
    /// Where that is kept.
    pub logbook: &'a dyn Logbook,
    /// The time of this pass.
    pub now: Now,
    /// What was found, once there was a look.
    pub verdict: Option<Verdict>,
}

/// How far a service came in one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    /// Not all of it is applied: an earlier wave is not healthy.
    Part,
    /// All of it is applied, and not all of it is healthy.
    Applied,
    /// All of it is applied and healthy.
    Healthy,
}

/// What the parts of one pass over one service work with.
pub(super) struct Hands<'a, T> {
    pub(super) target: &'a T,
    pub(super) owner: &'a Owner,
    pub(super) inventory: &'a mut Inventory,
    pub(super) outcome: &'a mut Outcome,
    /// Whether what left has been removed, as far as it may be.
    pub(super) removed: bool,
}

type Applies = BTreeMap<Place, Vec<(Manifest, Cause)>>;

/// Applies and removes: everything at once for a service that has been healthy in this revision, else as
/// far as its course allows.
pub(super) async fn run<T: Target>(
    hands: &mut Hands<'_, T>,
    applies: Vec<(Manifest, Cause)>,
    deletions: Vec<Item>,
    course: Option<&mut Course<'_>>,
) -> Reached {
    let applies = by_place(applies);
    let Some(course) = course else {
        for (_, applies) in applies {
            hands.apply(applies).await;
        }
        hands.delete(deletions).await;
        return Reached::Healthy;
    };
    if !course.sync(hands, applies).await {
        return Reached::Part;
    }
    // Who goes back after a failure finds in place what it goes back to.
    let (early, late) = match course.policy.on_failure {
        OnFailure::Hold => (Some(deletions), None),
        OnFailure::Revert => (None, Some(deletions)),
    };
    if let Some(deletions) = early {
        hands.delete(deletions).await;
    }
    if !course.finish(hands).await {
        return Reached::Applied;
    }
    if let Some(deletions) = late {
        hands.delete(deletions).await;
    }
    Reached::Healthy
}

/// What cannot be read was refused before it came here.
fn by_place(applies: Vec<(Manifest, Cause)>) -> Applies {
    let mut places = Applies::new();
    for (manifest, cause) in applies {
        places.entry(annotations::place(&manifest)).or_default().push((manifest, cause));
    }
    places
}

impl<T: Target> Hands<'_, T> {
    async fn apply(&mut self, applies: Vec<(Manifest, Cause)>) {
        apply_all(self.target, self.owner, applies, self.inventory, self.outcome).await;
    }

    async fn delete(&mut self, deletions: Vec<Item>) {
        delete_all(self.target, self.owner, deletions, self.inventory, self.outcome).await;
        self.removed = true;
    }
}

/// Whether a look at a place is the one that decides on the whole service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Only what is in the place.
    Place,
    /// Also what holds up no wave, and is no part of a healthy service all the same.
    Service,
}

impl Course<'_> {
    /// Brings the objects about, place by place; true once all of them are applied.
    async fn sync<T: Target>(&mut self, hands: &mut Hands<'_, T>, mut applies: Applies) -> bool {
        let mut places = self.places(|phase| phase < Phase::PostSync);
        places.extend(applies.keys());
        let last = places.last().copied();
        let mut is_open = true;
        for place in places {
            let mut due = applies.remove(&place).unwrap_or_default();
            if !is_open {
                // What is in place is kept in place, whosever turn it is: only what is new waits.
                due.retain(|(_, cause)| *cause == Cause::Drift);
            }
            due.iter().for_each(|(manifest, _)| self.watch.written(&manifest.key));
            hands.apply(due).await;
            // What others live in or are made of says itself whether it can be used.
            if is_open && Some(place) != last && place != Place::FIRST {
                is_open = self.is_healthy(hands, place, Scope::Place).await;
            }
        }
        is_open
    }

    /// What comes after the last object is applied; true once there is nothing left to wait for.
    async fn finish<T: Target>(&mut self, hands: &mut Hands<'_, T>) -> bool {
        let last = self.places(|phase| phase < Phase::PostSync).last().copied().unwrap_or(Place::DEFAULT);
        if !self.is_healthy(hands, last, Scope::Service).await {
            return false;
        }
        for place in self.places(|phase| phase >= Phase::PostSync) {
            if !self.is_healthy(hands, place, Scope::Place).await {
                return false;
            }
        }
        true
    }

    /// The places of some phases where there is anything.
    fn places(&self, of: impl Fn(Phase) -> bool) -> BTreeSet<Place> {
        let seats = self.seats.iter().map(|seat| seat.place);
        seats.chain(self.hooks.iter().map(|hook| hook.place)).filter(|place| of(place.phase)).collect()
    }

    /// Runs the hooks of a place, looks at its objects, and notes what was seen.
    async fn is_healthy<T: Target>(&mut self, hands: &mut Hands<'_, T>, place: Place, scope: Scope) -> bool {
        let mut looks = self.run_hooks(hands, place).await;
        looks.extend(self.look(hands, place, scope).await);
        if looks.is_empty() {
            self.verdict = Some(Verdict::Healthy);
            return true;
        }
        let verdict = self.watch.note(place, looks, self.now, self.policy.patience);
        let is_healthy = verdict == Verdict::Healthy;
        self.verdict = Some(verdict);
        is_healthy
    }
}
