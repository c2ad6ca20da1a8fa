//! What was last healthy, and what has been put in place for each service.

use std::collections::BTreeMap;

use farshore_shared::digest::Digest;
use farshore_shared::names::Name;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Found, Store, StoreError, files};
use crate::plan::Inventory;

/// The most bytes of the file of what was healthy.
const HEALTHY_LIMIT: u64 = 8 << 20;
/// The most bytes of one service's inventory.
const INVENTORY_LIMIT: u64 = 64 << 20;

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

    fn inventory_path(&self, service: &Name) -> std::path::PathBuf {
        self.dir.join(format!("inventory/{service}.json"))
    }

    /// What has been put in place for a service.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn inventory(&self, service: &Name) -> Result<Found<Inventory>, StoreError> {
        files::load(&self.inventory_path(service), INVENTORY_LIMIT)
    }

    /// Replaces a service's inventory; one without items and history is removed.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn save_inventory(&self, service: &Name, inventory: &Inventory) -> Result<(), StoreError> {
        if *inventory == Inventory::default() {
            files::remove(&self.inventory_path(service))
        } else {
            files::save(&self.inventory_path(service), inventory)
        }
    }

    /// Every service that has an inventory, readable or not.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn services_with_inventory(&self) -> Result<Vec<Name>, StoreError> {
        let names = files::list(&self.dir.join("inventory"))?;
        Ok(names.iter().filter_map(|name| name.strip_suffix(".json")?.parse().ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_inventory_is_absent_good_or_corrupt() {
        let temp = tempfile::tempdir().expect("a folder");
        let store = Store::open(temp.path()).expect("new");
        let web: Name = "web".parse().expect("a name");
        assert_eq!(store.inventory(&web).expect("readable"), Found::Absent);
        let inventory = Inventory { items: vec![], settled: Some(Digest::of(b"1")), incarnation: Some(1) };
        store.save_inventory(&web, &inventory).expect("written");
        assert_eq!(store.inventory(&web).expect("readable"), Found::Good(inventory));
        assert_eq!(store.services_with_inventory().expect("listed"), vec![web.clone()]);
        fs::write(temp.path().join("inventory/web.json"), "{}").expect("damaged");
        assert!(matches!(store.inventory(&web), Ok(Found::Corrupt(_))));
        store.save_inventory(&web, &Inventory::default()).expect("removed");
        assert_eq!(store.inventory(&web).expect("readable"), Found::Absent);
    }

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
