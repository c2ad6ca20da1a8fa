//! One match on method and path. What is not listed here does not exist.
//!
//! | request | handler |
//! |---|---|
//! | `GET /v1/desired` | [`handlers::desired`] |
//! | `GET /v1/wake` | [`handlers::wake`] |
//! | `GET /v1/artifacts/{digest}` | [`handlers::artifact`] |
//! | `POST /v1/status` | [`handlers::status`] |
//! | `POST /v1/enroll` | [`handlers::enroll`] |
//! | `GET /v1/trust/{n}` | [`handlers::trust`] |
//! | `GET /v1/clusters`, `/v1/clusters/{name}` | [`handlers::operators::clusters`] |
//! | `GET /v1/services`, `/v1/sources` | [`handlers::operators::intents`] |
//! | `POST /v1/approvals`, `/v1/removals` | [`handlers::operators::words`] |
//! | `POST /v1/hooks/git/{source}` | [`handlers::hooks`] |
//! | `GET /healthz`, `/readyz`, `/metrics` | [`handlers::health`] |

use std::time::{Duration, Instant, SystemTime};

use farshore_shared::wire::POLL_AFTER_HEADER;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode};
use tracing::{debug, info, warn};

use crate::answer::{self, Answer, Body, Refusal, RequestBody};
use crate::handlers::{self, Hub};
use crate::load::{self, Class};
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
    /// `GET /v1/clusters`
    Clusters,
    /// `GET /v1/clusters/{name}`
    Cluster,
    /// `GET /v1/services`
    Services,
    /// `GET /v1/sources`
    Sources,
    /// `POST /v1/approvals`
    Approvals,
    /// `POST /v1/removals`
    Removals,
    /// `GET /v1/wake`
    Wake,
    /// `POST /v1/hooks/git/{source}`
    Hook,
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
            (&Method::GET, "/v1/wake") => (Self::Wake, ""),
            (&Method::POST, "/v1/status") => (Self::Status, ""),
            (&Method::POST, "/v1/enroll") => (Self::Enroll, ""),
            (&Method::GET, "/v1/clusters") => (Self::Clusters, ""),
            (&Method::GET, "/v1/services") => (Self::Services, ""),
            (&Method::GET, "/v1/sources") => (Self::Sources, ""),
            (&Method::POST, "/v1/approvals") => (Self::Approvals, ""),
            (&Method::POST, "/v1/removals") => (Self::Removals, ""),
            (&Method::GET, "/healthz") => (Self::Healthz, ""),
            (&Method::GET, "/readyz") => (Self::Readyz, ""),
            (&Method::GET, "/metrics") => (Self::Metrics, ""),
            (&Method::GET, path) => {
                let artifact = path.strip_prefix("/v1/artifacts/").map(|rest| (Self::Artifact, rest));
                let trust = || path.strip_prefix("/v1/trust/").map(|rest| (Self::Trust, rest));
                let cluster = || path.strip_prefix("/v1/clusters/").map(|rest| (Self::Cluster, rest));
                artifact.or_else(trust).or_else(cluster).unwrap_or((Self::None, ""))
            }
            (&Method::POST, path) => {
                let hook = path.strip_prefix("/v1/hooks/git/").map(|rest| (Self::Hook, rest));
                hook.unwrap_or((Self::None, ""))
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
            Self::Clusters => "clusters",
            Self::Cluster => "cluster",
            Self::Services => "services",
            Self::Sources => "sources",
            Self::Approvals => "approvals",
            Self::Removals => "removals",
            Self::Wake => "wake",
            Self::Hook => "hook",
            Self::Healthz => "healthz",
            Self::Readyz => "readyz",
            Self::Metrics => "metrics",
            Self::None => "none",
        }
    }
}

/// What a request of a route costs, and with what it competes.
fn class(route: Route, headers: &HeaderMap) -> Class {
    match route {
        Route::Desired => load::class_of_poll(headers),
        Route::Artifact => Class::Artifact,
        Route::Status => Class::Report,
        Route::Enroll => Class::Enrol,
        Route::Wake => Class::Wake,
        Route::Hook => Class::Hook,
        Route::Clusters | Route::Cluster | Route::Services | Route::Sources => Class::Other,
        Route::Approvals | Route::Removals => Class::Other,
        Route::Trust | Route::Healthz | Route::Readyz | Route::Metrics | Route::None => Class::Other,
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

/// Answers what most requests are, a poll with nothing new, from memory and at once; none for any other,
/// which is for [`answer()`]. It has no date yet: a server writes one that it formats once a second.
#[must_use]
pub fn steady<B>(hub: &Hub, door: Door, request: &Request<B>) -> Option<Response<Body>> {
    let is_poll = request.uri().path() == "/v1/desired" && request.method() == Method::GET;
    if !is_poll || door != Door::Public {
        return None;
    }
    let mut response = handlers::desired::steady(hub, request)?;
    // A poll that is turned away is turned away by the rest of the routes, with a reason.
    hub.load.admit(Class::Poll).ok()?;
    hub.metrics.count_steady();
    if let Some(seconds) = hub.load.poll_after() {
        response.headers_mut().insert(HeaderName::from_static(POLL_AFTER_HEADER), seconds);
    }
    debug!(target: "farshore::requests", route = "desired", status = 304, "answered from memory");
    Some(response)
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
    if door == Door::Health {
        return handle(hub, door, route, rest, request).await;
    }
    hub.load.admit(class(route, request.headers()))?;
    let mut response = handle(hub, door, route, rest, request).await?;
    if route == Route::Desired
        && let Some(seconds) = hub.load.poll_after()
    {
        response.headers_mut().insert(HeaderName::from_static(POLL_AFTER_HEADER), seconds);
    }
    Ok(response)
}

async fn handle<B: RequestBody>(
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
        (Door::Public, Route::Clusters) => handlers::operators::clusters::list(hub, request).await,
        (Door::Public, Route::Cluster) => handlers::operators::clusters::get(hub, rest, request).await,
        (Door::Public, Route::Services) => handlers::operators::intents::services(hub, request).await,
        (Door::Public, Route::Sources) => handlers::operators::intents::sources(hub, request).await,
        (Door::Public, Route::Approvals) => handlers::operators::words::approve(hub, request).await,
        (Door::Public, Route::Removals) => handlers::operators::words::remove(hub, request).await,
        (Door::Public, Route::Wake) => handlers::wake::get(hub, request).await,
        (Door::Public, Route::Hook) => handlers::hooks::post(hub, rest, request).await,
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
        assert_eq!(Route::of(&Method::GET, "/v1/clusters"), (Route::Clusters, ""));
        assert_eq!(Route::of(&Method::GET, "/v1/clusters/a"), (Route::Cluster, "a"));
        assert_eq!(Route::of(&Method::GET, "/v1/wake"), (Route::Wake, ""));
        assert_eq!(Route::of(&Method::POST, "/v1/hooks/git/app"), (Route::Hook, "app"));
        for (method, path) in [
            (Method::POST, "/v1/desired"),
            (Method::GET, "/v1/approvals"),
            (Method::GET, "/v1/status"),
            (Method::GET, "/v1/hooks/git/app"),
            (Method::POST, "/v1/wake"),
            (Method::GET, "/"),
            (Method::PUT, "/v1/trust/1"),
        ] {
            assert_eq!(Route::of(&method, path), (Route::None, ""), "{method} {path}");
        }
    }
}
