//! A [`GitRepo`] over smart HTTP: a small HTTP server around `git http-backend`, which is a CGI program (RFC 3875).

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::engine::Engine;
use super::git_repo::git;
use super::port::closed;
use super::{GitRepo, KitError, Port};

/// A client sends the ids it has and wants: far less than this.
const MAX_REQUEST: usize = 16 << 20;

/// How a [`GitHttp`] answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitMode {
    /// As a Git server does.
    Serve,
    /// Not at all: requests wait until the mode changes.
    Hang,
    /// With status 500.
    Fail,
}

/// A Git server for one repository; several of them are cheap.
pub struct GitHttp {
    engine: Engine,
    serving: Option<JoinHandle<()>>,
    port: Port,
    served: Served,
    mode: watch::Sender<GitMode>,
}

/// What each connection knows.
#[derive(Clone)]
struct Served {
    repository: PathBuf,
    fetches: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
    mode: watch::Receiver<GitMode>,
}

impl GitHttp {
    /// Serves a repository, to read; later commits are seen at once.
    ///
    /// The server does not keep the repository: it must live as long as the server.
    ///
    /// # Errors
    /// As said in the [module](super).
    pub async fn start(repository: &GitRepo) -> Result<Self, KitError> {
        let (mode, modes) = watch::channel(GitMode::Serve);
        let served = Served {
            repository: repository.path().join(".git"),
            fetches: Arc::new(AtomicU64::new(0)),
            sent: Arc::new(AtomicU64::new(0)),
            mode: modes,
        };
        let mut server = Self { engine: Engine::start()?, serving: None, port: Port::take()?, served, mode };
        server.start_again().await?;
        Ok(server)
    }

    /// The repository's URL, as `http://127.0.0.1:PORT/repo.git`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/repo.git", self.port.address())
    }

    /// How many times clients asked for the branches in order to fetch, whatever the answer.
    #[must_use]
    pub fn fetches(&self) -> u64 {
        self.served.fetches.load(Ordering::SeqCst)
    }

    /// How many bytes all answers had, without their headers.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.served.sent.load(Ordering::SeqCst)
    }

    /// Changes how requests are answered, those included that hang.
    pub fn set_mode(&self, mode: GitMode) {
        self.mode.send_replace(mode);
    }

    /// Cuts all connections; new ones are refused until [`GitHttp::start_again`].
    ///
    /// # Errors
    /// When the port stays open.
    pub async fn stop(&mut self) -> Result<(), KitError> {
        let Some(serving) = self.serving.take() else { return Ok(()) };
        serving.abort();
        // The listener is dropped only once the task is gone. It ends as cancelled, which is no news.
        drop(serving.await);
        closed(&self.port.address()).await
    }

    /// Serves again, on the same port.
    ///
    /// # Errors
    /// When the port is taken.
    pub async fn start_again(&mut self) -> Result<(), KitError> {
        self.stop().await?;
        let address = self.port.address();
        let served = self.served.clone();
        let (bound, is_bound) = tokio::sync::oneshot::channel();
        // Bound on the engine, to whose reactor the socket must belong.
        self.serving = Some(self.engine.handle().spawn(async move {
            match TcpListener::bind(&address).await {
                Ok(listener) => {
                    if bound.send(Ok(())).is_ok() {
                        accept(listener, served).await;
                    }
                }
                Err(error) => drop(bound.send(Err(error))),
            }
        }));
        is_bound
            .await
            .expect("the task says how binding went")
            .map_err(KitError::io("listening", self.port.address()))
    }
}

/// The connections end with the set, and the set with this task.
async fn accept(listener: TcpListener, served: Served) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            // Both arms are cancel safe: nothing is taken from the listener or the set unless the arm runs.
            accepted = listener.accept() => match accepted {
                Ok((stream, _peer)) => {
                    connections.spawn(connection(stream, served.clone()));
                }
                Err(error) => eprintln!("git over http: accepting ({error})"),
            },
            Some(_ended) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, served: Served) {
    // Answers come in two small writes; with Nagle's algorithm each fetch would wait 40 ms for an acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        eprintln!("git over http: setting nodelay ({error})");
    }
    let service = service_fn(move |request| answer(request, served.clone()));
    let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    if let Err(error) = serving.await {
        // A client that hangs up is what outage tests are made of.
        eprintln!("git over http: {error}");
    }
}

