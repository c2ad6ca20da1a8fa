//! A hub process from its configuration to its end.
//!
//! Tasks, and what joins them: the *server* (hears of the end by a `watch` channel), the *publisher*
//! (the same, and a `Notify` when a site asks to enrol), the *flusher* of last-seen times and the *collector*
//! of what nobody needs (the same).

mod collecting;
mod error;
mod publishing;

use std::sync::Arc;
use std::time::Duration;

use farshore_shared::clock::now;
use farshore_shared::exit::{Exit, chain};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use crate::auth::Gate;
use crate::config::{Config, HubArgs, Role};
use crate::handlers::Hub;
use crate::handlers::trust::Roots;
use crate::index::Index;
use crate::keyring::{Keyring, RootOptions};
use crate::metrics::Metrics;
use crate::objects::{Objects, prove_conditions};
use crate::publish::partition::Policy;
use crate::publish::{FleetRepository, Options, Publisher};
use crate::routes::Door;
use crate::seen::Seen;
use crate::server::Server;
use crate::stores::{lock_data, open_index, open_objects};
use crate::tls::TlsFiles;
use crate::trust::Trust;
use crate::view::View;

use collecting::collect;
pub use error::HubError;
use publishing::{once, publish};

/// How often last-seen times are flushed.
const FLUSH: Duration = Duration::from_secs(15);

/// How long a hub that has just started only answers: a proof is a hundred writes, and whoever has waited
/// for this hub comes first.
const PROVE_AFTER: Duration = Duration::from_millis(200);

/// Runs a hub until it is told to stop.
///
/// It answers before it has proven that it may publish: sites that wait need no publisher. A hub that has
/// just made its keys, and one that publishes once, prove first.
///
/// # Errors
/// [`HubError`], whose [`HubError::exit`] says how the program ends.
pub async fn run(args: HubArgs) -> Result<Exit, HubError> {
    let config = Config::check(args)?;
    let _lock = lock_data(&config.args.data)?;
    let objects = open_objects(&config).await?;
    let index = open_index(&config)?;
    let (tls, keys) = prepare(&config, &*objects).await?;
    let publishes = config.args.role.publishes();
    let publisher = if publishes && (config.args.once || keys == Keys::New) {
        Some(publisher(&config, &objects, &index).await?)
    } else {
        None
    };
    match publisher {
        Some(publisher) if config.args.once => once(publisher).await,
        publisher => start(config, objects, index, tls, publisher).await,
    }
}

/// A publisher, once the record is proven and its trust root is that of the keys.
async fn publisher(
    config: &Config,
    objects: &Arc<dyn Objects>,
    index: &Arc<dyn Index>,
) -> Result<Publisher, HubError> {
    prove_conditions(&**objects).await?;
    let trust = Trust::establish(&**objects, &Keyring::at(&config.keys)).await?;
    Ok(Publisher::new(Arc::clone(objects), Arc::clone(index), trust, options(config)))
}

async fn start(
    config: Config,
    objects: Arc<dyn Objects>,
    index: Arc<dyn Index>,
    tls: TlsFiles,
    made: Option<Publisher>,
) -> Result<Exit, HubError> {
    let view = View::new(Arc::clone(&objects), Arc::clone(&index));
    let (metrics, seen, wake) =
        (Arc::new(Metrics::new()), Arc::new(Seen::default()), Arc::new(Notify::new()));
    let hub = Hub {
        gate: Gate::new(view.clone()),
        view,
        seen: Arc::clone(&seen),
        metrics: Arc::clone(&metrics),
        wake: Arc::clone(&wake),
        delivery: config.delivery(),
        roots: Roots::default(),
    };
    let address = config.args.listen;
    let listen = |source| HubError::Listen { address, source };
    let server = Server::bind(address, Some(tls.server()?)).await.map_err(listen)?;
    announce(&config, server.address().map_err(listen)?);
    let (stop, stopped) = watch::channel(false);
    let door = if config.args.role.serves() { Door::Public } else { Door::Health };
    let mut tasks = vec![
        spawn(server.run(hub, door, stopped.clone())),
        spawn(flush(Arc::clone(&seen), Arc::clone(&objects), stopped.clone())),
    ];
    if config.args.role.publishes() {
        let (keys, rules) = (config.keys.clone(), config.rules());
        let collecting = collect(Arc::clone(&objects), keys, rules, Arc::clone(&metrics), stopped.clone());
        let house = House { config, objects: Arc::clone(&objects), index, metrics, wake };
        tasks.push(tokio::spawn(house.publishing(made, stopped)));
        tasks.push(spawn(collecting));
    }
    let exit = until_told(stop, tasks).await?;
    // Requests were answered while the server drained.
    flush_now(&seen, &*objects).await;
    Ok(exit)
}

