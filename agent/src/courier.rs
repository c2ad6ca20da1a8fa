//! The courier: everything that is said to and heard from the hub.
//!
//! It alone holds the connection and writes the slots. New documents go to the reconciler by a `watch`
//! channel; reports wait in the outbox and a `Notify` says that there are some; what a person should
//! hear goes to the agent by an `mpsc` channel.

mod content;
mod link;
mod wake;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farshore_shared::clock;
use farshore_shared::exit::chain;
use farshore_shared::retry::{Schedule, hashed_share};
use farshore_shared::wire::{Artifact, Desired};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use crate::config::Wakes;
use crate::hub::{DesiredAnswer, Heard, HubError, HubUrl, WakeAnswer};
use crate::identity::JoinError;
use crate::reconcile::Orders;
use crate::schedule::{about, until_asked, until_next_poll, until_woken_poll};
use crate::store::{Keys, Outbox, Prune, Store, StoreError};
use crate::verify::{self, Accepted, Change, Clock, Held, Refusal};
use content::artifacts;
use link::{Link, Renewed, wants_newer_root};
use wake::{Brought, Wake};

/// The poll interval until a group document has said another.
pub(crate) const POLL: Duration = Duration::from_secs(120);
/// The longest delay that a server may ask for until a roster has said another.
const MAX_DELAY: Duration = Duration::from_secs(3600);
/// About how often everything is fetched and verified anew.
const FULL: Duration = Duration::from_secs(2 * 3600);

/// What the courier tells the agent.
#[derive(Debug)]
pub enum Notice {
    /// This site cannot join, and trying again does not help.
    CannotJoin(JoinError),
    /// What a person should look at, as of the last poll, which the hub has answered.
    Alarms(Vec<String>),
    /// The hub did not answer, and why.
    Silent(String),
}

/// What the courier is given.
#[derive(Debug)]
pub struct Courier {
    /// The state folder.
    pub store: Arc<Store>,
    /// This site's keys.
    pub keys: Arc<Keys>,
    /// The hub that was named.
    pub hub: HubUrl,
    /// A join token.
    pub join: Option<String>,
    /// A poll interval that wins over the hub's.
    pub poll: Option<Duration>,
    /// Whether it waits for news between two polls.
    pub wakes: Wakes,
    /// What was held at the start.
    pub held: Held,
    /// Whether anything may be removed.
    pub prune: Prune,
    /// To the reconciler.
    pub orders: watch::Sender<Orders>,
    /// Reports that wait.
    pub outbox: Arc<Mutex<Outbox>>,
    /// Says that reports wait.
    pub told: Arc<Notify>,
    /// To the agent.
    pub notices: mpsc::Sender<Notice>,
}

/// Why a poll brought nothing.
#[derive(Debug, thiserror::Error)]
enum PollError {
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Root(#[from] JoinError),
    /// While content was fetched.
    #[error("the hub has newer documents than those whose content was being fetched")]
    Superseded,
}

impl Courier {
    /// Joins, then polls and reports for ever.
    pub async fn run(mut self) {
        let Some(record) = self.join().await else { return };
        let mut link = self.link(record).await;
        let mut next_full = Instant::now();
        let mut round = 0;
        let mut next_poll = Instant::now() + self.first_wait();
        let mut retry = Schedule::new(Duration::from_secs(5), Duration::from_secs(600));
        let mut resend: Option<Instant> = None;
        let mut wake = Wake::new(self.wakes, self.keys.cluster.as_str());
        loop {
            // Cancel-safe: times are kept outside, a notification that is not taken stays, and so does an open
            // wait.
            let due = tokio::select! {
                () = sleep_until(next_poll) => Due::Poll,
                () = self.told.notified() => Due::Report,
                () = sleep_until(resend.unwrap_or(next_poll)), if resend.is_some() => Due::Report,
                outcome = wake.ended() => Due::Heard(outcome),
            };
            match due {
                Due::Poll => {
                    let is_full = Instant::now() >= next_full;
                    let polled = self.poll(&mut link, is_full).await;
                    if is_full && polled.brought != Brought::NoAnswer {
                        round += 1;
                        next_full = Instant::now() + about(self.keys.cluster.as_str(), FULL, round);
                    }
                    wake.polled(polled.brought);
                    next_poll = Instant::now() + self.wait(polled.asked);
                }
                Due::Heard(outcome) => {
                    if let Some(window) = wake.heard(outcome, self.most()) {
                        let share = until_woken_poll(self.keys.cluster.as_str(), window, self.most());
                        debug!(?window, ?share, "the hub has news");
                        next_poll = next_poll.min(Instant::now() + share);
                    }
                }
                Due::Report => {}
            }
            resend = self.report(&mut link, &mut retry).await;
            wake.begin(&mut link.client, || self.tag());
        }
    }

