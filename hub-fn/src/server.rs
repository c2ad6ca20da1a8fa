//! The front door: a hyper server over TLS 1.3, HTTP/2 first and HTTP/1.1 accepted, with a graceful drain.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use futures::future::{Either, Ready, ready};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{debug, info, warn};

use crate::answer::Body;
use crate::handlers::Hub;
use crate::lines::{Enlisted, Finish, Lines, Serving};
use crate::routes::{self, Door};
use crate::watched::{Activity, Patience, Watched};

/// The most bytes of a request's headers.
const HEADERS: u32 = 16 << 10;
/// Requests at once on one HTTP/2 connection.
const STREAMS: u32 = 128;

/// How many connections there may be, and how long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at once; more wait in the kernel's queue.
    pub connections: u32,
    /// A TLS handshake; the first request after it; the headers of a request.
    pub handshake: Duration,
    /// A connection on which no byte moves, in either direction.
    pub quiet: Duration,
    /// Open requests, once the server stops.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        // Longer than the pause between two polls, so that a site keeps its connection.
        let quiet = Duration::from_secs(300);
        let ten = Duration::from_secs(10);
        Self { connections: 100_000, handshake: ten, quiet, drain: ten }
    }
}

/// A bound listener.
pub struct Server {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    limits: Limits,
}

/// What every connection is given.
#[derive(Clone)]
struct House {
    hub: Arc<Hub>,
    door: Door,
    tls: Option<TlsAcceptor>,
    limits: Limits,
    stop: watch::Receiver<bool>,
}

impl Server {
    /// Binds the address.
    ///
    /// # Errors
    /// That of the operating system.
    pub async fn bind(address: SocketAddr, tls: Option<Arc<rustls::ServerConfig>>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self { listener, tls: tls.map(TlsAcceptor::from), limits: Limits::default() })
    }

    /// The same with other limits.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Where it listens.
    ///
    /// # Errors
    /// That of the operating system.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` changes, then lets open requests end. No connection outlives it.
    pub async fn run(self, hub: Hub, door: Door, mut stop: watch::Receiver<bool>) {
        let Self { listener, tls, limits } = self;
        let all = limits.connections;
        let (places, lines) = (Arc::new(Semaphore::new(all as usize)), Arc::new(Lines::default()));
        let house = House { hub: Arc::new(hub), door, tls, limits, stop: stop.clone() };
        let patience = Patience { first: limits.handshake, quiet: limits.quiet };
        tokio::select! {
            () = lines.watch(patience) => {}
            () = listen(&listener, &house, &places, &lines) => {}
            _ = stop.changed() => {}
        }
        drop(listener);
        info!("draining");
        lines.finish();
        // Every connection has a place until it has ended.
        let ended = || places.acquire_many(all);
        if tokio::time::timeout(limits.drain, ended()).await.is_err() {
            warn!("requests were still open when the time to drain was over");
            lines.cut();
            drop(ended().await);
        }
    }
}

