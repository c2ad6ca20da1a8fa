//! The way to the API: every request is bounded in time and every answer in bytes.

mod refusal;
mod stream;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use farshore_shared::names::Name;
use farshore_shared::retry::Schedule;
use farshore_shared::wire::UnixSeconds;
use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use http_body_util::{BodyExt as _, Limited};
use kube::Client;
use kube::client::Body;
use kube::config::{Config, InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::fault::Fault;
use super::flow::{Flow, Place};
use crate::accounts::Account;
use crate::date;
use refusal::refusal;

/// The largest answer, in bytes: a page of 500 objects' metadata stays far below it.
const ANSWER_LIMIT: usize = 64 * 1024 * 1024;
/// The largest error message that is read, in bytes.
const REFUSAL_LIMIT: usize = 1024 * 1024;
/// How often a request is sent again that the API turned away for its load.
const OVERLOAD_RETRIES: u32 = 3;
/// Kubernetes API concepts, "User impersonation".
const IMPERSONATE: HeaderName = HeaderName::from_static("impersonate-user");
/// The longest pause before that which is our own idea; the API may ask for a longer one.
const OVERLOAD_PAUSE: Duration = Duration::from_secs(4);

/// How patient the client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The longest time to open a connection.
    pub connect: Duration,
    /// The longest time without a byte while one is waited for.
    pub silence: Duration,
    /// The longest time from a request to the end of its answer.
    pub request: Duration,
    /// The longest time without a byte of an answer that goes on. The API server sends a bookmark about
    /// once a minute where nothing else happens.
    pub quiet: Duration,
    /// The most requests at once, beside those whose answers go on, until [`Target::bound`](crate::target::Target::bound) says otherwise.
    pub in_flight: u16,
    /// The most requests a second; none: as many as the API server takes.
    pub per_second: Option<u32>,
    /// The longest time until a Namespace or a `CustomResourceDefinition` that was applied can be used.
    pub usable: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            // An admission webhook may take 30 s.
            silence: Duration::from_secs(35),
            request: Duration::from_secs(60),
            quiet: Duration::from_secs(150),
            in_flight: crate::footprint::IN_FLIGHT,
            per_second: None,
            usable: Duration::from_secs(30),
        }
    }
}

/// Why there is no way to a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The named kubeconfig is of no use.
    #[error("cannot use the kubeconfig ({})", path.display())]
    Kubeconfig {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// We run in a cluster, and what it gives to a Pod is of no use.
    #[error("cannot use the service account of this Pod")]
    ServiceAccount(#[source] Box<InClusterError>),
    /// No kubeconfig was named, and there is none where kubectl looks.
    #[error("found no cluster: this is no Pod, and neither $KUBECONFIG nor ~/.kube/config can be used")]
    Nowhere(#[source] Box<KubeconfigError>),
    /// The kubeconfig speaks for somebody else already.
    #[error(
        "the kubeconfig impersonates a user itself ({0}): services with accounts of their own need one that does not"
    )]
    Impersonates(String),
    /// The credentials or certificates are of no use.
    #[error("cannot prepare the connection ({url})")]
    Client {
        /// The API's address.
        url: String,
        /// What is wrong.
        #[source]
        source: Box<kube::Error>,
    },
}

/// One request.
#[derive(Debug, Clone)]
pub(super) struct Request {
    method: Method,
    /// Path and query.
    target: String,
    accept: &'static str,
    content_type: &'static str,
    body: Bytes,
    /// The largest answer, in bytes.
    limit: usize,
}

/// The answer as a whole object.
const WHOLE: &str = "application/json";
/// The answer as metadata only; the plain form is for a `Status`.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// The answer as a list of metadata only.
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

impl Request {
    /// Reads a whole object.
    pub(super) fn get(target: String) -> Self {
        Self::new(Method::GET, target, WHOLE)
    }

    /// Reads an object's metadata.
    pub(super) fn get_metadata(target: String) -> Self {
        Self::new(Method::GET, target, METADATA)
    }

    /// Reads the metadata of many objects.
    pub(super) fn list_metadata(target: String) -> Self {
        Self::new(Method::GET, target, METADATA_LIST)
    }

    /// Hears of changes, with the metadata of what changed.
    pub(super) fn watch_metadata(target: String) -> Self {
        Self::new(Method::GET, target, METADATA)
    }

