//! What is published: the one pointer, and the intent behind it.

use std::collections::BTreeMap;

use farshore_shared::digest::Digest;
use farshore_shared::names::{Labels, Name};
use farshore_shared::wire::{Artifact, Footprint, UnixSeconds};
use serde::{Deserialize, Serialize};

use crate::declare::{FolderPath, Origin, RendererSpec, ServiceSpec, SourceSpec};

/// What is published. Signed by the director, so that the publisher may believe it when it reads it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    /// Given by root.
    pub epoch: u64,
    /// One counter for the fleet.
    pub sequence: u64,
    /// When it was signed.
    pub issued: UnixSeconds,
    /// The [`Intent`] behind it.
    pub intent: Digest,
    /// The shards of the [`Table`](super::Table), in order.
    pub tables: Vec<Digest>,
}

impl Head {
    /// A digest of what it points to, without its number and time: a head that was moved to what it said
    /// already, as the collection of what is unneeded does, is no other publication.
    #[must_use]
    pub fn says(&self) -> Digest {
        let epoch = self.epoch.to_be_bytes();
        let pointers = std::iter::once(&self.intent).chain(&self.tables).map(|digest| &digest.as_bytes()[..]);
        Digest::of_parts(std::iter::once(&epoch[..]).chain(pointers))
    }
}

/// What the publisher has decided that the fleet shall be: the last good form of every declaration,
/// and the content of every service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// The last published commit of the fleet repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<String>,
    /// Sources, with the last published commit of each.
    pub sources: BTreeMap<Name, IntentSource>,
    /// Services.
    pub services: BTreeMap<Name, IntentService>,
    /// What the fleet repository says of single clusters.
    pub clusters: BTreeMap<Name, IntentCluster>,
    /// What it says of every cluster, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<IntentDefaults>,
}

impl Intent {
    /// How much agents may ask for whose clusters nothing else is said.
    #[must_use]
    pub fn footprint(&self) -> Footprint {
        self.defaults.as_ref().map(|defaults| defaults.footprint).unwrap_or_default()
    }
}

/// What holds for every cluster that says nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IntentDefaults {
    /// How much its agent may ask.
    #[serde(default)]
    pub footprint: Footprint,
    /// Where.
    pub origin: Origin,
}

/// A source of an [`Intent`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IntentSource {
    /// As declared.
    pub spec: SourceSpec,
    /// Where.
    pub origin: Origin,
    /// The last published commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// A service of an [`Intent`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IntentService {
    /// As declared.
    pub spec: ServiceSpec,
    /// Where.
    pub origin: Origin,
    /// What was last made of it, if anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
}

impl IntentService {
    /// How the content that is published is rendered. New options of the same renderer need no new
    /// content, so they count at once, whatever has become of the source.
    #[must_use]
    pub fn renderer<'a>(&'a self, published: &'a Published) -> &'a RendererSpec {
        let made = &published.made;
        if made.serves(&self.spec) { &self.spec.renderer } else { &made.renderer }
    }
}

/// The content of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Published {
    /// Which life of the name this is: the sequence of its first publication.
    pub incarnation: u64,
    /// The commit in which the content last changed.
    pub commit: String,
    /// What the artifact was made from: the same key, the same bytes.
    pub key: Digest,
    /// The artifact.
    pub artifact: Artifact,
    /// What of the declaration the artifact was made for: it is rendered by this and by no other path,
    /// also while a new declaration cannot be followed.
    pub made: Made,
}

/// What of a declaration decides an artifact's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Made {
    /// The source.
    pub source: Name,
    /// The folder in it.
    pub path: FolderPath,
    /// The renderer.
    pub renderer: RendererSpec,
}

impl Made {
    /// What a declaration asks for.
    #[must_use]
    pub fn of(spec: &ServiceSpec) -> Self {
        Self { source: spec.source.clone(), path: spec.path.clone(), renderer: spec.renderer.clone() }
    }

    /// Whether the same content is what a declaration asks for; the renderer's options may differ.
    #[must_use]
    pub fn serves(&self, spec: &ServiceSpec) -> bool {
        self.source == spec.source
            && self.path == spec.path
            && std::mem::discriminant(&self.renderer) == std::mem::discriminant(&spec.renderer)
    }
}

/// A cluster that the fleet repository speaks of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IntentCluster {
    /// Its labels; they win over those of the registration.
    pub labels: Labels,
    /// How much its agent may ask; it wins over what is said of every cluster.
    #[serde(default, skip_serializing_if = "Footprint::is_empty")]
    pub footprint: Footprint,
    /// Where.
    pub origin: Origin,
}