    /// One poll, and a second one when the first suggests that there is a newer root.
    async fn poll(&mut self, link: &mut Link, is_full: bool) -> Polled {
        let before = self.tag();
        let mut outcome = self.try_poll(link, is_full).await;
        while matches!(outcome, Err(PollError::Superseded)) {
            outcome = self.try_poll(link, is_full).await;
        }
        if let Err(error) = &outcome
            && wants_newer_root(error)
        {
            match self.renew_root(link).await {
                Ok(Renewed::Newer) => outcome = self.try_poll(link, true).await,
                Ok(Renewed::Same) => {}
                Err(error) => debug!(error = %chain(&error), "no newer trust root was learnt"),
            }
        }
        let traffic = link.client.take_traffic();
        let brought = if self.tag() == before { Brought::Nothing } else { Brought::Documents };
        match outcome {
            Ok((alarms, status, asked)) => {
                info!(target: "farshore::polls", status, sent = traffic.sent, received = traffic.received, "poll");
                self.tell(Notice::Alarms(alarms)).await;
                Polled { brought, asked }
            }
            // What was alarming before it was asked still is.
            Err(PollError::Hub(error)) => {
                let asked = if let HubError::Busy { retry_after, .. } = &error { *retry_after } else { None };
                match &error {
                    HubError::Busy { .. } => {
                        info!(error = %chain(&error), "the hub cannot answer yet; what is held stays in force");
                    }
                    HubError::Unreachable { .. } => {
                        info!(error = %chain(&error), "the hub is not reached; what is held stays in force");
                    }
                    _ => {
                        warn!(error = %chain(&error), "the hub does not answer as a hub; what is held stays in force")
                    }
                }
                self.tell(Notice::Silent(chain(&error))).await;
                Polled { brought: Brought::NoAnswer, asked }
            }
            Err(error) => {
                warn!(error = %chain(&error), "the hub's answer is refused; what is held stays in force");
                self.tell(Notice::Alarms(vec![chain(&error)])).await;
                Polled { brought: Brought::Nothing, asked: None }
            }
        }
    }

    async fn try_poll(
        &mut self,
        link: &mut Link,
        is_full: bool,
    ) -> Result<(Vec<String>, u16, Option<Duration>), PollError> {
        let whole = is_full || self.prune == Prune::Forbidden;
        let tag = if whole { None } else { self.tag() };
        let Heard { answer, poll_after } = link.client.desired(tag.as_deref()).await?;
        let (mut alarms, status) = match answer {
            DesiredAnswer::NotModified { behind } => {
                let alarm =
                    "the hub holds less than this site has accepted: was its record restored from a backup?";
                (if behind { vec![alarm.to_owned()] } else { vec![] }, 304)
            }
            DesiredAnswer::Documents { desired, .. } => {
                let taken = self.take(link, &desired).await;
                if matches!(taken, Err(PollError::Refused(_))) {
                    // What is held may still wait for content.
                    self.complete_content(link, is_full).await?;
                }
                (taken?, 200)
            }
        };
        alarms.extend(self.complete_content(link, is_full).await?);
        Ok((alarms, status, poll_after))
    }

