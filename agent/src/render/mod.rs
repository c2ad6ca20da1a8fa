//! From an artifact to manifests: at the site, offline, bounded. The same inputs give the same bytes.
//!
//! - [`content`]: the blob becomes files in memory.
//! - [`yaml`]: a file becomes documents.
//! - [`template`]: a template becomes such a file.
//! - [`kustomize`]: a folder becomes such a file, by a process.
//!
//! One bad document is one [`BadManifest`] and the others go on; what is left is then incomplete, and
//! nothing is pruned on its word. Which objects change is decided elsewhere.

pub mod content;
pub mod kustomize;
pub mod template;
pub mod yaml;

use farshore_shared::names::{Labels, Name};
use farshore_shared::wire::{Renderer, ServiceEntry};
use serde_json::{Map, Value};

use crate::object::{BadManifest, Manifest};
pub use content::{Content, ContentError, Limits, unpack};
pub use kustomize::{KustomizeError, Tools};

/// The most bytes of one object, as JSON: etcd takes no more (its default `--max-request-bytes`).
pub const OBJECT_LIMIT: usize = 3 << 19;
/// The most bytes of all annotations of one object, keys and values, as the API server counts them.
pub const ANNOTATIONS_LIMIT: usize = 256 << 10;
/// The most manifests of one service.
pub const MANIFEST_LIMIT: usize = 50_000;

/// The most mistakes that are listed of one service.
pub const MISTAKE_LIMIT: usize = 1_000;

/// What rendering may know of the site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// This site's name.
    pub cluster: Name,
    /// This site's labels, as its roster has them.
    pub labels: Labels,
}

/// What came out of a service's content.
#[derive(Debug, Default)]
pub struct Rendered {
    /// In the order of their files.
    pub manifests: Vec<Manifest>,
    /// Documents that are no manifests. The render is complete when there are none.
    pub mistakes: Vec<BadManifest>,
}

/// Why nothing could be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The artifact has no file there.
    #[error("artifact has no file below its path ({0:?})")]
    NoFiles(String),
    /// There are files, and no manifest in any of them: empty content is an error, not a wish to
    /// remove everything.
    #[error("no manifest below the path ({0:?}) though it has files")]
    NoManifests(String),
    /// More than one service may have.
    #[error("service has more than {MANIFEST_LIMIT} manifests")]
    TooMany,
    /// `kustomize build` did not succeed.
    #[error("building the kustomization (path {path:?})")]
    Kustomize {
        /// The service's path.
        path: String,
        /// How it went.
        #[source]
        source: KustomizeError,
    },
    /// The renderer stopped in the middle: the other services go on.
    #[error("rendering stopped before its end")]
    Stopped(#[from] tokio::task::JoinError),
}

/// Renders one service.
///
/// # Errors
/// [`RenderError`] when nothing at all could be rendered.
pub async fn render(
    entry: &ServiceEntry,
    content: &Content,
    site: &Site,
    tools: &Tools,
) -> Result<Rendered, RenderError> {
    if content.below(&entry.path).next().is_none() {
        return Err(RenderError::NoFiles(entry.path.clone()));
    }
    let built = match &entry.renderer {
        Renderer::Raw | Renderer::Template { .. } => vec![],
        Renderer::Kustomize => kustomize::build(content, &entry.path, tools)
            .await
            .map_err(|source| RenderError::Kustomize { path: entry.path.clone(), source })?,
    };
    let (read, content, site) = (entry.clone(), content.clone(), site.clone());
    // It may take long, and whatever goes wrong in a parser goes wrong for this service alone.
    let task = tokio::task::spawn_blocking(move || {
        let mut rendered = Rendered::default();
        match &read.renderer {
            Renderer::Raw => raw(&content, &read.path, &mut rendered),
            Renderer::Template { values } => templates(&content, &read.path, values, &site, &mut rendered),
            Renderer::Kustomize => rendered.read_file("kustomize build", &built),
        }
        rendered
    });
    let rendered = task.await?;
    if rendered.manifests.len() > MANIFEST_LIMIT {
        return Err(RenderError::TooMany);
    }
    if rendered.manifests.is_empty() && rendered.mistakes.is_empty() {
        return Err(RenderError::NoManifests(entry.path.clone()));
    }
    Ok(rendered)
}

fn raw(content: &Content, folder: &str, rendered: &mut Rendered) {
    for (path, bytes) in content.below(folder) {
        if is_manifest_file(path) {
            rendered.read_file(path, bytes);
        }
    }
}

