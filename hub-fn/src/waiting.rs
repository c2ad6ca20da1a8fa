//! The agents that wait for news at this replica, in rooms: those that hold the same body of the same group
//! share one, so that a publication wakes only whom it concerns.
//!
//! A room is filled in benches of 256. All of a bench are woken by one call, and between two benches
//! everything else of the process has its turn: a wake to everybody does not hold up polls. How soon those who
//! are woken may poll is decided by how many are woken at once and by how many polls a second are admitted.
//!
//! What an agent that waits costs in memory, measured in an unoptimised build with both ends of its connection
//! in one process (`what_a_waiting_agent_costs` in `hub-fn/tests/publish/steer.rs`): 18 KB as one of a hundred
//! on an HTTP/2 connection, 100 KB with a TLS connection of its own. The hub has less than that of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farshore_shared::names::Name;
use farshore_shared::wire::GroupId;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use crate::directory::Moved;
use crate::record;
use crate::view::View;

/// How many agents are woken by one call.
const BENCH: usize = 256;
/// The least time between two looks at rosters.
const ROSTERS: Duration = Duration::from_secs(1);
/// A window below this is none: nobody notices so few polls at once.
const NO_WINDOW: Duration = Duration::from_millis(100);

/// How many may wait, and how fast they may be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WakeLimits {
    /// Agents that wait at once; with 0 this door cannot hold any.
    pub waiting: usize,
    /// Polls a second that are admitted after a wake.
    pub rate: u32,
}

impl Default for WakeLimits {
    fn default() -> Self {
        Self { waiting: 50_000, rate: 2_000 }
    }
}

/// The body that an agent holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holds {
    /// Its group.
    pub group: GroupId,
    /// The body's sequence.
    pub sequence: u64,
}

/// What an agent that waits is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Nothing yet.
    Wait,
    /// Something newer is published: poll at any time within so long.
    Woken(Duration),
    /// This replica ends: come back after so long.
    Closing(Duration),
}

/// Why nobody can wait here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlace {
    /// This door holds no requests.
    Never,
    /// Too many wait (the limit).
    Full(usize),
    /// This replica ends.
    Closing,
}

/// All agents that wait at this replica.
#[derive(Debug)]
pub struct Waiting {
    limits: WakeLimits,
    places: Arc<Semaphore>,
    rooms: Mutex<Rooms>,
    /// One for each shard of the directory.
    rosters: Vec<Notify>,
}

#[derive(Debug)]
struct Rooms {
    open: HashMap<Holds, Vec<watch::Sender<Call>>>,
    waves: Waves,
    is_closing: bool,
}

/// One agent that waits. Its place is free again when it is dropped.
#[derive(Debug)]
pub struct Waiter {
    call: watch::Receiver<Call>,
    _place: OwnedSemaphorePermit,
}

impl Waiter {
    /// What it is called with, once it is.
    pub async fn called(&mut self) -> Call {
        match self.call.wait_for(|call| *call != Call::Wait).await {
            Ok(call) => *call,
            // Its bench is gone without a word: to look is the safe answer.
            Err(_gone) => Call::Woken(Duration::ZERO),
        }
    }
}

impl Waiting {
    /// Nobody waits yet.
    #[must_use]
    pub fn new(limits: WakeLimits) -> Self {
        let rooms = Rooms { open: HashMap::new(), waves: Waves::default(), is_closing: false };
        Self {
            limits,
            places: Arc::new(Semaphore::new(limits.waiting.min(Semaphore::MAX_PERMITS))),
            rooms: Mutex::new(rooms),
            rosters: (0..record::SHARDS).map(|_| Notify::new()).collect(),
        }
    }

    /// How many wait.
    #[must_use]
    pub fn count(&self) -> usize {
        self.limits.waiting - self.places.available_permits().min(self.limits.waiting)
    }

