//! Which publisher looks at which source, where several share one index.
//!
//! A lease in the index says who. It only saves work: whoever looks without one fetches once too often
//! and publishes by compare-and-swap like everybody. While the index is away, each keeps for a while what
//! it had, and then looks at everything.
//!
//! Publishers make themselves known in the index, too, so that sources are spread: of those that are
//! alive, the one with the highest hash for a source is preferred (rendezvous hashing), others let go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use farshore_shared::clock::since_epoch;
use farshore_shared::digest::Digest;
use futures::{StreamExt as _, stream};
use tracing::debug;

use crate::index::{Entry, Index};

/// How long a lease lasts that is not renewed: how late a dead publisher's sources are taken over.
pub(super) const LEASE: Duration = Duration::from_secs(15);
/// How often leases are renewed, and how often a publisher says that it lives.
const BEAT: Duration = Duration::from_secs(5);
/// As good as none: how a lease is given back.
const GIVEN_BACK: Duration = Duration::from_millis(1);
/// In how many places publishers make themselves known. Two in one place hide each other, which costs
/// evenness only.
const PLACES: u8 = 32;
/// How many leases are asked for at once.
const AT_ONCE: usize = 32;

/// Whether other publishers may share the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// The index is this process's own: there is nobody to share with.
    #[default]
    Alone,
    /// The index is shared: leases say who looks at which source.
    Shared,
}

/// The leases of one publisher.
#[derive(Debug)]
pub(super) struct Leases {
    index: Arc<dyn Index>,
    holder: String,
    sharing: Sharing,
    standings: BTreeMap<String, Standing>,
    crew: BTreeSet<String>,
    beaten: Option<Instant>,
}

/// What is known of one lease.
#[derive(Debug, Clone, Copy)]
struct Standing {
    who: Who,
    /// When it is asked for next.
    ask: Instant,
    /// Until when the last answer counts, should there be no other.
    sure: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Nobody,
    Ours,
    Others,
}

/// What to do about one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Ask,
    LetGo,
    Wait,
}

fn decide(standing: &Standing, is_preferred: bool, is_busy: bool, now: Instant) -> Act {
    match standing.who {
        Who::Ours if !is_preferred && !is_busy => Act::LetGo,
        _ if now >= standing.ask => Act::Ask,
        Who::Ours | Who::Others | Who::Nobody => Act::Wait,
    }
}

impl Standing {
    /// One that is not preferred leaves the preferred one the time to take it.
    fn new(is_preferred: bool, now: Instant) -> Self {
        Self { who: Who::Nobody, ask: if is_preferred { now } else { now + LEASE }, sure: now + 2 * LEASE }
    }

    /// Takes the answer to a question; an error leaves the last answer in force while it counts.
    fn answered(self, answer: Option<bool>, is_preferred: bool, now: Instant) -> Self {
        let ask = now + if is_preferred || answer == Some(true) { BEAT } else { LEASE };
        match answer {
            Some(true) => Self { who: Who::Ours, ask, sure: now + 2 * LEASE },
            Some(false) => Self { who: Who::Others, ask, sure: now + 2 * LEASE },
            None if now < self.sure && self.who != Who::Nobody => Self { ask: now + BEAT, ..self },
            // Nobody can say who looks, and somebody has to.
            None => Self { who: Who::Ours, ask: now + BEAT, ..self },
        }
    }
}

/// Which of these publishers should look at a source.
fn preferred<'a>(crew: &'a BTreeSet<String>, source: &str) -> Option<&'a str> {
    let weight = |member: &&String| Digest::of_parts([member.as_bytes(), source.as_bytes()]);
    crew.iter().max_by_key(weight).map(String::as_str)
}

impl Leases {
    /// No leases yet.
    pub(super) fn new(index: Arc<dyn Index>, sharing: Sharing) -> Self {
        let holder = ulid::Ulid::generate().to_string();
        let crew = BTreeSet::from([holder.clone()]);
        Self { index, holder, sharing, standings: BTreeMap::new(), crew, beaten: None }
    }

