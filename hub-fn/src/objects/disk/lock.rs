//! One writer at a time for each key, across processes.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use farshore_shared::digest::Digest;

use crate::objects::Key;

/// A writer holds a lock for a few file operations; one that holds it this long hangs.
const PATIENCE: Duration = Duration::from_secs(20);
const FIRST_PAUSE: Duration = Duration::from_micros(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// The lock of a key, until it is dropped or the process ends.
#[derive(Debug)]
pub(super) struct Lock {
    _held: File,
}

impl Lock {
    /// Waits for the lock; keys share 256 of them, so that lock files do not pile up.
    ///
    /// Asked for again and again rather than waited for, because a process that is stopped while it
    /// holds the lock must not stop the others for ever.
    #[expect(
        clippy::disallowed_methods,
        reason = "runs on a thread for blocking work, never on an async one"
    )]
    pub(super) fn take(folder: &Path, key: &Key) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let name = hex::encode(&Digest::of(key.as_str().as_bytes()).as_bytes()[..1]);
        let path = folder.join(name);
        // Never removed, because a writer could then hold the lock of a file that others do not see.
        let file = File::options().create(true).truncate(false).write(true).open(&path)?;
        let deadline = Instant::now() + PATIENCE;
        let mut pause = FIRST_PAUSE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _held: file }),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    let waited = format!("another writer holds {} for {PATIENCE:?}", path.display());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, waited));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(pause),
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
