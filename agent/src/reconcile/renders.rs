//! What a service renders to: from its artifact, or from the state folder where it was rendered before.
//!
//! Nothing rendered stays in memory.

use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use farshore_shared::digest::Digest;
use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use farshore_shared::wire::{Renderer, ServiceEntry};
use tracing::warn;

use crate::apply::Outcome;
use crate::object::{BadManifest, Manifest};
use crate::plan::{Completeness, Inventory};
use crate::render::{Site, Tools};
use crate::store::{Found, Made, Store};
use crate::target::{Live, ObjectError};

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
