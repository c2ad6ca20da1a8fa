//! Looks at repositories that are under way, and what they brought: a publication takes what has
//! arrived and waits for none that is slow.
//!
//! The one task of each look belongs to this set and ends with it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use farshore_shared::digest::Digest;
use tokio::sync::Semaphore;
use tokio::task::{Id, JoinSet};

use super::settle::SourceSeen;
use super::sync::FleetFetched;

/// What a look saw.
#[derive(Debug, Clone)]
pub(super) enum Seen {
    /// The fleet repository's declarations, or why there are none.
    Fleet(Result<Arc<FleetFetched>, String>),
    /// A source, and its services.
    Source(SourceSeen),
}

/// What a look saw, and what it was for: it is of use while that has not changed.
#[derive(Debug)]
pub(super) struct Arrived {
    /// What it was for.
    pub(super) basis: Digest,
    /// What it saw.
    pub(super) seen: Seen,
    /// What a person should know of the next try; noted once, when a failure is taken.
    pub(super) again: Option<String>,
}

/// The looks of one publisher.
#[derive(Debug)]
pub(super) struct Fetches {
    running: JoinSet<Seen>,
    under_way: BTreeMap<Id, (String, Digest)>,
    busy: BTreeSet<String>,
    arrived: BTreeMap<String, Arrived>,
    slots: Arc<Semaphore>,
}

impl Fetches {
    /// At most so many sources are fetched at once.
    pub(super) fn new(slots: usize) -> Self {
        let slots = Arc::new(Semaphore::new(slots.max(1)));
        let (under_way, busy, arrived) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { running: JoinSet::new(), under_way, busy, arrived, slots }
    }

    /// Begins a look, which waits for a slot.
    pub(super) fn start(
        &mut self,
        source: &str,
        basis: Digest,
        look: impl Future<Output = Seen> + Send + 'static,
    ) {
        let slots = Arc::clone(&self.slots);
        self.start_now(source, basis, async move {
            let _slot = slots.acquire_owned().await.expect("the slots are never closed");
            look.await
        });
    }

    /// Begins a look that waits for no slot.
    pub(super) fn start_now(
        &mut self,
        source: &str,
        basis: Digest,
        look: impl Future<Output = Seen> + Send + 'static,
    ) {
        self.arrived.remove(source);
        let task = self.running.spawn(look);
        self.under_way.insert(task.id(), (source.to_owned(), basis));
        self.busy.insert(source.to_owned());
    }

    /// Whether a look at this source is under way.
    pub(super) fn is_under_way(&self, source: &str) -> bool {
        self.busy.contains(source)
    }

    /// The sources that are looked at in this moment.
    pub(super) fn busy(&self) -> &BTreeSet<String> {
        &self.busy
    }

    /// Waits for a look to end, for ever if none is under way; of which source. Cancel-safe: nothing that
    /// arrived is lost.
    pub(super) async fn next(&mut self) -> String {
        match self.running.join_next_with_id().await {
            None => std::future::pending().await,
            Some(Ok((id, seen))) => self.arrive(id, |_| seen),
            Some(Err(error)) => self.arrive(error.id(), |was_fleet| {
                let message = format!("internal failure: {error}");
                match was_fleet {
                    true => Seen::Fleet(Err(message)),
                    false => Seen::Source(SourceSeen::Failed(message)),
                }
            }),
        }
    }

    fn arrive(&mut self, id: Id, seen: impl FnOnce(bool) -> Seen) -> String {
        let (source, basis) = self.under_way.remove(&id).expect("every look that runs is noted");
        let seen = seen(source == crate::record::FLEET);
        self.busy.remove(&source);
        self.arrived.insert(source.clone(), Arrived { basis, seen, again: None });
        source
    }

    /// Waits for these looks, but not longer than until then.
    pub(super) async fn wait(&mut self, sources: &BTreeSet<String>, until: Instant) {
        let over = tokio::time::sleep_until(until.into());
        tokio::pin!(over);
        let mut left: BTreeSet<String> = sources.intersection(&self.busy).cloned().collect();
        while !left.is_empty() {
            // Both are cancel-safe.
            tokio::select! {
                source = self.next() => drop(left.remove(&source)),
                () = &mut over => return,
            }
        }
    }

    /// What arrived of a source, if it was looked at for this; what was for something else is dropped.
    pub(super) fn take(&mut self, source: &str, basis: Digest) -> Option<&mut Arrived> {
        if self.arrived.get(source).is_some_and(|arrived| arrived.basis != basis) {
            self.arrived.remove(source);
        }
        self.arrived.get_mut(source)
    }

    /// Whether anything has arrived that no publication has taken.
    pub(super) fn has_arrived(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Forgets all that has arrived: it is looked at again.
    pub(super) fn forget(&mut self) {
        self.arrived.clear();
    }

    /// Forgets what a publication has taken.
    pub(super) fn done(&mut self, source: &str) {
        self.arrived.remove(source);
    }

    /// Forgets what arrived of sources that are not declared any more.
    pub(super) fn keep(&mut self, declared: &BTreeSet<String>) {
        self.arrived.retain(|source, _| declared.contains(source));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn failed(message: &str) -> Seen {
        Seen::Source(SourceSeen::Failed(message.to_owned()))
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[tokio::test]
    async fn a_slow_look_is_waited_for_no_longer_than_said_and_taken_when_it_arrives() {
        let (mut fetches, basis) = (Fetches::new(4), Digest::of(b"1"));
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        fetches.start("slow", basis, async move {
            gone.await.ok();
            failed("slow")
        });
        fetches.start("fast", basis, async { failed("fast") });
        fetches.wait(&names(&["slow", "fast"]), Instant::now() + Duration::from_millis(200)).await;
        assert!(fetches.take("fast", basis).is_some() && fetches.take("slow", basis).is_none());
        assert!(fetches.is_under_way("slow"));
        go.send(()).expect("it waits");
        fetches.next().await;
        assert!(fetches.take("slow", basis).is_some());
    }

    #[tokio::test]
    async fn what_arrives_for_something_else_is_dropped() {
        let mut fetches = Fetches::new(1);
        fetches.start("a", Digest::of(b"1"), async { failed("old") });
        fetches.next().await;
        assert!(fetches.take("a", Digest::of(b"2")).is_none());
        assert!(!fetches.has_arrived());
    }

    #[tokio::test]
    async fn a_look_that_panics_is_that_sources_failure_alone() {
        let (mut fetches, basis) = (Fetches::new(1), Digest::of(b"1"));
        fetches.start("a", basis, async { panic!("a bug") });
        fetches.next().await;
        let arrived = fetches.take("a", basis).expect("it has ended");
        assert!(matches!(&arrived.seen, Seen::Source(SourceSeen::Failed(_))), "{arrived:?}");
    }
}
