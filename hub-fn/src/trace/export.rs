//! Moments as OpenTelemetry spans, sent in batches by a thread of the exporter's own.

use std::cell::Cell;
use std::sync::OnceLock;

use farshore_shared::digest::Digest;
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, TraceContextExt as _, TraceFlags, TraceId,
    TraceState, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SdkTracer, SdkTracerProvider};
use tracing::{info, warn};

use super::{ENDPOINT, JOURNAL, Moment, TraceError};

static TRACER: OnceLock<SdkTracer> = OnceLock::new();

thread_local! {
    /// The identifiers of the span that this thread makes next.
    static NEXT_TRACE: Cell<Option<TraceId>> = const { Cell::new(None) };
    static NEXT_SPAN: Cell<Option<SpanId>> = const { Cell::new(None) };
}

/// What has to be ended so that nothing is lost.
#[derive(Debug)]
pub struct Traces(Option<SdkTracerProvider>);

impl Traces {
    /// Sends what is left, for at most some seconds.
    pub async fn end(self) {
        let Some(provider) = self.0 else { return };
        match tokio::task::spawn_blocking(move || provider.shutdown()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "last traces are lost"),
            Err(error) => warn!(%error, "last traces are lost"),
        }
    }
}

/// Starts what sends traces, where [`ENDPOINT`] is set.
///
/// # Errors
/// [`TraceError`] when the variables are wrong.
pub fn start() -> Result<Traces, TraceError> {
    let Some(endpoint) = std::env::var_os(ENDPOINT) else { return Ok(Traces(None)) };
    let exporter = SpanExporter::builder().with_http().build();
    let exporter = exporter.map_err(|error| TraceError { why: error.to_string() })?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_id_generator(Ids::default())
        .with_resource(Resource::builder().with_service_name("farshore-hub").build())
        .build();
    // A second hub in one process writes into the first one's traces.
    let _ = TRACER.set(provider.tracer("farshore"));
    let _ = JOURNAL.set(Default::default());
    info!(endpoint = %endpoint.display(), "sending traces");
    Ok(Traces(Some(provider)))
}

/// Writes spans into the trace of a publication.
pub(super) fn tell(sequence: u64, moments: Vec<Moment>) {
    let Some(tracer) = TRACER.get() else { return };
    let (trace, root) = identifiers(sequence);
    let parent = SpanContext::new(trace, root, TraceFlags::SAMPLED, true, TraceState::NONE);
    for Moment { kind, of, began, ended } in moments {
        let mut attributes =
            vec![KeyValue::new("farshore.sequence", i64::try_from(sequence).unwrap_or(i64::MAX))];
        if !of.is_empty() {
            let key = if kind == "report" { "farshore.cluster" } else { "farshore.source" };
            attributes.push(KeyValue::new(key, of));
        }
        let kind_of_span = if kind == "sync" { SpanKind::Client } else { SpanKind::Server };
        let builder = SpanBuilder::from_name(kind)
            .with_kind(kind_of_span)
            .with_start_time(began)
            .with_attributes(attributes);
        let mut span = if kind == "publication" {
            NEXT_TRACE.set(Some(trace));
            NEXT_SPAN.set(Some(root));
            tracer.build_with_context(builder, &Context::new())
        } else {
            tracer.build_with_context(builder, &Context::new().with_remote_span_context(parent.clone()))
        };
        span.end_with_timestamp(ended);
    }
}

/// The same in every process. Trace Context section 3.2.2.5 asks for randomness in the right-most bytes,
/// and a digest has it everywhere.
fn identifiers(sequence: u64) -> (TraceId, SpanId) {
    let digest = Digest::of_parts([b"farshore publication".as_slice(), &sequence.to_be_bytes()]);
    let mut bytes = [0; 24];
    bytes.copy_from_slice(&digest.as_bytes()[..24]);
    let (trace, span) = bytes.split_at(16);
    let trace = u128::from_be_bytes(trace.try_into().expect("16 of 24 bytes"));
    let span = u64::from_be_bytes(span.try_into().expect("8 of 24 bytes"));
    (TraceId::from(trace), SpanId::from(span))
}

/// Random identifiers, unless the thread has some in mind.
#[derive(Debug, Default)]
struct Ids(RandomIdGenerator);

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        NEXT_TRACE.take().unwrap_or_else(|| self.0.new_trace_id())
    }

    fn new_span_id(&self) -> SpanId {
        NEXT_SPAN.take().unwrap_or_else(|| self.0.new_span_id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_knows_the_identifiers_of_a_publication() {
        assert_eq!(identifiers(7), identifiers(7));
        assert_ne!(identifiers(7).0, identifiers(8).0);
        let (trace, root) = identifiers(7);
        NEXT_TRACE.set(Some(trace));
        NEXT_SPAN.set(Some(root));
        let ids = Ids::default();
        assert_eq!((ids.new_trace_id(), ids.new_span_id()), (trace, root));
        assert_ne!(ids.new_trace_id(), trace, "they are given once");
    }
}
