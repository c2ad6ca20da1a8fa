//! `GET /v1/desired`: the signed documents that changed, or 304.
//!
//! Most polls hold what is known already. [`steady`] answers those from memory, without waiting and without
//! any look-up by name; [`get`] does the rest.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use farshore_shared::clock::now;
use farshore_shared::compress;
use farshore_shared::etag::{DesiredTag, Mark};
use farshore_shared::names::Name;
use farshore_shared::wire::{BEHIND_HEADER, Desired, Group, HOLDS_HEADER, PASS_HEADER, Roster, TAG_HEADER};
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};

use super::Hub;
use crate::answer::{Answer, Body, Refusal, accepts_zstd, empty, full, keeping};
use crate::auth::{self, Denied, Shown};
use crate::directory::Heard;
use crate::load::Class;
use crate::view::{Freshness, GRACE, Offer, STALENESS, Signed};

const TAG: HeaderName = HeaderName::from_static(TAG_HEADER);
/// Answers of more bytes are compressed beside the tasks that answer polls.
const INLINE: usize = 32 << 10;

/// Answers a poll of a cluster that is known and holds everything; none when there is more to do.
pub fn steady<B>(hub: &Hub, request: &Request<B>) -> Option<Response<Body>> {
    steady_within(hub, request, STALENESS)
}

fn steady_within<B>(hub: &Hub, request: &Request<B>, age: Duration) -> Option<Response<Body>> {
    let headers = request.headers();
    let pass = auth::shown(headers)?;
    let (value, name) = held_text(headers);
    let value = value?;
    let shown = Shown { pass, tag: value.as_bytes(), most: hub.load.polls_of_a_cluster() };
    let heard = hub.gate.steady(shown, now(), age)?;
    hub.load.heard(heard);
    // Whoever polls that often is told so, by the rest of this handler.
    (heard != Heard::TooOften).then(|| tagged_as(not_modified(), name, value.clone()))
}

/// Answers a poll.
///
/// # Errors
/// `401` for a pass that is not accepted, `429` when the cluster asks too often or for too many documents at once,
/// `503` while nothing is published for the cluster or the record does not answer.
pub async fn get<B>(hub: &Hub, request: &Request<B>) -> Answer {
    let now = now();
    let caller = match hub.gate.admit(request.headers(), now).await {
        // The record does not answer: whoever holds what we know may know that.
        Err(Denied::View(failure)) => {
            return steady_within(hub, request, GRACE).ok_or_else(|| failure.into());
        }
        admitted => admitted?,
    };
    let cluster = &caller.cluster;
    hub.load.heard(hub.view.note_seen(cluster, now));
    hub.load.cluster(cluster)?;
    hub.view.known(cluster).await?.ok_or_else(|| Denied::Unknown(cluster.clone()))?;
    let (text, name) = held_text(request.headers());
    let held: Option<DesiredTag> = text.and_then(|value| value.to_str().ok()?.parse().ok());
    let mut offered = hub.view.offer(cluster);
    if needs_a_look(held.as_ref(), offered.as_ref()) && hub.view.may_look(cluster, now) {
        hub.view.look_for(cluster).await?;
        offered = hub.view.offer(cluster);
    }
    let Some(offered) = offered else {
        return Err(Refusal::later("nothing is published for this cluster yet", Duration::from_secs(5)));
    };
    match held {
        Some(held) if held == offered.tag => Ok(tagged(not_modified(), name, &offered.tag)),
        Some(held) if is_newer(&held, &offered.tag) || offered.is_below_its_floor() => {
            let mut response = tagged(not_modified(), name, &held);
            response.headers_mut().insert(BEHIND_HEADER, HeaderValue::from_static("1"));
            Ok(response)
        }
        None if offered.is_below_its_floor() => {
            let message = "the record is behind what was published for this cluster";
            Err(Refusal::later(message, Duration::from_secs(5)))
        }
        held => bring(hub, request, cluster, held.as_ref()).await,
    }
}

/// Sends documents, which lie in memory until they are sent: a few at once to one cluster, whatever it says to hold,
/// and given up when nobody reads them.
async fn bring<B>(hub: &Hub, request: &Request<B>, cluster: &Name, held: Option<&DesiredTag>) -> Answer {
    let own = hub.load.one_of_few_documents(cluster)?;
    let class = held.map_or(Class::Documents, |_| Class::Poll);
    let place = hub.load.enter(class).await?;
    let sent = documents(hub, request, cluster, held).await?;
    Ok(keeping(sent, (own, place), hub.load.stalled()))
}

impl Offer {
    /// Whether the table is older than the roster: no site accepts such a pair.
    fn is_below_its_floor(&self) -> bool {
        self.tag.group.sequence < self.floor
    }
}

/// Whether somebody has seen something that this replica's memory has not.
fn needs_a_look(held: Option<&DesiredTag>, offered: Option<&Offer>) -> bool {
    let Some(offered) = offered else { return true };
    // A higher group beside a lower roster may be of the group that the cluster has left, or newer than
    // our table: only a look tells.
    let is_surpassed = held.is_some_and(|held| {
        is_newer(held, &offered.tag)
            || (held.epoch == offered.tag.epoch && held.group.sequence > offered.tag.group.sequence)
    });
    is_surpassed || offered.is_below_its_floor()
}

