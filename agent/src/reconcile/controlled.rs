//! What a site that was stopped by somebody does and leaves, service by service.

use std::sync::Arc;

use farshore_shared::clock;
use farshore_shared::digest::Digest;
use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use farshore_shared::wire::{ServiceState, ServiceStatus};

use super::status::{blank, short};
use super::{Pass, Reconciler};
use crate::controls::doubt::Settled;
use crate::controls::files;
use crate::controls::window::Windows;
use crate::controls::{Controls, Verdict};
use crate::decide::{self, Enforce, Holding, Work};
use crate::drift::Shared;
use crate::store::Found;
use crate::target::Target;
use crate::verify::Clock;

/// What was stopped at the site, as it was heard last.
#[derive(Debug, Default)]
pub(super) struct Stopped {
    controls: Controls,
    windows: Windows,
}

/// What becomes of one service.
pub(super) enum Course {
    /// As decided.
    Free(Work),
    /// What is in place is kept and repaired.
    Kept(Work),
    /// Nothing is done; its status says why.
    Left(Box<ServiceStatus>),
}

impl<T: Target> Reconciler<T> {
    /// The same with maintenance windows.
    #[must_use]
    pub fn within(mut self, windows: Windows) -> Self {
        self.stopped.windows = windows;
        self
    }

    /// What others ask it by.
    #[must_use]
    pub fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Hears what somebody at the site has stopped, before anything is done. Where that cannot be read, what was
    /// heard before stays so.
    pub(super) fn hear_controls(&mut self, pass: &mut Pass) {
        let (moment, bound) = (self.shared.moment(), self.store.lower_time());
        pass.alarms.extend(Clock { now: moment.wall }.alarm(bound));
        match files::load(self.store.dir()) {
            Ok((mut controls, alarms)) => {
                pass.alarms.extend(alarms);
                let settled = {
                    let mut state = self.shared.state();
                    pass.alarms.extend(state.doubts.settle(&mut controls, moment, bound));
                    state.doubts.settled(moment.wall, bound)
                };
                for Settled { control, was, until } in settled {
                    let amended = files::amend(self.store.dir(), &control, &was, until);
                    pass.alarms.extend(amended.err().map(|error| chain(&error)));
                }
                self.stopped.controls = controls;
            }
            Err(error) => pass.alarms.push(chain(&error)),
        }
        let Stopped { controls, windows } = &self.stopped;
        let now = moment.wall;
        pass.controls = controls.told(windows, now);
        self.shared.state().leave_alone = controls.leave_alone(windows, now);
    }

    /// What becomes of a service with what somebody at the site has stopped.
    pub(super) fn controlled(&self, holding: &Holding<'_>, work: Work) -> Course {
        let Ok(name) = work.name().parse::<Name>() else { return Course::Free(work) };
        match self.stopped.controls.verdict(&self.stopped.windows, &name, clock::now()) {
            Verdict::Free => Course::Free(work),
            Verdict::HandsOff(why) => self.left(holding, &name, &why),
            Verdict::NothingNew(why) => self.nothing_new(holding, work, &name, &why),
        }
    }

    fn nothing_new(&self, holding: &Holding<'_>, work: Work, name: &Name, why: &str) -> Course {
        let healthy = holding.healthy.get(name).map(|healthy| healthy.revision);
        let inventory = self.store.inventory(name).ok().and_then(Found::good).unwrap_or_default();
        let is_in_place =
            |revision: Digest| inventory.items.iter().any(|item| item.revision == Some(revision));
        let why = match &work {
            Work::Enforce(enforce) => {
                let Enforce { entry, revision, note, .. } = &**enforce;
                // What is only kept, was healthy or has begun is nothing new.
                if note.is_some() || healthy == Some(*revision) || is_in_place(*revision) {
                    return Course::Free(work);
                }
                let commit = &entry.revision.commit;
                format!("commit {} waits: {why}", commit.get(..12).unwrap_or(commit))
            }
            Work::Remove(_) => format!("its removal waits: {why}"),
            Work::Blocked { .. } => return Course::Free(work),
        };
        let is_whole = healthy.is_some_and(|healthy| {
            let of_it = |revision: &Option<Digest>| revision.is_none_or(|revision| revision == healthy);
            inventory.settled == Some(healthy) && inventory.items.iter().all(|item| of_it(&item.revision))
        });
        // Parts of another revision are in place: to enforce the healthy one would be a change.
        let is_kept = is_whole && matches!(work, Work::Enforce(_));
        match decide::last_healthy(holding, name, &why).filter(|_| is_kept) {
            Some(kept) => Course::Kept(kept),
            None => self.left(holding, name, &why),
        }
    }

    /// A service about which nothing is done: it stays as it was seen last.
    fn left(&self, holding: &Holding<'_>, name: &Name, why: &str) -> Course {
        self.common().rollouts.halt(name);
        let mut status = self.last.get(name).cloned().unwrap_or_else(|| {
            let inventory = self.store.inventory(name).ok().and_then(Found::good).unwrap_or_default();
            let in_place = inventory.items.iter().filter(|item| item.applied.is_some()).count();
            let commit = holding.healthy.get(name).map_or("", |healthy| healthy.commit.as_str());
            ServiceStatus {
                objects: u32::try_from(in_place).unwrap_or(u32::MAX),
                ..blank(name.clone(), commit)
            }
        });
        (status.state, status.message, status.progress) = (ServiceState::Held, short(why), None);
        Course::Left(Box::new(status))
    }
}

/// A service that is kept because somebody stopped what would come next is as far as it may be.
pub(super) fn held(status: ServiceStatus) -> ServiceStatus {
    match status.state {
        ServiceState::Waiting => ServiceStatus { state: ServiceState::Held, ..status },
        ServiceState::Applied | ServiceState::Held | ServiceState::Failed => status,
    }
}
