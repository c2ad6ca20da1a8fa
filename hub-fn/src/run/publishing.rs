//! When the publisher takes its steps.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use farshore_shared::exit::{Exit, chain};
use farshore_shared::retry::hashed_share;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::{error, info};

use super::HubError;
use crate::metrics::Metrics;
use crate::publish::{Publisher, Step, StepReport};
use crate::trace;

/// How often the publisher looks for requests to enrol and approvals that other processes recorded.
const LOOK: Duration = Duration::from_secs(2);
/// How long the publisher rests between two steps, whatever is due.
const PAUSE: Duration = Duration::from_millis(100);
/// One bounded step of due work, for a scheduler.
pub(super) async fn once(mut publisher: Publisher) -> Result<Exit, HubError> {
    let report = publisher.step(Step::Sync).await?;
    tell(&report);
    match report {
        StepReport { held, .. } if !held.is_empty() => Ok(Exit::Held),
        StepReport { failed, .. } if !failed.is_empty() => Ok(Exit::Unreachable),
        _ => Ok(Exit::Ok),
    }
}

pub(super) fn tell(report: &StepReport) {
    let StepReport { published, groups, rosters, held, failed } = report;
    let (held, failed) = (held.len(), failed.join(", "));
    info!(sequence = published, groups, rosters, held, failed, "step of publishing is done");
}

/// The publisher's loop: Git on its interval with jitter, enrolments and approvals as they come.
pub(super) async fn publish(
    mut publisher: Publisher,
    interval: Duration,
    metrics: Arc<Metrics>,
    wake: Arc<Notify>,
    mut stop: watch::Receiver<bool>,
) {
    let id = ulid::Ulid::generate().to_string();
    let mut due = Instant::now();
    let mut held = Vec::new();
    let mut round = 0_u64;
    loop {
        let step = if Instant::now() >= due { Step::Sync } else { Step::Enrolments };
        let began = SystemTime::now();
        // A step may be cut anywhere: what it left is made good by the next one, of anybody.
        let outcome = tokio::select! {
            outcome = publisher.step(step) => outcome,
            _ = stop.changed() => return,
        };
        match &outcome {
            Ok(report) => {
                metrics.count_step("ok");
                trace::stepped(report.published, began);
                metrics.clusters.set(i64::try_from(publisher.clusters()).unwrap_or(i64::MAX));
            }
            Err(failure) => {
                metrics.count_step("failed");
                error!(error = %chain(failure), "publishing failed; it is tried again");
            }
        }
        if step == Step::Sync {
            round += 1;
            // Up to a tenth later, by hash: replicas do not fetch in step.
            let late = interval.mul_f64(0.1 * hashed_share(&[&id, &round.to_string()]));
            let rest = if outcome.is_ok() { interval + late } else { LOOK };
            due = next_due(Instant::now(), rest, publisher.next_look().map(Instant::from_std));
            held = outcome.map(|report| report.held).unwrap_or_default();
        }
        // All three are cancel-safe: nothing is taken from any of them.
        tokio::select! {
            () = wake.notified() => {}
            () = tokio::time::sleep(due.saturating_duration_since(Instant::now()).clamp(PAUSE, LOOK)) => {}
            _ = stop.changed() => return,
        }
        if matches!(publisher.is_any_approved(&held).await, Ok(true)) {
            due = Instant::now();
        }
    }
}

/// A source may have a shorter interval of its own. One that is overdue, because the step failed before
/// it was looked at, waits as long as any failure does: else the loop would never rest.
fn next_due(now: Instant, rest: Duration, source: Option<Instant>) -> Instant {
    source.map_or(now + rest, |source| source.max(now + LOOK).min(now + rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_is_overdue_does_not_keep_the_publisher_from_resting() {
        let now = Instant::now() + LOOK;
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        assert_eq!(next_due(now, minute, None), now + minute);
        assert_eq!(next_due(now, minute, Some(now + 10 * second)), now + 10 * second);
        assert_eq!(next_due(now, minute, Some(now + 2 * minute)), now + minute);
        assert_eq!(next_due(now, minute, Some(now - second)), now + LOOK);
        assert_eq!(next_due(now, second, Some(now - second)), now + second);
    }
}
