//! What a handler answers: a response, or a refusal that says what is wrong.

mod kept;
mod pieces;

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use farshore_shared::wire::Problem;
use farshore_shared::{compress, exit};
use futures::StreamExt as _;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Limited, StreamBody};
use hyper::body::{Frame, SizeHint};
use serde::Serialize;

use crate::auth::Denied;
use crate::objects::{Content, ObjectsError};
use crate::request_id::RequestId;
use crate::view::ViewError;
use kept::Kept;
use pieces::Pieces;

/// The body of a response: bytes, mostly none, or a stream.
#[derive(Debug)]
pub enum Body {
    /// These, unless they were taken already.
    Full(Option<Bytes>),
    /// Read while it is sent.
    Stream(UnsyncBoxBody<Bytes, ObjectsError>),
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = ObjectsError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ObjectsError>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(
                bytes.take().filter(|bytes| !bytes.is_empty()).map(|bytes| Ok(Frame::data(bytes))),
            ),
            Self::Stream(stream) => Pin::new(stream).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Stream(stream) => stream.size_hint(),
        }
    }
}

/// What a handler returns.
pub type Answer = Result<Response<Body>, Refusal>;

/// The body of a request, from whichever door: a connection, an event of a function, bytes in memory.
pub trait RequestBody:
    hyper::body::Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static
{
}

impl<B> RequestBody for B where
    B: hyper::body::Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static
{
}

/// How long a request's body may take to arrive: that of a site, which has shown its pass, and that of anybody.
const BODY_TIME: Duration = Duration::from_secs(30);
pub(crate) const STRANGER_TIME: Duration = Duration::from_secs(10);
/// A body in memory of no more bytes is left to its connection, which may buffer as much of any other.
const SMALL: usize = 64 << 10;

/// A request that is not answered as it was meant.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    message: String,
    retry_after: Option<Duration>,
    request: Option<String>,
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

impl Refusal {
    /// The caller's fault.
    #[must_use]
    pub fn of(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), retry_after: None, request: None, cause: None }
    }

    /// No such route, or nothing that this caller may know of.
    #[must_use]
    pub fn not_found() -> Self {
        Self::of(StatusCode::NOT_FOUND, "there is nothing here")
    }

    /// Our fault, or the record's: the caller shall come back.
    #[must_use]
    pub fn unavailable(cause: Arc<dyn Error + Send + Sync>) -> Self {
        let message = "hub cannot answer at the moment".to_owned();
        let retry_after = Some(Duration::from_secs(10));
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self { status, message, retry_after, request: None, cause: Some(cause) }
    }

    /// The caller shall come back after so long.
    #[must_use]
    pub fn later(message: impl Into<String>, after: Duration) -> Self {
        let refusal = Self::of(StatusCode::SERVICE_UNAVAILABLE, message);
        Self { retry_after: Some(after), ..refusal }
    }

    /// The caller asks too often, and shall come back after so long.
    #[must_use]
    pub fn too_many(message: impl Into<String>, after: Duration) -> Self {
        let refusal = Self::of(StatusCode::TOO_MANY_REQUESTS, message);
        Self { retry_after: Some(after), ..refusal }
    }

    /// Whether it belongs into the log as a failure.
    #[must_use]
    pub fn is_our_fault(&self) -> bool {
        self.cause.is_some()
    }

    /// The message with all its causes, for the log only.
    #[must_use]
    pub fn chain(&self) -> String {
        match &self.cause {
            Some(cause) => format!("{}: {}", self.message, exit::chain(&**cause)),
            None => self.message.clone(),
        }
    }

    /// The same, with the request's id where somebody will want to look it up in the log.
    #[must_use]
    pub fn asked_as(self, id: &RequestId) -> Self {
        let request = self.status.is_server_error().then(|| id.as_str().to_owned());
        Self { request, ..self }
    }

    /// The response.
    #[must_use]
    pub fn into_response(self) -> Response<Body> {
        let mut response = json(self.status, &Problem { error: self.message, request: self.request });
        if let Some(after) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
        }
        response
    }
}

impl From<Arc<ViewError>> for Refusal {
    fn from(error: Arc<ViewError>) -> Self {
        Self::unavailable(error)
    }
}

