//! One bounded step of all due work, for a scheduler: `--role publish --once`, and each event of a function. What
//! tasks beside each other do in a process that stays is done here one after the other, as long as there is time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use farshore_shared::exit::{Exit, chain};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::HubError;
use super::collecting::collect_in_turn;
use super::folding::fold_once;
use crate::metrics::Metrics;
use crate::objects::Objects;
use crate::publish::{PublishError, Publisher, Step, StepReport};
use crate::retention::Rules;
use crate::status::Compactor;
use crate::trace;

/// The share of the time that is left in which a step waits for Git.
const FOR_GIT: f64 = 0.5;
/// The share in which publishing goes on with what one step could not write.
const FOR_PUBLISHING: f64 = 0.75;

/// What has to be left for a round of collecting to begin.
const FOR_COLLECTING: Duration = Duration::from_secs(10);

/// All who have work to do where something is published.
pub(super) struct Stepper {
    pub(super) publisher: Publisher,
    pub(super) compactor: Compactor,
    pub(super) objects: Arc<dyn Objects>,
    pub(super) keys: PathBuf,
    pub(super) rules: Rules,
    pub(super) metrics: Arc<Metrics>,
}

impl Stepper {
    /// Publishes, stores the mirrors, folds reports and collects what is unneeded, within about this time. What
    /// publishing says is what the step says; what fails beside it is told and tried again.
    pub(super) async fn step(&mut self, time: Duration) -> Result<StepReport, PublishError> {
        let until = Instant::now() + time;
        let published = Box::pin(self.publish(time)).await;
        if until_then(until, self.publisher.store_mirrors()).await.is_none() {
            warn!("mirrors are not in the record yet: the time of this step is over");
        }
        if until_then(until, fold_once(&self.compactor)).await.is_none() {
            warn!("reports are not folded yet: the time of this step is over");
        }
        if until.saturating_duration_since(Instant::now()) >= FOR_COLLECTING {
            collect_in_turn(&self.objects, &self.keys, self.rules, &self.metrics, until).await;
        } else {
            debug!("there is no time to collect what is unneeded");
        }
        published
    }

    /// A step that asks Git, and waits for it so long, and not longer than until then.
    async fn sync(&mut self, for_git: Duration, until: Instant) -> Result<StepReport, PublishError> {
        self.publisher.wait_for_looks(for_git.min(until.saturating_duration_since(Instant::now())));
        self.publisher.step(Step::Sync).await
    }

    async fn publish(&mut self, time: Duration) -> Result<StepReport, PublishError> {
        let until = Instant::now() + time.mul_f64(FOR_PUBLISHING);
        let for_git = time.mul_f64(FOR_GIT);
        // A publisher that is new looks at everything, and does not know yet which words are for others.
        let is_new = !self.publisher.has_looked();
        if !is_new {
            self.publisher.take_hooks().await?;
            self.publisher.take_approvals().await?;
        }
        let began = SystemTime::now();
        let mut report = self.sync(for_git, until).await?;
        trace::stepped(report.published, began);
        // What came meanwhile, or, where everything was looked at, is heard already.
        if self.publisher.take_hooks().await? && !is_new && Instant::now() < until {
            add(&mut report, self.sync(for_git, until).await?);
        }
        while report.is_unfinished && Instant::now() < until {
            let rosters = report.rosters;
            add(&mut report, self.publisher.step(Step::Enrolments).await?);
            if report.rosters == rosters {
                break;
            }
        }
        while Instant::now() < until {
            match self.publisher.hear_sites().await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    debug!(error = %chain(&error), "reports are looked at again");
                    break;
                }
            }
        }
        Ok(report)
    }
}

/// A step after another one.
fn add(report: &mut StepReport, more: StepReport) {
    report.published = more.published.or(report.published);
    report.groups += more.groups;
    report.rosters += more.rosters;
    report.bytes += more.bytes;
    (report.moving, report.is_unfinished) = (more.moving, more.is_unfinished);
    if !more.held.is_empty() {
        report.held = more.held;
    }
    if !more.failed.is_empty() {
        report.failed = more.failed;
    }
}

/// What this brings, if it does so in time.
async fn until_then<T>(until: Instant, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout_at(until, work).await.ok()
}

/// A whole process for one step.
pub(super) async fn once(mut stepper: Stepper, time: Duration) -> Result<Exit, HubError> {
    let report = stepper.step(time).await;
    stepper.publisher.finish().await;
    let report = report?;
    tell(&report);
    match report {
        StepReport { held, .. } if !held.is_empty() => Ok(Exit::Held),
        StepReport { failed, .. } if !failed.is_empty() => Ok(Exit::Unreachable),
        _ => Ok(Exit::Ok),
    }
}

