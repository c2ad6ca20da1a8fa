//! The hub: handlers as functions of (request, index, objects), and the publisher.
//!
//! - [`source`]: Git repositories, mirrored in a folder and read from there.
//! - [`artifact`]: a service's files as one deterministic, content-addressed blob.

pub mod artifact;
pub mod source;
//! - [`objects`]: the record: what must not be lost, on disk or in S3.
//! - [`index`]: what may be lost at any time: a digest index in memory or in Redis.

pub mod index;
pub mod objects;
//! - [`declare`]: a fleet repository's YAML into types, with every mistake at once.

pub mod declare;
