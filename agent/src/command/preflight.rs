//! `farshore agent preflight`: whether an agent with these options would work here, before it takes over.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use farshore_shared::clock;
use farshore_shared::exit::{Exit, chain};

use super::SiteError;
use crate::agent::AgentError;
use crate::config::{AgentArgs, TargetSpec};
use crate::hub::{Caller, DesiredAnswer, HubClient, HubError, PATIENCE, Trust};
#[cfg(feature = "kubernetes")]
use crate::lead::Ballot as _;
use crate::store::{EnrolmentRecord, Found, Store, StoreError, files};
use crate::target::Target;
use crate::target::directory::Directory;
use crate::verify::{self, Clock};

/// `farshore agent preflight`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PreflightArgs {
    /// End with 0 though target or hub do not answer, where no agent works that could go on instead
    #[arg(long, env = "FARSHORE_UNLESS_ALONE")]
    unless_alone: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

const EXAMPLES: &str = "\
Examples:
  farshore agent preflight --hub https://hub.example:8443 --name shop-7 \\
      --state /var/lib/farshore --target kubernetes
  farshore agent preflight --unless-alone --hub https://hub.example:8443 --name shop-7 \\
      --state /var/lib/farshore --target kubernetes

It takes the options of an agent, changes nothing, and may run beside the agent that has the folder. It ends with 0
when this version can read the state folder, reaches the target and is answered by the hub; else it says why, and
ends with 3 (the folder) or 5 (somebody does not answer). Where it stands before the agent itself, such as in an init
container, give --unless-alone: a site that boots without its hub starts all the same.";

/// One thing that was proven, or not.
struct Proof {
    what: &'static str,
    outcome: Result<String, (String, Exit)>,
}

impl PreflightArgs {
    /// Proves it.
    ///
    /// # Errors
    /// [`SiteError::Output`].
    pub async fn run(&self, out: &mut (dyn Write + Send)) -> Result<Exit, SiteError> {
        let args = &self.agent;
        let folder = Proof { what: "state folder", outcome: read_all(args) };
        let target = Proof { what: "target", outcome: reach(args).await };
        let hub = Proof { what: "hub", outcome: poll(args).await };
        let is_alone = self.unless_alone && Store::is_in_use(&args.state).is_none();
        let mut exit = Exit::Ok;
        for Proof { what, outcome } in [folder, target, hub] {
            match outcome {
                Ok(said) => writeln!(out, "ok      {what}: {said}")?,
                Err((why, Exit::Unreachable)) if is_alone => {
                    writeln!(
                        out,
                        "warned  {what}: {why}; no agent works here, so this one starts all the same"
                    )?;
                }
                Err((why, how)) => {
                    writeln!(out, "failed  {what}: {why}")?;
                    // What is wrong with the folder weighs most.
                    exit = if exit == Exit::Ok { how } else { exit };
                }
            }
        }
        Ok(exit)
    }
}

fn bad(error: impl Display) -> (String, Exit) {
    (error.to_string(), Exit::BadInput)
}

fn away(error: impl Display) -> (String, Exit) {
    (error.to_string(), Exit::Unreachable)
}

/// A folder that is there; none where this would be a new site.
fn folder(state: &Path) -> Result<Option<Store>, StoreError> {
    match state.join("version").exists() {
        true => Store::peek(state).map(Some),
        false => Ok(None),
    }
}

/// Reads everything that an agent reads when it starts, and proves that it can write.
fn read_all(args: &AgentArgs) -> Result<String, (String, Exit)> {
    let failed = |error: StoreError| bad(chain(&error));
    let Some(store) = folder(&args.state).map_err(failed)? else {
        return Ok("there is none yet: a new site".to_owned());
    };
    if let Some(held) = store.name().map_err(failed)?
        && held != args.name
    {
        return Err(bad(format!("it belongs to another cluster (of {held}, asked for {})", args.name)));
    }
    let state = store.state().map_err(failed)?;
    let is_broken = |found: &Found<_>| matches!(found, Found::Corrupt(_));
    if is_broken(&state.documents) {
        return Err(bad("no slot of accepted documents can be read"));
    }
    let healthy = store.healthy().map_err(failed)?;
    if let Found::Corrupt(why) = &healthy {
        return Err(bad(why));
    }
    let services = store.services_with_inventory().map_err(failed)?;
    for service in &services {
        if let Found::Corrupt(why) = store.inventory(service).map_err(failed)? {
            return Err(bad(why));
        }
    }
    store.rollouts().map_err(failed)?;
    let probe = args.state.join(".preflight");
    files::write(&probe, b"").and_then(|()| files::remove(&probe)).map_err(failed)?;
    Ok(format!("it can be read and written ({} services in place)", services.len()))
}

