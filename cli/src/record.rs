//! The record beside a running hub, read and believed only as far as its signatures reach.
//!
//! Commands read the same objects as the hub does and need no hub to answer. What is not signed as it
//! should be is told on standard error and left out.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use clap::Args;
use farshore_agent::hub::HubUrl;
use farshore_hub_fn::objects::disk::{Disk, OpenError};
use farshore_hub_fn::objects::{Condition, Key, Objects, ObjectsError};
use farshore_hub_fn::publish::state::{Published, StateError};
use farshore_hub_fn::record::{self, Approval, SEEN_SHARDS, SeenTable, SourceHead};
use farshore_hub_fn::run::HubError;
use farshore_hub_fn::seen::SEEN_LIMIT;
use farshore_hub_fn::status::all_reports;
use farshore_hub_fn::status::shard::Reports;
use farshore_hub_fn::stores::open_bucket;
use farshore_hub_fn::trust::{Trust, TrustError};
use farshore_shared::dsse::{Envelope, Signers};
use farshore_shared::exit::{Exit, chain};
use farshore_shared::names::Name;
use farshore_shared::wire::{Document, Registration, Roster, SMALL_LIMIT, STATUS_LIMIT, Status, UnixSeconds};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tracing::warn;

use crate::remote::CallArgs;

/// How many clusters are read at once.
const IN_FLIGHT: usize = 32;
/// How many keys are listed at once.
const PAGE: usize = 1000;
/// The most bytes of a source head: it carries every mistake of a fleet repository.
const SOURCE_HEAD_LIMIT: usize = 4 << 20;

/// Where the record is.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Place {
    /// Data folder of the hub: the record is in DIR/objects, unless --objects
    #[arg(long, env = "FARSHORE_DATA", value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Bucket of the record: s3://BUCKET[?endpoint=URL]
    #[arg(long, env = "FARSHORE_OBJECTS", value_name = "URL")]
    pub(crate) objects: Option<String>,
    /// Hub to ask instead, as an operator: https://HOST:PORT (with --key)
    #[arg(long, env = "FARSHORE_HUB", value_name = "URL", requires = "key", conflicts_with_all = ["data", "objects"])]
    pub(crate) hub: Option<HubUrl>,
    #[command(flatten)]
    pub(crate) call: CallArgs,
}

/// Why the record cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// There is none in the data folder.
    #[error("opening the record of a hub (start one with this --data once, or name the data folder of one)")]
    Open(#[from] OpenError),
    /// The bucket cannot be used.
    #[error(transparent)]
    Bucket(HubError),
    /// An object cannot be read or written.
    #[error("accessing the record")]
    Objects(#[from] ObjectsError),
    /// The trust root cannot be read.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// Nothing was ever published.
    #[error("no trust root is in the record yet: start a hub, or a publisher, once")]
    NoTrust,
    /// What was published last cannot be read.
    #[error("reading what was published last")]
    State(#[from] StateError),
}

impl RecordError {
    /// How the program ends with it.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Bucket(error) => error.exit(),
            Self::Objects(error)
            | Self::Trust(TrustError::Objects(error))
            | Self::State(StateError::Objects(error))
                if error.retryable() =>
            {
                Exit::Unreachable
            }
            Self::Open(_) | Self::Objects(_) | Self::Trust(_) | Self::NoTrust | Self::State(_) => {
                Exit::BadInput
            }
        }
    }
}

/// A registered cluster, and what is known of it.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// Its registration.
    pub(crate) registration: Registration,
    /// Its roster, once it has one.
    pub(crate) roster: Option<Roster>,
    /// The last status that it signed.
    pub(crate) status: Option<Status>,
    /// When a hub received it, in milliseconds since 1970.
    pub(crate) received: u64,
    /// When the hub last heard it.
    pub(crate) seen: Option<UnixSeconds>,
}

/// An open record.
#[derive(Debug)]
pub(crate) struct Record {
    objects: Arc<dyn Objects>,
    trust: Trust,
}

impl Record {
    /// Opens a record that is there already.
    ///
    /// # Errors
    /// [`RecordError`].
    pub(crate) async fn open(place: &Place) -> Result<Self, RecordError> {
        let objects: Arc<dyn Objects> = match (&place.objects, &place.data) {
            (Some(address), _) => open_bucket(address).await.map_err(RecordError::Bucket)?,
            (None, data) => {
                let data = data.clone().unwrap_or_default();
                Arc::new(Disk::open_existing(&data.join("objects"))?)
            }
        };
        let trust = Trust::load(&*objects).await?.ok_or(RecordError::NoTrust)?;
        Ok(Self { objects, trust })
    }

    /// Its trust root.
    pub(crate) fn trust(&self) -> &Trust {
        &self.trust
    }

    /// What was published last.
    ///
    /// # Errors
    /// [`RecordError`].
    pub(crate) async fn published(&self) -> Result<Published, RecordError> {
        Ok(Published::load(&self.objects, &self.trust.director()).await?)
    }

    /// All registered clusters, by name.
    ///
    /// # Errors
    /// [`RecordError`].
    pub(crate) async fn clusters(&self) -> Result<Vec<Known>, RecordError> {
        let seen = self.seen().await?;
        let reports = all_reports(&*self.objects).await?;
        let names = self.names(record::REGISTRATIONS, |key| key.rsplit('/').next()).await?;
        let clusters = stream::iter(names)
            .map(|name| self.cluster(name, &reports))
            .buffer_unordered(IN_FLIGHT)
            .try_collect::<Vec<_>>()
            .await?;
        let mut clusters: Vec<Known> = clusters.into_iter().flatten().collect();
        for known in &mut clusters {
            known.seen = seen.get(&known.registration.cluster).copied();
        }
        clusters.sort_by(|a, b| a.registration.cluster.cmp(&b.registration.cluster));
        Ok(clusters)
    }

