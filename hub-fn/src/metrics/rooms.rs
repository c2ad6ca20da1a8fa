//! The counters of rooms that a process has once: object storage, index, TLS. They are made at first use and
//! are part of every registry.
//!
//! A room's struct has one handle for each series, resolved once: counting is an atomic addition and looks
//! nothing up. Labels are words of the program, never names from outside.

use std::sync::LazyLock;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts};

const MADE: &str = "metric names are valid";

static OBJECTS: LazyLock<Calls<5>> = LazyLock::new(|| {
    Calls::new(
        ["farshore_hub_objects_seconds", "farshore_hub_objects_errors_total"],
        ["Time of calls to object storage, in seconds.", "Calls to object storage that failed."],
        ["get", "read", "put", "list", "delete"],
    )
});

static INDEX: LazyLock<Calls<7>> = LazyLock::new(|| {
    Calls::new(
        ["farshore_hub_index_seconds", "farshore_hub_index_errors_total"],
        ["Time of calls to the index, in seconds.", "Calls to the index that failed."],
        ["get", "put", "forget", "lease", "tell", "note-seen", "seen"],
    )
});

static TLS: LazyLock<Tls> = LazyLock::new(Tls::new);

/// The calls of a port, by operation.
#[derive(Debug)]
pub struct Calls<const N: usize> {
    seconds: HistogramVec,
    errors: IntCounterVec,
    by_operation: [(Histogram, IntCounter); N],
}

impl<const N: usize> Calls<N> {
    fn new(names: [&str; 2], help: [&str; 2], operations: [&str; N]) -> Self {
        let buckets = vec![0.0005, 0.002, 0.01, 0.05, 0.25, 1.0, 5.0];
        let options = HistogramOpts::new(names[0], help[0]).buckets(buckets);
        let seconds = HistogramVec::new(options, &["operation"]).expect(MADE);
        let errors = IntCounterVec::new(Opts::new(names[1], help[1]), &["operation"]).expect(MADE);
        let by_operation =
            operations.map(|name| (seconds.with_label_values(&[name]), errors.with_label_values(&[name])));
        Self { seconds, errors, by_operation }
    }

    /// Counts one call of the operation with this number.
    pub(crate) fn count<T, E>(&self, operation: usize, took: Duration, outcome: &Result<T, E>) {
        let (seconds, errors) = &self.by_operation[operation];
        seconds.observe(took.as_secs_f64());
        if outcome.is_err() {
            errors.inc();
        }
    }
}

/// New certificates.
#[derive(Debug)]
pub struct Tls {
    loads: IntCounterVec,
    /// Those that are shown.
    pub replaced: IntCounter,
    /// Those that cannot be used.
    pub refused: IntCounter,
}

impl Tls {
    fn new() -> Self {
        let options = Opts::new(
            "farshore_hub_tls_reloads_total",
            "New TLS certificates found while the hub runs, by outcome (ok: shown, failed: the one before is kept).",
        );
        let loads = IntCounterVec::new(options, &["outcome"]).expect(MADE);
        let [replaced, refused] = ["ok", "failed"].map(|outcome| loads.with_label_values(&[outcome]));
        Self { loads, replaced, refused }
    }
}

/// Calls to object storage.
pub(crate) fn objects() -> &'static Calls<5> {
    &OBJECTS
}

/// Calls to the index.
pub(crate) fn index() -> &'static Calls<7> {
    &INDEX
}

/// New certificates.
pub(crate) fn tls() -> &'static Tls {
    &TLS
}

/// All of them, for a registry.
pub(super) fn collectors() -> Vec<Box<dyn Collector>> {
    vec![
        Box::new(OBJECTS.seconds.clone()),
        Box::new(OBJECTS.errors.clone()),
        Box::new(INDEX.seconds.clone()),
        Box::new(INDEX.errors.clone()),
        Box::new(TLS.loads.clone()),
    ]
}
