//! The reconciler: one pass over all services of the site, with or without a hub.
//!
//! It alone touches the target and the inventories. It hears of new documents by a `watch` channel and
//! tells of every pass by an `mpsc` channel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use farshore_shared::digest::Digest;
use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use farshore_shared::wire::{Artifact, ObjectFailure, ServiceEntry, ServiceState, ServiceStatus};
use tracing::{info, warn};

use crate::apply::{self, Desired, Ledger, Outcome};
use crate::decide::{self, Enforce, Holding, Work};
use crate::object::{BadManifest, Manifest, ObjectKey, Owner};
use crate::plan::{Completeness, Inventory, Removal};
use crate::render::{self, Limits, Site, Tools};
use crate::store::{Content, Found, Healthy, Prune, Store, StoreError};
use crate::target::{ObjectError, Retry, Target};
use crate::verify::Documents;

/// The most failures of one service that a status tells of.
const FAILURES_TOLD: usize = 20;
/// The most characters of one message.
const MESSAGE_LIMIT: usize = 400;

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

/// What a service rendered to, as long as its signed revision stays.
struct Rendered {
    revision: Digest,
    manifests: Vec<Manifest>,
    failures: Vec<ObjectError>,
    mistakes: Vec<BadManifest>,
}

impl Rendered {
    fn completeness(&self) -> Completeness {
        if self.failures.is_empty() && self.mistakes.is_empty() {
            Completeness::Complete
        } else {
            Completeness::Partial
        }
    }
}

/// The reconciler of one site.
pub struct Reconciler<T> {
    store: Arc<Store>,
    target: T,
    cluster: Name,
    tools: Tools,
    rendered: BTreeMap<Name, Rendered>,
    repairs: BTreeMap<Name, u64>,
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
        let (rendered, repairs) = (BTreeMap::new(), BTreeMap::new());
        Self { store, target, cluster, tools, rendered, repairs, silent: None }
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
                Ok(Found::Good(inventory)) => inventory.incarnation,
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
                    self.rendered.remove(name);
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
        self.render(entry, *revision, site).await?;
        let rendered = &self.rendered[&entry.name];
        let mut desired = Desired {
            manifests: rendered.manifests.clone(),
            completeness: rendered.completeness(),
            removal: decide::removal(enforce, prune),
            revision: Some((*revision, entry.incarnation)),
        };
        let doubles = take_doubles(&mut desired);
        match self.apply(&entry.name, desired).await {
            Ok(mut outcome) => {
                let rendered = &self.rendered[&entry.name];
                outcome.failures.extend(rendered.failures.iter().cloned().chain(doubles));
                fill(&mut status, &outcome, &rendered.mistakes, note.as_deref());
                self.tell(&entry.name, &outcome, &rendered.mistakes);
                let repairs = self.repairs.entry(entry.name.clone()).or_default();
                *repairs += outcome.repaired as u64;
                status.repairs = *repairs;
            }
            Err(error) => (status.state, status.message) = (ServiceState::Failed, short(&chain(&error))),
        }
        Ok(status)
    }

    async fn remove(&mut self, name: &Name) -> ServiceStatus {
        let mut status = blank(name.clone(), "");
        let desired = Desired {
            manifests: vec![],
            completeness: Completeness::Complete,
            removal: Removal::Tombstone,
            revision: None,
        };
        match self.apply(name, desired).await {
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

    async fn apply(&self, service: &Name, desired: Desired) -> Result<Outcome, StoreError> {
        let mut inventory = self.store.inventory(service)?.good().unwrap_or_default();
        let owner = Owner { cluster: self.cluster.clone(), service: service.clone() };
        let ledger = Inventories { store: &self.store, service };
        apply::enforce(&self.target, &owner, desired, &mut inventory, &ledger).await
    }

    /// Renders unless that has been done for this revision and everything found its place.
    async fn render(&mut self, entry: &ServiceEntry, revision: Digest, site: &Site) -> Result<(), String> {
        let is_known =
            |known: &Rendered| known.revision == revision && known.completeness() == Completeness::Complete;
        if self.rendered.get(&entry.name).is_some_and(is_known) {
            return Ok(());
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
        let mistakes = out.mistakes;
        self.rendered.insert(entry.name.clone(), Rendered { revision, manifests, failures, mistakes });
        Ok(())
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

fn holds(documents: &Documents) -> farshore_shared::wire::Holds {
    let Documents { roster, group, .. } = documents;
    farshore_shared::wire::Holds { epoch: group.epoch, roster: roster.sequence, group: group.sequence }
}

fn blank(name: Name, commit: &str) -> ServiceStatus {
    let (state, message) = (ServiceState::Waiting, String::new());
    ServiceStatus {
        name,
        commit: commit.to_owned(),
        state,
        message,
        objects: 0,
        failures: vec![],
        repairs: 0,
    }
}

fn waiting(work: &Work, why: &str) -> ServiceStatus {
    // A service whose very name cannot be read is reported under a name of our own.
    let name = work.name().parse().unwrap_or_else(|_| "unreadable".parse().expect("a good name"));
    let commit = match work {
        Work::Enforce(enforce) => enforce.entry.revision.commit.as_str(),
        Work::Remove(_) | Work::Blocked { .. } => "",
    };
    ServiceStatus { message: short(why), ..blank(name, commit) }
}

fn fill(status: &mut ServiceStatus, outcome: &Outcome, mistakes: &[BadManifest], note: Option<&str>) {
    status.objects = u32::try_from(outcome.objects).unwrap_or(u32::MAX);
    let told = |object: String, message: &str| ObjectFailure { object, message: short(message) };
    // A document that is no manifest has no name, only a place.
    let unread = mistakes.iter().map(|mistake| told(mistake.origin.clone(), &mistake.why));
    let failed = outcome.failures.iter().map(|error| told(error.key.to_string(), &error.message));
    status.failures = unread.chain(failed).take(FAILURES_TOLD).collect();
    let bad = outcome.failures.len() + mistakes.len();
    (status.state, status.message) = match (status.failures.first(), &outcome.held, note) {
        (Some(ObjectFailure { object, message }), ..) => {
            let of = bad + outcome.objects;
            (ServiceState::Failed, format!("{bad} of {of} objects failed; {object}: {message}"))
        }
        (None, Some(held), _) => (ServiceState::Held, held.to_string()),
        (None, None, Some(note)) => (ServiceState::Waiting, note.to_owned()),
        (None, None, None) => (ServiceState::Applied, String::new()),
    };
    status.message = short(&status.message);
}

fn short(message: &str) -> String {
    match message.char_indices().nth(MESSAGE_LIMIT) {
        None => message.to_owned(),
        Some((end, _)) => format!("{}...", &message[..end]),
    }
}
