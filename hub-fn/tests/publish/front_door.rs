//! The front doors, as a site and as somebody who means no good: over real TLS, and as events of Lambda.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use farshore_hub_fn::handlers::{Hub, Settings};
use farshore_hub_fn::lambda;
use farshore_hub_fn::load;
use farshore_hub_fn::objects::Objects;
use farshore_hub_fn::record;
use farshore_hub_fn::routes::Door;
use farshore_hub_fn::server::{Limits, Server};
use farshore_hub_fn::status::{Compactor, Statuses};
use farshore_hub_fn::tls::{Certificate, Looked, TlsFiles};
use farshore_hub_fn::view::View;
use farshore_hub_fn::waiting::{self, Waiting, WakeLimits};
use farshore_shared::clock::now;
use farshore_shared::compress;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::{Envelope, Signature};
use farshore_shared::keys::SigningKey;
use farshore_shared::pass;
use farshore_shared::wire::{STATUS_LIMIT, Status};
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_RANGE, ETAG, IF_NONE_MATCH, RANGE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::world::{World, name, sync};

/// Long enough for any answer, short enough for a test that waits for the cut.
const LIMITS: Limits = Limits {
    connections: 1_000,
    handshake: Duration::from_secs(2),
    quiet: Duration::from_secs(1),
    drain: Duration::from_secs(20),
};

pub(crate) struct House {
    pub(crate) world: World,
    pub(crate) objects: Arc<dyn Objects>,
    pub(crate) key: SigningKey,
    tls: TlsFiles,
    certificate: Arc<Certificate>,
    pub(crate) hub: Hub,
    address: SocketAddr,
    pub(crate) stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    /// Tells that there is another publication.
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) view: View,
    /// Of webhooks.
    pub(crate) secrets: std::path::PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaks {
    Http1,
    Http2,
    /// Events of a Lambda function.
    Events,
}

pub(crate) enum Client {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
    Events(Box<Hub>),
}

pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answered {
    pub(crate) fn header(&self, name: &http::HeaderName) -> &str {
        self.headers[name].to_str().expect("text")
    }
}

impl House {
    pub(crate) async fn open(door: Door, limits: Limits) -> Self {
        Self::taking_on(door, limits, WakeLimits { waiting: 3, rate: 1_000 }, load::Limits::default()).await
    }

    pub(crate) async fn taking_on(door: Door, limits: Limits, wake: WakeLimits, load: load::Limits) -> Self {
        let mut world = World::new();
        world.declare("edge", Some("edge"), "1");
        world.declare("core", Some("core"), "1");
        world.commit();
        let objects = world.objects();
        let key = world.enrol(&objects, "harbour", "tier=edge").await;
        world.enrol(&objects, "vault", "tier=core").await;
        sync(&mut world.publisher(&objects, "mirrors").await).await;
        Self::over((world, objects, key), door, limits, Settings { load, wake, ..Settings::default() }).await
    }

    /// Another replica over the same record.
    pub(crate) async fn again(self) -> Self {
        let Self { world, objects, key, .. } = self;
        let settings = Settings::default();
        Self::over((world, objects, key), Door::Public, Limits::default(), settings).await
    }

    async fn over(
        (world, objects, key): (World, Arc<dyn Objects>, SigningKey),
        door: Door,
        limits: Limits,
        settings: Settings,
    ) -> Self {
        let tls = TlsFiles::own(&world.folder.path().join("tls")).expect("a folder of ours");
        let certificate = Certificate::load(tls.clone()).expect("just made");
        let shown = certificate.server().expect("a pair");
        let server = Server::bind(([127, 0, 0, 1], 0).into(), Some(shown)).await;
        let server = server.expect("a free port").with_limits(limits);
        let address = server.address().expect("bound");
        let view = View::new(Arc::clone(&objects), Arc::clone(&world.index));
        let secrets = world.folder.path().join("secrets");
        std::fs::create_dir_all(&secrets).expect("a folder of ours");
        let settings = Settings { hooks: Some(secrets.clone()), ..settings };
        let hub = Hub::new(view.clone(), Arc::clone(&world.index), settings);
        let waiting = Arc::clone(&hub.waiting);
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(view.clone().follow(stopped.clone()));
        tokio::spawn(waiting::follow(Arc::clone(&waiting), view.clone(), view.changed(), stopped.clone()));
        let serving = tokio::spawn(server.run(hub.clone(), door, stopped));
        Self { world, objects, key, tls, certificate, hub, address, stop, serving, waiting, view, secrets }
    }

