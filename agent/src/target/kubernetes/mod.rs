//! A Kubernetes cluster as a target.
//!
//! Objects are applied by the server under the field manager `farshore`, read as metadata only, and
//! deleted only with the UID that was listed and our marks on them. Tasks: the client's own, which hands
//! requests to its connections, and one per watched kind; they end with the last clone of [`Kubernetes`].
//!
//! - `connection`: the way to the API, bounded in time and bytes; `path`: addresses in it.
//! - `discovery`: which kinds are served; `locate`: where a manifest belongs.
//! - `observe`, `apply`, `delete`: what the port asks for; `usable`: what others need first.
//! - `inspect`: whole objects, one at a time, while their health is waited for.
//! - `metadata`: what is read of an object, and its fingerprint; `fault`: what a person is told.
//! - `watch`: what happens in the cluster, without asking; `read`: a whole object.

mod apply;
mod connection;
mod delete;
mod discovery;
mod fault;
mod inspect;
mod locate;
mod metadata;
mod observe;
mod path;
mod read;
mod secret;
mod usable;
mod watch;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

pub use connection::{ConnectError, Options};
use connection::{Connection, Request};
use discovery::Discovery;
use watch::Watches;

use super::{Applied, Change, Coverage, Deleted, Kind, Live, ObjectError, Target, Unreachable, Whole};
use crate::object::{Manifest, ObjectKey, Owner, is_marked};
use crate::plan::Item;

/// How long a namespace that was seen active is taken to be so.
const NAMESPACE_MEMORY: Duration = Duration::from_secs(10);
/// The most time that the question whether the API answers may take.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an API server that starts may take to read its roles.
const ROLES_TIMEOUT: Duration = Duration::from_secs(60);

/// A Kubernetes cluster. Clones share their connections and what they know of the API.
#[derive(Clone)]
pub struct Kubernetes {
    connection: Connection,
    discovery: Discovery,
    watches: Watches,
    active_namespaces: Arc<Mutex<HashMap<String, Instant>>>,
    hidden: Arc<Mutex<Hidden>>,
}

/// Since when the API forbids us to see whether it is ready.
#[derive(Debug, Clone, Copy, Default)]
enum Hidden {
    #[default]
    No,
    Since(Instant),
}

impl Kubernetes {
    /// Prepares the way to a cluster: with the named kubeconfig, else as the Pod that we are, else
    /// with `$KUBECONFIG` or `~/.kube/config`. The API need not be up: [`Target::ready`] tells.
    ///
    /// # Errors
    /// [`ConnectError`] when there is no usable configuration.
    pub async fn connect(kubeconfig: Option<&Path>, options: Options) -> Result<Self, ConnectError> {
        let connection = Connection::open(kubeconfig, options).await?;
        let discovery = Discovery::new(connection.clone());
        let watches = Watches::new(connection.clone(), discovery.clone());
        let (active_namespaces, hidden) = (Arc::default(), Arc::default());
        Ok(Self { connection, discovery, watches, active_namespaces, hidden })
    }

    /// The API server's address.
    #[must_use]
    pub fn url(&self) -> &str {
        self.connection.url()
    }

    fn unreachable(&self, message: String) -> Unreachable {
        Unreachable { target: self.url().to_owned(), message }
    }

    /// An API server that starts forbids everything to everybody until it has read its roles, so a
    /// refusal says that it is not ready; one that goes on says that we may not know.
    fn is_hidden_for_good(&self) -> bool {
        let mut hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        match *hidden {
            Hidden::No => {
                *hidden = Hidden::Since(Instant::now());
                false
            }
            Hidden::Since(first) => first.elapsed() > ROLES_TIMEOUT,
        }
    }

    fn seen(&self) {
        *self.hidden.lock().unwrap_or_else(PoisonError::into_inner) = Hidden::No;
    }

    fn is_remembered(&self, namespace: &str) -> bool {
        let active = self.active_namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        active.get(namespace).is_some_and(|seen| seen.elapsed() < NAMESPACE_MEMORY)
    }

    fn remember(&self, namespace: &str) {
        let mut active = self.active_namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        active.retain(|_, seen| seen.elapsed() < NAMESPACE_MEMORY);
        active.insert(namespace.to_owned(), Instant::now());
    }

