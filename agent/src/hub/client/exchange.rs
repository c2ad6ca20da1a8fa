//! How a request goes out and what comes back is judged, whatever it asks for.

use bytes::Bytes;
use farshore_shared::compress;
use farshore_shared::wire::{PASS_HEADER, Problem};
use http::header::{CONTENT_ENCODING, RETRY_AFTER};
use http::request::Builder;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;

use super::{Auth, HubClient, Opens, PROBLEM_LIMIT};
use crate::hub::HubError;
use crate::hub::answer::{is_json, seconds, text};
use crate::hub::body::Body;
use crate::hub::caller::Dated;
use crate::hub::connection::Connection;

impl HubClient {
    /// Sends, once more on a new connection when the kept one had died, and once more with a new
    /// pass when the hub's clock shows that the old one was dated wrongly. Every request of wire
    /// version 1 may be repeated.
    pub(super) async fn send(
        &mut self,
        request: Builder,
        body: Bytes,
        auth: Auth,
    ) -> Result<Response<Incoming>, HubError> {
        let request =
            request.body(Full::new(body)).map_err(|source| HubError::Setup { source: source.into() })?;
        let response = self.send_once(&request, auth).await?;
        let dated = match &mut self.passes {
            Some(passes) => passes.learn(response.headers()),
            None => Dated::Well,
        };
        if response.status() == StatusCode::UNAUTHORIZED && dated == Dated::Wrongly {
            return self.send_once(&request, auth).await;
        }
        Ok(response)
    }

    async fn send_once(
        &mut self,
        request: &Request<Full<Bytes>>,
        auth: Auth,
    ) -> Result<Response<Incoming>, HubError> {
        let mut request = request.clone();
        if let (Auth::Pass, Some(passes)) = (auth, &mut self.passes) {
            let pass = passes.current().parse().expect("a pass is letters, digits, dots and dashes");
            request.headers_mut().insert(PASS_HEADER, pass);
        }
        if let Some(kept) = self.connection.as_mut().filter(|connection| connection.is_open()) {
            let sent = kept.send(&self.hub, request.clone(), self.patience).await;
            if sent.is_ok() || self.opens == Opens::No {
                return sent;
            }
        }
        if self.opens == Opens::No {
            return Err(HubError::unreachable(&self.hub, "the connection has ended"));
        }
        let opening = Connection::open(&self.hub, self.tls.as_ref(), &self.counter, self.patience);
        let connection = self.connection.insert(opening.await?);
        let sent = connection.send(&self.hub, request, self.patience).await;
        if sent.is_err() {
            self.connection = None;
        }
        sent
    }

    pub(super) fn body(&self, response: Response<Incoming>) -> Body {
        let driver = self.connection.as_ref().expect("the answer came over it").driver();
        Body::new(self.hub.clone(), response.into_body(), self.patience, driver)
    }

    pub(super) fn stranger(&self, why: &str) -> HubError {
        HubError::NotOurHub { hub: self.hub.to_string(), why: why.to_owned() }
    }

    /// Turns everything that is not a success into an error that says what it is.
    pub(super) async fn successful(
        &mut self,
        response: Response<Incoming>,
    ) -> Result<Response<Incoming>, HubError> {
        let status = response.status();
        if matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            return Ok(response);
        }
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            let retry_after = seconds(response.headers(), RETRY_AFTER.as_str());
            return Err(HubError::Busy { status: status.as_u16(), retry_after });
        }
        if !(status.is_client_error() || status.is_server_error()) {
            return Err(self.stranger(&format!("it answers with status {}", status.as_u16())));
        }
        if !is_json(response.headers()) {
            // Proxies answer for a hub that is away.
            return Err(if status.is_server_error() {
                HubError::unreachable(
                    &self.hub,
                    format!("something before it answers with status {}", status.as_u16()),
                )
            } else {
                self.stranger(&format!("it answers with status {} and no JSON", status.as_u16()))
            });
        }
        let problem: Problem = self.json(response, "a problem", PROBLEM_LIMIT).await?;
        Err(HubError::Refused { status: status.as_u16(), problem: problem.error })
    }

    pub(super) async fn json<T: DeserializeOwned>(
        &mut self,
        response: Response<Incoming>,
        what: &'static str,
        limit: usize,
    ) -> Result<T, HubError> {
        let bytes = self.json_bytes(response, what, limit).await?;
        serde_json::from_slice(&bytes).map_err(|source| HubError::Unreadable { what, source: source.into() })
    }

    pub(super) async fn json_bytes(
        &mut self,
        response: Response<Incoming>,
        what: &'static str,
        limit: usize,
    ) -> Result<Vec<u8>, HubError> {
        if !is_json(response.headers()) {
            return Err(self.stranger("it answers with something else than JSON"));
        }
        let encoding = text(response.headers(), CONTENT_ENCODING.as_str()).map(str::to_ascii_lowercase);
        let read = self.body(response).collect(what, limit).await;
        if read.is_err() {
            // What is left of the body would stand before the next answer.
            self.connection = None;
        }
        match encoding.as_deref() {
            None | Some("identity") => read,
            Some("zstd") => compress::unpack(&read?, limit).map_err(|e| match e {
                compress::Error::TooLarge { limit } => HubError::TooLarge { what, limit },
                compress::Error::Broken(_) => HubError::Unreadable { what, source: e.into() },
            }),
            Some(_) => Err(self.stranger("it compresses in a way that was not asked for")),
        }
    }
}