    /// A place for an agent that holds this body. Whoever has taken it looks once more whether there is
    /// something newer, and waits then: what is published in between is not missed.
    ///
    /// # Errors
    /// [`NoPlace`].
    pub fn enter(&self, holds: Holds) -> Result<Waiter, NoPlace> {
        if self.limits.waiting == 0 {
            return Err(NoPlace::Never);
        }
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_none_free| NoPlace::Full(self.limits.waiting))?;
        let mut rooms = self.rooms();
        if rooms.is_closing {
            return Err(NoPlace::Closing);
        }
        let call = take_a_seat(rooms.open.entry(holds).or_default());
        Ok(Waiter { call, _place: place })
    }

    /// Ends when a roster may have changed that lies in the same shard as this cluster's. Notes what comes
    /// from its first poll on, or from `enable`.
    pub fn roster(&self, cluster: &Name) -> Notified<'_> {
        self.rosters[usize::from(record::directory_shard_of(cluster))].notified()
    }

    /// Has all who wait in these shards look at their rosters, shard by shard.
    pub async fn rosters_changed(&self, moved: &Moved) {
        for shard in moved.shards() {
            self.rosters[usize::from(shard)].notify_waiters();
            tokio::task::yield_now().await;
        }
    }

    /// The window for one agent more that is woken now.
    pub fn window(&self) -> Duration {
        self.rooms().waves.window(1, self.limits.rate, Instant::now())
    }

    /// Wakes everybody who holds less than what is published for its group. Gives how many were called.
    pub async fn published(&self, sequence_of: impl Fn(&GroupId) -> Option<u64>) -> usize {
        let (benches, count, call) = {
            let mut rooms = self.rooms();
            let is_newer =
                |holds: &Holds| sequence_of(&holds.group).is_some_and(|newest| newest > holds.sequence);
            let concerned: Vec<Holds> = rooms.open.keys().filter(|holds| is_newer(holds)).copied().collect();
            let benches: Vec<_> =
                concerned.iter().filter_map(|holds| rooms.open.remove(holds)).flatten().collect();
            rooms.open.retain(|_, benches| benches.iter().any(|bench| bench.receiver_count() > 0));
            let count = benches.iter().map(watch::Sender::receiver_count).sum();
            let window = rooms.waves.window(count, self.limits.rate, Instant::now());
            (benches, count, Call::Woken(window))
        };
        for bench in benches {
            bench.send_replace(call);
            tokio::task::yield_now().await;
        }
        count
    }

    /// Sends everybody away: this replica ends. They come back spread over as long as they were welcome.
    pub fn close(&self) {
        let mut rooms = self.rooms();
        rooms.is_closing = true;
        let after = Duration::from_secs(2) + 2 * share(self.count(), self.limits.rate);
        for bench in rooms.open.drain().flat_map(|(_, benches)| benches) {
            bench.send_replace(Call::Closing(after));
        }
    }

    fn rooms(&self) -> std::sync::MutexGuard<'_, Rooms> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A seat on the last bench, on one that has emptied, or on a new one.
fn take_a_seat(benches: &mut Vec<watch::Sender<Call>>) -> watch::Receiver<Call> {
    let has_room = |bench: &watch::Sender<Call>| bench.receiver_count() < BENCH;
    if !benches.last().is_some_and(has_room) {
        benches.retain(|bench| bench.receiver_count() > 0);
        match benches.iter().position(|bench| bench.receiver_count() < BENCH / 2) {
            Some(at) => {
                let last = benches.len() - 1;
                benches.swap(at, last);
            }
            None => benches.push(watch::Sender::new(Call::Wait)),
        }
    }
    benches.last().expect("one was found or pushed").subscribe()
}

/// How long so many take at this rate.
fn share(count: usize, rate: u32) -> Duration {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    Duration::from_secs(1).mul_f64(f64::from(count) / f64::from(rate.max(1)))
}

/// The waves of polls that wakes have caused and that are not over yet.
#[derive(Debug, Default)]
struct Waves {
    /// When the last of them is.
    until: Option<Instant>,
}

impl Waves {
    /// The window for so many more: a wave that comes on top of another one is as much longer.
    fn window(&mut self, count: usize, rate: u32, now: Instant) -> Duration {
        let from = self.until.filter(|until| *until > now).unwrap_or(now);
        let until = from + share(count, rate);
        self.until = Some(until);
        let window = until.duration_since(now);
        if window < NO_WINDOW { Duration::ZERO } else { window }
    }
}

/// Wakes agents whenever this replica sees a newer publication, and sends them away at the end.
pub async fn follow(
    waiting: Arc<Waiting>,
    view: View,
    mut changed: watch::Receiver<u64>,
    mut stop: watch::Receiver<bool>,
) {
    let (mut looked, mut due) = (Instant::now(), None);
    loop {
        // Cancel-safe: a change that is not taken stays visible.
        tokio::select! {
            change = changed.changed() => if change.is_err() { break },
            () = sleep_until(due.unwrap_or(looked)), if due.is_some() => {
                (looked, due) = (Instant::now(), None);
                waiting.rosters_changed(&view.take_moved()).await;
                continue;
            }
            _ = stop.changed() => break,
        }
        // A roster moves after the head does, and many move one after the other.
        due = due.or(Some(Instant::now().max(looked + ROSTERS)));
        if let Some(publication) = view.published() {
            let woken = waiting.published(|id| publication.group(id).map(|group| group.sequence)).await;
            if woken > 0 {
                debug!(woken, sequence = publication.head.sequence, "waiting agents are woken");
            }
        }
    }
    waiting.close();
}

