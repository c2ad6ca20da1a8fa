//! `GET /v1/wake`: held until something newer is published for the caller, or until the time is over.
//!
//! Whoever is answered asks `GET /v1/desired`: nothing is said here that would have to be believed.

use std::time::Duration;

use farshore_shared::clock::now;
use farshore_shared::etag::DesiredTag;
use farshore_shared::names::Name;
use farshore_shared::wire::{HOLDS_HEADER, WAKE_SECONDS, Woken};
use http::{HeaderMap, Request, StatusCode};
use tokio::time::{Instant, sleep_until};

use super::Hub;
use super::desired::held_text;
use crate::answer::{Answer, Refusal, empty, json};
use crate::auth::Denied;
use crate::view::View;
use crate::waiting::{Call, Holds, NoPlace};

/// When an agent that found no place shall look for one again.
const FULL_AFTER: Duration = Duration::from_secs(60);
/// When an agent for which nothing is published yet shall wait again.
const NOTHING_AFTER: Duration = Duration::from_secs(30);

/// What this replica would send a cluster.
struct Offered {
    tag: DesiredTag,
    holds: Holds,
}

/// Holds a request.
///
/// # Errors
/// `400` without a tag, `401`, `501` from a door that cannot hold requests, `503` while too many wait or the
/// record does not answer.
pub async fn get<B>(hub: &Hub, request: Request<B>) -> Answer {
    let caller = hub.gate.admit(request.headers(), now()).await?;
    let cluster = caller.cluster;
    hub.load.cluster(&cluster)?;
    let Some(held) = held(request.headers()) else {
        let message = format!("say what you hold: send `{HOLDS_HEADER}: <tag>`");
        return Err(Refusal::of(StatusCode::BAD_REQUEST, message));
    };
    // Headers are most of what a waiting request would keep in memory.
    drop(request);
    wait(hub, &cluster, &held, Instant::now() + Duration::from_secs(WAKE_SECONDS)).await
}

async fn wait(hub: &Hub, cluster: &Name, held: &DesiredTag, until: Instant) -> Answer {
    loop {
        let mut roster = std::pin::pin!(hub.waiting.roster(cluster));
        roster.as_mut().enable();
        let Some(offered) = offered(&hub.view, cluster).await? else {
            return Err(Refusal::later("nothing is published for this cluster yet", NOTHING_AFTER));
        };
        if is_newer(&offered.tag, held) {
            return Ok(woken(hub.waiting.window()));
        }
        // An agent that is ahead of this replica waits for what is newer than its own.
        let sequence = offered.holds.sequence.max(held.group.sequence);
        let mut waiter = hub.waiting.enter(Holds { sequence, ..offered.holds }).map_err(no_place)?;
        if self::offered(&hub.view, cluster).await?.is_some_and(|offered| is_newer(&offered.tag, held)) {
            return Ok(woken(hub.waiting.window()));
        }
        // Cancel-safe: nothing is taken from any of them.
        tokio::select! {
            call = waiter.called() => return match call {
                Call::Closing(after) => Err(Refusal::later("this replica ends", after)),
                Call::Woken(window) => Ok(woken(window)),
                Call::Wait => Ok(empty(StatusCode::NO_CONTENT)),
            },
            () = roster => {}
            () = sleep_until(until) => return Ok(empty(StatusCode::NO_CONTENT)),
        }
    }
}

fn woken(window: Duration) -> http::Response<crate::answer::Body> {
    let spread_millis = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
    json(StatusCode::OK, &Woken { spread_millis })
}

fn no_place(why: NoPlace) -> Refusal {
    match why {
        NoPlace::Never => {
            Refusal::of(StatusCode::NOT_IMPLEMENTED, "this door cannot hold requests: go on polling")
        }
        NoPlace::Full(limit) => {
            let message = format!("wake is full ({limit} agents wait): go on polling");
            Refusal::later(message, FULL_AFTER)
        }
        NoPlace::Closing => Refusal::later("this replica ends", Duration::from_secs(2)),
    }
}

fn held(headers: &HeaderMap) -> Option<DesiredTag> {
    let (value, _header) = held_text(headers);
    value?.to_str().ok()?.parse().ok()
}

/// Whether what is offered is to be fetched: it is something else, and it is not older.
fn is_newer(offered: &DesiredTag, held: &DesiredTag) -> bool {
    let order = |tag: &DesiredTag| (tag.epoch, tag.roster.sequence, tag.group.sequence);
    offered != held && order(offered) >= order(held)
}

/// What this replica would send a cluster.
async fn offered(view: &View, cluster: &Name) -> Result<Option<Offered>, Refusal> {
    view.known(cluster).await?.ok_or_else(|| Denied::Unknown(cluster.clone()))?;
    let Some(offer) = view.offer(cluster) else { return Ok(None) };
    let holds = Holds { group: offer.group, sequence: offer.tag.group.sequence };
    Ok(Some(Offered { tag: offer.tag, holds }))
}

#[cfg(test)]
mod tests {
    use farshore_shared::etag::Mark;

    use super::*;

    fn tag(epoch: u64, roster: u64, group: u64, short: &str) -> DesiredTag {
        let mark = |sequence| Mark { sequence, short: short.into() };
        DesiredTag { epoch, roster: mark(roster), group: mark(group) }
    }

    #[test]
    fn an_agent_is_woken_for_what_is_newer_and_never_for_what_is_older() {
        let held = tag(1, 5, 9, "00000000");
        for newer in [tag(1, 5, 10, "0"), tag(1, 6, 7, "0"), tag(2, 1, 1, "0"), tag(1, 5, 9, "11111111")] {
            assert!(is_newer(&newer, &held), "{newer}");
        }
        for older in [held.clone(), tag(1, 5, 8, "0"), tag(1, 4, 20, "0"), tag(0, 9, 9, "0")] {
            assert!(!is_newer(&older, &held), "{older}");
        }
    }
}
