//! The client against peers that misbehave, on plain sockets and over TLS.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use farshore_shared::compress;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::Envelope;
use farshore_shared::keys::{Secret, SigningKey};
use farshore_shared::wire::{Artifact, Desired};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::store::{Found, Keys, SealingKey, Store, StoreError};

const SOON: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(20);

/// What a scripted peer does with one request.
pub(crate) enum Reply {
    /// Answers and keeps the connection.
    Whole(Vec<u8>),
    /// Answers and closes.
    Cut(Vec<u8>),
    /// Answers so much, and then nothing.
    Stall(Vec<u8>),
    /// Answers so much, and then a byte at a time, for ever.
    Trickle(Vec<u8>),
}

/// Starts a peer that answers the head of each request by a script.
pub(crate) async fn peer(script: impl Fn(&str, &[u8]) -> Reply + Send + Sync + 'static) -> HubUrl {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound")).parse().expect("an address");
    let script = Arc::new(script);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, script.clone()));
        }
    });
    url
}

async fn serve(mut stream: TcpStream, script: Arc<impl Fn(&str, &[u8]) -> Reply>) {
    while let Some((head, body)) = request(&mut stream).await {
        match script(&head, &body) {
            Reply::Whole(bytes) => stream.write_all(&bytes).await.expect("written"),
            Reply::Cut(bytes) => return stream.write_all(&bytes).await.expect("written"),
            Reply::Stall(bytes) => {
                stream.write_all(&bytes).await.expect("written");
                std::future::pending::<()>().await;
            }
            Reply::Trickle(bytes) => {
                stream.write_all(&bytes).await.expect("written");
                let mut ticks = tokio::time::interval(Duration::from_millis(10));
                while stream.write_all(b" ").await.is_ok() {
                    ticks.tick().await;
                }
            }
        }
    }
}

/// One request's head, in lower case, and its body.
async fn request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).expect("a head is text").to_lowercase();
    let length = header(&head, "content-length").map_or(0, |text| text.parse().expect("a number"));
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some((head, body))
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

pub(crate) fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes =
        format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

pub(crate) const JSON: &str = "content-type: application/json\r\n";

fn caller() -> Caller {
    let keys = Keys {
        cluster: "shop-7".parse().expect("a name"),
        signing: SigningKey::generate(),
        sealing: SealingKey::from_secret(Secret::random()),
    };
    Caller { keys: Arc::new(keys), fleet: Digest::of(b"root") }
}

fn client(hub: HubUrl, patience: Duration) -> HubClient {
    HubClient::new(hub, &Trust::Bootstrap, Some(caller()), patience).expect("needs nothing")
}

fn desired() -> Desired {
    let envelope = Envelope { payload_type: "t".into(), payload: "e30=".into(), signatures: vec![] };
    Desired { roster: Some(envelope.clone()), group: Some(envelope) }
}

#[tokio::test]
async fn documents_and_hints_are_read() {
    let body = compress::pack(&serde_json::to_vec(&desired()).expect("json"));
    let hub = peer(move |head, _| {
        assert!(header(head, "farshore-pass").is_some_and(|pass| pass.starts_with("ey")));
        assert_eq!(header(head, "accept-encoding"), Some("zstd"));
        let headers =
            format!("{JSON}content-encoding: zstd\r\nfarshore-tag: \"x\"\r\nfarshore-poll-after: 7\r\n");
        Reply::Whole(answer("200 OK", &headers, &body))
    })
    .await;
    let mut client = client(hub, LONG);
    let heard = client.desired(None).await.expect("documents");
    assert_eq!(heard.poll_after, Some(Duration::from_secs(7)));
    assert_eq!(heard.answer, DesiredAnswer::Documents { desired: desired(), etag: Some("\"x\"".to_owned()) });
    let traffic = client.take_traffic();
    assert!(traffic.sent > 100 && traffic.received > 100, "{traffic:?}");
    assert_eq!(client.take_traffic(), Traffic::default());
}

#[tokio::test]
async fn a_304_tells_whether_the_hub_is_behind() {
    let count = AtomicUsize::new(0);
    let hub = peer(move |head, _| {
        assert_eq!(header(head, "farshore-holds"), Some("\"x\""));
        let behind = if count.fetch_add(1, Ordering::Relaxed) == 0 { "farshore-behind: 1\r\n" } else { "" };
        Reply::Whole(format!("HTTP/1.1 304 Not Modified\r\n{behind}\r\n").into_bytes())
    })
    .await;
    let mut client = client(hub, LONG);
    for behind in [true, false] {
        let heard = client.desired(Some("\"x\"")).await.expect("not modified");
        assert_eq!(heard.answer, DesiredAnswer::NotModified { behind });
    }
}

