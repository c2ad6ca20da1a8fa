//! The reconciler: one pass over all services of the site, with or without a hub.
//!
//! It and the [mender](crate::drift::mender), in turns, alone touch the target and the inventories. It
//! hears of new documents by a `watch` channel and tells of every pass by an `mpsc` channel.
//!
//! - `renders`: what a service renders to, kept on disk; `claims`: objects that two services declare.
//! - `status`: what a pass says of each service.

mod claims;
mod renders;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use farshore_shared::clock;
use farshore_shared::digest::Digest;
use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use farshore_shared::wire::{Artifact, ServiceEntry, ServiceState, ServiceStatus};
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::apply::{self, Desired, Ledger, Outcome};
use crate::decide::{self, Enforce, Holding, Work};
use crate::drift::Shared;
use crate::drift::guard::Guarded;
use crate::drift::mender::{Mended, Mender};
use crate::object::{BadManifest, ObjectKey, Owner};
use crate::plan::{Completeness, Inventory, Removal};
use crate::render::{self, Limits, Site, Tools};
use crate::store::{Content, Found, Healthy, Made, Prune, Store, StoreError};
use crate::target::{Coverage, ObjectError, Retry, Target};
use crate::verify::Documents;
use renders::Rendered;
use status::{FAILURES_TOLD, blank, fill, holds, short, waiting};

/// What is to be enforced.
#[derive(Debug, Clone)]
pub struct Orders {
    /// The accepted documents, if any.
    pub documents: Option<Arc<Documents>>,
    /// Whether anything may be removed.
    pub prune: Prune,
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
    /// The poll interval that the documents ask for, in seconds.
    pub poll_seconds: Option<u64>,
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
    /// Why the target did not answer the last time, as it was logged; none when it did.
    silent: Option<String>,
}

struct Inventories<'a> {
    store: &'a Store,
    service: &'a Name,
}

impl Ledger for Inventories<'_> {
    fn save(&self, inventory: &Inventory) -> Result<(), StoreError> {
        self.store.save_inventory(self.service, inventory)
    }
}

impl<T: Target> Reconciler<T> {
    /// A reconciler that has done nothing yet.
    #[must_use]
    pub fn new(store: Arc<Store>, target: T, cluster: Name, tools: Tools) -> Self {
        let (shared, intended) = (Arc::default(), BTreeMap::new());
        Self { store, target: Arc::new(target), cluster, tools, shared, intended, silent: None }
    }

    /// The mender that works beside it.
    #[must_use]
    pub fn mender(&self, told: mpsc::Sender<Mended>) -> Mender<T> {
        let (target, store, shared) =
            (Arc::clone(&self.target), Arc::clone(&self.store), Arc::clone(&self.shared));
        Mender::new(self.cluster.clone(), target, store, shared, told)
    }

    /// Returns when somebody asked for a look at everything, because changes may have been missed.
    pub async fn asked_for_a_look(&self) {
        self.shared.asked_for_a_look().await;
    }

