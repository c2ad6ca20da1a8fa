//! The test kit, and the outages that Farshore must survive as tests.
//!
//! - [`kit`]: real servers, each started for one test and gone with it, and the programs of this workspace as
//!   processes. The tests of every crate of the workspace use it.
//! - [`world`]: a whole fleet of them: repositories, a record, hubs and sites.
//!
//! The outages themselves are the integration tests of this crate (`chaos/tests`).

pub mod kit;
pub mod world;
