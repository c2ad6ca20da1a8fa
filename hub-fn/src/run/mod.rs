//! A hub process from its configuration to its end.
//!
//! Tasks, and what joins them: the *server* (hears of the end by a `watch` channel), the *publisher*
//! (the same, a `Notify` when a site asks to enrol, and news from the index; its *looks* at sources and the
//! *keeper* of its mirrors are its own), the *flusher* of last-seen times (the same), the *follower* of what is
//! published (the same, and news of the index), the *writer* of reports (a queue; it ends with its last handle),
//! the *waker* of agents that wait ([`crate::waiting`]; hears of news by a `watch` channel), the *steering* of
//! the fleet ([`crate::load`]), and, where there is a publisher, the *folder* of reports (the end only). A
//! webhook that comes in the pause after another one is passed on by a task of its own.

mod error;
mod flushing;
mod folding;
mod publishing;

use std::sync::Arc;

use farshore_shared::clock::now;
use farshore_shared::exit::Exit;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use crate::config::{Config, HubArgs, Role};
use crate::handlers::{Hub, Settings};
use crate::index::Index;
use crate::keyring::{Keyring, RootOptions};
use crate::load;
use crate::objects::{Objects, prove_conditions};
use crate::publish::partition::Policy;
use crate::publish::{FleetRepository, Options, Publisher, Sharing, SyncOptions};
use crate::routes::Door;
use crate::server::Server;
use crate::source::Limits;
use crate::status::Compactor;
use crate::stores::{lock_data, open_index, open_objects};
use crate::tls::TlsFiles;
use crate::trust::Trust;
use crate::view::View;
use crate::waiting::{self, WakeLimits};

pub use error::HubError;
use flushing::Flusher;
use folding::{fold, fold_once};
use publishing::{once, publish};

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
        Some(publisher) if config.args.once => {
            let exit = once(publisher).await;
            fold_once(&Compactor::new(View::new(objects, Arc::clone(&index)), index)).await;
            return exit;
        }
        publisher => publisher,
    };
    let news = index.hear();
    let view = View::with_limit(Arc::clone(&objects), Arc::clone(&index), config.args.view_limit);
    let compactor = publisher.is_some().then(|| Compactor::new(view.clone(), Arc::clone(&index)));
    let hub = Hub::new(view.clone(), Arc::clone(&index), settings(&config));
    let flusher = Flusher { view, seen: Arc::clone(&hub.seen), index, objects };
    let (metrics, wake) = (Arc::clone(&hub.metrics), Arc::clone(&hub.wake));
    let address = config.args.listen;
    let listen = |source| HubError::Listen { address, source };
    let server = Server::bind(address, Some(tls.server()?)).await.map_err(listen)?;
    announce(&config, server.address().map_err(listen)?);
    let (stop, stopped) = watch::channel(false);
    let door = if config.args.role.serves() { Door::Public } else { Door::Health };
    let following = config.args.role.serves().then(|| tokio::spawn(hub.view.clone().follow(stopped.clone())));
    let (waiting, changed) = (Arc::clone(&hub.waiting), hub.view.changed());
    let waking = tokio::spawn(waiting::follow(waiting, hub.view.clone(), changed, stopped.clone()));
    let steering = tokio::spawn(load::steer(Arc::clone(&hub.load), stopped.clone()));
    let serving = tokio::spawn(server.run(hub, door, stopped.clone()));
    let flushing = tokio::spawn(flusher.clone().run(stopped.clone()));
    let folding = compactor.map(|compactor| tokio::spawn(fold(compactor, stopped.clone())));
    let publishing = publisher.map(|publisher| {
        let heard = (config.args.interval.0, news);
        tokio::spawn(publish(publisher, heard, metrics, wake, stopped.clone()))
    });
    let tasks = [Some(serving), following, Some(waking), Some(steering), Some(flushing), folding, publishing]
        .into_iter()
        .flatten();
    let exit = until_told(stop, tasks.collect()).await?;
    // Requests were answered while the server drained.
    flusher.flush().await;
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
    let grace = if config.args.once { Limits::default().total } else { SyncOptions::default().grace };
    let sharing = if config.args.redis.is_some() { Sharing::Shared } else { Sharing::Alone };
    let (fetches, mirror_cache) = (config.args.fetches, config.args.mirror_cache);
    let sync = SyncOptions { fetches, grace, mirror_cache, sharing, ..SyncOptions::default() };
    Options { fleet, files: config.files, mirrors, policy, interval, sync }
}

/// What this process takes on.
fn settings(config: &Config) -> Settings {
    let args = &config.args;
    let load = load::Limits {
        polls: args.poll_rate_limit,
        interval: args.site_poll.0,
        cluster: args.cluster_rate_limit,
        artifacts: args.artifact_limit as usize,
    };
    let wake = WakeLimits { waiting: args.wake_limit as usize, rate: args.wake_rate };
    Settings { load, wake, hooks: args.hook_secrets.clone() }
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
}
