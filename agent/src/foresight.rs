//! What an agent would do with what its site has accepted, without doing it: for a person who looks before
//! anything is written, and for one who takes over what others have applied.
//!
//! It reads the state folder beside a running agent, renders what is accepted there, and asks the target
//! with dry runs. Nothing is written to the folder.

use std::collections::BTreeMap;

use farshore_shared::digest::Digest;
use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use farshore_shared::wire::{HealthRule, ServiceEntry};
use futures::{StreamExt as _, stream};

use crate::apply::{self, Desired};
use crate::claims::Claims;
use crate::decide::{self, Enforce, Holding, Work};
use crate::object::{Manifest, ObjectKey, Owner};
use crate::plan::{Completeness, Held, Inventory, Item, Kept, Operation, Plan, Removal, plan};
use crate::reconcile::arrange::{Ready, Sight as Seeing, arrange};
use crate::reconcile::{leaving, named_kinds};
use crate::render::{self, Limits, Site, Tools};
use crate::store::{Found, State, Store, StoreError};
use crate::target::{Effect, ObjectError, Preview, Taken, Target, Unreachable};
use crate::terms::Terms;
use crate::waves::Occasion;

/// Questions in flight at once.
const IN_FLIGHT: usize = 8;

/// Why nothing can be foreseen.
#[derive(Debug, thiserror::Error)]
pub enum ForesightError {
    /// The state folder.
    #[error("reading the state folder")]
    Store(#[from] StoreError),
    /// Nothing was ever accepted.
    #[error("this site has accepted nothing yet")]
    NothingHeld,
    /// What was accepted cannot be read.
    #[error("what this site has accepted cannot be read ({0})")]
    Corrupt(String),
    /// There is no such service.
    #[error("no service of that name is accepted here ({asked}); there are: {known}")]
    Unknown {
        /// The name that was asked for.
        asked: Name,
        /// Those that there are.
        known: String,
    },
    /// The target.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// What would become of one service.
#[derive(Debug)]
pub struct ServiceForesight {
    /// The service.
    pub name: String,
    /// The commit that would be applied; empty where it would be removed.
    pub commit: String,
    /// Why not all of it can be foreseen.
    pub problems: Vec<String>,
    /// What would become of objects that would not stay as they are.
    pub objects: Vec<(ObjectKey, Fate)>,
    /// Objects that would stay as they are.
    pub same: usize,
    /// Why everything that left would stay.
    pub held: Option<Held>,
    /// What else of it would stay.
    pub kept: Vec<Kept>,
}

/// What would become of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It would be applied.
    Applied(Preview),
    /// It could not be, and why.
    Failed(String),
    /// It would be removed.
    Removed,
}

/// A site as its state folder shows it.
pub struct Sight<'a, T> {
    store: &'a Store,
    target: &'a T,
    tools: Tools,
    cluster: Name,
    state: State,
}

struct Rendered {
    manifests: Vec<Manifest>,
    completeness: Completeness,
    problems: Vec<String>,
}

impl<'a, T: Target> Sight<'a, T> {
    /// Reads what is accepted, and asks whether the target answers.
    ///
    /// # Errors
    /// [`ForesightError`].
    pub async fn open(store: &'a Store, target: &'a T, tools: Tools) -> Result<Self, ForesightError> {
        let state = store.state()?;
        match &state.documents {
            Found::Good(_) => {}
            Found::Absent => return Err(ForesightError::NothingHeld),
            Found::Corrupt(why) => return Err(ForesightError::Corrupt(why.clone())),
        }
        let Some(cluster) = store.name()? else { return Err(ForesightError::NothingHeld) };
        target.ready().await?;
        Ok(Self { store, target, tools, cluster, state })
    }

    /// What would become of these services; of all where none is named.
    ///
    /// # Errors
    /// [`ForesightError`]. What is wrong with one service is in its answer.
    pub async fn services(&self, only: &[Name]) -> Result<Vec<ServiceForesight>, ForesightError> {
        let mut works = self.works()?;
        let known: Vec<String> = works.iter().map(|work| work.name().to_owned()).collect();
        if let Some(asked) = only.iter().find(|asked| !known.iter().any(|name| name == asked.as_str())) {
            return Err(ForesightError::Unknown { asked: asked.clone(), known: known.join(", ") });
        }
        let (mut claims, mut rendered, inventories) =
            (Claims::default(), BTreeMap::new(), self.inventories()?);
        claims.begin(self.newest(), &inventories.keys().cloned().collect());
        for work in &works {
            if let Work::Enforce(enforce) = work {
                let Enforce { entry, revision, .. } = &**enforce;
                let found = self.render(entry).await;
                if let Ok(Rendered { manifests, completeness, .. }) = &found {
                    claims.declare(&entry.name, *revision, *completeness, manifests);
                }
                rendered.insert(entry.name.clone(), found);
            }
        }
        for (name, inventory) in &inventories {
            claims.applied(name, inventory);
        }
        works.retain(|work| only.is_empty() || only.iter().any(|name| name.as_str() == work.name()));
        let mut services = Vec::with_capacity(works.len());
        for work in works {
            services.push(self.service(work, &claims, &mut rendered, &inventories).await);
        }
        services.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(services)
    }