    /// Creates an object.
    pub(super) fn create(target: String, body: Vec<u8>) -> Self {
        Self { content_type: "application/json", body: body.into(), ..Self::new(Method::POST, target, WHOLE) }
    }

    /// Applies an object and asks for its metadata only.
    pub(super) fn apply(target: String, body: Vec<u8>) -> Self {
        // JSON is YAML, and the only media type of server-side apply that every API server takes is this.
        let content_type = "application/apply-patch+yaml";
        Self { content_type, body: body.into(), ..Self::new(Method::PATCH, target, METADATA) }
    }

    /// Changes an object by a JSON patch (RFC 6902) and asks for its metadata only.
    pub(super) fn json_patch(target: String, body: Vec<u8>) -> Self {
        let content_type = "application/json-patch+json";
        Self { content_type, body: body.into(), ..Self::new(Method::PATCH, target, METADATA) }
    }

    /// Deletes an object.
    pub(super) fn delete(target: String, body: Vec<u8>) -> Self {
        Self {
            content_type: "application/json",
            body: body.into(),
            ..Self::new(Method::DELETE, target, METADATA)
        }
    }

    /// Asks for the whole object in answer.
    pub(super) fn whole(mut self) -> Self {
        self.accept = WHOLE;
        self
    }

    /// Takes no larger answer than this, in bytes.
    pub(super) fn at_most(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    fn new(method: Method, target: String, accept: &'static str) -> Self {
        Self { method, target, accept, content_type: "", body: Bytes::new(), limit: ANSWER_LIMIT }
    }

    fn to_http(&self, account: Option<&Account>) -> Result<http::Request<Body>, http::Error> {
        let mut request = http::Request::builder()
            .method(self.method.clone())
            .uri(&self.target)
            .header(ACCEPT, self.accept);
        if !self.content_type.is_empty() {
            request = request.header(CONTENT_TYPE, self.content_type);
        }
        if let Some(account) = account {
            // The API adds the groups of a service account itself. No others are ever named.
            request = request.header(IMPERSONATE, account.user());
        }
        request.body(Body::from(self.body.clone()))
    }
}

/// A pool of connections to one API server. Clones share it.
#[derive(Clone)]
pub(super) struct Connection {
    client: Client,
    /// For answers that go on: they may be silent for longer.
    streaming: Client,
    url: Arc<str>,
    options: Options,
    flow: Flow,
    /// As whom requests are sent; none for ourselves.
    account: Option<Arc<Account>>,
    /// For which service requests are sent.
    service: Option<Arc<Name>>,
    /// Whom the kubeconfig impersonates.
    impersonates: Option<Arc<str>>,
    /// When the API answered last, by its own clock; 0 before the first answer.
    answered: Arc<AtomicU64>,
}

impl Connection {
    /// Reads who and where the API server is; it is not spoken to yet.
    pub(super) async fn open(kubeconfig: Option<&Path>, options: Options) -> Result<Self, ConnectError> {
        let mut config = configuration(kubeconfig).await?;
        config.connect_timeout = Some(options.connect);
        config.read_timeout = Some(options.silence);
        config.write_timeout = Some(options.silence);
        config.reset_reader_on_write = true;
        // It goes on for longer than an hour; what is worth repeating is decided here and by the caller.
        config.default_retry = false;
        let agent = concat!("farshore-agent/", env!("CARGO_PKG_VERSION"));
        config.headers.push((USER_AGENT, HeaderValue::from_static(agent)));
        let url: Arc<str> = config.cluster_url.to_string().into();
        let impersonates = config.auth_info.impersonate.as_deref().map(Arc::from);
        let unusable = |source| ConnectError::Client { url: url.to_string(), source: Box::new(source) };
        let mut patient = config.clone();
        patient.read_timeout = None;
        let streaming = Client::try_from(patient).map_err(unusable)?;
        let client = Client::try_from(config).map_err(unusable)?;
        let flow = Flow::new(options.in_flight, options.per_second);
        let (account, service, answered) = Default::default();
        Ok(Self { client, streaming, url, options, flow, account, service, impersonates, answered })
    }

    /// The same connections, for requests in the name of an account.
    pub(super) fn acting_as(&self, account: Arc<Account>) -> Self {
        Self { account: Some(account), ..self.clone() }
    }

