//! A site, beside its agent: its state folder and its target.

use std::path::PathBuf;

use clap::Args;
use farshore_agent::agent::AgentError;
use farshore_agent::config::TargetSpec;
use farshore_agent::footprint::InForce;
use farshore_agent::foresight::ForesightError;
use farshore_agent::local::view;
use farshore_agent::render::Tools;
use farshore_agent::store::Store;
use farshore_agent::target::directory::Directory;
#[cfg(feature = "kubernetes")]
use farshore_agent::target::kubernetes::Kubernetes;

use crate::failure::Failure;

/// Where a site is; as its agent has been told.
#[derive(Args)]
pub(crate) struct SiteArgs {
    /// State folder of the agent, which may be running
    #[arg(long, env = "FARSHORE_STATE", value_name = "DIR")]
    state: PathBuf,
    /// Where manifests go
    #[arg(long, env = "FARSHORE_TARGET", value_name = "dir:PATH|kubernetes", default_value = "kubernetes")]
    target: TargetSpec,
    /// Kubeconfig for --target kubernetes [default: in the cluster, else $KUBECONFIG]
    #[arg(long, env = "FARSHORE_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Which service account each service is applied as [default: all as yourself]
    #[arg(long, env = "FARSHORE_ACCOUNTS", value_name = "FILE")]
    accounts: Option<PathBuf>,
}

/// The target of a site.
pub(crate) enum SiteTarget {
    /// A folder.
    Directory(Directory),
    /// A cluster.
    #[cfg(feature = "kubernetes")]
    Kubernetes(Box<Kubernetes>),
}

impl SiteArgs {
    /// The state folder, to be read.
    pub(crate) fn store(&self) -> Result<Store, Failure> {
        Ok(Store::peek(&self.state).map_err(ForesightError::Store)?)
    }

    /// The programs that render, with as much memory as the agent gives them.
    pub(crate) fn tools(&self) -> Tools {
        let mut tools = Tools::find(|name| std::env::var_os(name));
        if let Some(footprint) = self.footprint() {
            tools.memory = footprint.process_memory.value;
        }
        tools
    }

    /// How much the agent may ask, as it has told last. Without that, the defaults do.
    fn footprint(&self) -> Option<InForce> {
        view::of_folder(&self.state).ok().and_then(|view| view.footprint)
    }

    /// The target.
    pub(crate) async fn target(&self) -> Result<SiteTarget, Failure> {
        match &self.target {
            TargetSpec::Directory(_) if self.accounts.is_some() => Err(AgentError::NoAccounts.into()),
            TargetSpec::Directory(path) => Ok(SiteTarget::Directory(Directory::open(path))),
            TargetSpec::Kubernetes => self.cluster().await,
        }
    }

    #[cfg(feature = "kubernetes")]
    async fn cluster(&self) -> Result<SiteTarget, Failure> {
        use farshore_agent::target::Target as _;
        use farshore_agent::target::kubernetes::Options;
        let (kubeconfig, accounts) = (self.kubeconfig.as_deref(), self.accounts.as_deref());
        let target = farshore_agent::agent::connect(kubeconfig, accounts, Options::default()).await?;
        if let Some(footprint) = self.footprint() {
            target.bound(footprint.in_flight.value, footprint.qps.value);
        }
        Ok(SiteTarget::Kubernetes(Box::new(target)))
    }

    #[cfg(not(feature = "kubernetes"))]
    async fn cluster(&self) -> Result<SiteTarget, Failure> {
        let why = "this program was built without Kubernetes (feature kubernetes)";
        Err(AgentError::Target(why.into()).into())
    }
}
