//! What is counted, with bounded labels: words of the program, never names from outside.
//!
//! [`Metrics`] is what one hub counts; [`rooms`] has what a process counts once. A new room gets a struct of
//! handles there, and a line in `docs/operations.md`, which a test demands.

mod rooms;

use std::time::Duration;

use http::StatusCode;
use prometheus::{
    Encoder as _, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts,
    Registry, TextEncoder,
};

use crate::routes::Route;

pub use rooms::{Calls, Tls};
pub(crate) use rooms::{index, objects, tls};

/// The metrics of one process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    seconds: HistogramVec,
    /// A poll that brings nothing new: nearly all there is, so that its handles are at hand.
    steady: (IntCounter, Histogram),
    /// The sequence of the last publication that this process knows of.
    pub sequence: IntGauge,
    /// Clusters that are registered, as the publisher counted last.
    pub clusters: IntGauge,
    steps: IntCounterVec,
}

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
        let sequence = IntGauge::new(
            "farshore_hub_sequence",
            "Sequence of the last publication that this process knows of.",
        )
        .expect(made);
        let clusters = IntGauge::new("farshore_hub_clusters", "Clusters that are registered.").expect(made);
        let steps = IntCounterVec::new(
            Opts::new("farshore_hub_publish_steps_total", "Steps of the publisher, by outcome."),
            &["outcome"],
        )
        .expect(made);
        registry.register(Box::new(requests.clone())).expect(made);
        registry.register(Box::new(seconds.clone())).expect(made);
        registry.register(Box::new(sequence.clone())).expect(made);
        registry.register(Box::new(clusters.clone())).expect(made);
        registry.register(Box::new(steps.clone())).expect(made);
        for collector in rooms::collectors() {
            registry.register(collector).expect(made);
        }
        let desired = Route::Desired.label();
        let steady = (requests.with_label_values(&[desired, "304"]), seconds.with_label_values(&[desired]));
        Self { registry, requests, seconds, steady, sequence, clusters, steps }
    }

    /// Counts one request.
    pub fn count(&self, route: Route, status: StatusCode, took: Duration) {
        if (route, status) == (Route::Desired, StatusCode::NOT_MODIFIED) {
            let (requests, seconds) = &self.steady;
            requests.inc();
            seconds.observe(took.as_secs_f64());
            return;
        }
        self.requests.with_label_values(&[route.label(), status.as_str()]).inc();
        self.seconds.with_label_values(&[route.label()]).observe(took.as_secs_f64());
    }

    /// Counts one step of the publisher.
    pub fn count_step(&self, outcome: &str) {
        self.steps.with_label_values(&[outcome]).inc();
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
