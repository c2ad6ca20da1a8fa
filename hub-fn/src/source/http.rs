//! Git over HTTP: the library's client, with every answer counted and every failure understood.

use std::any::Any;
use std::error::Error;
use std::io::{self, BufRead, Read};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gix::protocol::transport::Protocol;
use gix::protocol::transport::client::AuthenticationRequired;
use gix::protocol::transport::client::blocking_io::http::reqwest::{self as client, Remote};
use gix::protocol::transport::client::blocking_io::http::{
    GetResponse, Http, Options, PostBodyDataKind, PostResponse, Transport as HttpTransport,
};
use reqwest::StatusCode;

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
    type Headers = Metered<Piecewise<<Remote as Http>::Headers>>;
    type ResponseBody = Metered<Piecewise<<Remote as Http>::ResponseBody>>;
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
    fn metered<R>(&self, reader: R) -> Metered<Piecewise<R>> {
        Metered::new(Piecewise(reader), self.meter.clone(), judge)
    }
}

/// A reader that gives what has arrived. The library's own returns only when the whole buffer is full: a
/// server that sends a byte now and then would be waited for without a look at the time.
pub(super) struct Piecewise<R>(R);

impl<R: BufRead> Read for Piecewise<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let taken = self.0.fill_buf()?.read(buffer)?;
        self.0.consume(taken);
        Ok(taken)
    }
}

impl<R: BufRead> BufRead for Piecewise<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.0.fill_buf()
    }

    fn consume(&mut self, taken: usize) {
        self.0.consume(taken);
    }
}

/// Tells the meter what went wrong: the HTTP library's error is known only here.
fn judge(meter: &Meter, error: io::Error) -> io::Error {
    if error.get_ref().is_some_and(|inner| inner.is::<AuthenticationRequired>()) {
        meter.stop(Stop::NotFound("401 Unauthorized".to_owned()));
        return error;
    }
    let (kind, seen) = (error.kind(), seen(&error));
    meter.stop(match seen.status {
        Some(status) if status.is_client_error() && !is_busy(status) => Stop::NotFound(status.to_string()),
        Some(status) => Stop::Unreachable(format!("it answers {status}").into()),
        None if seen.timed_out => Stop::Stalled,
        None => Stop::Unreachable(seen.innermost.into()),
    });
    io::Error::new(kind, "the server did not answer")
}

fn is_busy(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::REQUEST_TIMEOUT
}

/// What an error's causes have to say.
#[derive(Default)]
struct Seen {
    status: Option<StatusCode>,
    timed_out: bool,
    /// The last two causes: the ones before them only wrap them, and repeat the URL.
    innermost: String,
}

fn seen(error: &io::Error) -> Seen {
    let first: &(dyn Error + 'static) = match error.get_ref() {
        Some(inner) => match inner.downcast_ref::<gix::Error>() {
            Some(known) => known.iter_errors().find(|cause| cause.is::<reqwest::Error>()).unwrap_or(known),
            None => inner,
        },
        None => error,
    };
    let mut seen = Seen { timed_out: error.kind() == io::ErrorKind::TimedOut, ..Seen::default() };
    let mut texts: Vec<String> = Vec::new();
    for cause in std::iter::successors(Some(first), |&cause| cause.source()) {
        if let Some(known) = cause.downcast_ref::<reqwest::Error>() {
            seen.status = seen.status.or(known.status());
            seen.timed_out |= known.is_timeout();
        }
        texts.push(cause.to_string());
    }
    texts.dedup();
    seen.innermost = texts.split_off(texts.len().saturating_sub(2)).join(": ");
    seen
}
