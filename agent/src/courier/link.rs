//! How a site comes to be connected: it joins, learns the trust root, and follows it when it is replaced.

use std::sync::Arc;
use std::time::Duration;

use farshore_shared::exit::chain;
use farshore_shared::retry::{Schedule, hashed_share, spread};
use farshore_shared::wire::Root;
use tokio::time::sleep;
use tracing::{info, warn};

use super::{Courier, MAX_DELAY, Notice, PollError};
use crate::hub::{Caller, HubClient, HubError, PATIENCE, Trust};
use crate::identity::{self, Membership, Progress};
use crate::store::EnrolmentRecord;
use crate::verify::{Kind, Refusal};

/// A member's connection.
pub(super) struct Link {
    pub(super) client: HubClient,
    pub(super) record: EnrolmentRecord,
    pub(super) root: Root,
}

impl Courier {
    /// Becomes a member; none when that is impossible.
    pub(super) async fn join(&mut self) -> Option<EnrolmentRecord> {
        let mut retry = Schedule::new(Duration::from_secs(1), Duration::from_secs(300));
        let joining = match identity::membership(&self.store, &self.keys, self.join.as_deref()) {
            Ok(Membership::Member(record)) => return Some(*record),
            Ok(Membership::Joining(joining)) => joining,
            Err(error) => {
                self.tell(Notice::CannotJoin(error)).await;
                return None;
            }
        };
        info!(cluster = %joining.cluster(), hub = %self.hub, "joining");
        loop {
            match joining.attempt(&self.store, &self.hub, PATIENCE).await {
                Ok(Progress::Joined(record)) => {
                    info!(cluster = %joining.cluster(), "joined");
                    return Some(*record);
                }
                Ok(Progress::Pending { retry_after }) => sleep(self.pause(retry_after)).await,
                Err(error) if error.is_retryable() => {
                    let delay = retry.next_delay();
                    warn!(error = %chain(&error), retry_in = ?delay, "joining failed");
                    sleep(delay).await;
                }
                Err(error) => {
                    self.tell(Notice::CannotJoin(error)).await;
                    return None;
                }
            }
        }
    }

    /// How long to wait for the publisher: never no time at all, and not in step with other newcomers.
    fn pause(&self, asked: Duration) -> Duration {
        let share = hashed_share(&["joining", self.keys.cluster.as_str()]);
        spread(asked.max(Duration::from_secs(1)), MAX_DELAY, share)
    }

    /// A connection for a member. Waits for a trust root where none is on disk.
    pub(super) async fn link(&mut self, record: EnrolmentRecord) -> Link {
        let mut retry = Schedule::new(Duration::from_secs(1), Duration::from_secs(300));
        loop {
            match self.try_link(&record).await {
                Ok(link) => return link,
                Err(error) => {
                    let delay = retry.next_delay();
                    warn!(error = %chain(&error), retry_in = ?delay, "the hub cannot be called");
                    sleep(delay).await;
                }
            }
        }
    }

    async fn try_link(&self, record: &EnrolmentRecord) -> Result<Link, PollError> {
        let root = match self.store.roots(record.fleet)?.good() {
            Some(known) => known.root,
            None => {
                let mut any = HubClient::new(self.hub.clone(), &Trust::Bootstrap, None, PATIENCE)?;
                identity::trusted_root(&self.store, &mut any, record.fleet).await?
            }
        };
        let client = self.client(&root, record)?;
        Ok(Link { client, record: record.clone(), root })
    }

    pub(super) fn client(&self, root: &Root, record: &EnrolmentRecord) -> Result<HubClient, HubError> {
        let caller = Caller { keys: Arc::clone(&self.keys), fleet: record.fleet };
        HubClient::new(self.hub.clone(), &Trust::of(root), Some(caller), PATIENCE)
    }

    pub(super) async fn renew_root(&self, link: &mut Link) -> Result<Renewed, PollError> {
        let mut any = HubClient::new(self.hub.clone(), &Trust::Bootstrap, None, PATIENCE)?;
        let root = identity::newer_root(&self.store, &mut any, link.root.clone()).await?;
        if root.version == link.root.version {
            return Ok(Renewed::Same);
        }
        info!(version = root.version, "a newer trust root is in force");
        link.client = self.client(&root, &link.record)?;
        link.root = root;
        Ok(Renewed::Newer)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewed {
    Newer,
    Same,
}

/// Failures that a newer root explains: a director's key, an epoch or a TLS key that the root at hand
/// does not have, and a root whose own time is over (TUF 1.0, section 5.3.10).
///
/// A hub that is merely away is none: nobody asks it twice as often for that.
pub(super) fn wants_newer_root(error: &PollError) -> bool {
    match error {
        PollError::Refused(refusal) => matches!(
            refusal,
            Refusal::Signature { .. } | Refusal::NewEpoch { .. } | Refusal::Expired { kind: Kind::Root, .. }
        ),
        PollError::Hub(error) => matches!(error, HubError::NotOurHub { .. }),
        PollError::Store(_) | PollError::Root(_) | PollError::Superseded => false,
    }
}
