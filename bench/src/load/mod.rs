//! Requests as agents send them, and the connections that carry them.
//!
//! - [`http1`]: HTTP/1.1 on a raw stream: what costs the client least, so that it does not hide the server.
//! - [`http2`]: HTTP/2 by hyper.
//! - [`tls`]: TLS to a server whose certificate does not matter here.
//! - [`poll`]: what a cluster says in a poll.

pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod poll;
pub(crate) mod tls;
