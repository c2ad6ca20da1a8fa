//! How many requests are in flight: as many as the API server bears, which it says itself.
//!
//! API priority and fairness answers `429` when its queues are full. Each answer that comes makes room for
//! a little more, each refusal halves it: additive increase and multiplicative decrease (RFC 5681, section
//! 3.1), which shares a server fairly among clients that know nothing of one another. Whoever was refused
//! waits as long as the server asked before it takes a place again. Site and fleet may set a bound of their own, to
//! requests at once and to requests a second, and another one at any time.
//!
//! An admission webhook that does not answer holds a write for as long as half a minute. So a service that writes has at
//! most as many places as it leaves free (Choudhury and Hahne's dynamic thresholds): however many services hang, there
//! is room for another, and for whoever only reads.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farshore_shared::names::Name;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Requests in flight before anything is known of the server.
const FIRST: f64 = 16.0;
/// The fewest, whatever the server says.
const LEAST: f64 = 1.0;

/// The places of one connection. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Flow {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    room: Mutex<Room>,
    /// Says that there may be room.
    left: Notify,
    pace: Mutex<Pace>,
    /// Says that the pace is another one.
    turned: Notify,
}

#[derive(Debug)]
struct Pace {
    /// The time between two requests; none without a limit.
    step: Option<Duration>,
    /// When the next may go.
    next: Instant,
}

#[derive(Debug)]
struct Room {
    limit: f64,
    /// The most at once, however much the server bears.
    most: f64,
    taken: usize,
    /// Of those, how many each service has for its writes.
    writing: BTreeMap<Arc<Name>, usize>,
    /// Counts the times that the limit was halved: what was sent before is no further news.
    halved: u64,
}

impl Room {
    #[expect(clippy::cast_precision_loss, reason = "requests in flight are few")]
    fn is_free(&self, writer: Option<&Arc<Name>>) -> bool {
        let left = self.limit.floor() - self.taken as f64;
        let has = writer.and_then(|writer| self.writing.get(writer)).copied().unwrap_or_default();
        left >= 1.0 && (has == 0 || (has as f64) < left)
    }
}

/// A place among the requests in flight; it is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    shared: Arc<Shared>,
    halved: u64,
    writer: Option<Arc<Name>>,
}

impl Flow {
    /// Nothing is known of the server yet. At most so many requests go at once, and in a second.
    pub(super) fn new(in_flight: u16, per_second: Option<u32>) -> Self {
        let most = f64::from(in_flight).max(LEAST);
        let room = Room { limit: FIRST.min(most), most, taken: 0, writing: BTreeMap::new(), halved: 0 };
        let pace = Pace { step: step(per_second), next: Instant::now() };
        let (room, pace) = (Mutex::new(room), Mutex::new(pace));
        Self { shared: Arc::new(Shared { room, left: Notify::new(), pace, turned: Notify::new() }) }
    }

    /// From here on, at most so many requests go at once, and in a second. What is in flight is left alone; who
    /// waits, waits by the new bounds.
    pub(super) fn bound(&self, in_flight: u16, per_second: Option<u32>) {
        let most = f64::from(in_flight).max(LEAST);
        {
            let mut room = self.shared.room();
            if (room.most - most).abs() > 0.5 {
                // Where the server has set the limit it stays; where only our bound did, it may bear more.
                room.limit = if room.limit < room.most {
                    room.limit.min(most)
                } else {
                    FIRST.max(room.limit).min(most)
                };
                room.most = most;
            }
        }
        self.shared.left.notify_waiters();
        let step = step(per_second);
        let mut pace = self.shared.pace();
        if pace.step != step {
            *pace = Pace { step, next: Instant::now() };
            drop(pace);
            self.shared.turned.notify_waiters();
        }
    }

    /// Waits for a place, and until a request may be sent: a write of a service, or anything else.
    pub(super) async fn place(&self, writer: Option<&Arc<Name>>) -> Place {
        let place = self.free(writer).await;
        self.paced().await;
        place
    }