    /// The same connections, for requests on behalf of a service: its writes leave places to others.
    pub(super) fn of_service(&self, service: &Name) -> Self {
        Self { service: Some(Arc::new(service.clone())), ..self.clone() }
    }

    /// When the API answered last, by the clock by which it dates its objects: ours may be another.
    pub(super) fn answered(&self) -> Option<UnixSeconds> {
        Some(self.answered.load(Ordering::Relaxed)).filter(|answered| *answered > 0)
    }

    /// Whether requests are sent in the name of an account.
    pub(super) fn is_acting(&self) -> bool {
        self.account.is_some()
    }

    /// Demands that requests are sent as ourselves unless we say otherwise.
    pub(super) fn demand_own_name(&self) -> Result<(), ConnectError> {
        match &self.impersonates {
            Some(user) => Err(ConnectError::Impersonates(user.to_string())),
            None => Ok(()),
        }
    }

    /// From here on, at most so many requests go at once, and in a second.
    pub(super) fn bound(&self, in_flight: u16, per_second: Option<u32>) {
        self.flow.bound(in_flight, per_second);
    }

    /// The API's address.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// How patient we are.
    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    /// Sends a request and reads the answer as JSON.
    pub(super) async fn call<T: DeserializeOwned>(&self, request: Request) -> Result<T, Fault> {
        serde_json::from_slice(&self.raw(request).await?).map_err(Fault::Unreadable)
    }

    /// Sends a request and hands out the answer's bytes.
    pub(super) async fn raw(&self, request: Request) -> Result<Bytes, Fault> {
        let place = self.place(&request).await;
        self.in_time(self.patiently(&request, place)).await
    }

    async fn place(&self, request: &Request) -> Place {
        self.flow.place(self.service.as_ref().filter(|_| request.method != Method::GET)).await
    }

    /// The same as [`Connection::call`] for a request that must not wait behind others.
    pub(super) async fn call_at_once<T: DeserializeOwned>(&self, request: Request) -> Result<T, Fault> {
        serde_json::from_slice(&self.at_once(request).await?).map_err(Fault::Unreadable)
    }

    /// Sends a request that must not wait behind others, and whose answer tells nothing of load.
    pub(super) async fn at_once(&self, request: Request) -> Result<Bytes, Fault> {
        self.in_time(self.once(&request)).await
    }

    async fn in_time<T>(&self, answer: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        match tokio::time::timeout(self.options.request, answer).await {
            Ok(answer) => answer,
            Err(tokio::time::error::Elapsed { .. }) => Err(Fault::Slow(self.options.request)),
        }
    }

    /// A request that the API turned away for its load was not begun: it is sent again a few times.
    /// It waits as long as it was asked to, without a place among those in flight.
    async fn patiently(&self, request: &Request, mut place: Place) -> Result<Bytes, Fault> {
        let mut schedule = Schedule::new(Duration::from_millis(250), OVERLOAD_PAUSE);
        let ends = Instant::now() + self.options.request;
        let mut tries = 0;
        loop {
            let status = match self.once(request).await {
                Err(Fault::Refused(status)) if status.code == 429 => status,
                answer => {
                    if matches!(answer, Ok(_) | Err(Fault::Refused(_))) {
                        place.answered();
                    }
                    return answer;
                }
            };
            place.refused();
            drop(place);
            let asked = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            let pause = schedule.next_delay().max(Duration::from_secs(asked.into()));
            // Who is asked to wait longer than a request may take says so at once.
            if tries == OVERLOAD_RETRIES || Instant::now() + pause >= ends {
                return Err(Fault::Refused(status));
            }
            tokio::time::sleep(pause).await;
            place = self.place(request).await;
            tries += 1;
        }
    }

    async fn once(&self, request: &Request) -> Result<Bytes, Fault> {
        let body = self.begun(&self.client, request).await?;
        Ok(Limited::new(body, request.limit).collect().await.map_err(Fault::Cut)?.to_bytes())
    }

