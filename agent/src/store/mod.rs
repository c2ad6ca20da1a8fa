//! The state folder: everything that a site keeps across power cuts.
//!
//! - [`files`]: how anything is written: temporary file, fsync, rename, fsync of the folder.
//! - [`identity`]: the keys made here, the name, and the enrolment.
//! - [`trust`]: the chain of roots and the high-water marks.
//! - [`slots`]: the two slots of accepted documents.
//! - [`content`]: artifacts by digest, whole and partial.
//! - [`records`]: what was last healthy.
//! - [`inventory`]: what is in place for each service.
//! - [`rollouts`]: what has run in a revision, what was given up, and what somebody at the site asks.
//! - [`rendered`]: what services rendered to, which can be made again.
//! - [`outbox`]: reports that have not arrived yet.
//!
//! Absent, corrupt and good are three states with three reactions: see [`Found`]. Content is written
//! before what points to it. All functions block on the disk.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use farshore_shared::digest::Digest;

pub mod content;
pub mod files;
pub mod identity;
pub mod inventory;
pub mod outbox;
pub mod records;
pub mod rendered;
pub mod rollouts;
pub mod slots;
pub mod trust;

pub use content::{Content, Download};
pub use identity::{EnrolmentRecord, Keys, SealingKey};
pub use outbox::{Number, Outbox, Report};
pub use records::Healthy;
pub use rendered::{Made, Renders};
pub use slots::{Prune, State};

/// The newest layout of the state folder that this version reads and writes.
///
/// The file `version` says which layout whoever opens the folder has to know at least. It rises when the
/// first file of a newer layout is written, so that an agent can be replaced by the one before it as long
/// as that one would understand what it finds, and is refused when it would not.
pub const VERSION: u32 = SHARDED;
/// The layout with which every folder begins.
const FIRST: u32 = 1;
/// The layout in which an inventory may be sharded.
const SHARDED: u32 = 2;

/// What a file held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found<T> {
    /// There is no such file.
    Absent,
    /// There is one, and it is not what was written. The text says why.
    Corrupt(String),
    /// What was written.
    Good(T),
}

impl<T> Found<T> {
    /// The value, where it is good.
    #[must_use]
    pub fn good(self) -> Option<T> {
        match self {
            Self::Good(value) => Some(value),
            Self::Absent | Self::Corrupt(_) => None,
        }
    }
}

/// What went wrong with the state folder.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk refused.
    #[error("{action} failed ({})", path.display())]
    Io {
        /// What we were doing.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The folder cannot be written to.
    #[error("state folder is not writable ({}): give it to the user that runs the agent", path.display())]
    NotWritable {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another agent has it.
    #[error("state folder is in use by another agent ({}, process {holder})", path.display())]
    Locked {
        /// The folder.
        path: PathBuf,
        /// The other agent's process id.
        holder: String,
    },
    /// A newer agent wrote it.
    #[error(
        "state folder is of a newer version ({}, version {found}; this agent knows {VERSION}): run the newer agent",
        path.display()
    )]
    Newer {
        /// The folder.
        path: PathBuf,
        /// The version in the folder.
        found: u32,
    },
    /// A file that cannot be made good by the agent alone.
    #[error("file of the state folder is corrupt ({}): {why}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what a person can do.
        why: String,
    },
    /// There is no state folder.
    #[error("no state folder is there ({}): name the one that the agent has as --state", path.display())]
    Missing {
        /// The folder.
        path: PathBuf,
    },
    /// More bytes than a file of this kind has.
    #[error("file of the state folder exceeds its limit ({}, {limit} bytes)", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit, in bytes.
        limit: u64,
    },
    /// Content that is not what its digest says.
    #[error("content is not what its digest says (wanted {expected}, got {got})")]
    Mismatch {
        /// What it should be.
        expected: Digest,
        /// What it is.
        got: Digest,
    },
    /// Content of another length than announced.
    #[error("content {digest:?} has the wrong length ({got} bytes, announced {size})")]
    Length {
        /// Whose.
        digest: Digest,
        /// What was announced, in bytes.
        size: u64,
        /// What there is, in bytes.
        got: u64,
    },
    /// The folder belongs to a cluster of another name.
    #[error(
        "state folder belongs to another cluster ({}, of {held}, asked for {asked}): use that name or another folder",
        path.display()
    )]
    OtherName {
        /// The folder.
        path: PathBuf,
        /// The name in the folder.
        held: String,
        /// The name asked for.
        asked: String,
    },
}

/// A state folder that this process alone has. It is given back when this is dropped.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    _lock: Option<File>,
}