    async fn paced(&self) {
        loop {
            let mut turned = pin!(self.shared.turned.notified());
            // From here on no other pace goes unnoticed.
            turned.as_mut().enable();
            let Some(at) = self.shared.pace().reserved() else { return };
            // Cancel-safe: who is cut here goes without its turn, and nobody waits for it.
            tokio::select! {
                () = sleep_until(at) => return,
                () = turned => {}
            }
        }
    }

    async fn free(&self, writer: Option<&Arc<Name>>) -> Place {
        loop {
            let mut left = pin!(self.shared.left.notified());
            // From here on no place that is left goes unnoticed.
            left.as_mut().enable();
            {
                let mut room = self.shared.room();
                if room.is_free(writer) {
                    room.taken += 1;
                    if let Some(writer) = writer {
                        *room.writing.entry(Arc::clone(writer)).or_default() += 1;
                    }
                    let (shared, writer) = (Arc::clone(&self.shared), writer.cloned());
                    return Place { shared, halved: room.halved, writer };
                }
            }
            left.await;
        }
    }

    #[cfg(test)]
    fn limit(&self) -> f64 {
        self.shared.room().limit
    }
}

impl Shared {
    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pace {
    /// When this request may go, where that is limited. What was not used for a second is lost.
    fn reserved(&mut self) -> Option<Instant> {
        let step = self.step?;
        let now = Instant::now();
        let earliest = now.checked_sub(Duration::from_secs(1)).unwrap_or(now);
        let at = self.next.max(earliest);
        self.next = at + step;
        Some(at)
    }
}

fn step(per_second: Option<u32>) -> Option<Duration> {
    per_second.map(|most| Duration::from_secs(1) / most.max(1))
}

impl Place {
    /// The server has answered: it bears a little more.
    pub(super) fn answered(&self) {
        let mut room = self.shared.room();
        room.limit = (room.limit + 1.0 / room.limit).min(room.most);
    }

    /// The server has turned this request away for its load. Those that were in flight with it tell no more
    /// than it does.
    pub(super) fn refused(&self) {
        let mut room = self.shared.room();
        if room.halved == self.halved {
            room.halved += 1;
            room.limit = (room.limit / 2.0).max(LEAST);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut room = self.shared.room();
        room.taken -= 1;
        if let Some(writer) = &self.writer
            && let Some(places) = room.writing.get_mut(writer)
        {
            *places -= 1;
            if *places == 0 {
                room.writing.remove(writer);
            }
        }
        drop(room);
        // All: the first to wait may be of a service that has its share. Who finds no room waits again.
        self.shared.left.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt as _, poll};

    async fn places(flow: &Flow, count: usize) -> Vec<Place> {
        let mut places = Vec::new();
        for _ in 0..count {
            places.push(flow.place(None).await);
        }
        places
    }

    #[tokio::test]
    async fn who_finds_no_place_waits_until_one_is_left() {
        let flow = Flow::new(64, None);
        let mut taken = places(&flow, 16).await;
        let mut waiting = std::pin::pin!(flow.place(None));
        assert!(poll!(&mut waiting).is_pending());
        drop(taken.pop());
        let _place = waiting.await;
        assert!(flow.place(None).now_or_never().is_none());
    }

    #[tokio::test]
    async fn answers_make_room_and_one_wave_of_refusals_halves_it_once() {
        let flow = Flow::new(64, None);
        let wave = places(&flow, 16).await;
        wave.iter().for_each(Place::answered);
        assert!((16.9..17.0).contains(&flow.limit()), "{}", flow.limit());
        wave.iter().for_each(Place::refused);
        assert!((8.4..8.5).contains(&flow.limit()), "{}", flow.limit());
        drop(wave);
        for _ in 0..20 {
            flow.place(None).await.refused();
        }
        assert!((flow.limit() - LEAST).abs() < f64::EPSILON, "one request always goes");
        for _ in 0..10_000 {
            flow.place(None).await.answered();
        }
        assert!((flow.limit() - 64.0).abs() < f64::EPSILON);
    }

    #[tokio::test]
    async fn a_site_may_set_a_bound_of_its_own() {
        let flow = Flow::new(2, None);
        let wave = places(&flow, 2).await;
        wave.iter().for_each(Place::answered);
        assert!(flow.place(None).now_or_never().is_none(), "however much the server bears");
    }

    #[tokio::test]
    async fn services_whose_writes_hang_leave_a_place_to_others() {
        let flow = Flow::new(64, None);
        let services = ["a", "b", "c", "d"].map(|name| Arc::new(name.parse().expect("a name")));
        let mut held = vec![];
        let mut counts = vec![];
        for service in &services {
            let before = held.len();
            while let Some(place) = flow.place(Some(service)).now_or_never() {
                held.push(place);
            }
            counts.push(held.len() - before);
        }
        assert_eq!(counts, [8, 4, 2, 1]);
        let mut waiting = std::pin::pin!(flow.place(Some(&services[0])));
        assert!(poll!(&mut waiting).is_pending());
        drop(flow.place(None).now_or_never().expect("who reads finds the last place"));
        assert!(poll!(&mut waiting).is_pending());
        held.drain(..8);
        assert!(poll!(&mut waiting).is_ready(), "what its service gave back is heard of");
    }

    #[test]
    fn requests_are_spread_over_the_second_and_what_was_not_used_is_lost() {
        let begun = Instant::now();
        let mut pace = Pace { step: step(Some(10)), next: begun };
        let times: Vec<_> = (0..25).filter_map(|_| pace.reserved()).collect();
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == Duration::from_millis(100)));
        pace.next = begun.checked_sub(Duration::from_secs(60)).unwrap_or(begun);
        let at_once = (0..100).filter_map(|_| pace.reserved()).filter(|at| *at <= Instant::now()).count();
        assert!(at_once <= 12, "{at_once}");
        assert_eq!(Pace { step: step(None), next: begun }.reserved(), None);
    }

