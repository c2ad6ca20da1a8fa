//! The mender: hears what the target tells of, and puts back the objects that somebody changed.
//!
//! It works beside the reconciler, a service at a time in turn with it, so that a pass over everything
//! keeps no object waiting. It hears changes from [`Target::changes`], tells of repairs by an `mpsc`
//! channel, and asks the reconciler for a look at everything where it cannot know.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use farshore_shared::clock;
use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use farshore_shared::wire::ObjectDrift;
use futures::stream::FuturesUnordered;
use futures::{StreamExt as _, stream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::{error, warn};

use super::Shared;
use super::guard::{Guarded, Judged};
use super::memory::Action;
use crate::object::{Manifest, ObjectKey, Owner};
use crate::plan::{Inventory, Item};
use crate::store::Store;
use crate::target::{Change, Target};

/// Services that are mended at a time.
const SERVICES_AT_ONCE: usize = 4;
/// Objects of one service that are looked at, or put back, at a time.
const OBJECTS_AT_ONCE: usize = 16;
/// The most objects of one service that are mended in one go.
const OBJECTS_IN_ONE_GO: usize = 1_000;
/// How long repairs are gathered before they are told.
const GATHERED: Duration = Duration::from_secs(2);
/// No timer is set for longer.
const LONGEST: Duration = Duration::from_secs(3600);

/// What is told of a service that was mended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mended {
    /// The service.
    pub service: Name,
    /// Repairs since the agent began to count.
    pub repairs: u64,
    /// Objects that somebody else changed lately.
    pub drift: Vec<ObjectDrift>,
}

/// The mender of one site.
pub struct Mender<T> {
    cluster: Name,
    target: Arc<T>,
    store: Arc<Store>,
    shared: Arc<Shared>,
    told: mpsc::Sender<Mended>,
}

/// What waits to be mended: the last change of each object.
type Waiting = BTreeMap<Name, BTreeMap<ObjectKey, Option<Change>>>;

impl<T: Target> Mender<T> {
    /// A mender that has heard nothing yet.
    #[must_use]
    pub fn new(
        cluster: Name,
        target: Arc<T>,
        store: Arc<Store>,
        shared: Arc<Shared>,
        told: mpsc::Sender<Mended>,
    ) -> Self {
        Self { cluster, target, store, shared, told }
    }

    /// Hears and mends until nobody listens any more.
    pub async fn run(self) {
        let mut waiting = Waiting::new();
        let mut untold = BTreeSet::new();
        let mut tell_at = None;
        let mut busy = BTreeSet::new();
        let mut working = FuturesUnordered::new();
        loop {
            // Cancel-safe: changes that are not taken stay with the target, work goes on, times are kept outside.
            tokio::select! {
                changes = self.target.changes() => self.hear(changes, &mut waiting),
                Some(service) = working.next(), if !working.is_empty() => {
                    busy.remove(&service);
                    untold.insert(service);
                    tell_at.get_or_insert_with(|| Instant::now() + GATHERED);
                }
                () = sleep_until(self.next_due()) => self.take_due(&mut waiting),
                () = sleep_until(tell_at.unwrap_or_else(far)), if tell_at.is_some() => {
                    tell_at = None;
                    for service in std::mem::take(&mut untold) {
                        if self.tell(service).await.is_err() {
                            return;
                        }
                    }
                }
            }
            while working.len() < SERVICES_AT_ONCE
                && let Some((service, changes)) = next(&mut waiting, &busy)
            {
                busy.insert(service.clone());
                working.push(self.mend(service, changes));
            }
        }
    }

    /// Sorts out which changes ask for something.
    fn hear(&self, changes: Vec<Change>, waiting: &mut Waiting) {
        let (mut state, now) = (self.shared.state(), self.shared.now());
        for change in changes {
            let key = match &change {
                Change::Missed { .. } => {
                    state.memory.forget_versions();
                    self.shared.ask_for_a_look();
                    continue;
                }
                Change::Seen { key, .. } | Change::Lost { key, .. } => key.clone(),
            };
            match state.memory.hear(&change, now) {
                Some((service, Action::Look)) => {
                    waiting.entry(service).or_default().insert(key, Some(change));
                }
                // The newest word on an object counts.
                Some((service, Action::Nothing)) => {
                    if let Some(changes) = waiting.get_mut(&service) {
                        changes.remove(&key);
                    }
                }
                None => {}
            }
        }
    }

    fn next_due(&self) -> Instant {
        let due = self.shared.state().fights.next_due();
        due.map_or_else(far, |due| self.shared.at(due))
    }

    /// Takes up what was left alone for a while because of a fight.
    fn take_due(&self, waiting: &mut Waiting) {
        let due = self.shared.state().fights.take_due(self.shared.now());
        for (service, key) in due {
            waiting.entry(service).or_default().entry(key).or_insert(None);
        }
    }

    async fn tell(&self, service: Name) -> Result<(), mpsc::error::SendError<Mended>> {
        let (repairs, drift) = self.shared.state().journal.told(&service, clock::now());
        self.told.send(Mended { service, repairs, drift }).await
    }

    /// Looks at some objects of a service and puts back what was changed.
    async fn mend(&self, service: Name, changes: BTreeMap<ObjectKey, Option<Change>>) -> Name {
        let _turn = self.shared.turn(&service).await;
        // What was written while this waited for its turn is known by now.
        let asks = |change: &Option<Change>| {
            let Some(change) = change else { return true };
            let heard = self.shared.state().memory.hear(change, self.shared.now());
            matches!(heard, Some((of, Action::Look)) if of == service)
        };
        let keys: BTreeSet<ObjectKey> =
            changes.into_iter().filter(|(_, change)| asks(change)).map(|(key, _)| key).collect();
        if !keys.is_empty()
            && let Err(failure) = self.put_back(&service, &keys).await
        {
            error!(%service, error = %chain(&failure), "an inventory cannot be used");
            self.shared.ask_for_a_look();
        }
        service
    }

