//! The trace of a publication, from the webhook or the look at Git to the first report, as a collector of OTLP
//! receives it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use farshore_chaos::kit::{KitError, wait_for};
use farshore_chaos::world::declare::config_map;
use farshore_chaos::world::{Target, World};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

const SOON: Duration = Duration::from_secs(60);

/// What arrived, decoded.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

impl Collector {
    /// Listens, and returns its address.
    async fn start(&self) -> std::io::Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("http://{}", listener.local_addr()?);
        let collector = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _peer)) = listener.accept().await {
                let collector = collector.clone();
                let service = service_fn(move |request| {
                    let collector = collector.clone();
                    async move { Ok::<_, Infallible>(collector.take(request).await) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Ok(address)
    }

    async fn take(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        assert_eq!(request.uri().path(), "/v1/traces");
        assert_eq!(request.headers()["content-type"], "application/x-protobuf");
        let body = request.into_body().collect().await.expect("a whole request").to_bytes();
        let exported = ExportTraceServiceRequest::decode(body).expect("what OTLP says");
        let spans = exported.resource_spans.into_iter().flat_map(|of| of.scope_spans).flat_map(|of| of.spans);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(spans);
        Response::new(Full::default())
    }

    /// The spans of each trace.
    fn traces(&self) -> BTreeMap<Vec<u8>, Vec<Span>> {
        let mut traces: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for span in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            traces.entry(span.trace_id.clone()).or_default().push(span.clone());
        }
        traces
    }

    /// The first trace that has spans of all these names.
    async fn whole_trace(&self, names: &[&str]) -> Result<Vec<Span>, KitError> {
        wait_for("a trace with all of its spans", SOON, async || {
            let traces = self.traces();
            let has = |spans: &[Span], name: &str| spans.iter().any(|span| span.name == name);
            let whole = |spans: &&Vec<Span>| names.iter().all(|name| has(spans, name));
            let told =
                || traces.values().map(|spans| spans.iter().map(|s| s.name.clone()).collect::<Vec<_>>());
            traces.values().find(whole).cloned().ok_or_else(|| format!("{:?}", told().collect::<Vec<_>>()))
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publication_is_one_trace_from_git_to_the_report_of_a_site() -> Result<(), KitError> {
    let collector = Collector::default();
    let endpoint = collector.start().await.expect("a free port");
    let mut world = World::on_disk("till", &[("a.yaml", &config_map("a", "one"))]).await?;
    world.hub = world
        .hub
        .variable("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)
        .variable("OTEL_BSP_SCHEDULE_DELAY", "100");
    world.hub.start().await?;
    let site = world.site("shop-1", Target::Directory).await?;
    wait_for("the site to have its object", SOON, async || site.config_map("till", "a").map(|_| ())).await?;
    world.commit(&[("a.yaml", &config_map("a", "two"))])?;
    let spans = collector.whole_trace(&["publication", "sync", "poll", "report"]).await?;
    assert_hangs_together(&spans);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_is_the_first_span_of_the_publication_that_it_brought() -> Result<(), KitError> {
    let collector = Collector::default();
    let endpoint = collector.start().await.expect("a free port");
    let mut world = World::on_disk("till", &[("a.yaml", &config_map("a", "one"))]).await?;
    let secrets = world.fleet.data("secrets");
    std::fs::create_dir_all(&secrets).expect("a folder of ours");
    std::fs::write(secrets.join("app"), SECRET).expect("a folder of ours");
    world.hub = world
        .hub
        .option("--interval=1h")
        .option(format!("--hook-secrets={}", secrets.display()))
        .variable("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)
        .variable("OTEL_BSP_SCHEDULE_DELAY", "100");
    world.hub.start().await?;
    let site = world.site("shop-1", Target::Directory).await?;
    wait_for("the site to have its object", SOON, async || site.config_map("till", "a").map(|_| ())).await?;
    let (address, certificate) = (world.hub.address(), world.fleet.data("hub").join("tls/cert.pem"));
    // One before the push as well: whatever look brings the commit, a webhook has come before it.
    assert_eq!(push(&address, &certificate, "before").await, "202");
    world.commit(&[("a.yaml", &config_map("a", "two"))])?;
    assert_eq!(push(&address, &certificate, "after").await, "202");
    let spans = collector.whole_trace(&["hook", "publication", "sync", "poll", "report"]).await?;
    assert_hangs_together(&spans);
    let mut hooks: Vec<&Span> = spans.iter().filter(|span| span.name == "hook").collect();
    hooks.sort_by_key(|hook| hook.start_time_unix_nano);
    let hook = hooks.first().expect("it is whole");
    assert!(spans.iter().all(|span| hook.start_time_unix_nano <= span.end_time_unix_nano), "{spans:?}");
    let source = hook.attributes.iter().find(|attribute| attribute.key == "farshore.source");
    assert!(format!("{source:?}").contains("\"app\""), "{source:?}");
    Ok(())
}

const SECRET: &str = "a secret of both";

/// Tells the hub of a push to the source `app`, as GitLab does, and returns the status code.
async fn push(address: &str, certificate: &Path, body: &str) -> String {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(certificate).expect("the hub has made one") {
        roots.add(certificate.expect("a certificate")).expect("a root");
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(address).await.expect("the hub listens");
    let name = ServerName::try_from("localhost").expect("a name");
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("TLS");
    let request = format!(
        "POST /v1/hooks/git/app HTTP/1.1\r\nhost: {address}\r\nx-gitlab-token: {SECRET}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.expect("the hub listens");
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.expect("an answer");
    String::from_utf8_lossy(&status[9..]).into_owned()
}

fn assert_hangs_together(spans: &[Span]) {
    let root = spans.iter().find(|span| span.name == "publication").expect("it is whole");
    assert!(root.parent_span_id.is_empty(), "a publication begins the trace");
    for span in spans.iter().filter(|span| span.name != "publication") {
        assert_eq!(span.parent_span_id, root.span_id, "{}", span.name);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{}", span.name);
        assert!(span.attributes.iter().any(|attribute| attribute.key == "farshore.sequence"));
    }
}
