//! What a site says of itself: a status is made when something changed, and in full about every two
//! hours; it is signed, numbered and kept in the outbox until the hub has it.

use farshore_shared::dsse::Envelope;
use farshore_shared::wire::{Progress, STATUS_LIMIT, ServiceStatus, Status, UnixSeconds};

use crate::reconcile::Pass;
use crate::store::{Keys, Number, Outbox, StoreError};

/// The most failures that one status tells of, over all services.
const FAILURES_TOLD: usize = 100;
/// The most bytes of logs of checks that one status has, over all services.
const LOGS_TOLD: usize = 64 << 10;
/// The most changed objects that one status tells of, over all services.
const DRIFT_TOLD: usize = 100;
/// The most alarms.
const ALARMS_TOLD: usize = 20;
/// The most services; what is beyond is counted in an alarm.
const SERVICES_TOLD: usize = 300;
/// The most characters of one alarm.
const ALARM_LIMIT: usize = 500;

/// What is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// What the last pass found and did.
    pub pass: Pass,
    /// What a person should look at, beside what the pass says.
    pub alarms: Vec<String>,
    /// The interval at which this site polls, in seconds.
    pub poll_seconds: u64,
}

/// How often what is only further on its way is told, in seconds: a rollout of many steps costs a fleet
/// few reports.
const PROGRESS_TOLD: u64 = 60;

/// Makes statuses.
#[derive(Debug, Default)]
pub struct Reporter {
    /// What was told last, and when.
    last: Option<(News, UnixSeconds)>,
}

impl News {
    /// Everything but how far services are on their way; that they are is part of it.
    fn without_progress(&self) -> Self {
        let mut news = self.clone();
        for service in &mut news.pass.services {
            let Some(progress) = &mut service.progress else { continue };
            *progress = Progress {
                stage: String::new(),
                object: String::new(),
                why: String::new(),
                since: 0,
                others: 0,
            };
            (service.message, service.objects) = (String::new(), 0);
        }
        news
    }
}

impl Reporter {
    /// Puts a status into the outbox if the news differ from what was told last; true if it did.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn tell(
        &mut self,
        keys: &Keys,
        outbox: &mut Outbox,
        news: News,
        at: UnixSeconds,
    ) -> Result<bool, StoreError> {
        if let Some((last, told)) = &self.last {
            let is_recent = at.abs_diff(*told) < PROGRESS_TOLD;
            if *last == news || is_recent && last.without_progress() == news.without_progress() {
                return Ok(false);
            }
        }
        outbox.push(|number| Envelope::seal(&status(keys, number, &news, at), &[&keys.signing]))?;
        self.last = Some((news, at));
        Ok(true)
    }

    /// Makes the next [`Reporter::tell`] tell everything.
    pub fn refresh(&mut self) {
        self.last = None;
    }
}

fn status(keys: &Keys, number: &Number, news: &News, at: UnixSeconds) -> Status {
    let News { pass, alarms, poll_seconds } = news;
    let cut = |alarm: &String| alarm.chars().take(ALARM_LIMIT).collect();
    let mut alarms: Vec<String> = alarms.iter().chain(&pass.alarms).take(ALARMS_TOLD).map(cut).collect();
    if pass.services.len() > SERVICES_TOLD {
        alarms.push(format!("{} services are not told of", pass.services.len() - SERVICES_TOLD));
    }
    fitted(Status {
        cluster: keys.cluster.clone(),
        state_id: number.state_id.clone(),
        sequence: number.sequence,
        at,
        agent: env!("CARGO_PKG_VERSION").to_owned(),
        poll_seconds: *poll_seconds,
        holds: pass.holds,
        services: bounded(&pass.services),
        alarms,
        dropped: number.dropped,
        controls: pass.controls.clone(),
        critical: vec![],
    })
}

/// Texts that grow when they are written as JSON could exceed the limit: then details go.
fn fitted(mut status: Status) -> Status {
    let size = serde_json::to_vec(&status).map_or(0, |bytes| bytes.len());
    if size > STATUS_LIMIT {
        for service in &mut status.services {
            service.failures.clear();
            service.checks.clear();
            service.drift.clear();
            service.message = service.message.chars().take(40).collect();
            service.progress = None;
            service.failed_revision.iter_mut().for_each(|failed| failed.why.clear());
        }
        status.controls.iter_mut().for_each(|controls| controls.paused_services.clear());
        status.alarms =
            vec![format!("details are left out: the status had {size} bytes (limit {STATUS_LIMIT})")];
    }
    status
}

