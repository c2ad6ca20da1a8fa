//! A hub process from its configuration to its end.
//!
//! Tasks, and what joins them: the *server* (hears of the end by a `watch` channel), the *publisher*
//! (the same, a `Notify` when a site asks to enrol, and news from the index; its *looks* at sources and the
//! *keeper* of its mirrors are its own), the *flusher* of last-seen times (the same), the *follower* of what is
//! published (the same, and news of the index), the *writer* of reports (a queue; it ends with its last handle),
//! the *waker* of agents that wait ([`crate::waiting`]; hears of news by a `watch` channel), the *steering* of
//! the fleet ([`crate::load`]), and, where there is a publisher, the *folder* of reports (the end only). A
//! webhook that comes in the pause after another one is passed on by a task of its own, and an artifact that is sent,
//! or a large document, has one that gives it up when it makes no progress. The *watcher* of the certificate's files
//! (hears of the end as well) shows new ones to new connections.
//! In a Lambda function (`function`), and with `--once` (`stepping`), there are only those that belong to a request or
//! to the publisher itself: the writer, looks and keeper, and those of webhooks and large answers. All other work is done
//! before an event is answered, for an instance is frozen afterwards, and its tasks with it.

mod collecting;
mod error;
mod flushing;
mod folding;
#[cfg(feature = "lambda")]
mod function;
mod publishing;
mod stepping;

use std::sync::Arc;
use std::time::Duration;

use farshore_shared::clock::now;
use farshore_shared::exit::{Exit, chain};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use crate::config::{Config, HubArgs, Role};
use crate::handlers::Hub;
use crate::index::Index;
use crate::keyring::{Keyring, RootOptions};
use crate::load;
use crate::metrics;
use crate::objects::{Objects, prove_conditions};
use crate::publish::partition::Policy;
use crate::publish::{FleetRepository, Options, Publisher, Sharing, SyncOptions};
use crate::routes::Door;
use crate::server::Server;
use crate::status::Compactor;
use crate::stores::{lock_data, open_index, open_objects};
use crate::tls::{Certificate, Looked, TlsFiles};
use crate::trace;
use crate::trust::Trust;
use crate::view::View;
use crate::waiting;

use collecting::collect;
pub use error::HubError;
use flushing::Flusher;
use folding::fold;
use publishing::publish;
use stepping::{Stepper, once};

/// How long a hub that has just started only answers: a proof is a hundred writes, and whoever has waited
/// for this hub comes first.
const PROVE_AFTER: Duration = Duration::from_millis(200);
/// What `--once` may take: a slow fetch, and what comes after it.
const ONCE: Duration = Duration::from_secs(3600);
/// How often the files of the TLS certificate are looked at.
const CERTIFICATE: Duration = Duration::from_secs(5);

/// Runs a hub until it is told to stop.
///
/// It answers before it has proven that it may publish: sites that wait need no publisher. A hub that has
/// just made its keys, and one that publishes once, prove first.
///
/// # Errors
/// [`HubError`], whose [`HubError::exit`] says how the program ends.
pub async fn run(args: HubArgs) -> Result<Exit, HubError> {
    let traces = trace::start()?;
    // On the heap: it awaits deeply, and the compiler counts how deeply.
    let exit = Box::pin(run_as_told(args)).await;
    traces.end().await;
    exit
}

