//! `POST /v1/approvals` and `POST /v1/removals`: an operator's word, stored for the publisher.
//!
//! The request is signed, and so is the word in it. The publisher believes only the word.

use bytes::Bytes;
use farshore_shared::dsse::Envelope;
use farshore_shared::wire::SMALL_LIMIT;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use tracing::debug;

use super::answers::Stored;
use super::query::bad;
use super::{Hub, admit};
use crate::answer::{Answer, Refusal, json};
use crate::index::News;
use crate::objects::{Condition, Key};
use crate::record::{self, Approval, Removal};
use crate::view::Freshness;

/// Stores an approval.
///
/// # Errors
/// `401`, `400` for what is not an approval that an operator signed, `503`.
pub async fn approve(hub: &Hub, request: Request<Incoming>) -> Answer {
    let asked = admit(hub, request).await?;
    let envelope = envelope(&asked.body)?;
    let trust = hub.view.trust().await?;
    let approval: Approval = envelope
        .open(&trust.operator(), SMALL_LIMIT)
        .map_err(|error| bad(format!("approval is refused: {error}")))?;
    let key = record::approval(&approval.held.change).filter(|_| approval.held.is_named_rightly());
    let key = key.ok_or_else(|| bad("approval does not have the id of the change that it describes"))?;
    store(hub, &key, &envelope).await
}

/// Stores that a cluster is to be removed.
///
/// # Errors
/// `401`, `400` for what is not a removal that an operator signed, `404` for a cluster that is not enrolled
/// with that key, `503`.
pub async fn remove(hub: &Hub, request: Request<Incoming>) -> Answer {
    let asked = admit(hub, request).await?;
    let envelope = envelope(&asked.body)?;
    let trust = hub.view.trust().await?;
    let removal: Removal = envelope
        .open(&trust.operator(), SMALL_LIMIT)
        .map_err(|error| bad(format!("removal is refused: {error}")))?;
    let known = hub.view.registration(&removal.cluster, Freshness::Now).await?;
    if known.is_none_or(|known| known.document.key.id() != removal.key) {
        let message = format!("cluster is not enrolled with that key ({}, {})", removal.cluster, removal.key);
        return Err(Refusal::of(StatusCode::NOT_FOUND, message));
    }
    store(hub, &record::removal(&removal.cluster), &envelope).await
}

fn envelope(body: &[u8]) -> Result<Envelope, Refusal> {
    serde_json::from_slice(body).map_err(|error| bad(format!("body is not an envelope: {error}")))
}

/// Stores a word as it was signed, and tells the publisher.
async fn store(hub: &Hub, key: &Key, envelope: &Envelope) -> Answer {
    // The same word twice is one word; what else may be there does not count.
    let bytes = Bytes::from(envelope.to_bytes());
    let _ = hub.view.objects().put(key, bytes, Condition::Always).await?;
    hub.wake.notify_one();
    if let Err(error) = hub.statuses.index().tell(&News::Requests).await {
        debug!(%error, "publishers of other processes see it when they look");
    }
    Ok(json(StatusCode::OK, &Stored { state: "stored for the publisher".into() }))
}
