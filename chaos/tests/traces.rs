//! The trace of a publication, from the look at Git to the first report, as a collector of OTLP receives it.

use std::collections::BTreeMap;
use std::convert::Infallible;
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
use tokio::net::TcpListener;

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
    let spans = wait_for("a trace with all of its spans", SOON, async || {
        let traces = collector.traces();
        let has = |spans: &[Span], name: &str| spans.iter().any(|span| span.name == name);
        let whole = |spans: &&Vec<Span>| {
            ["publication", "sync", "poll", "report"].iter().all(|name| has(spans, name))
        };
        let names = || traces.values().map(|spans| spans.iter().map(|s| s.name.clone()).collect::<Vec<_>>());
        traces.values().find(whole).cloned().ok_or_else(|| format!("{:?}", names().collect::<Vec<_>>()))
    })
    .await?;
    let root = spans.iter().find(|span| span.name == "publication").expect("it is whole");
    assert!(root.parent_span_id.is_empty(), "a publication begins the trace");
    for span in spans.iter().filter(|span| span.name != "publication") {
        assert_eq!(span.parent_span_id, root.span_id, "{}", span.name);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{}", span.name);
        assert!(span.attributes.iter().any(|attribute| attribute.key == "farshore.sequence"));
    }
    Ok(())
}
