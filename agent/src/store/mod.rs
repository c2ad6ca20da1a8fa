//! The state folder: everything that a site keeps across power cuts.
//!
//! - [`files`]: how anything is written: temporary file, fsync, rename, fsync of the folder.
//! - [`identity`]: the keys made here, the name, and the enrolment.
//! - [`trust`]: the chain of roots and the high-water marks.
//! - [`slots`]: the two slots of accepted documents.
//! - [`content`]: artifacts by digest, whole and partial.
//! - [`records`]: what was last healthy.
//! - [`inventory`]: what is in place for each service.
//! - `controls/`, `local/`: what somebody at the site has stopped, and what is shown there: see [`crate::controls`] and
//!   [`crate::local`].
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
pub use rollouts::ask_retry;
pub use slots::{Prune, State};

/// The layout of the state folder that this version writes.
pub const VERSION: u32 = 1;
/// The file whose lock shows that an agent has the folder.
const BEACON: &str = "running";

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
        "state folder is of a newer version ({}, version {found}; this agent knows {VERSION} and can go back from the next): run the newer agent",
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

/// A state folder that this process alone has, or only reads. It is given back when this is dropped.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    _lock: Option<File>,
    /// Held by whoever has the folder, for others to see: they try this one, so that their look is in nobody's way.
    _beacon: Option<File>,
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
        check_version(dir)?;
        for folder in ["identity", "trust/roots", "slots", "content/partial", "inventory", "outbox"] {
            fs::create_dir_all(dir.join(folder)).map_err(not_writable)?;
        }
        // The names of the folders have to survive as well as the files in them.
        for folder in [dir.join("trust"), dir.join("content"), dir.to_owned()] {
            files::sync_folder(&folder)?;
        }
        let store = Self { dir: dir.to_owned(), _lock: Some(lock), _beacon: beacon(dir) };
        store.clear_inventory()?;
        Ok(store)
    }

    /// A state folder to be read, whoever has it. Nothing is made or changed.
    ///
    /// # Errors
    /// [`StoreError::Missing`], [`StoreError::Newer`], [`StoreError::Corrupt`].
    pub fn peek(dir: &Path) -> Result<Self, StoreError> {
        if version(dir)?.is_none() {
            return Err(StoreError::Missing { path: dir.to_owned() });
        }
        Ok(Self { dir: dir.to_owned(), _lock: None, _beacon: None })
    }

    /// Whether an agent has a state folder: some, with its process id as far as that is known.
    #[must_use]
    pub fn is_in_use(dir: &Path) -> Option<Option<u32>> {
        let beacon = File::open(dir.join(BEACON)).ok()?;
        match beacon.try_lock() {
            Err(TryLockError::WouldBlock) => Some(holder(dir).and_then(|holder| holder.parse().ok())),
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
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
            let holder = holder(dir).unwrap_or_else(|| "unknown".to_owned());
            return Err(StoreError::Locked { path: dir.to_owned(), holder });
        }
        Err(TryLockError::Error(source)) => return Err(StoreError::Io { action: "locking", path, source }),
    }
    let written =
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(not_writable)?;
    Ok(file)
}

/// Who has a folder, as it says itself. It only helps a person.
fn holder(dir: &Path) -> Option<String> {
    let mut holder = String::new();
    let read = File::open(dir.join("lock")).and_then(|file| file.take(20).read_to_string(&mut holder));
    read.is_ok_and(|read| read > 0).then(|| holder.trim().to_owned())
}

/// Shows others that this process has the folder. Without it they only do not see that.
fn beacon(dir: &Path) -> Option<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(dir.join(BEACON)).ok()?;
    file.try_lock_shared().is_ok().then_some(file)
}

/// Refuses a folder that this version cannot read, and stamps it.
///
/// What a version writes, the version before it reads: a change of the layout keeps what was there for one version, and
/// adds. Nothing else raises the number: layout 1 has all that is written today, shards of inventories too. So a folder of the next version is taken as it is; what that version added is not touched.
fn check_version(dir: &Path) -> Result<(), StoreError> {
    match version(dir)? {
        Some(VERSION) => Ok(()),
        Some(_) | None => files::write(&dir.join("version"), format!("{VERSION}\n").as_bytes()),
    }
}

/// The version that wrote a folder last, if it is one and can be read.
fn version(dir: &Path) -> Result<Option<u32>, StoreError> {
    let path = dir.join("version");
    let Some(bytes) = files::read(&path, 64)? else { return Ok(None) };
    match String::from_utf8_lossy(&bytes).trim().parse::<u32>() {
        Ok(found) if found <= VERSION + 1 => Ok(Some(found)),
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
        assert!(refused.contains("version 7") && refused.contains("knows 1"), "{refused}");
        fs::write(temp.path().join("version"), "").expect("written");
        assert!(matches!(Store::open(temp.path()), Err(StoreError::Corrupt { .. })));
    }

    #[test]
    fn a_folder_of_the_next_version_is_taken_and_one_of_the_version_after_it_is_not() {
        let temp = tempfile::tempdir().expect("a folder");
        drop(Store::open(temp.path()).expect("new"));
        let stamp = temp.path().join("version");
        fs::write(&stamp, format!("{}\n", VERSION + 1)).expect("written");
        fs::create_dir(temp.path().join("novelty")).expect("what the next version adds");
        assert!(Store::peek(temp.path()).is_ok());
        drop(Store::open(temp.path()).expect("it can be gone back from"));
        assert_eq!(fs::read_to_string(&stamp).expect("there"), format!("{VERSION}\n"));
        assert!(temp.path().join("novelty").is_dir(), "what it added is not touched");
        fs::write(&stamp, format!("{}\n", VERSION + 2)).expect("written");
        for refused in [Store::open(temp.path()), Store::peek(temp.path())] {
            assert!(matches!(refused, Err(StoreError::Newer { found, .. }) if found == VERSION + 2));
        }
    }

    #[test]
    fn a_look_at_a_folder_is_in_nobodys_way_and_shows_who_has_it() {
        let temp = tempfile::tempdir().expect("a folder");
        assert!(matches!(Store::peek(temp.path()), Err(StoreError::Missing { .. })), "there is no folder");
        assert_eq!(Store::is_in_use(temp.path()), None);
        let store = Store::open(temp.path()).expect("new");
        let _look = Store::peek(temp.path()).expect("it is there");
        assert_eq!(Store::is_in_use(temp.path()), Some(Some(std::process::id())));
        drop(store);
        assert_eq!(Store::is_in_use(temp.path()), None);
        // Somebody looks at the very moment at which an agent starts.
        let beacon = File::open(temp.path().join(BEACON)).expect("there");
        beacon.try_lock().expect("nobody has it");
        assert!(Store::open(temp.path()).is_ok());
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