    pub(crate) async fn public() -> Self {
        Self::open(Door::Public, Limits::default()).await
    }

    /// A TLS connection to whoever has the hub's very certificate.
    pub(crate) async fn tls(&self, alpn: &[u8]) -> TlsStream<TcpStream> {
        self.dial(&self.tls.cert, alpn).await.expect("the pinned certificate")
    }

    /// The same, to whoever has the certificate in this file.
    async fn dial(&self, cert: &Path, alpn: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(cert).expect("PEM")).expect("a certificate");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config = builder.expect("TLS 1.3").with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![alpn.to_vec()];
        let stream = TcpStream::connect(self.address).await.expect("it listens");
        let server = ServerName::try_from("localhost").expect("a name");
        TlsConnector::from(Arc::new(config)).connect(server, stream).await
    }

    pub(crate) async fn client(&self, speaks: Speaks) -> Client {
        match speaks {
            Speaks::Http1 => {
                let io = TokioIo::new(self.tls(b"http/1.1").await);
                let (client, connection) = http1::handshake(io).await.expect("HTTP/1.1");
                tokio::spawn(connection);
                Client::Http1(client)
            }
            Speaks::Http2 => {
                let io = TokioIo::new(self.tls(b"h2").await);
                // What an answer may have unread before its sender has to wait, as RFC 9113 has it.
                let mut http2 = http2::Builder::new(TokioExecutor::new());
                http2.initial_stream_window_size(65_535);
                let (client, connection) = http2.handshake(io).await.expect("HTTP/2");
                tokio::spawn(connection);
                Client::Http2(client)
            }
            Speaks::Events => Client::Events(Box::new(self.hub.clone())),
        }
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> http::request::Builder {
        self.with_pass(method, path, &self.pass())
    }

    fn with_pass(&self, method: &str, path: &str, pass: &str) -> http::request::Builder {
        let uri = format!("https://localhost{path}");
        Request::builder().method(method).uri(uri).header(AUTHORIZATION, format!("Bearer {pass}"))
    }

    fn pass(&self) -> String {
        pass::issue(&self.key, &name("harbour"), self.world.root(), now())
    }

    pub(crate) fn status(&self, key: &SigningKey, sequence: u64) -> Vec<u8> {
        let status = serde_json::json!({
            "cluster": "harbour", "stateId": "one", "sequence": sequence, "at": 1_800_000_000,
            "agent": "test", "pollSeconds": 120, "services": [],
        });
        let status: Status = serde_json::from_value(status).expect("a status");
        Envelope::seal(&status, &[key]).to_bytes()
    }

    pub(crate) async fn artifact_of(&self, service: &str) -> Digest {
        let intent = self.world.intent(&self.objects).await;
        intent.services[&name(service)].published.clone().expect("published").artifact.digest
    }
}

impl Client {
    /// The same connection for a request beside others.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Http1(_) => panic!("HTTP/1.1 carries one request at a time"),
            Self::Http2(client) => Self::Http2(client.clone()),
            Self::Events(_) => panic!("a function takes one event after the other"),
        }
    }

    /// Sends a request and reads nothing of its answer's body.
    pub(crate) async fn open(&mut self, request: http::request::Builder) -> Response<Incoming> {
        let Self::Http2(client) = self else { panic!("HTTP/1.1 carries one request at a time") };
        client.ready().await.expect("open");
        let request = request.body(Full::new(Bytes::new())).expect("good headers");
        client.send_request(request).await.expect("an answer")
    }

    pub(crate) async fn send(&mut self, request: http::request::Builder, body: impl Into<Bytes>) -> Answered {
        let request = request.body(Full::new(body.into())).expect("good headers");
        let response = match self {
            Self::Events(hub) => return by_event(hub, request).await,
            Self::Http1(client) => {
                client.ready().await.expect("open");
                client.send_request(request).await
            }
            Self::Http2(client) => {
                client.ready().await.expect("open");
                client.send_request(request).await
            }
        };
        let (head, body) = response.expect("an answer").into_parts();
        let body = body.collect().await.expect("a whole answer").to_bytes();
        Answered { status: head.status, headers: head.headers, body }
    }
}

