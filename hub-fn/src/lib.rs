//! The hub: handlers as functions of (request, index, objects), and the publisher.
//!
//! ```text
//! publish:  source -> artifact -> publish (decide, sign) -> objects -> index
//! serve:    wire -> auth -> view (replica memory <- index <- objects) -> wire;  status -> log -> shards
//! ```
//!
//! - [`config`], [`run`]: what a hub is told, and its process from start to end, with all its tasks.
//! - [`server`], [`watched`], [`routes`], [`answer`], [`handlers`]: the front door, and who answers what.
//! - [`auth`], [`view`], [`seen`], [`metrics`]: who calls, what a replica remembers, what it counts.
//! - [`declare`]: the declarations of a fleet repository.
//! - [`source`], [`artifact`]: Git, and deterministic tars made from it.
//! - [`publish`]: decides, signs, writes.
//! - [`record`], [`objects`], [`index`]: where everything lies, the port to it, and the index before it.
//! - [`directory`]: the clusters of the fleet, read by shard.
//! - [`status`]: what sites say of themselves: appended, folded, counted.
//! - [`stores`]: opens them, and takes the data folder.
//! - [`trust`], [`keyring`], [`tls`]: the trust root, the keys, the certificate.

pub mod answer;
pub mod artifact;
pub mod auth;
pub mod config;
pub mod declare;
pub mod directory;
pub mod handlers;
pub mod index;
pub mod keyring;
pub mod metrics;
pub mod objects;
pub mod publish;
pub mod record;
pub mod routes;
pub mod run;
pub mod seen;
pub mod server;
pub mod source;
pub mod status;
pub mod stores;
pub mod tls;
pub mod trust;
pub mod view;
pub mod watched;
