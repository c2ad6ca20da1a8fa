//! The publisher over real Git repositories and a record on disk.

mod directory;
mod enrol;
mod front_door;
mod operators;
mod race;
mod replica;
mod reports;
mod serve;
mod sources;
mod sync;
mod world;
