//! The publisher over real Git repositories and a record on disk.

mod enrol;
mod front_door;
mod operators;
mod race;
mod reports;
mod serve;
mod sync;
mod world;
