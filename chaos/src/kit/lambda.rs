//! A stand-in for AWS Lambda with a function URL: the Runtime API of one function, and the TLS door before it.
//!
//! It does what Lambda documents ("Using the Lambda runtime API", "Invoking function URLs", "Lambda quotas"): one event
//! at a time for each instance, bytes as base64, 6 MB at most in each direction, and an instance that is frozen
//! (SIGSTOP) whenever it has nothing to answer. So a program that needs its clock between two requests fails here as it
//! would fail there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, DATE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::engine::Engine;
use super::{KitError, Port, Process};

/// The most bytes of an event, and of an answer.
const LAMBDA_LIMIT: usize = 6_291_556;
/// How long a function may take.
const DEADLINE: Duration = Duration::from_secs(60);
const RUNTIME: &str = "/2018-06-01/runtime";

/// One function with its URL; the program that is the function is started by the test, with
/// [`Lambda::variables`], and told with [`Lambda::runs`].
pub struct Lambda {
    engine: Engine,
    runtime: Port,
    url: Port,
    function: Arc<Function>,
}

/// What an invocation ends with: the answer, or what went wrong.
type Outcome = Result<Bytes, String>;

struct Event {
    body: Bytes,
    answer: oneshot::Sender<Outcome>,
}

struct Function {
    waiting: mpsc::Sender<Event>,
    events: tokio::sync::Mutex<mpsc::Receiver<Event>>,
    answering: Mutex<Option<(String, oneshot::Sender<Outcome>)>>,
    instance: Mutex<Option<Pid>>,
    invocations: AtomicU64,
}

impl Lambda {
    /// A function without a program, whose URL has this certificate.
    ///
    /// # Errors
    /// When no port is free, or the certificate cannot be used.
    pub async fn start(tls: Arc<rustls::ServerConfig>) -> Result<Self, KitError> {
        let (waiting, events) = mpsc::channel(1024);
        let function = Arc::new(Function {
            waiting,
            events: tokio::sync::Mutex::new(events),
            answering: Mutex::default(),
            instance: Mutex::default(),
            invocations: AtomicU64::new(0),
        });
        let (engine, runtime, url) = (Engine::start()?, Port::take()?, Port::take()?);
        listen(&engine, &runtime, None, &function, runtime_api).await?;
        listen(&engine, &url, Some(TlsAcceptor::from(tls)), &function, function_url).await?;
        Ok(Self { engine, runtime, url, function })
    }

