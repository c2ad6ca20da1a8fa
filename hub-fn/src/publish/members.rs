//! Every registered cluster: registrations and rosters, as far as our own signature reaches.

use std::collections::BTreeMap;
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
            let new: Vec<Name> = names.filter(|name| !self.known.contains_key(name)).collect();
            let read: Vec<(Name, Option<Registered>)> = stream::iter(new)
                .map(|name| async move {
                    Ok::<_, ObjectsError>((name.clone(), read(objects, director, &name).await?))
                })
                .buffer_unordered(IN_FLIGHT)
                .try_collect()
                .await?;
            self.known.extend(read.into_iter().filter_map(|(name, member)| Some((name, member?))));
        }
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
        match read(objects, director, name).await? {
            Some(member) => {
                self.known.insert(name.clone(), member);
            }
            None => {
                self.known.remove(name);
            }
        }
        Ok(self.known.get(name))
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