    async fn put_back(
        &self,
        service: &Name,
        keys: &BTreeSet<ObjectKey>,
    ) -> Result<(), crate::store::StoreError> {
        let era = self.shared.era();
        // The look at everything that follows the end of a pause finds what was changed meanwhile.
        if self.shared.state().leave_alone.covers(service) {
            return Ok(());
        }
        // What a service says is known once the reconciler has had it in hand; until then that is its work.
        let Some(said) = self.shared.state().said(service) else { return Ok(()) };
        let Some(mut inventory) = self.store.inventory(service)?.good() else { return Ok(()) };
        if inventory.doomed.is_some() {
            // What a service that leaves has lost is not put back: its removal goes on.
            self.shared.ask_for_a_look();
            return Ok(());
        }
        let (target, store, shared) =
            (Arc::clone(&self.target), Arc::clone(&self.store), Arc::clone(&self.shared));
        let guard = Guarded::new(target, store, shared, service, &said).of_era(era);
        let owner = Owner { cluster: self.cluster.clone(), service: service.clone() };
        let applied = guard.applied(keys.clone(), &inventory.items).await;
        let work = Work { guard: &guard, owner: &owner, applied: &applied };
        let places: Vec<usize> = (0..inventory.items.len())
            .filter(|place| {
                keys.contains(&inventory.items[*place].key) && inventory.items[*place].applied.is_some()
            })
            .collect();
        let done = places.into_iter().map(|place| work.one(place, inventory.items[place].clone()));
        let done: Vec<_> = done.collect();
        let done: Vec<_> = stream::iter(done).buffer_unordered(OBJECTS_AT_ONCE).collect().await;
        let repaired = self.take(service, &mut inventory, done);
        if repaired.changed {
            self.store.save_inventory(service, &inventory)?;
            self.shared.state().replace(service, &inventory);
        }
        Ok(())
    }

    /// Writes down what was done.
    fn take(&self, service: &Name, inventory: &mut Inventory, done: Vec<(usize, Done)>) -> Taken {
        let mut taken = Taken::default();
        for (place, done) in done {
            let item = &mut inventory.items[place];
            match done {
                Done::PutBack(applied) => {
                    item.uid = Some(applied.uid);
                    item.fingerprint = Some(applied.fingerprint);
                    item.fields = applied.fields;
                    taken.repairs += 1;
                    taken.changed = true;
                }
                Done::AsApplied(sighting) => {
                    taken.changed |= item.fingerprint != Some(sighting.fingerprint);
                    item.uid = Some(sighting.uid);
                    item.fingerprint = Some(sighting.fingerprint);
                }
                Done::LetBe => {}
                Done::Unknown => self.shared.ask_for_a_look(),
            }
        }
        self.shared.state().journal.repaired(service, taken.repairs);
        taken
    }
}

#[derive(Debug, Default)]
struct Taken {
    repairs: u64,
    changed: bool,
}

/// What became of one object.
enum Done {
    PutBack(crate::target::Applied),
    AsApplied(crate::target::Sighting),
    LetBe,
    /// The target or the state folder does not tell: a pass has to.
    Unknown,
}

/// The objects of one service that are mended together.
struct Work<'a, T> {
    guard: &'a Guarded<T>,
    owner: &'a Owner,
    applied: &'a BTreeMap<ObjectKey, Manifest>,
}

impl<T: Target> Work<'_, T> {
    async fn one(&self, place: usize, item: Item) -> (usize, Done) {
        // Whoever has ended the era has a pass follow, or the end of a pause.
        if self.guard.era.is_over() {
            return (place, Done::Unknown);
        }
        let manifest = self.applied.get(&item.key);
        let judged = self.guard.judge(self.owner, &item, manifest).await;
        let done = match (judged, manifest) {
            (Ok(Judged::AsApplied(sighting)), _) => Done::AsApplied(sighting),
            (Ok(Judged::LetBe(sighting)), _) => {
                self.guard.lets_be(&item.key, sighting.as_ref());
                Done::LetBe
            }
            // Another service has taken it over meanwhile.
            (Ok(Judged::PutBack), _) if !self.guard.has(&item.key) => Done::LetBe,
            (Ok(Judged::PutBack), Some(manifest)) => match self.guard.apply(self.owner, manifest).await {
                Ok(applied) => Done::PutBack(applied),
                Err(error) => unknown(self.owner, &error),
            },
            (Ok(Judged::PutBack), None) => Done::Unknown,
            (Err(error), _) => unknown(self.owner, &error),
        };
        (place, done)
    }
}

fn unknown(owner: &Owner, error: &crate::target::ObjectError) -> Done {
    warn!(service = %owner.service, object = %error.key, "it was changed and could not be put back: {}", error.message);
    Done::Unknown
}

/// The next service that nobody works on, and what of it is to be mended.
fn next(waiting: &mut Waiting, busy: &BTreeSet<Name>) -> Option<(Name, BTreeMap<ObjectKey, Option<Change>>)> {
    waiting.retain(|_, changes| !changes.is_empty());
    let service = waiting.keys().find(|service| !busy.contains(*service))?.clone();
    let mut changes = waiting.remove(&service)?;
    if let Some((first, _)) = changes.iter().nth(OBJECTS_IN_ONE_GO) {
        let rest = changes.split_off(&first.clone());
        waiting.insert(service.clone(), rest);
    }
    Some((service, changes))
}

fn far() -> Instant {
    Instant::now() + LONGEST
}
