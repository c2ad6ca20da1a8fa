//! The requests of wire version 1, as a site sends them.

mod exchange;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use farshore_shared::compress;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::Envelope;
use farshore_shared::wire::{
    BEHIND_HEADER, DESIRED_LIMIT, EnrollRequest, Enrolled, HOLDS_HEADER, POLL_AFTER_HEADER, REDIRECT_HEADER,
    ROOT_LIMIT, SMALL_LIMIT, TAG_HEADER, WAKE_SECONDS, Woken,
};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, LOCATION, RANGE, RETRY_AFTER};
use http::request::Builder;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use rustls::ClientConfig;
use tracing::debug;

use super::answer::{
    DesiredAnswer, EnrollAnswer, Heard, Piece, WakeAnswer, extent, is_content, is_json, seconds, text,
};
use super::body::Body;
use super::caller::{Caller, Passes};
use super::connection::{Connection, Counter, Traffic};
use super::elsewhere::{self, Elsewhere};
use super::{HubError, HubUrl, Trust};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const ZSTD: HeaderValue = HeaderValue::from_static("zstd");
/// The most bytes of a problem's text.
const PROBLEM_LIMIT: usize = 16 << 10;
const NO_RANGE: &str = "its Content-Range cannot be read";

/// Calls one hub.
pub struct HubClient {
    hub: HubUrl,
    tls: Option<Arc<ClientConfig>>,
    passes: Option<Passes>,
    patience: Duration,
    connection: Option<Connection>,
    counter: Arc<Counter>,
    opens: Opens,
}

/// Whether a client opens connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opens {
    /// Where it has none that is open.
    Yes,
    /// It lives as long as the connection that it was given.
    No,
}

impl HubClient {
    /// Prepares to call a hub; nothing is sent yet.
    ///
    /// Without a caller only trust roots and enrolment can be asked for.
    ///
    /// # Errors
    /// [`HubError::Setup`] when this machine has no certificate authorities and needs them.
    pub fn new(
        hub: HubUrl,
        trust: &Trust,
        caller: Option<Caller>,
        patience: Duration,
    ) -> Result<Self, HubError> {
        let tls = if hub.secure { Some(trust.config()?) } else { None };
        let (passes, counter) = (caller.map(Passes::new), Arc::default());
        let opens = Opens::Yes;
        Ok(Self { hub, tls, passes, patience, connection: None, counter, opens })
    }

    /// A further client of the same hub. It begins with this one's connection where that carries several
    /// requests at once (HTTP/2), and opens its own where it does not.
    #[must_use]
    pub fn another(&mut self) -> Self {
        // One pass for both: HPACK (RFC 7541) then sends it once.
        if let Some(passes) = &mut self.passes {
            passes.current();
        }
        let open = self.connection.as_ref().filter(|connection| connection.is_open());
        Self {
            hub: self.hub.clone(),
            tls: self.tls.clone(),
            passes: self.passes.clone(),
            patience: self.patience,
            connection: open.and_then(Connection::beside),
            counter: self.counter.clone(),
            opens: self.opens,
        }
    }

    /// A client that calls beside this one over the connection that is open now, and opens none of its own; none
    /// where no connection is open, or it carries one request at a time (HTTP/1.1).
    #[must_use]
    pub fn beside(&mut self) -> Option<Self> {
        let other = self.another();
        other.connection.is_some().then(|| Self { opens: Opens::No, ..other })
    }

    /// Which hub it calls.
    #[must_use]
    pub fn hub(&self) -> &HubUrl {
        &self.hub
    }

    /// Makes the next call with a new pass, as after half of the last one's life.
    pub fn renew_pass(&mut self) {
        if let Some(passes) = &mut self.passes {
            passes.forget();
        }
    }

    /// Bytes on the socket since the last time this was asked.
    pub fn take_traffic(&mut self) -> Traffic {
        self.counter.take()
    }

