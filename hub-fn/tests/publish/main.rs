//! The publisher over real Git repositories and a record on disk.

mod directory;
mod enrol;
mod footprint;
mod front_door;
mod large;
mod operators;
mod race;
mod replica;
mod reports;
mod retention;
mod serve;
mod sources;
mod steer;
mod sync;
mod tombstones;
mod world;
