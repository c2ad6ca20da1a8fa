//! The front door: a hyper server over TLS 1.3, HTTP/2 first and HTTP/1.1 accepted, with a graceful drain.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};

use crate::handlers::Hub;
use crate::routes::{self, Door};

/// Connections at once; more wait in the kernel's queue.
const CONNECTIONS: usize = 100_000;
/// How long a TLS handshake, or the headers of a request, may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The most bytes of a request's headers.
const HEADERS: u32 = 16 << 10;
/// Requests at once on one HTTP/2 connection.
const STREAMS: u32 = 128;
/// How long open requests may take to end once the server stops.
const DRAIN: Duration = Duration::from_secs(10);

/// A bound listener.
pub struct Server {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
}

impl Server {
    /// Binds the address.
    ///
    /// # Errors
    /// That of the operating system.
    pub async fn bind(address: SocketAddr, tls: Option<Arc<rustls::ServerConfig>>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self { listener, tls: tls.map(TlsAcceptor::from) })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// That of the operating system.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` changes, then lets open requests end.
    pub async fn run(self, hub: Hub, door: Door, mut stop: watch::Receiver<bool>) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let graceful = GracefulShutdown::new();
        loop {
            let place = Arc::clone(&places).acquire_owned().await.expect("the semaphore is never closed");
            // Both are cancel-safe: a connection that was not accepted stays in the queue.
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
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
            let (hub, tls, watcher) = (hub.clone(), self.tls.clone(), graceful.watcher());
            tokio::spawn(async move {
                connection(stream, tls, hub, door, watcher).await;
                drop(place);
            });
        }
        drop(self.listener);
        info!("draining");
        if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
            warn!("requests were still open when the time to drain was over");
        }
    }
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, hub: Hub, door: Door, watcher: Watcher) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "setting no-delay");
    }
    let Some(tls) = tls else { return serve(TokioIo::new(stream), hub, door, watcher).await };
    match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => serve(TokioIo::new(stream), hub, door, watcher).await,
        Ok(Err(error)) => debug!(%error, "TLS handshake failed"),
        Err(_) => debug!("TLS handshake took too long"),
    }
}

async fn serve<I>(io: I, hub: Hub, door: Door, watcher: Watcher)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let hub = hub.clone();
        async move { Ok::<_, std::convert::Infallible>(routes::answer(&hub, door, request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE).max_buf_size(HEADERS as usize);
    builder.http2().timer(TokioTimer::new()).max_header_list_size(HEADERS).max_concurrent_streams(STREAMS);
    let connection = watcher.watch(builder.serve_connection(io, service).into_owned());
    if let Err(error) = connection.await {
        debug!(%error, "connection ended");
    }
}
