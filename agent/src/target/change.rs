//! What a target tells of by itself: changes, and what it cannot see.

use std::collections::BTreeSet;
use std::fmt;

use farshore_shared::digest::Digest;
use serde_json::Value;

use crate::object::ObjectKey;
use crate::plan::Item;

/// A kind of objects, in one version of its API.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version of its API.
    pub version: String,
    /// The kind.
    pub kind: String,
}

impl Kind {
    /// The kinds of listed objects: each once, in one of its versions.
    #[must_use]
    pub fn of_items(items: &[Item]) -> BTreeSet<Self> {
        let mut known = BTreeSet::new();
        let mut kinds = BTreeSet::new();
        for Item { key, version, .. } in items {
            if known.insert((key.group.as_str(), key.kind.as_str())) {
                let (group, version, kind) = (key.group.clone(), version.clone(), key.kind.clone());
                kinds.insert(Self { group, version, kind });
            }
        }
        kinds
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// Which state of an object it is. Zeros where the target does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Grows with every write of the object.
    pub version: u64,
    /// Changes with every change of what is desired, for kinds that count that.
    pub generation: u64,
}

/// An object as its metadata shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// Which life of the name it is.
    pub uid: String,
    /// Changes whenever somebody changes what we own in it.
    pub fingerprint: Digest,
    /// Which state of it this is.
    pub stamp: Stamp,
}

/// A whole object.
#[derive(Debug, Clone, PartialEq)]
pub struct Whole {
    /// As its metadata shows it.
    pub sighting: Sighting,
    /// The document.
    pub body: Value,
}

/// A change that a target tells of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// An object that carries a mark of ours was written.
    Seen {
        /// Which.
        key: ObjectKey,
        /// As it is now.
        sighting: Sighting,
    },
    /// An object is out of sight: it was deleted, or lost our mark. A look tells.
    Lost {
        /// Which.
        key: ObjectKey,
        /// The version of that.
        version: u64,
    },
    /// Changes of objects of this kind may have been missed: only a look at all of them tells.
    Missed {
        /// Which kind.
        kind: Kind,
    },
}

/// How much of what is in place a target tells of by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Kinds whose changes it tells of.
    pub watched: usize,
    /// Kinds whose watch begins, or begins again.
    pub opening: usize,
    /// Why it does not tell of those of others, and what would help: a sentence for each kind.
    pub blind: Vec<String>,
}

impl Coverage {
    /// Whether every change is told of.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.watched > 0 && self.blind.is_empty()
    }

    /// Whether every change is told of at this moment.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.is_whole() && self.opening == 0
    }
}
