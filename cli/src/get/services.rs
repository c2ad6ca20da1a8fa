//! Services: what is published of each. Pure.

use std::collections::BTreeMap;

use clap::ValueEnum;
use farshore_hub_fn::declare::RendererSpec;
use farshore_hub_fn::publish::intend::labels_of;
use farshore_hub_fn::record::{Intent, IntentService, SourceHead};
use farshore_shared::names::{Labels, Name};
use schemars::JsonSchema;
use serde::Serialize;

use super::short;
use crate::record::Known;
use crate::table::{Cell, Tone};

/// How a service is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ServiceState {
    /// Its content is published.
    Published,
    /// Nothing of it was ever published.
    Pending,
    /// It is not as declared: sites keep what was published before, if anything was.
    Error,
}

/// A declared service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ServiceRow {
    /// Its name.
    pub(super) name: Name,
    /// How it is.
    pub(super) state: ServiceState,
    /// The commit in which its published content last changed.
    pub(super) revision: Option<String>,
    /// What a person should look at; empty when there is nothing.
    pub(super) message: String,
    /// The source that it comes from.
    pub(super) source: Name,
    /// The folder in the source; empty for its root.
    pub(super) path: String,
    /// How manifests come out of the folder.
    pub(super) renderer: Renderer,
    /// How many registered clusters get it.
    pub(super) clusters: usize,
    /// What is published.
    pub(super) artifact: Option<Artifact>,
}

/// How manifests come out of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum Renderer {
    /// Every file as it is.
    Raw,
    /// Every file after minijinja.
    Template,
    /// `kustomize build`.
    Kustomize,
}

/// The content of a service, as sites fetch it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Artifact {
    /// SHA-256 of the compressed blob.
    digest: String,
    /// Bytes of the compressed blob.
    size: u64,
}

/// What is intended of each service, as rows.
pub(super) fn rows(intent: &Intent, heads: &[SourceHead], clusters: &[Known]) -> Vec<ServiceRow> {
    let labels: Vec<Labels> = clusters
        .iter()
        .map(|known| labels_of(intent, &known.registration.cluster, &known.registration.labels))
        .collect();
    counted(intent, heads, |_, service| {
        labels.iter().filter(|labels| service.spec.clusters.matches(labels)).count()
    })
}

/// The same, where somebody else knows how many clusters get each.
pub(super) fn counted(
    intent: &Intent,
    heads: &[SourceHead],
    count: impl Fn(&Name, &IntentService) -> usize,
) -> Vec<ServiceRow> {
    let errors: BTreeMap<&Name, &String> = heads.iter().flat_map(|head| &head.services).collect();
    let services = intent.services.iter();
    services
        .map(|(name, service)| row(name, service, errors.get(name).copied(), count(name, service)))
        .collect()
}

fn row(name: &Name, service: &IntentService, error: Option<&String>, clusters: usize) -> ServiceRow {
    let (spec, published) = (&service.spec, service.published.as_ref());
    let (state, message) = match (error, published) {
        (Some(error), _) => (ServiceState::Error, error.clone()),
        (None, None) => (ServiceState::Pending, format!("source {} has not given it yet", spec.source)),
        (None, Some(_)) if clusters == 0 => {
            (ServiceState::Published, "its selector matches no enrolled cluster".into())
        }
        (None, Some(_)) => (ServiceState::Published, String::new()),
    };
    ServiceRow {
        name: name.clone(),
        state,
        revision: published.map(|published| published.commit.clone()),
        message,
        source: spec.source.clone(),
        path: spec.path.to_string(),
        renderer: match spec.renderer {
            RendererSpec::Raw => Renderer::Raw,
            RendererSpec::Template { .. } => Renderer::Template,
            RendererSpec::Kustomize => Renderer::Kustomize,
        },
        clusters,
        artifact: published.map(|published| Artifact {
            digest: published.artifact.digest.to_string(),
            size: published.artifact.size,
        }),
    }
}

/// The columns.
pub(super) const HEADER: [&str; 7] = ["NAME", "STATE", "COMMIT", "SOURCE", "RENDERER", "CLUSTERS", "MESSAGE"];

impl ServiceRow {
    /// Its cells.
    pub(super) fn cells(&self) -> [Cell; 7] {
        let state = match self.state {
            ServiceState::Published => Cell::toned("published", Tone::Good),
            ServiceState::Pending => Cell::toned("pending", Tone::Wait),
            ServiceState::Error => Cell::toned("error", Tone::Bad),
        };
        let renderer = match self.renderer {
            Renderer::Raw => "raw",
            Renderer::Template => "template",
            Renderer::Kustomize => "kustomize",
        };
        let slash = if self.path.is_empty() { "" } else { "/" };
        [
            Cell::plain(self.name.as_str()),
            state,
            Cell::plain(short(self.revision.as_deref())),
            Cell::plain(&format!("{}{slash}{}", self.source, self.path)),
            Cell::plain(renderer),
            Cell::plain(&self.clusters.to_string()),
            Cell::plain(&self.message),
        ]
    }
}
