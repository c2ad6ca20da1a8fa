//! Every registered cluster: registrations and rosters, as far as our own signature reaches.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use farshore_shared::dsse::{Envelope, Signers};
use farshore_shared::keys::SigningKey;
use farshore_shared::names::{Labels, Name};
use farshore_shared::wire::{Document, Registration, Roster, SMALL_LIMIT};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tracing::warn;

use super::partition::Member;
use crate::objects::{Condition, Key, Objects, ObjectsError, PutOutcome, Version};
use crate::record::{self, Intent};

/// How many objects are read at once.
const IN_FLIGHT: usize = 32;
/// How many keys are listed at once.
const PAGE: usize = 1000;
/// How many copies are compared with the record in one step: all of a small fleet, and a rate that
/// object storage does not notice for a large one.
const COMPARED: usize = 500;

/// A registered cluster, with the versions of its two objects.
#[derive(Debug, Clone)]
pub struct Registered {
    /// Its registration.
    pub registration: Registration,
    /// The registration's object.
    pub version: Version,
    /// Its roster, once it has one.
    pub roster: Option<(Roster, Version)>,
}

/// All registered clusters, as this publisher knows them. A copy that went stale is found out when a
/// conditional write fails, and is read again.
#[derive(Debug, Default)]
pub struct Members {
    known: BTreeMap<Name, Registered>,
    /// Up to whom the copies were compared last.
    compared: Option<Name>,
}

impl Members {
    /// Reads the clusters that are not known yet.
    ///
    /// # Errors
    /// [`ObjectsError`].
    pub async fn refresh(
        &mut self,
        objects: &Arc<dyn Objects>,
        director: &Signers<'_>,
    ) -> Result<(), ObjectsError> {
        let mut after: Option<Key> = None;
        loop {
            let page = objects.list(record::REGISTRATIONS, after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.key.clone());
            let names = page.iter().filter_map(|listed| listed.key.as_str().rsplit('/').next()?.parse().ok());
            let new = names.filter(|name| !self.known.contains_key(name)).collect();
            self.read_again(objects, director, new).await?;
        }
    }

    /// Compares some of the copies with the record, others each time. A publisher that was stopped
    /// while it wrote rosters may write the last one after everybody else has looked, and then be gone:
    /// nothing else would ever tell of that one.
    ///
    /// # Errors
    /// [`ObjectsError`].
    pub async fn compare(
        &mut self,
        objects: &Arc<dyn Objects>,
        director: &Signers<'_>,
    ) -> Result<(), ObjectsError> {
        let from = self.compared.take().map_or(Bound::Unbounded, Bound::Excluded);
        let some: Vec<Name> =
            self.known.range((from, Bound::Unbounded)).take(COMPARED).map(|(name, _)| name.clone()).collect();
        self.compared = some.get(COMPARED - 1).cloned();
        self.read_again(objects, director, some).await
    }

    async fn read_again(
        &mut self,
        objects: &Arc<dyn Objects>,
        director: &Signers<'_>,
        names: Vec<Name>,
    ) -> Result<(), ObjectsError> {
        let mut reads = stream::iter(names)
            .map(|name| async move {
                let found = read(objects, director, &name).await?;
                Ok::<_, ObjectsError>((name, found))
            })
            .buffer_unordered(IN_FLIGHT);
        while let Some((name, found)) = reads.try_next().await? {
            self.note(name, found);
        }
        Ok(())
    }

    fn note(&mut self, name: Name, found: Option<Registered>) {
        match found {
            Some(member) => drop(self.known.insert(name, member)),
            None => drop(self.known.remove(&name)),
        }
    }

    /// Forgets every copy: another publisher has been at work, so any of them may be stale.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// The highest sequence that any roster speaks of. Rosters are signed by us, so that they tell of
    /// publications that a head from a backup does not know.
    #[must_use]
    pub fn highest_sequence(&self) -> u64 {
        let rosters = self.known.values().filter_map(|member| member.roster.as_ref());
        rosters.map(|(roster, _)| roster.sequence.max(roster.floor)).max().unwrap_or(0)
    }

