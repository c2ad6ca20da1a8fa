//! `GET /healthz`, `/readyz` and `/metrics`.

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};

use super::Hub;
use crate::answer::{Answer, full, json};

/// The process runs.
///
/// # Errors
/// Never.
pub fn healthz() -> Answer {
    Ok(json(StatusCode::OK, &serde_json::json!({ "status": "ok" })))
}

/// The record answers and has a trust root.
///
/// # Errors
/// `503` otherwise.
pub async fn readyz(hub: &Hub) -> Answer {
    hub.view.trust().await?;
    Ok(json(StatusCode::OK, &serde_json::json!({ "status": "ready" })))
}

/// Prometheus text, version 0.0.4.
///
/// # Errors
/// Never.
pub fn metrics(hub: &Hub) -> Answer {
    hub.metrics.set_view(&hub.view.counts());
    let mut response = Response::new(full(hub.metrics.text()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4"));
    Ok(response)
}