fn templates(
    content: &Content,
    folder: &str,
    values: &Map<String, Value>,
    site: &Site,
    rendered: &mut Rendered,
) {
    let context = template::Context { values, cluster: &site.cluster, labels: &site.labels };
    for (path, bytes) in content.below(folder) {
        if !is_manifest_file(path.strip_suffix(".j2").unwrap_or(path)) {
            continue;
        }
        match template::expand(bytes, context) {
            Ok(text) => rendered.read_file(path, text.as_bytes()),
            Err(error) => rendered.mistake(path.to_owned(), error.to_string()),
        }
    }
}

fn is_manifest_file(path: &str) -> bool {
    [".yaml", ".yml", ".json"].iter().any(|ending| path.ends_with(ending))
}

fn is_kustomization_file(path: &str) -> bool {
    matches!(path.rsplit('/').next(), Some("kustomization.yaml" | "kustomization.yml"))
}

impl Rendered {
    fn read_file(&mut self, path: &str, bytes: &[u8]) {
        for (number, document) in yaml::read(bytes) {
            let origin = format!("{path} (document {number})");
            match document {
                // It says how other files are put together; no cluster knows it.
                Ok(body) if is_kustomization(&body, path) => {}
                Ok(body) => self.take(body, origin),
                Err(error) => self.mistake(origin, error.to_string()),
            }
        }
    }

    fn take(&mut self, body: Value, origin: String) {
        match flatten(body) {
            Ok(items) => {
                for (index, item) in items.into_iter().enumerate() {
                    self.take(item, format!("{origin}, item {}", index + 1));
                }
            }
            Err(body) => match Manifest::read(body, origin).and_then(within_limits) {
                // One more than the limit is enough to tell.
                Ok(_) if self.manifests.len() > MANIFEST_LIMIT => {}
                Ok(manifest) => self.manifests.push(manifest),
                Err(mistake) => self.mistake(mistake.origin, mistake.why),
            },
        }
    }

    fn mistake(&mut self, origin: String, why: String) {
        match self.mistakes.len() {
            count if count < MISTAKE_LIMIT => self.mistakes.push(BadManifest { origin, why }),
            MISTAKE_LIMIT => {
                let why = format!("more than {MISTAKE_LIMIT} mistakes: the rest is not listed");
                self.mistakes.push(BadManifest { origin, why });
            }
            _ => {}
        }
    }
}

fn is_kustomization(body: &Value, path: &str) -> bool {
    match body.get("apiVersion").and_then(Value::as_str) {
        Some(version) => version.starts_with("kustomize.config.k8s.io/"),
        None => body.get("kind").is_none() && is_kustomization_file(path),
    }
}

/// The items of a `List`, or of a `DeploymentList`, whose items may leave out what the list says of
/// them; or the body itself, when it is no list.
fn flatten(mut body: Value) -> Result<Vec<Value>, Value> {
    let text = |field| body.get(field).and_then(Value::as_str).map(ToOwned::to_owned);
    let (kind, version) = (text("kind").unwrap_or_default(), text("apiVersion"));
    let Some(item_kind) = kind.strip_suffix("List") else { return Err(body) };
    let items = match body.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        Some(Value::Null) | None if kind == "List" => Vec::new(),
        Some(items) => {
            body["items"] = items;
            return Err(body);
        }
        None => return Err(body),
    };
    let complete = |mut item: Value| {
        if let (Value::Object(map), Some(version), false) = (&mut item, &version, item_kind.is_empty()) {
            map.entry("kind").or_insert_with(|| item_kind.into());
            map.entry("apiVersion").or_insert_with(|| version.as_str().into());
        }
        item
    };
    Ok(items.into_iter().map(complete).collect())
}

fn within_limits(manifest: Manifest) -> Result<Manifest, BadManifest> {
    let bad = |why| BadManifest { origin: format!("{} ({})", manifest.origin, manifest.key), why };
    let size = serde_json::to_vec(&manifest.body).expect("a JSON value has string keys only").len();
    if size > OBJECT_LIMIT {
        return Err(bad(format!("object has {size} bytes as JSON, limit {OBJECT_LIMIT}")));
    }
    let annotations = manifest.body["metadata"].get("annotations").and_then(Value::as_object);
    let annotations: usize = annotations
        .map(|map| map.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum())
        .unwrap_or_default();
    if annotations > ANNOTATIONS_LIMIT {
        return Err(bad(format!("annotations have {annotations} bytes, limit {ANNOTATIONS_LIMIT}")));
    }
    Ok(manifest)
}

#[cfg(test)]
mod tests;
