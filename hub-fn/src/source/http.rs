//! Git over HTTP: the library's client, with every answer counted and every failure understood.

use std::any::Any;
use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gix::protocol::transport::Protocol;
use gix::protocol::transport::client::AuthenticationRequired;
use gix::protocol::transport::client::blocking_io::http::reqwest::{self as client, Remote};
use gix::protocol::transport::client::blocking_io::http::{
    GetResponse, Http, Options, PostBodyDataKind, PostResponse, Transport as HttpTransport,
};

use super::meter::{Meter, Metered, Stop};
use super::{GitUrl, SourceError};

/// The transport that talks to a server.
pub(super) type Transport = HttpTransport<MeteredHttp>;

/// The library's HTTP client, metered.
pub(super) struct MeteredHttp {
    inner: Remote,
    meter: Arc<Meter>,
}

/// Prepares to talk to this server; nothing is sent yet.
///
/// # Errors
/// [`SourceError::BadAnswer`] if the library reads the URL otherwise than we do.
pub(super) fn start(url: &GitUrl, meter: &Arc<Meter>) -> Result<Transport, SourceError> {
    let parsed = gix::url::parse(url.as_str())
        .map_err(|source| SourceError::BadAnswer { url: url.clone(), source: source.into() })?;
    let http = MeteredHttp { inner: Remote::default(), meter: meter.clone() };
    Ok(Transport::new_http(http, parsed, Protocol::V2, false))
}

/// How long the client waits: for a connection, for an answer, and between its bytes.
pub(super) fn options(idle: Duration) -> Options {
    let backend = client::Options {
        configure_client: Some(Box::new(move |builder| Ok(builder.timeout(idle).connect_timeout(idle)))),
        configure_request: None,
    };
    Options { backend: Some(Arc::new(Mutex::new(backend))), ..Options::default() }
}

impl Http for MeteredHttp {
    type Headers = Metered<<Remote as Http>::Headers>;
    type ResponseBody = Metered<<Remote as Http>::ResponseBody>;
    type PostBody = <Remote as Http>::PostBody;

    fn get(
        &mut self,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> gix::Result<GetResponse<Self::Headers, Self::ResponseBody>> {
        let answer = self.inner.get(url, base_url, headers)?;
        Ok(GetResponse { headers: self.metered(answer.headers), body: self.metered(answer.body) })
    }

    fn post(
        &mut self,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        body: PostBodyDataKind,
    ) -> gix::Result<PostResponse<Self::Headers, Self::ResponseBody, Self::PostBody>> {
        let answer = self.inner.post(url, base_url, headers, body)?;
        Ok(PostResponse {
            post_body: answer.post_body,
            headers: self.metered(answer.headers),
            body: self.metered(answer.body),
        })
    }

    fn configure(&mut self, config: &dyn Any) -> gix::Result {
        self.inner.configure(config)
    }

    fn redirected_base_url(&self) -> Option<String> {
        self.inner.redirected_base_url()
    }
}

impl MeteredHttp {
    fn metered<R>(&self, reader: R) -> Metered<R> {
        Metered::new(reader, self.meter.clone(), judge)
    }
}

/// Tells the meter what went wrong, and passes the error on without its body, which it may share.
fn judge(meter: &Meter, error: io::Error) -> io::Error {
    let kind = error.kind();
    if error.get_ref().is_some_and(|inner| inner.is::<AuthenticationRequired>()) {
        meter.stop(Stop::NotFound("401 Unauthorized".to_owned()));
        return error;
    }
    let seen = error.get_ref().and_then(|inner| find_client_error(inner));
    let Some((status, timed_out)) = seen else {
        meter.stop(Stop::Unreachable(Box::new(error)));
        return io::Error::new(kind, "the connection broke off");
    };
    match status {
        Some(status) if status.is_client_error() && status.as_u16() != 429 => {
            meter.stop(Stop::NotFound(status.to_string()));
        }
        Some(_) | None if timed_out => meter.stop(Stop::Stalled),
        Some(_) | None => meter.stop(Stop::Unreachable(Box::new(error))),
    }
    io::Error::new(kind, "the server could not be asked")
}

fn find_client_error(error: &(dyn Error + 'static)) -> Option<(Option<reqwest::StatusCode>, bool)> {
    if let Some(known) = error.downcast_ref::<gix::Error>()
        && let Some(found) = known.iter_errors().find_map(client_error)
    {
        return Some(found);
    }
    std::iter::successors(Some(error), |&error| error.source()).find_map(client_error)
}

fn client_error(error: &(dyn Error + 'static)) -> Option<(Option<reqwest::StatusCode>, bool)> {
    error.downcast_ref::<reqwest::Error>().map(|error| (error.status(), error.is_timeout()))
}
