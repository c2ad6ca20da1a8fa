//! A hub process from its configuration to its end.
//!
//! Tasks, and what joins them: the *server* (hears of the end by a `watch` channel), the *publisher*
//! (the same, and a `Notify` when a site asks to enrol), the *flusher* of last-seen times (the same).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use farshore_shared::clock::now;
use farshore_shared::exit::{Exit, chain};
use farshore_shared::retry::hashed_share;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::auth::Gate;
use crate::config::{BadConfig, Config, HubArgs, Role};
use crate::handlers::Hub;
use crate::index::Index;
use crate::keyring::{Keyring, KeyringError, RootOptions};
use crate::metrics::Metrics;
use crate::objects::{Objects, ObjectsError, ProofError, prove_conditions};
use crate::publish::partition::Policy;
use crate::publish::{FleetRepository, Options, PublishError, Publisher, Step, StepReport};
use crate::routes::Door;
use crate::seen::Seen;
use crate::server::Server;
use crate::stores::{lock_data, open_index, open_objects};
use crate::tls::{TlsError, TlsFiles};
use crate::trust::{Trust, TrustError};
use crate::view::View;

/// How often the publisher looks for requests to enrol and approvals that other processes recorded.
const LOOK: Duration = Duration::from_secs(2);
/// How long the publisher rests between two steps, whatever is due.
const PAUSE: Duration = Duration::from_millis(100);
/// How often last-seen times are flushed.
const FLUSH: Duration = Duration::from_secs(15);

