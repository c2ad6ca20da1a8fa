//! What is known of the services of a site before a pass, and what the log says of it.

use std::collections::{BTreeMap, BTreeSet};

use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use farshore_shared::wire::{ServiceState, ServiceStatus};
use tracing::{info, warn};

use super::status::{FAILURES_TOLD, OVERTAKEN, waiting};
use super::{Extent, Pass, Reconciler};
use crate::apply::{Ledger, Outcome};
use crate::decide::Work;
use crate::object::BadManifest;
use crate::plan::Inventory;
use crate::store::{Found, Healthy, Store, StoreError};
use crate::target::Target;

/// The services with an inventory.
#[derive(Debug, Clone, Default)]
pub(super) struct InPlace {
    /// Which life of each, where that is known.
    pub(super) lives: BTreeMap<Name, Option<u64>>,
    /// Those that a tombstone has begun to remove.
    pub(super) doomed: BTreeSet<Name>,
    /// What is wrong with some.
    pub(super) alarms: Vec<String>,
}

/// Where the inventory of a service is kept.
pub(super) struct Inventories<'a> {
    pub(super) store: &'a Store,
    pub(super) service: &'a Name,
}

impl Ledger for Inventories<'_> {
    fn save(&self, inventory: &Inventory) -> Result<(), StoreError> {
        self.store.save_inventory(self.service, inventory)
    }
}

impl<T: Target> Reconciler<T> {
    pub(super) fn healthy(&self, pass: &mut Pass) -> Result<BTreeMap<Name, Healthy>, StoreError> {
        Ok(match self.store.healthy()? {
            Found::Good(healthy) => healthy,
            Found::Absent => BTreeMap::new(),
            Found::Corrupt(why) => {
                pass.alarms.push(format!("the record of what was last healthy is corrupt: {why}"));
                BTreeMap::new()
            }
        })
    }

    /// The services with an inventory. What is corrupt in one lists nothing: what it listed stays, because
    /// nothing is deleted that is not listed.
    pub(super) fn in_place(&self) -> Result<InPlace, StoreError> {
        let InPlace { mut lives, mut doomed, mut alarms } = InPlace::default();
        for service in self.store.services_with_inventory()? {
            let inventory = match self.store.inventory(&service) {
                Ok(Found::Good(inventory)) => inventory,
                Ok(Found::Absent) => continue,
                // The disk refuses this one file: the other services go on.
                Err(error) => {
                    alarms.push(chain(&error));
                    Inventory::default()
                }
                Ok(Found::Corrupt(why)) => {
                    alarms.push(format!(
                        "the inventory of {service} is corrupt, what it listed is kept: {why}"
                    ));
                    self.store.salvage(&service).unwrap_or_default()
                }
            };
            self.shared.state().learn(&service, &inventory);
            if inventory.doomed.is_some() {
                doomed.insert(service.clone());
            }
            lives.insert(service, inventory.incarnation);
        }
        Ok(InPlace { lives, doomed, alarms })
    }

    /// What the last pass found of a service that is not in the extent of this one.
    pub(super) fn known(&self, work: &Work, extent: Extent) -> Option<ServiceStatus> {
        let Work::Enforce(enforce) = work else { return None };
        let last = self.last.get(&enforce.entry.name)?;
        let is_calm =
            matches!(last.state, ServiceState::Applied | ServiceState::Held) && last.progress.is_none();
        (extent == Extent::Unfinished && is_calm && last.commit == enforce.entry.revision.commit)
            .then(|| last.clone())
    }

    /// A service that a pass which is out of date does not come to.
    pub(super) fn unbegun(&self, work: &Work) -> ServiceStatus {
        let name = work.name().parse::<Name>().ok();
        let last = name.and_then(|name| self.last.get(&name)).cloned();
        last.unwrap_or_else(|| waiting(work, OVERTAKEN))
    }

    /// Logs that the target fell silent, or that it answers again: once each, not at every pass.
    pub(super) fn tell_of_target(&mut self, silent: Option<String>) {
        match (&self.silent, &silent) {
            (before, Some(why)) if before.as_ref() != Some(why) => {
                warn!("{why}; what is there stays as it is, and it is asked again");
            }
            (Some(_), None) => info!("the target answers again"),
            _ => {}
        }
        self.silent = silent;
    }

    pub(super) fn tell(&self, service: &Name, outcome: &Outcome, mistakes: &[BadManifest]) {
        let Outcome { changed, repaired, removed, failures, held, kept, .. } = outcome;
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
        for kept in kept.iter().take(FAILURES_TOLD) {
            info!(%service, object = %kept.key, "it left the service and is kept: {}", kept.why);
        }
    }
}