    #[tokio::test]
    async fn another_bound_counts_at_once_for_those_who_wait() {
        let flow = Flow::new(2, None);
        let mut taken = places(&flow, 2).await;
        let mut waiting = std::pin::pin!(flow.place(None));
        assert!(poll!(&mut waiting).is_pending());
        flow.bound(3, None);
        taken.push(waiting.await);
        assert!(flow.place(None).now_or_never().is_none());
        // What is in flight is left alone, and nobody follows before there is room within the new bound.
        flow.bound(1, None);
        drop(taken.pop());
        drop(taken.pop());
        assert!(flow.place(None).now_or_never().is_none());
        drop(taken);
        let _place = flow.place(None).await;
    }

    #[tokio::test]
    async fn another_pace_counts_at_once_for_those_who_wait() {
        let flow = Flow::new(64, Some(1));
        let _first: Vec<Place> = places(&flow, 1).await;
        let mut waiting: Vec<_> = (0..10).map(|_| Box::pin(flow.place(None))).collect();
        for place in &mut waiting {
            assert!(poll!(place).is_pending());
        }
        let begun = Instant::now();
        flow.bound(64, None);
        let _places = futures::future::join_all(waiting).await;
        assert!(begun.elapsed() < Duration::from_secs(1), "by the old pace it takes ten");
        flow.bound(64, Some(1));
        let _one = flow.place(None).await;
        assert!(flow.place(None).now_or_never().is_none());
        // The same bounds again are no news: nobody's turn is lost.
        let mut waiting = std::pin::pin!(flow.place(None));
        assert!(poll!(&mut waiting).is_pending());
        let next = flow.shared.pace().next;
        flow.bound(64, Some(1));
        assert_eq!(flow.shared.pace().next, next);
    }

    #[tokio::test]
    async fn a_server_that_was_found_to_bear_less_is_not_asked_for_more_by_another_bound() {
        let flow = Flow::new(64, None);
        for _ in 0..3 {
            flow.place(None).await.refused();
        }
        flow.bound(128, None);
        assert!((flow.limit() - 2.0).abs() < f64::EPSILON, "{}", flow.limit());
        let small = Flow::new(2, None);
        small.bound(64, None);
        assert!((small.limit() - FIRST).abs() < f64::EPSILON, "nothing was found of this one");
    }
}
