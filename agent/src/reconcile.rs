//! The reconciler: one pass over all services of the site, with or without a hub.
//!
//! It and the [mender](crate::drift::mender), in turns, alone touch the target and the inventories. It
//! hears of new documents by a `watch` channel and tells of every pass by an `mpsc` channel.
//!
//! - `renders`: what a service renders to, kept on disk; `claims`: objects that two services declare.
//! - `round`: which service is worked on when, several at a time; `service`, `removal`: one of them.
//! - `arrange`, `bring`: one service as far as its health allows; `rollouts`: what is remembered of that.
//! - `beside`: what the reconciler shares with the mender; [`rhythm`]: when it looks again.
//! - `controlled`: what somebody at the site has stopped. What makes a pass out of date ends it ([`crate::drift::era`]).
//! - `held`: what is known before a pass; `status`: what it says of each service.

pub(crate) mod arrange;
mod beside;
mod bring;
mod claims;
mod controlled;
mod held;
mod removal;
mod renders;
pub mod rhythm;
mod rollouts;
mod round;
mod service;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use farshore_shared::wire::{ServiceStatus, SiteControls};
use tokio::sync::Mutex as Turn;

use crate::claims::Claims;
use crate::decide::{self, Enforce, Holding};
use crate::drift::Shared;
use crate::footprint::InForce;
use crate::health::rules::Judges;
use crate::render::{Site, Tools};
use crate::store::{Healthy, Prune, Store, StoreError};
use crate::target::Target;
use crate::verify::Documents;
use controlled::Stopped;
use held::InPlace;
pub(crate) use removal::{leaving, named_kinds};
use rollouts::Rollouts;
use round::About;
use status::{holds, waiting};

/// What is to be enforced.
#[derive(Debug, Clone)]
pub struct Orders {
    /// The accepted documents, if any.
    pub documents: Option<Arc<Documents>>,
    /// Whether anything may be removed.
    pub prune: Prune,
}

/// Which services a pass looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All, whether anything seems to have changed or not.
    Everything,
    /// All, for new orders: of what the target tells of by itself nothing is asked.
    Ordered,
    /// Those that are not as they shall be yet.
    Unfinished,
}

/// What one pass found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pass {
    /// Every service, by name.
    pub services: Vec<ServiceStatus>,
    /// What a person should look at.
    pub alarms: Vec<String>,
    /// The documents that were enforced.
    pub holds: Option<farshore_shared::wire::Holds>,
    /// Whether the target answered.
    pub reached: bool,
    /// Whether there is something to do at once: a revision was given up in this pass.
    pub again: bool,
    /// The poll interval that the documents ask for, in seconds.
    pub poll_seconds: Option<u64>,
    /// What somebody at the site has stopped.
    pub controls: Option<SiteControls>,
    /// How much is asked of cluster and machine.
    pub footprint: Option<InForce>,
    /// Whether it is out of date, and not all of it was done: another one follows at once.
    pub overtaken: bool,
}

/// What the services of a pass know together. It is never held while something is waited for.
#[derive(Debug, Default)]
struct Common {
    rollouts: Rollouts,
    claims: Claims,
    /// Services of which something stays until others have been rendered.
    deferred: BTreeSet<Name>,
    /// Whether a revision was given up in this pass.
    again: bool,
}

/// The reconciler of one site.
pub struct Reconciler<T> {
    store: Arc<Store>,
    target: Arc<T>,
    cluster: Name,
    tools: Tools,
    shared: Arc<Shared>,
    /// What is to be enforced in this pass.
    intended: BTreeMap<Name, Enforce>,
    in_place: InPlace,
    common: Mutex<Common>,
    /// Whoever holds it prepares a service.
    preparing: Turn<()>,
    stopped: Stopped,
    /// Every service as the last pass left it.
    last: BTreeMap<Name, ServiceStatus>,
    /// Whether the target tells of every change in this pass, so that what was seen last is what is there.
    hears: bool,
    /// The era of this pass.
    era: u64,
    /// Why the target did not answer the last time, as it was logged; none when it did.
    silent: Option<String>,
}

