//! How much memory the processes have that the agent starts.
//!
//! What counts is what a process can write to (`RLIMIT_DATA`): its heap, and everything that it maps for itself alone.
//! Address space (`RLIMIT_AS`) would be no measure: a program in Go reserves more than a gigabyte of it at its
//! start, of which it uses some megabytes.

use rustix::io;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// Takes from this very process what is above so many bytes of memory.
pub(crate) fn of_ourselves(bytes: u64) -> io::Result<()> {
    setrlimit(Resource::Data, limit(bytes))
}

/// The same for a process that was just started. What it has by then are a few pages.
pub(crate) fn of_child(process: Pid, bytes: u64) -> io::Result<()> {
    match prlimit(Some(process), Resource::Data, limit(bytes)) {
        // It has ended already.
        Ok(_) | Err(io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Nobody may raise what was taken from the agent itself.
fn limit(bytes: u64) -> Rlimit {
    let most = getrlimit(Resource::Data).maximum.map_or(bytes, |most| most.min(bytes));
    Rlimit { current: Some(most), maximum: Some(most) }
}
