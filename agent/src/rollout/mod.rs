//! A service on its way from one revision to the next: what has to be remembered between passes. Pure.
//!
//! No pass waits for anything. Each brings a service as far as the health of its earlier waves allows
//! ([`crate::apply::stages`]) and returns; the next one goes on from what it finds. So a service that
//! waits holds up no other, and a newer revision needs nobody's leave.
//!
//! - [`watch`]: how long the objects of a wave have been waited for.
//! - [`record`]: what has run in a revision, and that a revision was given up; kept across power cuts.

pub mod record;
pub mod watch;

pub use record::{Record, Run};
pub use watch::{Look, Looked, Now, Sight, Verdict, Watch};
