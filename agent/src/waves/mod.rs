//! In which order the objects of a service are brought about, and what runs once on the way. Pure.
//!
//! Every object has a [`Place`]: a phase, and a wave in it. A place is gone beyond when what is in it is
//! healthy; that is decided elsewhere ([`crate::rollout`]). What the annotations say that people already
//! have is in [`annotations`]; in which order kinds are written within one place is in [`kinds`].

pub mod annotations;
pub mod kinds;

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::object::{Manifest, ObjectKey};
use crate::target::{ObjectError, Retry};
pub use annotations::{Deletion, Role};

/// The parts of a rollout, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// What others live in or are made of: a Namespace or a `CustomResourceDefinition` that names no wave.
    First,
    /// Hooks before anything else is written.
    PreSync,
    /// The objects themselves.
    Sync,
    /// Hooks after all objects are healthy.
    PostSync,
    /// Tests after everything else.
    Test,
}

/// When it is an object's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The phase.
    pub phase: Phase,
    /// The wave in it; lower is earlier.
    pub wave: i32,
}

impl Place {
    /// The place of whatever says nothing of it.
    pub const DEFAULT: Self = Self { phase: Phase::Sync, wave: 0 };
    /// The place of Namespaces and definitions that say nothing of it.
    pub const FIRST: Self = Self { phase: Phase::First, wave: 0 };
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.phase, self.wave) {
            (Phase::First, _) => f.write_str("namespaces and definitions"),
            (Phase::PreSync, 0) => f.write_str("hooks before"),
            (Phase::PreSync, wave) => write!(f, "hooks before, wave {wave}"),
            (Phase::Sync, wave) => write!(f, "wave {wave}"),
            (Phase::PostSync, 0) => f.write_str("hooks after"),
            (Phase::PostSync, wave) => write!(f, "hooks after, wave {wave}"),
            (Phase::Test, _) => f.write_str("tests"),
        }
    }
}

/// Whether this site has had the service before: hooks of Helm tell the two apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// No revision of it has been healthy here yet.
    Install,
    /// One has.
    Upgrade,
}

/// An object that is kept in place.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// The object.
    pub manifest: Manifest,
    /// When it is its turn.
    pub place: Place,
    /// Whether it is kept, or only made where it is missing.
    pub keeping: Keeping,
}

/// Whether an object is kept as its manifest says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// It is.
    Enforced,
    /// It is made where it is missing, and then left to others.
    MadeOnce,
}

/// An object that runs once in every revision.
#[derive(Debug, Clone, PartialEq)]
pub struct Hook {
    /// The object.
    pub manifest: Manifest,
    /// When it is its turn.
    pub place: Place,
    /// When it is removed after it has run.
    pub deletion: Deletion,
}

/// The objects of a service by what is to be done with them.
#[derive(Debug, Default)]
pub struct Arranged {
    /// What is kept in place.
    pub members: Vec<Member>,
    /// What runs once, in the order of its turns.
    pub hooks: Vec<Hook>,
    /// What is rendered and not written, and what is in `hooks`: none of it is planned, and none of it
    /// has left.
    pub aside: BTreeSet<ObjectKey>,
    /// Objects whose annotations cannot be read. They are in `aside` too.
    pub failures: Vec<ObjectError>,
}

/// Reads the annotations of everything that a service rendered to.
#[must_use]
pub fn arrange(manifests: Vec<Manifest>, occasion: Occasion) -> Arranged {
    let mut arranged = Arranged::default();
    for manifest in manifests {
        match annotations::read(&manifest, occasion) {
            Ok(Role::Member { place, keeping }) => {
                arranged.members.push(Member { manifest, place, keeping });
            }
            Ok(Role::Hook { places, deletion }) => {
                arranged.aside.insert(manifest.key.clone());
                let hook = |place: &Place| Hook { manifest: manifest.clone(), place: *place, deletion };
                arranged.hooks.extend(places.iter().map(hook));
            }
            Ok(Role::LeftAlone) => {
                arranged.aside.insert(manifest.key);
            }
            Err(message) => {
                arranged.aside.insert(manifest.key.clone());
                arranged.failures.push(ObjectError { key: manifest.key, message, retry: Retry::Pointless });
            }
        }
    }
    arranged.hooks.sort_by_cached_key(|hook| {
        let key = &hook.manifest.key;
        (hook.place, kinds::rank(key), key.clone())
    });
    arranged
}

impl Arranged {
    /// For a target that shows nothing of how objects are: nothing could tell when a hook has ended. Hooks
    /// are kept like everything else, and there are no tests.
    #[must_use]
    pub fn without_health(mut self) -> Self {
        for Hook { manifest, place, .. } in std::mem::take(&mut self.hooks) {
            let is_there = self.members.iter().any(|member| member.manifest.key == manifest.key);
            if place.phase != Phase::Test && !is_there {
                self.aside.remove(&manifest.key);
                self.members.push(Member { manifest, place, keeping: Keeping::Enforced });
            }
        }
        self
    }
}

#[cfg(test)]
mod tests;
