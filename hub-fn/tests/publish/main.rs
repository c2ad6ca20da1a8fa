//! The publisher over real Git repositories and a record on disk.

mod enrol;
mod front_door;
mod race;
mod retention;
mod serve;
mod sync;
mod world;
