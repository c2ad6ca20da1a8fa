//! The task that tells a cluster about its services. It hears what is known by a `watch` channel.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use farshore_shared::names::Name;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::happenings::{between, is_removed};
use super::ledger::Ledger;
use super::shown::{self, Heard};
use super::tally::Tally;
use super::{Board, BoardError};
use crate::local::Snapshot;
use crate::local::keeper::Known;
use crate::moment::Moment;

/// How soon it is tried again where a board is not wanted, such as where its kind is not defined, in seconds.
const UNWANTED: u64 = 1800;
/// How soon it is tried again where the API does not answer, in seconds.
const LATER: u64 = 30;
/// The longest time without a look, in seconds: that a hub is silent becomes so by time alone.
const LONGEST: u64 = 300;

/// Tells of a site.
pub struct Announcer<B> {
    board: B,
    cluster: Name,
    tally: Tally,
    ledger: Ledger,
    before: Option<Arc<Snapshot>>,
    heard: Option<Heard>,
    events: Way,
    statuses: Way,
    /// What paces are counted from: the site's clock may be set back by years.
    began: Instant,
}

/// Whether one of the two can be told.
#[derive(Debug, Default)]
struct Way {
    /// Nothing is tried before.
    closed_until: u64,
    /// What was logged of it, once.
    said: Option<String>,
}

impl Way {
    fn is_open(&self, now: u64) -> bool {
        now >= self.closed_until
    }

    fn hear(&mut self, error: &BoardError, now: u64) {
        match error {
            BoardError::Unwanted(why) => {
                self.closed_until = now + UNWANTED;
                if self.said.as_ref() != Some(why) {
                    warn!("{why}; everything else goes on");
                    self.said = Some(why.clone());
                }
            }
            BoardError::Later(why) => {
                self.closed_until = now + LATER;
                debug!("the cluster is told later: {why}");
            }
        }
    }
}

impl<B: Board> Announcer<B> {
    /// An announcer that goes on from what an agent knew before it ended.
    #[must_use]
    pub fn new(board: B, cluster: Name, before: Option<Snapshot>) -> Self {
        let shown = before.iter().flat_map(|before| &before.services).map(|service| service.name.clone());
        let (tally, ledger) = (Tally::new(cluster.clone(), 0), Ledger::new(0, shown.collect()));
        let (events, statuses) = Default::default();
        let (before, began) = (before.map(Arc::new), Instant::now());
        Self { board, cluster, tally, ledger, before, heard: None, events, statuses, began }
    }

    /// Tells until nobody knows more.
    pub async fn run(mut self, mut known: watch::Receiver<Known>) {
        loop {
            let now = Moment::since(self.began);
            let current = known.borrow_and_update().clone();
            self.hear(&current, now);
            self.write(now.steady.as_secs()).await;
            let wait = self.wait(self.began.elapsed().as_secs());
            // Cancel-safe: what is not heard yet stays visible.
            tokio::select! {
                changed = known.changed() => if changed.is_err() { return },
                () = sleep(wait) => {}
            }
        }
    }

    /// Takes in what is known.
    fn hear(&mut self, known: &Known, now: Moment) {
        let Some(snapshot) = &known.snapshot else { return };
        if self.before.as_ref() != Some(snapshot) {
            // A target that does not answer says nothing of its services.
            if !snapshot.reached {
                return;
            }
            for happening in between(self.before.as_deref(), snapshot) {
                self.tally.add(happening, now);
            }
            self.before = Some(Arc::clone(snapshot));
        }
        let heard = Heard::after(self.heard, known, snapshot, now.wall);
        self.heard = Some(heard);
        let services = snapshot.services.iter().filter(|service| !is_removed(service));
        let services: BTreeMap<&Name, _> = services.map(|service| (&service.name, service)).collect();
        // Whatever is in place or named is among them: what is not has been removed, also where nobody saw how.
        if snapshot.reached {
            self.ledger.only(&services.keys().copied().cloned().collect());
        }
        for (name, service) in services {
            self.ledger.want(name, shown::status(snapshot, service, heard));
        }
    }