impl Store {
    /// Opens a state folder; makes it where there is none, readable by its owner only.
    ///
    /// # Errors
    /// [`StoreError::NotWritable`], [`StoreError::Locked`], [`StoreError::Newer`].
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let not_writable = |source| StoreError::NotWritable { path: dir.to_owned(), source };
        if !dir.is_dir() {
            if let Some(parent) = dir.parent() {
                fs::create_dir_all(parent).map_err(not_writable)?;
            }
            DirBuilder::new().mode(0o700).create(dir).map_err(not_writable)?;
            dir.parent()
                .filter(|parent| !parent.as_os_str().is_empty())
                .map_or(Ok(()), files::sync_folder)?;
        }
        let lock = lock(dir)?;
        files::read(&dir.join("version"), 64)?
            .map_or_else(|| write_version(dir, FIRST), |_| read_version(dir).map(|_| ()))?;
        for folder in ["identity", "trust/roots", "slots", "content/partial", "inventory", "outbox"] {
            fs::create_dir_all(dir.join(folder)).map_err(not_writable)?;
        }
        // The names of the folders have to survive as well as the files in them.
        for folder in [dir.join("trust"), dir.join("content"), dir.to_owned()] {
            files::sync_folder(&folder)?;
        }
        let store = Self { dir: dir.to_owned(), _lock: Some(lock) };
        store.clear_inventory()?;
        Ok(store)
    }

    /// Opens a state folder to look at it, also while an agent has it. Nothing may be written.
    ///
    /// # Errors
    /// [`StoreError::Missing`], [`StoreError::Newer`].
    pub fn look(dir: &Path) -> Result<Self, StoreError> {
        if !dir.join("version").is_file() {
            return Err(StoreError::Missing { path: dir.to_owned() });
        }
        read_version(dir)?;
        Ok(Self { dir: dir.to_owned(), _lock: None })
    }

    /// Demands that whoever opens this folder knows a layout.
    fn raise_version(&self, version: u32) -> Result<(), StoreError> {
        if read_version(&self.dir)? < version { write_version(&self.dir, version) } else { Ok(()) }
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The artifacts.
    #[must_use]
    pub fn content(&self) -> Content {
        Content::new(self.dir.join("content"))
    }

    /// The reports that have not arrived, at most `limit` bytes of them.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn outbox(&self, limit: u64) -> Result<Outbox, StoreError> {
        Outbox::open(self.dir.join("outbox"), limit)
    }
}

fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join("lock");
    let not_writable = |source| StoreError::NotWritable { path: dir.to_owned(), source };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(not_writable)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Who it is only helps a person: without it the message is still true.
            let read = file.take(20).read_to_string(&mut holder);
            let holder = match read {
                Ok(n) if n > 0 => holder.trim().to_owned(),
                Ok(_) | Err(_) => "unknown".to_owned(),
            };
            return Err(StoreError::Locked { path: dir.to_owned(), holder });
        }
        Err(TryLockError::Error(source)) => return Err(StoreError::Io { action: "locking", path, source }),
    }
    let written =
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(not_writable)?;
    Ok(file)
}

fn write_version(dir: &Path, version: u32) -> Result<(), StoreError> {
    files::write(&dir.join("version"), format!("{version}\n").as_bytes())
}

fn read_version(dir: &Path) -> Result<u32, StoreError> {
    let path = dir.join("version");
    let bytes = files::read(&path, 64)?.unwrap_or_default();
    match String::from_utf8_lossy(&bytes).trim().parse::<u32>() {
        Ok(found) if found <= VERSION => Ok(found),
        Ok(found) => Err(StoreError::Newer { path: dir.to_owned(), found }),
        Err(_) => Err(StoreError::Corrupt {
            path,
            why: format!("it should hold the version of the folder, such as {VERSION}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_made_for_its_owner_and_opened_again() {
        use std::os::unix::fs::PermissionsExt as _;
        let temp = tempfile::tempdir().expect("a folder");
        let dir = temp.path().join("deep/state");
        drop(Store::open(&dir).expect("new"));
        assert_eq!(fs::metadata(&dir).expect("made").permissions().mode() & 0o777, 0o700);
        assert!(Store::open(&dir).is_ok());
    }

    #[test]
    fn two_agents_cannot_have_one_folder() {
        let temp = tempfile::tempdir().expect("a folder");
        let _first = Store::open(temp.path()).expect("new");
        let refused = Store::open(temp.path()).expect_err("in use").to_string();
        assert!(refused.contains(&std::process::id().to_string()), "{refused}");
    }

    #[test]
    fn a_newer_folder_is_refused_with_both_versions() {
        let temp = tempfile::tempdir().expect("a folder");
        drop(Store::open(temp.path()).expect("new"));
        fs::write(temp.path().join("version"), "7\n").expect("written");
        let refused = Store::open(temp.path()).expect_err("newer").to_string();
        assert!(refused.contains("version 7") && refused.contains("knows 2"), "{refused}");
        fs::write(temp.path().join("version"), "").expect("written");
        assert!(matches!(Store::open(temp.path()), Err(StoreError::Corrupt { .. })));
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let temp = tempfile::tempdir().expect("a folder");
        let file = temp.path().join("file");
        fs::write(&file, "").expect("written");
        for dir in [file.clone(), file.join("state")] {
            let refused = Store::open(&dir).expect_err("not a folder");
            assert!(matches!(&refused, StoreError::NotWritable { path, .. } if *path == dir), "{refused}");
        }
    }
}
