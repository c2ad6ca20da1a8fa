//! The course of one watch: it begins, goes on from where it ended, and begins anew where it must.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farshore_shared::retry::{Schedule, hashed_share};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tracing::debug;

use super::super::connection::{Connection, Request};
use super::super::discovery::{Discovery, GroupVersion, Resource};
use super::super::fault::Fault;
use super::super::path;
use super::Sight;
use super::event::{self, Said};
use crate::object::SERVICE_LABEL;
use crate::target::{Change, Kind};

/// The first pause after a failure, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// How long until what was not allowed, or not there, is tried again.
const DENIED_PAUSE: Duration = Duration::from_secs(300);
/// How long the API server is asked to go on with a watch, in seconds: so long, and up to half as much more.
const LASTS: u32 = 2400;

/// One watch, which goes on for ever.
pub(super) struct Course {
    pub(super) kind: Kind,
    pub(super) connection: Connection,
    pub(super) discovery: Discovery,
    pub(super) tell: mpsc::Sender<Change>,
    pub(super) sight: Arc<Mutex<Sight>>,
}

/// From where a watch goes on.
enum Place {
    /// From now; what happened before is not known.
    Now,
    /// From this version of everything.
    After(String),
}

/// How a stretch of a watch ended.
#[derive(Debug)]
enum End {
    /// As it was asked to, or after it had told of something: it goes on at once.
    Over,
    /// The version from which it should go on is too old.
    Expired,
    /// It cannot be: why, and what would help.
    Denied(String),
    /// The API does not answer, or not as it should.
    Failed(String),
    /// Nobody listens any more.
    Unheard,
}

/// What a stretch has told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Nothing,
    Something,
}

impl Course {
    pub(super) async fn run(self) {
        let mut place = Place::Now;
        let mut schedule = Schedule::new(PAUSES.0, PAUSES.1);
        loop {
            let (end, progress) = self.stretch(&mut place).await;
            if progress == Progress::Something {
                schedule.reset();
            }
            match end {
                End::Over if progress == Progress::Something => {}
                // A watch that ends at once, time and again, is no better than one that fails.
                End::Over => sleep(schedule.next_delay()).await,
                End::Expired => {
                    debug!(kind = %self.kind, "the watch begins anew: its place is too old");
                    place = Place::Now;
                    sleep(schedule.next_delay()).await;
                }
                End::Denied(why) => {
                    self.see(Sight::Blind(why));
                    place = Place::Now;
                    sleep(DENIED_PAUSE.mul_f64(1.0 + 0.5 * self.share())).await;
                }
                End::Failed(why) => {
                    debug!(kind = %self.kind, why, "the watch is interrupted");
                    self.see(Sight::Opening);
                    sleep(schedule.next_delay()).await;
                }
                End::Unheard => return,
            }
        }
    }

    /// One request of the watch, from beginning to end.
    async fn stretch(&self, place: &mut Place) -> (End, Progress) {
        let mut progress = Progress::Nothing;
        let end = match self.go_on(place, &mut progress).await {
            Ok(end) | Err(end) => end,
        };
        (end, progress)
    }

    async fn go_on(&self, place: &mut Place, progress: &mut Progress) -> Result<End, End> {
        let resource = self.resource().await?;
        let from = match place {
            Place::After(version) => version.clone(),
            Place::Now => self.begin(&resource, place).await?,
        };
        let lasts = LASTS + whole(f64::from(LASTS / 2) * self.share());
        let watch = format!(
            "{}&watch=1&allowWatchBookmarks=true&timeoutSeconds={lasts}&resourceVersion={}",
            self.selected(&resource)?,
            path::query(&from)
        );
        let lines = self.connection.stream(&Request::watch_metadata(watch)).await;
        let mut lines = lines.map_err(|fault| self.end(&resource, &fault))?;
        self.see(Sight::Open);
        loop {
            // A watch that is cut, or silent for too long, goes on from where it was.
            let line = match lines.next().await {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(End::Over),
                Err(fault) => return Ok(End::Failed(fault.in_words())),
            };
            let said = event::read(&line, &self.kind);
            match said.map_err(|error| End::Failed(Fault::Unreadable(error).in_words()))? {
                Said::Change(change, version) => {
                    self.tell.send(change).await.map_err(|_ended| End::Unheard)?;
                    *place = Place::After(version);
                }
                Said::Bookmark(version) => *place = Place::After(version),
                Said::Expired => return Ok(End::Expired),
                Said::Failed(why) => return Ok(End::Failed(why)),
            }
            *progress = Progress::Something;
        }
    }