    /// How much of what is in place the target tells of by itself.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        self.target.coverage()
    }

    /// Looks at every service once, and repairs what is not as it should be.
    ///
    /// # Errors
    /// [`StoreError`] when the state folder cannot be read at all.
    pub async fn pass(&mut self, orders: &Orders) -> Result<Pass, StoreError> {
        let held = orders.documents.as_deref();
        let poll_seconds = held.map(|documents| documents.group.poll_seconds);
        let mut pass = Pass { holds: held.map(holds), poll_seconds, ..Pass::default() };
        let (healthy, in_place) = (self.healthy(&mut pass)?, self.in_place(&mut pass)?);
        self.target.follow(&self.shared.state().kinds());
        let content = self.store.content().present()?;
        let documents = held.map(|documents| (&documents.roster, &documents.group));
        let holding = Holding {
            documents,
            prune: orders.prune,
            healthy: &healthy,
            in_place: &in_place,
            content: &content,
        };
        let work = decide::decide(&holding);
        self.intended = intended(&work);
        let ready = self.target.ready().await;
        self.tell_of_target(ready.as_ref().err().map(ToString::to_string));
        if let Err(unreachable) = ready {
            pass.services = work.iter().map(|work| waiting(work, &unreachable.to_string())).collect();
            return Ok(pass);
        }
        pass.reached = true;
        let labels = documents.map(|(roster, _)| roster.labels.clone()).unwrap_or_default();
        let site = Site { cluster: self.cluster.clone(), labels };
        let (mut done, mut now_healthy) = (BTreeSet::new(), healthy.clone());
        for work in work {
            let work = decide::after_dependencies(&holding, work, &done);
            let status = self.one(&work, &site, &holding, &mut now_healthy).await;
            if status.state == ServiceState::Applied {
                done.insert(status.name.clone());
            }
            pass.services.push(status);
        }
        if now_healthy != healthy
            && let Err(error) = self.store.save_healthy(&now_healthy)
        {
            // What was done is told all the same; the next pass finds the difference again.
            pass.alarms.push(chain(&error));
        }
        self.target.follow(&self.shared.state().kinds());
        pass.alarms.extend(self.target.coverage().blind);
        pass.services.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(pass)
    }

    fn healthy(&self, pass: &mut Pass) -> Result<BTreeMap<Name, Healthy>, StoreError> {
        Ok(match self.store.healthy()? {
            Found::Good(healthy) => healthy,
            Found::Absent => BTreeMap::new(),
            Found::Corrupt(why) => {
                pass.alarms.push(format!("the record of what was last healthy is corrupt: {why}"));
                BTreeMap::new()
            }
        })
    }

    /// The services with an inventory. One that is corrupt lists nothing: what it listed stays, because
    /// nothing is deleted that is not listed.
    fn in_place(&self, pass: &mut Pass) -> Result<BTreeMap<Name, Option<u64>>, StoreError> {
        let mut in_place = BTreeMap::new();
        for service in self.store.services_with_inventory()? {
            let incarnation = match self.store.inventory(&service) {
                Ok(Found::Good(inventory)) => {
                    self.shared.state().learn(&service, &inventory);
                    inventory.incarnation
                }
                Ok(Found::Absent) => continue,
                // The disk refuses this one file: the other services go on.
                Err(error) => {
                    pass.alarms.push(chain(&error));
                    None
                }
                Ok(Found::Corrupt(why)) => {
                    pass.alarms.push(format!(
                        "the inventory of {service} is corrupt, what it listed is kept: {why}"
                    ));
                    None
                }
            };
            in_place.insert(service, incarnation);
        }
        Ok(in_place)
    }

    async fn one(
        &mut self,
        work: &Work,
        site: &Site,
        holding: &Holding<'_>,
        healthy: &mut BTreeMap<Name, Healthy>,
    ) -> ServiceStatus {
        match work {
            Work::Enforce(enforce) => {
                let status = match self.enforce(enforce, site, holding.prune).await {
                    Ok(status) => status,
                    Err(why) => self.keep(enforce, &why, site, holding).await,
                };
                if status.state == ServiceState::Applied {
                    let Enforce { entry, revision, .. } = &**enforce;
                    let (artifact, commit) = (entry.artifact.digest, entry.revision.commit.clone());
                    let was = Healthy { artifact, commit, revision: *revision, entry: entry.to_value() };
                    healthy.insert(entry.name.clone(), was);
                }
                status
            }
            Work::Remove(name) => {
                let status = self.remove(name).await;
                if status.state == ServiceState::Applied {
                    healthy.remove(name);
                    self.forget(name);
                }
                status
            }
            Work::Blocked { why, .. } => waiting(work, why),
        }
    }

    /// A service that cannot be rendered at all stays at what was last healthy: a broken commit takes
    /// no repair away from what is in place.
    async fn keep(
        &mut self,
        broken: &Enforce,
        why: &str,
        site: &Site,
        holding: &Holding<'_>,
    ) -> ServiceStatus {
        let Enforce { entry, revision, .. } = broken;
        let mut status = blank(entry.name.clone(), &entry.revision.commit);
        warn!(service = %entry.name, "{why}");
        (status.state, status.message) = (ServiceState::Failed, short(why));
        let Some(Work::Enforce(kept)) = decide::last_healthy(holding, &entry.name, why) else {
            return status;
        };
        if kept.revision == *revision {
            return status;
        }
        if let Ok(done) = self.enforce(&kept, site, holding.prune).await {
            let message = kept.note.as_deref().map_or(status.message, short);
            status = ServiceStatus { state: ServiceState::Failed, message, ..done };
        }
        status
    }

    /// Brings a service to what an entry renders to; or says why it does not render.
    async fn enforce(
        &mut self,
        enforce: &Enforce,
        site: &Site,
        prune: Prune,
    ) -> Result<ServiceStatus, String> {
        let Enforce { entry, revision, note } = enforce;
        let mut status = blank(entry.name.clone(), &entry.revision.commit);
        let _turn = self.shared.turn(&entry.name).await;
        let guard = self.guard(entry);
        if let Some(outcome) = self.untouched(enforce, site, &guard).await {
            fill(&mut status, &outcome, &[], note.as_deref());
            self.tell_of_drift(&mut status, 0);
            return Ok(status);
        }
        let rendered = self.render(entry, *revision, site).await?;
        let completeness = rendered.completeness();
        let Rendered { manifests, mut failures, mistakes } = rendered;
        let (removal, revision) = (decide::removal(enforce, prune), Some((*revision, entry.incarnation)));
        let mut desired = Desired { manifests, completeness, removal, revision };
        failures.extend(take_doubles(&mut desired));
        failures.extend(self.refuse_claimed(&entry.name, &mut desired, site).await);
        match self.apply(&guard, &entry.name, desired).await {
            Ok(mut outcome) => {
                outcome.failures.extend(failures);
                fill(&mut status, &outcome, &mistakes, note.as_deref());
                self.tell(&entry.name, &outcome, &mistakes);
                self.tell_of_drift(&mut status, outcome.repaired);
            }
            Err(error) => (status.state, status.message) = (ServiceState::Failed, short(&chain(&error))),
        }
        Ok(status)
    }

    /// The target as a service sees it.
    fn guard(&self, entry: &ServiceEntry) -> Guarded<T> {
        let (target, store, shared) =
            (Arc::clone(&self.target), Arc::clone(&self.store), Arc::clone(&self.shared));
        Guarded::new(target, store, shared, &entry.name, &entry.drift)
    }

    /// How a service is that was applied whole, in just this revision, and that nobody has changed: nothing is
    /// rendered for it. None if it has to be looked at closer.
    async fn untouched(&self, enforce: &Enforce, site: &Site, guard: &Guarded<T>) -> Option<Outcome> {
        let Enforce { entry, revision, .. } = enforce;
        let made =
            renders::made(&self.store, &entry.name, *revision, renders::inputs(entry, site, &self.tools))?;
        let inventory = self.store.inventory(&entry.name).ok()?.good()?;
        if !renders::is_settled(&inventory, &made, entry.incarnation) {
            return None;
        }
        let owner = Owner { cluster: self.cluster.clone(), service: entry.name.clone() };
        let live = guard.look(&owner, &inventory.items).await;
        renders::untouched(&inventory, &live)
    }

    /// Says of a service what changed in it without us, and counts what was put back.
    fn tell_of_drift(&self, status: &mut ServiceStatus, repaired: usize) {
        let mut state = self.shared.state();
        state.journal.repaired(&status.name, repaired as u64);
        (status.repairs, status.drift) = state.journal.told(&status.name, clock::now());
    }

    fn forget(&self, service: &Name) {
        self.shared.state().forget(service);
        if let Err(error) = self.store.renders().remove(service) {
            warn!(%service, error = %chain(&error), "a render of a service that is gone stays on disk");
        }
    }

    /// Takes out what another service has and goes on to declare.
    async fn refuse_claimed(&self, service: &Name, desired: &mut Desired, site: &Site) -> Vec<ObjectError> {
        let mut others: BTreeMap<Name, BTreeSet<ObjectKey>> = BTreeMap::new();
        {
            let state = self.shared.state();
            for manifest in &desired.manifests {
                let owner = state.memory.owner(&manifest.key);
                if let Some(owner) = owner.filter(|owner| *owner != service) {
                    others.entry(owner.clone()).or_default().insert(manifest.key.clone());
                }
            }
        }
        let mut claimed = BTreeMap::new();
        for (other, keys) in others {
            // One that is not enforced, because it leaves or nothing is known of it, keeps nothing from others.
            let Some(Enforce { entry, revision, .. }) = self.intended.get(&other) else { continue };
            // What cannot be rendered stays as it is: it has what it had.
            let declared: Option<BTreeSet<ObjectKey>> = self
                .render(entry, *revision, site)
                .await
                .ok()
                .map(|rendered| rendered.manifests.into_iter().map(|manifest| manifest.key).collect());
            let goes_on = |key: &ObjectKey| declared.as_ref().is_none_or(|declared| declared.contains(key));
            claimed.extend(keys.into_iter().filter(goes_on).map(|key| (key, other.clone())));
        }
        claims::refuse(desired, service, |key| claimed.get(key).cloned())
    }

    async fn remove(&mut self, name: &Name) -> ServiceStatus {
        let mut status = blank(name.clone(), "");
        let _turn = self.shared.turn(name).await;
        let desired = Desired {
            manifests: vec![],
            completeness: Completeness::Complete,
            removal: Removal::Tombstone,
            revision: None,
        };
        match self.apply(&*self.target, name, desired).await {
            Ok(outcome) => {
                self.tell(name, &outcome, &[]);
                fill(&mut status, &outcome, &[], None);
                if status.state == ServiceState::Applied {
                    status.message = "removed".to_owned();
                }
            }
            Err(error) => (status.state, status.message) = (ServiceState::Failed, short(&chain(&error))),
        }
        status
    }

    async fn apply<U: Target>(
        &self,
        target: &U,
        service: &Name,
        desired: Desired,
    ) -> Result<Outcome, StoreError> {
        let mut inventory = self.store.inventory(service)?.good().unwrap_or_default();
        let owner = Owner { cluster: self.cluster.clone(), service: service.clone() };
        let ledger = Inventories { store: &self.store, service };
        let outcome = apply::enforce(target, &owner, desired, &mut inventory, &ledger).await;
        self.shared.state().replace(service, &inventory);
        outcome
    }

    /// Renders, unless that has been done from just this and everything found its place.
    async fn render(&self, entry: &ServiceEntry, revision: Digest, site: &Site) -> Result<Rendered, String> {
        let inputs = renders::inputs(entry, site, &self.tools);
        if renders::made(&self.store, &entry.name, revision, inputs).is_some()
            && let Some(manifests) = renders::kept(&self.store, &entry.name).await
        {
            return Ok(Rendered { manifests, failures: vec![], mistakes: vec![] });
        }
        let content = unpacked(self.store.content(), &entry.artifact).await?;
        let out = render::render(entry, &content, site, &self.tools).await.map_err(|error| chain(&error))?;
        let located = self.target.locate(out.manifests, entry.namespace.as_deref()).await;
        let owner = Owner { cluster: self.cluster.clone(), service: entry.name.clone() };
        let (mut manifests, mut failures) = (vec![], vec![]);
        for manifest in located {
            match manifest {
                Ok(mut manifest) => {
                    manifest.mark(&owner);
                    manifests.push(manifest);
                }
                Err(error) => failures.push(error),
            }
        }
        let mut rendered = Rendered { manifests, failures, mistakes: out.mistakes };
        if rendered.completeness() == Completeness::Complete {
            let made = Made { revision, inputs, count: rendered.manifests.len() };
            let manifests = std::mem::take(&mut rendered.manifests);
            rendered.manifests = renders::keep(&self.store, &entry.name, made, manifests).await;
        }
        Ok(rendered)
    }

    /// Logs that the target fell silent, or that it answers again: once each, not at every pass.
    fn tell_of_target(&mut self, silent: Option<String>) {
        match (&self.silent, &silent) {
            (before, Some(why)) if before.as_ref() != Some(why) => {
                warn!("{why}; what is there stays as it is, and it is asked again");
            }
            (Some(_), None) => info!("the target answers again"),
            _ => {}
        }
        self.silent = silent;
    }

    fn tell(&self, service: &Name, outcome: &Outcome, mistakes: &[BadManifest]) {
        let Outcome { changed, repaired, removed, failures, held, .. } = outcome;
        if changed + repaired + removed > 0 {
            info!(%service, changed, repaired, removed, "objects written");
        }
        for mistake in mistakes.iter().take(FAILURES_TOLD) {
            warn!(%service, "{mistake}");
        }
        for failure in failures.iter().take(FAILURES_TOLD) {
            warn!(%service, object = %failure.key, "{}", failure.message);
        }
        if let Some(held) = held {
            warn!(%service, "{held}");
        }
    }
}