pub(crate) const BOTH: [Speaks; 2] = [Speaks::Http1, Speaks::Http2];

/// What API Gateway makes of a request, and of the function's answer.
async fn by_event(hub: &Hub, request: Request<Full<Bytes>>) -> Answered {
    let (head, body) = request.into_parts();
    let body = body.collect().await.expect("in memory").to_bytes();
    let headers: serde_json::Map<_, _> = head
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().expect("text").into()))
        .collect();
    let (method, path) = (head.method.as_str(), head.uri.path());
    let event = serde_json::json!({
        "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "", "headers": headers,
        "requestContext": { "stage": "$default", "timeEpoch": 0, "http": { "method": method, "path": path } },
        "body": STANDARD.encode(&body), "isBase64Encoded": true,
    });
    let request = lambda_http::request::from_str(&event.to_string()).expect("an event");
    let (head, body) = lambda::answer(hub, request).await.into_parts();
    Answered { status: head.status, headers: head.headers, body: Bytes::copy_from_slice(body.as_ref()) }
}

const DOORS: [Speaks; 3] = [Speaks::Http1, Speaks::Http2, Speaks::Events];

#[tokio::test]
async fn a_poll_is_answered_and_then_with_nothing_new_at_every_door() {
    let house = House::public().await;
    for speaks in DOORS {
        let mut client = house.client(speaks).await;
        let first = client.send(house.request("GET", "/v1/desired"), "").await;
        assert_eq!(first.status, StatusCode::OK, "{speaks:?}");
        let again = house.request("GET", "/v1/desired").header(IF_NONE_MATCH, first.header(&ETAG));
        let again = client.send(again, "").await;
        assert_eq!((again.status, again.body.len()), (StatusCode::NOT_MODIFIED, 0));
        assert!(again.headers.contains_key("date"));
        let nothing = client.send(house.request("GET", "/v2/desired"), "").await;
        assert_eq!(nothing.status, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn nobody_is_let_in_without_a_pass_of_the_cluster_s_own() {
    let house = House::public().await;
    let root = house.world.root();
    let issue = |key: &SigningKey, cluster, at| pass::issue(key, &name(cluster), root, at);
    let passes = [
        String::new(),
        "a.b.c".into(),
        "x".repeat(4000),
        issue(&house.key, "harbour", now() - 2 * pass::LIFETIME),
        issue(&SigningKey::generate(), "harbour", now()),
        issue(&house.key, "vault", now()),
        pass::issue(&house.key, &name("harbour"), Digest::of(b"another fleet"), now()),
    ];
    for speaks in DOORS {
        let mut client = house.client(speaks).await;
        let bare = Request::builder().uri("https://localhost/v1/desired");
        assert_eq!(client.send(bare, "").await.status, StatusCode::UNAUTHORIZED);
        for pass in &passes {
            for (method, path) in [("GET", "/v1/desired"), ("POST", "/v1/status"), ("GET", "/v1/artifacts/x")]
            {
                let answer = client.send(house.with_pass(method, path, pass), "").await;
                assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{method} {path} {pass}");
            }
        }
    }
}

#[tokio::test]
async fn a_pass_that_is_remembered_lets_nobody_else_in() {
    let house = House::public().await;
    let root = house.world.root();
    let good = pass::issue(&house.key, &name("harbour"), root, now());
    let forged = pass::issue(&SigningKey::generate(), &name("harbour"), root, now());
    let others = pass::issue(&SigningKey::generate(), &name("vault"), root, now());
    let (claims, signature) = good.rsplit_once('.').expect("three parts");
    let under = |pass: &str| format!("{}.{signature}", pass.rsplit_once('.').expect("three parts").0);
    let (_, not_ours) = forged.rsplit_once('.').expect("three parts");
    let mut client = house.client(DOORS[0]).await;
    for _ in 0..2 {
        let answer = client.send(house.with_pass("GET", "/v1/desired", &good), "").await;
        assert_eq!(answer.status, StatusCode::OK, "verified, then remembered");
    }
    for pass in [under(&others), format!("{claims}.{not_ours}"), format!("{claims}."), claims.to_owned()] {
        let answer = client.send(house.with_pass("GET", "/v1/desired", &pass), "").await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{pass}");
    }
}

#[tokio::test]
async fn what_is_too_large_is_refused_and_a_bomb_does_not_go_off() {
    let house = House::public().await;
    let bomb = compress::pack(&vec![0; 64 << 20]);
    for speaks in DOORS {
        let large = house.request("POST", "/v1/status");
        let answer = house.client(speaks).await.send(large, vec![b' '; 2 * STATUS_LIMIT + 1]).await;
        assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE, "{speaks:?}");
        let mut client = house.client(speaks).await;
        for path in ["/v1/status", "/v1/enroll"] {
            let packed = house.request("POST", path).header(CONTENT_ENCODING, "zstd");
            let answer = client.send(packed, bomb.clone()).await;
            assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE, "{speaks:?} {path}");
        }
        let unknown = house.request("POST", "/v1/status").header(CONTENT_ENCODING, "br");
        assert_eq!(client.send(unknown, "x").await.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        if speaks == Speaks::Events {
            // Lambda itself bounds the headers of an event.
            continue;
        }
        let headers = house.request("GET", "/healthz").header("x-large", "x".repeat(32 << 10));
        let answer = house.client(speaks).await.send(headers, "").await;
        assert_eq!(answer.status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "{speaks:?}");
    }
}

#[tokio::test]
async fn a_status_counts_once_and_only_under_the_cluster_s_own_signature() {
    let house = House::public().await;
    let mut client = house.client(Speaks::Http2).await;
    for (signer, body) in [
        ("another", house.status(&SigningKey::generate(), 1)),
        ("nobody", b"{}".to_vec()),
        ("noise", b"\xff".to_vec()),
    ] {
        let answer = client.send(house.request("POST", "/v1/status"), body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "signed by {signer}");
    }
    let log = house.objects.list(record::STATUS_LOG, None, 9).await.expect("a disk");
    assert!(log.is_empty(), "nothing of it is in the record: {log:?}");
    for sequence in [2, 2, 1] {
        let mut envelope: Envelope =
            serde_json::from_slice(&house.status(&house.key, sequence)).expect("an envelope");
        // What nobody verified is not kept, however much there is of it.
        let stranger = SigningKey::generate().public().id();
        envelope.signatures.push(Signature { keyid: stranger, sig: "x".repeat(1000) });
        let answer = client.send(house.request("POST", "/v1/status"), envelope.to_bytes()).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT);
    }
    let view = View::new(Arc::clone(&house.objects), Arc::clone(&house.world.index));
    let folded = Compactor::new(view.clone(), Arc::clone(&house.world.index)).fold().await.expect("a disk");
    assert_eq!(folded.reports, 3);
    let statuses = Statuses::new(&view, Arc::clone(&house.world.index));
    let report = statuses.report(&name("harbour")).await.expect("a disk").expect("a status");
    assert_eq!(report.envelope.to_bytes(), house.status(&house.key, 2));
}

#[tokio::test]
async fn an_artifact_is_sent_whole_or_in_part_and_only_to_those_it_is_for() {
    let house = House::public().await;
    let (edge, core) = (house.artifact_of("edge").await, house.artifact_of("core").await);
    for speaks in DOORS {
        let mut client = house.client(speaks).await;
        let path = format!("/v1/artifacts/{edge}");
        let whole = client.send(house.request("GET", &path), "").await;
        assert_eq!((whole.status, Digest::of(&whole.body)), (StatusCode::OK, edge));
        let total = whole.body.len();
        let part = client.send(house.request("GET", &path).header(RANGE, "bytes=5-"), "").await;
        assert_eq!((part.status, &part.body[..]), (StatusCode::PARTIAL_CONTENT, &whole.body[5..]));
        assert_eq!(part.header(&CONTENT_RANGE), format!("bytes 5-{}/{total}", total - 1));
        let behind =
            client.send(house.request("GET", &path).header(RANGE, format!("bytes={total}-")), "").await;
        assert_eq!(behind.status, StatusCode::RANGE_NOT_SATISFIABLE);
        assert_eq!(behind.header(&CONTENT_RANGE), format!("bytes */{total}"));
        let foreign = client.send(house.request("GET", &format!("/v1/artifacts/{core}")), "").await;
        assert_eq!(foreign.status, StatusCode::NOT_FOUND);
        let garbage = client.send(house.request("GET", "/v1/artifacts/x"), "").await;
        assert_eq!(garbage.status, StatusCode::BAD_REQUEST);
    }
}

#[tokio::test]
async fn root_1_is_for_anybody_byte_for_byte_and_a_request_to_enrol_must_be_one() {
    let house = House::public().await;
    let mut client = house.client(Speaks::Http2).await;
    let plain =
        |method: &str, path: &str| Request::builder().method(method).uri(format!("https://localhost{path}"));
    let root = client.send(plain("GET", "/v1/trust/1"), "").await;
    assert_eq!((root.status, Digest::of(&root.body)), (StatusCode::OK, house.world.root()));
    assert_eq!(client.send(plain("GET", "/v1/trust/2"), "").await.status, StatusCode::NOT_FOUND);
    assert_eq!(client.send(plain("GET", "/v1/trust/x"), "").await.status, StatusCode::BAD_REQUEST);
    let mut request = house.world.request(World::claims("t", "", 1), "new", &SigningKey::generate());
    let good = serde_json::to_vec(&request).expect("JSON");
    request.claims = "garbage".into();
    let bad_claims = serde_json::to_vec(&request).expect("JSON");
    for body in [b"{".to_vec(), b"[]".to_vec(), Vec::new(), bad_claims] {
        assert_eq!(client.send(plain("POST", "/v1/enroll"), body).await.status, StatusCode::BAD_REQUEST);
    }
    assert!(house.objects.list(record::PENDING, None, 9).await.expect("a disk").is_empty());
    for _ in 0..2 {
        let answer = client.send(plain("POST", "/v1/enroll"), good.clone()).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED);
    }
    assert_eq!(house.objects.list(record::PENDING, None, 9).await.expect("a disk").len(), 1);
}

