//! When the publisher takes its steps.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use farshore_shared::retry::hashed_share;
use futures::StreamExt as _;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::{debug, error};

use crate::index::{News, NewsStream};
use crate::metrics::Metrics;
use crate::publish::{PublishError, Publisher, Step, StepReport};
use crate::trace;

/// How often the publisher looks for requests to enrol and approvals that other processes recorded.
const LOOK: Duration = Duration::from_secs(2);
/// How long the publisher rests between two steps, whatever is due.
const PAUSE: Duration = Duration::from_millis(100);
/// The same after a step that has written as much as one may: everything else has its turn, and news are heard.
const BREATH: Duration = Duration::from_millis(1);

/// The publisher's loop: sources when they are due, enrolments, approvals and news as they come.
pub(super) async fn publish(
    mut publisher: Publisher,
    (interval, mut news): (Duration, NewsStream),
    metrics: Arc<Metrics>,
    wake: Arc<Notify>,
    mut stop: watch::Receiver<bool>,
) {
    let id = ulid::Ulid::generate().to_string();
    let mut due = Instant::now();
    let mut round = 0_u64;
    loop {
        let step = if Instant::now() >= due { Step::Sync } else { Step::Enrolments };
        let began = SystemTime::now();
        // A step may be cut anywhere: what it left is made good by the next one, of anybody.
        let outcome = tokio::select! {
            outcome = publisher.step(step) => outcome,
            _ = stop.changed() => return publisher.finish().await,
        };
        note(&outcome, &publisher, &metrics, began);
        if step == Step::Sync {
            round += 1;
            // Up to a tenth later, by hash: replicas do not look in step.
            let late = interval.mul_f64(0.1 * hashed_share(&[&id, &round.to_string()]));
            let rest = if outcome.is_ok() { interval + late } else { LOOK };
            due = Instant::now() + rest;
        }
        let next = publisher.next_look();
        let next = next.map(|next| Instant::from_std(next).saturating_duration_since(Instant::now()));
        let pause = rest(outcome.as_ref().ok(), next);
        // All are cancel-safe: nothing is taken from any of them unless its arm runs.
        let is_due = tokio::select! {
            () = wake.notified() => false,
            () = tokio::time::sleep(pause) => false,
            () = publisher.arrival() => true,
            Some(news) = news.next() => hear(&mut publisher, news),
            _ = stop.changed() => return publisher.finish().await,
        };
        if is_due || is_anything_due(&mut publisher).await {
            due = next_due(due, Instant::now(), outcome.is_ok());
        }
    }
}

/// How long to rest after a step, if nothing is heard meanwhile; a source is due in so long.
fn rest(report: Option<&StepReport>, due: Option<Duration>) -> Duration {
    // A step that was cut short and wrote nothing has met another publisher that does the same work.
    if report.is_some_and(|report| report.is_unfinished && report.rosters > 0) {
        return BREATH;
    }
    due.unwrap_or(LOOK).clamp(PAUSE, LOOK)
}

fn note(
    outcome: &Result<StepReport, PublishError>,
    publisher: &Publisher,
    metrics: &Metrics,
    began: SystemTime,
) {
    match outcome {
        Ok(report) => {
            metrics.count_step("ok");
            trace::stepped(report.published, began);
            metrics.note_clusters(publisher.clusters(), publisher.moving());
        }
        Err(failure) => {
            metrics.count_step("failed");
            error!(error = %chain(failure), "publishing failed; it is tried again");
        }
    }
    metrics.note_sources(&publisher.source_states());
}

/// Takes news; whether Git is to be looked at because of them.
fn hear(publisher: &mut Publisher, news: News) -> bool {
    match news {
        News::Pushed { source } => {
            publisher.push(source.as_ref().map(Name::as_str));
            false
        }
        // Another publisher may have declared sources that this one is to look at.
        News::Head { .. } => true,
        // Enrolments, approvals and hooks are looked for after any news.
        News::Requests | News::Directory { .. } | News::Missed => false,
    }
}

/// Looks at what others may have left for this publisher.
async fn is_anything_due(publisher: &mut Publisher) -> bool {
    let gained = publisher.tend().await;
    if let Err(error) = publisher.hear_sites().await {
        debug!(error = %chain(&error), "reports are looked at again");
    }
    // A record that is away fails the next step, which tells of it.
    let hooked = publisher.take_hooks().await.unwrap_or(false);
    let approved = publisher.take_approvals().await.unwrap_or(false);
    let by_time = publisher.next_look().is_some_and(|next| Instant::from_std(next) <= Instant::now());
    gained || hooked || approved || by_time
}

