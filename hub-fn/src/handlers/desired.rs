//! `GET /v1/desired`: the signed documents that changed, or 304.

use farshore_shared::clock::now;
use farshore_shared::etag::{DesiredTag, Mark};
use farshore_shared::wire::{BEHIND_HEADER, Desired, Group, HOLDS_HEADER, PASS_HEADER, Roster, TAG_HEADER};
use http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use std::sync::Arc;
use std::time::Duration;

use super::Hub;
use crate::answer::{Answer, Refusal, empty, json_for};
use crate::view::{Freshness, Signed, ViewError};

/// What this replica would send.
struct Offer {
    tag: DesiredTag,
    roster: Arc<Signed<Roster>>,
    group: Arc<Signed<Group>>,
}

/// Answers a poll.
///
/// # Errors
/// `401` for a pass that is not accepted, `503` while nothing is published for the cluster or the
/// record does not answer.
pub async fn get<B>(hub: &Hub, request: &Request<B>) -> Answer {
    let now = now();
    let caller = hub.gate.admit(request.headers(), now).await?;
    hub.load.cluster(&caller.cluster)?;
    hub.seen.note(&caller.cluster, now);
    let (held, name) = held(request.headers());
    let mut offered = offer(hub, &caller.cluster, Freshness::Recent).await?;
    if needs_a_look(held.as_ref(), offered.as_ref()) {
        offered = offer(hub, &caller.cluster, Freshness::Now).await?;
    }
    let Some(offered) = offered else {
        return Err(Refusal::later("nothing is published for this cluster yet", Duration::from_secs(5)));
    };
    match held {
        Some(held) if held == offered.tag => not_modified(name, &offered.tag),
        Some(held) if is_newer(&held, &offered.tag) || offered.is_below_its_floor() => {
            let mut response = not_modified(name, &held)?;
            response.headers_mut().insert(BEHIND_HEADER, HeaderValue::from_static("1"));
            Ok(response)
        }
        None if offered.is_below_its_floor() => {
            let message = "the record is behind what was published for this cluster";
            Err(Refusal::later(message, Duration::from_secs(5)))
        }
        held => {
            let has_roster = held.as_ref().is_some_and(|held| held.roster == offered.tag.roster);
            let has_group = held.as_ref().is_some_and(|held| held.group == offered.tag.group);
            let desired = Desired {
                roster: (!has_roster).then(|| offered.roster.envelope.clone()),
                group: (!has_group).then(|| offered.group.envelope.clone()),
            };
            tagged(json_for(request, &desired), name, &offered.tag)
        }
    }
}

impl Offer {
    /// Whether the table is older than the roster: no site accepts such a pair.
    fn is_below_its_floor(&self) -> bool {
        self.tag.group.sequence < self.roster.document.floor
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

async fn offer(
    hub: &Hub,
    cluster: &farshore_shared::names::Name,
    freshness: Freshness,
) -> Result<Option<Offer>, Arc<ViewError>> {
    let Some(roster) = hub.view.roster(cluster, freshness).await? else { return Ok(None) };
    let Some(publication) = hub.view.publication(freshness).await? else { return Ok(None) };
    let Some(reference) = publication.group(&roster.document.group) else { return Ok(None) };
    let group = hub.view.group(roster.document.group, reference.sequence).await?;
    let mark = |sequence, digest: farshore_shared::digest::Digest| Mark { sequence, short: digest.short() };
    let tag = DesiredTag {
        epoch: group.document.epoch,
        roster: mark(roster.document.sequence, roster.digest),
        group: mark(group.document.sequence, group.digest),
    };
    Ok(Some(Offer { tag, roster, group }))
}

/// What the caller holds, and the name of the header that it reads a tag from.
fn held(headers: &HeaderMap) -> (Option<DesiredTag>, HeaderName) {
    let own = headers.get(HOLDS_HEADER);
    let is_own = own.is_some() || headers.contains_key(PASS_HEADER);
    let name = if is_own { HeaderName::from_static(TAG_HEADER) } else { ETAG };
    let value = own.or_else(|| headers.get(IF_NONE_MATCH));
    (value.and_then(|value| value.to_str().ok()?.parse().ok()), name)
}

fn not_modified(name: HeaderName, tag: &DesiredTag) -> Answer {
    tagged(empty(StatusCode::NOT_MODIFIED), name, tag)
}

fn tagged(mut response: http::Response<crate::answer::Body>, name: HeaderName, tag: &DesiredTag) -> Answer {
    let value = HeaderValue::try_from(tag.to_string()).expect("a tag is printable ASCII");
    response.headers_mut().insert(name, value);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    Ok(response)
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
