//! One service in a pass: what it shall be, and how it went.

use std::collections::BTreeMap;

use farshore_shared::digest::Digest;
use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use farshore_shared::wire::{ServiceState, ServiceStatus};
use tracing::warn;

use super::Reconciler;
use super::arrange::Ready;
use super::round::About;
use super::status::{OVERTAKEN, blank, fill, short, waiting};
use crate::decide::{self, Enforce, Work};
use crate::store::Healthy;
use crate::target::Target;

/// What became of what is known to be healthy of a service.
pub(super) enum Became {
    /// It is healthy in this.
    Healthy(Box<Healthy>),
    /// Its inventory says from now on that it goes: nothing brings it back.
    Leaving,
    /// Nothing.
    AsBefore,
}

impl Became {
    /// Notes it.
    pub(super) fn note(self, service: &Name, healthy: &mut BTreeMap<Name, Healthy>) {
        match self {
            Self::Healthy(now) => drop(healthy.insert(service.clone(), *now)),
            Self::Leaving => drop(healthy.remove(service)),
            Self::AsBefore => {}
        }
    }
}

impl<T: Target> Reconciler<T> {
    /// Does what there is to do with one service.
    pub(super) async fn one(&self, work: &Work, about: About<'_>) -> (ServiceStatus, Became) {
        match work {
            Work::Enforce(enforce) => {
                let (status, is_healthy) = match self.enforce(enforce, about).await {
                    Ok(done) => done,
                    Err(why) => (self.keep(enforce, &why, about).await, false),
                };
                if !is_healthy {
                    return (status, Became::AsBefore);
                }
                let Enforce { entry, revision, .. } = &**enforce;
                let (artifact, commit) = (entry.artifact.digest, entry.revision.commit.clone());
                let was = Healthy { artifact, commit, revision: *revision, entry: entry.to_value() };
                self.common().rollouts.arrived(&entry.name);
                (status, Became::Healthy(Box::new(was)))
            }
            Work::Remove(name) => {
                let (status, left_over) = self.remove(name, about.holding.healthy).await;
                let Some(left_over) = left_over else { return (status, Became::AsBefore) };
                if left_over == 0 {
                    self.forget(name);
                }
                (status, Became::Leaving)
            }
            Work::Blocked { why, .. } => (waiting(work, why), Became::AsBefore),
        }
    }

    /// A service that cannot be rendered at all stays at what was last healthy: a broken commit takes
    /// no repair away from what is in place.
    async fn keep(&self, broken: &Enforce, why: &str, about: About<'_>) -> ServiceStatus {
        let Enforce { entry, revision, .. } = broken;
        let mut status = blank(entry.name.clone(), &entry.revision.commit);
        warn!(service = %entry.name, "{why}");
        (status.state, status.message) = (ServiceState::Failed, short(why));
        let Some(Work::Enforce(kept)) = decide::last_healthy(about.holding, &entry.name, why) else {
            return status;
        };
        if kept.revision == *revision {
            return status;
        }
        if let Ok((done, _)) = self.enforce(&kept, about).await {
            let message = kept.note.as_deref().map_or(status.message, short);
            status = ServiceStatus { state: ServiceState::Failed, message, ..done };
        }
        status
    }

    /// Brings a service to what an entry renders to, as far as its health allows, and says whether it is
    /// healthy in it; or says why it does not render.
    async fn enforce(&self, enforce: &Enforce, about: About<'_>) -> Result<(ServiceStatus, bool), String> {
        let Enforce { entry, revision, note, .. } = enforce;
        let About { site, holding, .. } = about;
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
        let ready = self.prepare(enforce, healthy, about).await?;
        let (failures, mistakes) = (ready.failures.clone(), ready.mistakes.clone());
        match self.bring(&guard, enforce, ready, is_under_way).await {
            Ok((outcome, _)) if guard.era.was_cut() => {
                // Whatever it looks like now, nobody waits for that.
                status.objects = u32::try_from(outcome.objects).unwrap_or(u32::MAX);
                status.message = OVERTAKEN.to_owned();
                self.tell_of_drift(&mut status, outcome.repaired);
                Ok((status, false))
            }
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

    /// What is to be done with a service. One after the other: of two services that declare one object, the same
    /// has it at every site.
    async fn prepare(
        &self,
        enforce: &Enforce,
        healthy: Option<Digest>,
        about: About<'_>,
    ) -> Result<Ready, String> {
        let Enforce { entry, revision, .. } = enforce;
        let _alone = self.preparing.lock().await;
        let rendered = self.render(entry, *revision, about.site).await?;
        let completeness = rendered.completeness();
        self.common().claims.declare(&entry.name, *revision, completeness, &rendered.manifests);
        let mut ready = self.arrange(enforce, healthy, rendered);
        let refused = self.refuse_claimed(&entry.name, &mut ready.desired, about.site).await;
        ready.failures.extend(refused);
        ready.desired.removal = decide::removal(enforce, about.holding.prune);
        ready.desired.revision = Some((*revision, entry.incarnation));
        Ok(ready)
    }
}
