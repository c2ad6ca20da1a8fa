//! A hub process from its configuration to its end.
//!
//! Tasks, and what joins them: the *server* (hears of the end by a `watch` channel), the *publisher*
//! (the same, and a `Notify` when a site asks to enrol), the *flusher* of last-seen times (the same).
//! The *watcher* of the certificate's files (hears of the end as well) shows new ones to new connections.
//! In a Lambda function (`function`) there are no tasks: all is done before an event is answered.

mod error;
#[cfg(feature = "lambda")]
mod function;
mod publishing;

use std::sync::Arc;
use std::time::Duration;

use farshore_shared::clock::now;
use farshore_shared::exit::{Exit, chain};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use crate::auth::Gate;
use crate::config::{Config, HubArgs, Role};
use crate::handlers::Hub;
use crate::index::Index;
use crate::keyring::{Keyring, RootOptions};
use crate::metrics::{self, Metrics};
use crate::objects::{Objects, prove_conditions};
use crate::publish::partition::Policy;
use crate::publish::{FleetRepository, Options, Publisher};
use crate::routes::Door;
use crate::seen::Seen;
use crate::server::Server;
use crate::stores::{lock_data, open_index, open_objects};
use crate::tls::{Certificate, Looked, TlsFiles};
use crate::trace;
use crate::trust::Trust;
use crate::view::View;

pub use error::HubError;
use publishing::{once, publish};

/// How often last-seen times are flushed.
const FLUSH: Duration = Duration::from_secs(15);
/// How often the files of the TLS certificate are looked at.
const CERTIFICATE: Duration = Duration::from_secs(5);

/// Runs a hub until it is told to stop.
///
/// # Errors
/// [`HubError`], whose [`HubError::exit`] says how the program ends.
pub async fn run(args: HubArgs) -> Result<Exit, HubError> {
    let traces = trace::start()?;
    let exit = run_as_told(args).await;
    traces.end().await;
    exit
}

async fn run_as_told(args: HubArgs) -> Result<Exit, HubError> {
    let config = Config::check(args)?;
    let front = Front::of_this_process(&config)?;
    let _lock = lock_data(&config.args.data)?;
    let objects = open_objects(&config).await?;
    let index = open_index(&config)?;
    let tls = match front {
        Front::Server => Some(prepare(&config, &*objects).await?),
        Front::Function => None,
    };
    let publisher = if config.args.role.publishes() {
        prove_conditions(&*objects).await?;
        let trust = Trust::establish(&*objects, &Keyring::at(&config.keys)).await?;
        Some(Publisher::new(Arc::clone(&objects), Arc::clone(&index), trust, options(&config)))
    } else {
        None
    };
    match tls {
        Some(tls) => start(config, objects, index, tls, publisher).await,
        None => function::run(objects, index, publisher).await,
    }
}

/// Where requests come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Front {
    /// A listener of this process.
    Server,
    /// The runtime API of AWS Lambda.
    Function,
}

impl Front {
    #[cfg(feature = "lambda")]
    fn of_this_process(config: &Config) -> Result<Self, HubError> {
        if !crate::lambda::is_here() {
            return Ok(Self::Server);
        }
        function::check(config)?;
        Ok(Self::Function)
    }

    #[cfg(not(feature = "lambda"))]
    #[expect(clippy::unnecessary_wraps, reason = "with the feature it can fail")]
    fn of_this_process(_: &Config) -> Result<Self, HubError> {
        Ok(Self::Server)
    }
}

#[cfg(not(feature = "lambda"))]
mod function {
    //! Left out of this program.

    use super::{Arc, Exit, HubError, Index, Objects, Publisher};