impl From<ObjectsError> for Refusal {
    fn from(error: ObjectsError) -> Self {
        Self::unavailable(Arc::new(error))
    }
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::View(error) => error.into(),
            denied @ (Denied::Missing | Denied::Pass(_) | Denied::Unknown(_)) => {
                Self::of(StatusCode::UNAUTHORIZED, denied.to_string())
            }
        }
    }
}

/// A body of these bytes.
#[must_use]
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Body::Full(Some(bytes.into()))
}

/// A body that is read from objects while it is sent.
#[must_use]
pub fn streamed(content: Content) -> Body {
    Body::Stream(StreamBody::new(content.stream.map(|piece| piece.map(Frame::data))).boxed_unsync())
}

/// A response that keeps something until its body is sent, or given up because it has made no progress for
/// this long. A small one in memory keeps nothing.
#[must_use]
pub fn keeping<T: Send + 'static>(response: Response<Body>, kept: T, stalled: Duration) -> Response<Body> {
    response.map(|body| {
        let stream = match body {
            Body::Stream(stream) => stream,
            Body::Full(Some(bytes)) if bytes.len() > SMALL => Pieces(bytes).boxed_unsync(),
            small @ Body::Full(_) => return small,
        };
        Body::Stream(Kept::new(stream, kept, stalled).boxed_unsync())
    })
}

/// An empty response.
#[must_use]
pub fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = status;
    response
}

/// A response of JSON.
///
/// # Panics
/// Never: what is sent has string keys only.
#[must_use]
pub fn json<T: Serialize>(status: StatusCode, value: &T) -> Response<Body> {
    let bytes = serde_json::to_vec(value).expect("what is sent has string keys only");
    let mut response = Response::new(full(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Whether the caller understands zstd.
#[must_use]
pub fn accepts_zstd(headers: &HeaderMap) -> bool {
    let accepted = headers.get(http::header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|list| list.split(',').any(|item| item.trim() == "zstd"))
}

/// Every response carries the hub's time: agents date their passes by it.
#[must_use]
pub fn dated(mut response: Response<Body>) -> Response<Body> {
    let now = jiff::Timestamp::try_from(SystemTime::now()).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let text = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&now);
    if let Ok(value) = text.map_err(|_| ()).and_then(|text| HeaderValue::try_from(text).map_err(|_| ())) {
        response.headers_mut().insert(DATE, value);
    }
    response
}

/// The whole body of a request, decompressed where it says zstd.
///
/// # Errors
/// A [`Refusal`] that names the limit.
pub async fn body(request: Request<impl RequestBody>, limit: usize) -> Result<Vec<u8>, Refusal> {
    body_within(BODY_TIME, request, limit).await
}

/// The same, of a request that has so much time.
///
/// # Errors
/// A [`Refusal`] that names the limit.
pub(crate) async fn body_within(
    time: Duration,
    request: Request<impl RequestBody>,
    limit: usize,
) -> Result<Vec<u8>, Refusal> {
    let encoding = request.headers().get(CONTENT_ENCODING).cloned();
    let collected = tokio::time::timeout(time, Limited::new(request.into_body(), limit).collect()).await;
    let seconds = time.as_secs();
    let too_slow =
        |_| Refusal::of(StatusCode::REQUEST_TIMEOUT, format!("body takes too long (limit {seconds} s)"));
    let bytes = collected.map_err(too_slow)?.map_err(|error| match error.downcast_ref() {
        Some(http_body_util::LengthLimitError { .. }) => {
            Refusal::of(StatusCode::PAYLOAD_TOO_LARGE, format!("body exceeds its limit ({limit} bytes)"))
        }
        None => Refusal::of(StatusCode::BAD_REQUEST, "body was cut"),
    })?;
    let bytes = bytes.to_bytes();
    match encoding.as_ref().map(HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(bytes.to_vec()),
        Some(b"zstd") => compress::unpack(&bytes, limit).map_err(|error| {
            let status = match error {
                compress::Error::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
                compress::Error::Broken(_) => StatusCode::BAD_REQUEST,
            };
            Refusal::of(status, error.to_string())
        }),
        Some(_) => Err(Refusal::of(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "content-encoding is not known (known: zstd)",
        )),
    }
}
