//! Which of several agents of one site works, where several run in one cluster: the one that holds a Lease.
//!
//! As client-go's `leaderelection`: a holder renews; the others take the Lease when its record has not changed for as
//! long as it lasts, by their own clock, so that clocks that differ change nothing. Who cannot renew for
//! `RENEWED_WITHIN` stops before anybody else may begin.
//!
//! - [`decide`]: whose turn it is (pure); [`Ballot`]: where the Lease is.

use std::future::Future;
use std::time::Duration;

use farshore_shared::names::Name;
use farshore_shared::wire::UnixSeconds;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

/// How long a Lease lasts that is not renewed, in seconds.
const LASTS: u64 = 15;
/// Who could not renew for so long stops.
const RENEWED_WITHIN: Duration = Duration::from_secs(10);
/// How often a holder renews.
const RENEWS: Duration = Duration::from_secs(4);
/// How often the others look.
const LOOKS: Duration = Duration::from_secs(2);
/// The longest time in which a Lease is given back.
const GIVES_BACK: Duration = Duration::from_secs(1);

/// Which Lease: its namespace and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseName {
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
}

impl std::str::FromStr for LeaseName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("a lease is NAMESPACE/NAME, such as farshore/farshore-agent (got {text:?})");
        let (namespace, name) = text.split_once('/').ok_or_else(bad)?;
        let part = |part: &str| part.parse::<Name>().map_err(|why| format!("{}: {why}", bad()));
        Ok(Self { namespace: part(namespace)?, name: part(name)? })
    }
}

impl std::fmt::Display for LeaseName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A Lease as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Who holds it; empty when it was given back.
    pub holder: String,
    /// How long it lasts without being renewed, in seconds.
    pub lasts: u64,
    /// When its holder renewed it, as it wrote that.
    pub renewed: String,
    /// When its holder got it, as it wrote that.
    pub acquired: String,
    /// How often it changed hands.
    pub transitions: u64,
    /// Which state of the object it is: a write demands it.
    pub version: String,
}

/// What is written into a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Who holds it from now on; empty to give it back.
    pub holder: String,
    /// How long it lasts, in seconds.
    pub lasts: u64,
    /// The time.
    pub now: UnixSeconds,
    /// What was read; none where there is no Lease yet.
    pub of: Option<Record>,
}

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrote {
    /// It is written.
    Done,
    /// Somebody else wrote meanwhile.
    Late,
}

/// The Lease could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BallotError(pub String);

/// Where the Lease is.
pub trait Ballot: Send + Sync + 'static {
    /// Reads it; none where there is none.
    fn read(&self) -> impl Future<Output = Result<Option<Record>, BallotError>> + Send;

    /// Writes it, if it is still what was read.
    fn write(&self, claim: &Claim) -> impl Future<Output = Result<Wrote, BallotError>> + Send;
}

/// What to do about a Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Take it, or renew it.
    Claim,
    /// Somebody else has it.
    Wait,
}

/// Whose turn it is. `unchanged` is how long the record has been seen as it is.
#[must_use]
pub fn decide(record: Option<&Record>, unchanged: Duration, me: &str) -> Step {
    match record {
        None => Step::Claim,
        Some(record) if record.holder == me || record.holder.is_empty() => Step::Claim,
        Some(record) if unchanged >= Duration::from_secs(record.lasts) => Step::Claim,
        Some(_) => Step::Wait,
    }
}

/// One of several agents.
#[derive(Debug)]
pub struct Elector<B> {
    ballot: B,
    me: String,
    seen: Option<(Record, Instant)>,
    /// When it began to write itself into the Lease the last time: others count from no sooner.
    renewed: Option<Instant>,
}

impl<B: Ballot> Elector<B> {
    /// An agent of this name, which no other has.
    #[must_use]
    pub fn new(ballot: B, me: String) -> Self {
        Self { ballot, me, seen: None, renewed: None }
    }

