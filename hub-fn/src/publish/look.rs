//! One look at everything that is due: the fleet repository, then the sources that it declares.
//!
//! Each is fetched in the background, by the publisher that holds its lease. What has arrived is handed
//! to [`super::intend`] and [`super::settle`]; nothing is decided for good here. What was seen is of use
//! only for what it was looked at for: where the published commit, the address or the services of a
//! source have changed meanwhile, it is dropped, and the source is looked at again.

mod jobs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use farshore_shared::clock;
use farshore_shared::digest::Digest;
use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::agenda::Ending;
use super::fetches::Seen;
use super::intend::{self, FleetSeen, Intended};
use super::settle::{SourceReport, SourceSeen};
use super::sync::{self, FleetFetched, Order, Place};
use super::{FleetRepository, Packing, PublishError, Publisher};
use crate::artifact::Packed;
use crate::objects::{Condition, Objects, ObjectsError, PutOutcome};
use crate::record::{self, FLEET, HeldChange, Intent, SourceState};
use crate::source::FileSources;
use crate::trace;
use jobs::{Job, basis, declared, fleet_services, jobs, orders_of};

/// The services that live in the fleet repository: looked at whenever that is. No source is called so.
const FLEET_SERVICES: &str = "fleet/services";
/// How long one that was slow waits for others that are, so that a thousand of them are not as many
/// publications.
const GATHER: Duration = Duration::from_millis(250);

/// What one look at all sources found, before anything is decided for good.
pub(super) struct Look {
    /// What the fleet shall be.
    pub(super) intent: Intent,
    /// What was seen of sources, and made of their services.
    pub(super) seen: BTreeMap<String, SourceSeen>,
    /// How the fleet repository is, if it was looked at.
    fleet: Option<FleetStanding>,
    /// When what failed is tried again, for people.
    again: BTreeMap<String, String>,
    taken: Vec<Taken>,
    declared: BTreeSet<String>,
}

struct FleetStanding {
    state: SourceState,
    messages: Vec<String>,
    held: Option<HeldChange>,
}

/// One source of which something had arrived.
struct Taken {
    source: String,
    interval: Duration,
    /// How it ended and what it is looked at for from now on; none if it failed, which is noted already.
    ending: Option<(Digest, Ending)>,
}

impl Look {
    /// One that saw nothing of the fleet repository: what is published stays.
    fn untouched(previous: &Intent) -> Self {
        Self {
            intent: previous.clone(),
            seen: BTreeMap::new(),
            fleet: None,
            again: BTreeMap::new(),
            taken: Vec::new(),
            declared: BTreeSet::new(),
        }
    }

    fn of(intended: Intended) -> Self {
        let Intended { intent, state, messages, held } = intended;
        Self { fleet: Some(FleetStanding { state, messages, held }), ..Self::untouched(&intent) }
    }

    /// What people are told beside what [`super::settle`] says: how the fleet repository is, in one
    /// report with the services that live in it, and when what failed is tried again.
    pub(super) fn complete(&mut self, reports: &mut BTreeMap<String, SourceReport>) {
        let services = reports.remove(FLEET);
        if let Some(FleetStanding { state, messages, held }) = self.fleet.take() {
            let mut report = SourceReport { state, messages, held, services: BTreeMap::new() };
            if let Some(services) = services {
                if report.state == SourceState::Ready {
                    report.state = services.state;
                }
                report.messages.extend(services.messages);
                report.services = services.services;
            }
            reports.insert(FLEET.to_owned(), report);
        }
        for (source, again) in &self.again {
            if let Some(report) = reports.get_mut(source) {
                report.messages.push(again.clone());
            }
        }
    }

    /// What is left to note once it is published.
    pub(super) fn outcome(&mut self) -> Outcome {
        Outcome { taken: std::mem::take(&mut self.taken), declared: std::mem::take(&mut self.declared) }
    }
}

/// What a look says of when to look again.
pub(super) struct Outcome {
    taken: Vec<Taken>,
    declared: BTreeSet<String>,
}