    async fn cluster(&self, name: Name, reports: &Reports) -> Result<Option<Known>, RecordError> {
        let director = self.trust.director();
        let registration = self.signed::<Registration>(record::registration(&name), &director, SMALL_LIMIT);
        let Some(registration) = registration.await?.filter(|found| found.cluster == name) else {
            return Ok(None);
        };
        let site = Signers::one(&registration.key);
        let roster = self.signed::<Roster>(record::roster(&name), &director, SMALL_LIMIT).await?;
        let roster = roster.filter(|found| found.cluster == name);
        let report = reports.get(&name);
        let status = report.and_then(|report| match report.envelope.open::<Status>(&site, STATUS_LIMIT) {
            Ok(status) => Some(status),
            Err(error) => {
                warn!(cluster = %name, error = %chain(&error), "status is refused");
                None
            }
        });
        let status = status.filter(|found| found.cluster == name);
        let received = report.filter(|_| status.is_some()).map_or(0, |report| report.received);
        Ok(Some(Known { registration, roster, status, received, seen: None }))
    }

    async fn seen(&self) -> Result<SeenTable, RecordError> {
        let mut all = SeenTable::new();
        for shard in 0..SEEN_SHARDS {
            let key = record::seen(shard);
            let Some(stored) = readable(&key, self.objects.get(&key, SEEN_LIMIT)).await? else { continue };
            match serde_json::from_slice::<SeenTable>(&stored.bytes) {
                Ok(table) => all.extend(table),
                Err(error) => warn!(%key, %error, "table of last-seen times is not readable"),
            }
        }
        Ok(all)
    }

    /// How every source is doing, by name.
    ///
    /// # Errors
    /// [`RecordError`].
    pub(crate) async fn source_heads(&self) -> Result<Vec<SourceHead>, RecordError> {
        let names = self.names(record::SOURCES, |key| key.strip_suffix("/head")?.rsplit('/').next()).await?;
        let director = self.trust.director();
        let mut heads = Vec::new();
        for name in names {
            let key = record::source_head(name.as_str());
            let head = self.signed::<SourceHead>(key, &director, SOURCE_HEAD_LIMIT).await?;
            heads.extend(head.filter(|head| head.source == name.as_str()));
        }
        Ok(heads)
    }

    /// An operator's approval, if there is one that counts.
    ///
    /// # Errors
    /// [`RecordError`].
    pub(crate) async fn approval(&self, key: &Key) -> Result<Option<Approval>, RecordError> {
        self.signed(key.clone(), &self.trust.operator(), SMALL_LIMIT).await
    }

    /// Puts an approval.
    ///
    /// # Errors
    /// [`RecordError`].
    pub(crate) async fn put_approval(&self, key: &Key, approval: &Envelope) -> Result<(), RecordError> {
        // Whatever is there does not count, or nothing would be put.
        let _ = self.objects.put(key, Bytes::from(approval.to_bytes()), Condition::Always).await?;
        Ok(())
    }

    /// The names of all objects below a prefix, sorted.
    async fn names(
        &self,
        prefix: &str,
        name_in: impl Fn(&str) -> Option<&str>,
    ) -> Result<Vec<Name>, RecordError> {
        let mut names = Vec::new();
        let mut after: Option<Key> = None;
        loop {
            let page = self.objects.list(prefix, after.as_ref(), PAGE).await?;
            names.extend(page.iter().filter_map(|listed| name_in(listed.key.as_str())?.parse::<Name>().ok()));
            match page.last() {
                Some(last) if page.len() == PAGE => after = Some(last.key.clone()),
                Some(_) | None => break,
            }
        }
        names.sort();
        Ok(names)
    }

    /// A document, or none if it is absent, damaged or not signed as it should be.
    async fn signed<T: Document>(
        &self,
        key: Key,
        signers: &Signers<'_>,
        limit: usize,
    ) -> Result<Option<T>, RecordError> {
        let Some(stored) = readable(&key, self.objects.get(&key, 2 * limit as u64)).await? else {
            return Ok(None);
        };
        let envelope = match serde_json::from_slice::<Envelope>(&stored.bytes) {
            Ok(envelope) => envelope,
            Err(error) => {
                warn!(%key, %error, "object of the record is not an envelope");
                return Ok(None);
            }
        };
        match envelope.open(signers, limit) {
            Ok(document) => Ok(Some(document)),
            Err(error) => {
                warn!(%key, error = %chain(&error), "object of the record is refused");
                Ok(None)
            }
        }
    }
}

/// One damaged object is told, and does not keep a person from seeing all others.
async fn readable<T>(
    key: &Key,
    read: impl Future<Output = Result<Option<T>, ObjectsError>>,
) -> Result<Option<T>, RecordError> {
    match read.await {
        Err(error @ (ObjectsError::TooLarge { .. } | ObjectsError::Corrupt { .. })) => {
            warn!(%key, error = %chain(&error), "object of the record is left out");
            Ok(None)
        }
        read => Ok(read?),
    }
}