    /// Returns when this agent holds the Lease.
    pub async fn until_leading(&mut self) {
        let mut said = None;
        loop {
            match self.turn().await {
                Ok(true) => {
                    info!(me = %self.me, "this agent leads");
                    return;
                }
                Ok(false) => {
                    let holder = self.seen.as_ref().map(|(record, _)| record.holder.clone());
                    if said != holder {
                        info!(
                            holder = holder.as_deref().unwrap_or_default(),
                            "another agent leads; this one stands by"
                        );
                        said = holder;
                    }
                }
                Err(error) => debug!(%error, "the lease cannot be used"),
            }
            sleep(LOOKS).await;
        }
    }

    /// Renews, and returns when this agent does not hold the Lease any more, or cannot know.
    pub async fn until_lost(&mut self) {
        let begun = Instant::now();
        loop {
            let renewed = self.renewed.unwrap_or(begun);
            let left = RENEWED_WITHIN.saturating_sub(renewed.elapsed());
            match timeout(left, self.turn()).await {
                Ok(Ok(true)) => {
                    // What a slow answer has taken is not there for another try.
                    let renewed = self.renewed.unwrap_or(begun);
                    sleep(RENEWS.min(RENEWED_WITHIN.saturating_sub(renewed.elapsed()) / 2)).await;
                }
                Ok(Ok(false)) if self.is_anothers() => {
                    warn!("another agent has taken the lease");
                    return;
                }
                Ok(Ok(false)) => sleep(LOOKS.min(left)).await,
                Ok(Err(error)) => {
                    debug!(%error, "the lease cannot be renewed");
                    sleep(LOOKS.min(RENEWED_WITHIN.saturating_sub(renewed.elapsed()))).await;
                }
                Err(_elapsed) => {}
            }
            if self.renewed.unwrap_or(begun).elapsed() >= RENEWED_WITHIN {
                warn!("the lease could not be renewed in time; this agent stops before another may begin");
                return;
            }
        }
    }

    /// Gives the Lease back, so that another need not wait.
    pub async fn give_back(&mut self) {
        let Some((record, _)) = self.seen.take().filter(|(record, _)| record.holder == self.me) else {
            return;
        };
        let now = farshore_shared::clock::now();
        let claim = Claim { holder: String::new(), lasts: 1, now, of: Some(record) };
        if !matches!(timeout(GIVES_BACK, self.ballot.write(&claim)).await, Ok(Ok(_))) {
            debug!("the lease was not given back; it ends by itself");
        }
    }

    fn is_anothers(&self) -> bool {
        self.seen.as_ref().is_some_and(|(record, _)| record.holder != self.me)
    }

    /// Looks, and claims where it is this agent's turn. Gives whether it holds the Lease now.
    async fn turn(&mut self) -> Result<bool, BallotError> {
        let found = self.ballot.read().await?;
        let unchanged = self.observe(found.as_ref());
        if decide(found.as_ref(), unchanged, &self.me) == Step::Wait {
            return Ok(false);
        }
        let now = farshore_shared::clock::now();
        let claim = Claim { holder: self.me.clone(), lasts: LASTS, now, of: found };
        let before = Instant::now();
        if self.ballot.write(&claim).await? == Wrote::Late {
            return Ok(false);
        }
        self.renewed = Some(before);
        let written = self.ballot.read().await?;
        self.observe(written.as_ref());
        Ok(written.is_some_and(|record| record.holder == self.me))
    }

    fn observe(&mut self, found: Option<&Record>) -> Duration {
        match (&self.seen, found) {
            (Some((seen, since)), Some(found)) if seen == found => since.elapsed(),
            (_, found) => {
                self.seen = found.map(|found| (found.clone(), Instant::now()));
                Duration::ZERO
            }
        }
    }
}

