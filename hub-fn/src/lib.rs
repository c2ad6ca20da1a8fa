//! The hub: handlers as functions of (request, index, objects), and the publisher.
//!
//! - [`declare`]: a fleet repository's YAML into types, with every mistake at once.

pub mod declare;
