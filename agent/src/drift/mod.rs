//! Drift: somebody else changes what a service owns. How that is noticed, judged and put back.
//!
//! ```text
//! target tells of a change -> memory (whose? our own write?) -> mender: one GET -> examine -> one apply
//! sweep observes all        -> guard: what looks changed     ->           one GET -> examine -> plan
//! ```
//!
//! Pure, and tested as such:
//! - [`memory`]: a compact record per object, and whether a change asks for a look.
//! - [`fields`]: who owns which fields; [`compare`]: what differs from the manifest; [`quantity`]: amounts.
//! - [`examine`]: whether it is drift, and whose.
//! - [`fight`]: when somebody changes it back time and again.
//! - [`journal`]: what is told.
//!
//! [`era`]: when what is going on is out of date.
//!
//! What acts on it: [`guard`], a target that knows what a service says about drift, and [`mender`], the
//! task that hears changes. [`Shared`] is what the mender and the reconciler both know.

pub mod compare;
pub mod era;
pub mod examine;
pub mod fields;
pub mod fight;
pub mod guard;
pub mod journal;
pub mod memory;
pub mod mender;
pub mod quantity;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farshore_shared::names::Name;
use farshore_shared::wire::{ApplyPolicy, DriftRule, PruneBudget, ServiceEntry};
use futures::FutureExt as _;
use tokio::sync::{Mutex as Turns, Notify, OwnedMutexGuard};
use tokio::time::Instant;

use crate::controls::doubt::Doubts;
use crate::moment::Moment;
use crate::object::Manifest;
use crate::plan::Inventory;
use crate::target::Kind;
use crate::terms::Terms;
use era::{Era, Eras};
use fight::Fights;
use journal::Journal;
use memory::Memory;

/// What is known of drift at this site.
#[derive(Debug, Default)]
pub struct State {
    /// The objects that are in place.
    pub memory: Memory,
    /// The objects that were put back lately.
    pub fights: Fights,
    /// What is told.
    pub journal: Journal,
    /// What somebody at the site has paused: nothing of it is put back.
    pub leave_alone: LeaveAlone,
    /// Stops whose end the clock cannot tell.
    pub doubts: Doubts,
    said: BTreeMap<Name, Arc<Said>>,
    kinds: BTreeMap<Name, BTreeSet<Kind>>,
}

/// What a service says of how its objects are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    /// What is done about drift.
    pub drift: DriftRule,
    apply: ApplyPolicy,
    prune: PruneBudget,
}

impl Said {
    /// What an entry says.
    #[must_use]
    pub fn by(entry: &ServiceEntry) -> Self {
        Self { drift: entry.drift.clone(), apply: entry.apply, prune: entry.prune }
    }

    /// The terms on which one of its manifests is applied.
    #[must_use]
    pub fn terms(&self, manifest: &Manifest) -> Terms {
        Terms::of(manifest, self.apply, self.prune)
    }
}

/// Of which services nothing is put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaveAlone {
    /// Of all.
    Everything,
    /// Of these.
    Services(BTreeSet<Name>),
}

impl Default for LeaveAlone {
    fn default() -> Self {
        Self::Services(BTreeSet::new())
    }
}

impl LeaveAlone {
    /// Whether it speaks of this service.
    #[must_use]
    pub fn covers(&self, service: &Name) -> bool {
        match self {
            Self::Everything => true,
            Self::Services(services) => services.contains(service),
        }
    }
}

/// What the reconciler and the mender both know. Whoever works on a service has its turn.
#[derive(Debug)]
pub struct Shared {
    state: Mutex<State>,
    turns: Mutex<BTreeMap<Name, Arc<Turns<()>>>>,
    began: Instant,
    look: Notify,
    eras: Eras,
}

impl Default for Shared {
    fn default() -> Self {
        let (state, turns, look) = (Mutex::default(), Mutex::default(), Notify::new());
        Self { state, turns, began: Instant::now(), look, eras: Eras::default() }
    }
}

impl Shared {
    /// What is known. It is never held while something is waited for.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time since this was made: what everything in [`State`] counts by.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// The same beside what the site's clock shows.
    #[must_use]
    pub fn moment(&self) -> Moment {
        Moment::since(self.began)
    }

    /// The moment of such a time.
    #[must_use]
    pub fn at(&self, time: Duration) -> Instant {
        self.began + time
    }

    /// Waits until nobody else works on a service.
    pub async fn turn(&self, service: &Name) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(turns.entry(service.clone()).or_default())
        };
        turn.lock_owned().await
    }

    /// What is going on is out of date: it ends soon.
    pub fn turn_era(&self) {
        self.eras.turn();
    }

    /// The present era.
    #[must_use]
    pub fn era(&self) -> u64 {
        self.eras.now()
    }

    /// What belongs to an era.
    #[must_use]
    pub fn of_era(&self, era: u64) -> Era {
        self.eras.of(era)
    }

    /// Asks the reconciler to look at everything soon.
    pub fn ask_for_a_look(&self) {
        self.look.notify_one();
    }

    /// Such a look begins: whoever has asked for one until now is served by it.
    pub fn looks(&self) {
        // Polled once, it takes what was asked, and does not wait for more.
        let _asked = self.look.notified().now_or_never();
    }

    /// Returns when that was asked for.
    pub async fn asked_for_a_look(&self) {
        self.look.notified().await;
    }
}

impl State {
    /// What a service says, as far as it was heard.
    #[must_use]
    pub fn said(&self, service: &Name) -> Option<Arc<Said>> {
        self.said.get(service).cloned()
    }

    /// A service says something. What was let be by another word is looked at again.
    pub fn say(&mut self, service: &Name, said: &Said) -> Arc<Said> {
        let known = self.said.get(service).cloned();
        if let Some(known) = known.as_ref().filter(|known| ***known == *said) {
            return Arc::clone(known);
        }
        if known.is_none_or(|known| known.drift != said.drift) {
            self.memory.forget_let_be(service);
            self.journal.all_well(service);
        }
        let said = Arc::new(said.clone());
        self.said.insert(service.clone(), Arc::clone(&said));
        said
    }

    /// Learns what is in place of a service, as far as it is not known.
    pub fn learn(&mut self, service: &Name, inventory: &Inventory) {
        self.memory.learn(service, inventory);
        self.kinds.entry(service.clone()).or_insert_with(|| Kind::of_items(&inventory.items));
    }

    /// Replaces what is known to be in place of a service.
    pub fn replace(&mut self, service: &Name, inventory: &Inventory) {
        self.memory.replace(service, inventory);
        if self.journal.is_standing(service) {
            let objects = inventory.items.iter().map(|item| item.key.to_string()).collect();
            self.journal.only(service, &objects);
        }
        if inventory.items.is_empty() {
            self.kinds.remove(service);
        } else {
            self.kinds.insert(service.clone(), Kind::of_items(&inventory.items));
        }
    }

    /// A service is gone.
    pub fn forget(&mut self, service: &Name) {
        self.replace(service, &Inventory::default());
        self.journal.forget(service);
        self.said.remove(service);
    }

    /// The kinds that are in place.
    #[must_use]
    pub fn kinds(&self) -> BTreeSet<Kind> {
        self.kinds.values().flatten().cloned().collect()
    }
}
