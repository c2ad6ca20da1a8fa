//! Requests to enrol: only the publisher can check them, because only it has the token key.
//!
//! Every step may be cut by a power failure and done again: the use of a token is an object that only
//! one key can create, and the same key finds its own.

use std::collections::BTreeSet;

use bytes::Bytes;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::Envelope;
use farshore_shared::keys::{KeyId, PublicKey};
use farshore_shared::names::Name;
use farshore_shared::token::{self, Claims};
use farshore_shared::wire::{EnrollRequest, Problem, Registration, SMALL_LIMIT, UnixSeconds};
use tracing::{info, warn};

use super::Publisher;
use super::directory::note;
use super::partition::Stamp;
use super::roll::found;
use crate::keyring::PublisherKeys;
use crate::objects::{Condition, Key, ObjectsError, PutOutcome};
use crate::record::{self, TokenUse};

/// How many requests are handled in one step.
const BATCH: usize = 1000;

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not made with a token of this hub.
    #[error("join token is not of this hub, or was changed")]
    Forged,
    /// Too late.
    #[error("join token expired ({expires}, now {now}; seconds since 1970): ask for a new one")]
    Expired {
        /// When.
        expires: UnixSeconds,
        /// The publisher's clock.
        now: UnixSeconds,
    },
    /// All uses are taken by other keys.
    #[error("join token is used up ({uses} of {uses} uses): ask for a new one")]
    UsedUp {
        /// How many there were.
        uses: u32,
    },
    /// The name has another key.
    #[error(
        "a cluster named {0} is enrolled with another key: choose another name, or make a token with --replace {0}"
    )]
    NameTaken(Name),
    /// The token is for one cluster.
    #[error("join token is for the cluster {only}, not {asked}")]
    OtherCluster {
        /// The cluster that may use it.
        only: Name,
        /// The one that asked.
        asked: Name,
    },
}

/// The name of a request: the digest of its bytes as they are stored.
#[must_use]
pub fn request_digest(bytes: &[u8]) -> Digest {
    Digest::of(bytes)
}

impl Publisher {
    /// Handles the requests that wait. Those that are decided for good are returned: they are deleted once
    /// the directory tells of them.
    pub(super) async fn handle_pending(&mut self, stamp: Stamp) -> Result<Vec<Key>, ObjectsError> {
        let mut decided = Vec::new();
        for listed in self.objects.list(record::PENDING, None, BATCH).await? {
            let Some(stored) = self.objects.get(&listed.key, SMALL_LIMIT as u64).await? else { continue };
            match serde_json::from_slice::<EnrollRequest>(&stored.bytes) {
                Ok(request) => self.decide(&request, request_digest(&stored.bytes), stamp).await?,
                Err(error) => warn!(key = %listed.key, %error, "request to enrol is not readable"),
            }
            decided.push(listed.key);
        }
        Ok(decided)
    }

    async fn decide(
        &mut self,
        request: &EnrollRequest,
        id: Digest,
        stamp: Stamp,
    ) -> Result<(), ObjectsError> {
        let cluster = &request.cluster;
        match self.register(request, stamp).await? {
            Ok(()) => info!(%cluster, "cluster is enrolled"),
            Err(refusal) => {
                warn!(%cluster, %refusal, "request to enrol is refused");
                let problem = Problem { error: refusal.to_string() };
                let bytes = serde_json::to_vec(&problem).expect("a problem has string keys only");
                let _ = self.objects.put(&record::refused(id), Bytes::from(bytes), Condition::Always).await?;
            }
        }
        Ok(())
    }

