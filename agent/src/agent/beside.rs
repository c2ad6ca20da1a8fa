//! What works beside the others, and nobody waits for.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::announce::Board;
use crate::announce::announcer::Announcer;
use crate::config::AgentArgs;
use crate::controls::watcher;
use crate::drift::Shared;
use crate::local::keeper;
use crate::local::teller::Teller;
use crate::store::Found;

/// Starts what works beside the others; it ends with the answer.
pub(super) fn beside<B: Board>(
    args: &AgentArgs,
    board: Option<B>,
    teller: &Teller,
    shared: Arc<Shared>,
) -> JoinSet<()> {
    let mut beside = JoinSet::new();
    beside.spawn(watcher::watch(args.state.clone(), args.windows(), shared));
    beside.spawn(keeper::keep(args.state.clone(), teller.listener()));
    if let Some(board) = board {
        // Nothing depends on it: what cannot be read was not told.
        let before = keeper::snapshot(&args.state).ok().and_then(Found::good);
        beside.spawn(Announcer::new(board, args.name.clone(), before).run(teller.listener()));
    }
    beside
}