/// Why a hub cannot run.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The command line.
    #[error(transparent)]
    Config(#[from] BadConfig),
    /// The data folder.
    #[error("using the data folder ({path}): {why}")]
    Data {
        /// The folder.
        path: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
    /// The object storage.
    #[error("accessing the record")]
    Objects(#[from] ObjectsError),
    /// An address of object storage or index.
    #[error("{flag}: {why}")]
    Address {
        /// The flag.
        flag: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The bucket cannot carry a record.
    #[error("proving that the object storage honours conditional writes")]
    Proof(#[from] ProofError),
    /// The keys.
    #[error("preparing the keys")]
    Keys(#[from] KeyringError),
    /// The trust root.
    #[error("establishing the trust root")]
    Trust(#[from] TrustError),
    /// TLS.
    #[error("preparing TLS")]
    Tls(#[from] TlsError),
    /// The listener.
    #[error("listening on {address}: is another hub running there?")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A publication.
    #[error("publishing")]
    Publish(#[from] PublishError),
    /// A signal handler.
    #[error("waiting for signals")]
    Signals(#[source] std::io::Error),
}

impl HubError {
    /// How a program ends with it.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Config(_) | Self::Address { .. } => Exit::Usage,
            Self::Objects(error) | Self::Publish(PublishError::Objects(error)) if error.retryable() => {
                Exit::Unreachable
            }
            Self::Proof(ProofError::Objects(error)) | Self::Trust(TrustError::Objects(error))
                if error.retryable() =>
            {
                Exit::Unreachable
            }
            Self::Data { .. }
            | Self::Proof(_)
            | Self::Keys(_)
            | Self::Trust(_)
            | Self::Tls(_)
            | Self::Listen { .. } => Exit::BadInput,
            Self::Objects(_) | Self::Publish(_) | Self::Signals(_) => Exit::Fault,
        }
    }
}

/// Runs a hub until it is told to stop.
///
/// # Errors
/// [`HubError`], whose [`HubError::exit`] says how the program ends.
pub async fn run(args: HubArgs) -> Result<Exit, HubError> {
    let config = Config::check(args)?;
    let _lock = lock_data(&config.args.data)?;
    let objects = open_objects(&config).await?;
    let index = open_index(&config)?;
    let tls = prepare(&config, &*objects).await?;
    let publisher = if config.args.role.publishes() {
        prove_conditions(&*objects).await?;
        let trust = Trust::establish(&*objects, &Keyring::at(&config.keys)).await?;
        Some(Publisher::new(Arc::clone(&objects), Arc::clone(&index), trust, options(&config)))
    } else {
        None
    };
    start(config, objects, index, tls, publisher).await
}

async fn start(
    config: Config,
    objects: Arc<dyn Objects>,
    index: Arc<dyn Index>,
    tls: TlsFiles,
    publisher: Option<Publisher>,
) -> Result<Exit, HubError> {
    let publisher = match publisher {
        Some(publisher) if config.args.once => return once(publisher).await,
        publisher => publisher,
    };
    let view = View::new(Arc::clone(&objects), index);
    let (metrics, seen, wake) =
        (Arc::new(Metrics::new()), Arc::new(Seen::default()), Arc::new(Notify::new()));
    let gate = Gate::new(view.clone());
    let hub =
        Hub { view, gate, seen: Arc::clone(&seen), metrics: Arc::clone(&metrics), wake: Arc::clone(&wake) };
    let address = config.args.listen;
    let listen = |source| HubError::Listen { address, source };
    let server = Server::bind(address, Some(tls.server()?)).await.map_err(listen)?;
    announce(&config, server.address().map_err(listen)?);
    let (stop, stopped) = watch::channel(false);
    let door = if config.args.role.serves() { Door::Public } else { Door::Health };
    let serving = tokio::spawn(server.run(hub, door, stopped.clone()));
    let flushing = tokio::spawn(flush(Arc::clone(&seen), Arc::clone(&objects), stopped.clone()));
    let publishing = publisher.map(|publisher| {
        tokio::spawn(publish(publisher, config.args.interval.0, metrics, wake, stopped.clone()))
    });
    let tasks = [Some(serving), Some(flushing), publishing].into_iter().flatten();
    let exit = until_told(stop, tasks.collect()).await?;
    // Requests were answered while the server drained.
    flush_now(&seen, &*objects).await;
    Ok(exit)
}

/// Waits for a signal, or for a task that ends although nobody told it to: half a hub is none, and
/// whoever supervises the process starts it again. Then all tasks end.
async fn until_told(stop: watch::Sender<bool>, tasks: Vec<JoinHandle<()>>) -> Result<Exit, HubError> {
    let mut tasks: FuturesUnordered<_> = tasks.into_iter().collect();
    let exit = tokio::select! {
        told = wait_for_signal() => told.map(|()| Exit::Ok).map_err(HubError::Signals),
        ended = tasks.next() => {
            error!(?ended, "a task ended although the hub runs");
            Ok(Exit::Fault)
        }
    };
    info!("stopping");
    // Nobody left to hear it is as good.
    let _ = stop.send(true);
    while let Some(ended) = tasks.next().await {
        if let Err(failure) = ended {
            error!(%failure, "a task ended badly");
        }
    }
    exit
}

fn announce(config: &Config, address: std::net::SocketAddr) {
    let role = config.args.role;
    info!(?role, data = %config.args.data.display(), "listening on https://{address}");
    match &config.fleet {
        Some(fleet) => info!(fleet = fleet.url.as_str(), "fleet repository"),
        None if role.publishes() => {
            warn!(
                "there is no fleet repository: sites can enrol and keep what they have; give one with --fleet URL"
            );
        }
        None => {}
    }
}

fn options(config: &Config) -> Options {
    let fleet = config.fleet.clone().map(|fleet| FleetRepository { url: fleet.url, branch: fleet.branch });
    let policy = Policy { poll: config.args.site_poll.0.as_secs(), ..Policy::default() };
    let (mirrors, interval) = (config.args.data.join("mirrors"), config.args.interval.0);
    Options { fleet, files: config.files, mirrors, policy, interval }
}

/// One bounded step of due work, for a scheduler.
async fn once(mut publisher: Publisher) -> Result<Exit, HubError> {
    let report = publisher.step(Step::Sync).await?;
    tell(&report);
    match report {
        StepReport { held, .. } if !held.is_empty() => Ok(Exit::Held),
        StepReport { failed, .. } if !failed.is_empty() => Ok(Exit::Unreachable),
        _ => Ok(Exit::Ok),
    }
}

fn tell(report: &StepReport) {
    let StepReport { published, groups, rosters, held, failed } = report;
    let (held, failed) = (held.len(), failed.join(", "));
    info!(sequence = published, groups, rosters, held, failed, "step of publishing is done");
}

/// The publisher's loop: Git on its interval with jitter, enrolments and approvals as they come.
async fn publish(
    mut publisher: Publisher,
    interval: Duration,
    metrics: Arc<Metrics>,
    wake: Arc<Notify>,
    mut stop: watch::Receiver<bool>,
) {
    let id = ulid::Ulid::generate().to_string();
    let mut due = Instant::now();
    let mut held = Vec::new();
    let mut round = 0_u64;
    loop {
        let step = if Instant::now() >= due { Step::Sync } else { Step::Enrolments };
        // A step may be cut anywhere: what it left is made good by the next one, of anybody.
        let outcome = tokio::select! {
            outcome = publisher.step(step) => outcome,
            _ = stop.changed() => return,
        };
        match &outcome {
            Ok(report) => {
                metrics.count_step("ok");
                if let Some(sequence) = report.published {
                    metrics.sequence.set(i64::try_from(sequence).unwrap_or(i64::MAX));
                }
            }
            Err(failure) => {
                metrics.count_step("failed");
                error!(error = %chain(failure), "publishing failed; it is tried again");
            }
        }
        if step == Step::Sync {
            round += 1;
            // Up to a tenth later, by hash: replicas do not fetch in step.
            let late = interval.mul_f64(0.1 * hashed_share(&[&id, &round.to_string()]));
            let rest = if outcome.is_ok() { interval + late } else { LOOK };
            due = next_due(Instant::now(), rest, publisher.next_look().map(Instant::from_std));
            held = outcome.map(|report| report.held).unwrap_or_default();
        }
        // All three are cancel-safe: nothing is taken from any of them.
        tokio::select! {
            () = wake.notified() => {}
            () = tokio::time::sleep(due.saturating_duration_since(Instant::now()).clamp(PAUSE, LOOK)) => {}
            _ = stop.changed() => return,
        }
        if matches!(publisher.is_any_approved(&held).await, Ok(true)) {
            due = Instant::now();
        }
    }
}

/// A source may have a shorter interval of its own. One that is overdue, because the step failed before
/// it was looked at, waits as long as any failure does: else the loop would never rest.
fn next_due(now: Instant, rest: Duration, source: Option<Instant>) -> Instant {
    source.map_or(now + rest, |source| source.max(now + LOOK).min(now + rest))
}

async fn flush(seen: Arc<Seen>, objects: Arc<dyn Objects>, mut stop: watch::Receiver<bool>) {
    loop {
        // Cancel-safe: the time starts anew.
        tokio::select! {
            () = tokio::time::sleep(FLUSH) => flush_now(&seen, &*objects).await,
            _ = stop.changed() => return,
        }
    }
}

async fn flush_now(seen: &Seen, objects: &dyn Objects) {
    if let Err(failure) = seen.flush(objects).await {
        warn!(error = %chain(&failure), "last-seen times are not in the record yet");
    }
}

async fn wait_for_signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// Makes what is missing: TLS of its own, and, for a hub that is complete by itself over an empty
/// record, keys and root.
async fn prepare(config: &Config, objects: &dyn Objects) -> Result<TlsFiles, HubError> {
    let tls = match &config.tls {
        Some(tls) => tls.clone(),
        None => TlsFiles::own(&config.args.data.join("tls"))?,
    };
    let ring = Keyring::at(&config.keys);
    if config.args.role == Role::All && !ring.exists() && Trust::load(objects).await?.is_none() {
        ring.init(RootOptions { hubs: vec![], tls_pins: vec![tls.pin()?] }, now())?;
        info!(keys = %config.keys.display(), "made new keys and a trust root: keep a copy of this folder in a safe place");
    }
    Ok(tls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_by_itself_ends_the_hub_with_a_fault_and_all_other_tasks() {
        let (stop, mut stopped) = watch::channel(false);
        let ends = tokio::spawn(async {});
        let waits = tokio::spawn(async move { assert!(stopped.changed().await.is_ok()) });
        assert_eq!(until_told(stop, vec![ends, waits]).await.expect("no signal is needed"), Exit::Fault);
    }

    #[test]
    fn a_source_that_is_overdue_does_not_keep_the_publisher_from_resting() {
        let now = Instant::now() + LOOK;
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        assert_eq!(next_due(now, minute, None), now + minute);
        assert_eq!(next_due(now, minute, Some(now + 10 * second)), now + 10 * second);
        assert_eq!(next_due(now, minute, Some(now + 2 * minute)), now + minute);
        assert_eq!(next_due(now, minute, Some(now - second)), now + LOOK);
        assert_eq!(next_due(now, second, Some(now - second)), now + second);
    }
}