async fn reach(args: &AgentArgs) -> Result<String, (String, Exit)> {
    match &args.target {
        TargetSpec::Directory(_) if args.accounts.is_some() => Err(bad(AgentError::NoAccounts)),
        TargetSpec::Directory(_) if args.leader_elect.is_some() => {
            Err(bad("a lease is in a cluster: --leader-elect needs --target kubernetes"))
        }
        TargetSpec::Directory(path) => answers(Directory::open(path.clone())).await,
        TargetSpec::Kubernetes => cluster(args).await,
    }
}

async fn answers<T: Target>(target: T) -> Result<String, (String, Exit)> {
    target.ready().await.map_err(away)?;
    Ok("it answers".to_owned())
}

/// Reaches it as the agent would, as far as its options say how.
#[cfg(feature = "kubernetes")]
async fn cluster(args: &AgentArgs) -> Result<String, (String, Exit)> {
    use crate::target::kubernetes::Options;
    let (kubeconfig, accounts) = (args.kubeconfig.as_deref(), args.accounts.as_deref());
    let target = crate::agent::connect(kubeconfig, accounts, Options::default()).await;
    let target = target.map_err(|error| bad(chain(&error)))?;
    let lease = args.leader_elect.clone().map(|name| (name.to_string(), target.lease(name)));
    let said = answers(target).await?;
    let Some((name, lease)) = lease else { return Ok(said) };
    match lease.read().await.map_err(bad)? {
        // A site that starts anew has no lease yet. An agent that would take this one has nothing of what was in place.
        Some(_) if matches!(folder(&args.state), Ok(None)) => Err(bad(format!(
            "lease {name} is there, so an agent of this site has worked, but its state folder is not ({}): is this \
             its node? Where the folder is lost for good, delete the lease",
            args.state.display()
        ))),
        Some(record) if record.holder.is_empty() => Ok(format!("{said}; lease {name} is free")),
        Some(record) => Ok(format!("{said}; lease {name} is held by {}", record.holder)),
        None => Ok(format!("{said}; lease {name} is not there yet")),
    }
}

#[cfg(not(feature = "kubernetes"))]
async fn cluster(_: &AgentArgs) -> Result<String, (String, Exit)> {
    Err(bad("this program was built without Kubernetes (feature kubernetes)"))
}

/// Polls once, as the member that this site is, and believes the answer or not. Nothing of it is kept.
async fn poll(args: &AgentArgs) -> Result<String, (String, Exit)> {
    let failed = |error: StoreError| bad(chain(&error));
    let unheard = |error: HubError| away(chain(&error));
    let record = match folder(&args.state).map_err(failed)? {
        Some(store) => store.enrolment().map_err(failed)?.good().map(|record| (store, record)),
        None => None,
    };
    let Some((store, record)) = record else {
        let mut any = HubClient::new(args.hub.clone(), &Trust::Bootstrap, None, PATIENCE).map_err(unheard)?;
        return match any.trust(1).await.map_err(unheard)? {
            Some(_) => Ok("it answers; this site has not joined yet".to_owned()),
            None => Err(away("it has no trust root 1: is it a hub?")),
        };
    };
    member(args, &store, &record).await
}

async fn member(args: &AgentArgs, store: &Store, record: &EnrolmentRecord) -> Result<String, (String, Exit)> {
    let failed = |error: StoreError| bad(chain(&error));
    let unheard = |error: HubError| away(chain(&error));
    // A member's keys are there: nothing is made.
    let keys = Arc::new(store.keys(&args.name).map_err(failed)?);
    let Some(chain_of_roots) = store.roots(record.fleet).map_err(failed)?.good() else {
        return Err(bad("the trust root of the fleet cannot be read"));
    };
    let root = chain_of_roots.root;
    let caller = Caller { keys: Arc::clone(&keys), fleet: record.fleet };
    let mut client =
        HubClient::new(args.hub.clone(), &Trust::of(&root), Some(caller), PATIENCE).map_err(unheard)?;
    let held = store.state().map_err(failed)?.held();
    match client.desired(None).await.map_err(unheard)?.answer {
        DesiredAnswer::NotModified { .. } => Ok("it has nothing newer".to_owned()),
        DesiredAnswer::Documents { desired, .. } => {
            let clock = Clock { now: clock::now() };
            let accepted = verify::desired(&held, &desired, &keys.identity(), &root, clock);
            let accepted = accepted.map_err(|refusal| bad(chain(&refusal)))?;
            let services = accepted.documents.group.services.len();
            Ok(format!("its documents are believed ({services} services)"))
        }
    }
}
