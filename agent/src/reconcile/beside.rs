//! What the reconciler shares with the mender, and what it knows of drift.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use farshore_shared::clock;
use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use farshore_shared::wire::{ServiceEntry, ServiceState, ServiceStatus};
use tokio::sync::mpsc;
use tracing::warn;

use super::{Reconciler, claims, renders};
use crate::apply::{Desired, Outcome};
use crate::decide::{Enforce, Work};
use crate::drift::Said;
use crate::drift::guard::Guarded;
use crate::drift::mender::{Mended, Mender};
use crate::object::{ObjectKey, Owner};
use crate::render::Site;
use crate::target::{Coverage, ObjectError, Target};

impl<T: Target> Reconciler<T> {
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

    /// Says what is to be enforced in this pass.
    pub(super) fn intend(&mut self, work: &[Work]) {
        let enforced = work.iter().filter_map(|work| match work {
            Work::Enforce(enforce) => Some((enforce.entry.name.clone(), (**enforce).clone())),
            Work::Remove(_) | Work::Blocked { .. } => None,
        });
        self.intended = enforced.collect();
    }

    /// The target as a service sees it.
    pub(super) fn guard(&self, entry: &ServiceEntry) -> Guarded<T> {
        let (target, store, shared) =
            (Arc::clone(&self.target), Arc::clone(&self.store), Arc::clone(&self.shared));
        let hears = self.hears && self.was_well(&entry.name);
        Guarded::new(target, store, shared, &entry.name, &Said::by(entry)).of_era(self.era).hearing(hears)
    }

    /// Whether the last pass left a service as it shall be: then what nothing was told of since is as it was. Where
    /// something was refused, nothing tells of that.
    fn was_well(&self, service: &Name) -> bool {
        let is_well = |last: &ServiceStatus| {
            last.state == ServiceState::Applied && last.failures.is_empty() && last.progress.is_none()
        };
        self.last.get(service).is_some_and(is_well)
    }

    /// Whether this pass is out of date: nothing begins in it any more.
    pub(super) fn is_overtaken(&self) -> bool {
        self.shared.era() != self.era
    }

    /// How a service is that was applied whole, in just this revision, and that nobody has changed: nothing is
    /// rendered for it. None if it has to be looked at closer.
    pub(super) async fn untouched(
        &self,
        enforce: &Enforce,
        site: &Site,
        guard: &Guarded<T>,
    ) -> Option<Outcome> {
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
    pub(super) fn tell_of_drift(&self, status: &mut ServiceStatus, repaired: usize) {
        let mut state = self.shared.state();
        state.journal.repaired(&status.name, repaired as u64);
        (status.repairs, status.drift) = state.journal.told(&status.name, clock::now());
    }

    /// A service is gone.
    pub(super) fn forget(&self, service: &Name) {
        self.shared.state().forget(service);
        self.common().rollouts.forget(&self.store, service);
        if let Err(error) = self.store.renders().remove(service) {
            warn!(%service, error = %chain(&error), "a render of a service that is gone stays on disk");
        }
    }

    /// Takes out what another service has and goes on to declare; the rest is this service's from now on.
    pub(super) async fn refuse_claimed(
        &self,
        service: &Name,
        desired: &mut Desired,
        site: &Site,
    ) -> Vec<ObjectError> {
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
        let refused = claims::refuse(desired, service, |key| claimed.get(key).cloned());
        let keys = desired.manifests.iter().map(|manifest| &manifest.key);
        self.shared.state().memory.claim(service, keys);
        refused
    }
}
