//! What is asked of the status page, and answered. Pure.

use bytes::Bytes;
use farshore_shared::wire::UnixSeconds;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;

use super::{html, metrics};
use crate::local::view::View;

/// Answers a request. The view is made only where it is shown.
pub fn answer(
    method: &Method,
    path: &str,
    look: impl Fn() -> View,
    is_ready: bool,
    now: UnixSeconds,
) -> Response<Full<Bytes>> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "this page is only read\n");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match path {
        "/" => of("text/html; charset=utf-8", html::page(&look(), now)),
        "/status.json" => match serde_json::to_vec_pretty(&look()) {
            Ok(json) => of("application/json", json),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        },
        "/metrics" => of("text/plain; version=0.0.4; charset=utf-8", metrics::text(&look())),
        "/healthz" => text(StatusCode::OK, "ok\n"),
        "/readyz" if is_ready => text(StatusCode::OK, "ok\n"),
        "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, "the target has not answered yet\n"),
        _ => text(StatusCode::NOT_FOUND, "there are /, /status.json, /metrics, /healthz and /readyz\n"),
    }
}

/// Whether a host that was asked for is this machine: a name of somebody else that leads here would let a page in a
/// browser read this one.
#[must_use]
pub fn is_near(host: Option<&str>) -> bool {
    let Some(host) = host else { return true };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

/// The answer to whoever asked for somebody else.
#[must_use]
pub fn elsewhere() -> Response<Full<Bytes>> {
    text(StatusCode::MISDIRECTED_REQUEST, "ask for localhost or for an address\n")
}

fn text(status: StatusCode, said: &str) -> Response<Full<Bytes>> {
    let mut response = of("text/plain; charset=utf-8", said.to_owned());
    *response.status_mut() = status;
    response
}

fn of(kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    let policy =
        HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'");
    headers.insert("content-security-policy", policy);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::keeper::Known;
    use crate::local::keeper::tests::snapshot;
    use crate::local::view;
    use std::sync::Arc;

    fn status(method: Method, path: &str, is_ready: bool) -> StatusCode {
        let folder = tempfile::tempdir().expect("a folder");
        let known = Known { snapshot: Some(Arc::new(snapshot())), ..Known::default() };
        answer(&method, path, || view::of_known(folder.path(), &known), is_ready, 1_800_000_000).status()
    }

    #[test]
    fn what_is_read_is_answered_and_nothing_else() {
        for path in ["/", "/status.json", "/metrics", "/healthz", "/readyz"] {
            assert_eq!(status(Method::GET, path, true), StatusCode::OK, "{path}");
            assert_eq!(status(Method::HEAD, path, true), StatusCode::OK, "{path}");
            assert_eq!(status(Method::POST, path, true), StatusCode::METHOD_NOT_ALLOWED, "{path}");
        }
        assert_eq!(status(Method::GET, "/readyz", false), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(status(Method::GET, "/healthz", false), StatusCode::OK);
        assert_eq!(status(Method::GET, "/../status.json", true), StatusCode::NOT_FOUND);
    }

    #[test]
    fn only_this_machine_s_own_names_lead_here() {
        for near in
            [None, Some("localhost"), Some("LOCALHOST:9090"), Some("127.0.0.1:9090"), Some("[::1]:9090")]
        {
            assert!(is_near(near), "{near:?}");
        }
        for far in [Some("evil.example"), Some("localhost.evil.example:9090"), Some("")] {
            assert!(!is_near(far), "{far:?}");
        }
    }
}
