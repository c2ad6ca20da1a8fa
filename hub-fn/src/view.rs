//! What a replica remembers: replica memory over index over objects, bounded in size and staleness.
//!
//! Nothing here is ever the only copy. Everything signed is verified against the trust root before it
//! is remembered, wherever it came from, so that a damaged or foreign index costs a read, no more.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::{Envelope, Refused, Signers};
use farshore_shared::names::Name;
use farshore_shared::wire::{DESIRED_LIMIT, Document, Group, GroupId, Registration, Roster, SMALL_LIMIT};
use moka::future::Cache;
use tracing::{debug, warn};

use crate::index::{Entry, Index};
use crate::objects::{Key, Objects, ObjectsError};
use crate::publish::state::{BODY_LIMIT, HEAD_LIMIT};
use crate::record::{self, GroupRef, Head, Table};
use crate::trust::{Trust, TrustError};

/// How old what a replica answers from may be: a publication is seen at every replica after at most
/// this, and so is a new roster.
pub const STALENESS: Duration = Duration::from_secs(1);
/// How long a replica believes which key a cluster has.
const KEY_STALENESS: Duration = Duration::from_secs(10);
/// How long a body that never changes is kept without being asked for.
const IDLE: Duration = Duration::from_secs(600);

/// How fresh an answer must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// At most [`STALENESS`] old.
    Recent,
    /// Read from objects now: somebody has seen something newer than we have.
    Now,
}

/// A signed document, opened, with the envelope as it is sent.
#[derive(Debug)]
pub struct Signed<T> {
    /// The document.
    pub document: T,
    /// Its envelope.
    pub envelope: Envelope,
    /// The digest of the envelope.
    pub digest: Digest,
}

/// What is published: the head and the table.
#[derive(Debug)]
pub struct Publication {
    /// The head.
    pub head: Head,
    table: Table,
}

impl Publication {
    /// Where a group's body is.
    #[must_use]
    pub fn group(&self, id: &GroupId) -> Option<&GroupRef> {
        self.table.0.get(id)
    }
}