/// A look that is wanted happens at once; after a failure it waits as long as any failure does, else the
/// loop would never rest.
fn next_due(due: Instant, now: Instant, is_well: bool) -> Instant {
    if is_well { due.min(now) } else { due }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::{Mutex, PoisonError};

    use async_trait::async_trait;
    use farshore_chaos::kit::wait_for;
    use farshore_shared::keys::SigningKey;
    use farshore_shared::names::Labels;

    use super::*;
    use crate::directory::{Standing, write_snapshot};
    use crate::index::Index;
    use crate::keyring::{Keyring, RootOptions};
    use crate::objects::faulty::{Decision, Faulty, Steps};
    use crate::objects::{Condition, Objects, Operation};
    use crate::publish::partition::Policy;
    use crate::publish::{Options, SyncOptions};
    use crate::record::Entry;
    use crate::source::FileSources;
    use crate::trust::Trust;

    #[test]
    fn a_source_that_is_overdue_does_not_keep_a_failing_publisher_from_resting() {
        let now = Instant::now();
        assert_eq!(next_due(now + LOOK, now, true), now);
        assert_eq!(next_due(now + LOOK, now, false), now + LOOK);
        assert_eq!(next_due(now, now + LOOK, true), now);
    }

    #[test]
    fn a_publisher_rests_unless_its_last_step_has_written_all_that_a_step_may() {
        let report = |is_unfinished, rosters| StepReport { is_unfinished, rosters, ..StepReport::default() };
        assert_eq!(rest(Some(&report(true, 2_000)), None), BREATH);
        assert_eq!(rest(Some(&report(true, 0)), None), LOOK, "somebody else does the work");
        assert_eq!(rest(Some(&report(false, 7)), None), LOOK);
        assert_eq!(rest(None, None), LOOK, "it failed");
        assert_eq!(rest(None, Some(Duration::ZERO)), PAUSE);
        assert_eq!(rest(None, Some(2 * LOOK)), LOOK);
    }

    const CLUSTERS: usize = 5_000;

    /// The longest time without any operation.
    #[derive(Debug, Default)]
    struct Gaps(Mutex<(Option<Instant>, Duration)>);

    #[async_trait]
    impl Steps for Gaps {
        async fn before(&self, _: Operation, _: &str) -> Decision {
            let mut gaps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            gaps.1 = gaps.1.max(gaps.0.replace(now).map_or(Duration::ZERO, |last| now - last));
            Decision::Proceed
        }
    }

    /// A publisher without a fleet repository over so many clusters, none of which has a roster yet.
    async fn publisher_of_many(folder: &Path, gaps: &Arc<Gaps>, index: &Arc<dyn Index>) -> Publisher {
        let objects: Arc<dyn Objects> = Arc::new(crate::objects::memory::Memory::new());
        let ring = Keyring::at(&folder.join("keys"));
        ring.init(RootOptions::default(), 1).expect("an empty folder");
        let (trust, keys) = Trust::establish(&*objects, &ring).await.expect("our own keys");
        let key = SigningKey::generate().public().clone();
        let entries = (0..CLUSTERS).map(|n| Entry {
            cluster: format!("c{n}").parse().expect("a name"),
            epoch: 1,
            sequence: 1,
            key: Some(key.clone()),
            labels: Labels::default(),
            roster: None,
        });
        let standing = Standing { epoch: 1, position: 0, issued: 1 };
        let put = write_snapshot(&*objects, &keys.director, standing, Condition::Absent, entries).await;
        let _ = put.expect("memory");
        let options = Options {
            fleet: None,
            files: FileSources::Refused,
            mirrors: folder.join("mirrors"),
            policy: Policy::default(),
            interval: Duration::from_secs(60),
            sync: SyncOptions::default(),
        };
        let objects: Arc<dyn Objects> = Arc::new(Faulty::new(objects, Arc::clone(gaps) as Arc<dyn Steps>));
        Publisher::new(objects, Arc::clone(index), (trust, keys), options)
    }

    #[tokio::test]
    async fn what_is_more_than_one_step_may_write_is_written_step_by_step_without_a_rest() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (gaps, index) = (Arc::new(Gaps::default()), Arc::new(crate::index::memory::Memory::new()));
        let index: Arc<dyn Index> = index;
        let publisher = publisher_of_many(folder.path(), &gaps, &index).await;
        let (metrics, (stop, stopped)) = (Arc::new(Metrics::new()), watch::channel(false));
        // News are lost: its own would wake it.
        let heard: (_, NewsStream) = (Duration::from_secs(60), futures::stream::pending().boxed());
        let running = tokio::spawn(publish(publisher, heard, Arc::clone(&metrics), Arc::default(), stopped));
        let longest =
            wait_for("every cluster to have its roster", Duration::from_secs(120), async || {
                match (metrics.clusters.get(), metrics.moving.get()) {
                    (5_000, 0) => Ok(gaps.0.lock().unwrap_or_else(PoisonError::into_inner).1),
                    (clusters, moving) => Err(format!("{moving} of {clusters} wait")),
                }
            })
            .await
            .expect("they get them");
        assert!(longest < LOOK, "it rested between its steps ({longest:?})");
        stop.send(true).expect("it runs");
        running.await.expect("it ends");
    }
}