    /// Whether this publisher looks at a source.
    pub(super) fn holds(&self, source: &str) -> bool {
        self.sharing == Sharing::Alone
            || self.standings.get(source).is_some_and(|standing| standing.who == Who::Ours)
    }

    /// How many publishers live.
    pub(super) fn crew(&self) -> usize {
        self.crew.len()
    }

    /// Asks for what is due to be asked for, and lets go what others should do; those that this
    /// publisher did not look at before, and does now. `busy` are looked at in this moment.
    pub(super) async fn refresh(
        &mut self,
        sources: &BTreeSet<String>,
        busy: &BTreeSet<String>,
        now: Instant,
    ) -> Vec<String> {
        if self.sharing == Sharing::Alone {
            return Vec::new();
        }
        if self.beaten.is_none_or(|beaten| now >= beaten + BEAT) {
            self.beaten = Some(now);
            self.meet_crew().await;
        }
        self.standings.retain(|source, _| sources.contains(source));
        let mut acts = Vec::new();
        for source in sources {
            let is_preferred = preferred(&self.crew, source) == Some(self.holder.as_str());
            let new = || Standing::new(is_preferred, now);
            let standing = self.standings.entry(source.clone()).or_insert_with(new);
            match decide(standing, is_preferred, busy.contains(source), now) {
                Act::Wait => {}
                act => acts.push((source.clone(), act, is_preferred)),
            }
        }
        self.carry_out(acts, now).await
    }

    async fn carry_out(&mut self, acts: Vec<(String, Act, bool)>, now: Instant) -> Vec<String> {
        let calls = acts.into_iter().map(|(source, act, is_preferred)| {
            let (index, holder) = (Arc::clone(&self.index), self.holder.clone());
            async move {
                let ttl = if act == Act::LetGo { GIVEN_BACK } else { LEASE };
                let answer = index.lease(&name(&source), &holder, ttl).await;
                let answer = answer.inspect_err(|error| debug!(%error, "a lease is not answered")).ok();
                (source, act, is_preferred, answer)
            }
        });
        let answers: Vec<_> =
            stream::iter(calls.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).collect().await;
        let mut gained = Vec::new();
        for (source, act, is_preferred, answer) in answers {
            let Some(standing) = self.standings.get_mut(&source) else { continue };
            if act == Act::LetGo {
                *standing = Standing { who: Who::Others, ask: now + LEASE, sure: now + 2 * LEASE };
                continue;
            }
            let before = standing.who;
            *standing = standing.answered(answer, is_preferred, now);
            if standing.who == Who::Ours && before != Who::Ours {
                gained.push(source);
            }
        }
        gained
    }

    /// Says that this publisher lives, and sees who else does.
    async fn meet_crew(&mut self) {
        let now = u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX);
        let own = Digest::of(self.holder.as_bytes()).as_bytes()[0] % PLACES;
        let entry = Entry { version: now, bytes: Bytes::from(self.holder.clone()) };
        if let Err(error) = self.index.put(&place(own), &entry).await {
            debug!(%error, "the index is away: leases stay as they are for a while");
            return;
        }
        let index = &self.index;
        let reads = (0..PLACES).map(|n| async move { index.get(&place(n)).await.ok().flatten() });
        let lease = u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX);
        let entries: Vec<Option<Entry>> =
            stream::iter(reads.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).collect().await;
        let alive = entries.into_iter().flatten().filter(|entry| entry.version.saturating_add(lease) > now);
        self.crew = alive.filter_map(|entry| String::from_utf8(entry.bytes.to_vec()).ok()).collect();
        self.crew.insert(self.holder.clone());
    }

    /// Tells whoever takes a source over when it was looked at.
    pub(super) async fn tell_looked(&self, source: &str) {
        if self.sharing == Sharing::Alone {
            return;
        }
        let version = u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX);
        let entry = Entry { version, bytes: Bytes::new() };
        if let Err(error) = self.index.put(&looked(source), &entry).await {
            debug!(%error, source, "nobody is told when a source was looked at");
        }
    }

    /// How long ago a source was looked at by anybody, where that is known.
    pub(super) async fn looked_ago(&self, source: &str) -> Option<Duration> {
        let entry = self.index.get(&looked(source)).await.ok().flatten()?;
        let now = u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX);
        Some(Duration::from_millis(now.checked_sub(entry.version)?))
    }

    /// Gives every lease back, so that others take over at once.
    pub(super) async fn give_back(&mut self) {
        let ours: Vec<_> = self.standings.iter().filter(|(_, s)| s.who == Who::Ours).collect();
        let acts = ours.into_iter().map(|(source, _)| (source.clone(), Act::LetGo, false)).collect();
        self.carry_out(acts, Instant::now()).await;
    }
}

