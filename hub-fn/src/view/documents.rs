//! The signed documents themselves: from the index if it has the very one, else from objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::{Envelope, Refused, Signers};
use farshore_shared::names::Name;
use farshore_shared::wire::{DESIRED_LIMIT, Document, Group, GroupId, Registration, Roster, SMALL_LIMIT};
use tracing::{debug, warn};

use super::error::{ViewError, shared};
use super::{Freshness, View};
use crate::index::Entry;
use crate::objects::Key;
use crate::record;

/// A signed document, opened, with the envelope as it is sent.
#[derive(Debug)]
pub struct Signed<T> {
    /// The document.
    pub document: T,
    /// Its envelope.
    pub envelope: Envelope,
    /// The digest of the envelope.
    pub digest: Digest,
    /// The bytes of the envelope.
    pub size: usize,
}

impl View {
    /// A cluster's registration, if it is enrolled, as it is in objects now.
    ///
    /// # Errors
    /// [`ViewError`].
    pub async fn registration(
        &self,
        cluster: &Name,
        _freshness: Freshness,
    ) -> Result<Option<Arc<Signed<Registration>>>, Arc<ViewError>> {
        let trust = self.trust().await?;
        let key = record::registration(cluster);
        let is_asked = |found: &Signed<Registration>| found.document.cluster == *cluster;
        let found = self.stored(key, &trust.director(), SMALL_LIMIT, is_asked).await?;
        if found.is_some() {
            // It may have been nowhere a moment ago.
            self.memory.unlisted.invalidate(cluster).await;
        }
        Ok(found.map(Arc::new))
    }

    /// A cluster's roster, if it has one.
    ///
    /// # Errors
    /// [`ViewError`].
    pub async fn roster(
        &self,
        cluster: &Name,
        freshness: Freshness,
    ) -> Result<Option<Arc<Signed<Roster>>>, Arc<ViewError>> {
        if freshness == Freshness::Recent {
            let Some(known) = self.known(cluster).await? else { return Ok(None) };
            let Some(mark) = known.roster else { return Ok(None) };
            // Not older than what is known, wherever it is from; a newer one will be known soon.
            let is_it = |found: &Signed<Roster>| {
                found.document.cluster == *cluster
                    && (found.document.epoch, found.document.sequence) == (mark.epoch.into(), mark.sequence)
            };
            if let Some(found) = self.memory.rosters.get(cluster).await.filter(|found| is_it(found)) {
                return Ok(Some(found));
            }
            if let Some(found) = self.indexed(record::roster(cluster), SMALL_LIMIT, is_it).await? {
                let found = Arc::new(found);
                self.memory.rosters.insert(cluster.clone(), Arc::clone(&found)).await;
                return Ok(Some(found));
            }
        }
        let trust = self.trust().await?;
        let is_asked = |found: &Signed<Roster>| found.document.cluster == *cluster;
        let found = self.stored(record::roster(cluster), &trust.director(), SMALL_LIMIT, is_asked).await?;
        let Some(found) = found.map(Arc::new) else { return Ok(None) };
        self.learn_roster(&found);
        self.memory.rosters.insert(cluster.clone(), Arc::clone(&found)).await;
        Ok(Some(found))
    }

    /// The body of a group, by its sequence. It never changes.
    ///
    /// # Errors
    /// [`ViewError`].
    pub async fn group(&self, id: GroupId, sequence: u64) -> Result<Arc<Signed<Group>>, Arc<ViewError>> {
        let load = async {
            let is_asked =
                |found: &Signed<Group>| found.document.group == id && found.document.sequence == sequence;
            let key = record::group(id, sequence);
            if let Some(found) = self.indexed(key.clone(), DESIRED_LIMIT, is_asked).await? {
                return Ok(Arc::new(found));
            }
            let trust = self.trust().await.map_err(shared)?;
            let found = self.stored(key.clone(), &trust.director(), DESIRED_LIMIT, is_asked).await?;
            found.map(Arc::new).ok_or(ViewError::Damaged(key))
        };
        self.memory.groups.try_get_with((id, sequence), load).await
    }

