//! What a collector is about to delete, written down before it does.

use std::collections::BTreeSet;

use bytes::Bytes;
use farshore_shared::wire::UnixSeconds;
use serde::{Deserialize, Serialize};

use crate::objects::{Condition, Key, Objects, ObjectsError, PutOutcome, Version};

/// After so many seconds another collector takes a claim over: longer than [`super::Collector`] works on one,
/// and longer than a deletion can be on its way.
pub const TAKEOVER: u64 = 3600;
const LIMIT: u64 = 4 << 20;

/// What is being deleted; nothing, between rounds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// When it was made.
    pub at: UnixSeconds,
    /// The objects.
    pub keys: BTreeSet<String>,
}

/// Where it lies.
///
/// # Panics
/// Never: it is a constant.
#[must_use]
pub(super) fn key() -> Key {
    Key::new("gc/claim").expect("a constant that is a key")
}

impl Claim {
    /// The claim in the record, with its version.
    ///
    /// # Errors
    /// [`ObjectsError`]; also for a claim that cannot be read, because what it held may be on its way out.
    pub async fn load(objects: &dyn Objects) -> Result<(Self, Option<Version>), ObjectsError> {
        let Some(stored) = objects.get(&key(), LIMIT).await? else { return Ok((Self::default(), None)) };
        match serde_json::from_slice(&stored.bytes) {
            Ok(claim) => Ok((claim, Some(stored.version))),
            Err(error) => {
                Err(ObjectsError::Corrupt { key: key().to_string(), reason: format!("not a claim: {error}") })
            }
        }
    }

    /// Writes it in the place of the one of that version; none if somebody else was faster.
    ///
    /// # Errors
    /// [`ObjectsError`].
    ///
    /// # Panics
    /// Never: a claim has string keys only.
    pub async fn store(
        &self,
        objects: &dyn Objects,
        before: Option<Version>,
    ) -> Result<Option<Version>, ObjectsError> {
        let bytes = Bytes::from(serde_json::to_vec(self).expect("a claim has string keys only"));
        let condition = before.map_or(Condition::Absent, Condition::Matches);
        match objects.put(&key(), bytes, condition).await? {
            PutOutcome::Stored(version) => Ok(Some(version)),
            PutOutcome::Conflict => Ok(None),
        }
    }

    /// Whether this object is being deleted.
    #[must_use]
    pub fn holds(&self, key: &Key) -> bool {
        self.keys.contains(key.as_str())
    }
}
