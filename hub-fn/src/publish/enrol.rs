//! Requests to enrol: only the publisher can check them, because only it has the token key.
//!
//! Every step may be cut by a power failure and done again: the use of a token is an object that only
//! one key can create, and the same key finds its own.

use std::sync::Arc;

use bytes::Bytes;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::{Envelope, Signers};
use farshore_shared::names::Name;
use farshore_shared::token::{self, Claims};
use farshore_shared::wire::{EnrollRequest, Problem, Registration, SMALL_LIMIT, UnixSeconds};
use tracing::{info, warn};

use super::members::Members;
use super::partition::Stamp;
use crate::keyring::PublisherKeys;
use crate::objects::{Condition, Key, Objects, ObjectsError, PutOutcome};
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

/// Handles the requests that wait; true if any cluster is new or changed.
///
/// # Errors
/// [`ObjectsError`]; what was handled by then stays handled.
pub async fn handle_pending(
    objects: &Arc<dyn Objects>,
    keys: &PublisherKeys,
    members: &mut Members,
    stamp: Stamp,
) -> Result<bool, ObjectsError> {
    let mut changed = false;
    for listed in objects.list(record::PENDING, None, BATCH).await? {
        let Some(stored) = objects.get(&listed.key, SMALL_LIMIT as u64).await? else { continue };
        match serde_json::from_slice::<EnrollRequest>(&stored.bytes) {
            Ok(request) => {
                let desk = Desk { objects, keys, members, stamp };
                changed |= desk.handle(&request, request_digest(&stored.bytes)).await?;
            }
            Err(error) => warn!(key = %listed.key, %error, "request to enrol is not readable"),
        }
        objects.delete(&listed.key).await?;
    }
    Ok(changed)
}

/// The name of a request: the digest of its bytes as they are stored.
#[must_use]
pub fn request_digest(bytes: &[u8]) -> Digest {
    Digest::of(bytes)
}

struct Desk<'a> {
    objects: &'a Arc<dyn Objects>,
    keys: &'a PublisherKeys,
    members: &'a mut Members,
    stamp: Stamp,
}

impl Desk<'_> {
    async fn handle(self, request: &EnrollRequest, id: Digest) -> Result<bool, ObjectsError> {
        let cluster = request.cluster.clone();
        let objects = self.objects;
        match self.register(request).await? {
            Ok(new) => {
                info!(%cluster, new, "cluster is enrolled");
                Ok(new)
            }
            Err(refusal) => {
                warn!(%cluster, %refusal, "request to enrol is refused");
                let problem = Problem { error: refusal.to_string(), request: None };
                let bytes = serde_json::to_vec(&problem).expect("a problem has string keys only");
                let _ = objects.put(&record::refused(id), Bytes::from(bytes), Condition::Always).await?;
                Ok(false)
            }
        }
    }

    async fn register(self, request: &EnrollRequest) -> Result<Result<bool, Refusal>, ObjectsError> {
        let claims = match checked_claims(request, self.keys) {
            Ok(claims) => claims,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let director = Signers::one(self.keys.director.public());
        let known = self.members.reload(self.objects, &director, &request.cluster).await?;
        let condition = match known {
            // The same key again always succeeds, whatever has become of the token since.
            Some(known) if known.registration.key == request.key => return Ok(Ok(false)),
            Some(known) if claims.replaces.as_ref() == Some(&request.cluster) => {
                Condition::Matches(known.version.clone())
            }
            Some(_) => return Ok(Err(Refusal::NameTaken(request.cluster.clone()))),
            None => Condition::Absent,
        };
        if claims.expires < self.stamp.now {
            return Ok(Err(Refusal::Expired { expires: claims.expires, now: self.stamp.now }));
        }
        if !take_use(self.objects, &claims, request).await? {
            return Ok(Err(Refusal::UsedUp { uses: claims.uses }));
        }
        let envelope = Envelope::seal(&self.registration(request, &claims), &[&self.keys.director]);
        let key = record::registration(&request.cluster);
        let outcome = self.objects.put(&key, Bytes::from(envelope.to_bytes()), condition).await?;
        let known = self.members.reload(self.objects, &director, &request.cluster).await?;
        let ours = known.is_some_and(|known| known.registration.key == request.key);
        match outcome {
            PutOutcome::Stored(_) => Ok(Ok(true)),
            PutOutcome::Conflict if ours => Ok(Ok(true)),
            PutOutcome::Conflict => Ok(Err(Refusal::NameTaken(request.cluster.clone()))),
        }
    }

    fn registration(&self, request: &EnrollRequest, claims: &Claims) -> Registration {
        Registration {
            cluster: request.cluster.clone(),
            key: request.key.clone(),
            sealing_key: request.sealing_key.clone(),
            labels: claims.labels.clone(),
            token: claims.id.clone(),
            epoch: self.stamp.epoch,
            sequence: self.stamp.sequence,
            issued: self.stamp.now,
            critical: vec![],
        }
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

/// Takes one of the token's uses for this key, or finds the one that it has.
async fn take_use(
    objects: &Arc<dyn Objects>,
    claims: &Claims,
    request: &EnrollRequest,
) -> Result<bool, ObjectsError> {
    let token = Digest::of(claims.id.as_bytes());
    let taken = TokenUse { key: request.key.id(), cluster: request.cluster.clone() };
    let bytes = Bytes::from(serde_json::to_vec(&taken).expect("a use has string keys only"));
    for n in 0..claims.uses {
        let key: Key = record::token_use(token, n);
        if let PutOutcome::Stored(_) = objects.put(&key, bytes.clone(), Condition::Absent).await? {
            return Ok(true);
        }
        let stored = objects.get(&key, SMALL_LIMIT as u64).await?;
        if stored.is_some_and(|stored| stored.bytes == bytes) {
            return Ok(true);
        }
    }
    Ok(false)
}
