//! The test kit, and the outages that Farshore must survive as tests.
//!
//! - [`kit`]: real servers, each started for one test and gone with it, and the programs of this workspace as
//!   processes. The tests of every crate of the workspace use it.
//!
//! The outages themselves are the integration tests of this crate (`chaos/tests`).

pub mod kit;
