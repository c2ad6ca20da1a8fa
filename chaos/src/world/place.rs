//! One service in a real cluster, at a site of its own: where tests of what an agent does to Kubernetes begin.

use std::borrow::Borrow;
use std::sync::{Arc, Weak};
use std::time::Duration;

use farshore_shared::wire::{ServiceState, ServiceStatus, Status};
use tokio::sync::Mutex;

use super::declare::{service, source};
use super::{Fleet, Repository, Role, Site, Target, World};
use crate::kit::{ApiRequest, AuditMark, KitError, Kubernetes, wait_for};

/// Longer, and it does not happen, unless the test says otherwise.
const PATIENCE: Duration = Duration::from_secs(90);

/// One API server for all tests of a file that do not stop it. It ends with the last of them.
pub struct SharedCluster {
    running: Mutex<Weak<Kubernetes>>,
    with_controllers: bool,
}

impl SharedCluster {
    /// An API without controllers; see [`Kubernetes::start`].
    #[must_use]
    pub const fn new() -> Self {
        Self { running: Mutex::const_new(Weak::new()), with_controllers: false }
    }

    /// An API with controllers; see [`Kubernetes::start_with_controllers`].
    #[must_use]
    pub const fn with_controllers() -> Self {
        Self { running: Mutex::const_new(Weak::new()), with_controllers: true }
    }

    /// The running API server.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn get(&self) -> Result<Arc<Kubernetes>, KitError> {
        let mut running = self.running.lock().await;
        if let Some(running) = running.upgrade() {
            return Ok(running);
        }
        let started = if self.with_controllers {
            Kubernetes::start_with_controllers().await?
        } else {
            Kubernetes::start().await?
        };
        let started = Arc::new(started);
        *running = Arc::downgrade(&started);
        Ok(started)
    }
}

impl Default for SharedCluster {
    fn default() -> Self {
        Self::new()
    }
}

/// A service, the namespace of its objects, and the site that has it: all three have one name.
///
/// Its cluster is one that many tests share, or the test's own (`Place<Kubernetes>`), which that may stop.
pub struct Place<K = Arc<Kubernetes>> {
    // In the order in which they are dropped.
    /// The site.
    pub site: Site,
    /// Its fleet, of this service.
    pub world: World,
    /// Its cluster.
    pub kubernetes: K,
    /// The name of all three.
    pub name: &'static str,
    patience: Duration,
}