    pub(super) async fn run(
        _: Arc<dyn Objects>,
        _: Arc<dyn Index>,
        _: Option<Publisher>,
    ) -> Result<Exit, HubError> {
        unreachable!("without the feature every front is a server")
    }
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
    let hub = hub(&objects, index);
    let (metrics, seen, wake) = (Arc::clone(&hub.metrics), Arc::clone(&hub.seen), Arc::clone(&hub.wake));
    let address = config.args.listen;
    let listen = |source| HubError::Listen { address, source };
    let certificate = Certificate::load(tls)?;
    let server = Server::bind(address, Some(certificate.server()?)).await.map_err(listen)?;
    announce(&config, server.address().map_err(listen)?);
    let (stop, stopped) = watch::channel(false);
    let door = if config.args.role.serves() { Door::Public } else { Door::Health };
    let serving = tokio::spawn(server.run(hub, door, stopped.clone()));
    let flushing = tokio::spawn(flush(Arc::clone(&seen), Arc::clone(&objects), stopped.clone()));
    let watching = tokio::spawn(watch_certificate(certificate, CERTIFICATE, stopped.clone()));
    let publishing = publisher.map(|publisher| {
        tokio::spawn(publish(publisher, config.args.interval.0, metrics, wake, stopped.clone()))
    });
    let tasks = [Some(serving), Some(flushing), Some(watching), publishing].into_iter().flatten();
    let exit = until_told(stop, tasks.collect()).await?;
    // Requests were answered while the server drained.
    flush_now(&seen, &*objects).await;
    Ok(exit)
}

/// What the handlers are given, whichever the door.
fn hub(objects: &Arc<dyn Objects>, index: Arc<dyn Index>) -> Hub {
    let view = View::new(Arc::clone(objects), index);
    let gate = Gate::new(view.clone());
    Hub { view, gate, seen: Arc::default(), metrics: Arc::new(Metrics::new()), wake: Arc::default() }
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

async fn flush(seen: Arc<Seen>, objects: Arc<dyn Objects>, mut stop: watch::Receiver<bool>) {
    loop {
        // Cancel-safe: the time starts anew.
        tokio::select! {
            () = tokio::time::sleep(FLUSH) => flush_now(&seen, &*objects).await,
            _ = stop.changed() => return,
        }
    }
}

/// Shows a new certificate once its files are there.
async fn watch_certificate(certificate: Arc<Certificate>, every: Duration, mut stop: watch::Receiver<bool>) {
    loop {
        // Cancel-safe: the time starts anew.
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            _ = stop.changed() => return,
        }
        let looking = Arc::clone(&certificate);
        match tokio::task::spawn_blocking(move || looking.look()).await {
            Ok(Ok(Looked::Same)) => {}
            Ok(Ok(Looked::Replaced)) => {
                metrics::tls().replaced.inc();
                info!("new TLS certificate is shown to new connections");
            }
            Ok(Err(failure)) => {
                metrics::tls().refused.inc();
                error!(error = %chain(&failure), "new TLS certificate cannot be used; the one before is still shown");
            }
            Err(failure) => error!(%failure, "looking at the TLS certificate failed"),
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
    async fn a_new_certificate_is_found_without_a_restart() {
        let (folder, other) =
            (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let files = TlsFiles::own(folder.path()).expect("an empty folder");
        let new = TlsFiles::own(other.path()).expect("an empty folder");
        let certificate = Certificate::load(files.clone()).expect("a pair");
        let (stop, stopped) = watch::channel(false);
        let watching = tokio::spawn(watch_certificate(certificate, Duration::from_millis(1), stopped));
        let until = async |what: &str, counter: &prometheus::IntCounter| {
            farshore_chaos::kit::wait_for(what, Duration::from_secs(30), async || {
                if counter.get() == 0 { Err("not yet".to_owned()) } else { Ok(()) }
            })
            .await
            .expect("it is found");
        };
        std::fs::rename(&new.key, &files.key).expect("one file system");
        until("the pair that does not go together", &metrics::tls().refused).await;
        std::fs::rename(&new.cert, &files.cert).expect("one file system");
        until("the new pair", &metrics::tls().replaced).await;
        stop.send(true).expect("it runs");
        watching.await.expect("it ends");
    }

    #[tokio::test]
    async fn a_task_that_ends_by_itself_ends_the_hub_with_a_fault_and_all_other_tasks() {
        let (stop, mut stopped) = watch::channel(false);
        let ends = tokio::spawn(async {});
        let waits = tokio::spawn(async move { assert!(stopped.changed().await.is_ok()) });
        assert_eq!(until_told(stop, vec![ends, waits]).await.expect("no signal is needed"), Exit::Fault);
    }
}
