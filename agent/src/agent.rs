//! The agent: boots from what is held, then lets the reconciler and the courier work, and tells of it.
//!
//! Tasks, and what joins them: the *reconciler* ([`crate::reconcile`]; hears orders by a `watch`
//! channel, tells of passes by an `mpsc` channel), the *mender* ([`crate::drift::mender`]; hears the
//! target, tells of repairs by an `mpsc` channel, and takes turns with the reconciler), the *courier*
//! ([`crate::courier`]; the other ends, the outbox and its `Notify`), and this loop. Beside them, and with nobody who
//! waits for them: the *watcher* ([`crate::controls::watcher`]; asks the reconciler for a look), and three that hear what
//! is known by a `watch` channel: the *keeper* ([`crate::local::keeper`]), the *announcer*
//! ([`crate::announce::announcer`]) and the *page* ([`crate::page`], with a task per connection).

mod beside;
mod ends;
mod passes;

#[cfg(feature = "kubernetes")]
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farshore_shared::clock;
use farshore_shared::exit::{Exit, chain};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{error, info, warn};

#[cfg(feature = "kubernetes")]
use crate::accounts::Accounts;
use crate::accounts::AccountsError;
use beside::beside;
use ends::{Stops, Task};
use passes::reconcile;

use crate::announce::{Board, Nowhere};
use crate::command::SiteError;
use crate::config::{AgentArgs, TargetSpec};
use crate::courier::{Courier, Notice, POLL};
use crate::drift::journal;
use crate::drift::mender::Mended;
use crate::identity::JoinError;
use crate::local::keeper;
use crate::local::teller::{About, Teller};
use crate::page::{Page, PageError};
use crate::reconcile::{Orders, Pass, Reconciler};
use crate::render::Tools;
use crate::report::{News, Reporter};
use crate::schedule;
use crate::store::{Found, Keys, Outbox, State, Store, StoreError, outbox};
use crate::target::Target;
use crate::target::directory::Directory;
#[cfg(feature = "kubernetes")]
use crate::target::kubernetes::{Kubernetes, Options};

/// About how often everything is told anew, changed or not.
const FULL: Duration = Duration::from_secs(2 * 3600);
/// How long an agent that takes over waits for the one before it to leave the state folder.
const LEAVING: Duration = Duration::from_secs(30);

