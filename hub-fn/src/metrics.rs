//! What is counted, with bounded labels: routes and status codes, never names.

use std::time::Duration;

use http::StatusCode;
use prometheus::{
    Encoder as _, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

use crate::directory::Counts;
use crate::publish::SourceStates;
use crate::routes::Route;

/// The metrics of one process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    seconds: HistogramVec,
    /// The sequence of the last publication that this process made or found.
    pub sequence: IntGauge,
    /// Clusters that are registered, as the publisher counted last.
    pub clusters: IntGauge,
    steps: IntCounterVec,
    /// Polls with nothing new: looked up once.
    steady: IntCounter,
    view: ViewGauges,
    sources: IntGaugeVec,
    failing: IntGaugeVec,
}

/// What a replica has in memory.
#[derive(Debug)]
struct ViewGauges {
    clusters: IntGauge,
    loaded: IntGauge,
    shards: IntGauge,
    bytes: IntGauge,
    loads: IntCounter,
    evictions: IntCounter,
}

impl ViewGauges {
    fn registered(registry: &Registry) -> Self {
        let made = "metric names are valid and registered once";
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::new(name, help).expect(made);
            registry.register(Box::new(gauge.clone())).expect(made);
            gauge
        };
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(name, help).expect(made);
            registry.register(Box::new(counter.clone())).expect(made);
            counter
        };
        Self {
            clusters: gauge("farshore_hub_view_clusters", "Clusters in the directory's snapshot."),
            loaded: gauge("farshore_hub_view_loaded_clusters", "Clusters in memory."),
            shards: gauge("farshore_hub_view_shards", "Shards of the directory in memory."),
            bytes: gauge("farshore_hub_view_bytes", "Bytes that they take; --view-limit bounds them."),
            loads: counter("farshore_hub_view_loads_total", "Shards that were loaded."),
            evictions: counter("farshore_hub_view_evictions_total", "Shards dropped for want of room."),
        }
    }

    fn set(&self, counts: &Counts) {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.clusters.set(number(counts.clusters));
        self.loaded.set(number(counts.loaded));
        self.shards.set(number(counts.shards));
        self.bytes.set(number(counts.bytes));
        self.loads.inc_by(counts.loads.saturating_sub(self.loads.get()));
        self.evictions.inc_by(counts.evictions.saturating_sub(self.evictions.get()));
    }
}

/// How many failing sources are shown by name.
const SOURCES_SHOWN: usize = 1_000;

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// A registry with everything at zero.
    ///
    /// # Panics
    /// Never: the names are constants and registered once.
    #[must_use]
    pub fn new() -> Self {
        let registry = Registry::new();
        let made = "metric names are valid and registered once";
        let requests = IntCounterVec::new(
            Opts::new("farshore_hub_requests_total", "Requests answered, by route and status code."),
            &["route", "code"],
        )
        .expect(made);
        let seconds = HistogramVec::new(
            HistogramOpts::new("farshore_hub_request_seconds", "Time to answer, by route, in seconds.")
                .buckets(vec![0.0005, 0.002, 0.01, 0.05, 0.25, 1.0, 5.0]),
            &["route"],
        )
        .expect(made);
        let sequence =
            IntGauge::new("farshore_hub_sequence", "Sequence of the last publication.").expect(made);
        let clusters = IntGauge::new("farshore_hub_clusters", "Clusters that are registered.").expect(made);
        let steps = IntCounterVec::new(
            Opts::new("farshore_hub_publish_steps_total", "Steps of the publisher, by outcome."),
            &["outcome"],
        )
        .expect(made);
        let sources = IntGaugeVec::new(
            Opts::new("farshore_hub_sources", "Sources that this publisher looks at, by state."),
            &["state"],
        )
        .expect(made);
        let failing = IntGaugeVec::new(
            Opts::new(
                "farshore_hub_source_failures",
                "How often in a row a source failed; absent while it does not; at most 1000 are shown.",
            ),
            &["source"],
        )
        .expect(made);
        registry.register(Box::new(sources.clone())).expect(made);
        registry.register(Box::new(failing.clone())).expect(made);
        registry.register(Box::new(requests.clone())).expect(made);
        registry.register(Box::new(seconds.clone())).expect(made);
        registry.register(Box::new(sequence.clone())).expect(made);
        registry.register(Box::new(clusters.clone())).expect(made);
        registry.register(Box::new(steps.clone())).expect(made);
        let steady = requests.with_label_values(&[Route::Desired.label(), "304"]);
        let view = ViewGauges::registered(&registry);
        Self { registry, requests, seconds, sequence, clusters, steps, steady, view, sources, failing }
    }

    /// Counts a poll that was answered from memory. Its time, some microseconds, is not observed.
    pub fn count_steady(&self) {
        self.steady.inc();
    }

    /// Takes what the view has in memory, before the text is made.
    pub fn set_view(&self, counts: &Counts) {
        self.view.set(counts);
    }

    /// Counts one request.
    pub fn count(&self, route: Route, status: StatusCode, took: Duration) {
        self.requests.with_label_values(&[route.label(), status.as_str()]).inc();
        self.seconds.with_label_values(&[route.label()]).observe(took.as_secs_f64());
    }

    /// Counts one step of the publisher.
    pub fn count_step(&self, outcome: &str) {
        self.steps.with_label_values(&[outcome]).inc();
    }

    /// Shows how the sources stand.
    pub fn note_sources(&self, states: &SourceStates) {
        let (failed, held) = (states.failing.len(), states.held);
        let ready = states.looked.saturating_sub(failed + held);
        for (state, count) in [("ready", ready), ("held", held), ("failed", failed)] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.sources.with_label_values(&[state]).set(count);
        }
        self.failing.reset();
        for (source, times) in states.failing.iter().take(SOURCES_SHOWN) {
            self.failing.with_label_values(&[source]).set(i64::from(*times));
        }
    }

    /// Prometheus text, version 0.0.4.
    ///
    /// # Panics
    /// Never: writing to memory cannot fail.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        let mut out = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut out).expect("writing to memory cannot fail");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_counted_under_its_route_and_code() {
        let metrics = Metrics::new();
        metrics.count(Route::Desired, StatusCode::NOT_MODIFIED, Duration::from_millis(1));
        let text = String::from_utf8(metrics.text()).expect("Prometheus text is UTF-8");
        assert!(text.contains(r#"farshore_hub_requests_total{code="304",route="desired"} 1"#), "{text}");
    }
}
