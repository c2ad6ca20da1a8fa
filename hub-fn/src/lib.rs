//! The hub: handlers as functions of (request, index, objects), and the publisher.
//!
//! - [`source`]: Git repositories, mirrored in a folder and read from there.
//! - [`artifact`]: a service's files as one deterministic, content-addressed blob.

pub mod artifact;
pub mod source;
