//! What a service renders to: from its artifact, or from the state folder where it was rendered before.
//!
//! Nothing rendered stays in memory.

use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use farshore_shared::digest::Digest;
use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use farshore_shared::wire::{Artifact, Renderer, ServiceEntry};
use tracing::warn;

use super::Reconciler;
use crate::apply::Outcome;
use crate::object::{BadManifest, Manifest, Owner};
use crate::plan::{Completeness, Inventory};
use crate::render::{self, Limits, Site, Tools};
use crate::store::{Content, Found, Made, Store};
use crate::target::{Live, ObjectError, Target};
use crate::terms::Terms;

/// What a service rendered to.
pub(super) struct Rendered {
    pub(super) manifests: Vec<Manifest>,
    pub(super) failures: Vec<ObjectError>,
    pub(super) mistakes: Vec<BadManifest>,
}

impl Rendered {
    pub(super) fn completeness(&self) -> Completeness {
        if self.failures.is_empty() && self.mistakes.is_empty() {
            Completeness::Complete
        } else {
            Completeness::Partial
        }
    }
}

impl<T: Target> Reconciler<T> {
    /// Renders, unless that has been done from just this and everything found its place.
    pub(super) async fn render(
        &self,
        entry: &ServiceEntry,
        revision: Digest,
        site: &Site,
    ) -> Result<Rendered, String> {
        let inputs = inputs(entry, site, &self.tools);
        if made(&self.store, &entry.name, revision, inputs).is_some()
            && let Some(mut manifests) = kept(&self.store, &entry.name).await
        {
            for manifest in &mut manifests {
                manifest.terms = Terms::of(manifest, entry.apply, entry.prune);
            }
            return Ok(Rendered { manifests, failures: vec![], mistakes: vec![] });
        }
        let content = unpacked(self.store.content(), &entry.artifact).await?;
        let out = render::render(entry, &content, site, &self.tools).await.map_err(|error| chain(&error))?;
        let located = self.target.locate(out.manifests, entry.namespace.as_deref()).await;
        let owner = Owner { cluster: self.cluster.clone(), service: entry.name.clone() };
        let (mut manifests, mut failures) = (vec![], vec![]);
        for manifest in located {
            match manifest {
                Ok(mut manifest) => {
                    manifest.mark(&owner);
                    manifest.terms = Terms::of(&manifest, entry.apply, entry.prune);
                    manifests.push(manifest);
                }
                Err(error) => failures.push(error),
            }
        }
        let mut rendered = Rendered { manifests, failures, mistakes: out.mistakes };
        if rendered.completeness() == Completeness::Complete {
            let made = Made { revision, inputs, count: rendered.manifests.len() };
            let manifests = std::mem::take(&mut rendered.manifests);
            rendered.manifests = keep(&self.store, &entry.name, made, manifests).await;
        }
        Ok(rendered)
    }
}

/// An artifact's files. One that is corrupt on disk is set aside, so that it is fetched again.
async fn unpacked(content: Content, artifact: &Artifact) -> Result<render::Content, String> {
    let artifact = artifact.clone();
    let read = move || match content.get(artifact.digest).map_err(|error| chain(&error))? {
        Found::Good(blob) => {
            render::unpack(&blob, &artifact, &Limits::default()).map_err(|error| chain(&error))
        }
        Found::Absent => Err("its content is not here".to_owned()),
        Found::Corrupt(why) => {
            content.set_aside(artifact.digest).map_err(|error| chain(&error))?;
            Err(format!("its content is corrupt and is fetched again: {why}"))
        }
    };
    // Large ones take long: the hub and the API are heard meanwhile.
    tokio::task::spawn_blocking(read).await.map_err(|error| chain(&error))?
}

