//! What a cluster says in a poll.

use farshore_shared::wire::{HOLDS_HEADER, PASS_HEADER};

/// A cluster that polls: its pass and what it holds.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) pass: String,
    pub(crate) holds: String,
}

impl Caller {
    /// A poll over HTTP/1.1, with the headers of an agent.
    pub(crate) fn http1(&self, host: &str) -> Vec<u8> {
        let Self { pass, holds } = self;
        format!(
            "GET /v1/desired HTTP/1.1\r\naccept-encoding: zstd\r\n{HOLDS_HEADER}: {holds}\r\n\
             {PASS_HEADER}: {pass}\r\nhost: {host}\r\n\r\n"
        )
        .into_bytes()
    }
}
