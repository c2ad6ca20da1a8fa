//! `POST /v1/status`: what a site says of itself, in the record before the 204.

use std::time::SystemTime;

use bytes::Bytes;
use farshore_shared::clock::now;
use farshore_shared::dsse::{Envelope, Signers};
use farshore_shared::wire::{STATUS_LIMIT, Status};
use http::{Request, StatusCode};

use super::Hub;
use crate::answer::{Answer, Refusal, RequestBody, body, empty};
use crate::objects::{Stored, update};
use crate::record;
use crate::trace;

/// Takes a status.
///
/// # Errors
/// `401`, `400` for what is not a status signed by the caller, `413`, `503` while the record does not
/// take it.
pub async fn post(hub: &Hub, request: Request<impl RequestBody>) -> Answer {
    let (now, began) = (now(), SystemTime::now());
    let caller = hub.gate.admit(request.headers(), now).await?;
    hub.seen.note(&caller.cluster, now);
    let bytes = body(request, 2 * STATUS_LIMIT).await?;
    let bad = |message: String| Refusal::of(StatusCode::BAD_REQUEST, message);
    let envelope: Envelope =
        serde_json::from_slice(&bytes).map_err(|error| bad(format!("status is not an envelope: {error}")))?;
    let signers = Signers::one(caller.key());
    let status: Status =
        envelope.open(&signers, STATUS_LIMIT).map_err(|error| bad(format!("status: {error}")))?;
    if status.cluster != caller.cluster {
        return Err(bad(format!("status is of another cluster ({})", status.cluster)));
    }
    let bytes = Bytes::from(envelope.to_bytes());
    let key = record::status(&caller.cluster);
    update(&**hub.view.objects(), &key, 2 * STATUS_LIMIT as u64, |stored| {
        let is_old = stored.is_some_and(|stored| is_numbered_at_least(stored, &signers, &status));
        (!is_old).then(|| bytes.clone())
    })
    .await?;
    trace::reported(&caller.cluster, status.holds.as_ref(), began);
    Ok(empty(StatusCode::NO_CONTENT))
}

/// The same number twice is one report, and a report that was overtaken changes nothing.
fn is_numbered_at_least(stored: &Stored, signers: &Signers<'_>, status: &Status) -> bool {
    let envelope: Option<Envelope> = serde_json::from_slice(&stored.bytes).ok();
    let before: Option<Status> = envelope.and_then(|envelope| envelope.open(signers, STATUS_LIMIT).ok());
    before.is_some_and(|before| before.state_id == status.state_id && before.sequence >= status.sequence)
}