#[tokio::test]
async fn a_publisher_has_no_public_route() {
    let house = House::open(Door::Health, Limits::default()).await;
    let mut client = house.client(Speaks::Http2).await;
    for (path, status) in [
        ("/healthz", StatusCode::OK),
        ("/v1/desired", StatusCode::NOT_FOUND),
        ("/v1/trust/1", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(client.send(house.request("GET", path), "").await.status, status, "{path}");
    }
}

/// Reads until the hub closes the connection, however it does.
async fn is_closed(mut stream: impl tokio::io::AsyncRead + Unpin) {
    let mut bytes = vec![0; 1024];
    let closed = async { while matches!(stream.read(&mut bytes).await, Ok(1..)) {} };
    tokio::time::timeout(Duration::from_secs(30), closed).await.expect("the hub cuts it");
}

#[tokio::test]
async fn a_connection_that_never_gets_to_a_request_is_cut_and_so_is_one_that_falls_silent() {
    let house = House::open(Door::Public, LIMITS).await;
    let silent = TcpStream::connect(house.address).await.expect("it listens");
    let shaken = house.tls(b"h2").await;
    let mut begun = house.tls(b"http/1.1").await;
    begun.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n").await.expect("open");
    let mut prefaced = house.tls(b"h2").await;
    prefaced.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("open");
    let mut idle = house.tls(b"http/1.1").await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("open");
    tokio::join!(
        is_closed(silent),
        is_closed(shaken),
        is_closed(begun),
        is_closed(prefaced),
        is_closed(idle)
    );
}

#[tokio::test]
async fn a_connection_beyond_the_limit_waits_until_one_is_over() {
    let limits = Limits { connections: 1, ..Limits::default() };
    let house = House::open(Door::Public, limits).await;
    let mut only = house.client(Speaks::Http1).await;
    assert_eq!(only.send(house.request("GET", "/v1/desired"), "").await.status, StatusCode::OK);
    let mut second = Box::pin(house.tls(b"http/1.1"));
    let opened = tokio::time::timeout(Duration::from_millis(300), &mut second).await;
    assert!(opened.is_err(), "there is room for one");
    drop(only);
    let opened = tokio::time::timeout(Duration::from_secs(20), second).await;
    assert!(opened.is_ok(), "its turn has come");
}

#[tokio::test]
async fn a_request_in_flight_ends_before_the_hub_does_and_nobody_new_is_let_in() {
    let limits = Limits { quiet: Duration::from_secs(60), ..LIMITS };
    let house = House::open(Door::Public, limits).await;
    let body = house.status(&house.key, 1);
    let mut open = house.tls(b"http/1.1").await;
    let (pass, length) = (house.pass(), body.len());
    let head = format!(
        "POST /v1/status HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {pass}\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
    );
    open.write_all(head.as_bytes()).await.expect("open");
    // The hub asks for the body: the request is in its hands.
    let mut asked = [0; 25];
    open.read_exact(&mut asked).await.expect("an interim answer");
    assert!(asked.starts_with(b"HTTP/1.1 100"));
    let stalled = TcpStream::connect(house.address).await.expect("it listens");
    house.stop.send(true).expect("it runs");
    let refused = async { while TcpStream::connect(house.address).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(30), refused).await.expect("nobody new is let in");
    open.write_all(&body).await.expect("still open");
    let mut answer = Vec::new();
    open.read_to_end(&mut answer).await.expect("a whole answer");
    assert!(answer.starts_with(b"HTTP/1.1 204"), "{}", String::from_utf8_lossy(&answer));
    is_closed(stalled).await;
    house.serving.await.expect("it ends");
}

#[tokio::test]
async fn a_certificate_is_replaced_under_a_live_server_and_open_connections_go_on() {
    let house = House::public().await;
    let mut open = house.client(Speaks::Http1).await;
    let other = tempfile::tempdir().expect("a temporary folder");
    let new = TlsFiles::own(other.path()).expect("an empty folder");
    let old = other.path().join("old.pem");
    std::fs::copy(&house.tls.cert, &old).expect("a file of ours");
    std::fs::copy(&new.cert, &house.tls.cert).expect("a file of ours");
    house.certificate.look().expect_err("the key is of the other certificate");
    house.dial(&old, b"h2").await.expect("the certificate before is still shown");
    std::fs::copy(&new.key, &house.tls.key).expect("a file of ours");
    assert_eq!(house.certificate.look().expect("a pair"), Looked::Replaced);
    house.dial(&new.cert, b"h2").await.expect("the new certificate is shown");
    house.dial(&old, b"h2").await.expect_err("and the old one is not");
    assert_eq!(open.send(house.request("GET", "/healthz"), "").await.status, StatusCode::OK);
    std::fs::write(&house.tls.cert, "garbage").expect("a file of ours");
    house.certificate.look().expect_err("it cannot be used");
    house.dial(&new.cert, b"http/1.1").await.expect("the last good one is shown");
}

#[tokio::test]
async fn an_answer_has_the_caller_s_id_or_one_of_its_own_and_a_304_has_none() {
    let house = House::public().await;
    for speaks in DOORS {
        let mut client = house.client(speaks).await;
        let first =
            client.send(house.request("GET", "/v1/desired").header("x-request-id", "mine-1"), "").await;
        assert_eq!(first.headers["x-request-id"], "mine-1", "{speaks:?}");
        let again = house.request("GET", "/v1/desired").header(IF_NONE_MATCH, first.header(&ETAG));
        let again = client.send(again.header("x-request-id", "mine-2"), "").await;
        assert_eq!(again.status, StatusCode::NOT_MODIFIED);
        assert!(!again.headers.contains_key("x-request-id"), "its bytes are paid for by a site");
        let bad = house.request("GET", "/v2").header("x-request-id", "not an id");
        let own = client.send(bad, "").await;
        assert_eq!(own.headers["x-request-id"].len(), 26, "a ULID");
    }
}

#[tokio::test]
async fn a_function_says_that_it_cannot_hold_a_request() {
    let house = House::public().await;
    let answer = house.client(Speaks::Events).await.send(house.request("GET", "/v1/wake"), "").await;
    assert_eq!(answer.status, StatusCode::NOT_IMPLEMENTED);
    assert!(answer.headers.contains_key("date") && answer.headers.contains_key("x-request-id"));
}
