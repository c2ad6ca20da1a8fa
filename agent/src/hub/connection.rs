//! One connection to a hub: opened, counted, and driven by a task of its own.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::{CertificateError, ClientConfig};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::{HubError, HubUrl};

/// The most bytes of an answer's head over HTTP/1.1.
const HEAD_LIMIT: usize = 32 << 10;
/// The most headers of an answer.
const HEADERS_LIMIT: usize = 64;
/// What the hub may send of one answer before it is read, over HTTP/2: an agent is small.
const WINDOW: u32 = 256 << 10;
/// The same of all answers: two downloads that are not read for a moment leave room for a poll.
const WINDOW_OF_ALL: u32 = 4 * WINDOW;

/// Bytes on the socket, TLS records and all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// From here to the hub.
    pub sent: u64,
    /// From the hub to here.
    pub received: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counter {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Counter {
    pub(super) fn take(&self) -> Traffic {
        Traffic {
            sent: self.sent.swap(0, Ordering::Relaxed),
            received: self.received.swap(0, Ordering::Relaxed),
        }
    }
}

/// A stream that counts what passes.
struct Counted {
    inner: TcpStream,
    counter: Arc<Counter>,
}

fn add(total: &AtomicU64, bytes: usize) {
    total.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        add(&self.counter.received, buf.filled().len().saturating_sub(before));
        polled
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, buf);
        if let Poll::Ready(Ok(written)) = polled {
            add(&self.counter.sent, written);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

/// An open connection. Its task ends with it.
pub(super) struct Connection {
    sender: Sender,
    driver: Arc<Driver>,
}

/// The task that moves the bytes of one connection; an answer that is still being read keeps it.
pub(super) struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Connection {
    /// Connects; each step may take `patience`.
    pub(super) async fn open(
        hub: &HubUrl,
        tls: Option<&Arc<ClientConfig>>,
        counter: &Arc<Counter>,
        patience: Duration,
    ) -> Result<Self, HubError> {
        let unreachable = |source: io::Error| HubError::unreachable(hub, source);
        let connecting = TcpStream::connect((hub.host.as_str(), hub.port));
        let stream = within(hub, patience, connecting).await?.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let stream = Counted { inner: stream, counter: counter.clone() };
        let Some(config) = tls else { return Self::one(hub, stream).await };
        let name = ServerName::try_from(hub.host.clone())
            .map_err(|source| HubError::Setup { source: source.into() })?;
        let shaking = TlsConnector::from(config.clone()).connect(name, stream);
        let stream = within(hub, patience, shaking).await?.map_err(|e| untrusted(hub, e))?;
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            Self::two(hub, patience, stream).await
        } else {
            Self::one(hub, stream).await
        }
    }

    async fn one(
        hub: &HubUrl,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Self, HubError> {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_LIMIT)
            .max_headers(HEADERS_LIMIT)
            .handshake(TokioIo::new(io))
            .await
            .map_err(|source| HubError::unreachable(hub, source))?;
        Ok(Self { sender: Sender::One(sender), driver: drive(connection) })
    }

    async fn two(
        hub: &HubUrl,
        patience: Duration,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Self, HubError> {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW_OF_ALL)
            .max_header_list_size(u32::try_from(HEAD_LIMIT).unwrap_or(u32::MAX));
        let (sender, connection) = within(hub, patience, builder.handshake(TokioIo::new(io)))
            .await?
            .map_err(|source| HubError::unreachable(hub, source))?;
        Ok(Self { sender: Sender::Two(sender), driver: drive(connection) })
    }

    pub(super) fn is_open(&self) -> bool {
        match &self.sender {
            Sender::One(sender) => !sender.is_closed(),
            Sender::Two(sender) => !sender.is_closed(),
        }
    }

    pub(super) fn driver(&self) -> Arc<Driver> {
        self.driver.clone()
    }

    /// The same connection once more, where several requests may be open on it at once.
    pub(super) fn beside(&self) -> Option<Self> {
        match &self.sender {
            Sender::One(_) => None,
            Sender::Two(sender) => {
                Some(Self { sender: Sender::Two(sender.clone()), driver: self.driver.clone() })
            }
        }
    }

    /// Sends a request for `path` and waits for the answer's head.
    pub(super) async fn send(
        &mut self,
        hub: &HubUrl,
        mut request: Request<Full<Bytes>>,
        patience: Duration,
    ) -> Result<Response<Incoming>, HubError> {
        let sending = async {
            match &mut self.sender {
                Sender::One(sender) => {
                    let host = hub.authority().parse().expect("an authority is a header value");
                    request.headers_mut().insert(http::header::HOST, host);
                    sender.ready().await?;
                    sender.send_request(request).await
                }
                Sender::Two(sender) => {
                    *request.uri_mut() = format!("{hub}{}", request.uri())
                        .parse::<Uri>()
                        .expect("an address and a path are a URI");
                    sender.ready().await?;
                    sender.send_request(request).await
                }
            }
        };
        within(hub, patience, sending).await?.map_err(|source| HubError::unreachable(hub, source))
    }
}

fn drive<E>(connection: impl Future<Output = Result<(), E>> + Send + 'static) -> Arc<Driver> {
    Arc::new(Driver(tokio::spawn(async move {
        // How it ended is told to whoever waits for an answer on it.
        drop(connection.await);
    })))
}

/// Gives up on a step that does not end.
pub(super) async fn within<T>(
    hub: &HubUrl,
    patience: Duration,
    step: impl Future<Output = T>,
) -> Result<T, HubError> {
    tokio::time::timeout(patience, step)
        .await
        .map_err(|_| HubError::unreachable(hub, format!("no progress within {} ms", patience.as_millis())))
}

/// A hub that shows the wrong key is not away: it is somebody else.
fn untrusted(hub: &HubUrl, error: io::Error) -> HubError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)) => {
            HubError::NotOurHub {
                hub: hub.to_string(),
                why: "its TLS key is not among those that the root pins".into(),
            }
        }
        Some(rustls::Error::InvalidCertificate(why)) => HubError::NotOurHub {
            hub: hub.to_string(),
            why: format!("its certificate is not trusted ({why:?})"),
        },
        Some(_) | None => HubError::unreachable(hub, error),
    }
}
