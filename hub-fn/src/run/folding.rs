//! When reports are folded and the fleet is counted.

use std::time::Duration;

use farshore_shared::clock::now;
use farshore_shared::exit::chain;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::status::Compactor;

/// The shortest rest between two steps: how late an operator sees a report in a small fleet.
const SHORTEST: Duration = Duration::from_secs(2);
/// The longest rest, whatever a step takes.
const LONGEST: Duration = Duration::from_secs(60);
/// A step may take a tenth of the time: the longer it takes, the more reports each write of a shard takes in.
const REST_PER_WORK: u32 = 9;

/// The folder's loop.
pub(super) async fn fold(compactor: Compactor, mut stop: watch::Receiver<bool>) {
    let mut has_old = true;
    loop {
        let began = Instant::now();
        // A step may be cut anywhere: what it left is made good by the next one, of anybody.
        tokio::select! {
            left = step(&compactor, has_old) => has_old = left,
            _ = stop.changed() => return,
        }
        let rest = (began.elapsed() * REST_PER_WORK).clamp(SHORTEST, LONGEST);
        // Both are cancel-safe.
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            _ = stop.changed() => return,
        }
    }
}

/// One step, for a scheduler.
pub(super) async fn fold_once(compactor: &Compactor) {
    step(compactor, true).await;
}

/// Folds what there is; whether statuses of the old layout may be left.
async fn step(compactor: &Compactor, has_old: bool) -> bool {
    let mut left = has_old;
    if has_old {
        match compactor.fold_old().await {
            Ok(_) => left = false,
            Err(error) => warn!(error = %chain(&error), "statuses of the old layout are not folded yet"),
        }
    }
    match compactor.step(now()).await {
        Ok(done) => debug!(parts = done.parts, reports = done.reports, "reports are folded"),
        Err(error) => warn!(error = %chain(&error), "reports are not folded yet; nothing of them is lost"),
    }
    left
}
