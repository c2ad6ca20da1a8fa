//! A service that leaves, and what its objects mean to others.

use std::collections::{BTreeMap, BTreeSet};

use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use farshore_shared::wire::{ProtectedKinds, ServiceEntry, ServiceState, ServiceStatus};

use super::Reconciler;
use super::held::Inventories;
use super::status::{OVERTAKEN, blank, fill, short};
use crate::apply::{self, Desired, Outcome};
use crate::claims::Claimed;
use crate::object::{ObjectKey, Owner};
use crate::plan::{Completeness, Inventory, Removal, Stays};
use crate::store::{Healthy, StoreError};
use crate::target::Target;

impl<T: Target> Reconciler<T> {
    /// Removes a service; answers also how much of it is left over, if its removal could begin.
    pub(super) async fn remove(
        &self,
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
        let era = self.shared.of_era(self.era);
        // Cancel-safe: what is going is listed until it is seen gone, and that it goes is written down first.
        let applied = tokio::select! {
            applied = self.apply(name, desired) => applied,
            () = era.ended() => {
                status.message = OVERTAKEN.to_owned();
                return (status, None);
            }
        };
        match applied {
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

    async fn apply(&self, service: &Name, mut desired: Desired) -> Result<Outcome, StoreError> {
        // What a damaged part of it listed is not listed any more, and so is never deleted.
        let mut inventory = self.store.salvage(service)?;
        desired.claimed = self.common().claims.of_others(service, &leaving(&inventory, &desired));
        let owner = Owner { cluster: self.cluster.clone(), service: service.clone() };
        let ledger = Inventories { store: &self.store, service };
        let outcome = apply::enforce(&*self.target, &owner, desired, &mut inventory, &ledger, None).await;
        self.shared.state().replace(service, &inventory);
        let outcome = outcome?;
        self.note_claims(service, &inventory, &outcome);
        Ok(outcome)
    }

    /// Remembers what a service has in place, and whether something that left it waits for others.
    pub(super) fn note_claims(&self, service: &Name, inventory: &Inventory, outcome: &Outcome) {
        let mut common = self.common();
        common.claims.applied(service, inventory);
        let waits = |why: &Stays| matches!(why, Stays::Undeclared(_) | Stays::Moving);
        if outcome.kept.iter().any(|kept| waits(&kept.why)) {
            common.deferred.insert(service.clone());
        }
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
