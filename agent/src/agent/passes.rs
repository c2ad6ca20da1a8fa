//! The reconciler's task: one pass after the other.

use std::pin::pin;
use std::time::Duration;

use farshore_shared::exit::chain;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tracing::{error, info};

use crate::config::AgentArgs;
use crate::footprint::{InForce, Said};
use crate::reconcile::rhythm::{Rhythm, Urgency};
use crate::reconcile::{Extent, Orders, Pass, Reconciler};
use crate::schedule;
use crate::store::StoreError;
use crate::target::Target;

/// How often everything is looked at where every change is told of by itself, and where not.
const SWEEPS: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(60));
/// The longest pause before what did not succeed is tried again.
const RETRY_MOST: Duration = Duration::from_secs(60);
/// About how long others may ask as well before a look at everything that somebody asked for.
const ASKED: Duration = Duration::from_secs(2);

/// The reconciler's loop: at once, then whenever there are new orders, soon while something is under way,
/// and once a sweep.
pub(super) async fn reconcile<T: Target>(
    mut reconciler: Reconciler<T>,
    mut orders: watch::Receiver<Orders>,
    passes: mpsc::Sender<Pass>,
    args: AgentArgs,
) {
    let mut rhythm = Rhythm::new(args.name.clone(), RETRY_MOST, Instant::now());
    let mut extent = Extent::Everything;
    let mut bounds = None;
    loop {
        let current = orders.borrow_and_update().clone();
        let footprint = footprint(&args, &current, reconciler.coverage().is_whole());
        if bounds.replace(footprint) != Some(footprint) {
            info!(%footprint, "what may be asked of cluster and machine");
            reconciler.bound(&footprint);
        }
        rhythm.begin(extent, footprint.sweep(), Instant::now());
        let (passed, is_ordered) = pass(&mut reconciler, &current, extent, &mut orders).await;
        let urgency = match passed {
            // Nobody waits for what it found: the next one begins at once, and looks at no less.
            Ok(pass) if pass.overtaken => {
                rhythm.ordered();
                let is_less = is_ordered && extent != Extent::Everything;
                extent = if is_less { Extent::Ordered } else { Extent::Everything };
                continue;
            }
            Ok(mut pass) => {
                pass.footprint = Some(footprint);
                let urgency = Urgency::of(&pass);
                if passes.send(pass).await.is_err() {
                    return;
                }
                urgency
            }
            Err(failure) => {
                error!(error = %chain(&failure), "the state folder cannot be read");
                Urgency::Troubled
            }
        };
        if is_ordered {
            orders.mark_changed();
        }
        let next = rhythm.after(urgency, Instant::now());
        extent = rest(&reconciler, args.name.as_str(), next, &mut orders).await;
        if extent == Extent::Ordered {
            rhythm.ordered();
        }
    }
}

/// What is in force by these orders. Where every change is told of by itself, a look at everything may be rare; where
/// not, it is what puts things back, and who steers a fleet does not know which of its sites those are.
fn footprint(args: &AgentArgs, orders: &Orders, hears_all: bool) -> InForce {
    let said = orders
        .documents
        .as_deref()
        .map(|documents| Said { cluster: documents.roster.footprint, fleet: documents.group.footprint });
    let (sweep, rarest) = if hears_all { (SWEEPS.0, Duration::MAX) } else { (SWEEPS.1, SWEEPS.1) };
    InForce::of(&args.footprint(), said.unwrap_or_default().swept_within(rarest), sweep)
}

/// Waits until the next pass is due, and gives its extent.
async fn rest<T: Target>(
    reconciler: &Reconciler<T>,
    name: &str,
    (wait, next): (Duration, Extent),
    orders: &mut watch::Receiver<Orders>,
) -> Extent {
    // Cancel-safe: a change that is not taken stays visible, and so does what was asked for.
    tokio::select! {
        () = sleep(wait) => next,
        () = reconciler.asked_for_a_look() => {
            sleep(schedule::about(name, ASKED, 0)).await;
            Extent::Everything
        }
        changed = orders.changed() => {
            match changed {
                // The mender may be at work for the orders before.
                Ok(()) => reconciler.shared().turn_era(),
                // The courier has ended; what is held is enforced as long as this process runs.
                Err(_closed) => sleep(wait).await,
            }
            Extent::Ordered
        }
    }
}

/// One pass, and whether new orders came meanwhile: they end it.
async fn pass<T: Target>(
    reconciler: &mut Reconciler<T>,
    current: &Orders,
    extent: Extent,
    orders: &mut watch::Receiver<Orders>,
) -> (Result<Pass, StoreError>, bool) {
    let shared = reconciler.shared();
    let mut is_ordered = false;
    let mut passing = pin!(reconciler.pass_over(current, extent));
    loop {
        // Cancel-safe: the pass goes on where it was, and orders are read anew before the next one.
        tokio::select! {
            passed = &mut passing => return (passed, is_ordered),
            Ok(()) = orders.changed() => {
                is_ordered = true;
                shared.turn_era();
            }
        }
    }
}