    /// Takes the objects of a service over from who applied them before; or only tells from whom it would.
    ///
    /// # Errors
    /// [`ForesightError`]. What is wrong with one object is in its answer.
    pub async fn adopt(
        &self,
        service: &Name,
        effect: Effect,
    ) -> Result<Vec<(ObjectKey, Result<Vec<Taken>, ObjectError>)>, ForesightError> {
        let works = self.works()?;
        let wanted = works.iter().find(|work| work.name() == service.as_str());
        let Some(Work::Enforce(enforce)) = wanted else {
            let known: Vec<&str> = works.iter().map(Work::name).collect();
            return Err(ForesightError::Unknown { asked: service.clone(), known: known.join(", ") });
        };
        let rendered = self.render(&enforce.entry).await.map_err(ForesightError::Corrupt)?;
        let owner = self.owner(service);
        let questions = rendered.manifests.into_iter().map(|manifest| {
            let owner = &owner;
            async move {
                let taken = self.target.adopt(owner, &manifest, effect).await;
                (manifest.key, taken)
            }
        });
        let mut answers: Vec<_> = stream::iter(questions).buffer_unordered(IN_FLIGHT).collect().await;
        answers.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(answers)
    }

    fn owner(&self, service: &Name) -> Owner {
        Owner { cluster: self.cluster.clone(), service: service.clone() }
    }

    fn inventories(&self) -> Result<BTreeMap<Name, Inventory>, StoreError> {
        let mut inventories = BTreeMap::new();
        for name in self.store.services_with_inventory()? {
            let inventory = self.store.salvage(&name)?;
            inventories.insert(name, inventory);
        }
        Ok(inventories)
    }

    fn works(&self) -> Result<Vec<Work>, StoreError> {
        let inventories = self.inventories()?;
        let in_place = lives(&inventories);
        let doomed = inventories.iter().filter(|(_, inventory)| inventory.doomed.is_some());
        let doomed = doomed.map(|(name, _)| name.clone()).collect();
        let healthy = self.store.healthy()?.good().unwrap_or_default();
        let content = self.store.content().present()?;
        let records = self.store.rollouts()?.into_iter();
        let records = records.filter_map(|(service, record)| Some((service, record.good()?)));
        let given_up =
            records.filter_map(|(service, record)| Some((service, (record.revision, record.failed?))));
        let given_up = given_up.collect();
        let documents = self.state.documents.clone().good();
        let documents = documents.as_ref().map(|documents| (&documents.roster, &documents.group));
        let prune = self.state.prune;
        let holding = Holding {
            documents,
            prune,
            healthy: &healthy,
            in_place: &in_place,
            doomed: &doomed,
            content: &content,
            given_up: &given_up,
        };
        Ok(decide::decide(&holding))
    }

    fn newest(&self) -> BTreeMap<String, Option<Digest>> {
        let documents = self.state.documents.clone().good();
        documents.map(|documents| decide::newest_of(&documents.roster, &documents.group)).unwrap_or_default()
    }

    async fn render(&self, entry: &ServiceEntry) -> Result<Rendered, String> {
        let content = match self.store.content().get(entry.artifact.digest).map_err(|error| chain(&error))? {
            Found::Good(blob) => {
                render::unpack(&blob, &entry.artifact, &Limits::default()).map_err(|error| chain(&error))?
            }
            Found::Absent => return Err("its content is not here".to_owned()),
            Found::Corrupt(why) => return Err(format!("its content is corrupt: {why}")),
        };
        let documents = self.state.documents.clone().good();
        let labels = documents.map(|documents| documents.roster.labels).unwrap_or_default();
        let site = Site { cluster: self.cluster.clone(), labels };
        let out = render::render(entry, &content, &site, &self.tools).await.map_err(|error| chain(&error))?;
        let mut problems: Vec<String> = out.mistakes.iter().map(ToString::to_string).collect();
        let owner = self.owner(&entry.name);
        let mut manifests = Vec::new();
        for located in self.target.locate(out.manifests, entry.namespace.as_deref()).await {
            match located {
                Ok(mut manifest) => {
                    manifest.mark(&owner);
                    manifest.terms = Terms::of(&manifest, entry.apply, entry.prune);
                    manifests.push(manifest);
                }
                Err(error) => problems.push(error.to_string()),
            }
        }
        let completeness = if problems.is_empty() { Completeness::Complete } else { Completeness::Partial };
        Ok(Rendered { manifests, completeness, problems })
    }