/// Why a replica cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The object storage.
    #[error("reading the record")]
    Objects(#[from] ObjectsError),
    /// The trust root.
    #[error("reading the trust root")]
    Trust(#[from] TrustError),
    /// There is no trust root in the record yet.
    #[error("no trust root is in the record yet: start a publisher")]
    NoTrust,
    /// A document of the record is refused.
    #[error("document of the record is refused ({key})")]
    Refused {
        /// Which.
        key: Key,
        /// Why.
        #[source]
        source: Refused,
    },
    /// An object is not what it should be.
    #[error("object of the record is damaged ({0})")]
    Damaged(Key),
    /// Another request found out first.
    #[error(transparent)]
    Shared(Arc<ViewError>),
}

/// What a replica remembers.
#[derive(Debug, Clone)]
pub struct View {
    objects: Arc<dyn Objects>,
    index: Arc<dyn Index>,
    trust: Cache<(), Arc<Trust>>,
    publication: Cache<(), Option<Arc<Publication>>>,
    registrations: Cache<Name, Option<Arc<Signed<Registration>>>>,
    rosters: Cache<Name, Option<Arc<Signed<Roster>>>>,
    groups: Cache<(GroupId, u64), Arc<Signed<Group>>>,
    tables: Cache<Digest, Arc<Table>>,
}

impl View {
    /// An empty memory over an index and objects.
    #[must_use]
    pub fn new(objects: Arc<dyn Objects>, index: Arc<dyn Index>) -> Self {
        let brief = |most: u64, staleness| Cache::builder().max_capacity(most).time_to_live(staleness);
        Self {
            objects,
            index,
            trust: Cache::builder().max_capacity(1).time_to_live(KEY_STALENESS).build(),
            publication: Cache::builder().max_capacity(1).time_to_live(STALENESS).build(),
            registrations: brief(200_000, KEY_STALENESS).build(),
            rosters: Cache::builder().max_capacity(200_000).time_to_live(STALENESS).build(),
            groups: Cache::builder().max_capacity(4096).time_to_idle(IDLE).build(),
            tables: Cache::builder().max_capacity(256).time_to_idle(IDLE).build(),
        }
    }

    /// The object storage underneath.
    #[must_use]
    pub fn objects(&self) -> &Arc<dyn Objects> {
        &self.objects
    }

    /// The trust root.
    ///
    /// # Errors
    /// [`ViewError`].
    pub async fn trust(&self) -> Result<Arc<Trust>, Arc<ViewError>> {
        self.trust.try_get_with((), self.load_trust()).await
    }

    async fn load_trust(&self) -> Result<Arc<Trust>, ViewError> {
        Ok(Arc::new(Trust::load(&*self.objects).await?.ok_or(ViewError::NoTrust)?))
    }

    /// What is published, if anything is.
    ///
    /// # Errors
    /// [`ViewError`].
    pub async fn publication(
        &self,
        freshness: Freshness,
    ) -> Result<Option<Arc<Publication>>, Arc<ViewError>> {
        if freshness == Freshness::Now {
            self.publication.invalidate(&()).await;
        }
        self.publication.try_get_with((), self.load_publication(freshness)).await
    }

    async fn load_publication(&self, freshness: Freshness) -> Result<Option<Arc<Publication>>, ViewError> {
        let trust = self.trust().await.map_err(shared)?;
        let head =
            self.signed::<Head>(record::head(), &trust.director(), HEAD_LIMIT, freshness, |_| true).await?;
        let Some(head) = head else { return Ok(None) };
        let mut table = Table::default();
        for &digest in &head.document.tables {
            let shard = self.tables.try_get_with(digest, self.load_table(digest)).await.map_err(shared)?;
            table.0.extend(shard.0.iter().map(|(id, group)| (*id, group.clone())));
        }
        Ok(Some(Arc::new(Publication { head: head.document, table })))
    }

    async fn load_table(&self, digest: Digest) -> Result<Arc<Table>, ViewError> {
        let key = record::table(digest);
        let stored = self.objects.get(&key, BODY_LIMIT).await?;
        let stored = stored.filter(|stored| Digest::of(&stored.bytes) == digest);
        let table = stored.and_then(|stored| serde_json::from_slice(&stored.bytes).ok());
        table.map(Arc::new).ok_or(ViewError::Damaged(key))
    }

    /// A cluster's registration, if it is enrolled.
    ///
    /// # Errors
    /// [`ViewError`].
    pub async fn registration(
        &self,
        cluster: &Name,
        freshness: Freshness,
    ) -> Result<Option<Arc<Signed<Registration>>>, Arc<ViewError>> {
        if freshness == Freshness::Now {
            self.registrations.invalidate(cluster).await;
        }
        let load = async {
            let trust = self.trust().await.map_err(shared)?;
            let key = record::registration(cluster);
            let is_asked = |found: &Signed<Registration>| found.document.cluster == *cluster;
            let found = self.signed(key, &trust.director(), SMALL_LIMIT, freshness, is_asked).await?;
            Ok(found.map(Arc::new))
        };
        self.registrations.try_get_with_by_ref(cluster, load).await
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
        if freshness == Freshness::Now {
            self.rosters.invalidate(cluster).await;
        }
        let load = async {
            let trust = self.trust().await.map_err(shared)?;
            let key = record::roster(cluster);
            let is_asked = |found: &Signed<Roster>| found.document.cluster == *cluster;
            let found = self.signed(key, &trust.director(), SMALL_LIMIT, freshness, is_asked).await?;
            Ok(found.map(Arc::new))
        };
        self.rosters.try_get_with_by_ref(cluster, load).await
    }

    /// The body of a group, by its sequence. It never changes.
    ///
    /// # Errors
    /// [`ViewError`].
    pub async fn group(&self, id: GroupId, sequence: u64) -> Result<Arc<Signed<Group>>, Arc<ViewError>> {
        let load = async {
            let trust = self.trust().await.map_err(shared)?;
            let key = record::group(id, sequence);
            let is_asked =
                |found: &Signed<Group>| found.document.group == id && found.document.sequence == sequence;
            let found = self
                .signed(key.clone(), &trust.director(), DESIRED_LIMIT, Freshness::Recent, is_asked)
                .await?;
            found.map(Arc::new).ok_or(ViewError::Damaged(key))
        };
        self.groups.try_get_with((id, sequence), load).await
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
        let (Some(roster), Some(publication)) =
            (self.roster(cluster, freshness).await?, self.publication(freshness).await?)
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

    /// From the index if it has a good one, else from objects, which then goes into the index. Our
    /// signature alone is not enough: whoever writes to the index could put one document in another's
    /// place, so that it must be the one that is asked for.
    async fn signed<T: Document + Numbered>(
        &self,
        key: Key,
        signers: &Signers<'_>,
        limit: usize,
        freshness: Freshness,
        is_asked: impl Fn(&Signed<T>) -> bool,
    ) -> Result<Option<Signed<T>>, ViewError> {
        if freshness == Freshness::Recent
            && let Some(found) = self.indexed(&key, signers, limit).await
            && is_asked(&found)
        {
            return Ok(Some(found));
        }
        let Some(stored) = self.objects.get(&key, 2 * limit as u64).await? else { return Ok(None) };
        let found = open(&stored.bytes, signers, limit).map_err(|failure| match failure {
            Some(source) => ViewError::Refused { key: key.clone(), source },
            None => ViewError::Damaged(key.clone()),
        })?;
        if !is_asked(&found) {
            return Err(ViewError::Damaged(key));
        }
        let entry = Entry { version: found.document.number(), bytes: stored.bytes };
        if let Err(error) = self.index.put(key.as_str(), &entry).await {
            debug!(%key, %error, "index does not take an entry");
        }
        Ok(Some(found))
    }

    async fn indexed<T: Document>(
        &self,
        key: &Key,
        signers: &Signers<'_>,
        limit: usize,
    ) -> Option<Signed<T>> {
        let entry = match self.index.get(key.as_str()).await {
            Ok(entry) => entry?,
            Err(error) => {
                debug!(%key, %error, "index does not answer");
                return None;
            }
        };
        let found = open(&entry.bytes, signers, limit);
        found.inspect_err(|_| warn!(%key, "index holds something else than a signed document")).ok()
    }
}

/// What the index compares, so that an older document never takes a newer one's place.
trait Numbered {
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

numbered!(Head, Registration, Roster, Group);

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
    Ok(Signed { document, digest: Digest::of(bytes), envelope })
}

/// An error that several waiting requests share.
fn shared(error: Arc<ViewError>) -> ViewError {
    ViewError::Shared(error)
}
