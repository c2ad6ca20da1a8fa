//! How much a replica takes on: limits per caller and per class of request, and the steering of the fleet.
//!
//! - [`steering`]: what is asked of sites and what is turned away (pure).
//! - [`bucket`]: requests per second of one caller.
//! - [`arrivals`]: bodies of strangers that arrive at once; the one that takes longest makes room for a new one.
//! - [`places`]: requests of one class at once. They are taken once it is known who asks, and what: no stranger
//!   holds one with a body that is slow to arrive.
//! - [`few`]: requests of one cluster at once, of those that take their time.
//!
//! A poll costs two atomics here, and two more in the line of memory that it has come for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farshore_shared::names::Name;
use http::{HeaderMap, HeaderValue};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tracing::{info, warn};

pub mod arrivals;
pub mod bucket;
pub mod few;
pub mod places;
pub mod steering;

use crate::answer::Refusal;
use crate::directory::Heard;
use arrivals::Arrivals;
use bucket::{Buckets, Rate};
use few::{Few, OneOfFew};
use places::Places;
use steering::{Capacity, Controller, Decision, Seen, Shed};

/// How often the load is looked at.
const TICK: Duration = Duration::from_secs(1);
/// The share of one tick in what is seen.
const SMOOTHING: f64 = 0.2;
/// How late timers are under a load of one.
const LAG: Duration = Duration::from_secs(1);
/// When those who were turned away shall come back.
const SHED_AFTER: Duration = Duration::from_secs(15);
/// The same for a cluster that is in its own way.
const AGAIN: Duration = Duration::from_secs(5);
/// The cells of all clusters: 2 MiB.
const CELLS: usize = 1 << 18;
/// Requests of everybody to enrol, and of one join token.
const ENROL: Rate = Rate { per_second: 200, burst: 400 };
const ENROL_TOKEN: Rate = Rate { per_second: 50, burst: 200 };
/// Webhooks of everybody.
const HOOKS: Rate = Rate { per_second: 20, burst: 100 };
/// Artifacts and reports of one cluster at once: an agent fetches two at a time, and those of a connection that was
/// lost are not given up at once.
const CONTENT_OF_A_CLUSTER: usize = 8;
/// Answers with documents to one cluster at once, beside those: an agent asks for one at a time.
const DOCUMENTS_OF_A_CLUSTER: usize = 4;

/// The classes of requests, which do not stand in each other's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A poll of a site that holds something.
    Poll,
    /// A poll that will bring documents whole.
    Documents,
    /// An artifact.
    Artifact,
    /// A report.
    Report,
    /// A request to enrol.
    Enrol,
    /// An agent that waits for news: its places are those of [`crate::waiting`].
    Wake,
    /// A webhook.
    Hook,
    /// Trust roots, health, metrics, and what does not exist.
    Other,
}

/// What a replica takes on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Polls a second that this process can bear.
    pub polls: u32,
    /// How often sites are told to poll.
    pub interval: Duration,
    /// Requests a second of one cluster; four times as many at once.
    pub cluster: u32,
    /// Artifacts that are sent at once.
    pub artifacts: usize,
    /// How long an artifact, or a large document, may make no progress.
    pub stalled: Duration,
    /// Bodies of strangers that arrive at once, of each kind.
    pub arriving: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let (interval, stalled) = (Duration::from_secs(120), Duration::from_secs(120));
        Self { polls: 20_000, interval, cluster: 5, artifacts: 256, stalled, arriving: 1024 }
    }
}

/// The load of one process.
#[derive(Debug)]
pub struct Load {
    limits: Limits,
    start: Instant,
    /// Of clusters that were heard.
    polls: AtomicU64,
    /// Seconds; 0 for none.
    poll_after: AtomicU32,
    shed: AtomicU8,
    clusters: Buckets,
    enrol: Buckets,
    tokens: Buckets,
    hooks: Buckets,
    few: Arc<Few>,
    few_documents: Arc<Few>,
    enrolments_arriving: Arc<Arrivals>,
    webhooks_arriving: Arc<Arrivals>,
    documents: Places,
    artifacts: Places,
    reports: Places,
    enrolling: Places,
    webhooks: Places,
}