pub(super) fn tell(report: &StepReport) {
    let StepReport { published, groups, rosters, held, failed, .. } = report;
    let (held, failed) = (held.len(), failed.join(", "));
    info!(sequence = published, groups, rosters, held, failed, "step of publishing is done");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use async_trait::async_trait;
    use bytes::Bytes;
    use farshore_chaos::kit::GitRepo;
    use tokio::sync::Notify;

    use super::*;
    use crate::index::Index;
    use crate::keyring::{Keyring, RootOptions};
    use crate::objects::faulty::{Decision, Faulty, Steps};
    use crate::objects::{Condition, Key, Operation};
    use crate::publish::partition::Policy;
    use crate::publish::{FleetRepository, Options, SyncOptions};
    use crate::record;
    use crate::source::{Branch, FileSources, GitUrl};
    use crate::trust::Trust;
    use crate::view::View;

    const DECLARED: &str = "apiVersion: farshore.dev/v1alpha1\nkind: Service\nmetadata: { name: web }\nspec: { source: fleet, path: apps, clusters: {} }\n";

    /// A stepper over a fleet repository of one service, as in a process that has just started.
    async fn stepper(folder: &std::path::Path, fleet: &GitRepo, objects: &Arc<dyn Objects>) -> Stepper {
        let keys = folder.join("keys");
        let ring = Keyring::at(&keys);
        if !ring.exists() {
            ring.init(RootOptions::default(), 1).expect("an empty folder");
        }
        let trust = Trust::establish(&**objects, &ring).await.expect("our own keys");
        let index: Arc<dyn Index> = Arc::new(crate::index::memory::Memory::new());
        let url = GitUrl::of_path(fleet.path()).expect("an absolute path");
        let options = Options {
            fleet: Some(FleetRepository { url, branch: Branch::Default }),
            files: FileSources::Allowed,
            mirrors: folder.join("mirrors"),
            policy: Policy::default(),
            interval: Duration::from_secs(3600),
            // As in a process that stays: no grace that is worth the name.
            sync: SyncOptions { grace: Duration::ZERO, ..SyncOptions::default() },
        };
        Stepper {
            publisher: Publisher::new(Arc::clone(objects), Arc::clone(&index), trust, options),
            compactor: Compactor::new(View::new(Arc::clone(objects), Arc::clone(&index)), index),
            objects: Arc::clone(objects),
            keys,
            rules: Rules::default(),
            metrics: Arc::default(),
        }
    }

    async fn keys(objects: &Arc<dyn Objects>, prefix: &str) -> BTreeSet<String> {
        let listed = objects.list(prefix, None, 100).await.expect("memory");
        listed.into_iter().map(|listed| listed.key.as_str().to_owned()).collect()
    }

    /// Holds the artifacts that are stored until it is let go.
    #[derive(Debug, Default)]
    struct SlowArtifacts {
        reached: Notify,
        go: Notify,
    }

    #[async_trait]
    impl Steps for SlowArtifacts {
        async fn before(&self, operation: Operation, key: &str) -> Decision {
            if operation == Operation::Put && key.starts_with("artifacts/") {
                self.reached.notify_one();
                self.go.notified().await;
            }
            Decision::Proceed
        }
    }

    #[tokio::test]
    async fn services_of_the_fleet_repository_that_are_slow_to_pack_end_no_step_late_and_come_with_the_next()
    {
        let (folder, mut fleet) = (tempfile::tempdir().expect("a folder"), GitRepo::new().expect("git"));
        fleet.write("web.yaml", DECLARED).expect("a folder");
        fleet.write("apps/it.txt", "one").expect("a folder");
        fleet.commit("first").expect("git works");
        let memory: Arc<dyn Objects> = Arc::new(crate::objects::memory::Memory::new());
        let slow = Arc::new(SlowArtifacts::default());
        let objects: Arc<dyn Objects> =
            Arc::new(Faulty::new(Arc::clone(&memory), Arc::clone(&slow) as Arc<dyn Steps>));
        let mut stepper = stepper(folder.path(), &fleet, &objects).await;
        let (time, began) = (Duration::from_secs(9), Instant::now());
        stepper.step(time).await.expect("memory");
        slow.reached.notified().await;
        assert!(began.elapsed() < 2 * time, "{:?}", began.elapsed());
        assert!(keys(&memory, "artifacts/").await.is_empty(), "it is packed, and not stored");
        let turn = Key::new("gc/turn").expect("a key");
        assert_eq!(memory.get(&turn, 64).await.expect("memory"), None, "there was no time to collect");
        slow.go.notify_one();
        assert!(stepper.step(time).await.expect("memory").published.is_some());
        assert_eq!(keys(&memory, "artifacts/").await.len(), 1, "it is there, and was packed once");
    }

    #[tokio::test]
    async fn one_step_does_all_that_is_due_and_waits_for_what_it_began() {
        let (folder, mut fleet) = (tempfile::tempdir().expect("a folder"), GitRepo::new().expect("git"));
        fleet.write("web.yaml", DECLARED).expect("a folder");
        fleet.write("apps/it.txt", "one").expect("a folder");
        fleet.commit("first").expect("git works");
        let objects: Arc<dyn Objects> = Arc::new(crate::objects::memory::Memory::new());
        let mut stepper = stepper(folder.path(), &fleet, &objects).await;
        let time = Duration::from_secs(60);
        let first = stepper.step(time).await.expect("memory");
        assert!(first.published.is_some() && first.failed.is_empty(), "the fetch was waited for: {first:?}");
        assert!(keys(&objects, "status/").await.contains("status/summary"), "reports are counted");
        let turn = Key::new("gc/turn").expect("a key");
        assert!(objects.get(&turn, 64).await.expect("memory").is_some(), "what is unneeded was looked for");

        // Not due for an hour, but somebody has pushed.
        fleet.write("apps/it.txt", "two").expect("a folder");
        fleet.commit("second").expect("git works");
        assert_eq!(stepper.step(time).await.expect("memory").published, None);
        let word = serde_json::to_vec(&record::Pushed { at: 1 }).expect("JSON");
        let key = record::hook(record::FLEET);
        let _ = objects.put(&key, Bytes::from(word), Condition::Always).await.expect("memory");
        assert!(stepper.step(time).await.expect("memory").published.is_some(), "the hook is heard");
        assert_eq!(keys(&objects, record::HOOKS).await, BTreeSet::new());
    }
}
