//! A Kubernetes cluster as a target.
//!
//! Objects are applied by the server under the field manager `farshore`, read as metadata only, and
//! deleted only with the UID that was listed and our marks on them. Tasks: the client's own, which hands
//! requests to its connections, and one per watched kind; they end with the last clone of [`Kubernetes`].
//!
//! - `connection`: the way to the API, bounded in time and bytes; `flow`: how many requests at once;
//!   `path`: addresses in it.
//! - `discovery`: which kinds are served; `locate`: where a manifest belongs.
//! - `observe`, `apply`, `delete`: what the port asks for; `usable`: what others need first.
//! - `inspect`: whole objects, one at a time, while their health is waited for.
//! - `conflict`: what others own; `adopt`: taking it over; `recreate`: what cannot be changed.
//! - `metadata`: what is read of an object, and its fingerprint; `fields`: sets of fields.
//! - `fault`: what a person is told; `grant`: what would grant a right that is missing.
//! - `announce`: what a cluster is told about its services; `lease`: which of several agents works.
//! - `watch`: what happens in the cluster, without asking; `read`: a whole object.

mod account;
mod adopt;
mod announce;
mod apply;
mod conflict;
mod connection;
mod delete;
mod discovery;
mod fault;
mod fields;
mod flow;
mod grant;
mod inspect;
mod lease;
mod locate;
mod metadata;
mod observe;
mod path;
mod read;
mod recreate;
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

pub use announce::Announcements;
use apply::Applying;
pub use connection::{ConnectError, Options};
use connection::{Connection, Request};
use discovery::Discovery;
use fault::Complaint;
pub use lease::Lease;
use watch::Watches;

use super::{
    Applied, Change, Coverage, Deleted, Effect, Kind, Live, ObjectError, Preview, Taken, Target, Unreachable,
    Whole,
};
use crate::accounts::{Account, Accounts};
use crate::object::{Manifest, ObjectKey, Owner, is_marked};
use crate::plan::Item;

