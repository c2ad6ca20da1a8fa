//! The hub: handlers as functions of (request, index, objects), and the publisher.
//!
//! ```text
//! publish:  source -> artifact -> publish (decide, sign) -> objects -> index
//! serve:    wire -> auth -> view (replica memory <- index <- objects) -> wire;  status -> log -> shards
//! ```
//!
//! - [`config`], [`run`]: what a hub is told, and its process from start to end, with all its tasks.
//! - [`server`], [`watched`], [`routes`], [`answer`], [`handlers`]: the front door, and who answers what.
//! - `lambda`: the same routes as an AWS Lambda function (feature `lambda`).
//! - [`auth`], [`view`], [`seen`]: who calls, what a replica remembers.
//! - [`metrics`], [`request_id`], [`trace`]: what is counted, what a request is called in the log, and the way of a
//!   publication to its sites.
//! - [`load`], [`waiting`], [`hooks`]: what is taken on, who waits for news, and who may tell of a push.
//! - [`declare`]: the declarations of a fleet repository.
//! - [`source`], [`artifact`]: Git, and deterministic tars made from it.
//! - [`publish`]: decides, signs, writes.
//! - [`record`], [`objects`], [`index`]: where everything lies, the port to it, and the index before it.
//! - [`directory`]: the clusters of the fleet, read by shard.
//! - [`status`]: what sites say of themselves: appended, folded, counted.
//! - [`retention`]: collects what nobody needs any more.
//! - [`stores`]: opens them, and takes the data folder.
//! - [`trust`], [`keyring`], [`tls`]: the trust root, the keys, the certificate.

pub mod answer;
pub mod artifact;
pub mod auth;
pub mod config;
pub mod declare;
pub mod directory;
pub mod handlers;
pub mod hooks;
pub mod index;
pub mod keyring;
#[cfg(feature = "lambda")]
pub mod lambda;
mod lines;
pub mod load;
pub mod metrics;
pub mod objects;
pub mod publish;
pub mod record;
pub mod request_id;
pub mod retention;
pub mod routes;
pub mod run;
pub mod seen;
pub mod server;
pub mod source;
pub mod status;
pub mod stores;
pub mod tls;
pub mod trace;
pub mod trust;
pub mod view;
pub mod waiting;
pub mod watched;
