//! One match on method and path. What is not listed here does not exist.
//!
//! | request | handler |
//! |---|---|
//! | `GET /v1/desired` | [`handlers::desired`] |
//! | `GET /v1/artifacts/{digest}` | [`handlers::artifact`] |
//! | `POST /v1/status` | [`handlers::status`] |
//! | `POST /v1/enroll` | [`handlers::enroll`] |
//! | `GET /v1/trust/{n}` | [`handlers::trust`] |
//! | `GET /healthz`, `/readyz`, `/metrics` | [`handlers::health`] |

use std::time::{Duration, Instant, SystemTime};

use http::{Method, Request, Response, StatusCode};
use tracing::{debug, info, warn};

use crate::answer::{self, Answer, Body, Refusal, RequestBody};
use crate::handlers::{self, Hub};
use crate::request_id::{REQUEST_ID, RequestId};
use crate::trace;

/// A route's name: what metrics and logs are labelled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// `GET /v1/desired`
    Desired,
    /// `GET /v1/artifacts/{digest}`
    Artifact,
    /// `POST /v1/status`
    Status,
    /// `POST /v1/enroll`
    Enroll,
    /// `GET /v1/trust/{n}`
    Trust,
    /// `GET /healthz`
    Healthz,
    /// `GET /readyz`
    Readyz,
    /// `GET /metrics`
    Metrics,
    /// Anything else.
    None,
}

impl Route {
    /// The route of a request, and what its path names.
    #[must_use]
    pub fn of<'a>(method: &Method, path: &'a str) -> (Self, &'a str) {
        match (method, path) {
            (&Method::GET, "/v1/desired") => (Self::Desired, ""),
            (&Method::POST, "/v1/status") => (Self::Status, ""),
            (&Method::POST, "/v1/enroll") => (Self::Enroll, ""),
            (&Method::GET, "/healthz") => (Self::Healthz, ""),
            (&Method::GET, "/readyz") => (Self::Readyz, ""),
            (&Method::GET, "/metrics") => (Self::Metrics, ""),
            (&Method::GET, path) => {
                let artifact = path.strip_prefix("/v1/artifacts/").map(|rest| (Self::Artifact, rest));
                let trust = || path.strip_prefix("/v1/trust/").map(|rest| (Self::Trust, rest));
                artifact.or_else(trust).unwrap_or((Self::None, ""))
            }
            _ => (Self::None, ""),
        }
    }

    /// The label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Desired => "desired",
            Self::Artifact => "artifact",
            Self::Status => "status",
            Self::Enroll => "enroll",
            Self::Trust => "trust",
            Self::Healthz => "healthz",
            Self::Readyz => "readyz",
            Self::Metrics => "metrics",
            Self::None => "none",
        }
    }
}

/// Which routes a door has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// Everything.
    Public,
    /// Health and metrics only: a publisher has no public route.
    Health,
}

/// Answers one request, wherever it came from: this is the hub as a function. It never fails: a failure
/// is an answer.
///
/// A program of its own that embeds a hub needs nothing else than this and a [`Hub`]; see
/// `hub-fn/examples/embedded.rs`.
pub async fn answer<B: RequestBody>(hub: &Hub, door: Door, request: Request<B>) -> Response<Body> {
    let started = Instant::now();
    let mut given = RequestId::given(request.headers());
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let (route, rest) = Route::of(&method, &path);
    let response = match dispatch(hub, door, route, rest, request).await {
        Ok(response) => response,
        Err(refusal) => refused(route, refusal, &mut given),
    };
    let took = started.elapsed();
    if route == Route::Desired && response.status() == StatusCode::OK {
        trace::polled(response.headers(), SystemTime::now() - took);
    }
    hub.metrics.count(route, response.status(), took);
    answer::dated(told(route, took, given, response))
}

/// A refusal as an answer, which carries the request's id where the log says more.
fn refused(route: Route, refusal: Refusal, id: &mut Option<RequestId>) -> Response<Body> {
    let id = id.get_or_insert_with(RequestId::new);
    if refusal.is_our_fault() {
        warn!(id = id.as_str(), route = route.label(), error = %refusal.chain(), "request failed");
    }
    refusal.asked_as(id).into_response()
}

/// Logs an answer. A poll that brings nothing new is nearly all there is: it has no line unless somebody
/// asked for it, and no id, whose bytes a site would pay for.
fn told(route: Route, took: Duration, id: Option<RequestId>, mut response: Response<Body>) -> Response<Body> {
    // JSON has no numbers of 128 bits: those become text.
    let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let (route, status) = (route.label(), response.status());
    if status == StatusCode::NOT_MODIFIED {
        debug!(target: "farshore::requests", route, status = status.as_u16(), us, "answered");
        return response;
    }
    let id = id.unwrap_or_else(RequestId::new);
    info!(target: "farshore::requests", id = id.as_str(), route, status = status.as_u16(), us, "answered");
    response.headers_mut().insert(REQUEST_ID, id.into());
    response
}

async fn dispatch<B: RequestBody>(
    hub: &Hub,
    door: Door,
    route: Route,
    rest: &str,
    request: Request<B>,
) -> Answer {
    match (door, route) {
        (_, Route::Healthz) => handlers::health::healthz(),
        (_, Route::Readyz) => handlers::health::readyz(hub).await,
        (_, Route::Metrics) => handlers::health::metrics(hub).await,
        (Door::Public, Route::Desired) => handlers::desired::get(hub, &request).await,
        (Door::Public, Route::Artifact) => handlers::artifact::get(hub, rest, &request).await,
        (Door::Public, Route::Status) => handlers::status::post(hub, request).await,
        (Door::Public, Route::Enroll) => handlers::enroll::post(hub, request).await,
        (Door::Public, Route::Trust) => handlers::trust::get(hub, rest).await,
        (Door::Health, _) | (Door::Public, Route::None) => Err(Refusal::not_found()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_found_by_method_and_path() {
        assert_eq!(Route::of(&Method::GET, "/v1/desired"), (Route::Desired, ""));
        assert_eq!(Route::of(&Method::GET, "/v1/artifacts/abc"), (Route::Artifact, "abc"));
        assert_eq!(Route::of(&Method::GET, "/v1/trust/1"), (Route::Trust, "1"));
        for (method, path) in [
            (Method::POST, "/v1/desired"),
            (Method::GET, "/v1/status"),
            (Method::GET, "/"),
            (Method::PUT, "/v1/trust/1"),
        ] {
            assert_eq!(Route::of(&method, path), (Route::None, ""), "{method} {path}");
        }
    }
}