/// How long a namespace that was seen active is taken to be so.
const NAMESPACE_MEMORY: Duration = Duration::from_secs(10);
/// How long an account that was seen is taken to be there.
const ACCOUNT_MEMORY: Duration = Duration::from_secs(60);
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
    /// Who each service is applied as; none where all are applied as ourselves.
    accounts: Option<Arc<Accounts>>,
    seen_accounts: Arc<Mutex<HashMap<String, Instant>>>,
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
        Ok(Self {
            connection,
            discovery,
            watches,
            active_namespaces: Arc::default(),
            accounts: None,
            seen_accounts: Arc::default(),
            hidden: Arc::default(),
        })
    }

    /// Applies, looks and deletes for each service as the account that this list gives it.
    ///
    /// # Errors
    /// [`ConnectError::Impersonates`] when the kubeconfig speaks for somebody else already.
    pub fn with_accounts(mut self, accounts: Accounts) -> Result<Self, ConnectError> {
        self.connection.demand_own_name()?;
        self.accounts = Some(Arc::new(accounts));
        Ok(self)
    }

    /// The connection with which everything is done for a service.
    async fn acting_for(&self, owner: &Owner) -> Result<Connection, Complaint> {
        let connection = self.connection.of_service(&owner.service);
        let Some(accounts) = &self.accounts else { return Ok(connection) };
        let Some(account) = accounts.of(&owner.service) else {
            return Err(Complaint::pointless(format!(
                "this site has no account for service {}: add a rule to the file of --accounts",
                owner.service
            )));
        };
        self.demand_account(&account).await?;
        Ok(connection.acting_as(account))
    }

    /// Demands that an account is there: the API would let us act as one that was deleted.
    async fn demand_account(&self, account: &Account) -> Result<(), Complaint> {
        let name = account.to_string();
        {
            let mut seen = self.seen_accounts.lock().unwrap_or_else(PoisonError::into_inner);
            seen.retain(|_, at| at.elapsed() < ACCOUNT_MEMORY);
            if seen.contains_key(&name) {
                return Ok(());
            }
        }
        account::look(&self.connection, account).await?;
        let mut seen = self.seen_accounts.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(name, Instant::now());
        Ok(())
    }

    /// The API server's address.
    #[must_use]
    pub fn url(&self) -> &str {
        self.connection.url()
    }

    fn applying<'a>(
        &'a self,
        connection: &'a Connection,
        owner: &'a Owner,
        manifest: &'a Manifest,
    ) -> Applying<'a> {
        Applying { connection, discovery: &self.discovery, owner, manifest }
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
        let asked = self.connection.at_once(Request::get("/readyz".to_owned()));
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
        match self.acting_for(owner).await {
            Ok(connection) => observe::observe(&connection, &self.discovery, owner, items).await,
            Err(complaint) => {
                let mut answers = Vec::with_capacity(items.len());
                for item in items {
                    answers.push(Err(complaint.clone().about(&item.key)));
                }
                answers
            }
        }
    }

    async fn ensure_namespace(&self, owner: &Owner, name: &str) -> Result<(), ObjectError> {
        if self.is_remembered(name) {
            return Ok(());
        }
        let ensured = match self.acting_for(owner).await {
            Ok(connection) => apply::ensure_namespace(&connection, name).await,
            Err(complaint) => Err(complaint),
        };
        ensured.map_err(|complaint| complaint.about(&ObjectKey::namespace(name)))?;
        self.remember(name);
        Ok(())
    }

    async fn apply(&self, owner: &Owner, manifest: &Manifest) -> Result<Applied, ObjectError> {
        let manifest = marked(owner, manifest);
        let applied = match self.acting_for(owner).await {
            Ok(connection) => self.applying(&connection, owner, &manifest).apply().await,
            Err(complaint) => Err(complaint),
        };
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
        let deleted = match self.acting_for(owner).await {
            Ok(connection) => delete::delete(&connection, &self.discovery, owner, item).await,
            Err(complaint) => Err(complaint),
        };
        deleted.map_err(|complaint| complaint.about(&item.key))
    }

    fn shows_health(&self) -> bool {
        true
    }

    async fn inspect(
        &self,
        owner: &Owner,
        key: &ObjectKey,
        version: &str,
    ) -> Result<Option<Value>, ObjectError> {
        let seen = match self.acting_for(owner).await {
            Ok(connection) => inspect::object(&connection, &self.discovery, key, version).await,
            Err(complaint) => Err(complaint),
        };
        seen.map_err(|complaint| complaint.about(key))
    }

    async fn log_tail(&self, owner: &Owner, key: &ObjectKey, _limit: usize) -> Result<String, ObjectError> {
        let tail = match self.acting_for(owner).await {
            Ok(connection) => inspect::log_tail(&connection, key).await,
            Err(complaint) => Err(complaint),
        };
        tail.map_err(|complaint| complaint.about(key))
    }

    async fn preview(&self, owner: &Owner, manifest: &Manifest) -> Result<Preview, ObjectError> {
        let manifest = marked(owner, manifest);
        let preview = match self.acting_for(owner).await {
            Ok(connection) => self.applying(&connection, owner, &manifest).preview().await,
            Err(complaint) => Err(complaint),
        };
        preview.map_err(|complaint| complaint.about(&manifest.key))
    }

    async fn adopt(
        &self,
        owner: &Owner,
        manifest: &Manifest,
        effect: Effect,
    ) -> Result<Vec<Taken>, ObjectError> {
        let taken = match self.acting_for(owner).await {
            Ok(connection) => self.applying(&connection, owner, manifest).adopt(effect).await,
            Err(complaint) => Err(complaint),
        };
        taken.map_err(|complaint| complaint.about(&manifest.key))
    }

    async fn read(&self, owner: &Owner, item: &Item) -> Result<Option<Whole>, ObjectError> {
        let read = match self.acting_for(owner).await {
            Ok(connection) => read::read(&connection, &self.discovery, item).await,
            Err(complaint) => Err(complaint),
        };
        read.map_err(|complaint| complaint.about(&item.key))
    }

    fn bound(&self, in_flight: u16, per_second: Option<u32>) {
        self.connection.bound(in_flight, per_second);
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

/// What is applied without our marks could never be deleted.
fn marked<'a>(owner: &Owner, manifest: &'a Manifest) -> Cow<'a, Manifest> {
    let mut manifest = Cow::Borrowed(manifest);
    if !is_marked(&manifest.body, owner) {
        manifest.to_mut().mark(owner);
    }
    manifest
}