    async fn resource(&self) -> Result<Resource, End> {
        let Kind { group, version, kind } = &self.kind;
        let at = GroupVersion { group: group.clone(), version: version.clone() };
        match self.discovery.resource_in_any_version(&at, kind).await {
            Ok(Some(resource)) if resource.can("watch") => Ok(resource),
            Ok(Some(resource)) => Err(End::Denied(format!(
                "changes of {resource} are seen by the sweep only: its API offers no watch"
            ))),
            Ok(None) => Err(End::Denied(format!(
                "changes of {} are seen by the sweep only: it is not served here",
                self.kind
            ))),
            Err(fault) => Err(End::Failed(fault.in_words())),
        }
    }

    /// The version of now, from the shortest list there is, and word that what came before is not known.
    async fn begin(&self, resource: &Resource, place: &mut Place) -> Result<String, End> {
        let list = Request::list_metadata(format!("{}&limit=1", self.selected(resource)?));
        let page: Page = self.connection.call(list).await.map_err(|fault| self.end(resource, &fault))?;
        let version = page.metadata.resource_version;
        let missed = Change::Missed { kind: self.kind.clone() };
        self.tell.send(missed).await.map_err(|_ended| End::Unheard)?;
        *place = Place::After(version.clone());
        Ok(version)
    }

    /// The address of all objects that carry our label.
    fn selected(&self, resource: &Resource) -> Result<String, End> {
        let collection = path::collection(resource, None);
        let collection = collection.map_err(|bad| End::Denied(bad.to_string()))?;
        Ok(format!("{collection}?labelSelector={}", path::query(SERVICE_LABEL)))
    }

    fn end(&self, resource: &Resource, fault: &Fault) -> End {
        if fault.is(410) || is_too_new(fault) {
            return End::Expired;
        }
        if fault.is(403) {
            let rule = format!(
                "{{apiGroups: [\"{}\"], resources: [{}], verbs: [list, watch]}}",
                resource.at.group, resource.plural
            );
            return End::Denied(format!(
                "changes of {resource} are seen by the sweep only: the agent's ClusterRole lacks {rule}"
            ));
        }
        if fault.is(404) {
            self.discovery.forget(&resource.at.group);
        }
        End::Failed(fault.in_words())
    }

    fn see(&self, now: Sight) {
        let mut sight = self.sight.lock().unwrap_or_else(PoisonError::into_inner);
        if let Sight::Blind(why) = &now
            && *sight != now
        {
            tracing::warn!("{why}");
        }
        *sight = now;
    }

    /// A share of one that is this kind's own, so that watches which began together do not end together.
    fn share(&self) -> f64 {
        hashed_share(&["watch", &self.kind.group, &self.kind.kind])
    }
}

/// A store that was restored is behind the version that we have seen: the API answers that ours is too
/// large, as a time-out.
fn is_too_new(fault: &Fault) -> bool {
    let cause = |status: &kube::core::Status| {
        let causes = status.details.iter().flat_map(|details| &details.causes);
        let named = causes.into_iter().any(|cause| cause.reason == "ResourceVersionTooLarge");
        named || status.message.contains("Too large resource version")
    };
    fault.status().is_some_and(cause)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of some thousand seconds is a small number"
)]
fn whole(seconds: f64) -> u32 {
    seconds as u32
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    resource_version: String,
}

#[cfg(test)]
mod tests;
