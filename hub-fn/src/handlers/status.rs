//! `POST /v1/status`: what a site says of itself, in the record before the 204.

use std::sync::Arc;
use std::time::SystemTime;

use farshore_shared::clock::{now, now_millis};
use farshore_shared::dsse::{Envelope, SIGNATURES_LIMIT, Signers};
use farshore_shared::wire::{STATUS_LIMIT, Status};
use http::{Request, StatusCode};

use super::Hub;
use crate::answer::{Answer, Refusal, RequestBody, body, empty};
use crate::load::Class;
use crate::record::Report;
use crate::status::{COME_BACK, NotTaken};
use crate::trace;

/// The most characters of a signature: 64 bytes in base64.
const SIGNATURE_LIMIT: usize = 88;

/// Takes a status.
///
/// # Errors
/// `401`, `400` for what is not a status signed by the caller, `413`, `429` when the cluster sends too many at
/// once, `503` while the record does not take it or too many wait.
pub async fn post(hub: &Hub, request: Request<impl RequestBody>) -> Answer {
    let (now, began) = (now(), SystemTime::now());
    let caller = hub.gate.admit(request.headers(), now).await?;
    hub.load.cluster(&caller.cluster)?;
    hub.seen.note(&caller.cluster, now);
    let _own = hub.load.one_of_few(&caller.cluster)?;
    let _place = hub.load.enter(Class::Report).await?;
    let bytes = body(request, 2 * STATUS_LIMIT).await?;
    let bad = |message: String| Refusal::of(StatusCode::BAD_REQUEST, message);
    let mut envelope: Envelope =
        serde_json::from_slice(&bytes).map_err(|error| bad(format!("status is not an envelope: {error}")))?;
    let signers = Signers::one(caller.key());
    let status: Status =
        envelope.open(&signers, STATUS_LIMIT).map_err(|error| bad(format!("status: {error}")))?;
    if status.cluster != caller.cluster {
        return Err(bad(format!("status is of another cluster ({})", status.cluster)));
    }
    // What else stands there was not verified, and is not kept.
    let key = caller.key().id();
    envelope.signatures.retain(|signature| signature.keyid == key && signature.sig.len() <= SIGNATURE_LIMIT);
    envelope.signatures.truncate(SIGNATURES_LIMIT);
    let report = Report { cluster: caller.cluster.clone(), received: now_millis(), envelope };
    hub.reports.append(report).await?;
    trace::reported(&caller.cluster, status.holds.as_ref(), began);
    Ok(empty(StatusCode::NO_CONTENT))
}

impl From<NotTaken> for Refusal {
    fn from(not_taken: NotTaken) -> Self {
        match not_taken {
            NotTaken::TooMany | NotTaken::Stopping => Self::later(not_taken.to_string(), COME_BACK),
            NotTaken::Objects(_) => Self::unavailable(Arc::new(not_taken)),
        }
    }
}
