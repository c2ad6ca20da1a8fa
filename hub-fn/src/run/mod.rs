//! A hub process from its configuration to its end.
//!
//! Tasks, and what joins them: the *server* (hears of the end by a `watch` channel), the *publisher*
//! (the same, and a `Notify` when a site asks to enrol), the *flusher* of last-seen times (the same), the
//! *follower* of what is published (the same, and news of the index), the *writer* of reports (a queue; it ends
//! with its last handle), and, where there is a publisher, the *folder* of reports (the end only).

mod error;
mod flushing;
mod folding;
mod publishing;

use std::sync::Arc;

use farshore_shared::clock::now;
use farshore_shared::exit::Exit;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use crate::auth::Gate;
use crate::config::{Config, HubArgs, Role};
use crate::handlers::Hub;
use crate::index::Index;
use crate::keyring::{Keyring, RootOptions};
use crate::metrics::Metrics;
use crate::objects::{Objects, prove_conditions};
use crate::publish::partition::Policy;
use crate::publish::{FleetRepository, Options, Publisher, Sharing, SyncOptions};
use crate::routes::Door;
use crate::seen::Seen;
use crate::server::Server;
use crate::source::Limits;
use crate::status::{Compactor, Statuses, Writer};
use crate::stores::{lock_data, open_index, open_objects};
use crate::tls::TlsFiles;
use crate::trust::Trust;
use crate::view::View;

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
    tls: Option<TlsFiles>,
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
    let (metrics, seen, wake) =
        (Arc::new(Metrics::new()), Arc::new(Seen::default()), Arc::new(Notify::new()));
    let gate = Gate::new(view.clone());
    let compactor = publisher.is_some().then(|| Compactor::new(view.clone(), Arc::clone(&index)));
    let flusher = Flusher {
        view: view.clone(),
        seen: Arc::clone(&seen),
        index: Arc::clone(&index),
        objects: Arc::clone(&objects),
    };
    let followed = view.clone();
    let hub = Hub {
        statuses: Statuses::new(&view, Arc::clone(&index)),
        view,
        gate,
        seen,
        metrics: Arc::clone(&metrics),
        reports: Writer::start(Arc::clone(&objects)),
        wake: Arc::clone(&wake),
    };
    let address = config.args.listen;
    let listen = |source| HubError::Listen { address, source };
    let server = bind(address, tls.as_ref()).await?;
    announce(&config, server.address().map_err(listen)?);
    let (stop, stopped) = watch::channel(false);
    let door = if config.args.role.serves() { Door::Public } else { Door::Health };
    let serving = tokio::spawn(server.run(hub, door, stopped.clone()));
    let following = config.args.role.serves().then(|| tokio::spawn(followed.follow(stopped.clone())));
    let flushing = tokio::spawn(flusher.clone().run(stopped.clone()));
    let folding = compactor.map(|compactor| tokio::spawn(fold(compactor, stopped.clone())));
    let publishing = publisher.map(|publisher| {
        let heard = (config.args.interval.0, news);
        tokio::spawn(publish(publisher, heard, metrics, wake, stopped.clone()))
    });
    let tasks = [Some(serving), following, Some(flushing), folding, publishing].into_iter().flatten();
    let exit = until_told(stop, tasks.collect()).await?;
    // Requests were answered while the server drained.
    flusher.flush().await;
    Ok(exit)
}

/// Listens, with TLS unless something else ends it.
async fn bind(address: std::net::SocketAddr, tls: Option<&TlsFiles>) -> Result<Server, HubError> {
    let tls = tls.map(TlsFiles::server).transpose()?;
    Server::bind(address, tls).await.map_err(|source| HubError::Listen { address, source })
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
    let scheme = if config.args.plain { "http" } else { "https" };
    info!(?role, data = %config.args.data.display(), "listening on {scheme}://{address}");
    if config.args.plain && !address.ip().is_loopback() {
        warn!("this address is not encrypted: only what ends TLS for sites may reach it (--plain)");
    }
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

async fn wait_for_signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// Makes what is missing: TLS of its own, unless something else ends TLS, and, for a hub that is complete
/// by itself over an empty record, keys and root. A certificate that is given is pinned by that root, also
/// where it is the one before a plain hub.
async fn prepare(config: &Config, objects: &dyn Objects) -> Result<Option<TlsFiles>, HubError> {
    let tls = match &config.tls {
        Some(tls) => Some(tls.clone()),
        None if config.args.plain => None,
        None => Some(TlsFiles::own(&config.args.data.join("tls"))?),
    };
    let ring = Keyring::at(&config.keys);
    if config.args.role == Role::All && !ring.exists() && Trust::load(objects).await?.is_none() {
        let tls_pins = tls.as_ref().map(TlsFiles::pin).transpose()?.into_iter().collect();
        ring.init(RootOptions { hubs: vec![], tls_pins }, now())?;
        info!(keys = %config.keys.display(), "made new keys and a trust root: keep a copy of this folder in a safe place");
    }
    Ok(tls.filter(|_| !config.args.plain))
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
