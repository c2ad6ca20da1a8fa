//! `POST /v1/hooks/git/{source}`: a Git server says that something was pushed.
//!
//! The body is checked against its signature and is not read otherwise. Word goes to all publishers at once
//! through the index, and into the record for those that hear no news.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use farshore_shared::clock::now;
use farshore_shared::digest::Digest;
use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use http::header::CONTENT_LENGTH;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use tracing::{info, warn};

use super::Hub;
use crate::answer::{Answer, Refusal, STRANGER_TIME, json};
use crate::hooks::pace::Pass;
use crate::hooks::proof::{Checker, Proof};
use crate::hooks::{BODY_LIMIT, SecretError};
use crate::index::News;
use crate::load::Class;
use crate::objects::{Condition, ObjectsError};
use crate::record;
use crate::trace;

/// Takes a webhook.
///
/// # Errors
/// `400` for a name that is none, `401`, `404` for a source without a secret, `408`, `413`, `503` while word
/// cannot be passed on.
pub async fn post<B: Body<Data = Bytes>>(hub: &Hub, source: &str, request: Request<B>) -> Answer {
    let bad = |error| Refusal::of(StatusCode::BAD_REQUEST, format!("source: {error}"));
    let source: Name = source.parse().map_err(bad)?;
    let digest = hub.load.webhook(checked(hub, &source, request)).await?;
    // Only now: what a stranger sends takes nothing of what all Git servers may send together.
    let _place = hub.load.enter(Class::Hook).await?;
    if hub.hooks.is_new(&source, digest).await {
        trace::hook(source.as_str());
        if let Err(failure) = pass_on(hub, source.clone()).await {
            // The Git server sends it again.
            hub.hooks.forget(&source, digest).await;
            return Err(failure.into());
        }
    }
    Ok(json(StatusCode::ACCEPTED, &serde_json::json!({ "state": "the source is looked at" })))
}

/// The digest of the body of a webhook that a Git server has sent. A token that is wrong is refused before the body
/// is read.
async fn checked<B: Body<Data = Bytes>>(
    hub: &Hub,
    source: &Name,
    request: Request<B>,
) -> Result<Digest, Refusal> {
    let denied = |why: String| Refusal::of(StatusCode::UNAUTHORIZED, why);
    let wrong = || denied("signature of the webhook is wrong".to_owned());
    let secrets = hub.hooks.secrets(source).await.map_err(refusal)?;
    let proof = Proof::of(request.headers()).map_err(|none| denied(none.to_string()))?;
    let checker = Checker::new(&secrets, proof).ok_or_else(wrong)?;
    arrive(request, checker).await?.ok_or_else(wrong)
}

fn refusal(error: SecretError) -> Refusal {
    match error {
        SecretError::None => Refusal::of(StatusCode::NOT_FOUND, error.to_string()),
        SecretError::Io { .. } | SecretError::Bad { .. } => Refusal::unavailable(Arc::new(error)),
    }
}

/// Feeds the body to the checker and keeps nothing of it; gives its digest if its proof is right.
async fn arrive<B: Body<Data = Bytes>>(
    request: Request<B>,
    mut checker: Checker,
) -> Result<Option<Digest>, Refusal> {
    let too_large =
        || Refusal::of(StatusCode::PAYLOAD_TOO_LARGE, format!("body exceeds its limit ({BODY_LIMIT} bytes)"));
    let length = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: u64| length > BODY_LIMIT as u64) {
        return Err(too_large());
    }
    let mut body = std::pin::pin!(request.into_body());
    let reading = async {
        let mut arrived = 0;
        while let Some(frame) = body.as_mut().frame().await {
            let frame = frame.map_err(|_| Refusal::of(StatusCode::BAD_REQUEST, "body was cut"))?;
            let Some(piece) = frame.data_ref() else { continue };
            arrived += piece.len();
            if arrived > BODY_LIMIT {
                return Err(too_large());
            }
            checker.update(piece);
        }
        Ok(checker.finish())
    };
    let seconds = STRANGER_TIME.as_secs();
    tokio::time::timeout(STRANGER_TIME, reading).await.map_err(|_| {
        Refusal::of(StatusCode::REQUEST_TIMEOUT, format!("body takes too long (limit {seconds} s)"))
    })?
}

/// Passes word on, now or when the pause is over.
async fn pass_on(hub: &Hub, source: Name) -> Result<(), ObjectsError> {
    match hub.hooks.pass(&source, Instant::now()) {
        Pass::Now => tell(hub, &source).await,
        Pass::WithTheNext => Ok(()),
        Pass::After(pause) => {
            let hub = hub.clone();
            tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                hub.hooks.passed(&source, Instant::now());
                if let Err(error) = tell(&hub, &source).await {
                    warn!(%source, error = %chain(&error), "word of a push is not in the record");
                }
            });
            Ok(())
        }
    }
}

async fn tell(hub: &Hub, source: &Name) -> Result<(), ObjectsError> {
    info!(%source, "a Git server tells of a push");
    let named = (source.as_str() != record::FLEET).then(|| source.clone());
    let told = hub.index.tell(&News::Pushed { source: named }).await;
    let word = serde_json::to_vec(&record::Pushed { at: now() }).expect("a number makes JSON");
    let objects = hub.view.objects();
    let put = objects.put(&record::hook(source.as_str()), Bytes::from(word), Condition::Always).await;
    match (told, put) {
        (_, Ok(_)) => Ok(()),
        (Ok(()), Err(error)) => {
            warn!(%source, error = %chain(&error), "word of a push is told, and is not in the record");
            Ok(())
        }
        (Err(_away), Err(error)) => Err(error),
    }
}