/// What is to be enforced, by service.
fn intended(work: &[Work]) -> BTreeMap<Name, Enforce> {
    let enforced = work.iter().filter_map(|work| match work {
        Work::Enforce(enforce) => Some((enforce.entry.name.clone(), (**enforce).clone())),
        Work::Remove(_) | Work::Blocked { .. } => None,
    });
    enforced.collect()
}

/// An artifact's files. One that is corrupt on disk is set aside, so that it is fetched again.
async fn unpacked(content: Content, artifact: &Artifact) -> Result<render::Content, String> {
    let artifact = artifact.clone();
    let read = move || match content.get(artifact.digest).map_err(|error| chain(&error))? {
        Found::Good(blob) => {
            render::unpack(&blob, &artifact, &Limits::default()).map_err(|error| chain(&error))
        }
        Found::Absent => Err("its content is not here".to_owned()),
        Found::Corrupt(why) => {
            content.set_aside(artifact.digest).map_err(|error| chain(&error))?;
            Err(format!("its content is corrupt and is fetched again: {why}"))
        }
    };
    // Large ones take long: the hub and the API are heard meanwhile.
    tokio::task::spawn_blocking(read).await.map_err(|error| chain(&error))?
}

/// Two manifests for one object: neither is applied, for nobody said which one is meant.
fn take_doubles(desired: &mut Desired) -> Vec<ObjectError> {
    let mut origins: BTreeMap<ObjectKey, Vec<String>> = BTreeMap::new();
    for manifest in &desired.manifests {
        origins.entry(manifest.key.clone()).or_default().push(manifest.origin.clone());
    }
    origins.retain(|_, origins| origins.len() > 1);
    if origins.is_empty() {
        return vec![];
    }
    desired.manifests.retain(|manifest| !origins.contains_key(&manifest.key));
    desired.completeness = Completeness::Partial;
    let error = |(key, origins): (ObjectKey, Vec<String>)| ObjectError {
        key,
        message: format!("two manifests describe it ({}): keep one", origins.join(" and ")),
        retry: Retry::Pointless,
    };
    origins.into_iter().map(error).collect()
}

#[cfg(test)]
mod tests;
