//! Why a replica cannot answer.

use std::sync::Arc;
use std::time::Duration;

use farshore_shared::dsse::Refused;

use crate::directory::DirectoryError;
use crate::objects::{Key, ObjectsError};
use crate::trust::TrustError;

/// Why a replica cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The object storage.
    #[error("reading the record")]
    Objects(#[from] ObjectsError),
    /// The trust root.
    #[error("reading the trust root")]
    Trust(#[from] TrustError),
    /// The directory of clusters.
    #[error("reading the directory of clusters")]
    Directory(#[from] DirectoryError),
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
    /// The record takes too long.
    #[error("the record does not answer (limit {limit:?})")]
    Slow {
        /// How long it was waited for.
        limit: Duration,
    },
    /// Too many clusters are asked for that the directory does not know.
    #[error("too many clusters are asked for that are not in the directory (limit {limit} a second)")]
    Busy {
        /// How many are looked up in a second.
        limit: u32,
    },
    /// Shards are dropped as fast as they are loaded.
    #[error("no room is left to look a cluster up: raise --view-limit")]
    Crowded,
    /// Another request found out first.
    #[error(transparent)]
    Shared(Arc<ViewError>),
}

/// An error that several waiting requests share.
pub(super) fn shared(error: Arc<ViewError>) -> ViewError {
    ViewError::Shared(error)
}