    async fn service(
        &self,
        work: Work,
        claims: &Claims,
        rendered: &mut BTreeMap<Name, Result<Rendered, String>>,
        inventories: &BTreeMap<Name, Inventory>,
    ) -> ServiceForesight {
        let mut foresight = ServiceForesight::of(work.name());
        let (name, ready) = match work {
            Work::Blocked { why, .. } => {
                foresight.problems.push(why);
                return foresight;
            }
            Work::Remove(name) => {
                let healthy = self.store.healthy().ok().and_then(Found::good).unwrap_or_default();
                let removal = Removal::Tombstone { kinds: named_kinds(healthy.get(&name)) };
                let mut ready = self.arranged(vec![], Completeness::Complete, &[]);
                ready.desired.removal = removal;
                (name, ready)
            }
            Work::Enforce(enforce) => {
                let Enforce { entry, note, .. } = &*enforce;
                foresight.commit.clone_from(&entry.revision.commit);
                foresight.problems.extend(note.clone());
                let Rendered { manifests, completeness, problems } = match rendered.remove(&entry.name) {
                    Some(Ok(rendered)) => rendered,
                    Some(Err(why)) => {
                        foresight.problems.push(why);
                        return foresight;
                    }
                    None => return foresight,
                };
                foresight.problems.extend(problems);
                let mut ready = self.arranged(manifests, completeness, &entry.health);
                ready.desired.removal = decide::removal(&enforce, self.state.prune);
                (entry.name.clone(), ready)
            }
        };
        foresight.problems.extend(ready.failures.iter().map(ToString::to_string));
        let inventory = inventories.get(&name).cloned().unwrap_or_default();
        self.foresee(&name, ready.desired, claims, inventory, &mut foresight).await;
        foresight
    }

    fn arranged(&self, manifests: Vec<Manifest>, completeness: Completeness, rules: &[HealthRule]) -> Ready {
        let sight = if self.target.shows_health() { Seeing::Seeing } else { Seeing::Blind };
        arrange(manifests, completeness, Occasion::Upgrade, sight, rules)
    }

    async fn foresee(
        &self,
        name: &Name,
        mut desired: Desired,
        claims: &Claims,
        mut inventory: Inventory,
        foresight: &mut ServiceForesight,
    ) {
        let owner = self.owner(name);
        let claimed = claims.of_others(name, &leaving(&inventory, &desired));
        let (once, made) = (std::mem::take(&mut desired.once), std::mem::take(&mut desired.manifests));
        let (manifests, unknown) =
            apply::leave_made(self.target, &owner, made, &once, &mut desired.aside).await;
        inventory.items.retain(|item: &Item| !desired.aside.contains(&item.key));
        let live = self.target.observe(&owner, &inventory.items).await;
        let Plan { operations, unchanged, held, kept, failures } =
            plan(manifests, &inventory, live, desired.completeness, desired.removal, &claimed);
        (foresight.same, foresight.held, foresight.kept) = (unchanged, held, kept);
        let failed =
            failures.into_iter().chain(unknown).map(|error| (error.key, Fate::Failed(error.message)));
        foresight.objects.extend(failed);
        let mut applies = Vec::new();
        for operation in operations {
            match operation {
                Operation::Apply(manifest, _) => applies.push(manifest),
                Operation::Delete(item) => foresight.objects.push((item.key, Fate::Removed)),
                Operation::Release(_) => {}
            }
        }
        let questions = applies.into_iter().map(|manifest| {
            let owner = &owner;
            async move {
                let preview = self.target.preview(owner, &manifest).await;
                (manifest.key, preview)
            }
        });
        let answers: Vec<_> = stream::iter(questions).buffer_unordered(IN_FLIGHT).collect().await;
        for (key, answer) in answers {
            match answer {
                Ok(Preview::Same) => foresight.same += 1,
                Ok(preview) => foresight.objects.push((key, Fate::Applied(preview))),
                Err(error) => foresight.objects.push((key, Fate::Failed(error.message))),
            }
        }
        foresight.objects.sort_by(|a, b| a.0.cmp(&b.0));
    }
}

impl ServiceForesight {
    fn of(name: &str) -> Self {
        let (name, commit) = (name.to_owned(), String::new());
        let (problems, objects, kept) = Default::default();
        Self { name, commit, problems, objects, same: 0, held: None, kept }
    }
}

fn lives(inventories: &BTreeMap<Name, Inventory>) -> BTreeMap<Name, Option<u64>> {
    inventories.iter().map(|(name, inventory)| (name.clone(), inventory.incarnation)).collect()
}