    fn forget(&self, namespace: &str) {
        self.active_namespaces.lock().unwrap_or_else(PoisonError::into_inner).remove(namespace);
    }
}

impl Target for Kubernetes {
    /// The API answers once its own checks pass.
    async fn ready(&self) -> Result<(), Unreachable> {
        let asked = self.connection.raw(Request::get("/readyz".to_owned()));
        match tokio::time::timeout(READY_TIMEOUT, asked).await {
            Ok(Ok(_)) => {
                self.seen();
                Ok(())
            }
            Ok(Err(fault)) if fault.is(403) && self.is_hidden_for_good() => Ok(()),
            Ok(Err(fault)) => Err(self.unreachable(fault.in_words())),
            Err(tokio::time::error::Elapsed { .. }) => {
                Err(self.unreachable(format!("no answer from the API within {READY_TIMEOUT:?}")))
            }
        }
    }

    async fn locate(
        &self,
        manifests: Vec<Manifest>,
        default_namespace: Option<&str>,
    ) -> Vec<Result<Manifest, ObjectError>> {
        locate::locate(&self.discovery, manifests, default_namespace).await
    }

    async fn observe(&self, owner: &Owner, items: &[Item]) -> Vec<Result<Live, ObjectError>> {
        observe::observe(&self.connection, &self.discovery, owner, items).await
    }

    async fn ensure_namespace(&self, name: &str) -> Result<(), ObjectError> {
        if self.is_remembered(name) {
            return Ok(());
        }
        let ensured = apply::ensure_namespace(&self.connection, name).await;
        ensured.map_err(|complaint| complaint.about(&namespace_key(name)))?;
        self.remember(name);
        Ok(())
    }

    async fn apply(&self, owner: &Owner, manifest: &Manifest) -> Result<Applied, ObjectError> {
        let mut manifest = Cow::Borrowed(manifest);
        // What is applied without our marks could never be deleted.
        if !is_marked(&manifest.body, owner) {
            manifest.to_mut().mark(owner);
        }
        let applied = apply::apply(&self.connection, &self.discovery, &manifest).await;
        applied.map_err(|complaint| {
            // The namespace may be what is wrong: the next one who needs it looks.
            if let Some(namespace) = &manifest.key.namespace {
                self.forget(namespace);
            }
            complaint.about(&manifest.key)
        })
    }

    async fn delete(&self, owner: &Owner, item: &Item) -> Result<Deleted, ObjectError> {
        if item.key.group.is_empty() && item.key.kind == "Namespace" {
            self.forget(&item.key.name);
        }
        let deleted = delete::delete(&self.connection, &self.discovery, owner, item).await;
        deleted.map_err(|complaint| complaint.about(&item.key))
    }

    fn shows_health(&self) -> bool {
        true
    }

    async fn inspect(
        &self,
        _owner: &Owner,
        key: &ObjectKey,
        version: &str,
    ) -> Result<Option<Value>, ObjectError> {
        let seen = inspect::object(&self.connection, &self.discovery, key, version).await;
        seen.map_err(|complaint| complaint.about(key))
    }

    async fn log_tail(&self, _owner: &Owner, key: &ObjectKey, _limit: usize) -> Result<String, ObjectError> {
        inspect::log_tail(&self.connection, key).await.map_err(|complaint| complaint.about(key))
    }

    async fn read(&self, _owner: &Owner, item: &Item) -> Result<Option<Whole>, ObjectError> {
        let read = read::read(&self.connection, &self.discovery, item).await;
        read.map_err(|complaint| complaint.about(&item.key))
    }

    fn follow(&self, kinds: &BTreeSet<Kind>) {
        self.watches.follow(kinds);
    }

    async fn changes(&self) -> Vec<Change> {
        self.watches.changes().await
    }

    fn coverage(&self) -> Coverage {
        self.watches.coverage()
    }
}

fn namespace_key(name: &str) -> ObjectKey {
    ObjectKey { group: String::new(), kind: "Namespace".to_owned(), namespace: None, name: name.to_owned() }
}
