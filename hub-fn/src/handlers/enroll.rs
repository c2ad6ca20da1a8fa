//! `POST /v1/enroll`: a request is recorded for the publisher, who alone can check it.

use std::time::Duration;

use bytes::Bytes;
use farshore_shared::token;
use farshore_shared::wire::{EnrollRequest, Enrolled, Problem, SMALL_LIMIT};
use http::header::RETRY_AFTER;
use http::{HeaderValue, Request, StatusCode};

use super::Hub;
use crate::answer::{Answer, Refusal, RequestBody, STRANGER_TIME, body_within, json};
use crate::load::Class;
use crate::objects::Condition;
use crate::publish::enrol::request_digest;
use crate::record;
use crate::view::Freshness;

/// How many requests may wait for the publisher.
const WAITING_LIMIT: usize = 1000;
/// When a site asks again, in seconds.
const ASK_AGAIN: u64 = 1;

/// Takes a request to enrol, or answers one that has been decided.
///
/// # Errors
/// `400`, `403` with the publisher's reason, `503` while too many wait.
pub async fn post(hub: &Hub, request: Request<impl RequestBody>) -> Answer {
    let bytes = hub.load.enrolment(body_within(STRANGER_TIME, request, SMALL_LIMIT)).await?;
    let bad = |message: String| Refusal::of(StatusCode::BAD_REQUEST, message);
    let asked: EnrollRequest = serde_json::from_slice(&bytes)
        .map_err(|error| bad(format!("request to enrol cannot be read: {error}")))?;
    let claims = token::read_claims(&asked.claims).map_err(|error| bad(error.to_string()))?;
    hub.load.join_token(&claims.id)?;
    let _place = hub.load.enter(Class::Enrol).await?;
    if let Some(enrolled) = enrolled(hub, &asked).await? {
        return Ok(json(StatusCode::OK, &enrolled));
    }
    let bytes = Bytes::from(serde_json::to_vec(&asked).expect("a request has string keys only"));
    let id = request_digest(&bytes);
    let objects = hub.view.objects();
    if let Some(refused) = objects.get(&record::refused(id), SMALL_LIMIT as u64).await? {
        let problem: Option<Problem> = serde_json::from_slice(&refused.bytes).ok();
        let message =
            problem.map_or_else(|| "request to enrol is refused".to_owned(), |problem| problem.error);
        return Err(Refusal::of(StatusCode::FORBIDDEN, message));
    }
    if objects.list(record::PENDING, None, WAITING_LIMIT).await?.len() >= WAITING_LIMIT {
        let message = format!("too many requests to enrol wait (limit {WAITING_LIMIT})");
        return Err(Refusal::later(message, Duration::from_secs(30)));
    }
    // A conflict is the same request, waiting already.
    let _ = objects.put(&record::pending(id), bytes, Condition::Absent).await?;
    hub.wake.notify_one();
    let mut response =
        json(StatusCode::ACCEPTED, &serde_json::json!({ "state": "waiting for the publisher" }));
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(ASK_AGAIN));
    Ok(response)
}

/// Registration and roster, once both are signed for this very key.
async fn enrolled(hub: &Hub, asked: &EnrollRequest) -> Result<Option<Enrolled>, Refusal> {
    let registration = hub.view.registration(&asked.cluster, Freshness::Now).await?;
    let Some(registration) = registration.filter(|known| known.document.key == asked.key) else {
        return Ok(None);
    };
    let roster = hub.view.roster(&asked.cluster, Freshness::Now).await?;
    let Some(roster) = roster.filter(|roster| roster.document.key == asked.key.id()) else { return Ok(None) };
    Ok(Some(Enrolled { registration: registration.envelope.clone(), roster: roster.envelope.clone() }))
}