    /// Verifies documents, fetches what they need, and only then makes them what is held.
    async fn take(&mut self, link: &mut Link, desired: &Desired) -> Result<Vec<String>, PollError> {
        let clock = Clock { now: clock::now() };
        let accepted = verify::desired(&self.held, desired, &self.keys.identity(), &link.root, clock)?;
        let Accepted { documents, marks, change, alarms } = accepted;
        if change == Change::Same && self.prune == Prune::Allowed {
            return Ok(alarms);
        }
        let present = self.store.content().present()?;
        let missing: Vec<Artifact> =
            artifacts(&documents).into_iter().filter(|a| !present.contains(&a.digest)).collect();
        // What could not be fetched is tried once more, and told of, when the documents are held.
        self.fetch_all(link, missing, &documents.tag().to_string()).await?;
        self.store.accept(&documents, &marks)?;
        let (roster, group) = (documents.roster.sequence, documents.group.sequence);
        info!(roster, group, services = documents.group.services.len(), "accepted");
        self.held = Held { documents: Some(documents.clone()), marks };
        if desired.roster.is_some() && desired.group.is_some() {
            self.prune = Prune::Allowed;
        }
        self.orders.send_replace(Orders { documents: Some(Arc::new(documents)), prune: self.prune });
        Ok(alarms)
    }

    /// Sends the reports that wait; gives when to try again, if they could not be sent.
    async fn report(&self, link: &mut Link, retry: &mut Schedule) -> Option<Instant> {
        match self.send_reports(link).await {
            Ok(()) => {
                retry.reset();
                None
            }
            Err(error) => {
                debug!(error = %chain(&error), "reports wait");
                Some(Instant::now() + retry.next_delay())
            }
        }
    }

    async fn send_reports(&self, link: &mut Link) -> Result<(), PollError> {
        loop {
            let report = self.outbox.lock().unwrap_or_else(PoisonError::into_inner).peek()?;
            let Some(report) = report else { return Ok(()) };
            match link.client.status(&report.envelope).await {
                Ok(()) => debug!(sequence = report.sequence, "report arrived"),
                Err(HubError::Refused { status, problem })
                    if (400..500).contains(&status) && !matches!(status, 401 | 408) =>
                {
                    warn!(sequence = report.sequence, problem, "report is refused, and dropped");
                }
                Err(error) => return Err(error.into()),
            }
            self.outbox.lock().unwrap_or_else(PoisonError::into_inner).pop(report.sequence)?;
        }
    }

    fn interval(&self) -> Duration {
        let said =
            self.held.documents.as_ref().map(|documents| Duration::from_secs(documents.group.poll_seconds));
        self.poll.or(said).unwrap_or(POLL).clamp(Duration::from_secs(1), MAX_DELAY)
    }

    /// What is held, as the hub is told.
    fn tag(&self) -> Option<String> {
        self.held.documents.as_ref().map(|documents| documents.tag().to_string())
    }

    /// The longest delay that a server may ask for.
    fn most(&self) -> Duration {
        let said = self.held.documents.as_ref();
        said.map_or(MAX_DELAY, |documents| Duration::from_secs(documents.roster.max_delay_seconds))
    }

    /// A site that holds nothing asks at once; any other waits for its phase, so that a region whose
    /// power comes back does not ask as one.
    fn first_wait(&self) -> Duration {
        match self.held.documents {
            None => Duration::ZERO,
            Some(_) => self.wait(None),
        }
    }

    fn wait(&self, asked: Option<Duration>) -> Duration {
        let name = self.keys.cluster.as_str();
        // Nothing published for this site yet: soon, but not in step with others.
        let phase = match self.held.documents {
            None => {
                self.interval().min(Duration::from_secs(5)).mul_f64(0.5 + 0.5 * hashed_share(&["soon", name]))
            }
            Some(_) => until_next_poll(name, self.interval(), clock::since_epoch()),
        };
        match asked {
            Some(asked) => phase.max(until_asked(name, asked, self.most())),
            None => phase,
        }
    }

    async fn tell(&self, notice: Notice) {
        // Nobody left to hear it: the agent is stopping.
        let _ = self.notices.send(notice).await;
    }
}

/// What happens next.
enum Due {
    Poll,
    Report,
    /// The wait for news ended.
    Heard(Result<WakeAnswer, HubError>),
}

/// How a poll ended.
struct Polled {
    brought: Brought,
    /// The delay that the hub asked for, if it did.
    asked: Option<Duration>,
}

#[cfg(test)]
mod tests;
