//! What is counted, with bounded labels: words of the program, never names from outside.
//!
//! [`Metrics`] is what one hub counts; `rooms` has what a process counts once. A new room gets a struct of
//! handles there, and a line in `docs/operations.md`, which a test demands.

mod rooms;

use std::time::Duration;

use http::StatusCode;
use prometheus::{
    Encoder as _, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

use crate::directory::Counts;
use crate::publish::SourceStates;
use crate::retention::Kind;
use crate::routes::Route;
use crate::status::Queued;

pub use rooms::{Calls, Tls};
pub(crate) use rooms::{index, objects, tls};

/// The metrics of one process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    seconds: HistogramVec,
    /// The sequence of the last publication that this process knows of.
    pub sequence: IntGauge,
    /// Clusters that are registered, as the publisher counted last.
    pub clusters: IntGauge,
    /// Those of them that wait for a roster, or to be moved to their group.
    pub moving: IntGauge,
    steps: IntCounterVec,
    /// Polls with nothing new: looked up once.
    steady: IntCounter,
    view: ViewGauges,
    waiting: WaitingGauges,
    sources: IntGaugeVec,
    failing: IntGaugeVec,
    collected: IntCounterVec,
    collected_bytes: IntCounterVec,
}

const MADE: &str = "metric names are valid and registered once";

/// Makes metrics, and registers them.
struct Made<'a>(&'a Registry);

impl Made<'_> {
    fn registered<C: prometheus::core::Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let made = made.expect(MADE);
        self.0.register(Box::new(made.clone())).expect(MADE);
        made
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.registered(IntCounterVec::new(Opts::new(name, help), labels))
    }

    fn by_kind(&self, name: &str, help: &str) -> IntCounterVec {
        self.counters(name, help, &["kind"])
    }

    fn times(&self, name: &str, help: &str, buckets: Vec<f64>) -> HistogramVec {
        self.registered(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), &["route"]))
    }

    fn gauges(&self, name: &str, help: &str, label: &str) -> IntGaugeVec {
        self.registered(IntGaugeVec::new(Opts::new(name, help), &[label]))
    }

    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.registered(IntGauge::new(name, help))
    }

    fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.registered(IntCounter::new(name, help))
    }
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
        let made = Made(registry);
        Self {
            clusters: made.gauge("farshore_hub_view_clusters", "Clusters in the directory's snapshot."),
            loaded: made.gauge("farshore_hub_view_loaded_clusters", "Clusters in memory."),
            shards: made.gauge("farshore_hub_view_shards", "Shards of the directory in memory."),
            bytes: made.gauge("farshore_hub_view_bytes", "Bytes that they take; --view-limit bounds them."),
            loads: made.counter("farshore_hub_view_loads_total", "Shards that were loaded."),
            evictions: made.counter("farshore_hub_view_evictions_total", "Shards dropped for want of room."),
        }
    }

    fn set(&self, counts: &Counts) {
        self.clusters.set(number(counts.clusters));
        self.loaded.set(number(counts.loaded));
        self.shards.set(number(counts.shards));
        self.bytes.set(number(counts.bytes));
        self.loads.inc_by(counts.loads.saturating_sub(self.loads.get()));
        self.evictions.inc_by(counts.evictions.saturating_sub(self.evictions.get()));
    }
}

/// What waits at a replica.
#[derive(Debug)]
struct WaitingGauges {
    agents: IntGauge,
    reports: IntGauge,
    bytes: IntGauge,
}

impl WaitingGauges {
    fn registered(registry: &Registry) -> Self {
        let made = Made(registry);
        Self {
            agents: made
                .gauge("farshore_hub_waiting_agents", "Agents that wait for news; --wake-limit bounds them."),
            reports: made.gauge(
                "farshore_hub_waiting_reports",
                "Reports of sites that have arrived and are not in the record yet.",
            ),
            bytes: made.gauge("farshore_hub_waiting_report_bytes", "Bytes of these."),
        }
    }
}

fn number<T: TryInto<i64>>(count: T) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
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
        let made = Made(&registry);
        let requests = made.counters(
            "farshore_hub_requests_total",
            "Requests answered, by route and status code.",
            &["route", "code"],
        );
        let seconds = made.times(
            "farshore_hub_request_seconds",
            "Time to answer, by route, in seconds.",
            vec![0.0005, 0.002, 0.01, 0.05, 0.25, 1.0, 5.0],
        );
        for collector in rooms::collectors() {
            registry.register(collector).expect(MADE);
        }
        let steady = requests.with_label_values(&[Route::Desired.label(), "304"]);
        Self {
            steady,
            requests,
            seconds,
            sequence: made.gauge(
                "farshore_hub_sequence",
                "Sequence of the last publication that this process knows of.",
            ),
            clusters: made.gauge("farshore_hub_clusters", "Clusters that are registered."),
            moving: made.gauge("farshore_hub_moving_clusters", "Clusters without a roster of their group."),
            steps: made.counters(
                "farshore_hub_publish_steps_total",
                "Steps of the publisher, by outcome.",
                &["outcome"],
            ),
            view: ViewGauges::registered(&registry),
            waiting: WaitingGauges::registered(&registry),
            sources: made.gauges(
                "farshore_hub_sources",
                "Sources that this publisher looks at, by state.",
                "state",
            ),
            failing: made.gauges(
                "farshore_hub_source_failures",
                "How often in a row a source failed; absent while it does not; at most 1000 are shown.",
                "source",
            ),
            collected: made
                .by_kind("farshore_hub_collected_objects_total", "Unneeded objects deleted, by kind."),
            collected_bytes: made.by_kind("farshore_hub_collected_bytes_total", "Bytes of these, by kind."),
            registry,
        }
    }

    /// Counts a poll that was answered from memory. Its time, some microseconds, is not observed.
    pub fn count_steady(&self) {
        self.steady.inc();
    }

    /// Takes what the view has in memory, before the text is made.
    pub fn set_view(&self, counts: &Counts) {
        self.view.set(counts);
    }

    /// Takes how many agents wait for news, and which reports are not in the record yet, before the text is made.
    pub fn set_waiting(&self, agents: usize, reports: Queued) {
        self.waiting.agents.set(number(agents));
        self.waiting.reports.set(number(reports.reports));
        self.waiting.bytes.set(number(reports.bytes));
    }

    /// Shows how many clusters there are, and how many of them wait for a roster or to be moved.
    pub fn note_clusters(&self, clusters: usize, moving: u64) {
        self.clusters.set(number(clusters));
        self.moving.set(number(moving));
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
            self.sources.with_label_values(&[state]).set(number(count));
        }
        self.failing.reset();
        for (source, times) in states.failing.iter().take(SOURCES_SHOWN) {
            self.failing.with_label_values(&[source]).set(i64::from(*times));
        }
    }

    /// Counts one unneeded object that was deleted.
    pub fn collected(&self, kind: Kind, bytes: u64) {
        self.collected.with_label_values(&[kind.label()]).inc();
        self.collected_bytes.with_label_values(&[kind.label()]).inc_by(bytes);
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
