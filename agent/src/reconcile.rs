//! The reconciler: one pass over all services of the site, with or without a hub.
//!
//! It and the [mender](crate::drift::mender), in turns, alone touch the target and the inventories. It
//! hears of new documents by a `watch` channel and tells of every pass by an `mpsc` channel.
//!
//! - `renders`: what a service renders to, kept on disk; `claims`: objects that two services declare.
//! - `arrange`, `bring`: one service as far as its health allows; `rollouts`: what is remembered of that.
//! - `beside`: what the reconciler shares with the mender; [`rhythm`]: when it looks again.
//! - `controlled`: what somebody at the site has stopped.
//! - `held`: what is known before a pass; `status`: what it says of each service.

pub(crate) mod arrange;
mod beside;
mod bring;
mod claims;
mod controlled;
mod held;
mod renders;
pub mod rhythm;
mod rollouts;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use farshore_shared::digest::Digest;
use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use farshore_shared::wire::{
    Artifact, ProtectedKinds, ServiceEntry, ServiceState, ServiceStatus, SiteControls,
};
use tracing::warn;

use crate::apply::{self, Desired, Outcome};
use crate::claims::{Claimed, Claims};
use crate::decide::{self, Enforce, Holding, Work};
use crate::drift::Shared;
use crate::health::rules::Judges;
use crate::object::{ObjectKey, Owner};
use crate::plan::{Completeness, Inventory, Removal, Stays};
use crate::render::{self, Limits, Site, Tools};
use crate::store::{Content, Found, Healthy, Made, Prune, Store, StoreError};
use crate::target::Target;
use crate::terms::Terms;
use crate::verify::Documents;
use controlled::{Course, Stopped, held};
use held::{InPlace, Inventories};
use renders::Rendered;
use rollouts::Rollouts;
use status::{blank, fill, holds, short, waiting};

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
    rollouts: Rollouts,
    in_place: InPlace,
    claims: Claims,
    /// Services of which something stays until others have been rendered.
    deferred: BTreeSet<Name>,
    stopped: Stopped,
    /// Every service as the last pass left it.
    last: BTreeMap<Name, ServiceStatus>,
    /// Whether a revision was given up in this pass.
    again: bool,
    /// Whether the target tells of every change in this pass, so that what was seen last is what is there.
    hears: bool,
    /// Why the target did not answer the last time, as it was logged; none when it did.
    silent: Option<String>,
}

impl<T: Target> Reconciler<T> {
    /// A reconciler that has done nothing yet.
    #[must_use]
    pub fn new(store: Arc<Store>, target: T, cluster: Name, tools: Tools) -> Self {
        let (intended, last) = Default::default();
        let (rollouts, in_place) = (Rollouts::default(), InPlace::default());
        let (claims, deferred) = (Claims::default(), BTreeSet::new());
        Self {
            store,
            target: Arc::new(target),
            cluster,
            tools,
            shared: Arc::default(),
            intended,
            rollouts,
            in_place,
            claims,
            deferred,
            stopped: Stopped::default(),
            last,
            again: false,
            hears: false,
            silent: None,
        }
    }

    /// The same with another program that evaluates rules of health.
    #[must_use]
    pub fn judged_by(mut self, judges: Judges) -> Self {
        self.rollouts.judges = judges;
        self
    }

    /// Looks at every service once, and repairs what is not as it should be.
    ///
    /// # Errors
    /// [`StoreError`] when the state folder cannot be read at all.
    pub async fn pass(&mut self, orders: &Orders) -> Result<Pass, StoreError> {
        self.pass_over(orders, Extent::Everything).await
    }

    /// Looks at the services of an extent; what is said of the others is what the last pass found.
    ///
    /// # Errors
    /// [`StoreError`] when the state folder cannot be read at all.
    pub async fn pass_over(&mut self, orders: &Orders, extent: Extent) -> Result<Pass, StoreError> {
        let held = orders.documents.as_deref();
        let poll_seconds = held.map(|documents| documents.group.poll_seconds);
        let mut pass = Pass { holds: held.map(holds), poll_seconds, ..Pass::default() };
        self.hear_controls(&mut pass);
        let healthy = self.healthy(&mut pass)?;
        // Between two looks at everything no inventory comes or goes but by new orders.
        if extent == Extent::Everything {
            self.shared.looks();
        }
        if extent != Extent::Unfinished {
            self.in_place = self.in_place()?;
        }
        self.hears = extent == Extent::Ordered && self.silent.is_none() && self.target.coverage().is_live();
        self.target.follow(&self.shared.state().kinds());
        let InPlace { lives: in_place, doomed, alarms } = self.in_place.clone();
        pass.alarms.extend(alarms);
        pass.alarms.extend(self.rollouts.refresh(&self.store)?);
        let given_up = self.rollouts.given_up();
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
            self.rollouts.pause();
            pass.services = work.iter().map(|work| waiting(work, &unreachable.to_string())).collect();
            return Ok(pass);
        }
        pass.reached = true;
        let labels = documents.map(|(roster, _)| roster.labels.clone()).unwrap_or_default();
        let site = Site { cluster: self.cluster.clone(), labels };
        let now_healthy = self.all(work, &site, &holding, extent, &mut pass).await;
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

