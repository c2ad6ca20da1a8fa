//! What is due goes to whichever connection is free, as behind a load balancer.
//!
//! Tasks, all on one thread: the *clock* puts what is due into the queue; each *connection* takes from it, one request
//! at a time, and goes to the next replica when its own does not answer. A request is never given up while the run
//! lasts: its time counts from when it was due.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use farshore_shared::clock::since_epoch;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::schedule::{Due, Schedule, Word};
use super::sites::{After, Sites};
use super::tally::Tally;
use crate::load::http1::{self, Answer, Line};
use crate::seed::Fleet;

/// How long a replica may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(10);
/// Before a connection that was refused is tried at the next replica.
const PAUSE: Duration = Duration::from_millis(5);

/// What all tasks share.
pub(super) struct Traffic {
    pub(super) fleet: RefCell<Fleet>,
    pub(super) sites: RefCell<Sites>,
    pub(super) tally: RefCell<Tally>,
    schedule: RefCell<Schedule>,
    queue: RefCell<VecDeque<Due>>,
    ready: Semaphore,
    addresses: Vec<String>,
    /// What was due earlier belongs to the warm-up and is not counted.
    counted_from: Cell<Duration>,
    is_over: Cell<bool>,
    open: Cell<usize>,
}

impl Traffic {
    /// Nothing has been said yet.
    pub(super) fn new(fleet: Fleet, sites: Sites, schedule: Schedule, addresses: Vec<String>) -> Rc<Self> {
        Rc::new(Self {
            fleet: RefCell::new(fleet),
            sites: RefCell::new(sites),
            tally: RefCell::new(Tally::new()),
            schedule: RefCell::new(schedule),
            queue: RefCell::default(),
            ready: Semaphore::new(0),
            addresses,
            counted_from: Cell::new(Duration::MAX),
            is_over: Cell::new(false),
            open: Cell::new(0),
        })
    }

    /// The warm-up is over: what is due from now on counts.
    pub(super) fn count_from(&self, time: Duration) {
        *self.tally.borrow_mut() = Tally::new();
        self.counted_from.set(time);
    }

    /// Nothing new is said. What was due before is still answered.
    pub(super) fn stop(&self) {
        self.is_over.set(true);
        // Who waits for something to say hears that there is nothing.
        self.ready.close();
    }

    /// Requests that were due and have no answer yet.
    pub(super) fn unanswered(&self) -> usize {
        self.queue.borrow().len() + self.open.get()
    }

    /// Puts what is due into the queue, until the end.
    pub(super) async fn keep_time(self: Rc<Self>) {
        while !self.is_over.get() {
            let now = since_epoch();
            let mut count = 0;
            while let Some(due) = self.schedule.borrow_mut().take(now) {
                self.queue.borrow_mut().push_back(due);
                count += 1;
            }
            self.ready.add_permits(count);
            // Timers have a resolution of a millisecond, which counts as the hub's.
            let next = self.schedule.borrow().next().map_or(PAUSE, |next| next.saturating_sub(since_epoch()));
            tokio::time::sleep(next.clamp(Duration::from_micros(500), Duration::from_millis(5))).await;
        }
    }

    async fn next(&self) -> Option<Due> {
        if let Ok(permit) = self.ready.acquire().await {
            permit.forget();
        }
        self.queue.borrow_mut().pop_front()
    }

    /// One connection, until there is nothing more to be said.
    pub(super) async fn carry(self: Rc<Self>, number: usize) {
        let mut replica = number;
        let mut line: Option<Line<TcpStream>> = None;
        while let Some(due) = self.next().await {
            self.open.set(self.open.get() + 1);
            let request = {
                let (fleet, mut tally) = (self.fleet.borrow(), self.tally.borrow_mut());
                self.sites.borrow_mut().request(&fleet, due, &mut tally)
            };
            loop {
                if let Some(answer) = self.ask(&mut line, replica, &request).await {
                    self.heard(due, &answer);
                    break;
                }
                line = None;
                replica += 1;
                tokio::time::sleep(PAUSE).await;
            }
            self.open.set(self.open.get() - 1);
        }
    }

    async fn ask(
        &self,
        line: &mut Option<Line<TcpStream>>,
        replica: usize,
        request: &[u8],
    ) -> Option<Answer> {
        if line.is_none() {
            let address = &self.addresses[replica % self.addresses.len()];
            *line = http1::tcp(address).await.ok().map(Line::new);
        }
        let answer = tokio::time::timeout(PATIENCE, line.as_mut()?.ask(request)).await;
        let answer = answer.ok().and_then(Result::ok);
        if answer.is_none() {
            self.tally.borrow_mut().broken += 1;
        }
        answer
    }

    fn heard(&self, due: Due, answer: &Answer) {
        let now = since_epoch();
        let after = {
            let (fleet, mut tally) = (self.fleet.borrow(), self.tally.borrow_mut());
            if due.at >= self.counted_from.get() {
                tally.answered(due.word, now.saturating_sub(due.at));
            }
            self.sites.borrow_mut().hear(&fleet, due, answer, &mut tally)
        };
        let mut schedule = self.schedule.borrow_mut();
        match after {
            After::Done => {}
            After::Again(later) => schedule.add(Due { at: now + later, ..due }),
            After::Fetch => schedule.add(Due { at: now, word: Word::Artifact, ..due }),
            After::Report => schedule.add(Due { at: now, word: Word::Status, ..due }),
        }
    }
}
