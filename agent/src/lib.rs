//! The agent: keeps a site at its last accepted state, hub or no hub.
//!
//! - [`object`]: one Kubernetes object as a document, and our marks on it.
//! - [`plan`]: what to do with one service's objects (pure).
//! - [`store`]: the state folder, which survives power cuts.
//! - [`target`]: where objects live.
//! - [`verify`]: whether what a hub offers is believed (pure).

pub mod object;
pub mod plan;
pub mod store;
pub mod target;
pub mod verify;