/// Everything but the signed revision that decides what a service renders to: the site, this program,
/// and the program that renders.
pub(super) fn inputs(entry: &ServiceEntry, site: &Site, tools: &Tools) -> Digest {
    let site = serde_json::to_vec(&(&site.cluster, &site.labels)).expect("labels have string keys only");
    let ours = std::env::current_exe().ok().map(|path| identity(&path)).unwrap_or_default();
    let tool = match (&entry.renderer, &tools.kustomize) {
        (Renderer::Kustomize, Some(path)) => identity(path),
        (Renderer::Kustomize | Renderer::Raw | Renderer::Template { .. }, _) => String::new(),
    };
    Digest::of_parts([&site[..], env!("CARGO_PKG_VERSION").as_bytes(), ours.as_bytes(), tool.as_bytes()])
}

/// What changes when a program is replaced.
fn identity(path: &Path) -> String {
    let Ok(metadata) = std::fs::metadata(path) else { return String::new() };
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    format!("{} {} {:?}", path.display(), metadata.len(), modified)
}

/// The kept render of a service, if it was made from just this.
pub(super) fn made(store: &Store, service: &Name, revision: Digest, inputs: Digest) -> Option<Made> {
    let made = match store.renders().made(service) {
        Ok(found) => found.good()?,
        Err(error) => {
            warn!(%service, error = %chain(&error), "a render cannot be read; it is made again");
            return None;
        }
    };
    (made.revision == revision && made.inputs == inputs).then_some(made)
}

/// The manifests of a kept render. One that is damaged is made again.
pub(super) async fn kept(store: &Arc<Store>, service: &Name) -> Option<Vec<Manifest>> {
    let (renders, name) = (store.renders(), service.clone());
    let picked = tokio::task::spawn_blocking(move || renders.pick(&name, None)).await;
    match picked.ok()? {
        Ok(Found::Good(manifests)) => Some(manifests),
        Ok(Found::Absent) => None,
        Ok(Found::Corrupt(why)) => {
            warn!(%service, why, "a render is damaged; it is made again");
            None
        }
        Err(error) => {
            warn!(%service, error = %chain(&error), "a render cannot be read; it is made again");
            None
        }
    }
}

/// Keeps a complete render, and hands its manifests back. Without it everything is rendered again.
pub(super) async fn keep(
    store: &Arc<Store>,
    service: &Name,
    made: Made,
    manifests: Vec<Manifest>,
) -> Vec<Manifest> {
    let (renders, name) = (store.renders(), service.clone());
    let manifests = Arc::new(manifests);
    let ours = Arc::clone(&manifests);
    let saved = tokio::task::spawn_blocking(move || renders.save(&name, made, &ours)).await;
    if let Ok(Err(error)) = saved {
        warn!(%service, error = %chain(&error), "a render could not be kept");
    }
    Arc::try_unwrap(manifests).unwrap_or_else(|shared| shared.as_ref().clone())
}

/// Whether an inventory lists just what a complete render of this revision has, all of it applied: then
/// there is nothing to render, as long as every object is as it was left.
pub(super) fn is_settled(inventory: &Inventory, made: &Made, incarnation: u64) -> bool {
    inventory.doomed.is_none()
        && inventory.settled == Some(made.revision)
        && inventory.incarnation == Some(incarnation)
        && inventory.items.len() == made.count
        && inventory.items.iter().all(|item| {
            item.revision == Some(made.revision)
                && item.applied.is_some()
                && item.uid.is_some()
                && item.fingerprint.is_some()
        })
}

/// What is said of a service all of whose objects are as they were left; none if one is not.
pub(super) fn untouched(inventory: &Inventory, live: &[Result<Live, ObjectError>]) -> Option<Outcome> {
    let is_untouched = |(item, live): (&crate::plan::Item, &Result<Live, ObjectError>)| match live {
        Ok(Live::Present { uid, fingerprint }) => {
            item.uid.as_ref() == Some(uid) && item.fingerprint == Some(*fingerprint)
        }
        Ok(Live::Absent) | Err(_) => false,
    };
    let all = live.len() == inventory.items.len() && inventory.items.iter().zip(live).all(is_untouched);
    all.then(|| Outcome { objects: live.len(), ..Outcome::default() })
}