    /// Reads one cluster again.
    ///
    /// # Errors
    /// [`ObjectsError`].
    pub async fn reload(
        &mut self,
        objects: &Arc<dyn Objects>,
        director: &Signers<'_>,
        name: &Name,
    ) -> Result<Option<&Registered>, ObjectsError> {
        let found = read(objects, director, name).await?;
        self.note(name.clone(), found);
        Ok(self.known.get(name))
    }

    /// How many clusters are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The labels of all registrations.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<Name, Labels> {
        self.known.iter().map(|(name, member)| (name.clone(), member.registration.labels.clone())).collect()
    }

    /// All clusters, with the labels that the intent gives them.
    #[must_use]
    pub fn members(&self, intent: &Intent) -> BTreeMap<Name, Member> {
        let member = |name: &Name, known: &Registered| Member {
            labels: super::intend::labels_of(intent, name, &known.registration.labels),
            key: known.registration.key.id(),
            roster: known.roster.as_ref().map(|(roster, _)| roster.clone()),
        };
        self.known.iter().map(|(name, known)| (name.clone(), member(name, known))).collect()
    }

    /// Signs and writes one roster by its own compare-and-swap. A conflict means that another
    /// publisher was here: what it wrote is read, and the next step decides again.
    ///
    /// # Errors
    /// [`ObjectsError`].
    pub async fn write_roster(
        &mut self,
        objects: &Arc<dyn Objects>,
        signer: &SigningKey,
        roster: Roster,
    ) -> Result<Option<Envelope>, ObjectsError> {
        let name = roster.cluster.clone();
        let Some(known) = self.known.get_mut(&name) else { return Ok(None) };
        let condition = match &known.roster {
            Some((_, version)) => Condition::Matches(version.clone()),
            None => Condition::Absent,
        };
        let envelope = Envelope::seal(&roster, &[signer]);
        match objects.put(&record::roster(&name), Bytes::from(envelope.to_bytes()), condition).await? {
            PutOutcome::Stored(version) => {
                known.roster = Some((roster, version));
                Ok(Some(envelope))
            }
            PutOutcome::Conflict => {
                self.reload(objects, &Signers::one(signer.public()), &name).await?;
                Ok(None)
            }
        }
    }
}

async fn read(
    objects: &Arc<dyn Objects>,
    director: &Signers<'_>,
    name: &Name,
) -> Result<Option<Registered>, ObjectsError> {
    let registration = signed::<Registration>(objects, director, record::registration(name)).await?;
    let Some((registration, version)) = registration.filter(|(r, _)| r.cluster == *name) else {
        return Ok(None);
    };
    let roster = signed::<Roster>(objects, director, record::roster(name)).await?;
    let roster = roster.filter(|(roster, _)| roster.cluster == *name);
    Ok(Some(Registered { registration, version, roster }))
}

/// A document of the record, or none if it is absent or not signed by us: storage is not believed.
///
/// # Errors
/// [`ObjectsError`].
pub async fn signed<T: Document>(
    objects: &Arc<dyn Objects>,
    signers: &Signers<'_>,
    key: Key,
) -> Result<Option<(T, Version)>, ObjectsError> {
    let Some(stored) = objects.get(&key, 2 * SMALL_LIMIT as u64).await? else { return Ok(None) };
    let envelope: Envelope = match serde_json::from_slice(&stored.bytes) {
        Ok(envelope) => envelope,
        Err(error) => {
            warn!(%key, %error, "object in the record is not an envelope");
            return Ok(None);
        }
    };
    match envelope.open(signers, SMALL_LIMIT) {
        Ok(document) => Ok(Some((document, stored.version))),
        Err(error) => {
            warn!(%key, %error, "object in the record is refused");
            Ok(None)
        }
    }
}