    /// Does all of it, service by service, and gives what is healthy after that.
    async fn all(
        &mut self,
        work: Vec<Work>,
        site: &Site,
        holding: &Holding<'_>,
        extent: Extent,
        pass: &mut Pass,
    ) -> BTreeMap<Name, Healthy> {
        let (mut done, mut healthy) = (BTreeSet::new(), holding.healthy.clone());
        self.begin_claims(holding);
        let mut worked = Vec::with_capacity(work.len());
        for work in work {
            let work = decide::after_dependencies(holding, work, &done);
            let course = self.controlled(holding, work);
            let known = match &course {
                Course::Free(work) => self.known(work, extent),
                Course::Kept(_) | Course::Left(_) => None,
            };
            let status = match known {
                Some(status) => status,
                None => self.along(&course, site, holding, &mut healthy).await,
            };
            if status.state == ServiceState::Applied {
                done.insert(status.name.clone());
            }
            worked.push((course, status));
        }
        // By now it is known what the others declare, and they have taken over what is theirs.
        let deferred = std::mem::take(&mut self.deferred);
        for (course, status) in worked.iter_mut().filter(|(_, status)| deferred.contains(&status.name)) {
            *status = self.along(course, site, holding, &mut healthy).await;
        }
        pass.services.extend(worked.into_iter().map(|(_, status)| status));
        pass.again = std::mem::take(&mut self.again);
        self.last = pass.services.iter().map(|status| (status.name.clone(), status.clone())).collect();
        healthy
    }

    /// What is in place whole, in its newest revision, declares what is listed: it need not be rendered for
    /// that.
    fn begin_claims(&mut self, holding: &Holding<'_>) {
        self.deferred.clear();
        self.claims.begin(decide::newest(holding), &holding.in_place.keys().cloned().collect());
        for name in holding.in_place.keys() {
            if !self.claims.is_known(name)
                && let Ok(Found::Good(inventory)) = self.store.inventory(name)
            {
                self.claims.recall(name, &inventory);
            }
        }
    }

