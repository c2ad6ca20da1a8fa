//! The one request that is kept open at the hub beside polls and reports, so that news arrive before the next
//! poll.
//!
//! It rides on the connection of the last poll and never opens one: a hub that was away is called again by polls
//! alone, each at its site's phase. Where a connection carries one request at a time (HTTP/1.1) there is none.
//! Whatever goes wrong with it costs latency only.

use std::pin::Pin;
use std::time::Duration;

use farshore_shared::exit::chain;
use farshore_shared::retry::Schedule;
use tokio::time::Instant;
use tracing::debug;

use crate::config::Wakes;
use crate::hub::{HubClient, HubError, WakeAnswer};
use crate::schedule::until_asked;

/// When a hub that cannot hold requests is asked again.
const NEVER: Duration = Duration::from_secs(6 * 3600);
/// The pauses after a wake that failed, or that brought nothing.
const RETRY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(600));

/// A request that waits.
type Open = Pin<Box<dyn Future<Output = Result<WakeAnswer, HubError>> + Send>>;

/// Where that request is.
enum State {
    /// None is open.
    Idle,
    /// One is open.
    Open(Open),
    /// It was answered with news, for which a poll is due.
    Called,
}

/// Waits for news.
pub(super) struct Wake {
    wakes: Wakes,
    cluster: String,
    state: State,
    not_before: Instant,
    retry: Schedule,
}

impl Wake {
    /// Nothing is asked yet.
    pub(super) fn new(wakes: Wakes, cluster: &str) -> Self {
        let retry = Schedule::new(RETRY.0, RETRY.1);
        let (cluster, state) = (cluster.to_owned(), State::Idle);
        Self { wakes, cluster, state, not_before: Instant::now(), retry }
    }

    /// Waits from now on for what is newer than this tag, unless it does already, or shall not yet.
    pub(super) fn begin(&mut self, client: &mut HubClient, tag: impl FnOnce() -> Option<String>) {
        let is_due = self.wakes == Wakes::On && Instant::now() >= self.not_before;
        if !is_due || !matches!(self.state, State::Idle) {
            return;
        }
        let (Some(beside), Some(tag)) = (client.beside(), tag()) else { return };
        self.state = State::Open(Box::pin(async move { beside.wake(&tag).await }));
    }

    /// How the open request ended; never, while none is open. Cancel-safe: it stays open.
    pub(super) async fn ended(&mut self) -> Result<WakeAnswer, HubError> {
        match &mut self.state {
            State::Open(open) => open.await,
            State::Idle | State::Called => std::future::pending().await,
        }
    }

    /// Takes note of how it ended; gives the window for the next poll where there are news.
    pub(super) fn heard(
        &mut self,
        outcome: Result<WakeAnswer, HubError>,
        most: Duration,
    ) -> Option<Duration> {
        self.state = State::Idle;
        let pause = match outcome {
            Ok(WakeAnswer::Newer { window }) => {
                self.state = State::Called;
                return Some(window);
            }
            Ok(WakeAnswer::Nothing) => return None,
            Ok(WakeAnswer::Never) => until_asked(&self.cluster, NEVER, NEVER),
            Err(HubError::Busy { retry_after: Some(asked), .. }) => until_asked(&self.cluster, asked, most),
            Err(error) => {
                debug!(error = %chain(&error), "nothing is heard between polls");
                self.retry.next_delay()
            }
        };
        self.not_before = Instant::now() + pause;
        None
    }

    /// Takes note of a poll. One that was called for and brought nothing is not called for again soon; after
    /// one that brought something the request that still waits for less is given up, and so is any while the
    /// hub does not answer.
    pub(super) fn polled(&mut self, brought: Brought) {
        match brought {
            Brought::Nothing => {
                if matches!(self.state, State::Called) {
                    self.not_before = Instant::now() + self.retry.next_delay();
                    self.state = State::Idle;
                }
            }
            Brought::Documents => {
                self.retry.reset();
                self.state = State::Idle;
            }
            Brought::NoAnswer => self.state = State::Idle,
        }
    }
}

/// What a poll brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Brought {
    /// New documents, which are held now.
    Documents,
    /// Nothing that is held now.
    Nothing,
    /// The hub was not reached, or could not answer.
    NoAnswer,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(3600);

    fn wake() -> Wake {
        Wake::new(Wakes::On, "shop-7")
    }

    fn pause(wake: &Wake) -> Duration {
        wake.not_before.saturating_duration_since(Instant::now())
    }

    #[test]
    fn a_call_that_brings_nothing_is_not_followed_at_once() {
        let mut wake = wake();
        let newer = WakeAnswer::Newer { window: Duration::from_secs(7) };
        let mut pauses = Vec::new();
        for _ in 0..20 {
            assert_eq!(wake.heard(Ok(newer), MOST), Some(Duration::from_secs(7)));
            wake.polled(Brought::Nothing);
            pauses.push(pause(&wake));
        }
        assert!(pauses[0] > Duration::from_secs(2), "{pauses:?}");
        assert!(pauses[19] > Duration::from_secs(250), "{pauses:?}");
        wake.heard(Ok(newer), MOST);
        wake.polled(Brought::Documents);
        wake.heard(Ok(newer), MOST);
        wake.polled(Brought::Nothing);
        assert!(pause(&wake) < Duration::from_secs(250), "what brought something begins anew");
    }

    #[test]
    fn a_hub_that_cannot_hold_is_left_alone_and_one_that_is_full_is_asked_when_it_said() {
        let mut wake = wake();
        assert_eq!(wake.heard(Ok(WakeAnswer::Never), MOST), None);
        assert!(pause(&wake) > Duration::from_secs(5 * 3600));
        let busy = |after| HubError::Busy { status: 503, retry_after: Some(Duration::from_secs(after)) };
        wake.heard(Err(busy(60)), MOST);
        assert!((59..91).contains(&pause(&wake).as_secs()), "{:?}", pause(&wake));
        wake.heard(Err(busy(1_000_000)), MOST);
        assert!(pause(&wake) <= MOST + MOST / 2, "a server's delay is clamped");
        wake.heard(Err(HubError::Busy { status: 503, retry_after: None }), MOST);
        assert!(pause(&wake) < Duration::from_secs(10), "{:?}", pause(&wake));
    }

    #[test]
    fn a_time_that_is_over_costs_nothing() {
        let mut wake = wake();
        assert_eq!(wake.heard(Ok(WakeAnswer::Nothing), MOST), None);
        assert_eq!(pause(&wake), Duration::ZERO);
    }
}