/// A name for this agent: its host's, which in a cluster is its Pod's, and something that no other has.
#[must_use]
pub fn own_name() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "agent".to_owned());
    let host: String = host.chars().take(100).collect();
    format!("{host}_{}", hex::encode(farshore_shared::keys::random_bytes::<8>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    fn record(holder: &str) -> Record {
        Record {
            holder: holder.into(),
            lasts: 15,
            renewed: "now".into(),
            acquired: "before".into(),
            transitions: 0,
            version: "1".into(),
        }
    }

    #[test]
    fn a_lease_is_taken_when_nobody_has_it_or_its_holder_fell_silent() {
        let (none, long) = (Duration::ZERO, Duration::from_secs(15));
        assert_eq!(decide(None, none, "a"), Step::Claim);
        assert_eq!(decide(Some(&record("a")), none, "a"), Step::Claim);
        assert_eq!(decide(Some(&record("")), none, "a"), Step::Claim);
        assert_eq!(decide(Some(&record("b")), none, "a"), Step::Wait);
        assert_eq!(decide(Some(&record("b")), long.saturating_sub(Duration::from_nanos(1)), "a"), Step::Wait);
        assert_eq!(decide(Some(&record("b")), long, "a"), Step::Claim);
    }

    #[test]
    fn a_lease_is_named_with_its_namespace() {
        assert_eq!(
            "farshore/agent".parse::<LeaseName>().map(|lease| lease.to_string()),
            Ok("farshore/agent".into())
        );
        for bad in ["agent", "/agent", "a/", "a/b/c", "A/b"] {
            assert!(bad.parse::<LeaseName>().is_err(), "{bad:?}");
        }
    }

    /// A Lease in memory.
    #[derive(Debug, Clone, Default)]
    struct Memory(Arc<Mutex<Held>>);

    /// The Lease, how often it was written, and when last.
    type Held = (Option<Record>, u64, Option<Instant>);

    impl Ballot for Memory {
        async fn read(&self) -> Result<Option<Record>, BallotError> {
            Ok(self.0.lock().expect("no test panics while it holds it").0.clone())
        }

        async fn write(&self, claim: &Claim) -> Result<Wrote, BallotError> {
            let mut held = self.0.lock().expect("no test panics while it holds it");
            if held.0.as_ref().map(|record| &record.version)
                != claim.of.as_ref().map(|record| &record.version)
            {
                return Ok(Wrote::Late);
            }
            held.1 += 1;
            held.2 = Some(Instant::now());
            let version = held.1.to_string();
            let renewed = claim.now.to_string();
            held.0 = Some(Record { lasts: claim.lasts, renewed, version, ..record(&claim.holder) });
            Ok(Wrote::Done)
        }
    }

    #[tokio::test]
    async fn of_two_agents_one_leads_and_the_other_when_it_is_given_back() {
        let ballot = Memory::default();
        let mut first = Elector::new(ballot.clone(), "first".into());
        let mut second = Elector::new(ballot, "second".into());
        assert!(first.turn().await.expect("readable"));
        assert!(!second.turn().await.expect("readable"));
        assert!(first.turn().await.expect("readable"), "it renews");
        first.give_back().await;
        assert!(second.turn().await.expect("readable"));
        assert!(!first.turn().await.expect("readable") && first.is_anothers());
    }

    #[tokio::test]
    async fn a_lease_counts_from_before_it_was_written() {
        let ballot = Memory::default();
        let mut elector = Elector::new(ballot.clone(), "first".into());
        assert!(elector.turn().await.expect("readable"));
        let written = ballot.0.lock().expect("no test panics while it holds it").2;
        assert!(elector.renewed.is_some() && elector.renewed <= written);
    }

    #[tokio::test]
    async fn an_agent_whose_lease_was_taken_stops() {
        let ballot = Memory::default();
        let mut first = Elector::new(ballot.clone(), "first".into());
        first.until_leading().await;
        ballot.0.lock().expect("no test panics while it holds it").0 = Some(record("second"));
        first.until_lost().await;
        first.give_back().await;
        let held = ballot.read().await.expect("readable").expect("there");
        assert_eq!(held.holder, "second", "nobody gives back what another has");
    }
}