/// Why an agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The state folder.
    #[error("using the state folder")]
    Store(#[from] StoreError),
    /// The site cannot join its fleet.
    #[error("joining the fleet")]
    Join(#[source] JoinError),
    /// The target is described wrongly.
    #[error("preparing the target")]
    Target(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The site's list of accounts.
    #[error(transparent)]
    Accounts(AccountsError),
    /// A folder knows nobody.
    #[error("accounts are of a cluster: --accounts needs --target kubernetes")]
    NoAccounts,
    /// A signal handler.
    #[error("waiting for signals")]
    Signals(#[source] std::io::Error),
    /// The status page.
    #[error("opening the status page")]
    Page(#[source] PageError),
    /// A command for the site.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// A task that never ends did: whoever started this program has to start it again.
    #[error("the agent cannot go on ({0} stopped)")]
    Stopped(&'static str),
}

impl AgentError {
    /// How a program ends with it.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Join(JoinError::TokenNeeded) | Self::NoAccounts => Exit::Usage,
            Self::Store(_) | Self::Join(_) | Self::Target(_) | Self::Accounts(_) | Self::Page(_) => {
                Exit::BadInput
            }
            Self::Site(error) => error.exit(),
            Self::Signals(_) | Self::Stopped(_) => Exit::Fault,
        }
    }
}

/// Runs an agent until it is told to stop.
///
/// # Errors
/// [`AgentError`], whose [`AgentError::exit`] says how the program ends.
pub async fn run(args: AgentArgs) -> Result<Exit, AgentError> {
    // A folder that cannot be read is told of by whoever opens it.
    let contact = keeper::contact(&args.state).unwrap_or_default();
    let teller = Teller::new(about(&args), contact);
    // From here on: a signal that comes while something is waited for is heard after it.
    let mut stops = Stops::open()?;
    let mut page = JoinSet::new();
    if let Some(address) = args.status_address {
        let opened = Page::open(address, args.state.clone(), teller.listener()).await;
        page.spawn(opened.map_err(AgentError::Page)?.serve());
    }
    match args.target.clone() {
        TargetSpec::Directory(_) if args.accounts.is_some() => Err(AgentError::NoAccounts),
        TargetSpec::Directory(_) if args.leader_elect.is_some() => Err(AgentError::Target(
            "a lease is in a cluster: --leader-elect needs --target kubernetes".into(),
        )),
        TargetSpec::Directory(path) => {
            run_with(args, Directory::open(path), None::<Nowhere>, &teller, &mut stops).await
        }
        TargetSpec::Kubernetes => kubernetes(args, &teller, &mut stops).await,
    }
}

#[cfg(feature = "kubernetes")]
async fn kubernetes(args: AgentArgs, teller: &Teller, stops: &mut Stops) -> Result<Exit, AgentError> {
    use crate::config::Announces;
    use crate::footprint::IN_FLIGHT;
    use crate::lead::{self, Elector};
    // What is held by the site is not read yet; whoever asks before that keeps to the site's own word.
    let in_flight = args.in_flight.unwrap_or(IN_FLIGHT);
    let options = Options { in_flight, per_second: args.qps, ..Options::default() };
    let target = connect(args.kubeconfig.as_deref(), args.accounts.as_deref(), options).await?;
    info!(api = target.url(), "Kubernetes");
    let board = (args.announce == Announces::On).then(|| target.announcements());
    let Some(lease) = args.leader_elect.clone() else {
        return run_with(args, target, board, teller, stops).await;
    };
    let mut elector = Elector::new(target.lease(lease.clone()), lead::own_name());
    loop {
        teller.stands_by(true);
        // Cancel-safe: nothing is held before the first of both ends.
        tokio::select! {
            () = elector.until_leading() => {}
            () = stops.asked() => return Ok(Exit::Ok),
        }
        teller.stands_by(false);
        // Cancel-safe: the agent may be cut anywhere, and all its tasks end with it.
        let end = tokio::select! {
            end = run_with(args.clone(), target.clone(), board.clone(), teller, stops) => Some(end),
            () = elector.until_lost() => None,
        };
        if let Some(end) = end {
            elector.give_back().await;
            return end;
        }
    }
}

/// The way to a cluster, with the site's list of accounts, if it has one.
///
/// # Errors
/// [`AgentError::Target`], [`AgentError::Accounts`].
#[cfg(feature = "kubernetes")]
pub async fn connect(
    kubeconfig: Option<&Path>,
    accounts: Option<&Path>,
    options: Options,
) -> Result<Kubernetes, AgentError> {
    let accounts = accounts.map(Accounts::read).transpose().map_err(AgentError::Accounts)?;
    let target = Kubernetes::connect(kubeconfig, options).await;
    let target = target.map_err(|error| AgentError::Target(error.into()))?;
    match accounts {
        Some(accounts) => target.with_accounts(accounts).map_err(|error| AgentError::Target(error.into())),
        None => Ok(target),
    }
}

#[cfg(not(feature = "kubernetes"))]
async fn kubernetes(_: AgentArgs, _: &Teller, _: &mut Stops) -> Result<Exit, AgentError> {
    Err(AgentError::Target("this program was built without Kubernetes (feature kubernetes)".into()))
}

async fn run_with<T: Target, B: Board>(
    args: AgentArgs,
    target: T,
    board: Option<B>,
    teller: &Teller,
    stops: &mut Stops,
) -> Result<Exit, AgentError> {
    let Some(store) = entered(&args, stops).await? else { return Ok(Exit::Ok) };
    let keys = Arc::new(store.keys(&args.name)?);
    let state = store.state()?;
    greet(&args, &state);
    let outbox = Arc::new(Mutex::new(store.outbox(outbox::DEFAULT_LIMIT)?));
    let holding = holds(&store, &state)?;
    let documents = state.documents.clone().good().map(Arc::new);
    let (orders, ordered) = watch::channel(Orders { documents, prune: state.prune });
    let (passes, passed) = mpsc::channel(4);
    let (notices, noticed) = mpsc::channel(4);
    let (mended, mends) = mpsc::channel(16);
    let (told, poll) = (Arc::new(Notify::new()), args.poll.map(|poll| poll.0));
    let tools = Tools::find(|name| std::env::var_os(name));
    let reconciler =
        Reconciler::new(Arc::clone(&store), target, args.name.clone(), tools).within(args.windows());
    let _beside = beside(&args, board, teller, reconciler.shared());
    let courier = Courier {
        store,
        keys: Arc::clone(&keys),
        hub: args.hub.clone(),
        join: args.join.clone(),
        poll,
        wakes: args.wake,
        held: state.held(),
        prune: state.prune,
        orders,
        outbox: Arc::clone(&outbox),
        told: Arc::clone(&told),
        notices,
    };
    let mut mending = Task(tokio::spawn(reconciler.mender(mended).run()));
    let mut reconciling = Task(tokio::spawn(reconcile(reconciler, ordered, passes, args.clone())));
    let mut talking = Task(tokio::spawn(courier.run()));
    let (reporter, alarms) = (Reporter::default(), state.alarms);
    let desk = Desk { keys, outbox, told, reporter, pass: None, alarms, poll, holding, teller };
    // Cancel-safe: whichever ends, all of it does. All may be cut anywhere: what they write is whole or invisible.
    tokio::select! {
        end = desk.run(passed, mends, noticed, stops) => end,
        _ = &mut mending.0 => Err(AgentError::Stopped("the mender")),
        _ = &mut reconciling.0 => Err(AgentError::Stopped("the reconciler")),
        () = died(&mut talking.0) => Err(AgentError::Stopped("the courier")),
    }
}

/// Opens the state folder, unless this program is asked to end before that.
async fn entered(args: &AgentArgs, stops: &mut Stops) -> Result<Option<Arc<Store>>, StoreError> {
    // Cancel-safe: a folder that is not open yet is not held.
    tokio::select! {
        opened = open(args) => Ok(Some(Arc::new(opened?))),
        () = stops.asked() => Ok(None),
    }
}

/// Opens the state folder. Where several agents take turns, the one before may still be leaving it.
async fn open(args: &AgentArgs) -> Result<Store, StoreError> {
    let until = Instant::now() + LEAVING;
    loop {
        match Store::open(&args.state) {
            Err(StoreError::Locked { .. }) if args.leader_elect.is_some() && Instant::now() < until => {
                sleep(Duration::from_millis(200)).await;
            }
            opened => return opened,
        }
    }
}

/// Ends when a task broke. One that came to its end has said why.
async fn died(task: &mut JoinHandle<()>) {
    if task.await.is_ok() {
        std::future::pending::<()>().await;
    }
}

/// Whether there is anything to keep, so that this site goes on without a fleet. What is corrupt was
/// something.
fn holds(store: &Store, state: &State) -> Result<Holding, StoreError> {
    let documents = !matches!(state.documents, Found::Absent);
    let any = documents || !store.services_with_inventory()?.is_empty();
    Ok(if any { Holding::Something } else { Holding::Nothing })
}

fn about(args: &AgentArgs) -> About {
    About {
        cluster: args.name.clone(),
        hub: args.hub.to_string(),
        target: args.target.to_string(),
        windows: args.window.iter().map(ToString::to_string).collect(),
    }
}

fn greet(args: &AgentArgs, state: &State) {
    for alarm in &state.alarms {
        warn!("{alarm}");
    }
    match state.documents.clone().good() {
        Some(documents) => {
            let (group, services) = (documents.group.sequence, documents.group.services.len());
            info!(cluster = %args.name, group, services, "enforcing what is held");
        }
        None => info!(cluster = %args.name, "nothing is held yet"),
    }
}

/// Where passes become reports.
struct Desk<'a> {
    keys: Arc<Keys>,
    outbox: Arc<Mutex<Outbox>>,
    told: Arc<Notify>,
    reporter: Reporter,
    pass: Option<Pass>,
    alarms: Vec<String>,
    poll: Option<Duration>,
    /// As it was at the start.
    holding: Holding,
    teller: &'a Teller,
}

/// Whether a site has anything to enforce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holding {
    Nothing,
    Something,
}

impl Desk<'_> {
    async fn run(
        mut self,
        mut passed: mpsc::Receiver<Pass>,
        mut mends: mpsc::Receiver<Mended>,
        mut noticed: mpsc::Receiver<Notice>,
        stops: &mut Stops,
    ) -> Result<Exit, AgentError> {
        let mut refresh = Instant::now() + FULL;
        loop {
            // Cancel-safe: receiving takes a message or nothing, and the time is kept outside.
            tokio::select! {
                Some(pass) = passed.recv() => self.pass = Some(pass),
                Some(mended) = mends.recv() => self.mended(mended),
                Some(notice) = noticed.recv() => match notice {
                    Notice::Alarms(alarms) => {
                        self.alarms = alarms;
                        self.teller.heard();
                    }
                    Notice::Silent(why) => self.teller.silent(why),
                    Notice::CannotJoin(failure) => self.cannot_join(failure)?,
                },
                () = sleep_until(refresh) => {
                    self.reporter.refresh();
                    refresh = Instant::now() + schedule::about(self.keys.cluster.as_str(), FULL, 0);
                }
                () = stops.asked() => return Ok(Exit::Ok),
            }
            self.tell();
        }
    }

    /// A site that enforces something goes on without a fleet; one that holds nothing has nothing to do.
    fn cannot_join(&mut self, failure: JoinError) -> Result<(), AgentError> {
        if self.holding == Holding::Nothing {
            return Err(AgentError::Join(failure));
        }
        error!(error = %chain(&failure), "this site cannot call its hub; what is held stays in force");
        self.alarms = vec![chain(&failure)];
        Ok(())
    }

    /// What was put back between two passes belongs to what the last one found.
    fn mended(&mut self, mended: Mended) {
        let services = self.pass.iter_mut().flat_map(|pass| &mut pass.services);
        if let Some(status) = services.into_iter().find(|status| status.name == mended.service) {
            (status.repairs, status.drift) = (mended.repairs, mended.drift);
        }
    }

    fn tell(&mut self) {
        let Some(mut pass) = self.pass.clone() else { return };
        let drift = pass.services.iter().flat_map(|status| journal::alarms(&status.name, &status.drift));
        let drift: Vec<String> = drift.collect();
        pass.alarms.extend(drift);
        let said = self.poll.map(|poll| poll.as_secs()).or(pass.poll_seconds);
        let poll_seconds = said.unwrap_or(POLL.as_secs());
        self.teller.found(&pass, &self.alarms, poll_seconds);
        let news = News { pass, alarms: self.alarms.clone(), poll_seconds };
        let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        match self.reporter.tell(&self.keys, &mut outbox, news, clock::now()) {
            Ok(true) => self.told.notify_one(),
            Ok(false) => {}
            Err(failure) => error!(error = %chain(&failure), "a report could not be kept"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Inventory;

    #[test]
    fn a_site_with_anything_to_keep_goes_on_without_a_fleet() {
        let temp = tempfile::tempdir().expect("a folder");
        let store = Store::open(temp.path()).expect("new");
        let holding = |store: &Store| holds(store, &store.state().expect("readable")).expect("readable");
        assert_eq!(holding(&store), Holding::Nothing);
        std::fs::write(temp.path().join("slots/a"), "x").expect("damaged");
        assert_eq!(holding(&store), Holding::Something, "what is corrupt was something");
        std::fs::remove_file(temp.path().join("slots/a")).expect("removed");
        let inventory = Inventory { incarnation: Some(1), ..Inventory::default() };
        store.save_inventory(&"web".parse().expect("a name"), &inventory).expect("written");
        assert_eq!(holding(&store), Holding::Something);
    }

    #[tokio::test]
    async fn a_task_that_breaks_is_noticed() {
        died(&mut tokio::spawn(async { panic!("as a test") })).await;
    }
}
