//! The agent: keeps a site at its last accepted state, hub or no hub.
//!
//! - [`object`]: one Kubernetes object as a document, and our marks on it.
//! - [`plan`]: what to do with one service's objects (pure).
//! - [`render`]: from an artifact to manifests.
//! - [`target`]: where objects live.

pub mod object;
pub mod plan;
pub mod render;
pub mod target;