impl Publisher {
    /// Notes what a publication has taken, and tells other publishers.
    pub(super) async fn note(&mut self, outcome: Outcome) {
        let now = Instant::now();
        for Taken { source, interval, ending } in outcome.taken {
            if let Some(ending) = ending {
                self.agenda.looked(&source, ending, interval, now);
            }
            self.fetches.done(&source);
            self.leases.tell_looked(&source).await;
        }
        self.fetches.done(FLEET_SERVICES);
        self.agenda.keep(&outcome.declared);
        self.fetches.keep(&outcome.declared);
        self.declared = outcome.declared;
    }

    /// Decides what the fleet shall be, then has fetched and packed what that needs, and takes what has
    /// arrived within the grace.
    pub(super) async fn look(&mut self, previous: &Intent) -> Result<Look, PublishError> {
        let until = Instant::now() + self.options.sync.grace;
        let approved = self.approved().await?;
        let known = declared(self, previous);
        self.lead(&known, previous).await;
        let mut look = self.look_at_fleet(previous, &approved, until).await;
        let declared = declared(self, &look.intent);
        if declared != known {
            self.lead(&declared, &look.intent).await;
        }
        self.look_at_sources(&mut look, approved, until).await;
        look.declared = declared;
        Ok(look)
    }

    /// Asks for leases; what another publisher looked at before is due when it would have been there.
    pub(super) async fn lead(&mut self, declared: &BTreeSet<String>, intent: &Intent) {
        for source in self.leases.refresh(declared, self.fetches.busy(), Instant::now()).await {
            let is_made = orders_of(intent, &source).iter().all(Order::is_made);
            if let Some(ago) = self.leases.looked_ago(&source).await.filter(|_| is_made) {
                let interval = self.interval_of(intent, &source);
                self.agenda.adopt(&source, interval, ago, Instant::now());
            }
        }
        for source in declared.iter().filter(|source| !self.leases.holds(source)) {
            self.agenda.forget(source);
        }
    }

    fn interval_of(&self, intent: &Intent, source: &str) -> Duration {
        let declared = source.parse().ok().and_then(|name: Name| intent.sources.get(&name));
        let own = declared.and_then(|source| source.spec.interval.as_ref());
        own.map_or(self.options.interval, |interval| interval.duration())
    }

    /// Has the fleet repository fetched if it is due, and decides from what arrived of it.
    async fn look_at_fleet(
        &mut self,
        previous: &Intent,
        approved: &BTreeSet<String>,
        until: Instant,
    ) -> Look {
        let is_approved = |held: &HeldChange| approved.contains(&held.change);
        let Some(place) = self.fleet_place() else {
            let seen = FleetSeen::Unconfigured;
            return Look::of(intend::intend(
                previous,
                &seen,
                &self.members.population(previous, None),
                &is_approved,
            ));
        };
        let before = basis(&place, previous.fleet.as_deref(), &[]);
        let Some(fetched) = self.fetch_fleet(&place, before, previous, until).await else {
            return Look::untouched(previous);
        };
        let seen = match &fetched {
            Err(message) => FleetSeen::Failed(message.clone()),
            Ok(fetched) => {
                let FleetFetched { commit, descent, reading, files } = &**fetched;
                FleetSeen::Read { commit, descent: *descent, reading, files }
            }
        };
        let fleet = fetched.as_ref().ok().map(|fetched| &fetched.reading.fleet);
        let members = self.members.population(previous, fleet);
        let mut look = Look::of(intend::intend(previous, &seen, &members, &is_approved));
        let interval = self.options.interval;
        let ending = if fetched.is_ok() {
            let after = basis(&place, look.intent.fleet.as_deref(), &[]);
            let held = look.fleet.as_ref().and_then(|fleet| fleet.held.clone());
            Some((after, held.map_or(Ending::Good, Ending::Held)))
        } else {
            look.again.insert(FLEET.to_owned(), self.again(FLEET, before, interval));
            None
        };
        look.taken.push(Taken { source: FLEET.to_owned(), interval, ending });
        look
    }

