//! The open connections of a server: which there are, which do nothing, and that they end with it.
//!
//! A connection costs its task nothing but a flag that it reads each time it is woken: what is to be told,
//! to finish or to be cut, is told by one task for all of them.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tracing::debug;

use crate::watched::{Activity, Patience, Watch};

/// The most often that connections are looked at.
const LEAST_PAUSE: Duration = Duration::from_millis(20);

/// The connections of one server.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    lines: Mutex<HashMap<u64, Watching>>,
    next: AtomicU64,
    is_draining: AtomicBool,
}

#[derive(Debug)]
struct Watching {
    line: Arc<Line>,
    watch: Watch,
}

/// What a connection and those who watch it share.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// What has happened on it.
    pub(crate) activity: Arc<Activity>,
    is_told: AtomicBool,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    order: Order,
    task: Option<Waker>,
}

/// What a connection is to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    #[default]
    GoOn,
    /// End with the requests that are open.
    Finish,
    /// End.
    Cut,
}

/// A place among [`Lines`], for as long as it is held.
#[derive(Debug)]
pub(crate) struct Enlisted {
    lines: Arc<Lines>,
    number: u64,
    /// The connection.
    pub(crate) line: Arc<Line>,
}

impl Drop for Enlisted {
    fn drop(&mut self) {
        self.lines.all().remove(&self.number);
    }
}

impl Lines {
    /// Takes a connection in.
    pub(crate) fn enlist(self: &Arc<Self>) -> Enlisted {
        let (number, line) = (self.next.fetch_add(1, Ordering::Relaxed), Arc::new(Line::default()));
        let watching = Watching { line: Arc::clone(&line), watch: Watch::new(Instant::now()) };
        self.all().insert(number, watching);
        // Whoever comes while the others are told is told as well.
        if self.is_draining.load(Ordering::SeqCst) {
            line.tell(Order::Finish);
        }
        Enlisted { lines: Arc::clone(self), number, line }
    }

    /// Cuts connections that do nothing, for ever. One is noticed after twice its time at the latest.
    pub(crate) async fn watch(&self, patience: Patience) {
        let pause = patience.first.min(patience.quiet).max(LEAST_PAUSE);
        loop {
            tokio::time::sleep(pause).await;
            self.look(Instant::now(), patience);
        }
    }

    fn look(&self, now: Instant, patience: Patience) {
        for Watching { line, watch } in self.all().values_mut() {
            if let Some(why) = watch.look(line.activity.sample(), now, patience) {
                debug!("connection is cut: {why}");
                line.tell(Order::Cut);
            }
        }
    }

    /// Tells all connections, and those to come, to end with the requests that are open.
    pub(crate) fn finish(&self) {
        self.is_draining.store(true, Ordering::SeqCst);
        self.all().values().for_each(|watching| watching.line.tell(Order::Finish));
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        self.all().values().for_each(|watching| watching.line.tell(Order::Cut));
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u64, Watching>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn tell(&self, order: Order) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if order > told.order {
            told.order = order;
            self.is_told.store(true, Ordering::Release);
            if let Some(task) = &told.task {
                task.wake_by_ref();
            }
        }
    }

    /// Called first by the task that serves this line, whose waker is the same for all its life.
    fn served_by(&self, task: &Waker) -> Order {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.task = Some(task.clone());
        told.order
    }

    fn order(&self) -> Order {
        if self.is_told.load(Ordering::Acquire) {
            self.told.lock().unwrap_or_else(PoisonError::into_inner).order
        } else {
            Order::GoOn
        }
    }
}

/// A connection that can be told to end with the requests that are open.
pub(crate) trait Finish: Future {
    /// Takes no more requests.
    fn finish(self: Pin<&mut Self>);
}

/// A connection as its line is told. It is a task by itself, or all that one waits for.
pub(crate) struct Serving<C> {
    connection: Pin<Box<C>>,
    line: Arc<Line>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Open,
    Finishing,
}

impl<C: Finish> Serving<C> {
    /// A connection on its line.
    pub(crate) fn new(connection: C, line: Arc<Line>) -> Self {
        Self { connection: Box::pin(connection), line, state: State::New }
    }
}

impl<C: Finish> Future for Serving<C> {
    /// What the connection said, unless it was cut.
    type Output = Option<C::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let order = match self.state {
            State::New => {
                self.state = State::Open;
                self.line.served_by(context.waker())
            }
            State::Open | State::Finishing => self.line.order(),
        };
        match order {
            Order::GoOn => {}
            Order::Finish if self.state == State::Finishing => {}
            Order::Finish => {
                self.state = State::Finishing;
                self.connection.as_mut().finish();
            }
            Order::Cut => return Poll::Ready(None),
        }
        self.connection.as_mut().poll(context).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { first: Duration::from_secs(10), quiet: Duration::from_secs(300) };

    /// Open until it is told to finish.
    struct Peer {
        is_finishing: bool,
    }

    impl Future for Peer {
        type Output = &'static str;

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<&'static str> {
            if self.is_finishing { Poll::Ready("finished") } else { Poll::Pending }
        }
    }

    impl Finish for Peer {
        fn finish(mut self: Pin<&mut Self>) {
            self.is_finishing = true;
        }
    }

    fn serve(lines: &Arc<Lines>) -> tokio::task::JoinHandle<Option<&'static str>> {
        let enlisted = lines.enlist();
        tokio::spawn(
            async move { Serving::new(Peer { is_finishing: false }, Arc::clone(&enlisted.line)).await },
        )
    }

    #[tokio::test]
    async fn a_connection_finishes_when_all_do_also_one_that_comes_later() {
        let lines = Arc::new(Lines::default());
        let open = serve(&lines);
        tokio::task::yield_now().await;
        lines.finish();
        assert_eq!(open.await.expect("no panic"), Some("finished"));
        assert_eq!(serve(&lines).await.expect("no panic"), Some("finished"));
        assert!(lines.all().is_empty(), "it left its place");
    }

    #[tokio::test]
    async fn a_connection_that_does_nothing_is_cut_and_the_others_are_not() {
        let lines = Arc::new(Lines::default());
        let (idle, busy) = (lines.enlist(), lines.enlist());
        busy.line.activity.note_request(http::Version::HTTP_11);
        let cut = Serving::new(Peer { is_finishing: false }, Arc::clone(&idle.line));
        let goes_on = Serving::new(Peer { is_finishing: false }, Arc::clone(&busy.line));
        lines.look(Instant::now() + PATIENCE.first, PATIENCE);
        assert_eq!(cut.await, None);
        tokio::pin!(goes_on);
        assert!(futures::poll!(goes_on.as_mut()).is_pending());
        lines.cut();
        assert_eq!(goes_on.await, None);
    }
}
