//! What a hub answers: the answers of wire version 1, and what the headers of an answer say.

use std::time::Duration;

use farshore_shared::wire::{self, Enrolled};
use http::header::{CONTENT_RANGE, CONTENT_TYPE};
use http::{HeaderMap, Response, StatusCode};
use hyper::body::Incoming;

use super::body::Body;

/// An answer, and when the hub wants to hear from this site again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard<T> {
    /// The answer.
    pub answer: T,
    /// The hub's wish for the next poll. To be clamped and spread by the caller.
    pub poll_after: Option<Duration>,
}

/// The answer to `GET /v1/desired`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DesiredAnswer {
    /// Nothing newer.
    NotModified {
        /// Whether the hub sees less than this site holds.
        behind: bool,
    },
    /// Documents to be verified.
    Documents {
        /// What changed.
        desired: wire::Desired,
        /// The tag of it all.
        etag: Option<String>,
    },
}

/// The answer to `GET /v1/wake`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeAnswer {
    /// There is something newer: poll within this window. To be clamped and shared out by the caller.
    Newer {
        /// The window.
        window: Duration,
    },
    /// The time is over, and there is nothing newer.
    Nothing,
    /// This hub cannot hold requests.
    Never,
}

/// The answer to `POST /v1/enroll`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnrollAnswer {
    /// The publisher has not signed yet.
    Pending {
        /// When to ask again.
        retry_after: Option<Duration>,
    },
    /// Documents to be verified.
    Enrolled(Box<Enrolled>),
    /// The token is not good for this: asking again does not help.
    Refused {
        /// The HTTP status.
        status: u16,
        /// Why.
        problem: String,
    },
}

/// Bytes of an artifact, from `start` on.
#[must_use = "an artifact has to be read"]
pub struct Piece {
    /// Where they begin: 0 when the server ignored the wish for less.
    pub start: u64,
    /// How many the whole artifact has, where the server says so.
    pub total: Option<u64>,
    /// The bytes, not verified.
    pub body: Body,
}

pub(super) fn is_content(status: StatusCode) -> bool {
    matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT)
}

/// Where the bytes of an answer begin, and how many there are in all.
pub(super) fn extent(response: &Response<Incoming>) -> Option<(u64, Option<u64>)> {
    if response.status() == StatusCode::PARTIAL_CONTENT {
        return content_range(response.headers());
    }
    Some((0, hyper::body::Body::size_hint(response.body()).exact()))
}

pub(super) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

pub(super) fn seconds(headers: &HeaderMap, name: &str) -> Option<Duration> {
    text(headers, name)?.trim().parse().ok().map(Duration::from_secs)
}

pub(super) fn is_json(headers: &HeaderMap) -> bool {
    text(headers, CONTENT_TYPE.as_str()).is_some_and(|kind| {
        kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
    })
}

/// Start and total of `bytes 5-9/10` (RFC 9110, section 14.4).
pub(super) fn content_range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let (range, total) = text(headers, CONTENT_RANGE.as_str())?.strip_prefix("bytes ")?.split_once('/')?;
    let (start, _) = range.split_once('-')?;
    Some((start.parse().ok()?, total.parse().ok()))
}
