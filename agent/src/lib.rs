//! The agent: keeps a site at its last accepted state, hub or no hub.
//!
//! ```text
//! wire -> hub client -> verify -> store -> render -> plan -> apply -> report (outbox) -> wire
//!                                  ^ boot starts here
//! ```
//!
//! - [`config`], [`agent`]: what an agent is told, and its one loop, with all tasks.
//! - [`footprint`]: how much this agent may ask, and who said so (pure); `ceiling`: the memory of what it starts.
//! - [`courier`]: everything said to and heard from the hub; [`schedule`]: when (pure).
//! - [`foresight`]: what would be done with what is accepted, for a person who looks first.
//! - [`hub`]: the client of a hub.
//! - [`lead`]: which of several agents of one site works.
//! - [`identity`]: how a site joins its fleet.
//! - [`verify`]: whether what a hub offers is believed (pure).
//! - [`store`]: the state folder, which survives power cuts.
//! - [`decide`]: what to do with every service (pure).
//! - [`render`]: from an artifact to manifests.
//! - [`object`]: one Kubernetes object as a document, and our marks on it.
//! - [`accounts`]: which service is applied as whom, as the site says (pure).
//! - [`terms`]: how one object is applied and removed, as its annotations and its service say (pure).
//! - [`claims`]: what every service declares, so that what moves between them is taken over (pure).
//! - [`plan`]: what to do with one service's objects (pure).
//! - [`waves`]: in which order, and what runs once on the way (pure).
//! - [`health`]: whether an object does what it was made for (pure).
//! - [`rollout`]: what is remembered of a service on its way to a revision (pure).
//! - [`apply`]: does it.
//! - [`difference`]: what differs between an object as it is and as it would be (pure).
//! - [`target`]: where objects live.
//! - [`drift`]: what others changed, and how it is put back.
//! - [`reconcile`]: one pass over all services.
//! - [`moment`]: the site's clock beside one that nobody sets; [`date`]: what the clock of somebody else shows.
//! - [`report`]: what a site says of itself; [`announce`]: what its cluster is told.
//! - [`controls`]: what somebody at the site has stopped; [`local`] and [`page`]: what is shown there; [`command`]: what is asked there.
//!
//! Tasks: `hub::connection` spawns one per connection, which moves its bytes; the requests and bodies
//! on that connection join it, and the last of them to be dropped ends it.

pub mod accounts;
pub mod agent;
pub mod announce;
pub mod apply;
mod ceiling;
pub mod claims;
pub mod command;
pub mod config;
pub mod controls;
pub mod courier;
pub mod date;
pub mod decide;
pub mod difference;
pub mod drift;
pub mod footprint;
pub mod foresight;
pub mod health;
pub mod hub;
pub mod identity;
pub mod lead;
pub mod local;
pub mod moment;
pub mod object;
pub mod page;
pub mod plan;
pub mod reconcile;
pub mod render;
pub mod report;
pub mod rollout;
pub mod schedule;
pub mod store;
pub mod target;
pub mod terms;
pub mod verify;
pub mod waves;
