//! When the publisher takes its steps.

use std::sync::Arc;
use std::time::Duration;

use farshore_shared::exit::{Exit, chain};
use farshore_shared::names::Name;
use farshore_shared::retry::hashed_share;
use futures::StreamExt as _;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::{error, info};

use super::HubError;
use crate::index::{News, NewsStream};
use crate::metrics::Metrics;
use crate::publish::{PublishError, Publisher, Step, StepReport};

/// How often the publisher looks for requests to enrol and approvals that other processes recorded.
const LOOK: Duration = Duration::from_secs(2);
/// How long the publisher rests between two steps, whatever is due.
const PAUSE: Duration = Duration::from_millis(20);

/// One bounded step of due work, for a scheduler.
pub(super) async fn once(mut publisher: Publisher) -> Result<Exit, HubError> {
    let report = publisher.step(Step::Sync).await?;
    publisher.finish().await;
    tell(&report);
    match report {
        StepReport { held, .. } if !held.is_empty() => Ok(Exit::Held),
        StepReport { failed, .. } if !failed.is_empty() => Ok(Exit::Unreachable),
        _ => Ok(Exit::Ok),
    }
}

fn tell(report: &StepReport) {
    let StepReport { published, groups, rosters, held, failed, .. } = report;
    let (held, failed) = (held.len(), failed.join(", "));
    info!(sequence = published, groups, rosters, held, failed, "step of publishing is done");
}

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
        // A step may be cut anywhere: what it left is made good by the next one, of anybody.
        let outcome = tokio::select! {
            outcome = publisher.step(step) => outcome,
            _ = stop.changed() => return publisher.finish().await,
        };
        note(&outcome, &publisher, &metrics);
        if step == Step::Sync {
            round += 1;
            // Up to a tenth later, by hash: replicas do not look in step.
            let late = interval.mul_f64(0.1 * hashed_share(&[&id, &round.to_string()]));
            let rest = if outcome.is_ok() { interval + late } else { LOOK };
            due = Instant::now() + rest;
        }
        let pause = publisher
            .next_look()
            .map_or(LOOK, |next| Instant::from_std(next).saturating_duration_since(Instant::now()).min(LOOK));
        // All are cancel-safe: nothing is taken from any of them unless its arm runs.
        let is_due = tokio::select! {
            () = wake.notified() => false,
            () = tokio::time::sleep(pause.max(PAUSE)) => false,
            () = publisher.arrival() => true,
            Some(news) = news.next() => hear(&mut publisher, news),
            _ = stop.changed() => return publisher.finish().await,
        };
        if is_due || is_anything_due(&mut publisher).await {
            due = next_due(due, Instant::now(), outcome.is_ok());
        }
    }
}

fn note(outcome: &Result<StepReport, PublishError>, publisher: &Publisher, metrics: &Metrics) {
    match outcome {
        Ok(report) => {
            metrics.count_step("ok");
            if let Some(sequence) = report.published {
                metrics.sequence.set(i64::try_from(sequence).unwrap_or(i64::MAX));
            }
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
    use super::*;

    #[test]
    fn a_source_that_is_overdue_does_not_keep_a_failing_publisher_from_resting() {
        let now = Instant::now();
        assert_eq!(next_due(now + LOOK, now, true), now);
        assert_eq!(next_due(now + LOOK, now, false), now + LOOK);
        assert_eq!(next_due(now, now + LOOK, true), now);
    }
}
