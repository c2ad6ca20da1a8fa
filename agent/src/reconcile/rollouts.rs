//! What the reconciler remembers of services on their way to a revision.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use farshore_shared::clock;
use farshore_shared::digest::Digest;
use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use farshore_shared::wire::{Check, DEFAULT_TIMEOUT, FailedRevision, ServiceEntry};
use tracing::{info, warn};

use crate::apply::stages::{Course, Logbook, Policy};
use crate::health::rules::Judges;
use crate::rollout::{Now, Record, Watch};
use crate::store::{Found, Store, StoreError};

/// The rollouts of a site.
#[derive(Debug, Default)]
pub(super) struct Rollouts {
    /// What is on disk; none until it was read.
    records: Option<BTreeMap<Name, Record>>,
    /// What was wrong with that.
    alarms: Vec<String>,
    watches: BTreeMap<Name, Watch>,
    pub(super) judges: Judges,
}

/// A service's record in the state folder.
pub(super) struct Logs<'a> {
    pub(super) store: &'a Store,
    pub(super) service: &'a Name,
}

impl Logbook for Logs<'_> {
    fn save(&self, record: &Record) -> Result<(), StoreError> {
        self.store.save_rollout(self.service, record)
    }
}

/// A service on its way to a revision.
pub(super) struct Way {
    record: Record,
    watch: Watch,
    judges: Judges,
}

impl Way {
    /// What is to be seen on it now.
    pub(super) fn course<'a>(&'a mut self, entry: &'a ServiceEntry, logs: &'a Logs<'a>) -> Course<'a> {
        let patience = Duration::from_secs(entry.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT));
        let (rules, on_failure) = (entry.health.as_slice(), entry.on_failure);
        let policy = Policy { rules, judges: &self.judges, patience, on_failure };
        let now = Now { instant: Instant::now(), at: clock::now() };
        Course {
            seats: vec![],
            hooks: vec![],
            blemishes: vec![],
            policy,
            watch: &mut self.watch,
            record: &mut self.record,
            logbook: logs,
            now,
            verdict: None,
        }
    }
}

impl Rollouts {
    /// Reads what is on disk, once, and hears what somebody at the site asks. Gives alarms.
    pub(super) fn refresh(&mut self, store: &Store) -> Result<Vec<String>, StoreError> {
        if self.records.is_none() {
            let mut records = BTreeMap::new();
            for (service, found) in store.rollouts()? {
                match found {
                    Found::Good(record) => drop(records.insert(service, record)),
                    Found::Absent => {}
                    Found::Corrupt(why) => self.alarms.push(format!(
                        "the record of {service}'s rollout is corrupt, its hooks may run again: {why}"
                    )),
                }
            }
            self.records = Some(records);
        }
        for service in store.take_retries()? {
            info!(%service, "somebody at the site asks to try its revision again");
            self.watches.remove(&service);
            let record = self.records.iter_mut().find_map(|records| records.get_mut(&service));
            if let Some(record) = record.filter(|record| record.failed.is_some() || !record.runs.is_empty())
                && record.retry()
            {
                store.save_rollout(&service, record)?;
            }
        }
        Ok(self.alarms.clone())
    }

    /// The revisions that were given up.
    pub(super) fn given_up(&self) -> BTreeMap<Name, (Digest, FailedRevision)> {
        let records = self.records.iter().flatten();
        let failed = records.filter_map(|(service, record)| {
            Some((service.clone(), (record.revision, record.failed.clone()?)))
        });
        failed.collect()
    }

    /// The target is away: nobody makes progress that anybody could see.
    pub(super) fn pause(&mut self) {
        self.watches.values_mut().for_each(Watch::pause);
    }

    /// Nothing is done about a service: it makes no progress that anybody could see.
    pub(super) fn halt(&mut self, service: &Name) {
        self.watches.get_mut(service).into_iter().for_each(Watch::pause);
    }

    /// A service is healthy in its revision: nothing is waited for.
    pub(super) fn arrived(&mut self, service: &Name) {
        self.watches.remove(service);
    }

    /// A service is gone.
    pub(super) fn forget(&mut self, store: &Store, service: &Name) {
        self.watches.remove(service);
        self.records.iter_mut().for_each(|records| drop(records.remove(service)));
        if let Err(error) = store.forget_rollout(service) {
            warn!(%service, error = %chain(&error), "the record of its rollout stays on disk");
        }
    }

    /// How tests and hooks of a revision went, or of the newest one, which was given up for it.
    pub(super) fn checks(&self, service: &Name, revision: Digest, is_given_up: bool) -> Vec<Check> {
        let record = self.records.as_ref().and_then(|records| records.get(service));
        let told = record.filter(|record| record.revision == revision || is_given_up);
        told.map(Record::checks).unwrap_or_default()
    }

    /// The way of a service to a revision, for whoever works on it. What belongs to another revision is forgotten.
    pub(super) fn set_out(&mut self, service: &Name, revision: Digest) -> Way {
        let record = self.records.iter().find_map(|records| records.get(service));
        let record = record.filter(|record| record.revision == revision).cloned();
        let watch = self.watches.remove(service).filter(|watch| watch.revision() == revision);
        let (record, watch) = (record.unwrap_or_else(|| Record::new(revision)), watch);
        Way { record, watch: watch.unwrap_or_else(|| Watch::new(revision)), judges: self.judges.clone() }
    }

    /// How far a service has come on its way.
    pub(super) fn come_back(&mut self, service: &Name, way: Way) {
        let Way { record, watch, .. } = way;
        self.records.get_or_insert_default().insert(service.clone(), record);
        self.watches.insert(service.clone(), watch);
    }

    /// Whether a revision was given up.
    pub(super) fn is_given_up(&self, service: &Name, revision: Digest) -> bool {
        let record = self.records.as_ref().and_then(|records| records.get(service));
        record.is_some_and(|record| record.revision == revision && record.failed.is_some())
    }

    /// Gives a revision up, so that the one before it comes back, and no reboot tries it again.
    pub(super) fn give_up(
        &mut self,
        store: &Store,
        service: &Name,
        revision: Digest,
        failed: FailedRevision,
    ) -> Result<(), StoreError> {
        let records = self.records.get_or_insert_default();
        let record = records.entry(service.clone()).or_insert_with(|| Record::new(revision));
        record.failed = Some(failed);
        self.watches.remove(service);
        store.save_rollout(service, record)
    }
}