    /// The compressed answer that has the body of a group and no roster, made once.
    pub(crate) async fn packed(
        &self,
        id: GroupId,
        sequence: u64,
        pack: impl Future<Output = Bytes>,
    ) -> Bytes {
        self.memory.packed.get_with((id, sequence), pack).await
    }

    /// The artifacts that a cluster may fetch: those that its group's body names, and the body before.
    ///
    /// # Errors
    /// [`ViewError`].
    pub async fn artifacts_of(
        &self,
        cluster: &Name,
        freshness: Freshness,
    ) -> Result<BTreeSet<Digest>, Arc<ViewError>> {
        if freshness == Freshness::Now && self.may_look(cluster, farshore_shared::clock::now()) {
            self.look_for(cluster).await?;
        }
        let (Some(roster), Some(publication)) =
            (self.roster(cluster, Freshness::Recent).await?, self.publication(Freshness::Recent).await?)
        else {
            return Ok(BTreeSet::new());
        };
        let Some(reference) = publication.group(&roster.document.group) else { return Ok(BTreeSet::new()) };
        let current = self.group(roster.document.group, reference.sequence).await?;
        let mut artifacts = named(&current.document);
        if let Some(previous) = current.document.previous {
            // The body before may have been collected: then nothing of it may be fetched any more.
            match self.group(roster.document.group, previous).await {
                Ok(previous) => artifacts.extend(named(&previous.document)),
                Err(error) if matches!(*error, ViewError::Damaged(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(artifacts)
    }

    /// From objects; it then goes into the index. Our signature alone is not enough: whoever writes to
    /// storage could put one document in another's place, so that it must be the one that is asked for.
    pub(super) async fn stored<T: Document + Numbered>(
        &self,
        key: Key,
        signers: &Signers<'_>,
        limit: usize,
        is_asked: impl Fn(&Signed<T>) -> bool,
    ) -> Result<Option<Signed<T>>, ViewError> {
        let Some(stored) = self.memory.objects.get(&key, 2 * limit as u64).await? else { return Ok(None) };
        let found = open(&stored.bytes, signers, limit).map_err(|failure| match failure {
            Some(source) => ViewError::Refused { key: key.clone(), source },
            None => ViewError::Damaged(key.clone()),
        })?;
        if !is_asked(&found) {
            return Err(ViewError::Damaged(key));
        }
        let entry = Entry { version: found.document.number(), bytes: stored.bytes };
        if let Err(error) = self.memory.index.put(key.as_str(), &entry).await {
            debug!(%key, %error, "index does not take an entry");
        }
        Ok(Some(found))
    }

    /// From the index, if it has a good one that is asked for.
    async fn indexed<T: Document>(
        &self,
        key: Key,
        limit: usize,
        is_asked: impl Fn(&Signed<T>) -> bool,
    ) -> Result<Option<Signed<T>>, ViewError> {
        let trust = self.trust().await.map_err(shared)?;
        let entry = match self.memory.index.get(key.as_str()).await {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(None),
            Err(error) => {
                debug!(%key, %error, "index does not answer");
                return Ok(None);
            }
        };
        let found = open(&entry.bytes, &trust.director(), limit);
        let found =
            found.inspect_err(|_| warn!(%key, "index holds something else than a signed document")).ok();
        Ok(found.filter(is_asked))
    }
}

/// What the index compares, so that an older document never takes a newer one's place.
pub(super) trait Numbered {
    fn number(&self) -> u64;
}

macro_rules! numbered {
    ($($type:ty),*) => {
        $(impl Numbered for $type {
            fn number(&self) -> u64 {
                self.sequence
            }
        })*
    };
}

numbered!(Registration, Roster, Group);

fn named(group: &Group) -> BTreeSet<Digest> {
    group.entries().into_iter().flatten().map(|entry| entry.artifact.digest).collect()
}

fn open<T: Document>(
    bytes: &Bytes,
    signers: &Signers<'_>,
    limit: usize,
) -> Result<Signed<T>, Option<Refused>> {
    let envelope: Envelope = serde_json::from_slice(bytes).map_err(|_| None)?;
    let document = envelope.open(signers, limit).map_err(Some)?;
    Ok(Signed { document, digest: Digest::of(bytes), envelope, size: bytes.len() })
}