    /// The variables that Lambda gives to a program.
    #[must_use]
    pub fn variables(&self) -> Vec<(String, String)> {
        let pairs = [
            ("AWS_LAMBDA_RUNTIME_API", self.runtime.address()),
            ("AWS_LAMBDA_FUNCTION_NAME", "farshore".to_owned()),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256".to_owned()),
            ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST".to_owned()),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }

    /// Says which process is the function: it is frozen from now on whenever there is no event. A process that is
    /// killed must be replaced.
    ///
    /// # Panics
    /// Never: a process has an id.
    pub fn runs(&self, process: &Process) {
        let pid = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
        *self.function.instance.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(pid.expect("a process has an id"));
    }

    /// Invokes the function with an event of any kind, as a schedule does.
    ///
    /// # Errors
    /// What the function says went wrong.
    pub async fn invoke(&self, event: &Value) -> Result<Value, KitError> {
        let failed = |answer: String| KitError::Answer { what: "the function".to_owned(), answer };
        let (function, event) = (Arc::clone(&self.function), Bytes::from(event.to_string()));
        let invoked = self.engine.handle().spawn(async move { function.invoke(event).await }).await;
        let answer = invoked.map_err(|error| failed(error.to_string()))?.map_err(failed)?;
        serde_json::from_slice(&answer).map_err(|error| failed(error.to_string()))
    }

    /// Where the URL listens, as `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        self.url.address()
    }

    /// How many events the function has taken.
    #[must_use]
    pub fn invocations(&self) -> u64 {
        self.function.invocations.load(Ordering::SeqCst)
    }
}

impl Function {
    async fn invoke(&self, body: Bytes) -> Outcome {
        if body.len() > LAMBDA_LIMIT {
            return Err("RequestTooLarge".to_owned());
        }
        let (answer, answered) = oneshot::channel();
        self.waiting.send(Event { body, answer }).await.map_err(|error| error.to_string())?;
        match tokio::time::timeout(DEADLINE, answered).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_dropped)) => Err("the instance is gone".to_owned()),
            Err(_elapsed) => Err("the function timed out".to_owned()),
        }
    }

    fn signal(&self, signal: Signal) {
        let instance = self.instance.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pid) = *instance
            && let Err(error) = kill_process(pid, signal)
        {
            eprintln!("lambda: signalling the instance ({error})");
        }
    }

    /// `GET /invocation/next`: held, with the instance frozen, until there is an event.
    async fn next(&self) -> Response<Full<Bytes>> {
        let mut events = self.events.lock().await;
        let event = match events.try_recv() {
            Ok(event) => event,
            Err(_none_yet) => {
                self.signal(Signal::STOP);
                // The sender is in this very value, so that the channel never closes.
                let event = events.recv().await.expect("the channel is open as long as the function");
                self.signal(Signal::CONT);
                event
            }
        };
        let id = format!("event-{}", self.invocations.fetch_add(1, Ordering::SeqCst) + 1);
        *self.answering.lock().unwrap_or_else(PoisonError::into_inner) = Some((id.clone(), event.answer));
        let deadline = std::time::SystemTime::now() + DEADLINE;
        let since = deadline.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let mut response = Response::new(Full::new(event.body));
        for (name, value) in [
            ("lambda-runtime-aws-request-id", id),
            ("lambda-runtime-deadline-ms", since.as_millis().to_string()),
            ("lambda-runtime-invoked-function-arn", "arn:aws:lambda:here:0:function:farshore".to_owned()),
        ] {
            let value = HeaderValue::try_from(value).expect("letters and digits");
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
        response
    }

    fn ended(&self, id: &str, outcome: Outcome) -> StatusCode {
        let mut answering = self.answering.lock().unwrap_or_else(PoisonError::into_inner);
        match answering.take_if(|(asked, _)| asked == id) {
            // Nobody waits any more after the deadline.
            Some((_, answer)) => drop(answer.send(outcome)),
            None => return StatusCode::BAD_REQUEST,
        }
        StatusCode::ACCEPTED
    }
}

async fn listen<F>(
    engine: &Engine,
    port: &Port,
    tls: Option<TlsAcceptor>,
    function: &Arc<Function>,
    answer: impl Fn(Arc<Function>, Request<Incoming>) -> F + Copy + Send + Sync + 'static,
) -> Result<(), KitError>
where
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let (address, function) = (port.address(), Arc::clone(function));
    let listening = address.clone();
    // Bound on the engine, to whose reactor the socket must belong.
    let bound = engine.handle().spawn(async move { TcpListener::bind(&listening).await });
    let bound = bound.await.map_err(std::io::Error::other).and_then(|bound| bound);
    let listener = bound.map_err(KitError::io("listening", &address))?;
    engine.handle().spawn(async move {
        let mut connections = JoinSet::new();
        // Ends with the engine.
        while let Ok((stream, _peer)) = listener.accept().await {
            let (tls, function) = (tls.clone(), Arc::clone(&function));
            connections.spawn(connection(stream, tls, function, answer));
        }
    });
    Ok(())
}

async fn connection<F>(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    function: Arc<Function>,
    answer: impl Fn(Arc<Function>, Request<Incoming>) -> F + Copy + Send + Sync + 'static,
) where
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    if let Err(error) = stream.set_nodelay(true) {
        eprintln!("lambda: setting nodelay ({error})");
    }
    match tls {
        None => serve(stream, function, answer).await,
        Some(tls) => match tls.accept(stream).await {
            Ok(stream) => serve(stream, function, answer).await,
            Err(error) => eprintln!("lambda: shaking hands ({error})"),
        },
    }
}