async fn run_as_told(args: HubArgs) -> Result<Exit, HubError> {
    let config = Config::check(args)?;
    let front = Front::of_this_process(&config)?;
    let _lock = lock_data(&config.args.data)?;
    let objects = open_objects(&config).await?;
    let index = open_index(&config)?;
    let house = House { config: Arc::new(config), objects, index };
    if front == Front::Function {
        return function::run(house).await;
    }
    let (tls, keys) = house.prepare().await?;
    let args = &house.config.args;
    let made = match args.role.publishes() && (args.once || keys == Keys::New) {
        true => Some(house.publisher().await?),
        false => None,
    };
    match made {
        Some(publisher) if args.once => once(house.stepper(publisher), ONCE).await,
        made => house.start(tls, made).await,
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

    use super::{Exit, House, HubError};

    pub(super) async fn run(_: House) -> Result<Exit, HubError> {
        unreachable!("without the feature every front is a server")
    }
}

/// What every part of the process is given.
#[derive(Clone)]
struct House {
    config: Arc<Config>,
    objects: Arc<dyn Objects>,
    index: Arc<dyn Index>,
}

impl House {
    /// A publisher, once the record is proven and its trust root is that of the keys.
    async fn publisher(&self) -> Result<Publisher, HubError> {
        prove_conditions(&*self.objects).await?;
        let trust = Trust::establish(&*self.objects, &Keyring::at(&self.config.keys)).await?;
        let (objects, index) = (Arc::clone(&self.objects), Arc::clone(&self.index));
        Ok(Publisher::new(objects, index, trust, options(&self.config)))
    }

    fn view(&self) -> View {
        let (objects, index) = (Arc::clone(&self.objects), Arc::clone(&self.index));
        View::with_room(objects, index, self.config.room())
    }

    /// What the handlers are given, whichever the door.
    fn hub(&self) -> Hub {
        Hub::new(self.view(), Arc::clone(&self.index), self.config.settings())
    }

    fn flusher(&self, hub: &Hub) -> Flusher {
        Flusher {
            view: hub.view.clone(),
            seen: Arc::clone(&hub.seen),
            index: Arc::clone(&self.index),
            objects: Arc::clone(&self.objects),
        }
    }

    /// Whoever does all due work step by step.
    fn stepper(&self, publisher: Publisher) -> Stepper {
        Stepper {
            publisher,
            compactor: Compactor::new(self.view(), Arc::clone(&self.index)),
            objects: Arc::clone(&self.objects),
            keys: self.config.keys.clone(),
            rules: self.config.rules(),
            metrics: Arc::default(),
        }
    }

    async fn start(&self, tls: Option<TlsFiles>, made: Option<Publisher>) -> Result<Exit, HubError> {
        let args = &self.config.args;
        let hub = self.hub();
        let flusher = self.flusher(&hub);
        let address = args.listen;
        let listen = |source| HubError::Listen { address, source };
        let certificate = tls.map(Certificate::load).transpose()?;
        let shown = certificate.as_ref().map(|certificate| certificate.server()).transpose()?;
        let server = Server::bind(address, shown).await.map_err(listen)?;
        let server = server.with_limits(self.config.connections());
        announce(&self.config, server.address().map_err(listen)?);
        let (stop, stopped) = watch::channel(false);
        let mut tasks = vec![spawn(flusher.clone().run(stopped.clone()))];
        if let Some(certificate) = certificate {
            tasks.push(spawn(watch_certificate(certificate, CERTIFICATE, stopped.clone())));
        }
        if args.role.serves() {
            tasks.extend(serving(&hub, &stopped));
        }
        if args.role.publishes() {
            tasks.extend(self.publishing(&hub, made, &stopped));
        }
        let door = if args.role.serves() { Door::Public } else { Door::Health };
        tasks.push(spawn(server.run(hub, door, stopped)));
        let exit = until_told(stop, tasks).await?;
        // Requests were answered while the server drained.
        flusher.flush().await;
        Ok(exit)
    }

    /// The tasks of a process that publishes.
    fn publishing(
        &self,
        hub: &Hub,
        made: Option<Publisher>,
        stopped: &watch::Receiver<bool>,
    ) -> Vec<JoinHandle<Result<(), HubError>>> {
        let compactor = Compactor::new(hub.view.clone(), Arc::clone(&self.index));
        let (keys, rules) = (self.config.keys.clone(), self.config.rules());
        let metrics = Arc::clone(&hub.metrics);
        let collecting = collect(Arc::clone(&self.objects), keys, rules, metrics, stopped.clone());
        let publishing = self.clone().publish(hub.clone(), made, stopped.clone());
        vec![tokio::spawn(publishing), spawn(collecting), spawn(fold(compactor, stopped.clone()))]
    }

    /// Proves what was not proven before, and publishes until it is stopped.
    async fn publish(
        self,
        hub: Hub,
        made: Option<Publisher>,
        mut stopped: watch::Receiver<bool>,
    ) -> Result<(), HubError> {
        let news = self.index.hear();
        let publisher = match made {
            Some(publisher) => publisher,
            // A proof that is cut leaves objects of its own, which the next one removes.
            None => tokio::select! {
                publisher = async {
                    tokio::time::sleep(PROVE_AFTER).await;
                    self.publisher().await
                } => publisher?,
                _ = stopped.changed() => return Ok(()),
            },
        };
        let heard = (self.config.args.interval.0, news);
        publish(publisher, heard, hub.metrics, hub.wake, stopped).await;
        Ok(())
    }

    /// Makes what is missing: TLS of its own, unless something else ends TLS, and, for a hub that is
    /// complete by itself over an empty record, keys and root. A certificate that is given is pinned by that
    /// root, also where it is the one before a plain hub.
    async fn prepare(&self) -> Result<(Option<TlsFiles>, Keys), HubError> {
        let config = &self.config;
        let tls = match &config.tls {
            Some(tls) => Some(tls.clone()),
            None if config.args.plain => None,
            None => Some(TlsFiles::own(&config.args.data.join("tls"))?),
        };
        let shown = tls.clone().filter(|_| !config.args.plain);
        let ring = Keyring::at(&config.keys);
        if config.args.role != Role::All || ring.exists() || Trust::load(&*self.objects).await?.is_some() {
            return Ok((shown, Keys::Old));
        }
        let tls_pins = tls.as_ref().map(TlsFiles::pin).transpose()?.into_iter().collect();
        ring.init(RootOptions { hubs: vec![], tls_pins }, now())?;
        info!(keys = %config.keys.display(), "made new keys and a trust root: keep a copy of this folder in a safe place");
        Ok((shown, Keys::New))
    }
}

/// The tasks of a process that serves, beside the server.
fn serving(hub: &Hub, stopped: &watch::Receiver<bool>) -> [JoinHandle<Result<(), HubError>>; 3] {
    let view = hub.view.clone();
    let (waiting, changed) = (Arc::clone(&hub.waiting), view.changed());
    [
        spawn(view.clone().follow(stopped.clone())),
        spawn(waiting::follow(waiting, view, changed, stopped.clone())),
        spawn(load::steer(Arc::clone(&hub.load), stopped.clone())),
    ]
}

/// A task that cannot fail.
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<Result<(), HubError>> {
    tokio::spawn(async {
        task.await;
        Ok(())
    })
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
    let sharing = if config.args.redis.is_some() { Sharing::Shared } else { Sharing::Alone };
    let (fetches, mirror_cache) = (config.args.fetches, config.args.mirror_cache);
    let sync = SyncOptions { fetches, mirror_cache, sharing, ..SyncOptions::default() };
    Options { fleet, files: config.files, mirrors, policy, interval, sync }
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

async fn wait_for_signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
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
        let ends = spawn(async {});
        let waits = spawn(async move { assert!(stopped.changed().await.is_ok()) });
        assert_eq!(until_told(stop, vec![ends, waits]).await.expect("no signal is needed"), Exit::Fault);
    }
}
