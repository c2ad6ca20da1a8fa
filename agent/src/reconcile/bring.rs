//! One service as far as the health of its earlier waves allows, and what is said and done about it.

use farshore_shared::clock;
use farshore_shared::digest::Digest;
use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use farshore_shared::wire::{FailedRevision, OnFailure, ServiceState, ServiceStatus};
use tracing::warn;

use super::arrange::{Ready, Sight, arrange};
use super::held::Inventories;
use super::renders::Rendered;
use super::rollouts::Logs;
use super::status::{short, under_way};
use super::{Reconciler, leaving};
use crate::apply::{self, Outcome};
use crate::decide::Enforce;
use crate::drift::guard::Guarded;
use crate::object::Owner;
use crate::rollout::Verdict;
use crate::store::{Found, StoreError};
use crate::target::Target;
use crate::waves::Occasion;

impl<T: Target> Reconciler<T> {
    /// What is to be done with what a service rendered to.
    pub(super) fn arrange(&self, enforce: &Enforce, healthy: Option<Digest>, rendered: Rendered) -> Ready {
        let was_here = healthy.is_some() || self.was_proven(&enforce.entry.name);
        let occasion = if was_here { Occasion::Upgrade } else { Occasion::Install };
        let sight = if self.target.shows_health() { Sight::Seeing } else { Sight::Blind };
        let completeness = rendered.completeness();
        let Rendered { manifests, failures, mistakes } = rendered;
        let mut ready = arrange(manifests, completeness, occasion, sight, &enforce.entry.health);
        ready.failures.extend(failures);
        ready.mistakes = mistakes;
        ready
    }

    /// Whether anything of a service was part of a healthy revision, though nobody remembers which.
    fn was_proven(&self, service: &Name) -> bool {
        let inventory = self.store.inventory(service).ok().and_then(Found::good);
        inventory.is_some_and(|inventory| inventory.items.iter().any(|item| item.proven))
    }

    /// Applies and removes, as far as the health of earlier waves allows while the service is under way.
    pub(super) async fn bring(
        &self,
        guard: &Guarded<T>,
        enforce: &Enforce,
        ready: Ready,
        is_under_way: bool,
    ) -> Result<(Outcome, Option<Verdict>), StoreError> {
        let Enforce { entry, revision, .. } = enforce;
        let Ready { mut desired, seats, hooks, failures, mistakes } = ready;
        // What a damaged part of it listed is not listed any more, and so is never deleted.
        let mut inventory = self.store.salvage(&entry.name)?;
        desired.claimed = self.common().claims.of_others(&entry.name, &leaving(&inventory, &desired));
        let owner = Owner { cluster: self.cluster.clone(), service: entry.name.clone() };
        let ledger = Inventories { store: &self.store, service: &entry.name };
        let logs = Logs { store: &self.store, service: &entry.name };
        let mut way = is_under_way.then(|| self.common().rollouts.set_out(&entry.name, *revision));
        let mut course = way.as_mut().map(|way| way.course(entry, &logs));
        if let Some(course) = &mut course {
            (course.seats, course.hooks) = (seats, hooks);
            let failed = failures.iter().map(|error| (error.key.to_string(), error.message.clone()));
            let unread = mistakes.iter().map(|mistake| (mistake.origin.clone(), mistake.why.clone()));
            course.blemishes = failed.chain(unread).collect();
        }
        let brought = apply::enforce(guard, &owner, desired, &mut inventory, &ledger, course.as_mut()).await;
        let verdict = course.and_then(|course| course.verdict);
        if let Some(way) = way {
            self.common().rollouts.come_back(&entry.name, way);
        }
        self.shared.state().replace(&entry.name, &inventory);
        let outcome = brought?;
        self.note_claims(&entry.name, &inventory, &outcome);
        Ok((outcome, verdict))
    }

    /// Says how far a service is on its way, and gives its revision up where that is wanted.
    pub(super) fn conclude(
        &self,
        enforce: &Enforce,
        verdict: Option<Verdict>,
        can_go_back: bool,
        status: &mut ServiceStatus,
    ) {
        let Enforce { entry, revision, instead_of, .. } = enforce;
        if let Some(verdict) = &verdict {
            under_way(status, verdict);
        }
        if let Some(failed) = instead_of {
            status.state = ServiceState::Failed;
            status.failed_revision = Some(failed.clone());
        }
        status.checks = self.common().rollouts.checks(&entry.name, *revision, instead_of.is_some());
        let Some(Verdict::Failed(progress)) = verdict else { return };
        if entry.on_failure != OnFailure::Revert {
            return;
        }
        if !can_go_back {
            status.message = short(&format!("{}; nothing was healthy here before", status.message));
            return;
        }
        if self.common().rollouts.is_given_up(&entry.name, *revision) {
            status.message = short(&format!("{}; what was healthy before is not here", status.message));
            return;
        }
        let why = short(&format!("{}: {}", progress.object, progress.why));
        let failed = FailedRevision { commit: entry.revision.commit.clone(), why, at: clock::now() };
        warn!(service = %entry.name, commit = %failed.commit, "the revision is given up: {}", failed.why);
        let mut common = self.common();
        match common.rollouts.give_up(&self.store, &entry.name, *revision, failed) {
            Ok(()) => common.again = true,
            // Without a record a reboot would try it again: first the record, then the way back.
            Err(error) => status.message = short(&chain(&error)),
        }
    }
}