    /// What arrived of the fleet repository, which is fetched if it is due.
    async fn fetch_fleet(
        &mut self,
        place: &Place,
        basis: Digest,
        previous: &Intent,
        until: Instant,
    ) -> Option<Result<Arc<FleetFetched>, String>> {
        if self.fetches.take(FLEET, basis).is_none() && self.begin(FLEET, basis) {
            let (place, published) = (place.clone(), previous.fleet.clone());
            let (mirrors, limits) = (self.mirrors(), self.options.sync.limits);
            self.fetches.start_now(FLEET, basis, async move {
                mirrors.restore(&place).await;
                let asked = place.clone();
                let fetched = blocking(move || sync::fleet(&asked, published.as_deref(), &limits)).await;
                mirrors.release(&place);
                Seen::Fleet(fetched.unwrap_or_else(Err).map(Arc::new))
            });
            self.fetches.wait(&BTreeSet::from([FLEET.to_owned()]), until).await;
        }
        match self.fetches.take(FLEET, basis)?.seen.clone() {
            Seen::Fleet(fetched) => Some(fetched),
            Seen::Source(_) => None,
        }
    }

    /// Has the sources fetched that are due and this publisher's, and takes what has arrived of them.
    async fn look_at_sources(&mut self, look: &mut Look, approved: BTreeSet<String>, until: Instant) {
        let (approved, mut begun) = (Arc::new(approved), BTreeSet::new());
        let jobs = jobs(self, &look.intent);
        for job in &jobs {
            let (source, basis) = (job.place.name.as_str(), job.basis(job.published.as_deref()));
            if self.fetches.take(source, basis).is_some() {
                continue;
            }
            if self.begin(source, basis) {
                self.fetches.start(source, basis, self.run(job.clone(), Arc::clone(&approved)));
                begun.insert(source.to_owned());
            }
        }
        self.look_at_fleet_services(look, &approved, until).await;
        self.fetches.wait(&begun, until).await;
        if begun.is_empty() && self.fetches.has_arrived() {
            let busy = self.fetches.busy().clone();
            self.fetches.wait(&busy, until.min(Instant::now() + GATHER)).await;
        }
        for job in &jobs {
            self.take_source(look, job);
        }
    }

    /// Packs the services that live in the fleet repository, which is on this disk since just now.
    async fn look_at_fleet_services(
        &mut self,
        look: &mut Look,
        approved: &Arc<BTreeSet<String>>,
        until: Instant,
    ) {
        if look.fleet.is_none() {
            return;
        }
        let Some(job) = fleet_services(self, &look.intent) else { return };
        let basis = job.basis(None);
        let is_under_way = self.fetches.is_under_way(FLEET_SERVICES);
        if !is_under_way && self.fetches.take(FLEET_SERVICES, basis).is_none() {
            let run = self.run(job, Arc::clone(approved));
            self.fetches.start_now(FLEET_SERVICES, basis, run);
        }
        let until = match self.options.sync.packing {
            Packing::WaitedFor => Instant::now() + self.options.sync.limits.total,
            Packing::WithinGrace => until,
        };
        self.fetches.wait(&BTreeSet::from([FLEET_SERVICES.to_owned()]), until).await;
        let arrived = self.fetches.take(FLEET_SERVICES, basis).map(|arrived| arrived.seen.clone());
        let Some(Seen::Source(seen)) = arrived else {
            warn!("services of the fleet repository are not packed yet: they come with a later publication");
            // Nobody looks for them but with the fleet repository, which is due again.
            look.taken.iter_mut().filter(|taken| taken.source == FLEET).for_each(|taken| taken.ending = None);
            self.agenda.push(FLEET);
            return;
        };
        if matches!(seen, SourceSeen::Failed(_)) {
            self.fetches.done(FLEET_SERVICES);
            for taken in look.taken.iter_mut().filter(|taken| taken.source == FLEET) {
                if let Some((after, _)) = taken.ending.take() {
                    let tried = self.agenda.failed(FLEET, after, taken.interval, Instant::now());
                    look.again.insert(FLEET.to_owned(), retry(tried));
                }
            }
        }
        look.seen.insert(FLEET.to_owned(), seen);
    }