    async fn register(
        &mut self,
        request: &EnrollRequest,
        stamp: Stamp,
    ) -> Result<Result<(), Refusal>, ObjectsError> {
        let claims = match checked_claims(request, &self.keys) {
            Ok(claims) => claims,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let key = record::registration(&request.cluster);
        let known = found::<Registration>(&self.objects, &self.trust.director(), key.clone()).await?;
        let condition = match known {
            // Its removal was cut short: that life is over.
            Some(known) if self.is_over(&known.document) => Condition::Matches(known.version),
            // The same key again always succeeds, whatever has become of the token since; and where the
            // directory does not know of it yet, because a publisher was killed, it does then.
            Some(known) if known.document.key == request.key => {
                self.learn_of(&request.cluster).await?;
                return Ok(Ok(()));
            }
            Some(known) if claims.replaces.as_ref() == Some(&request.cluster) => {
                Condition::Matches(known.version)
            }
            Some(_) => return Ok(Err(Refusal::NameTaken(request.cluster.clone()))),
            None => Condition::Absent,
        };
        if claims.expires < stamp.now {
            return Ok(Err(Refusal::Expired { expires: claims.expires, now: stamp.now }));
        }
        if !self.take_use(&claims, request).await? {
            return Ok(Err(Refusal::UsedUp { uses: claims.uses }));
        }
        let envelope = Envelope::seal(&registration(request, &claims, stamp), &[&self.keys.director]);
        let _ = self.objects.put(&key, Bytes::from(envelope.to_bytes()), condition).await?;
        // Whoever was faster with the name has it.
        let is_ours = self.learn_of(&request.cluster).await?.as_ref() == Some(&request.key);
        Ok(if is_ours { Ok(()) } else { Err(Refusal::NameTaken(request.cluster.clone())) })
    }

    fn is_over(&self, registration: &Registration) -> bool {
        self.members.is_removed(&registration.cluster, (registration.epoch, registration.sequence))
    }

    /// Takes over how a cluster is by its own documents, for the directory to tell; its key, if it is registered.
    async fn learn_of(&mut self, cluster: &Name) -> Result<Option<PublicKey>, ObjectsError> {
        let Some(entry) = self.entry_of(cluster).await? else { return Ok(None) };
        let key = entry.key.clone();
        let is_known = self.members.get(cluster).is_some_and(|known| known.is_told_by(&entry));
        if !is_known {
            self.members.take(entry.clone());
            note(&mut self.untold, entry);
        }
        Ok(key)
    }

    /// Takes one of the token's uses for this key, or finds the one that it has. Where the search begins
    /// follows from the key, so that a token of ten thousand uses is not searched from its first one each time.
    async fn take_use(&mut self, claims: &Claims, request: &EnrollRequest) -> Result<bool, ObjectsError> {
        let token = Digest::of(claims.id.as_bytes());
        let taken = TokenUse { key: request.key.id(), cluster: request.cluster.clone() };
        if self.used_up.get(&token).is_some_and(|keys| !keys.contains(&taken.key)) {
            return Ok(false);
        }
        let bytes = Bytes::from(serde_json::to_vec(&taken).expect("a use has string keys only"));
        let mut keys = BTreeSet::new();
        for n in uses_from(&taken.key, claims.uses) {
            let key: Key = record::token_use(token, n);
            if let PutOutcome::Stored(_) = self.objects.put(&key, bytes.clone(), Condition::Absent).await? {
                return Ok(true);
            }
            let stored = self.objects.get(&key, SMALL_LIMIT as u64).await?;
            if stored.as_ref().is_some_and(|stored| stored.bytes == bytes) {
                return Ok(true);
            }
            let other = stored.and_then(|stored| serde_json::from_slice::<TokenUse>(&stored.bytes).ok());
            keys.extend(other.map(|other| other.key));
        }
        // A use is never given back.
        self.used_up.insert(token, keys);
        Ok(false)
    }
}

/// The uses of a token, each once, from the one on where this key begins to search.
pub fn uses_from(key: &KeyId, uses: u32) -> impl Iterator<Item = u32> + use<> {
    let bytes = key.as_bytes();
    let hash = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let first = hash.checked_rem(uses).unwrap_or(0);
    (first..uses).chain(0..first)
}

fn registration(request: &EnrollRequest, claims: &Claims, stamp: Stamp) -> Registration {
    Registration {
        cluster: request.cluster.clone(),
        key: request.key.clone(),
        sealing_key: request.sealing_key.clone(),
        labels: claims.labels.clone(),
        token: claims.id.clone(),
        epoch: stamp.epoch,
        sequence: stamp.sequence,
        issued: stamp.now,
        critical: vec![],
    }
}

fn checked_claims(request: &EnrollRequest, keys: &PublisherKeys) -> Result<Claims, Refusal> {
    let cluster = &request.cluster;
    if !token::is_proven(&keys.token, request) {
        return Err(Refusal::Forged);
    }
    let claims = token::read_claims(&request.claims).map_err(|_| Refusal::Forged)?;
    match &claims.replaces {
        Some(only) if only != cluster => {
            Err(Refusal::OtherCluster { only: only.clone(), asked: cluster.clone() })
        }
        Some(_) | None => Ok(claims),
    }
}
