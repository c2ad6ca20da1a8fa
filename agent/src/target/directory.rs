//! A folder as a target: one YAML file per object, for static Pods, for k3s, and for trying Farshore
//! with nothing installed.
//!
//! What reads the folder decides what a removal does:
//! - **kubelet** (`staticPodPath`) reads the files of the folder itself, not of folders below it, and
//!   passes over names that begin with a dot. It stops the Pod when its file is gone. It knows Pods only.
//! - **k3s** (`/var/lib/rancher/k3s/server/manifests`) applies a file when it changes, but *deletes
//!   nothing when the file goes*: an object that left the service stays in the cluster until somebody
//!   runs `kubectl delete`. It names what it applied by the file, which is why [`file_name`] is a valid
//!   name of an object up to its only dot. It looks into folders too, for `.yaml`, `.yml` and `.json`
//!   only, which nothing in `.farshore` is.
//! - **podman** (`podman kube play FILE`) reads a file when it is told to, and needs
//!   `podman kube down FILE` *before* the file is gone.
//!
//! # Whose a file is
//! Beside the files, `.farshore/NAME.owner` says which service of which cluster writes the file NAME. It
//! is on disk before the file is, so that a file emptied by hand is known as ours and repaired, and a
//! file that was there before us is never overwritten. A deletion also demands our marks in the file.
//!
//! Files are written to a temporary name inside `.farshore`, synced and renamed: readers see a file
//! whole or not at all, and a symbolic link in its place is replaced, never followed. Files are
//! readable by their owner only, since Secrets are among them.

mod files;
mod scope;

use std::path::PathBuf;
use std::sync::Arc;

use farshore_shared::digest::Digest;

use super::{Applied, Deleted, Live, ObjectError, Preview, Retry, Target, Unreachable, Whole};
use crate::object::{Manifest, ObjectKey, Owner};
use crate::plan::Item;
use files::{FileError, Folder};
use scope::Scopes;

/// How many characters of a file name are for people: file systems take 255 bytes, digest and ending included.
const NAME_LIMIT: usize = 200;

/// A folder with one file per object.
#[derive(Debug, Clone)]
pub struct Directory {
    folder: Arc<Folder>,
}

impl Directory {
    /// The target at a path. Nothing is touched before [`Target::ready`], which makes the folder when it
    /// is missing.
    #[must_use]
    pub fn open(path: impl Into<PathBuf>) -> Self {
        Self { folder: Arc::new(Folder::new(path.into())) }
    }

    /// Where the file of an object is.
    #[must_use]
    pub fn file(&self, key: &ObjectKey) -> PathBuf {
        self.folder.file(&file_name(key))
    }

    /// Runs what blocks on the disk where it may block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Folder) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        let folder = Arc::clone(&self.folder);
        match tokio::task::spawn_blocking(move || work(&folder)).await {
            Ok(outcome) => outcome,
            Err(stopped) => Err(FileError::stopped(stopped)),
        }
    }
}

/// The name of an object's file: `NAMESPACE-KIND-NAME-DIGEST.yaml`, with `cluster` as the namespace of
/// an object of the whole cluster.
///
/// Everything but lower-case letters and digits becomes `-`; the first 8 digits of the key's digest tell
/// apart what that makes alike.
#[must_use]
pub fn file_name(key: &ObjectKey) -> String {
    let namespace = key.namespace.as_deref();
    let parts = [&key.group, &key.kind, namespace.unwrap_or(""), &key.name];
    let digest = Digest::of_parts(parts.map(str::as_bytes));
    let plain = format!("{}-{}-{}", namespace.unwrap_or("cluster"), key.kind, key.name);
    let safe = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let plain: String = plain.chars().map(safe).take(NAME_LIMIT).collect();
    format!("{}-{}.yaml", plain.trim_matches('-'), digest.short())
}

impl Target for Directory {
    async fn ready(&self) -> Result<(), Unreachable> {
        let prepared = self.blocking(Folder::prepare).await;
        prepared.map_err(|error| Unreachable {
            target: format!("dir:{}", self.folder.root().display()),
            message: error.describe(),
        })
    }

    async fn locate(
        &self,
        manifests: Vec<Manifest>,
        default_namespace: Option<&str>,
    ) -> Vec<Result<Manifest, ObjectError>> {
        let scopes = Scopes::of(&manifests);
        let mut placed = Vec::with_capacity(manifests.len());
        for mut manifest in manifests {
            if scopes.is_cluster(&manifest.key) {
                manifest.set_namespace(None);
            } else if manifest.key.namespace.is_none() {
                manifest.set_namespace(Some(default_namespace.unwrap_or("default")));
            }
            placed.push(Ok(manifest));
        }
        placed
    }

    async fn observe(&self, _owner: &Owner, items: &[Item]) -> Vec<Result<Live, ObjectError>> {
        let keys: Vec<ObjectKey> = items.iter().map(|item| item.key.clone()).collect();
        let asked = keys.clone();
        let look = move |folder: &Folder| {
            Ok(asked.iter().map(|key| folder.look(&file_name(key))).collect::<Vec<_>>())
        };
        let found = self.blocking(look).await.unwrap_or_else(|error| vec![Err(error); keys.len()]);
        let mut answers = Vec::with_capacity(keys.len());
        for (live, key) in found.into_iter().zip(keys) {
            answers.push(live.map_err(|error| error.of(key)));
        }
        answers
    }

    /// Does nothing: a folder has no namespaces. Where a cluster reads the folder, a Namespace comes
    /// from the service's own manifests.
    async fn ensure_namespace(&self, _owner: &Owner, _name: &str) -> Result<(), ObjectError> {
        Ok(())
    }

    async fn apply(&self, owner: &Owner, manifest: &Manifest) -> Result<Applied, ObjectError> {
        let (owner, mut manifest) = (owner.clone(), manifest.clone());
        let key = manifest.key.clone();
        manifest.mark(&owner);
        self.blocking(move |folder| folder.put(&owner, &manifest)).await.map_err(|error| error.of(key))
    }

    async fn delete(&self, owner: &Owner, item: &Item) -> Result<Deleted, ObjectError> {
        let (owner, item) = (owner.clone(), item.clone());
        let key = item.key.clone();
        self.blocking(move |folder| folder.remove(&owner, &item)).await.map_err(|error| error.of(key))
    }

    async fn read(&self, _owner: &Owner, item: &Item) -> Result<Option<Whole>, ObjectError> {
        let (key, name) = (item.key.clone(), file_name(&item.key));
        self.blocking(move |folder| folder.read(&name)).await.map_err(|error| error.of(key))
    }

    async fn preview(&self, owner: &Owner, manifest: &Manifest) -> Result<Preview, ObjectError> {
        let (owner, mut manifest) = (owner.clone(), manifest.clone());
        let key = manifest.key.clone();
        manifest.mark(&owner);
        let look = move |folder: &Folder| {
            let live = folder.document(&owner, &manifest)?;
            Ok(Preview::of(live.as_ref(), &manifest.body, &manifest.key))
        };
        self.blocking(look).await.map_err(|error| error.of(key))
    }
}

#[cfg(test)]
mod tests;
