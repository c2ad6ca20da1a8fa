//! What was last healthy.

use std::collections::BTreeMap;

use farshore_shared::digest::Digest;
use farshore_shared::names::Name;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Found, Store, StoreError, files};

/// The most bytes of the file of what was healthy.
const HEALTHY_LIMIT: u64 = 8 << 20;

/// One service as it was when all of it was last healthy: not the same as accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Healthy {
    /// The artifact that was applied.
    pub artifact: Digest,
    /// The commit that it was made from.
    pub commit: String,
    /// The signed revision that was healthy.
    pub revision: Digest,
    /// The service's entry in the group document.
    pub entry: Value,
}

impl Store {
    /// What was last healthy, by service.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn healthy(&self) -> Result<Found<BTreeMap<Name, Healthy>>, StoreError> {
        files::load(&self.dir.join("healthy.json"), HEALTHY_LIMIT)
    }

    /// Replaces what was last healthy.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn save_healthy(&self, healthy: &BTreeMap<Name, Healthy>) -> Result<(), StoreError> {
        files::save(&self.dir.join("healthy.json"), healthy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_healthy_reads_back() {
        let temp = tempfile::tempdir().expect("a folder");
        let store = Store::open(temp.path()).expect("new");
        let entry = serde_json::json!({"name": "web"});
        let healthy =
            Healthy { artifact: Digest::of(b"a"), commit: "c".into(), revision: Digest::of(b"r"), entry };
        let all = BTreeMap::from([("web".parse().expect("a name"), healthy)]);
        store.save_healthy(&all).expect("written");
        assert_eq!(store.healthy().expect("readable"), Found::Good(all));
    }
}
