//! The publisher over real Git repositories and a record on disk.

mod enrol;
mod front_door;
mod race;
mod serve;
mod steer;
mod sync;
mod world;