    /// Root `version` as the hub has it, not verified; none where there is no such root.
    ///
    /// # Errors
    /// [`HubError`].
    pub async fn trust(&mut self, version: u64) -> Result<Option<Vec<u8>>, HubError> {
        let request = get(format!("/v1/trust/{version}"));
        let response = self.send(request, Bytes::new(), Auth::None).await?;
        if response.status() == StatusCode::NOT_FOUND && is_json(response.headers()) {
            // Only the hub itself can say that there is no such root.
            return Ok(None);
        }
        let response = self.successful(response).await?;
        self.json_bytes(response, "a trust root", ROOT_LIMIT * 2).await.map(Some)
    }

    /// Asks to be enrolled. The same request may be repeated any number of times.
    ///
    /// # Errors
    /// [`HubError`] when there is no clear answer.
    pub async fn enroll(&mut self, ask: &EnrollRequest) -> Result<EnrollAnswer, HubError> {
        let body = serde_json::to_vec(ask).expect("a request has string keys only");
        let request = post("/v1/enroll").header(CONTENT_TYPE, JSON);
        let response = self.send(request, body.into(), Auth::None).await?;
        if response.status() == StatusCode::ACCEPTED {
            return Ok(EnrollAnswer::Pending {
                retry_after: seconds(response.headers(), RETRY_AFTER.as_str()),
            });
        }
        match self.successful(response).await {
            Ok(response) => {
                let enrolled: Enrolled = self.json(response, "an enrolment", SMALL_LIMIT * 4).await?;
                Ok(EnrollAnswer::Enrolled(Box::new(enrolled)))
            }
            Err(HubError::Refused { status, problem }) if status < 500 && status != 408 => {
                Ok(EnrollAnswer::Refused { status, problem })
            }
            Err(error) => Err(error),
        }
    }

    /// Asks for what this site shall run; with the tag of what it holds, only for what changed.
    ///
    /// # Errors
    /// [`HubError`].
    pub async fn desired(&mut self, etag: Option<&str>) -> Result<Heard<DesiredAnswer>, HubError> {
        let mut request = get("/v1/desired".to_owned()).header(ACCEPT_ENCODING, ZSTD);
        if let Some(etag) = etag {
            request = request.header(HOLDS_HEADER, etag);
        }
        let response = self.send(request, Bytes::new(), Auth::Pass).await?;
        let poll_after = seconds(response.headers(), POLL_AFTER_HEADER);
        if response.status() == StatusCode::NOT_MODIFIED && etag.is_some() {
            let behind = response.headers().contains_key(BEHIND_HEADER);
            return Ok(Heard { answer: DesiredAnswer::NotModified { behind }, poll_after });
        }
        let response = self.successful(response).await?;
        let etag = text(response.headers(), TAG_HEADER).map(ToOwned::to_owned);
        let desired = self.json(response, "the desired state", DESIRED_LIMIT).await?;
        Ok(Heard { answer: DesiredAnswer::Documents { desired, etag }, poll_after })
    }

    /// Waits until there is something newer than what this tag names, as long as the hub holds the request.
    ///
    /// # Errors
    /// [`HubError`].
    pub async fn wake(mut self, etag: &str) -> Result<WakeAnswer, HubError> {
        let patience = self.patience;
        self.patience += Duration::from_secs(WAKE_SECONDS);
        let request = get("/v1/wake".to_owned()).header(HOLDS_HEADER, etag);
        let response = self.send(request, Bytes::new(), Auth::Pass).await?;
        self.patience = patience;
        match response.status() {
            StatusCode::NO_CONTENT => Ok(WakeAnswer::Nothing),
            // A hub that does not know the route, as an older one, cannot hold requests either.
            StatusCode::NOT_IMPLEMENTED | StatusCode::NOT_FOUND => Ok(WakeAnswer::Never),
            _ => {
                let response = self.successful(response).await?;
                let woken: Woken = self.json(response, "news", PROBLEM_LIMIT).await?;
                Ok(WakeAnswer::Newer { window: Duration::from_millis(woken.spread_millis) })
            }
        }
    }