impl<K: Borrow<Kubernetes>> Place<K> {
    /// A running site in this cluster, with a service of these raw manifests.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn with(
        kubernetes: K,
        name: &'static str,
        manifests: &[(&str, &str)],
    ) -> Result<Self, KitError> {
        Self::of(kubernetes, name, "", manifests).await?.started().await
    }

    /// The same, with more lines of the service's `spec` in its declaration, and not started yet.
    ///
    /// # Errors
    /// When the hub does not start.
    pub async fn of(
        kubernetes: K,
        name: &'static str,
        spec: &str,
        manifests: &[(&str, &str)],
    ) -> Result<Self, KitError> {
        let placed: Vec<(String, &str)> =
            manifests.iter().map(|(file, text)| (format!("manifests/{file}"), *text)).collect();
        let files: Vec<(&str, &str)> = placed.iter().map(|(file, text)| (file.as_str(), *text)).collect();
        let app = Repository::of(&files).await?;
        let declared = Repository::of(&[("fleet.yaml", &declaration(name, &app, spec, ""))]).await?;
        let fleet = Fleet::on_disk(&declared.url())?;
        let mut hub = fleet.hub("hub", Role::All)?;
        hub.start().await?;
        let site = fleet.site(name, &hub.address(), Target::Kubernetes(kubernetes.borrow().kubeconfig()))?;
        let world = World { hub, fleet, declared, app };
        Ok(Self { site, world, kubernetes, name, patience: PATIENCE })
    }

    /// How long it is waited for whatever is waited for here: 90 s, unless this says otherwise.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets an option of the agent, given as `--name=value`, for its next start.
    #[must_use]
    pub fn option(mut self, option: impl Into<String>) -> Self {
        self.site = self.site.option(option);
        self
    }

    /// Starts the agent.
    ///
    /// # Errors
    /// When it ends at once.
    pub async fn started(mut self) -> Result<Self, KitError> {
        self.site.start().await?;
        Ok(self)
    }

    /// Declares the service with these further lines of its `spec`, and more documents beside it.
    ///
    /// # Errors
    /// When `git` fails.
    pub fn declare(&mut self, spec: &str, more: &str) -> Result<String, KitError> {
        let text = declaration(self.name, &self.world.app, spec, more);
        self.world.declared.commit(&[("fleet.yaml", &text)])
    }

    /// Runs `kubectl` in the service's namespace.
    ///
    /// # Errors
    /// As [`Kubernetes::kubectl`].
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String, KitError> {
        self.api().kubectl(&[&["--namespace", self.name], arguments].concat())
    }

    /// Creates objects as somebody else would.
    ///
    /// # Errors
    /// As [`Kubernetes::kubectl`].
    pub fn create(&self, manifests: &str) -> Result<String, KitError> {
        self.api().kubectl_with_input(&["create", "--namespace", self.name, "--filename=-"], manifests)
    }

    /// Changes an object as somebody else would, by a JSON merge patch.
    ///
    /// # Errors
    /// As [`Kubernetes::kubectl`].
    pub fn patch(&self, kind: &str, name: &str, merge: &str) -> Result<String, KitError> {
        self.kubectl(&["patch", kind, name, "--type=merge", "--patch", merge])
    }

    /// A value of an object, by its `JSONPath`; none when there is no such object, or no such field.
    ///
    /// # Errors
    /// As text, for [`wait_for`].
    pub fn look(&self, kind: &str, name: &str, path: &str) -> Result<Option<String>, String> {
        let output = format!("--output=jsonpath={path}");
        match self.kubectl(&["get", kind, name, "--ignore-not-found", &output]) {
            Ok(text) => Ok((!text.is_empty()).then_some(text)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Returns when a value of an object is this.
    ///
    /// # Errors
    /// When it does not become so.
    pub async fn until(
        &self,
        kind: &str,
        name: &str,
        path: &str,
        wanted: Option<&str>,
    ) -> Result<(), KitError> {
        let what = format!("{path} of {kind} {name} to be {wanted:?}");
        wait_for(&what, self.patience, async || match self.look(kind, name, path)? {
            found if found.as_deref() == wanted => Ok(()),
            found => Err(format!("it is {found:?}")),
        })
        .await
    }

    /// Returns when the site's report is so.
    ///
    /// # Errors
    /// When it does not become so.
    pub async fn until_status(
        &self,
        what: &str,
        is_so: impl Fn(&Status) -> bool,
    ) -> Result<Status, KitError> {
        wait_for(&format!("{} to be {what}", self.name), self.patience, async || {
            let status = self.world.fleet.status(self.name).map_err(|error| error.to_string())?;
            let status = status.ok_or("no status has come")?;
            if is_so(&status) { Ok(status) } else { Err(format!("it is {status:?}")) }
        })
        .await
    }

    /// Returns when what the site reports of its service is so.
    ///
    /// # Errors
    /// When it does not become so.
    pub async fn until_service(
        &self,
        what: &str,
        is_so: impl Fn(&ServiceStatus) -> bool,
    ) -> Result<ServiceStatus, KitError> {
        let own = |status: &Status| {
            status.services.iter().find(|service| service.name.as_str() == self.name).cloned()
        };
        let status = self.until_status(what, |status| own(status).as_ref().is_some_and(&is_so)).await?;
        Ok(own(&status).expect("it was just there"))
    }

    /// Returns when the service is in this state.
    ///
    /// # Errors
    /// When it does not come to it.
    pub async fn until_state(&self, state: ServiceState) -> Result<ServiceStatus, KitError> {
        self.until_service(&format!("{state:?}"), |service| service.state == state).await
    }

    /// Returns when a commit of the application is applied.
    ///
    /// # Errors
    /// When it is not.
    pub async fn until_commit(&self, commit: &str) -> Result<ServiceStatus, KitError> {
        self.until_service(commit, |service| {
            service.state == ServiceState::Applied && service.commit == commit
        })
        .await
    }

    /// What the agents wrote into the service's namespace since then.
    ///
    /// # Errors
    /// When the audit log cannot be read.
    pub fn writes(&self, since: AuditMark) -> Result<Vec<ApiRequest>, KitError> {
        let mut writes = self.api().audit_writes_since(since)?;
        let namespace = format!("/namespaces/{}/", self.name);
        writes.retain(|write| {
            write.user_agent.starts_with("farshore-agent/") && write.uri.contains(&namespace)
        });
        Ok(writes)
    }

    fn api(&self) -> &Kubernetes {
        self.kubernetes.borrow()
    }
}

fn declaration(name: &str, app: &Repository, spec: &str, more: &str) -> String {
    format!("{}---\n{}{spec}---\n{more}", source("app", &app.url()), service(name, "app", "manifests", "raw"))
}