    fn take_source(&mut self, look: &mut Look, job: &Job) {
        let source = job.place.name.clone();
        let basis = job.basis(job.published.as_deref());
        let Some(arrived) = self.fetches.take(&source, basis) else { return };
        let Seen::Source(seen) = arrived.seen.clone() else { return };
        let ending = match &seen {
            SourceSeen::Ready { commit, .. } => Some((job.basis(Some(commit)), Ending::Good)),
            SourceSeen::Held(held) => Some((basis, Ending::Held(held.clone()))),
            SourceSeen::Failed(_) => {
                look.again.insert(source.clone(), self.again(&source, basis, job.interval));
                None
            }
        };
        look.seen.insert(source.clone(), seen);
        look.taken.push(Taken { source, interval: job.interval, ending });
    }

    /// Whether a look at this source begins: it is ours, due, and not looked at in this moment.
    fn begin(&mut self, source: &str, basis: Digest) -> bool {
        let begins = self.leases.holds(source)
            && !self.fetches.is_under_way(source)
            && self.agenda.is_due(source, basis, Instant::now());
        if begins {
            self.agenda.begin(source);
        }
        begins
    }

    /// Notes a failure, once however often it is taken, and says when the next try is.
    fn again(&mut self, source: &str, basis: Digest, interval: Duration) -> String {
        let Some(arrived) = self.fetches.take(source, basis) else { return String::new() };
        if let Some(again) = &arrived.again {
            return again.clone();
        }
        let again = retry(self.agenda.failed(source, basis, interval, Instant::now()));
        arrived.again = Some(again.clone());
        again
    }

    /// The look at one source, to be run in the background.
    fn run(&self, job: Job, approved: Arc<BTreeSet<String>>) -> impl Future<Output = Seen> + Send + 'static {
        let (objects, mirrors) = (Arc::clone(&self.objects), self.mirrors());
        let limits = self.options.sync.limits;
        async move {
            let place = job.place.clone();
            mirrors.restore(&place).await;
            // One artifact at a time is held in memory.
            let (packed, arrived) = mpsc::channel(1);
            let began = SystemTime::now();
            let made = blocking(move || job.run(&approved, &packed, &limits));
            let (seen, stored) = futures::join!(made, store_artifacts(&*objects, arrived));
            trace::looked(&place.name, began);
            mirrors.release(&place);
            Seen::Source(match stored {
                Ok(()) => seen.unwrap_or_else(SourceSeen::Failed),
                Err(error) => {
                    let message = format!("storing an artifact: {}", chain(&error));
                    warn!(source = place.name, %message);
                    SourceSeen::Failed(message)
                }
            })
        }
    }

    pub(super) fn fleet_place(&self) -> Option<Place> {
        let FleetRepository { url, branch } = self.options.fleet.clone()?;
        // The operator named it on the command line: that is permission enough for this one.
        Some(Place {
            name: FLEET.into(),
            url,
            branch,
            files: FileSources::Allowed,
            mirrors: self.options.mirrors.clone(),
        })
    }
}

/// What a person should know of the next try.
fn retry((delay, times): (Duration, u32)) -> String {
    let at = i64::try_from((clock::since_epoch() + delay).as_secs()).unwrap_or(i64::MAX);
    let at = jiff::Timestamp::from_second(at).map_or_else(|_| "later".to_owned(), |at| at.to_string());
    let times = if times == 1 { "once".to_owned() } else { format!("{times} times in a row") };
    format!("it failed {times}; next try at {at}")
}

async fn store_artifacts(
    objects: &dyn Objects,
    mut arrived: mpsc::Receiver<Packed>,
) -> Result<(), ObjectsError> {
    while let Some(packed) = arrived.recv().await {
        let (digest, bytes) = sync::blob(packed);
        match objects.put(&record::artifact(digest), bytes, Condition::Absent).await? {
            PutOutcome::Stored(_) => info!(%digest, "artifact is stored"),
            PutOutcome::Conflict => {}
        }
    }
    Ok(())
}

/// Runs what blocks where that is allowed. A panic in it is that source's failure alone.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|error| format!("internal failure: {error}"))
}