    async fn write(&mut self, now: u64) {
        for event in self.tally.due(now) {
            if !self.events.is_open(now) {
                break;
            }
            match self.board.event(&event).await {
                Ok(()) => self.tally.done(&event, now),
                Err(error) => {
                    self.events.hear(&error, now);
                    // Nobody wants to read tomorrow what happened today.
                    if matches!(error, BoardError::Unwanted(_)) {
                        self.tally.done(&event, now);
                    }
                }
            }
        }
        if !self.statuses.is_open(now) {
            return;
        }
        for service in self.ledger.gone() {
            if !self.statuses.is_open(now) {
                return;
            }
            match self.board.take_down(&self.cluster, &service).await {
                Ok(()) => self.ledger.taken_down(&service),
                Err(error) => self.statuses.hear(&error, now),
            }
        }
        for (service, status) in self.ledger.due(now) {
            if !self.statuses.is_open(now) {
                break;
            }
            match self.board.show(&self.cluster, &service, &status).await {
                Ok(()) => self.ledger.done(&service, status, now),
                Err(error) => self.statuses.hear(&error, now),
            }
        }
    }

    fn wait(&self, now: u64) -> Duration {
        let events = self.tally.next_due().map(|due| due.max(self.events.closed_until));
        let statuses = self.ledger.next_due().map(|due| due.max(self.statuses.closed_until));
        let due = events.into_iter().chain(statuses).min().unwrap_or(now + LONGEST);
        Duration::from_secs(due.saturating_sub(now).clamp(1, LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::announce::Event;
    use crate::local::Contact;
    use crate::local::keeper::tests::snapshot;
    use farshore_shared::wire::{ServiceState, ServiceStatus};
    use serde_json::Value;
    use std::sync::Mutex;

    /// A board that remembers what was written, and refuses what it is told to.
    #[derive(Debug, Default)]
    struct Sheet {
        written: Mutex<Vec<String>>,
        refuses: Option<BoardError>,
    }

    impl Sheet {
        fn note(&self, what: String) -> Result<(), BoardError> {
            self.written.lock().expect("no test panics while it holds it").push(what);
            self.refuses.clone().map_or(Ok(()), Err)
        }
    }

    impl Board for Arc<Sheet> {
        async fn event(&self, event: &Event) -> Result<(), BoardError> {
            self.note(event.reason.to_owned())
        }

        async fn show(&self, _cluster: &Name, service: &Name, status: &Value) -> Result<(), BoardError> {
            self.note(format!("{service} {}", status["health"]))
        }

        async fn take_down(&self, _cluster: &Name, service: &Name) -> Result<(), BoardError> {
            self.note(format!("no {service}"))
        }
    }

    fn known(change: impl Fn(&mut Snapshot)) -> Known {
        let mut snapshot = snapshot();
        change(&mut snapshot);
        Known {
            snapshot: Some(Arc::new(snapshot)),
            contact: Contact { last: Some(1_800_000_000), silent: None },
            ..Known::default()
        }
    }

    async fn told(
        sheet: &Arc<Sheet>,
        announcer: &mut Announcer<Arc<Sheet>>,
        known: &Known,
        now: u64,
    ) -> Vec<String> {
        told_at(sheet, announcer, known, Moment { wall: now, steady: Duration::from_secs(now) }).await
    }

    async fn told_at(
        sheet: &Arc<Sheet>,
        announcer: &mut Announcer<Arc<Sheet>>,
        known: &Known,
        now: Moment,
    ) -> Vec<String> {
        announcer.hear(known, now);
        announcer.write(now.steady.as_secs()).await;
        std::mem::take(&mut *sheet.written.lock().expect("no test panics while it holds it"))
    }

    #[tokio::test]
    async fn what_changed_is_told_once_and_a_removed_service_is_taken_down() {
        let (sheet, now) = (Arc::new(Sheet::default()), 1_800_000_000);
        let mut announcer = Announcer::new(Arc::clone(&sheet), "shop-7".parse().expect("a name"), None);
        let applied = known(|_| {});
        assert_eq!(told(&sheet, &mut announcer, &applied, now).await, ["RevisionApplied", "web \"healthy\""]);
        let later = known(|snapshot| snapshot.at += 60);
        assert!(told(&sheet, &mut announcer, &later, now + 60).await.is_empty(), "it is idle");
        let away =
            known(|snapshot| (snapshot.reached, snapshot.services[0].state) = (false, ServiceState::Waiting));
        assert!(told(&sheet, &mut announcer, &away, now + 120).await.is_empty(), "nothing was seen");
        let removed = known(|snapshot| {
            let web = snapshot.services[0].name.clone();
            snapshot.services[0] = ServiceStatus::new(web, "", ServiceState::Applied);
            snapshot.services[0].message = "removed; 1 objects that left are kept".into();
        });
        assert_eq!(told(&sheet, &mut announcer, &removed, now + 180).await, ["ServiceRemoved", "no web"]);
        let nothing = known(|snapshot| snapshot.services.clear());
        assert!(told(&sheet, &mut announcer, &nothing, now + 240).await.is_empty(), "it is gone already");
    }

    #[tokio::test]
    async fn a_service_whose_removal_nobody_saw_is_taken_down_and_told_of_all_the_same() {
        let (sheet, now) = (Arc::new(Sheet::default()), 1_800_000_000);
        let before = Some(snapshot());
        let mut announcer = Announcer::new(Arc::clone(&sheet), "shop-7".parse().expect("a name"), before);
        let away = known(|snapshot| {
            snapshot.reached = false;
            snapshot.services.clear();
        });
        assert!(told(&sheet, &mut announcer, &away, now).await.is_empty(), "nothing was seen");
        let nothing = known(|snapshot| snapshot.services.clear());
        assert_eq!(told(&sheet, &mut announcer, &nothing, now + 60).await, ["ServiceRemoved", "no web"]);
        assert!(told(&sheet, &mut announcer, &nothing, now + 120).await.is_empty());
    }

    #[tokio::test]
    async fn what_could_not_be_taken_down_is_taken_down_later() {
        let refusing = Sheet { refuses: Some(BoardError::Later("away".into())), ..Sheet::default() };
        let (sheet, now) = (Arc::new(refusing), 1_800_000_000);
        let before = Some(snapshot());
        let mut announcer = Announcer::new(Arc::clone(&sheet), "shop-7".parse().expect("a name"), before);
        let nothing = known(|snapshot| snapshot.services.clear());
        assert!(told(&sheet, &mut announcer, &nothing, now).await.contains(&"no web".to_owned()));
        assert_eq!(announcer.wait(now), Duration::from_secs(LATER));
        assert!(told(&sheet, &mut announcer, &nothing, now + LATER - 1).await.is_empty());
        assert!(told(&sheet, &mut announcer, &nothing, now + LATER).await.contains(&"no web".to_owned()));
    }

    #[tokio::test]
    async fn an_agent_that_comes_back_does_not_tell_again_what_was_so_before() {
        let sheet = Arc::new(Sheet::default());
        let before = Some(snapshot());
        let mut announcer = Announcer::new(Arc::clone(&sheet), "shop-7".parse().expect("a name"), before);
        let told = told(&sheet, &mut announcer, &known(|_| {}), 1_800_000_000).await;
        assert_eq!(told, ["web \"healthy\""], "the status may be of another agent");
    }

    #[tokio::test]
    async fn where_nobody_wants_to_know_it_is_tried_rarely_and_where_nobody_answers_soon() {
        for (error, again) in
            [(BoardError::Unwanted("no CRD".into()), UNWANTED), (BoardError::Later("away".into()), LATER)]
        {
            let sheet = Arc::new(Sheet { refuses: Some(error), ..Sheet::default() });
            let mut announcer = Announcer::new(Arc::clone(&sheet), "shop-7".parse().expect("a name"), None);
            let now = 1_800_000_000;
            let applied = known(|_| {});
            assert_eq!(told(&sheet, &mut announcer, &applied, now).await.len(), 2);
            assert!(told(&sheet, &mut announcer, &applied, now + again - 1).await.is_empty());
            assert!(!told(&sheet, &mut announcer, &applied, now + again).await.is_empty());
        }
    }

    #[tokio::test]
    async fn a_clock_that_jumps_and_comes_back_silences_neither_events_nor_statuses() {
        let away = BoardError::Later("away".into());
        let sheet = Arc::new(Sheet { refuses: Some(away), ..Sheet::default() });
        let mut announcer = Announcer::new(Arc::clone(&sheet), "shop-7".parse().expect("a name"), None);
        let at = |wall, steady| Moment { wall, steady: Duration::from_secs(steady) };
        for (wall, steady) in [(2_147_483_647, 1), (10, 1 + LATER), (1_800_000_000, 1 + 2 * LATER)] {
            let told = told_at(&sheet, &mut announcer, &known(|_| {}), at(wall, steady)).await;
            assert_eq!(told.len(), 2, "an Event and a status are tried, whatever the clock shows: {told:?}");
            assert_eq!(announcer.wait(steady), Duration::from_secs(LATER));
        }
    }
}