impl Load {
    /// Nothing has come yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let cluster = Rate { per_second: limits.cluster, burst: limits.cluster.saturating_mul(4) };
        Self {
            limits,
            start: Instant::now(),
            polls: AtomicU64::new(0),
            poll_after: AtomicU32::new(0),
            shed: AtomicU8::new(0),
            clusters: Buckets::new(cluster, CELLS),
            enrol: Buckets::new(ENROL, 1),
            tokens: Buckets::new(ENROL_TOKEN, 1024),
            hooks: Buckets::new(HOOKS, 1),
            few: Few::new(CONTENT_OF_A_CLUSTER),
            few_documents: Few::new(DOCUMENTS_OF_A_CLUSTER),
            enrolments_arriving: Arrivals::new(limits.arriving),
            webhooks_arriving: Arrivals::new(limits.arriving),
            documents: Places::new(256, 4096),
            artifacts: Places::new(limits.artifacts, 4 * limits.artifacts),
            reports: Places::new(512, 4096),
            enrolling: Places::new(32, 256),
            webhooks: Places::new(32, 64),
        }
    }

    /// Counts a poll of a cluster that has shown its pass, once a second: what is asked of the whole fleet is
    /// decided by no stranger, and by no single cluster.
    pub fn heard(&self, heard: Heard) {
        if heard == Heard::First {
            self.polls.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The polls that have counted since the start.
    #[must_use]
    pub fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    /// How many polls of one cluster are answered from memory within a second: beyond, they count like all else
    /// that it asks for.
    #[must_use]
    pub fn polls_of_a_cluster(&self) -> u16 {
        u16::try_from(self.limits.cluster.saturating_mul(4)).unwrap_or(u16::MAX)
    }

    /// Whether requests of this class are answered under the load of this moment.
    ///
    /// # Errors
    /// `503`, with a time to come back.
    pub fn admit(&self, class: Class) -> Result<(), Refusal> {
        let shed = self.shed.load(Ordering::Relaxed);
        if shed > 0 && sheds_at(class).is_some_and(|least| shed >= least.level()) {
            return Err(Refusal::later("hub is overloaded", SHED_AFTER));
        }
        Ok(())
    }

    /// Takes a request on, once it is known that it is worth it; what is returned is dropped when it is answered
    /// whole.
    ///
    /// # Errors
    /// `429` or `503`, with a time to come back.
    pub async fn enter(&self, class: Class) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
        let places = match class {
            Class::Poll | Class::Wake | Class::Other => return Ok(None),
            Class::Documents => &self.documents,
            Class::Artifact => &self.artifacts,
            Class::Report => &self.reports,
            Class::Enrol => {
                self.take(&self.enrol, (), "requests to enrol")?;
                &self.enrolling
            }
            Class::Hook => {
                self.take(&self.hooks, (), "webhooks")?;
                &self.webhooks
            }
        };
        places.take().await.map(Some).map_err(busy)
    }

    /// Takes the body of a stranger's request to enrol, which may take its time to arrive: of those there may be more
    /// than are worked on. Where they are too many, the one that takes longest is given up.
    ///
    /// # Errors
    /// Its own, and `503`, with a time to come back.
    pub async fn enrolment<T>(&self, body: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
        self.enrolments_arriving.take(body).await.unwrap_or_else(|given_up| Err(too_slow(given_up)))
    }

    /// The same of a webhook, until it is known whether a Git server has sent it.
    ///
    /// # Errors
    /// Its own, and `503`, with a time to come back.
    pub async fn webhook<T>(&self, body: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
        self.webhooks_arriving.take(body).await.unwrap_or_else(|given_up| Err(too_slow(given_up)))
    }

    /// Takes on an artifact or a report of a cluster, beside its others.
    ///
    /// # Errors
    /// `429`, with a time to come back.
    pub fn one_of_few(&self, cluster: &Name) -> Result<OneOfFew, Refusal> {
        let message = || {
            format!("too many artifacts and reports of one cluster at once (limit {CONTENT_OF_A_CLUSTER})")
        };
        self.few.enter(cluster).ok_or_else(|| Refusal::too_many(message(), AGAIN))
    }

    /// Takes on a poll of a cluster that brings documents, beside its others.
    ///
    /// # Errors
    /// `429`, with a time to come back.
    pub fn one_of_few_documents(&self, cluster: &Name) -> Result<OneOfFew, Refusal> {
        let message = || {
            format!(
                "too many polls of one cluster that bring documents at once (limit {DOCUMENTS_OF_A_CLUSTER})"
            )
        };
        self.few_documents.enter(cluster).ok_or_else(|| Refusal::too_many(message(), AGAIN))
    }

    /// How long an artifact, or a large document, may make no progress.
    #[must_use]
    pub fn stalled(&self) -> Duration {
        self.limits.stalled
    }

    /// Counts a request of a cluster that has shown its pass.
    ///
    /// # Errors
    /// `429`, with a time to come back.
    pub fn cluster(&self, cluster: &Name) -> Result<(), Refusal> {
        self.take(&self.clusters, cluster, "requests of one cluster")
    }

    /// Counts a request to enrol with the join token of this id.
    ///
    /// # Errors
    /// `429`, with a time to come back.
    pub fn join_token(&self, id: &str) -> Result<(), Refusal> {
        self.take(&self.tokens, id, "requests to enrol with one token")
    }

    fn take(&self, buckets: &Buckets, caller: impl std::hash::Hash, what: &str) -> Result<(), Refusal> {
        buckets
            .take(caller, self.start.elapsed())
            .map_err(|wait| Refusal::too_many(format!("too many {what}"), wait.max(Duration::from_secs(1))))
    }

    /// What sites are asked for, in seconds, if anything.
    #[must_use]
    pub fn poll_after(&self) -> Option<HeaderValue> {
        match self.poll_after.load(Ordering::Relaxed) {
            0 => None,
            seconds => Some(HeaderValue::from(seconds)),
        }
    }

    /// How many requests of a class wait for their turn.
    #[must_use]
    pub fn queued(&self) -> [(&'static str, usize); 5] {
        [
            ("documents", self.documents.queued()),
            ("artifacts", self.artifacts.queued()),
            ("reports", self.reports.queued()),
            ("enrolments", self.enrolling.queued()),
            ("webhooks", self.webhooks.queued()),
        ]
    }

    fn decide(&self, decision: Decision) {
        let seconds = decision.poll_after.map_or(0, |after| after.as_secs().max(1));
        self.poll_after.store(u32::try_from(seconds).unwrap_or(u32::MAX), Ordering::Relaxed);
        let before = self.shed.swap(decision.shed.level(), Ordering::Relaxed);
        match decision.shed {
            shed if before == shed.level() => {}
            Shed::Nothing => info!("load is borne again: nothing is turned away"),
            shed => warn!(?shed, "load is too high: requests are turned away"),
        }
    }
}

fn too_slow(_: arrivals::GivenUp) -> Refusal {
    Refusal::later("body is slow to arrive, and others are on their way", SHED_AFTER)
}

fn busy(_: places::Busy) -> Refusal {
    Refusal::later("too many requests of this kind wait", SHED_AFTER)
}

/// The class of a poll: one without a tag brings all documents.
#[must_use]
pub fn class_of_poll(headers: &HeaderMap) -> Class {
    let holds = headers.contains_key(farshore_shared::wire::HOLDS_HEADER)
        || headers.contains_key(http::header::IF_NONE_MATCH);
    if holds { Class::Poll } else { Class::Documents }
}

/// From which level on a class is turned away.
fn sheds_at(class: Class) -> Option<Shed> {
    match class {
        Class::Enrol => Some(Shed::Enrolling),
        Class::Report | Class::Hook => Some(Shed::Reports),
        Class::Artifact | Class::Wake => Some(Shed::Content),
        Class::Documents => Some(Shed::Documents),
        Class::Poll => Some(Shed::Polls),
        Class::Other => None,
    }
}

/// Looks at the load once a tick and decides what to do about it.
pub async fn steer(load: Arc<Load>, mut stop: watch::Receiver<bool>) {
    let Limits { polls, interval, .. } = load.limits;
    let mut controller = Controller::new(Capacity { polls: f64::from(polls.max(1)), lag: LAG, interval });
    let mut seen = Seen { rate: 0.0, lag: Duration::ZERO };
    let (mut before, mut counted) = (Instant::now(), load.polls());
    loop {
        // Cancel-safe: the time starts anew.
        tokio::select! {
            () = tokio::time::sleep(TICK) => {}
            _ = stop.changed() => return,
        }
        let (now, count) = (Instant::now(), load.polls());
        let tick = now.duration_since(before);
        let polls = u32::try_from(count.wrapping_sub(counted)).unwrap_or(u32::MAX);
        let rate = f64::from(polls) / tick.as_secs_f64();
        seen.rate += SMOOTHING * (rate - seen.rate);
        seen.lag = seen.lag.mul_f64(1.0 - SMOOTHING) + tick.saturating_sub(TICK).mul_f64(SMOOTHING);
        (before, counted) = (now, count);
        load.decide(controller.step(seen, tick.min(10 * TICK)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_poll_with_a_tag_goes_on_while_everything_else_is_turned_away() {
        let load = Load::new(Limits::default());
        load.decide(Decision { poll_after: Some(Duration::from_secs(90)), shed: Shed::Documents });
        assert_eq!(load.poll_after().expect("asked"), "90");
        for class in [Class::Enrol, Class::Report, Class::Artifact, Class::Wake, Class::Documents] {
            assert!(load.admit(class).is_err(), "{class:?}");
        }
        assert!(load.admit(Class::Poll).is_ok());
        assert!(load.admit(Class::Other).is_ok(), "health is told under any load");
        load.decide(Decision { poll_after: None, shed: Shed::Nothing });
        assert!(load.poll_after().is_none() && load.admit(Class::Enrol).is_ok());
    }

    #[tokio::test]
    async fn artifacts_that_fill_their_places_hold_up_nobody_else() {
        let load = Load::new(Limits { artifacts: 1, ..Limits::default() });
        let _sending = load.enter(Class::Artifact).await.expect("a place");
        for class in [Class::Poll, Class::Documents, Class::Report, Class::Enrol, Class::Hook] {
            assert!(load.enter(class).await.is_ok(), "{class:?}");
        }
    }

    #[test]
    fn one_cluster_and_one_token_are_limited_and_no_other() {
        let load = Load::new(Limits::default());
        let (loud, calm): (Name, Name) = ("loud".parse().expect("a name"), "calm".parse().expect("a name"));
        let refused = (0..100).filter(|_| load.cluster(&loud).is_err()).count();
        assert!((75..=80).contains(&refused), "{refused}");
        assert!(load.cluster(&calm).is_ok());
        let refused = (0..1000).filter(|_| load.join_token("t").is_err()).count();
        assert!(refused >= 750, "{refused}");
        assert!(load.join_token("u").is_ok());
    }
}
