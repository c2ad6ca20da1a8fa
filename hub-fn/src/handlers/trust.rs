//! `GET /v1/trust/{n}`: root document n, for anybody, kept for ever.

use farshore_shared::wire::ROOT_LIMIT;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};

use super::Hub;
use crate::answer::{Answer, Refusal, full};
use crate::record;

/// Sends a root document, byte for byte as it was signed: sites pin its digest.
///
/// # Errors
/// `400`, `404`.
pub async fn get(hub: &Hub, version: &str) -> Answer {
    let bad = |_| Refusal::of(StatusCode::BAD_REQUEST, "a root document is named by its number");
    let version: u64 = version.parse().map_err(bad)?;
    let stored = hub.view.objects().get(&record::root(version), ROOT_LIMIT as u64).await?;
    let stored =
        stored.ok_or_else(|| Refusal::of(StatusCode::NOT_FOUND, format!("there is no root {version}")))?;
    let mut response = Response::new(full(stored.bytes));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    Ok(response)
}
