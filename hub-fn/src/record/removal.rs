//! An operator's word that a cluster is no part of the fleet any more.

use farshore_shared::keys::KeyId;
use farshore_shared::names::Name;
use farshore_shared::wire::UnixSeconds;
use serde::{Deserialize, Serialize};

/// That one cluster, with this very key, is removed: its passes are refused from then on, and the name is
/// free. What runs at the site stays there, because nobody tells the site anything any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Removal {
    /// Which.
    pub cluster: Name,
    /// The id of the key that it is registered with. One that was enrolled anew has another.
    pub key: KeyId,
    /// When it was signed. A registration that is younger is not meant.
    pub issued: UnixSeconds,
}
