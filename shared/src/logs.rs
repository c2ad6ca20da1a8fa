//! How every Farshore program logs: to stderr, for people or as JSON.
//!
//! `FARSHORE_LOG` is a filter (`info` unless set; the syntax is that of `tracing-subscriber`'s
//! `EnvFilter`), `FARSHORE_LOG_FORMAT` is `text` or `json`. Colours are off when `NO_COLOR` is set or
//! stderr is no terminal.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// Requests and polls are logged one by one only where somebody asked for it. The Kubernetes client
/// logs every failure once more, without what it was for.
const DEFAULT: &str = "info,farshore::requests=warn,farshore::polls=warn,kube_client=off";

/// Starts logging. Called once, by `main`.
pub fn start() {
    let filter = EnvFilter::try_from_env("FARSHORE_LOG").unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    let colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    if std::env::var("FARSHORE_LOG_FORMAT").is_ok_and(|format| format == "json") {
        builder.json().flatten_event(true).with_current_span(false).with_span_list(false).init();
    } else {
        builder.with_target(false).init();
    }
}