#[cfg(test)]
mod tests {
    use super::*;
    use farshore_shared::digest::Digest;

    fn holds(group: &str, sequence: u64) -> Holds {
        Holds { group: Digest::of(group.as_bytes()), sequence }
    }

    fn published(group: &str, sequence: u64) -> impl Fn(&GroupId) -> Option<u64> {
        let group = Digest::of(group.as_bytes());
        move |id| (*id == group).then_some(sequence)
    }

    #[tokio::test]
    async fn only_those_whose_group_changed_are_woken() {
        let waiting = Waiting::new(WakeLimits::default());
        let mut concerned = waiting.enter(holds("edge", 5)).expect("a place");
        let mut ahead = waiting.enter(holds("edge", 6)).expect("a place");
        let mut other = waiting.enter(holds("core", 5)).expect("a place");
        assert_eq!(waiting.published(published("edge", 6)).await, 1);
        assert_eq!(concerned.called().await, Call::Woken(Duration::ZERO));
        for waiter in [&mut ahead, &mut other] {
            assert_eq!(*waiter.call.borrow(), Call::Wait);
        }
        assert_eq!(waiting.published(published("edge", 6)).await, 0, "once");
        assert_eq!(waiting.published(published("edge", 7)).await, 1);
        assert_eq!(ahead.called().await, Call::Woken(Duration::ZERO));
    }

    #[tokio::test]
    async fn places_are_bounded_and_free_again_when_an_agent_leaves() {
        let waiting = Waiting::new(WakeLimits { waiting: 2, rate: 10 });
        let one = waiting.enter(holds("edge", 5)).expect("a place");
        let _two = waiting.enter(holds("core", 5)).expect("a place");
        assert_eq!(waiting.enter(holds("edge", 5)).expect_err("full"), NoPlace::Full(2));
        assert_eq!(waiting.count(), 2);
        drop(one);
        assert_eq!(waiting.count(), 1);
        drop(waiting.enter(holds("edge", 5)).expect("a place"));
        let never = Waiting::new(WakeLimits { waiting: 0, rate: 10 });
        assert_eq!(never.enter(holds("edge", 5)).expect_err("it holds none"), NoPlace::Never);
    }

    #[tokio::test]
    async fn benches_are_filled_again_and_rooms_that_emptied_are_forgotten() {
        let waiting = Waiting::new(WakeLimits::default());
        let enter = || waiting.enter(holds("edge", 5)).expect("a place");
        let mut waiters: Vec<Waiter> = (0..4 * BENCH).map(|_| enter()).collect();
        let benches = |waiting: &Waiting| waiting.rooms().open.values().map(Vec::len).sum::<usize>();
        assert_eq!(benches(&waiting), 4);
        for _ in 0..10 {
            waiters.drain(..2 * BENCH);
            waiters.extend((0..2 * BENCH).map(|_| enter()));
            assert!(benches(&waiting) <= 6, "{}", benches(&waiting));
        }
        assert_eq!(waiting.published(published("edge", 6)).await, 4 * BENCH);
        waiters.clear();
        drop(enter());
        assert_eq!(waiting.published(published("core", 6)).await, 0);
        assert_eq!(benches(&waiting), 0);
    }

    #[test]
    fn the_window_is_what_the_rate_admits_and_waves_add_up() {
        let (mut waves, now) = (Waves::default(), Instant::now());
        assert_eq!(waves.window(10, 2000, now), Duration::ZERO, "few wait for nothing");
        let later = now + Duration::from_secs(1);
        assert_eq!(waves.window(2_000, 2000, later), Duration::from_secs(1));
        assert_eq!(waves.window(4_000, 2000, later), Duration::from_secs(3), "behind the one before");
        let over = later + Duration::from_secs(60);
        assert_eq!(waves.window(1_000_000, 2000, over), Duration::from_secs(500));
    }

    #[tokio::test]
    async fn an_end_sends_everybody_away_spread() {
        let waiting = Waiting::new(WakeLimits { waiting: 100, rate: 10 });
        let mut waiters: Vec<Waiter> =
            (0..100).map(|_| waiting.enter(holds("edge", 5)).expect("a place")).collect();
        waiting.close();
        for waiter in &mut waiters {
            assert_eq!(waiter.called().await, Call::Closing(Duration::from_secs(22)));
        }
        waiters.clear();
        assert_eq!(waiting.enter(holds("edge", 5)).expect_err("it ends"), NoPlace::Closing);
    }
}