    /// Sends a request and returns when its answer begins, unless that is a refusal.
    async fn begun(&self, client: &Client, request: &Request) -> Result<Body, Fault> {
        let request = request
            .to_http(self.account.as_deref())
            .map_err(|error| Fault::Silent(Box::new(kube::Error::HttpError(error))))?;
        let response = client.send(request).await.map_err(|error| Fault::Silent(Box::new(error)))?;
        let (head, body) = response.into_parts();
        if let Some(date) = date::of(&head.headers) {
            self.answered.store(date, Ordering::Relaxed);
        }
        if head.status.is_success() {
            return Ok(body);
        }
        let body = Limited::new(body, REFUSAL_LIMIT).collect().await.map_err(Fault::Cut)?.to_bytes();
        let after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        Err(Fault::Refused(Box::new(refusal(head.status, after, &body))))
    }
}

async fn configuration(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    if let Some(path) = kubeconfig {
        let named = |source| ConnectError::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
        let kubeconfig = Kubeconfig::read_from(path).map_err(named)?;
        return Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .map_err(named);
    }
    match Config::incluster() {
        Ok(config) => Ok(config),
        Err(InClusterError::ReadEnvironmentVariable(_)) => {
            let found = Config::from_kubeconfig(&KubeConfigOptions::default()).await;
            found.map_err(|source| ConnectError::Nowhere(Box::new(source)))
        }
        Err(source) => Err(ConnectError::ServiceAccount(Box::new(source))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// An API that gives these answers, one per connection, and the connection to it.
    async fn misbehaving(
        answers: Vec<String>,
    ) -> (tempfile::TempDir, Connection, tokio::task::JoinHandle<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let server = format!("http://{}", listener.local_addr().expect("an address"));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("kubeconfig");
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{"name": "a", "cluster": {"server": server}}],
            "users": [{"name": "a", "user": {}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]});
        std::fs::write(&path, kubeconfig.to_string()).expect("a file");
        let served = tokio::spawn(async move {
            let mut served = 0;
            for answer in answers {
                let (mut stream, _) = listener.accept().await.expect("a client");
                let mut request = [0; 4096];
                let received = stream.read(&mut request).await.expect("a request");
                assert!(received > 0);
                served += 1;
                // A client that has read enough hangs up.
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    break;
                }
            }
            served
        });
        let options = Options { request: Duration::from_secs(20), ..Options::default() };
        let connection = Connection::open(Some(&path), options).await.expect("a kubeconfig");
        (folder, connection, served)
    }

    fn answer(status: &str, headers: &str, body: &str) -> String {
        format!(
            "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            body.len()
        )
    }

    #[tokio::test]
    async fn a_request_that_is_turned_away_for_load_is_sent_again() {
        let busy = answer("429 Too Many Requests", "Retry-After: 0\r\n", "Too many requests");
        let good = answer("200 OK", "", "{\"a\":1}");
        let (_folder, connection, served) = misbehaving(vec![busy.clone(), busy, good]).await;
        let read: serde_json::Value =
            connection.call(Request::get("/x".into())).await.expect("the third answer");
        assert_eq!(read, json!({"a": 1}));
        assert_eq!(served.await.expect("it ended"), 3);
    }

    #[tokio::test]
    async fn an_api_that_stays_overloaded_is_left_alone_in_the_end() {
        let busy = answer("429 Too Many Requests", "Retry-After: 0\r\n", "Too many requests");
        let (_folder, connection, served) = misbehaving(vec![busy; 4]).await;
        let fault = connection.raw(Request::get("/x".into())).await.expect_err("it never answers");
        assert!(fault.is(429), "{fault}");
        assert_eq!(served.await.expect("it ended"), 4);
    }

    #[tokio::test]
    async fn an_answer_that_is_too_long_or_too_short_is_a_fault() {
        let long = answer("500 Internal Server Error", "", &"x".repeat(2 * REFUSAL_LIMIT));
        let short = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}".to_owned();
        let odd = answer("200 OK", "", "<html>");
        let (_folder, connection, _served) = misbehaving(vec![long, short, odd]).await;
        let mut faults = Vec::new();
        for _ in 0..3 {
            faults.push(
                connection.call::<serde_json::Value>(Request::get("/x".into())).await.expect_err("no answer"),
            );
        }
        assert!(
            matches!(faults[0], Fault::Cut(_)) && faults[0].in_words().contains("length limit"),
            "{faults:?}"
        );
        assert!(matches!(faults[1], Fault::Cut(_)), "{faults:?}");
        assert!(matches!(faults[2], Fault::Unreadable(_)), "{faults:?}");
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("none");
        let Err(error) = Connection::open(Some(&path), Options::default()).await else {
            panic!("there is no such file");
        };
        assert_eq!(error.to_string(), format!("cannot use the kubeconfig ({})", path.display()));
    }
}
