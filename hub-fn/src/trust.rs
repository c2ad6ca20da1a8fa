//! The trust root in the record: put there once, walked from 1 upwards, never replaced.

use bytes::Bytes;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::{Envelope, Refused, Signers};
use farshore_shared::keys::KeyId;
use farshore_shared::wire::{ROOT_LIMIT, Root};

use crate::keyring::{Keyring, KeyringError, PublisherKeys};
use crate::objects::{Condition, Objects, ObjectsError};
use crate::record;

/// The root in force.
#[derive(Debug, Clone)]
pub struct Trust {
    /// The newest root document.
    pub root: Root,
    /// The digest of root 1: the fleet's identity.
    pub fleet: Digest,
}

/// Why there is no trust root to work with.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The record could not be read or written.
    #[error("reading the trust root from the record")]
    Objects(#[from] ObjectsError),
    /// A root in the record is not one.
    #[error("root {version} in the record is refused")]
    Refused {
        /// Its number.
        version: u64,
        /// Why.
        #[source]
        source: Refused,
    },
    /// A root in the record is not even an envelope.
    #[error("root {version} in the record cannot be read")]
    Broken {
        /// Its number.
        version: u64,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A root in the record is not the one that its key names.
    #[error("root {version} in the record says that it is root {found}")]
    Version {
        /// Its number in the record.
        version: u64,
        /// Its number in the document.
        found: u64,
    },
    /// The keys are of another fleet.
    #[error(
        "the director key does not belong to the record's root (key {key}, root names {named}): use the keys that this record was made with"
    )]
    Foreign {
        /// The id of the key that we have.
        key: KeyId,
        /// The ids that the root names.
        named: String,
    },
    /// The keys cannot be used.
    #[error("reading the keys of the publisher")]
    Keys(#[from] KeyringError),
}

impl Trust {
    /// Reads the roots from 1 upwards; none if there is no root 1 yet.
    ///
    /// # Errors
    /// [`TrustError`].
    pub async fn load(objects: &dyn Objects) -> Result<Option<Self>, TrustError> {
        let Some(first) = objects.get(&record::root(1), ROOT_LIMIT as u64).await? else { return Ok(None) };
        let fleet = Digest::of(&first.bytes);
        let mut root = open_first(&first.bytes)?;
        loop {
            let version = root.version + 1;
            let Some(next) = objects.get(&record::root(version), ROOT_LIMIT as u64).await? else {
                return Ok(Some(Self { root, fleet }));
            };
            root = open_next(&root, version, &next.bytes)?;
        }
    }

    /// The trust root of a publisher: the record's, which must be that of the keys. Over an empty
    /// record, root 1 of the keys is put there.
    ///
    /// # Errors
    /// [`TrustError`].
    pub async fn establish(
        objects: &dyn Objects,
        ring: &Keyring,
    ) -> Result<(Self, PublisherKeys), TrustError> {
        let keys = ring.publisher()?;
        let ours = Bytes::from(ring.root()?);
        // A conflict means that a root is there already; whose it is, is checked below.
        let _ = objects.put(&record::root(1), ours.clone(), Condition::Absent).await?;
        let trust = Self::load(objects).await?;
        let trust = trust.expect("root 1 was there before or is there now");
        let key = keys.director.public().id();
        if trust.fleet != Digest::of(&ours) || !trust.root.roles.director.keys.contains(&key) {
            let named: Vec<String> = trust.root.roles.director.keys.iter().map(ToString::to_string).collect();
            return Err(TrustError::Foreign { key, named: named.join(", ") });
        }
        Ok((trust, keys))
    }

    /// Whose signatures count on groups, rosters, registrations, source heads and the head.
    #[must_use]
    pub fn director(&self) -> Signers<'_> {
        Signers::of(&self.root, &self.root.roles.director)
    }

    /// Whose signatures count on approvals.
    #[must_use]
    pub fn operator(&self) -> Signers<'_> {
        Signers::of(&self.root, &self.root.roles.operator)
    }
}

fn parse(version: u64, bytes: &[u8]) -> Result<Envelope, TrustError> {
    serde_json::from_slice(bytes).map_err(|source| TrustError::Broken { version, source })
}

/// Root 1 is trusted because it is there: sites pin its digest, not this hub.
fn open_first(bytes: &[u8]) -> Result<Root, TrustError> {
    let root = parse(1, bytes)?.open_self_signed(ROOT_LIMIT);
    root.map_err(|source| TrustError::Refused { version: 1, source })
}

/// TUF 1.0, section 5.3.4: a new root needs the signatures of the one before and its own.
fn open_next(before: &Root, version: u64, bytes: &[u8]) -> Result<Root, TrustError> {
    let refused = |source| TrustError::Refused { version, source };
    let envelope = parse(version, bytes)?;
    envelope.open::<Root>(&Signers::of(before, &before.roles.root), ROOT_LIMIT).map_err(refused)?;
    let next = envelope.open_self_signed(ROOT_LIMIT).map_err(refused)?;
    // TUF 1.0, section 5.3.5: no version is skipped and none is repeated.
    if next.version == version { Ok(next) } else { Err(TrustError::Version { version, found: next.version }) }
}
