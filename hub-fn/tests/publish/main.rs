//! The publisher over real Git repositories and a record on disk.

mod enrol;
mod race;
mod serve;
mod sync;
mod world;