/// Accepts connections, each as a task of its own, for ever.
async fn listen(listener: &TcpListener, house: &House, places: &Arc<Semaphore>, lines: &Arc<Lines>) {
    loop {
        // Cancel-safe: a place that was not taken stays free, and a connection that was not accepted
        // stays in the queue.
        let (place, accepted) = accept(places, listener).await;
        match accepted {
            Ok((stream, _)) => {
                let (house, enlisted) = (house.clone(), lines.enlist());
                tokio::spawn(async move {
                    connection(stream, house, &enlisted).await;
                    drop((enlisted, place));
                });
            }
            Err(error) => {
                // Out of file descriptors, mostly: waiting is all that helps.
                warn!(%error, "connection is not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Answers the requests of one connection.
struct Front {
    hub: Arc<Hub>,
    door: Door,
    activity: Arc<Activity>,
}

/// An answer that is there, or one that takes its time.
type Answering = Either<Ready<Answered>, Pin<Box<dyn Future<Output = Answered> + Send>>>;
type Answered = Result<Response<Body>, Infallible>;

impl Service<Request<Incoming>> for Front {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Answering {
        self.activity.note_request(request.version());
        if let Some(response) = routes::steady(&self.hub, self.door, &request) {
            self.activity.note_answer();
            return Either::Left(ready(Ok(response)));
        }
        let (hub, door, activity) = (Arc::clone(&self.hub), self.door, Arc::clone(&self.activity));
        Either::Right(Box::pin(async move {
            let response = routes::answer(&hub, door, request).await;
            activity.note_answer();
            Ok(response)
        }))
    }
}

/// Runs what hyper has for a task of its own, the answer to one HTTP/2 request, at once as far as it comes:
/// most come to their end, and need no task.
#[derive(Debug, Clone, Copy)]
struct AtOnce;

impl<F> Executor<F> for AtOnce
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, work: F) {
        let mut work = Box::pin(work);
        // Whatever this first poll waits for is told the real waker by the task's own first poll.
        if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            tokio::spawn(work);
        }
    }
}

async fn accept(
    places: &Arc<Semaphore>,
    listener: &TcpListener,
) -> (tokio::sync::OwnedSemaphorePermit, std::io::Result<(TcpStream, SocketAddr)>) {
    let place = Arc::clone(places).acquire_owned().await.expect("the semaphore is never closed");
    (place, listener.accept().await)
}

async fn connection(stream: TcpStream, house: House, enlisted: &Enlisted) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "setting no-delay");
    }
    let mut stop = house.stop.clone();
    // What is dropped takes its connection with it.
    let opened = tokio::select! {
        opened = tokio::time::timeout(house.limits.handshake, open(stream, house.tls.clone())) => opened,
        // Nobody who has not come so far has a request open.
        _ = stop.wait_for(|is_stopped| *is_stopped) => return,
    };
    match opened {
        Ok(Ok((Stream::Plain(stream), speaks))) => serve(stream, speaks, &house, enlisted).await,
        Ok(Ok((Stream::Tls(stream), speaks))) => serve(*stream, speaks, &house, enlisted).await,
        Ok(Err(error)) => debug!(%error, "connection did not get to a request"),
        Err(_) => debug!("connection took too long to get to a request"),
    }
}

/// A connection on which a request may come.
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// What a peer speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaks {
    Http1,
    Http2,
}

/// TLS says what will be spoken (ALPN, RFC 7301); without it the first bytes do.
async fn open(stream: TcpStream, tls: Option<TlsAcceptor>) -> std::io::Result<(Stream, Speaks)> {
    let Some(tls) = tls else {
        let speaks = first_words(&stream).await?;
        return Ok((Stream::Plain(stream), speaks));
    };
    let stream = tls.accept(stream).await?;
    let speaks = match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => Speaks::Http2,
        Some(_) | None => Speaks::Http1,
    };
    Ok((Stream::Tls(Box::new(stream)), speaks))
}

/// Which HTTP the first bytes are of: those of the preface of HTTP/2 (RFC 9113, section 3.4) begin no request
/// that there is. They stay to be read.
async fn first_words(stream: &TcpStream) -> std::io::Result<Speaks> {
    const PREFACE: &[u8] = b"PRI";
    let mut first = [0; PREFACE.len()];
    loop {
        let seen = stream.peek(&mut first).await?;
        if seen == 0 || first[..seen] != PREFACE[..seen] {
            return Ok(Speaks::Http1);
        }
        if seen == PREFACE.len() {
            return Ok(Speaks::Http2);
        }
        // There is something to read, so that nothing tells of more.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

type Io<I> = TokioIo<Watched<I>>;

impl<I: AsyncRead + AsyncWrite + Unpin> Finish for http1::Connection<Io<I>, Front> {
    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin + Send + 'static> Finish for http2::Connection<Io<I>, Front, AtOnce> {
    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

async fn serve<I>(io: I, speaks: Speaks, house: &House, enlisted: &Enlisted)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (line, activity) = (Arc::clone(&enlisted.line), Arc::clone(&enlisted.line.activity));
    let io = TokioIo::new(Watched::new(io, Arc::clone(&activity)));
    let front = Front { hub: Arc::clone(&house.hub), door: house.door, activity };
    let ended = match speaks {
        Speaks::Http1 => {
            let mut builder = http1::Builder::new();
            // No timer for the headers of each request: what is watched has its own.
            builder.header_read_timeout(None).max_buf_size(HEADERS as usize);
            Serving::new(builder.serve_connection(io, front), line).await
        }
        Speaks::Http2 => {
            let mut builder = http2::Builder::new(AtOnce);
            builder.timer(TokioTimer::new()).max_header_list_size(HEADERS).max_concurrent_streams(STREAMS);
            Serving::new(builder.serve_connection(io, front), line).await
        }
    };
    if let Some(Err(error)) = ended {
        debug!(%error, "connection ended");
    }
}
