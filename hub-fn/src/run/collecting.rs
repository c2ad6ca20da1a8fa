//! When what nobody needs any more is collected.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use farshore_shared::clock::now;
use farshore_shared::exit::chain;
use farshore_shared::retry::hashed_share;
use tokio::sync::watch;
use tracing::{info, warn};

use super::HubError;
use crate::keyring::Keyring;
use crate::metrics::Metrics;
use crate::objects::Objects;
use crate::retention::{Collector, Round, Rules};
use crate::trust::Trust;

/// How often a fleet is collected, by whichever of its publishers comes first.
const PAUSE: Duration = Duration::from_secs(3600);

/// The collector's loop: a round each hour, at a time of its own.
pub(super) async fn collect(
    objects: Arc<dyn Objects>,
    keys: PathBuf,
    rules: Rules,
    metrics: Arc<Metrics>,
    mut stop: watch::Receiver<bool>,
) {
    let id = ulid::Ulid::generate().to_string();
    let mut round = 0_u64;
    loop {
        round += 1;
        // The first one within the hour, all others an hour and up to a tenth later.
        let share = hashed_share(&["collect", &id, &round.to_string()]);
        let pause = if round == 1 { PAUSE.mul_f64(share) } else { PAUSE.mul_f64(1.0 + 0.1 * share) };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stop.changed() => return,
        }
        // A round may be cut anywhere: what it left is made good by a later one, of anybody.
        let done = tokio::select! {
            done = round_of(&objects, &keys, rules) => done,
            _ = stop.changed() => return,
        };
        note(done, &metrics);
    }
}

async fn round_of(
    objects: &Arc<dyn Objects>,
    keys: &std::path::Path,
    rules: Rules,
) -> Result<Option<Round>, HubError> {
    let Some(trust) = Trust::load(&**objects).await? else { return Ok(None) };
    let director = Keyring::at(keys).publisher()?.director;
    let collector = Collector::new(objects, &trust, rules);
    // A little less than the pause, or the next turn would just be missed.
    if !collector.takes_turn(PAUSE.as_secs() * 9 / 10, now()).await? {
        return Ok(None);
    }
    Ok(Some(collector.round(&director, now()).await?))
}

/// A round, if it is anybody's turn; for a scheduler.
pub(super) async fn collect_in_turn(
    objects: &Arc<dyn Objects>,
    keys: &std::path::Path,
    rules: Rules,
    metrics: &Metrics,
) {
    note(round_of(objects, keys, rules).await, metrics);
}

fn note(done: Result<Option<Round>, HubError>, metrics: &Metrics) {
    match done {
        Ok(Some(round)) => tell(&round, metrics),
        Ok(None) => {}
        Err(failure) => {
            warn!(error = %chain(&failure), "collecting what is unneeded failed; it is tried again")
        }
    }
}

fn tell(round: &Round, metrics: &Metrics) {
    for found in &round.deleted {
        metrics.collected(found.kind, found.size);
    }
    let bytes: u64 = round.deleted.iter().map(|found| found.size).sum();
    let (unneeded, deleted) = (round.unneeded.len(), round.deleted.len());
    info!(unneeded, deleted, bytes, was_busy = round.was_busy, "collected what nobody needs");
}