    /// Asks for an artifact's bytes from `offset` on.
    ///
    /// # Errors
    /// [`HubError`]; a server that has nothing from there on is [`HubError::Refused`] with 416.
    pub async fn artifact(&mut self, digest: Digest, offset: u64) -> Result<Piece, HubError> {
        // Once more where the first address was refused or gone: it may have expired.
        for _ in 0..2 {
            let response = self.ask_artifact(digest, offset, Follows::Redirects).await?;
            if response.status() != StatusCode::TEMPORARY_REDIRECT {
                return self.piece(response).await;
            }
            let address = text(response.headers(), LOCATION.as_str()).unwrap_or_default().to_owned();
            match elsewhere::ask(&address, offset, &self.counter, self.patience).await {
                Ok(found) if is_content(found.response.status()) => {
                    let Elsewhere { place, response, driver } = found;
                    let (start, total) = extent(&response).ok_or_else(|| self.stranger(NO_RANGE))?;
                    let body = Body::new(place, response.into_body(), self.patience, driver);
                    return Ok(Piece { start, total, body });
                }
                Ok(refused) => {
                    debug!(status = refused.response.status().as_u16(), "artifact is not given elsewhere")
                }
                Err(error) => debug!(%error, "artifact cannot be fetched elsewhere"),
            }
        }
        let response = self.ask_artifact(digest, offset, Follows::Nothing).await?;
        self.piece(response).await
    }

    async fn ask_artifact(
        &mut self,
        digest: Digest,
        offset: u64,
        follows: Follows,
    ) -> Result<Response<Incoming>, HubError> {
        let mut request = get(format!("/v1/artifacts/{digest}"));
        if offset > 0 {
            request = request.header(RANGE, format!("bytes={offset}-"));
        }
        if follows == Follows::Redirects {
            request = request.header(REDIRECT_HEADER, "follow");
        }
        self.send(request, Bytes::new(), Auth::Pass).await
    }

    async fn piece(&mut self, response: Response<Incoming>) -> Result<Piece, HubError> {
        let response = self.successful(response).await?;
        if text(response.headers(), CONTENT_TYPE.as_str()).is_some_and(|kind| kind.starts_with("text/")) {
            return Err(self.stranger("it answers with a text where an artifact was asked for"));
        }
        let (start, total) = extent(&response).ok_or_else(|| self.stranger(NO_RANGE))?;
        Ok(Piece { start, total, body: self.body(response) })
    }

    /// Reports. The same report may be repeated any number of times.
    ///
    /// # Errors
    /// [`HubError`].
    pub async fn status(&mut self, report: &Envelope) -> Result<(), HubError> {
        let body = compress::pack(&report.to_bytes());
        let request = post("/v1/status").header(CONTENT_TYPE, JSON).header(CONTENT_ENCODING, ZSTD);
        let response = self.send(request, body.into(), Auth::Pass).await?;
        match response.status() {
            StatusCode::NO_CONTENT => Ok(()),
            status if status.is_success() => Err(self.stranger("it does not confirm a report as a hub does")),
            _ => self.successful(response).await.map(|_| ()),
        }
    }

    /// Sends a request of somebody else than a site, who brings headers of their own, and returns the JSON
    /// of the answer.
    ///
    /// # Errors
    /// [`HubError`].
    pub async fn ask(&mut self, request: Builder, body: Bytes, limit: usize) -> Result<Vec<u8>, HubError> {
        let response = self.send(request, body, Auth::None).await?;
        let response = self.successful(response).await?;
        self.json_bytes(response, "an answer", limit).await
    }
}

/// Whether an artifact may be fetched from where the hub says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Follows {
    Redirects,
    Nothing,
}

/// Whether a request needs a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Auth {
    None,
    Pass,
}

fn get(path: String) -> Builder {
    Request::builder().method(Method::GET).uri(path)
}

fn post(path: &str) -> Builder {
    Request::builder().method(Method::POST).uri(path)
}
