//! The agent: keeps a site at its last accepted state, hub or no hub.
//!
//! - [`hub`]: the client of a hub.
//! - [`identity`]: how a site joins its fleet.
//! - [`object`]: one Kubernetes object as a document, and our marks on it.
//! - [`plan`]: what to do with one service's objects (pure).
//! - [`store`]: the state folder, which survives power cuts.
//! - [`render`]: from an artifact to manifests.
//! - [`target`]: where objects live.
//! - [`verify`]: whether what a hub offers is believed (pure).
//!
//! Tasks: `hub::connection` spawns one per connection, which moves its bytes; the requests and bodies
//! on that connection join it, and the last of them to be dropped ends it.

pub mod hub;
pub mod identity;
pub mod object;
pub mod plan;
pub mod store;
pub mod render;
pub mod target;
pub mod verify;
