//! What operators are answered. The command reads the same types.

use std::collections::BTreeMap;

use farshore_shared::dsse::Envelope;
use farshore_shared::keys::KeyId;
use farshore_shared::names::{Labels, Name};
use farshore_shared::wire::{GroupId, Holds, UnixSeconds};
use serde::{Deserialize, Serialize};

use crate::record::{ClusterState, Counts, IntentService, IntentSource, SourceHead};

/// A page of `GET /v1/clusters`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPage {
    /// The whole fleet by state, whatever was asked for; none before it was counted first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// When it was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<UnixSeconds>,
    /// Clusters, by shard and then by name.
    pub clusters: Vec<ClusterItem>,
    /// What to send as `cursor` for the next page; a page may be short, and even empty, before the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A cluster in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterItem {
    /// Its name.
    pub name: Name,
    /// How it is.
    pub state: ClusterState,
    /// What a person should look at first.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Its labels.
    pub labels: Labels,
    /// The group that it is in, once it has a roster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupId>,
    /// What it has accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<Holds>,
    /// When it was last heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<UnixSeconds>,
    /// Services at the site.
    pub services: u32,
    /// Those that are applied.
    pub applied: u32,
}

/// The answer to `GET /v1/clusters/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAnswer {
    /// As in a list.
    pub cluster: ClusterItem,
    /// The id of the key that it is enrolled with.
    pub key: KeyId,
    /// Its last report, as it signed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Envelope>,
}

/// A page of `GET /v1/services`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePage {
    /// Services, by name.
    pub services: BTreeMap<Name, IntentService>,
    /// How the sources of these services are.
    pub heads: Vec<SourceHead>,
    /// In how many enrolled clusters' groups each of these services is, as counted last.
    pub clusters: BTreeMap<Name, u64>,
    /// What to send as `cursor` for the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A page of `GET /v1/sources`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourcePage {
    /// Declared sources, by name.
    pub sources: BTreeMap<Name, IntentSource>,
    /// How they are; the first page has the fleet repository as well.
    pub heads: Vec<SourceHead>,
    /// What to send as `cursor` for the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The answer to what was stored for the publisher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// That it is.
    pub state: String,
}