    /// Does what is left of a service's work by what somebody at the site has stopped.
    async fn along(
        &mut self,
        course: &Course,
        site: &Site,
        holding: &Holding<'_>,
        healthy: &mut BTreeMap<Name, Healthy>,
    ) -> ServiceStatus {
        match course {
            Course::Left(status) => status.as_ref().clone(),
            Course::Kept(work) => held(self.one(work, site, holding, healthy).await),
            Course::Free(work) => self.one(work, site, holding, healthy).await,
        }
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
                let (status, is_healthy) = match self.enforce(enforce, site, holding).await {
                    Ok(done) => done,
                    Err(why) => (self.keep(enforce, &why, site, holding).await, false),
                };
                if is_healthy {
                    let Enforce { entry, revision, .. } = &**enforce;
                    let (artifact, commit) = (entry.artifact.digest, entry.revision.commit.clone());
                    let was = Healthy { artifact, commit, revision: *revision, entry: entry.to_value() };
                    healthy.insert(entry.name.clone(), was);
                    self.rollouts.arrived(&entry.name);
                }
                status
            }
            Work::Remove(name) => {
                let (status, left_over) = self.remove(name, healthy).await;
                if let Some(left_over) = left_over {
                    // Its inventory says from now on that it goes: nothing brings it back.
                    healthy.remove(name);
                    if left_over == 0 {
                        self.forget(name);
                    }
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
        if let Ok((done, _)) = self.enforce(&kept, site, holding).await {
            let message = kept.note.as_deref().map_or(status.message, short);
            status = ServiceStatus { state: ServiceState::Failed, message, ..done };
        }
        status
    }

    /// Brings a service to what an entry renders to, as far as its health allows, and says whether it is
    /// healthy in it; or says why it does not render.
    async fn enforce(
        &mut self,
        enforce: &Enforce,
        site: &Site,
        holding: &Holding<'_>,
    ) -> Result<(ServiceStatus, bool), String> {
        let Enforce { entry, revision, note, .. } = enforce;
        let mut status = blank(entry.name.clone(), &entry.revision.commit);
        let _turn = self.shared.turn(&entry.name).await;
        let guard = self.guard(entry);
        let healthy = holding.healthy.get(&entry.name).map(|healthy| healthy.revision);
        // What was healthy in this revision is enforced whole, and so is what is only kept.
        let is_under_way = healthy != Some(*revision) && note.is_none() && self.target.shows_health();
        if !is_under_way && let Some(outcome) = self.untouched(enforce, site, &guard).await {
            fill(&mut status, &outcome, &[], note.as_deref());
            self.tell_of_drift(&mut status, 0);
            self.conclude(enforce, None, false, &mut status);
            return Ok((status, note.is_none()));
        }
        let rendered = self.render(entry, *revision, site).await?;
        self.claims.declare(&entry.name, *revision, rendered.completeness(), &rendered.manifests);
        let mut ready = self.arrange(enforce, healthy, rendered);
        let refused = self.refuse_claimed(&entry.name, &mut ready.desired, site).await;
        ready.failures.extend(refused);
        ready.desired.removal = decide::removal(enforce, holding.prune);
        ready.desired.revision = Some((*revision, entry.incarnation));
        let (failures, mistakes) = (ready.failures.clone(), ready.mistakes.clone());
        match self.bring(&guard, enforce, ready, is_under_way).await {
            Ok((mut outcome, verdict)) => {
                outcome.healthy &= failures.is_empty() && mistakes.is_empty();
                outcome.failures.extend(failures);
                fill(&mut status, &outcome, &mistakes, note.as_deref());
                self.tell(&entry.name, &outcome, &mistakes);
                self.tell_of_drift(&mut status, outcome.repaired);
                let can_go_back = healthy.is_some_and(|healthy| healthy != *revision);
                self.conclude(enforce, verdict, can_go_back, &mut status);
                Ok((status, outcome.healthy && note.is_none()))
            }
            Err(error) => {
                (status.state, status.message) = (ServiceState::Failed, short(&chain(&error)));
                Ok((status, false))
            }
        }
    }

    /// Removes a service; answers also how much of it is left over, if its removal could begin.
    async fn remove(
        &mut self,
        name: &Name,
        healthy: &BTreeMap<Name, Healthy>,
    ) -> (ServiceStatus, Option<usize>) {
        let mut status = blank(name.clone(), "");
        let _turn = self.shared.turn(name).await;
        let begun = self.store.salvage(name).ok().and_then(|inventory| inventory.doomed);
        let kinds = begun.unwrap_or_else(|| named_kinds(healthy.get(name)));
        let desired = Desired {
            manifests: vec![],
            completeness: Completeness::Complete,
            removal: Removal::Tombstone { kinds },
            revision: None,
            aside: BTreeSet::new(),
            once: BTreeSet::new(),
            claimed: Claimed::default(),
        };
        match self.apply(name, desired).await {
            Ok(outcome) => {
                self.tell(name, &outcome, &[]);
                fill(&mut status, &outcome, &[], None);
                if status.state == ServiceState::Applied && outcome.left_over == 0 {
                    let kept = std::mem::take(&mut status.message);
                    status.message = match kept.is_empty() {
                        true => "removed".to_owned(),
                        false => format!("removed; {kept}"),
                    };
                }
                (status, Some(outcome.left_over))
            }
            Err(error) => {
                (status.state, status.message) = (ServiceState::Failed, short(&chain(&error)));
                (status, None)
            }
        }
    }

    async fn apply(&mut self, service: &Name, mut desired: Desired) -> Result<Outcome, StoreError> {
        // What a damaged part of it listed is not listed any more, and so is never deleted.
        let mut inventory = self.store.salvage(service)?;
        desired.claimed = self.claims.of_others(service, &leaving(&inventory, &desired));
        let owner = Owner { cluster: self.cluster.clone(), service: service.clone() };
        let ledger = Inventories { store: &self.store, service };
        let outcome = apply::enforce(&*self.target, &owner, desired, &mut inventory, &ledger, None).await;
        self.shared.state().replace(service, &inventory);
        let outcome = outcome?;
        self.note_claims(service, &inventory, &outcome);
        Ok(outcome)
    }

    /// Remembers what a service has in place, and whether something that left it waits for others.
    fn note_claims(&mut self, service: &Name, inventory: &Inventory, outcome: &Outcome) {
        self.claims.applied(service, inventory);
        let waits = |why: &Stays| matches!(why, Stays::Undeclared(_) | Stays::Moving);
        if outcome.kept.iter().any(|kept| waits(&kept.why)) {
            self.deferred.insert(service.clone());
        }
    }

    /// Renders, unless that has been done from just this and everything found its place.
    async fn render(&self, entry: &ServiceEntry, revision: Digest, site: &Site) -> Result<Rendered, String> {
        let inputs = renders::inputs(entry, site, &self.tools);
        if renders::made(&self.store, &entry.name, revision, inputs).is_some()
            && let Some(mut manifests) = renders::kept(&self.store, &entry.name).await
        {
            for manifest in &mut manifests {
                manifest.terms = Terms::of(manifest, entry.apply, entry.prune);
            }
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
                    manifest.terms = Terms::of(&manifest, entry.apply, entry.prune);
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
}

/// What is listed of a service and not wanted any more.
pub(crate) fn leaving<'a>(inventory: &'a Inventory, desired: &Desired) -> Vec<&'a ObjectKey> {
    let wanted: BTreeSet<&ObjectKey> =
        desired.manifests.iter().map(|manifest| &manifest.key).chain(&desired.aside).collect();
    inventory.items.iter().map(|item| &item.key).filter(|key| !wanted.contains(key)).collect()
}

/// The protected kinds that the last entry of a service let go.
pub(crate) fn named_kinds(healthy: Option<&Healthy>) -> ProtectedKinds {
    let entry =
        healthy.and_then(|healthy| serde_json::from_value::<ServiceEntry>(healthy.entry.clone()).ok());
    entry.map(|entry| entry.prune.kinds).unwrap_or_default()
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

#[cfg(test)]
mod tests;
