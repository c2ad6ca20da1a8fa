//! The status page: how this site is, over HTTP, for whoever is near. It reads and has no way to write.
//!
//! Connections are bounded in number and in time; one that is too many is closed at once. Tasks: one per connection,
//! which ends with it, and all with [`Page::serve`].
//!
//! - [`answers`]: what is asked and answered (pure); [`html`], [`metrics`]: in which form.

pub mod answers;
pub mod html;
pub mod metrics;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use farshore_shared::clock;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{debug, info};

use crate::local::keeper::Known;
use crate::local::view;

/// The most connections at once.
const CONNECTIONS: usize = 16;
/// The longest time for the head of a request.
const HEAD: Duration = Duration::from_secs(5);
/// The longest time for a connection.
const CONNECTION: Duration = Duration::from_secs(30);

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen ({address})")]
pub struct PageError {
    address: SocketAddr,
    #[source]
    source: io::Error,
}

/// The page of a site.
#[derive(Debug)]
pub struct Page {
    listener: TcpListener,
    shows: Arc<Shows>,
}

/// What is shown.
#[derive(Debug)]
struct Shows {
    state: PathBuf,
    known: watch::Receiver<Known>,
    /// Whether only this machine reaches it: then nobody else's name may lead here.
    is_near: bool,
}

impl Page {
    /// Opens it.
    ///
    /// # Errors
    /// [`PageError`] when the address is taken, or not of this machine.
    pub async fn open(
        address: SocketAddr,
        state: PathBuf,
        known: watch::Receiver<Known>,
    ) -> Result<Self, PageError> {
        let refused = |source| PageError { address, source };
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        let local = listener.local_addr().map_err(refused)?;
        info!(address = %local, "status page");
        Ok(Self { listener, shows: Arc::new(Shows { state, known, is_near: local.ip().is_loopback() }) })
    }

    /// Where it is.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until it is dropped.
    pub async fn serve(self) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    debug!(%error, "a connection to the status page was not taken");
                    // Out of file descriptors, most likely: to try at once would only burn a processor.
                    sleep(Duration::from_millis(200)).await;
                    continue;
                }
            };
            while connections.try_join_next().is_some() {}
            // One too many is closed.
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
            let shows = Arc::clone(&self.shows);
            connections.spawn(async move {
                let _place = place;
                if timeout(CONNECTION, converse(stream, shows)).await.is_err() {
                    debug!("a connection to the status page took too long");
                }
            });
        }
    }
}

async fn converse(stream: TcpStream, shows: Arc<Shows>) {
    let answer = service_fn(move |request| {
        let shows = Arc::clone(&shows);
        async move { Ok::<_, Infallible>(shows.answer(&request)) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(16 << 10).keep_alive(false);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), answer).await {
        debug!(%error, "a connection to the status page ended");
    }
}

impl Shows {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let host = request.headers().get(http::header::HOST).and_then(|host| host.to_str().ok());
        if self.is_near && !answers::is_near(host) {
            return answers::elsewhere();
        }
        let known = self.known.borrow().clone();
        // One that stands by shows what the one that works has written.
        let of_folder = || view::of_folder(&self.state).ok().filter(|_| known.standby);
        let look = || of_folder().unwrap_or_else(|| view::of_known(&self.state, &known));
        let is_ready = known.standby || known.snapshot.as_ref().is_some_and(|snapshot| snapshot.reached);
        answers::answer(request.method(), request.uri().path(), look, is_ready, clock::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::keeper::tests::snapshot;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    async fn page() -> (SocketAddr, watch::Sender<Known>, tokio::task::JoinHandle<()>, tempfile::TempDir) {
        let (teller, known) =
            watch::channel(Known { snapshot: Some(Arc::new(snapshot())), ..Known::default() });
        let folder = tempfile::tempdir().expect("a folder");
        let address = "127.0.0.1:0".parse().expect("an address");
        let page = Page::open(address, folder.path().to_owned(), known).await.expect("a port");
        let address = page.address().expect("an address");
        (address, teller, tokio::spawn(page.serve()), folder)
    }

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let mut text = String::new();
        // One that is too many is closed without an answer.
        drop(stream.read_to_string(&mut text).await);
        text
    }

    #[tokio::test]
    async fn a_page_shows_the_site_and_has_no_way_to_write() {
        let (address, _teller, _serving, _folder) = page().await;
        let shown = ask(address, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        assert!(shown.starts_with("HTTP/1.1 200") && shown.contains("shop-7"), "{shown}");
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            let refused =
                ask(address, &format!("{method} /status.json HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
            assert!(refused.starts_with("HTTP/1.1 405"), "{refused}");
        }
        let foreign = ask(address, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
        assert!(foreign.starts_with("HTTP/1.1 421"), "a name that was made to lead here: {foreign}");
    }

    #[tokio::test]
    async fn connections_that_say_nothing_are_bounded_and_free_again_when_they_end() {
        let (address, _teller, _serving, _folder) = page().await;
        let mut silent = vec![];
        for _ in 0..CONNECTIONS {
            silent.push(TcpStream::connect(address).await.expect("it listens"));
        }
        let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
        // The system takes connections before the page does: it is full once one is closed unanswered.
        let turned_away = async { while ask(address, request).await.starts_with("HTTP/1.1 200") {} };
        timeout(Duration::from_secs(4), turned_away).await.expect("one is turned away");
        drop(silent);
        let taken = async { while !ask(address, request).await.starts_with("HTTP/1.1 200") {} };
        timeout(Duration::from_secs(4), taken).await.expect("there is room again");
    }

    #[tokio::test]
    async fn a_connection_that_says_nothing_is_closed() {
        let (address, _teller, _serving, _folder) = page().await;
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let mut bytes = vec![];
        let ended = timeout(CONNECTION * 2, stream.read_to_end(&mut bytes)).await;
        assert!(ended.is_ok(), "it is closed");
    }
}
