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
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};

use crate::answer::Body;
use crate::handlers::Hub;
use crate::routes::{self, Door};
use crate::watched::{Activity, Watched};

/// Connections at once; more wait in the kernel's queue.
const CONNECTIONS: usize = 100_000;
/// The most bytes of a request's headers.
const HEADERS: u32 = 16 << 10;
/// Requests at once on one HTTP/2 connection.
const STREAMS: u32 = 128;

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
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
        Self { handshake: Duration::from_secs(10), quiet, drain: Duration::from_secs(10) }
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
    hub: Hub,
    door: Door,
    tls: Option<TlsAcceptor>,
    limits: Limits,
    stop: watch::Receiver<bool>,
    /// Closed when the time to drain is over.
    end: watch::Receiver<()>,
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
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let graceful = GracefulShutdown::new();
        let (ending, end) = watch::channel(());
        let Self { listener, tls, limits } = self;
        let house = House { hub, door, tls, limits, stop: stop.clone(), end };
        loop {
            // Cancel-safe: a place that was not taken stays free, and a connection that was not accepted
            // stays in the queue.
            let (place, accepted) = tokio::select! {
                accepted = accept(&places, &listener) => accepted,
                _ = stop.changed() => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, mostly: waiting is all that helps.
                    warn!(%error, "connection is not accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (house, watcher) = (house.clone(), graceful.watcher());
            tokio::spawn(async move {
                let mut end = house.end.clone();
                tokio::select! {
                    () = connection(stream, house, watcher) => {}
                    _ = end.changed() => debug!("connection was cut when the time to drain was over"),
                }
                drop(place);
            });
        }
        drop(listener);
        info!("draining");
        if tokio::time::timeout(limits.drain, graceful.shutdown()).await.is_err() {
            warn!("requests were still open when the time to drain was over");
        }
        drop(ending);
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

async fn connection(stream: TcpStream, house: House, watcher: Watcher) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "setting no-delay");
    }
    let Some(tls) = house.tls.clone() else { return serve(stream, house, watcher).await };
    let mut stop = house.stop.clone();
    // A handshake that is dropped takes its connection with it.
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(house.limits.handshake, tls.accept(stream)) => shaken,
        // Nobody who has not shaken hands has a request open.
        _ = stop.wait_for(|is_stopped| *is_stopped) => return,
    };
    match shaken {
        Ok(Ok(stream)) => serve(stream, house, watcher).await,
        Ok(Err(error)) => debug!(%error, "TLS handshake failed"),
        Err(_) => debug!("TLS handshake took too long"),
    }
}

async fn serve<I>(io: I, house: House, watcher: Watcher)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let House { hub, door, limits, .. } = house;
    let activity = Arc::new(Activity::default());
    let io = TokioIo::new(Watched::new(io, Arc::clone(&activity)));
    let service = Front { hub: Arc::new(hub), door, activity: Arc::clone(&activity) };
    let mut builder = auto::Builder::new(AtOnce);
    // No timer for the headers of each request: what is watched has its own.
    builder.http1().header_read_timeout(None).max_buf_size(HEADERS as usize);
    builder.http2().timer(TokioTimer::new()).max_header_list_size(HEADERS).max_concurrent_streams(STREAMS);
    let connection = watcher.watch(builder.serve_connection(io, service).into_owned());
    // Neither is polled again, whichever ends first.
    tokio::select! {
        ended = connection => if let Err(error) = ended {
            debug!(%error, "connection ended");
        },
        why = activity.stalled(limits.handshake, limits.quiet) => debug!("connection is cut: {why}"),
    }
}
