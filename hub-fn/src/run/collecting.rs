//! When what nobody needs any more is collected.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use farshore_shared::clock::now;
use farshore_shared::exit::chain;
use farshore_shared::retry::hashed_share;
use farshore_shared::wire::UnixSeconds;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use super::HubError;
use crate::keyring::Keyring;
use crate::metrics::Metrics;
use crate::objects::Objects;
use crate::retention::{Collector, Round, Rules, give_turn_back};
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
            done = round_of(&objects, &keys, rules, now()) => done,
            _ = stop.changed() => return,
        };
        note(done, &metrics);
    }
}

async fn round_of(
    objects: &Arc<dyn Objects>,
    keys: &Path,
    rules: Rules,
    now: UnixSeconds,
) -> Result<Option<Round>, HubError> {
    let Some(trust) = Trust::load(&**objects).await? else { return Ok(None) };
    let director = Keyring::at(keys).publisher()?.director;
    let collector = Collector::new(objects, &trust, rules);
    // A little less than the pause, or the next turn would just be missed.
    if !collector.takes_turn(PAUSE.as_secs() * 9 / 10, now).await? {
        return Ok(None);
    }
    Ok(Some(collector.round(&director, now).await?))
}

/// A round, if it is anybody's turn, for a scheduler. One that does not end until then is anybody's turn again.
pub(super) async fn collect_in_turn(
    objects: &Arc<dyn Objects>,
    keys: &Path,
    rules: Rules,
    metrics: &Metrics,
    until: Instant,
) {
    let now = now();
    if let Ok(done) = timeout_at(until, round_of(objects, keys, rules, now)).await {
        return note(done, metrics);
    }
    warn!("what is unneeded is not collected: a round takes longer than is left of this step's time");
    if let Err(failure) = give_turn_back(&**objects, now).await {
        warn!(error = %chain(&failure), "the next round of collecting has to wait for its turn");
    }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use async_trait::async_trait;

    use super::*;
    use crate::keyring::RootOptions;
    use crate::objects::faulty::{Decision, Faulty, Steps};
    use crate::objects::memory::Memory;
    use crate::objects::{Key, Operation};

    const TURN: &str = "gc/turn";

    /// A bucket that answers nothing any more once a round has begun, but for whose turn it is.
    #[derive(Debug, Default)]
    struct StuckInARound(AtomicBool);

    #[async_trait]
    impl Steps for StuckInARound {
        async fn before(&self, operation: Operation, key: &str) -> Decision {
            if key == TURN {
                self.0.fetch_or(operation == Operation::Put, Ordering::Relaxed);
            } else if self.0.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            Decision::Proceed
        }
    }

    #[tokio::test]
    async fn a_round_that_is_cut_gives_its_turn_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let ring = Keyring::at(folder.path());
        ring.init(RootOptions::default(), 1).expect("an empty folder");
        let memory: Arc<dyn Objects> = Arc::new(Memory::new());
        let (trust, _) = Trust::establish(&*memory, &ring).await.expect("our own keys");
        let slow: Arc<dyn Objects> =
            Arc::new(Faulty::new(Arc::clone(&memory), Arc::<StuckInARound>::default()));
        let until = Instant::now() + Duration::from_millis(500);
        collect_in_turn(&slow, folder.path(), Rules::default(), &Metrics::default(), until).await;
        assert!(Instant::now() >= until, "it was cut");
        let turn = Key::new(TURN).expect("a key");
        assert!(memory.get(&turn, 64).await.expect("memory").is_some(), "it had begun");
        let collector = Collector::new(&memory, &trust, Rules::default());
        assert!(collector.takes_turn(3600, now()).await.expect("memory"), "it is somebody's turn again");
    }
}