#[tokio::test]
async fn a_captive_portal_is_not_our_hub() {
    let portal = [
        answer("200 OK", "content-type: text/html\r\n", b"<html>pay here</html>"),
        answer("302 Found", "location: http://portal/\r\n", b""),
        answer("404 Not Found", "content-type: text/html\r\n", b"<html></html>"),
        answer("304 Not Modified", "", b""),
    ];
    for bytes in portal {
        let hub = peer(move |_, _| Reply::Whole(bytes.clone())).await;
        let mut client = client(hub, LONG);
        assert!(matches!(client.trust(2).await, Err(HubError::NotOurHub { .. })));
        assert!(matches!(client.desired(None).await, Err(HubError::NotOurHub { .. })));
        assert!(matches!(client.artifact(Digest::of(b"a"), 0).await, Err(HubError::NotOurHub { .. })));
    }
    let hub = peer(|_, _| Reply::Whole(answer("200 OK", "content-type: text/html\r\n", b"ok"))).await;
    let report = Envelope { payload_type: "t".into(), payload: String::new(), signatures: vec![] };
    assert!(matches!(client(hub, LONG).status(&report).await, Err(HubError::NotOurHub { .. })));
}

#[tokio::test]
async fn the_hub_s_own_answers_are_told_apart() {
    let hub = peer(|head, _| {
        let problem = br#"{"error":"no such thing"}"#;
        Reply::Whole(match head.split_whitespace().nth(1).expect("a path") {
            "/v1/trust/9" => answer("404 Not Found", JSON, problem),
            "/v1/desired" => answer("503 Service Unavailable", "retry-after: 30\r\n", b""),
            "/v1/status" => answer("204 No Content", "", b""),
            _ => answer("403 Forbidden", JSON, problem),
        })
    })
    .await;
    let mut client = client(hub, LONG);
    assert_eq!(client.trust(9).await.expect("an answer"), None);
    let busy = client.desired(None).await.expect_err("busy");
    assert!(
        matches!(busy, HubError::Busy { status: 503, retry_after: Some(after) } if after.as_secs() == 30)
    );
    let Err(refused) = client.artifact(Digest::of(b"a"), 0).await else { panic!("it was refused") };
    assert_eq!(refused.to_string(), "hub refuses (status 403): no such thing");
    assert!(!refused.is_retryable());
    let report = Envelope { payload_type: "t".into(), payload: String::new(), signatures: vec![] };
    client.status(&report).await.expect("confirmed");
}

#[tokio::test]
async fn oversized_answers_stop_at_their_limit() {
    let zeros = vec![b' '; 5 << 20];
    let packed = compress::pack(&zeros);
    for (headers, body) in [(JSON.to_owned(), zeros), (format!("{JSON}content-encoding: zstd\r\n"), packed)] {
        let hub = peer(move |_, _| Reply::Whole(answer("200 OK", &headers, &body))).await;
        let refused = client(hub, LONG).desired(None).await.expect_err("too much");
        assert!(matches!(refused, HubError::TooLarge { limit, .. } if limit == 4 << 20), "{refused}");
    }
    let hub = peer(|_, _| {
        let headers = format!("{JSON}x: {}\r\n", "y".repeat(1 << 20));
        Reply::Whole(answer("200 OK", &headers, b"{}"))
    })
    .await;
    assert!(matches!(client(hub, LONG).desired(None).await, Err(HubError::Unreachable { .. })));
}

#[tokio::test]
async fn a_peer_that_stalls_or_trickles_is_given_up() {
    let begun = || format!("HTTP/1.1 200 OK\r\n{JSON}content-length: 100000\r\n\r\n{{").into_bytes();
    let hubs = [
        peer(|_, _| Reply::Stall(Vec::new())).await,
        peer(move |_, _| Reply::Stall(begun())).await,
        peer(move |_, _| Reply::Trickle(begun())).await,
    ];
    for hub in hubs {
        let gone = client(hub, SOON).desired(None).await.expect_err("no progress");
        let source = std::error::Error::source(&gone).map(ToString::to_string);
        assert_eq!(source.as_deref(), Some("no progress within 200 ms"));
        assert!(gone.is_retryable());
    }
}

