//! The inventory of each service: what this agent has put in place for it.
//!
//! ```text
//! inventory/{service}.json            all of it, up to [`WHOLE_LIMIT`] objects
//! inventory/{service}/{00..3f}.json   more than that: the objects, by the hash of their keys
//! inventory/{service}/head.json       and what is said of all of them
//! ```
//!
//! Only shards that changed are written, so that the repair of one object among ten thousand costs one
//! small file. Shards are written before the head: what the head says of a revision is true of every
//! shard. A power cut between shards leaves objects that are listed and not there yet, or not there any
//! more; neither takes anything away.
//!
//! Both forms are of layout 1: whoever may open the folder knows both. A power cut may leave both of one service.
//! Until the head is there, the one file is what was written last; from then on the shards are, and what only the
//! one file lists had left before they were written.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use farshore_shared::digest::Digest;
use farshore_shared::names::Name;
use farshore_shared::wire::ProtectedKinds;
use serde::{Deserialize, Serialize};

use super::{Found, Store, StoreError, files};
use crate::object::ObjectKey;
use crate::plan::{Inventory, Item};

/// The most objects that one file lists.
pub const WHOLE_LIMIT: usize = 1024;
/// How many shards there are.
const SHARDS: u8 = 64;
/// The most bytes of one file.
const FILE_LIMIT: u64 = 64 << 20;
const HEAD: &str = "head.json";
/// What a folder is called that is being removed.
const GONE: &str = ".gone-";

/// What is said of all objects of a sharded inventory.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settled: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    incarnation: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    doomed: Option<ProtectedKinds>,
}

/// What could be read.
#[derive(Default)]
struct Parts {
    any: bool,
    inventory: Inventory,
    damage: Vec<String>,
}

impl Parts {
    /// Takes what a file held, if it is good.
    fn take<T>(&mut self, name: &str, found: Found<T>) -> Option<T> {
        match found {
            Found::Absent => None,
            Found::Corrupt(why) => {
                self.any = true;
                self.damage.push(format!("{name} {why}"));
                None
            }
            Found::Good(value) => {
                self.any = true;
                Some(value)
            }
        }
    }
}

impl Store {
    fn whole(&self, service: &Name) -> PathBuf {
        self.dir.join(format!("inventory/{service}.json"))
    }

    fn shards(&self, service: &Name) -> PathBuf {
        self.dir.join(format!("inventory/{service}"))
    }

    /// What has been put in place for a service.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn inventory(&self, service: &Name) -> Result<Found<Inventory>, StoreError> {
        let Parts { any, inventory, damage } = self.read(service)?;
        Ok(match any {
            false => Found::Absent,
            true if damage.is_empty() => Found::Good(inventory),
            true => Found::Corrupt(damage.join("; ")),
        })
    }

    /// As much of a service's inventory as can be read: what a damaged file listed is missing, and so is
    /// never deleted.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn salvage(&self, service: &Name) -> Result<Inventory, StoreError> {
        Ok(self.read(service)?.inventory)
    }

    fn read(&self, service: &Name) -> Result<Parts, StoreError> {
        let (dir, mut parts) = (self.shards(service), Parts::default());
        let head = parts.take(HEAD, files::load::<Head>(&dir.join(HEAD), FILE_LIMIT)?);
        if !parts.any {
            // Until the head is there, the one file counts.
            let name = format!("{service}.json");
            if let Some(whole) = parts.take(&name, files::load(&self.whole(service), FILE_LIMIT)?) {
                parts.inventory = whole;
            }
            if parts.any {
                return Ok(parts);
            }
        }
        if dir.is_dir() {
            for shard in 0..SHARDS {
                let name = file_name(shard);
                let found = files::load::<Vec<Item>>(&dir.join(&name), FILE_LIMIT)?;
                let items = parts.take(&name, found).unwrap_or_default();
                parts.inventory.items.extend(items);
            }
        }
        parts.inventory.items.sort_by(|a, b| a.key.cmp(&b.key));
        let Head { settled, incarnation, doomed } = head.unwrap_or_default();
        let items = std::mem::take(&mut parts.inventory.items);
        parts.inventory = Inventory { items, settled, incarnation, doomed };
        Ok(parts)
    }

    /// Replaces a service's inventory; one without items and history is removed.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn save_inventory(&self, service: &Name, inventory: &Inventory) -> Result<(), StoreError> {
        let (whole, dir) = (self.whole(service), self.shards(service));
        if *inventory == Inventory::default() {
            files::remove(&whole)?;
            return remove_folder(&dir);
        }
        if inventory.items.len() <= WHOLE_LIMIT && !dir.is_dir() {
            return files::save(&whole, inventory);
        }
        files::make_folder(&dir)?;
        write_shards(&dir, inventory)?;
        files::remove(&whole)
    }

    /// Every service that has an inventory, readable or not.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn services_with_inventory(&self) -> Result<Vec<Name>, StoreError> {
        let dir = self.dir.join("inventory");
        let names = files::list(&dir)?;
        let whole = names.iter().filter_map(|name| name.strip_suffix(".json")?.parse().ok());
        let mut services: Vec<Name> = whole.collect();
        services.extend(folders(&dir)?.iter().filter_map(|name| name.parse().ok()));
        services.sort_unstable();
        services.dedup();
        Ok(services)
    }

    /// Clears away folders whose removal a power cut interrupted.
    pub(super) fn clear_inventory(&self) -> Result<(), StoreError> {
        let dir = self.dir.join("inventory");
        for name in folders(&dir)?.iter().filter(|name| name.starts_with(GONE)) {
            remove_all(&dir.join(name))?;
        }
        Ok(())
    }
}