/// Whether the agent holds more. A roster that is newer than its own brings its group along, whose body
/// may be older than that of the group before: the roster's floor is what counts then.
fn is_newer(held: &DesiredTag, offered: &DesiredTag) -> bool {
    let order = |tag: &DesiredTag| (tag.epoch, tag.roster.sequence, tag.group.sequence);
    order(held) > order(offered)
}

/// The documents that the caller does not hold, with their tag.
async fn documents<B>(hub: &Hub, request: &Request<B>, cluster: &Name, held: Option<&DesiredTag>) -> Answer {
    let missing = || Refusal::later("nothing is published for this cluster yet", Duration::from_secs(5));
    let roster = hub.view.roster(cluster, Freshness::Recent).await?.ok_or_else(missing)?;
    let publication = hub.view.publication(Freshness::Recent).await?.ok_or_else(missing)?;
    let id = roster.document.group;
    let reference = publication.group(&id).ok_or_else(missing)?;
    if reference.sequence < roster.document.floor {
        return Err(missing());
    }
    let group = hub.view.group(id, reference.sequence).await?;
    let tag = tag_of(&roster, &group);
    let (_, name) = held_text(request.headers());
    if let Some(held) = held.filter(|held| **held == tag || is_newer(held, &tag)) {
        return Ok(tagged(not_modified(), name, held));
    }
    let held = held.filter(|held| held.epoch == tag.epoch);
    let has_roster = held.is_some_and(|held| held.roster == tag.roster);
    let has_group = held.is_some_and(|held| held.group == tag.group);
    let desired = Desired {
        roster: (!has_roster).then(|| roster.envelope.clone()),
        group: (!has_group).then(|| group.envelope.clone()),
    };
    let response = if !accepts_zstd(request.headers()) {
        crate::answer::json(StatusCode::OK, &desired)
    } else if has_roster {
        // Thousands ask for the same at once.
        compressed(hub.view.packed(id, reference.sequence, pack(desired)).await)
    } else {
        compressed(pack(desired).await)
    };
    Ok(tagged(response, name, &tag))
}

fn tag_of(roster: &Signed<Roster>, group: &Arc<Signed<Group>>) -> DesiredTag {
    let mark = |sequence, digest: farshore_shared::digest::Digest| Mark { sequence, short: digest.short() };
    DesiredTag {
        epoch: roster.document.epoch,
        roster: mark(roster.document.sequence, roster.digest),
        group: mark(group.document.sequence, group.digest),
    }
}

async fn pack(desired: Desired) -> Bytes {
    let json = serde_json::to_vec(&desired).expect("what is sent has string keys only");
    if json.len() <= INLINE {
        return compress::pack(&json).into();
    }
    let packed = tokio::task::spawn_blocking(move || Bytes::from(compress::pack(&json))).await;
    packed.expect("compressing memory neither fails nor is cancelled")
}

fn compressed(bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(full(bytes));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("zstd"));
    response
}

/// What the caller says that it holds, and the name of the header that it reads a tag from.
pub(super) fn held_text(headers: &HeaderMap) -> (Option<&HeaderValue>, HeaderName) {
    let own = headers.get(HOLDS_HEADER);
    let is_own = own.is_some() || headers.contains_key(PASS_HEADER);
    let name = if is_own { TAG } else { ETAG };
    (own.or_else(|| headers.get(IF_NONE_MATCH)), name)
}

fn not_modified() -> Response<Body> {
    empty(StatusCode::NOT_MODIFIED)
}

fn tagged(response: Response<Body>, name: HeaderName, tag: &DesiredTag) -> Response<Body> {
    let value = HeaderValue::try_from(tag.to_string()).expect("a tag is printable ASCII");
    tagged_as(response, name, value)
}

fn tagged_as(mut response: Response<Body>, name: HeaderName, value: HeaderValue) -> Response<Body> {
    response.headers_mut().insert(name, value);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(epoch: u64, roster: u64, group: u64) -> DesiredTag {
        let mark = |sequence| Mark { sequence, short: "00000000".into() };
        DesiredTag { epoch, roster: mark(roster), group: mark(group) }
    }

    #[test]
    fn an_agent_that_holds_more_in_either_document_is_never_sent_the_older_one() {
        assert!(is_newer(&tag(1, 5, 9), &tag(1, 5, 8)));
        assert!(is_newer(&tag(1, 6, 7), &tag(1, 5, 8)));
        assert!(is_newer(&tag(2, 1, 1), &tag(1, 5, 8)));
        assert!(!is_newer(&tag(1, 5, 8), &tag(1, 5, 8)));
        assert!(!is_newer(&tag(1, 9, 9), &tag(2, 1, 1)));
    }

    #[test]
    fn a_cluster_that_moves_to_a_group_with_an_older_body_is_sent_it() {
        assert!(!is_newer(&tag(1, 5, 100), &tag(1, 6, 90)));
    }
}