#[tokio::test]
async fn a_connection_that_died_while_idle_is_replaced_silently() {
    let body = serde_json::to_vec(&desired()).expect("json");
    let hub = peer(move |_, _| Reply::Cut(answer("200 OK", JSON, &body))).await;
    let mut client = client(hub, LONG);
    for _ in 0..3 {
        client.desired(None).await.expect("documents");
    }
}

#[tokio::test]
async fn a_pass_dated_wrongly_is_made_anew_once() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let passes = seen.clone();
    let hub = peer(move |head, _| {
        let mut passes = passes.lock().expect("not poisoned");
        passes.push(header(head, "farshore-pass").expect("a pass").to_owned());
        let headers = format!("{JSON}date: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
        Reply::Whole(answer("401 Unauthorized", &headers, br#"{"error":"bad time"}"#))
    })
    .await;
    let refused = client(hub, LONG).desired(None).await.expect_err("refused twice");
    assert!(matches!(refused, HubError::Refused { status: 401, .. }));
    let seen = seen.lock().expect("not poisoned");
    assert!(seen.len() == 2 && seen[0] != seen[1], "{seen:?}");
}

struct Case {
    _temp: tempfile::TempDir,
    content: crate::store::Content,
    bytes: Arc<Vec<u8>>,
    artifact: Artifact,
}

fn case() -> Case {
    let temp = tempfile::tempdir().expect("a folder");
    let content = Store::open(temp.path()).expect("new").content();
    let bytes: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
    let digest = Digest::of(&bytes);
    let artifact =
        Artifact { digest, size: bytes.len().try_into().expect("small"), tar_digest: digest, tar_size: 0 };
    Case { _temp: temp, content, bytes: Arc::new(bytes), artifact }
}

fn ranged(head: &str, bytes: &[u8]) -> (Vec<u8>, usize) {
    let range = header(head, "range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-'));
    let start: usize = range.map_or(0, |start| start.parse().expect("a number"));
    let total = bytes.len();
    let head = if start == 0 {
        answer("200 OK", "", bytes)
    } else {
        let headers = format!("content-range: bytes {start}-{}/{total}\r\n", total - 1);
        answer("206 Partial Content", &headers, &bytes[start..])
    };
    (head, start)
}

#[tokio::test]
async fn a_proxy_that_cuts_at_64_kb_lets_an_artifact_through() {
    let case = case();
    let bytes = case.bytes.clone();
    let hub = peer(move |head, _| {
        let (mut whole, _) = ranged(head, &bytes);
        whole.truncate(64 << 10);
        Reply::Cut(whole)
    })
    .await;
    fetch(&mut client(hub, LONG), &case.content, &case.artifact).await.expect("whole in the end");
    assert_eq!(case.content.get(case.artifact.digest).expect("readable"), Found::Good(case.bytes.to_vec()));
}

#[tokio::test]
async fn a_server_that_ignores_range_is_read_from_the_start() {
    let case = case();
    let mut begun = case.content.download(case.artifact.digest, case.artifact.size).expect("begun");
    begun.append(b"what an earlier attempt has left").expect("written");
    drop(begun);
    let bytes = case.bytes.clone();
    let hub = peer(move |_, _| Reply::Whole(answer("200 OK", "", &bytes))).await;
    fetch(&mut client(hub, LONG), &case.content, &case.artifact).await.expect("whole");
}

#[tokio::test]
async fn a_server_that_never_gets_further_is_given_up() {
    let case = case();
    let bytes = case.bytes.clone();
    let hub = peer(move |_, _| {
        let mut whole = answer("200 OK", "", &bytes);
        whole.truncate(64 << 10);
        Reply::Cut(whole)
    })
    .await;
    let refused = fetch(&mut client(hub, LONG), &case.content, &case.artifact).await;
    assert!(matches!(refused, Err(FetchError::Hub(HubError::Unreachable { .. }))));
}

#[tokio::test]
async fn wrong_or_resized_bytes_are_refused_and_begun_anew() {
    let case = case();
    let wrong = vec![0; case.bytes.len()];
    let hub = peer(move |_, _| Reply::Whole(answer("200 OK", "", &wrong))).await;
    let refused = fetch(&mut client(hub, LONG), &case.content, &case.artifact).await;
    assert!(matches!(refused, Err(FetchError::Store(StoreError::Mismatch { .. }))));
    let hub = peer(|_, _| Reply::Whole(answer("200 OK", "", b"short"))).await;
    let refused = fetch(&mut client(hub, LONG), &case.content, &case.artifact).await;
    assert!(matches!(refused, Err(FetchError::Store(StoreError::Length { got: 5, .. }))));
    assert_eq!(case.content.resume_offset(case.artifact.digest).expect("known"), 0);
}

/// A hub over TLS that answers every request; gives its address, its pin, and its count of
/// connections.
async fn tls_peer(alpn: &[&str]) -> (HubUrl, Digest, Arc<AtomicUsize>) {
    let made =
        rcgen::generate_simple_self_signed(vec!["elsewhere.example".to_owned()]).expect("a certificate");
    let certificate = made.cert.der().clone();
    let pin = Digest::of(
        &webpki::EndEntityCert::try_from(&certificate).expect("a certificate").subject_public_key_info(),
    );
    let key = rustls_pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("known versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("they belong together");
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("https://{}", listener.local_addr().expect("bound")).parse().expect("an address");
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            counted.fetch_add(1, Ordering::Relaxed);
            let service = service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                let tagged = request.headers().contains_key("farshore-holds");
                let response = http::Response::builder()
                    .status(if tagged { 304 } else { 200 })
                    .header("content-type", "application/json")
                    .body(Full::new(Bytes::from(if tagged { "" } else { "{}" })));
                Ok::<_, Infallible>(response.expect("a response"))
            });
            tokio::spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new());
                drop(builder.serve_connection(TokioIo::new(stream), service).await);
            });
        }
    });
    (url, pin, count)
}

