//! A whole fleet of processes on real parts, each of which a test may kill, cut off or start again.
//!
//! - [`Repository`]: a Git repository over smart HTTP; [`declare`]: the text of what a fleet repository declares.
//! - [`Fleet`]: keys, certificate and record, from which hubs and join tokens come.
//! - [`Hub`]: `farshore-hub` on a port of its own, serving, publishing or both.
//! - [`Function`]: the same program as a Lambda function.
//! - [`Site`]: `farshore-agent` on a state folder of its own, which outlives the process.
//! - [`World`]: one service, its repositories, its fleet and a hub: where most tests begin.
//! - [`Place`]: such a service at a site in a real cluster; [`SharedCluster`]: one API server for many tests.
//!
//! Everything polls, sweeps and fetches once a second, so that a test sees in seconds what takes minutes outside.
//! What a test reads of the record it reads from the files underneath, as somebody would who trusts no program here.

pub mod declare;
mod fleet;
mod function;
mod hub;
mod place;
mod repository;
mod site;
mod small;

pub use fleet::Fleet;
pub use function::Function;
pub use hub::{Hub, Role};
pub use place::{Place, SharedCluster};
pub use repository::Repository;
pub use site::{Site, Target};
pub use small::World;

/// How often hubs fetch, sites poll and sites sweep, as an option's value.
const EVERY: &str = "1s";

/// Puts an option in the place of one of the same name.
fn set_option(arguments: &mut Vec<String>, option: String) {
    let name = |option: &str| option.split('=').next().unwrap_or_default().to_owned();
    arguments.retain(|other| name(other) != name(&option));
    arguments.push(option);
}