async fn serve<I, F>(
    io: I,
    function: Arc<Function>,
    answer: impl Fn(Arc<Function>, Request<Incoming>) -> F + Copy + Send + Sync + 'static,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let service = service_fn(move |request| {
        let answered = answer(Arc::clone(&function), request);
        async move { Ok::<_, std::convert::Infallible>(answered.await) }
    });
    let server = auto::Builder::new(TokioExecutor::new());
    if let Err(error) = server.serve_connection(TokioIo::new(io), service).await {
        eprintln!("lambda: {error}");
    }
}

/// What the program asks.
async fn runtime_api(function: Arc<Function>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let asked = path.strip_prefix(RUNTIME).unwrap_or_default();
    let parts: Vec<&str> = asked.split('/').skip(1).collect();
    match (request.method(), &parts[..]) {
        (&Method::GET, ["invocation", "next"]) => function.next().await,
        (&Method::POST, ["invocation", id, how @ ("response" | "error")]) => {
            let status = match Limited::new(request.into_body(), LAMBDA_LIMIT).collect().await {
                Ok(body) if *how == "response" => function.ended(id, Ok(body.to_bytes())),
                Ok(body) => function.ended(id, Err(String::from_utf8_lossy(&body.to_bytes()).into_owned())),
                Err(_too_large) => {
                    function.ended(id, Err("Function.ResponseSizeTooLarge".to_owned()));
                    StatusCode::PAYLOAD_TOO_LARGE
                }
            };
            plain(status, r#"{"status":"OK"}"#)
        }
        _ => plain(StatusCode::NOT_FOUND, "{}"),
    }
}

/// What a client of the function URL asks.
async fn function_url(function: Arc<Function>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, LAMBDA_LIMIT).collect().await else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE, r#"{"message":"Request Entity Too Large"}"#);
    };
    let event = event_of(&head, &body.to_bytes());
    match function.invoke(Bytes::from(event.to_string())).await {
        Ok(answer) => response_of(&answer).unwrap_or_else(|| {
            eprintln!("lambda: answer is no answer ({})", String::from_utf8_lossy(&answer));
            plain(StatusCode::BAD_GATEWAY, "Internal Server Error")
        }),
        Err(error) => {
            eprintln!("lambda: {error}");
            plain(StatusCode::BAD_GATEWAY, "Internal Server Error")
        }
    }
}

/// Payload format 2.0.
fn event_of(head: &http::request::Parts, body: &Bytes) -> Value {
    let mut headers = serde_json::Map::new();
    for name in head.headers.keys() {
        let values: Vec<_> = head.headers.get_all(name).iter().filter_map(|v| v.to_str().ok()).collect();
        headers.insert(name.to_string(), values.join(",").into());
    }
    let path = head.uri.path();
    json!({
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": head.uri.query().unwrap_or_default(),
        "headers": headers,
        "requestContext": {
            "accountId": "anonymous",
            "apiId": "farshore",
            "domainName": "farshore.lambda-url.here.on.aws",
            "domainPrefix": "farshore",
            "http": {
                "method": head.method.as_str(), "path": path, "protocol": "HTTP/1.1",
                "sourceIp": "127.0.0.1", "userAgent": "",
            },
            "requestId": "request", "routeKey": "$default", "stage": "$default",
            "time": "01/Nov/2026:00:00:00 +0000", "timeEpoch": 1_793_491_200_000_u64,
        },
        "body": (!body.is_empty()).then(|| STANDARD.encode(body)),
        "isBase64Encoded": !body.is_empty(),
    })
}

fn response_of(answer: &[u8]) -> Option<Response<Full<Bytes>>> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let text = answer["body"].as_str().unwrap_or_default();
    let body = if answer["isBase64Encoded"] == true { STANDARD.decode(text).ok()? } else { text.into() };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = u16::try_from(answer["statusCode"].as_u64()?).ok()?.try_into().ok()?;
    let mut headers = HeaderMap::new();
    for (name, value) in answer["headers"].as_object()? {
        headers.insert(name.parse::<HeaderName>().ok()?, value.as_str()?.parse().ok()?);
    }
    // A function URL says its own.
    headers.remove(DATE);
    headers.remove(CONTENT_LENGTH);
    *response.headers_mut() = headers;
    Some(response)
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}