/// A task that cannot fail.
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<Result<(), HubError>> {
    tokio::spawn(async {
        task.await;
        Ok(())
    })
}

/// What the publisher's task is given.
struct House {
    config: Config,
    objects: Arc<dyn Objects>,
    index: Arc<dyn Index>,
    metrics: Arc<Metrics>,
    wake: Arc<Notify>,
}

impl House {
    /// Proves what was not proven before, and publishes until it is stopped.
    async fn publishing(
        self,
        made: Option<Publisher>,
        mut stopped: watch::Receiver<bool>,
    ) -> Result<(), HubError> {
        let Self { config, objects, index, metrics, wake } = self;
        let publisher = match made {
            Some(publisher) => publisher,
            // A proof that is cut leaves objects of its own, which the next one removes.
            None => tokio::select! {
                publisher = async {
                    tokio::time::sleep(PROVE_AFTER).await;
                    publisher(&config, &objects, &index).await
                } => publisher?,
                _ = stopped.changed() => return Ok(()),
            },
        };
        publish(publisher, config.args.interval.0, metrics, wake, stopped).await;
        Ok(())
    }
}

/// Waits for a signal, or for a task that ends although nobody told it to: half a hub is none, and
/// whoever supervises the process starts it again. Then all tasks end.
async fn until_told(
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<Result<(), HubError>>>,
) -> Result<Exit, HubError> {
    let mut tasks: FuturesUnordered<_> = tasks.into_iter().collect();
    let exit = tokio::select! {
        told = wait_for_signal() => told.map(|()| Exit::Ok).map_err(HubError::Signals),
        ended = tasks.next() => match ended {
            Some(Ok(Err(failure))) => Err(failure),
            ended => {
                error!(?ended, "a task ended although the hub runs");
                Ok(Exit::Fault)
            }
        }
    };
    info!("stopping");
    // Nobody left to hear it is as good.
    let _ = stop.send(true);
    while let Some(ended) = tasks.next().await {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => error!(error = %chain(&failure), "a task ended badly"),
            Err(failure) => error!(%failure, "a task ended badly"),
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
async fn prepare(config: &Config, objects: &dyn Objects) -> Result<(TlsFiles, Keys), HubError> {
    let tls = match &config.tls {
        Some(tls) => tls.clone(),
        None => TlsFiles::own(&config.args.data.join("tls"))?,
    };
    let ring = Keyring::at(&config.keys);
    if config.args.role != Role::All || ring.exists() || Trust::load(objects).await?.is_some() {
        return Ok((tls, Keys::Old));
    }
    ring.init(RootOptions { hubs: vec![], tls_pins: vec![tls.pin()?] }, now())?;
    info!(keys = %config.keys.display(), "made new keys and a trust root: keep a copy of this folder in a safe place");
    Ok((tls, Keys::New))
}

/// Whether the keys were there before this start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    New,
    Old,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_by_itself_ends_the_hub_with_a_fault_and_all_other_tasks() {
        let (stop, mut stopped) = watch::channel(false);
        let ends = spawn(async {});
        let waits = spawn(async move { assert!(stopped.changed().await.is_ok()) });
        assert_eq!(until_told(stop, vec![ends, waits]).await.expect("no signal is needed"), Exit::Fault);
    }
}
