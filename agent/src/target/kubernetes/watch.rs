//! Watches: one per kind that is in place, over the whole cluster, of metadata only, of what carries
//! our label.
//!
//! A watch begins at the version of an empty page and goes on from where it ended; it never lists. What
//! it may have missed is told as such ([`Change::Missed`]), and the caller looks at everything once. So
//! an API server that restarts is asked a few cheap questions per kind, and for one look.
//!
//! Tasks: one per kind ([`course`]); it tells of changes by an `mpsc` channel that [`Watches`] reads,
//! and ends with it.

mod course;
mod event;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::connection::Connection;
use super::discovery::Discovery;
use crate::target::{Change, Coverage, Kind};
use course::Course;

/// Changes that wait to be heard; the API server holds back what is beyond.
const WAITING: usize = 256;
/// The most kinds that are watched: what is beyond is seen by the sweep.
const KINDS_LIMIT: usize = 200;

/// How a watch of one kind is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Sight {
    /// It begins, or begins again.
    #[default]
    Opening,
    /// It tells of what happens.
    Open,
    /// It cannot be, and why.
    Blind(String),
}

/// All watches of one target. Clones share them; they end with the last.
#[derive(Clone)]
pub(super) struct Watches {
    inner: Arc<Inner>,
}

struct Inner {
    connection: Connection,
    discovery: Discovery,
    /// By group and kind.
    watched: Mutex<BTreeMap<(String, String), Watched>>,
    /// Kinds beyond the limit.
    beyond: Mutex<Vec<Kind>>,
    tell: mpsc::Sender<Change>,
    told: tokio::sync::Mutex<mpsc::Receiver<Change>>,
}

struct Watched {
    task: AbortHandle,
    sight: Arc<Mutex<Sight>>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watches {
    pub(super) fn new(connection: Connection, discovery: Discovery) -> Self {
        let (tell, told) = mpsc::channel(WAITING);
        let (watched, beyond, told) = (Mutex::default(), Mutex::default(), tokio::sync::Mutex::new(told));
        Self { inner: Arc::new(Inner { connection, discovery, watched, beyond, tell, told }) }
    }

    /// Watches these kinds and no others.
    pub(super) fn follow(&self, kinds: &BTreeSet<Kind>) {
        let mut watched = self.inner.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted: BTreeSet<(&str, &str)> =
            kinds.iter().map(|kind| (kind.group.as_str(), kind.kind.as_str())).collect();
        watched.retain(|(group, kind), _| wanted.contains(&(group.as_str(), kind.as_str())));
        let mut beyond = vec![];
        for kind in kinds {
            let key = (kind.group.clone(), kind.kind.clone());
            if watched.contains_key(&key) {
                continue;
            }
            if watched.len() >= KINDS_LIMIT {
                beyond.push(kind.clone());
            } else {
                watched.insert(key, self.begin(kind));
            }
        }
        *self.inner.beyond.lock().unwrap_or_else(PoisonError::into_inner) = beyond;
    }

    fn begin(&self, kind: &Kind) -> Watched {
        let sight = Arc::new(Mutex::new(Sight::default()));
        let Inner { connection, discovery, tell, .. } = &*self.inner;
        let course = Course {
            kind: kind.clone(),
            connection: connection.clone(),
            discovery: discovery.clone(),
            tell: tell.clone(),
            sight: Arc::clone(&sight),
        };
        Watched { task: tokio::spawn(course.run()).abort_handle(), sight }
    }

    /// The next changes. Cancel-safe: what is not returned stays in the channel.
    pub(super) async fn changes(&self) -> Vec<Change> {
        let mut told = self.inner.told.lock().await;
        let mut changes = Vec::new();
        told.recv_many(&mut changes, WAITING).await;
        changes
    }

    pub(super) fn coverage(&self) -> Coverage {
        let watched = self.inner.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let mut coverage = Coverage::default();
        for Watched { sight, .. } in watched.values() {
            match &*sight.lock().unwrap_or_else(PoisonError::into_inner) {
                Sight::Opening => coverage.opening += 1,
                Sight::Open => coverage.watched += 1,
                Sight::Blind(why) => coverage.blind.push(why.clone()),
            }
        }
        let beyond = self.inner.beyond.lock().unwrap_or_else(PoisonError::into_inner);
        let over = beyond.iter().map(|kind| {
            format!(
                "changes of {kind} are seen by the sweep only: more than {KINDS_LIMIT} kinds are in place"
            )
        });
        coverage.blind.extend(over);
        coverage
    }
}
