//! What can be declared: `Source`, `Service`, `Cluster` and `Fleet` of `farshore.dev/v1alpha1`.
//!
//! The types say what a declaration means and how it is kept as JSON. Files are not read through
//! serde but by `decode`, which finds every mistake of a document where serde finds the
//! first; a test holds the two together. The JSON Schemas come from these types.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use farshore_shared::names::{Labels, Name};
use farshore_shared::wire::{ApplyPolicy, HealthRule, OnFailure, PruneBudget, Renderer};

use super::drift::DriftSpec;
use super::footprint::FootprintSpec;
use super::selector::LabelSelector;
use super::text::{Branch, FolderPath, GitAddress, Interval};

/// The version of the declarations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApiVersion {
    /// The only one there is.
    #[serde(rename = "farshore.dev/v1alpha1")]
    V1Alpha1,
}

macro_rules! kind {
    ($type:ident, $variant:ident) => {
        #[doc = concat!("The kind `", stringify!($variant), "`.")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub enum $type {
            #[doc = concat!("`", stringify!($variant), "`.")]
            $variant,
        }
    };
}

kind!(SourceKind, Source);
kind!(ServiceKind, Service);
kind!(ClusterKind, Cluster);
kind!(FleetKind, Fleet);

/// The name of what is declared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// One per kind in a fleet repository.
    pub name: Name,
}

/// A Git repository that services come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Source {
    /// The version of the declaration.
    pub api_version: ApiVersion,
    /// `Source`.
    pub kind: SourceKind,
    /// Its name; `fleet` is the fleet repository itself and is not declared.
    pub metadata: Metadata,
    /// What it is.
    pub spec: SourceSpec,
}

/// What a [`Source`] is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SourceSpec {
    /// The repository.
    pub git: GitSpec,
    /// How often it is looked at; the hub's own interval where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
}

/// A Git repository and a branch of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GitSpec {
    /// Where it is.
    pub url: GitAddress,
    /// The branch that is followed; what the repository's `HEAD` names where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<Branch>,
}

/// A path in a source that is brought to clusters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Service {
    /// The version of the declaration.
    pub api_version: ApiVersion,
    /// `Service`.
    pub kind: ServiceKind,
    /// Its name.
    pub metadata: Metadata,
    /// What it is.
    pub spec: ServiceSpec,
}

/// What a [`Service`] is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceSpec {
    /// The source; `fleet` is the fleet repository itself.
    pub source: Name,
    /// The folder in the source; its root where absent.
    #[serde(default)]
    pub path: FolderPath,
    /// How manifests come out of the folder; `raw` where absent.
    #[serde(default)]
    pub renderer: RendererSpec,
    /// The namespace of objects that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Name>,
    /// The clusters that get it; `{}` is every cluster.
    pub clusters: LabelSelector,
    /// Services that are healthy before it is applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Name>,
    /// How many of its objects one change may remove; ten and 10% where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune: Option<PruneBudget>,
    /// How objects of some kinds are judged; by their conditions where absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<HealthRule>,
    /// How long a wave may be without progress; five minutes where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Interval>,
    /// What a site does when a revision is not healthy within that time; `hold` where absent.
    #[serde(default, skip_serializing_if = "OnFailure::is_default")]
    pub on_failure: OnFailure,
    /// How its objects are applied.
    #[serde(default, skip_serializing_if = "ApplyPolicy::is_default")]
    pub apply: ApplyPolicy,
    /// What is done when somebody else changes what it owns; it is put back where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftSpec>,
}

/// What holds for one cluster: its labels, which override those of its registration, and its agent's footprint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cluster {
    /// The version of the declaration.
    pub api_version: ApiVersion,
    /// `Cluster`.
    pub kind: ClusterKind,
    /// Its name and labels.
    pub metadata: ClusterMetadata,
    /// What else holds for it; it may be left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<ClusterSpec>,
}

/// What holds for a [`Cluster`], beside its labels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterSpec {
    /// How much its agent may ask; what is not said here is as the fleet has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub footprint: Option<FootprintSpec>,
}

/// What holds for every cluster that says nothing else. There is one in a fleet repository, or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fleet {
    /// The version of the declaration.
    pub api_version: ApiVersion,
    /// `Fleet`.
    pub kind: FleetKind,
    /// Its name, for people.
    pub metadata: Metadata,
    /// What it is.
    pub spec: FleetSpec,
}

/// What a [`Fleet`] is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FleetSpec {
    /// How much each agent may ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub footprint: Option<FootprintSpec>,
}

/// The name and labels of a [`Cluster`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterMetadata {
    /// The name with which the cluster enrolled.
    pub name: Name,
    /// Its labels.
    #[serde(default)]
    pub labels: Labels,
}

/// A mapping without fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Empty {}

/// How manifests come out of a service's folder: written as a name, or as a mapping from the name
/// to its options.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "RendererForm", into = "RendererForm")]
pub enum RendererSpec {
    /// Every `.yaml`, `.yml` and `.json` file as it is.
    #[default]
    Raw,
    /// The same files, after minijinja.
    Template {
        /// What templates see as `values`.
        values: Map<String, Value>,
    },
    /// `kustomize build`.
    Kustomize,
}

/// How a [`RendererSpec`] is written.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum RendererForm {
    /// A renderer without options.
    Bare(RendererName),
    /// A renderer with its options.
    Options(RendererOptions),
}

/// The renderers.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum RendererName {
    /// Every `.yaml`, `.yml` and `.json` file as it is.
    Raw,
    /// The same files, after minijinja.
    Template,
    /// `kustomize build`.
    Kustomize,
}

/// The renderers, with what each can be told.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum RendererOptions {
    /// Has no options.
    Raw(Empty),
    /// The values that templates see.
    Template(TemplateOptions),
    /// Has no options.
    Kustomize(Empty),
}

/// What the renderer `template` can be told.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TemplateOptions {
    /// What templates see as `values`.
    #[serde(default)]
    values: Map<String, Value>,
}

impl From<RendererForm> for RendererSpec {
    fn from(form: RendererForm) -> Self {
        match form {
            RendererForm::Bare(RendererName::Raw) | RendererForm::Options(RendererOptions::Raw(_)) => {
                Self::Raw
            }
            RendererForm::Bare(RendererName::Template) => Self::Template { values: Map::new() },
            RendererForm::Options(RendererOptions::Template(options)) => {
                Self::Template { values: options.values }
            }
            RendererForm::Bare(RendererName::Kustomize)
            | RendererForm::Options(RendererOptions::Kustomize(_)) => Self::Kustomize,
        }
    }
}

impl From<RendererSpec> for RendererForm {
    fn from(spec: RendererSpec) -> Self {
        match spec {
            RendererSpec::Raw => Self::Bare(RendererName::Raw),
            RendererSpec::Template { values } => {
                Self::Options(RendererOptions::Template(TemplateOptions { values }))
            }
            RendererSpec::Kustomize => Self::Bare(RendererName::Kustomize),
        }
    }
}

impl From<RendererSpec> for Renderer {
    fn from(spec: RendererSpec) -> Self {
        match spec {
            RendererSpec::Raw => Self::Raw,
            RendererSpec::Template { values } => Self::Template { values },
            RendererSpec::Kustomize => Self::Kustomize,
        }
    }
}