fn name(source: &str) -> String {
    format!("source:{source}")
}

fn place(n: u8) -> String {
    format!("publisher/{n:02}")
}

fn looked(source: &str) -> String {
    format!("looked/{source}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::memory::Memory;

    fn sources(count: usize) -> BTreeSet<String> {
        (0..count).map(|n| format!("s{n}")).collect()
    }

    #[test]
    fn sources_are_spread_and_a_publisher_that_leaves_moves_only_its_own() {
        let crew: BTreeSet<String> = ["a", "b", "c"].map(ToOwned::to_owned).into();
        let fewer: BTreeSet<String> = ["a", "c"].map(ToOwned::to_owned).into();
        let mut counts = BTreeMap::new();
        for source in sources(3_000) {
            let who = preferred(&crew, &source).expect("there are three");
            *counts.entry(who.to_owned()).or_insert(0) += 1;
            if who != "b" {
                assert_eq!(preferred(&fewer, &source), Some(who));
            }
        }
        assert!(counts.values().all(|n| (900..1_100).contains(n)), "{counts:?}");
    }

    #[test]
    fn without_an_answer_the_last_one_counts_for_a_while_and_then_somebody_looks() {
        let now = Instant::now();
        let others = Standing::new(true, now).answered(Some(false), true, now);
        assert_eq!(others.answered(None, true, now + LEASE).who, Who::Others);
        assert_eq!(others.answered(None, true, now + 3 * LEASE).who, Who::Ours);
        assert_eq!(Standing::new(true, now).answered(None, true, now).who, Who::Ours);
        let ours = Standing::new(false, now).answered(Some(true), false, now);
        assert_eq!(decide(&ours, false, true, now), Act::Wait, "not while it is looked at");
        assert_eq!(decide(&ours, false, false, now), Act::LetGo);
    }

    #[tokio::test]
    async fn publishers_share_the_sources_and_take_over_what_one_gives_back() {
        let index: Arc<dyn Index> = Arc::new(Memory::new());
        let (all, idle) = (sources(200), BTreeSet::new());
        let mut a = Leases::new(Arc::clone(&index), Sharing::Shared);
        let mut b = Leases::new(index, Sharing::Shared);
        let start = Instant::now();
        assert_eq!(a.refresh(&all, &idle, start).await.len(), 200, "a is alone");
        b.refresh(&all, &idle, start).await;
        let held = |leases: &Leases| all.iter().filter(|source| leases.holds(source)).count();
        assert_eq!(held(&b), 0, "a holds them all");
        a.refresh(&all, &idle, start + BEAT).await;
        // What is given back is free in a moment.
        let (mut round, deadline) = (1, Instant::now() + LEASE);
        while held(&a) + held(&b) < 200 && Instant::now() < deadline {
            b.refresh(&all, &idle, start + round * BEAT).await;
            round += 1;
            tokio::task::yield_now().await;
        }
        assert!((60..140).contains(&held(&a)), "{} are left", held(&a));
        assert!(all.iter().all(|source| a.holds(source) != b.holds(source)), "each is held once");
        a.give_back().await;
        while held(&b) < 200 && Instant::now() < deadline {
            b.refresh(&all, &idle, start + round * LEASE).await;
            round += 1;
            tokio::task::yield_now().await;
        }
        assert_eq!((held(&a), held(&b)), (0, 200));
    }
}
