//! The chain of trust roots, and the high-water marks.

use farshore_shared::digest::Digest;
use farshore_shared::wire::{ROOT_LIMIT, Root, UnixSeconds};

use super::{Found, Store, StoreError, files};
use crate::verify::{self, Marks};

/// The most bytes of the file of marks.
const MARKS_LIMIT: u64 = 64 << 10;

/// The newest root that the chain on disk reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The newest root.
    pub root: Root,
    /// Why the chain ends before the newest file, if it does. The hub has the missing ones.
    pub alarm: Option<String>,
}

impl Store {
    fn root_path(&self, version: u64) -> std::path::PathBuf {
        self.dir.join(format!("trust/roots/{version}"))
    }

    /// Stores a root, as the hub serves it, that was verified.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn save_root(&self, version: u64, bytes: &[u8]) -> Result<(), StoreError> {
        files::write(&self.root_path(version), bytes)
    }

    /// Walks the chain on disk and verifies each root again.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn roots(&self, fleet: Digest) -> Result<Found<Chain>, StoreError> {
        let limit = u64::try_from(ROOT_LIMIT * 2).unwrap_or(u64::MAX);
        let Some(first) = files::read(&self.root_path(1), limit)? else { return Ok(Found::Absent) };
        let mut root = match verify::first_root(&first, fleet) {
            Ok(root) => root,
            Err(refusal) => return Ok(Found::Corrupt(refusal.to_string())),
        };
        while let Some(bytes) = files::read(&self.root_path(root.version + 1), limit)? {
            match verify::next_root(&root, &bytes) {
                Ok(next) => root = next,
                Err(refusal) => {
                    let alarm = format!("root {} on disk is not used: {refusal}", root.version + 1);
                    return Ok(Found::Good(Chain { root, alarm: Some(alarm) }));
                }
            }
        }
        Ok(Found::Good(Chain { root, alarm: None }))
    }

    /// The marks as the trust folder has them; both slots have them too.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub(super) fn marks(&self) -> Result<Found<Marks>, StoreError> {
        files::load(&self.dir.join("trust/marks.json"), MARKS_LIMIT)
    }

    /// The lower bound of the true time that documents have left, as far as it can be read; else 0.
    #[must_use]
    pub fn lower_time(&self) -> UnixSeconds {
        self.marks().ok().and_then(Found::good).map_or(0, |marks| marks.lower_time)
    }

    pub(super) fn save_marks(&self, marks: &Marks) -> Result<(), StoreError> {
        files::save(&self.dir.join("trust/marks.json"), marks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::kit::Fleet;
    use farshore_shared::dsse::Envelope;

    #[test]
    fn the_chain_on_disk_is_verified_as_far_as_it_is_whole() {
        let temp = tempfile::tempdir().expect("a folder");
        let store = Store::open(temp.path()).expect("new");
        let fleet = Fleet::new();
        let first = fleet.root_bytes();
        let digest = Digest::of(&first);
        assert_eq!(store.roots(digest).expect("readable"), Found::Absent);
        store.save_root(1, &first).expect("written");
        let mut second = fleet.root.clone();
        second.version = 2;
        store.save_root(2, &Envelope::seal(&second, &[&fleet.root_key]).to_bytes()).expect("written");
        store.save_root(3, b"cut").expect("written");
        let chain = store.roots(digest).expect("readable").good().expect("a chain");
        assert_eq!(chain.root.version, 2);
        assert!(chain.alarm.is_some_and(|alarm| alarm.contains("root 3")));
        store.save_root(1, b"").expect("written");
        assert!(matches!(store.roots(digest), Ok(Found::Corrupt(_))));
    }
}
