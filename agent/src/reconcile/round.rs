//! Which service of a pass is worked on when: several at a time, each after those that it depends on.

use std::collections::{BTreeMap, BTreeSet};

use farshore_shared::names::Name;
use farshore_shared::wire::{ServiceState, ServiceStatus};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use super::controlled::{Course, held};
use super::service::Became;
use super::{Extent, Pass, Reconciler};
use crate::decide::{self, Holding, Work};
use crate::render::Site;
use crate::store::{Found, Healthy};
use crate::target::Target;

/// Services that are worked on at a time: one whose objects take long (a definition that is not served yet, an
/// admission webhook that does not answer) keeps no other waiting.
const SERVICES_AT_ONCE: usize = 4;

/// What a pass is about.
#[derive(Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) site: &'a Site,
    pub(super) holding: &'a Holding<'a>,
    pub(super) extent: Extent,
}

impl<T: Target> Reconciler<T> {
    /// Does all of it, and gives what is healthy after that.
    pub(super) async fn all(
        &mut self,
        work: Vec<Work>,
        about: About<'_>,
        pass: &mut Pass,
    ) -> BTreeMap<Name, Healthy> {
        let mut healthy = about.holding.healthy.clone();
        self.begin_claims(about.holding);
        let mut worked = self.round(work, about, &mut healthy).await;
        // By now it is known what the others declare, and they have taken over what is theirs.
        let deferred = std::mem::take(&mut self.common().deferred);
        for (course, status) in worked.iter_mut().filter(|(_, status)| deferred.contains(&status.name)) {
            if self.is_overtaken() {
                break;
            }
            let (again, became) = self.along(course, about).await;
            became.note(&again.name, &mut healthy);
            *status = again;
        }
        pass.services.extend(worked.into_iter().map(|(_, status)| status));
        pass.again = std::mem::take(&mut self.common().again);
        self.last = pass.services.iter().map(|status| (status.name.clone(), status.clone())).collect();
        healthy
    }

    /// Does what is left of a service's work by what somebody at the site has stopped.
    async fn along(&self, course: &Course, about: About<'_>) -> (ServiceStatus, Became) {
        match course {
            Course::Left(status) => (status.as_ref().clone(), Became::AsBefore),
            Course::Kept(work) => {
                let (status, became) = self.one(work, about).await;
                (held(status), became)
            }
            Course::Free(work) => self.one(work, about).await,
        }
    }

    /// Works on every service once.
    async fn round(
        &self,
        mut waiting: Vec<Work>,
        about: About<'_>,
        healthy: &mut BTreeMap<Name, Healthy>,
    ) -> Vec<(Course, ServiceStatus)> {
        let (mut done, mut worked) = (BTreeSet::new(), Vec::with_capacity(waiting.len()));
        let mut running = FuturesUnordered::new();
        let mut under_way: Vec<String> = vec![];
        loop {
            while running.len() < SERVICES_AT_ONCE
                && let Some(place) = next(&waiting, &under_way)
            {
                let work = decide::after_dependencies(about.holding, waiting.remove(place), &done);
                let name = work.name().to_owned();
                under_way.push(name.clone());
                let course = match self.is_overtaken() {
                    true => Course::Left(Box::new(self.unbegun(&work))),
                    false => self.controlled(about.holding, work),
                };
                running.push(async move {
                    let known = match &course {
                        Course::Free(work) => self.known(work, about.extent),
                        Course::Kept(_) | Course::Left(_) => None,
                    };
                    let (status, became) = match known {
                        Some(status) => (status, Became::AsBefore),
                        None => self.along(&course, about).await,
                    };
                    (name, course, status, became)
                });
            }
            let Some((name, course, status, became)) = running.next().await else { return worked };
            under_way.retain(|other| *other != name);
            if status.state == ServiceState::Applied {
                done.insert(status.name.clone());
            }
            became.note(&status.name, healthy);
            worked.push((course, status));
        }
    }

    /// What is in place whole, in its newest revision, declares what is listed: it need not be rendered for
    /// that.
    fn begin_claims(&self, holding: &Holding<'_>) {
        let mut common = self.common();
        common.deferred.clear();
        common.claims.begin(decide::newest(holding), &holding.in_place.keys().cloned().collect());
        for name in holding.in_place.keys() {
            if !common.claims.is_known(name)
                && let Ok(Found::Good(inventory)) = self.store.inventory(name)
            {
                common.claims.recall(name, &inventory);
            }
        }
    }
}

/// The place of the next service that may be worked on: what it depends on has been, and everything else before
/// a removal. In a circle somebody begins.
fn next(waiting: &[Work], under_way: &[String]) -> Option<usize> {
    let is_ahead = |name: &str| {
        waiting.iter().any(|work| work.name() == name) || under_way.iter().any(|other| other == name)
    };
    let is_free = |work: &Work| match work {
        Work::Enforce(enforce) => !enforce.entry.depends_on.iter().any(|name| is_ahead(name.as_str())),
        Work::Blocked { .. } => true,
        Work::Remove(_) => under_way.is_empty() && waiting.iter().all(|work| matches!(work, Work::Remove(_))),
    };
    let free = waiting.iter().position(is_free);
    free.or_else(|| (under_way.is_empty() && !waiting.is_empty()).then_some(0))
}