fn file_name(shard: u8) -> String {
    format!("{shard:02x}.json")
}

fn shard_of(key: &ObjectKey) -> u8 {
    let parts = [&key.group, &key.kind, key.namespace.as_deref().unwrap_or(""), &key.name];
    Digest::of_parts(parts.map(str::as_bytes)).as_bytes()[0] % SHARDS
}

fn write_shards(dir: &Path, inventory: &Inventory) -> Result<(), StoreError> {
    let mut shards: BTreeMap<u8, Vec<&Item>> = (0..SHARDS).map(|shard| (shard, vec![])).collect();
    for item in &inventory.items {
        shards.entry(shard_of(&item.key)).or_default().push(item);
    }
    let mut changed = vec![];
    for (shard, mut items) in shards {
        items.sort_by(|a, b| a.key.cmp(&b.key));
        let path = dir.join(file_name(shard));
        let wanted = (!items.is_empty()).then(|| files::encode(&items));
        // What cannot be read is written anew.
        let present = files::read(&path, FILE_LIMIT).ok().flatten();
        match wanted {
            wanted if wanted == present => {}
            Some(bytes) => changed.push((path, bytes)),
            None => files::remove(&path)?,
        }
    }
    files::write_all(dir, &changed)?;
    let Inventory { settled, incarnation, doomed, .. } = *inventory;
    let head = files::encode(&Head { settled, incarnation, doomed });
    let path = dir.join(HEAD);
    if files::read(&path, FILE_LIMIT).ok().flatten().as_ref() == Some(&head) {
        return Ok(());
    }
    files::write(&path, &head)
}

/// Takes a folder away in one step; what is left to do after that is done at the next start.
fn remove_folder(dir: &Path) -> Result<(), StoreError> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let gone = dir.with_file_name(format!("{GONE}{name}"));
    remove_all(&gone)?;
    match fs::rename(dir, &gone) {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(source) => {
            return Err(StoreError::Io { action: "removing a folder", path: dir.to_owned(), source });
        }
    }
    dir.parent().map_or(Ok(()), files::sync_folder)?;
    remove_all(&gone)
}

fn remove_all(dir: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(dir) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(source) => Err(StoreError::Io { action: "removing a folder", path: dir.to_owned(), source }),
    }
}

/// The names of the folders in a folder.
fn folders(dir: &Path) -> Result<Vec<String>, StoreError> {
    let failed = |source| StoreError::Io { action: "listing a folder", path: dir.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir()
            && let Some(name) = entry.file_name().to_str()
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