fn bounded(services: &[ServiceStatus]) -> Vec<ServiceStatus> {
    let (mut room, mut log_room, mut drift_room) = (FAILURES_TOLD, LOGS_TOLD, DRIFT_TOLD);
    let cut = |service: &ServiceStatus| {
        let mut service = service.clone();
        service.failures.truncate(room);
        room -= service.failures.len();
        service.drift.truncate(drift_room);
        drift_room -= service.drift.len();
        for check in &mut service.checks {
            if check.log.len() > log_room {
                check.log = String::new();
            }
            log_room -= check.log.len();
        }
        service
    };
    services.iter().take(SERVICES_TOLD).map(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;
    use farshore_shared::dsse::Signers;
    use farshore_shared::names::Name;
    use farshore_shared::wire::{
        Check, CheckOutcome, DriftAction, FailedRevision, ObjectDrift, ObjectFailure, ServiceState,
    };

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn service(n: usize) -> ServiceStatus {
        let odd = "\u{1}".repeat(400);
        let object = "ConfigMap shop/".to_owned() + &"o".repeat(63);
        let failure = ObjectFailure { object: object.clone(), message: odd.clone() };
        let check = Check {
            object: object.clone(),
            outcome: CheckOutcome::Failed,
            message: odd.clone(),
            log: "\u{1}".repeat(2048),
        };
        let progress = Progress { stage: "wave 1".into(), object, why: odd.clone(), since: 1, others: 0 };
        let drift = ObjectDrift {
            object: failure.object.clone(),
            manager: "m".repeat(128),
            at: 1,
            fields: vec!["/f".repeat(100); 8],
            action: DriftAction::Corrected,
        };
        ServiceStatus {
            name: name(&format!("service-{n}")),
            commit: "c".repeat(40),
            state: ServiceState::Failed,
            message: odd.clone(),
            objects: 1,
            failures: vec![failure; 20],
            repairs: 0,
            progress: Some(progress),
            failed_revision: Some(FailedRevision { commit: "c".repeat(40), why: odd, at: 1 }),
            checks: vec![check; 10],
            drift: vec![drift; 20],
        }
    }

    #[test]
    fn the_same_is_told_once_and_again_after_a_refresh() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Store::open(folder.path()).expect("a new state folder");
        let keys = store.keys(&name("shop-7")).expect("new keys");
        let mut outbox = store.outbox(1 << 20).expect("an outbox");
        let mut reporter = Reporter::default();
        let mut tell = |reporter: &mut Reporter, pass: &Pass| {
            let news = News { pass: pass.clone(), alarms: vec![], poll_seconds: 60 };
            reporter.tell(&keys, &mut outbox, news, 1).expect("the disk has room")
        };
        let pass = Pass::default();
        assert!(tell(&mut reporter, &pass));
        assert!(!tell(&mut reporter, &pass));
        reporter.refresh();
        assert!(tell(&mut reporter, &pass));
        assert!(tell(&mut reporter, &Pass { reached: true, ..pass }));
    }

    #[test]
    fn what_is_only_further_on_its_way_is_told_once_a_minute() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Store::open(folder.path()).expect("a new state folder");
        let keys = store.keys(&name("shop-7")).expect("new keys");
        let mut outbox = store.outbox(1 << 20).expect("an outbox");
        let mut reporter = Reporter::default();
        let mut tell = |why: Option<&str>, state, at| {
            let progress =
                why.map(|why| Progress { why: why.into(), ..service(1).progress.expect("it has some") });
            let service =
                ServiceStatus { progress, state, message: why.unwrap_or_default().into(), ..service(1) };
            let pass = Pass { services: vec![service], ..Pass::default() };
            let news = News { pass, alarms: vec![], poll_seconds: 60 };
            reporter.tell(&keys, &mut outbox, news, at).expect("the disk has room")
        };
        assert!(tell(Some("1 of 3"), ServiceState::Waiting, 1000));
        assert!(!tell(Some("2 of 3"), ServiceState::Waiting, 1010));
        assert!(tell(Some("2 of 3"), ServiceState::Failed, 1020), "another state is told at once");
        assert!(!tell(Some("1 of 3"), ServiceState::Failed, 1079));
        assert!(tell(Some("1 of 3"), ServiceState::Failed, 1080));
        assert!(tell(None, ServiceState::Applied, 1081));
    }

    #[test]
    fn the_worst_status_is_within_the_limit() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Store::open(folder.path()).expect("a new state folder");
        let keys = store.keys(&name("shop-7")).expect("new keys");
        let mut outbox = store.outbox(8 << 20).expect("an outbox");
        let pass = Pass { services: (0..2000).map(service).collect(), ..Pass::default() };
        let news = News { pass, alarms: vec!["a".repeat(500); 100], poll_seconds: 60 };
        Reporter::default().tell(&keys, &mut outbox, news, 1).expect("the disk has room");
        let report = outbox.peek().expect("readable").expect("one report");
        let opened = report.envelope.open::<Status>(&Signers::one(keys.signing.public()), STATUS_LIMIT);
        let status = opened.expect("signed, and within the limit");
        assert_eq!(status.services.len(), SERVICES_TOLD);
    }
}