#[tokio::test]
async fn a_pinned_key_is_enough_whatever_the_certificate_says() {
    for alpn in [&["h2", "http/1.1"][..], &["http/1.1"], &[]] {
        let (hub, pin, connections) = tls_peer(alpn).await;
        let trust = Trust::Pinned(vec![Digest::of(b"next key"), pin]);
        let mut client = HubClient::new(hub, &trust, Some(caller()), LONG).expect("needs nothing");
        for _ in 0..5 {
            client.desired(None).await.expect("an answer");
        }
        assert_eq!(connections.load(Ordering::Relaxed), 1, "one connection is kept for all");
    }
}

#[tokio::test]
async fn a_steady_poll_over_http_2_does_not_carry_the_pass_again() {
    let (hub, pin, _) = tls_peer(&["h2"]).await;
    let mut client = HubClient::new(hub, &Trust::Pinned(vec![pin]), Some(caller()), LONG).expect("ready");
    let tag = "\"1.1700000000000-0123abcd.1700000000000-89ab0123\"";
    for _ in 0..3 {
        client.desired(Some(tag)).await.expect("an answer");
    }
    client.take_traffic();
    client.desired(Some(tag)).await.expect("an answer");
    let traffic = client.take_traffic();
    assert!(traffic.sent + traffic.received <= 150, "{traffic:?}");
}

#[tokio::test]
async fn another_key_than_the_pinned_one_is_not_our_hub() {
    let (hub, _, _) = tls_peer(&["h2"]).await;
    let trust = Trust::Pinned(vec![Digest::of(b"another key")]);
    let mut client = HubClient::new(hub.clone(), &trust, None, LONG).expect("needs nothing");
    let refused = client.trust(1).await.expect_err("wrong pin");
    assert!(matches!(&refused, HubError::NotOurHub { why, .. } if why.contains("pins")), "{refused}");
    let mut client = HubClient::new(hub, &Trust::Bootstrap, None, LONG).expect("needs nothing");
    assert_eq!(client.trust(1).await.expect("roots prove themselves"), Some(b"{}".to_vec()));
}

#[tokio::test]
async fn a_hub_that_is_away_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let hub: HubUrl =
        format!("http://{}", listener.local_addr().expect("bound")).parse().expect("an address");
    drop(listener);
    let gone = client(hub, LONG).desired(None).await.expect_err("nobody is there");
    assert!(matches!(gone, HubError::Unreachable { .. }) && gone.is_retryable());
}

/// Demands what a task that moves between threads demands.
pub(crate) fn sendable<T: Send>(value: T) -> T {
    value
}

#[tokio::test]
async fn a_site_s_calls_can_run_on_any_thread() {
    let case = case();
    let hub = peer(|_, _| Reply::Whole(answer("503 Service Unavailable", "", b""))).await;
    let mut client = client(hub, LONG);
    assert!(sendable(client.desired(None)).await.is_err());
    assert!(sendable(fetch(&mut client, &case.content, &case.artifact)).await.is_err());
}
