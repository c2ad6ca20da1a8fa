//! `GET /healthz`, `/readyz` and `/metrics`.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};

use super::Hub;
use crate::answer::{Answer, full, json};
use crate::view::Freshness;

/// How long a scrape waits for the record.
const PATIENCE: Duration = Duration::from_secs(1);

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
pub async fn metrics(hub: &Hub) -> Answer {
    hub.metrics.set_view(&hub.view.counts());
    hub.metrics.set_waiting(hub.waiting.count(), hub.reports.queued());
    // A replica that publishes nothing knows what is published from its view; without a record it does not.
    let known = tokio::time::timeout(PATIENCE, hub.view.publication(Freshness::Recent)).await;
    if let Ok(Ok(Some(publication))) = known {
        hub.metrics.sequence.set(i64::try_from(publication.head.sequence).unwrap_or(i64::MAX));
    }
    let mut response = Response::new(full(hub.metrics.text()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4"));
    Ok(response)
}
