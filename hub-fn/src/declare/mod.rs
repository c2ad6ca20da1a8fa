//! Reading a fleet repository: its `farshore.dev/v1alpha1` YAML, strictly, into types.
//!
//! Nothing here touches Git or a clock, and only [`validate_folder`] touches a disk: [`read`] takes
//! paths and bytes and answers with a [`Reading`], in which every mistake of the whole repository
//! stands at once.
//!
//! - [`kinds`], [`drift`], [`footprint`], [`text`], [`selector`]: what can be declared, as types that cannot hold a wrong
//!   value; the JSON Schemas in `schemas/` are made from them.
//! - `yaml`: documents into trees that remember lines; `fields` and `decode`: trees into types.
//! - `health`: what a service says of health. `reading`: files into a fleet; `check`: what is wrong only between declarations.
//! - [`mistake`]: how it is told.
//! - `folder`: the same for a folder on disk, behind `farshore validate`.

mod check;
mod decode;
pub mod drift;
mod fields;
mod folder;
pub mod footprint;
mod health;
pub mod kinds;
pub mod mistake;
mod reading;
pub mod selector;
pub mod text;
mod yaml;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use farshore_shared::names::{LabelKey, Labels, Name};
use farshore_shared::wire::Footprint;

pub use folder::{FolderError, validate_folder};
pub use kinds::{RendererSpec, ServiceSpec, SourceSpec};
pub use mistake::{Mistake, Warning};
pub use reading::{is_declaration_path, read};
pub use selector::LabelSelector;
pub use text::{Branch, FolderPath, GitAddress, Interval};

/// The most bytes of one file that are read.
pub const FILE_LIMIT: usize = 1 << 20;
/// The most YAML files of one repository that are read.
pub const FILES_LIMIT: usize = 10_000;
/// The most documents of one repository that are read.
pub const DOCUMENTS_LIMIT: usize = 100_000;
/// The most services that one fleet declares.
pub const SERVICES_LIMIT: usize = 10_000;
/// The most mistakes that are listed; more than that are counted in the last one.
pub const MISTAKES_LIMIT: usize = 1_000;

/// The name of the source that is the fleet repository itself. It is never declared.
pub const FLEET_SOURCE: &str = "fleet";

/// Everything that a fleet repository declares.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fleet {
    /// Where services come from. The source [`FLEET_SOURCE`] is not among them.
    #[serde(default)]
    pub sources: BTreeMap<Name, Declared<SourceSpec>>,
    /// What is brought to clusters.
    #[serde(default)]
    pub services: BTreeMap<Name, Declared<ServiceSpec>>,
    /// What holds for single clusters.
    #[serde(default)]
    pub clusters: BTreeMap<Name, Declared<OfCluster>>,
    /// What holds for every cluster that says nothing else, if that is declared: the footprint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<Declared<Footprint>>,
}

/// What is declared of one cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OfCluster {
    /// Its labels, which override those of its registration.
    pub labels: Labels,
    /// How much its agent may ask.
    #[serde(default, skip_serializing_if = "Footprint::is_empty")]
    pub footprint: Footprint,
}

/// A declaration and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Declared<T> {
    /// What is declared.
    pub spec: T,
    /// Where.
    pub origin: Origin,
}

/// A place in a fleet repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Origin {
    /// The file, as a path in the repository.
    pub file: String,
    /// The line at which the document begins, from 1.
    pub line: u32,
}

/// What came of reading a fleet repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "a reading has mistakes that somebody must be told"]
pub struct Reading {
    /// The declarations that have no mistake.
    pub fleet: Fleet,
    /// What is wrong, by file and line.
    pub mistakes: Vec<Mistake>,
    /// What is probably not meant, by file and line.
    pub warnings: Vec<Warning>,
    /// The files with a mistake. What was declared in one of them and is not in `fleet` has not been
    /// removed: it could not be read.
    pub unreadable: BTreeSet<String>,
}

impl Reading {
    /// Whether everything was read, so that what is absent from the fleet was really removed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.mistakes.is_empty() && self.unreadable.is_empty()
    }
}

impl Fleet {
    /// The label keys that selectors use: clusters with equal values for them are one group.
    #[must_use]
    pub fn selector_keys(&self) -> BTreeSet<LabelKey> {
        self.services.values().flat_map(|service| service.spec.clusters.keys()).collect()
    }

    /// Whether nothing is declared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
            && self.services.is_empty()
            && self.clusters.is_empty()
            && self.defaults.is_none()
    }
}

/// The services whose selector matches none of `clusters`, which are the labels that all enrolled
/// clusters have in effect.
#[must_use]
pub fn services_matching_nobody<'f, 'l>(
    fleet: &'f Fleet,
    clusters: impl IntoIterator<Item = &'l Labels>,
) -> BTreeSet<&'f Name> {
    let mut waiting: Vec<_> = fleet.services.iter().collect();
    for labels in clusters {
        if waiting.is_empty() {
            break;
        }
        waiting.retain(|(_, service)| !service.spec.clusters.matches(labels));
    }
    waiting.into_iter().map(|(name, _)| name).collect()
}