async fn answer(request: Request<Incoming>, mut served: Served) -> Result<Response<Full<Bytes>>, Infallible> {
    let wants_to_fetch = request.uri().query() == Some("service=git-upload-pack");
    if wants_to_fetch && request.uri().path().ends_with("/info/refs") {
        served.fetches.fetch_add(1, Ordering::SeqCst);
    }
    let mode = match served.mode.wait_for(|mode| *mode != GitMode::Hang).await {
        Ok(mode) => *mode,
        // The server was dropped while this request hung.
        Err(_closed) => GitMode::Fail,
    };
    let answered = match mode {
        GitMode::Serve => by_git(request, &served.repository).await,
        GitMode::Fail | GitMode::Hang => Err("told to fail".to_owned()),
    };
    let response = answered.unwrap_or_else(|reason| {
        let mut response = Response::new(Full::from(reason));
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    });
    served.sent.fetch_add(response.body().size_hint().exact().unwrap_or(0), Ordering::SeqCst);
    Ok(response)
}

/// RFC 3875 section 4: the request goes to the program in variables, its body on standard input.
async fn by_git(request: Request<Incoming>, repository: &Path) -> Result<Response<Full<Bytes>>, String> {
    let (head, body) = request.into_parts();
    let Some(below) = head.uri.path().strip_prefix("/repo.git") else {
        return Ok(not_found());
    };
    let body = Limited::new(body, MAX_REQUEST).collect().await.map_err(|error| error.to_string())?.to_bytes();
    let header =
        |name: HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    let mut command = git();
    command
        .arg("http-backend")
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", head.method.as_str())
        .env("PATH_TRANSLATED", format!("{}{below}", repository.display()))
        .env("QUERY_STRING", head.uri.query().unwrap_or(""))
        .env("CONTENT_TYPE", header(CONTENT_TYPE))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header(CONTENT_ENCODING))
        .env("GIT_PROTOCOL", header(HeaderName::from_static("git-protocol")));
    let mut child = tokio::process::Command::from(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("starting git http-backend: {error}"))?;
    let mut input = child.stdin.take().expect("standard input is a pipe");
    let feed = async move {
        // A program that has read enough may close its input first.
        input.write_all(&body).await.or_else(|error| match error.kind() {
            std::io::ErrorKind::BrokenPipe => Ok(()),
            _ => Err(error),
        })
    };
    let (fed, output) = tokio::join!(feed, child.wait_with_output());
    fed.map_err(|error| format!("feeding git http-backend: {error}"))?;
    let output = output.map_err(|error| format!("reading git http-backend: {error}"))?;
    from_cgi(output.stdout).ok_or_else(|| format!("git http-backend ended: {}", output.status))
}

/// RFC 3875 section 6: header lines, an empty line, the body; `Status` is a header.
fn from_cgi(output: Vec<u8>) -> Option<Response<Full<Bytes>>> {
    let output = Bytes::from(output);
    let end = output.windows(4).position(|window| window == b"\r\n\r\n")?;
    let mut response = Response::new(Full::from(output.slice(end + 4..)));
    for line in std::str::from_utf8(&output[..end]).ok()?.lines() {
        let (name, value) = line.split_once(':')?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("status") {
            *response.status_mut() = value.get(..3)?.parse().ok()?;
        } else {
            let name: HeaderName = name.parse().ok()?;
            response.headers_mut().append(name, HeaderValue::from_str(value).ok()?);
        }
    }
    Some(response)
}

fn not_found() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from("no such repository"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgi_answer_becomes_status_headers_and_body() {
        let response = from_cgi(b"Status: 404 Not Found\r\nContent-Type: a/b\r\n\r\ngone".to_vec());
        let response = response.expect("well formed");
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert_eq!(response.headers()["content-type"], "a/b");
    }

    #[test]
    fn output_without_headers_is_no_answer() {
        assert!(from_cgi(b"fatal: oops".to_vec()).is_none());
    }
}