impl<T: Target> Reconciler<T> {
    /// A reconciler that has done nothing yet.
    #[must_use]
    pub fn new(store: Arc<Store>, target: T, cluster: Name, tools: Tools) -> Self {
        let (intended, last) = Default::default();
        Self {
            store,
            target: Arc::new(target),
            cluster,
            tools,
            shared: Arc::default(),
            intended,
            in_place: InPlace::default(),
            common: Mutex::default(),
            preparing: Turn::default(),
            stopped: Stopped::default(),
            last,
            hears: false,
            era: 0,
            silent: None,
        }
    }

    /// The same with another program that evaluates rules of health.
    #[must_use]
    pub fn judged_by(self, judges: Judges) -> Self {
        self.common().rollouts.judges = judges;
        self
    }

    /// Asks from here on for no more than this.
    pub fn bound(&mut self, footprint: &InForce) {
        self.target.bound(footprint.in_flight.value, footprint.qps.value);
        self.tools.memory = footprint.process_memory.value;
        self.common().rollouts.judges.give(footprint.process_memory.value);
    }

    fn common(&self) -> MutexGuard<'_, Common> {
        self.common.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at every service once, and repairs what is not as it should be.
    ///
    /// # Errors
    /// [`StoreError`] when the state folder cannot be read at all.
    pub async fn pass(&mut self, orders: &Orders) -> Result<Pass, StoreError> {
        self.pass_over(orders, Extent::Everything).await
    }

    /// Hears and reads what is to be known before a pass; gives what was last healthy.
    fn begin(&mut self, extent: Extent, pass: &mut Pass) -> Result<BTreeMap<Name, Healthy>, StoreError> {
        self.era = self.shared.era();
        self.hear_controls(pass);
        let healthy = self.healthy(pass)?;
        // Between two looks at everything no inventory comes or goes but by new orders.
        if extent == Extent::Everything {
            self.shared.looks();
        }
        if extent != Extent::Unfinished {
            self.in_place = self.in_place()?;
        }
        self.hears = extent == Extent::Ordered && self.silent.is_none() && self.target.coverage().is_live();
        self.target.follow(&self.shared.state().kinds());
        pass.alarms.extend(self.in_place.alarms.iter().cloned());
        pass.alarms.extend(self.common().rollouts.refresh(&self.store)?);
        Ok(healthy)
    }

    /// Looks at the services of an extent; what is said of the others is what the last pass found.
    ///
    /// # Errors
    /// [`StoreError`] when the state folder cannot be read at all.
    pub async fn pass_over(&mut self, orders: &Orders, extent: Extent) -> Result<Pass, StoreError> {
        let held = orders.documents.as_deref();
        let poll_seconds = held.map(|documents| documents.group.poll_seconds);
        let mut pass = Pass { holds: held.map(holds), poll_seconds, ..Pass::default() };
        let healthy = self.begin(extent, &mut pass)?;
        let InPlace { lives: in_place, doomed, .. } = self.in_place.clone();
        let given_up = self.common().rollouts.given_up();
        let content = self.store.content().present()?;
        let documents = held.map(|documents| (&documents.roster, &documents.group));
        let holding = Holding {
            documents,
            prune: orders.prune,
            healthy: &healthy,
            in_place: &in_place,
            doomed: &doomed,
            content: &content,
            given_up: &given_up,
        };
        let work = decide::decide(&holding);
        self.intend(&work);
        let ready = if self.hears { Ok(()) } else { self.target.ready().await };
        self.tell_of_target(ready.as_ref().err().map(ToString::to_string));
        if let Err(unreachable) = ready {
            self.common().rollouts.pause();
            pass.services = work.iter().map(|work| waiting(work, &unreachable.to_string())).collect();
            return Ok(pass);
        }
        pass.reached = true;
        let labels = documents.map(|(roster, _)| roster.labels.clone()).unwrap_or_default();
        let site = Site { cluster: self.cluster.clone(), labels };
        let about = About { site: &site, holding: &holding, extent };
        let now_healthy = self.all(work, about, &mut pass).await;
        if now_healthy != healthy
            && let Err(error) = self.store.save_healthy(&now_healthy)
        {
            // What was done is told all the same; the next pass finds the difference again.
            pass.alarms.push(chain(&error));
        }
        self.target.follow(&self.shared.state().kinds());
        pass.alarms.extend(self.target.coverage().blind);
        pass.services.sort_by(|a, b| a.name.cmp(&b.name));
        pass.overtaken = self.is_overtaken();
        Ok(pass)
    }
}

#[cfg(test)]
mod tests;
