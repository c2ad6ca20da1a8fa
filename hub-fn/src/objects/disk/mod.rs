//! The record in a folder, for one hub and for the commands that run beside it.
//!
//! An object is the file at its key's path. Names with a `~` are no keys; two folders bear one:
//! - `~staging`: a write goes to a file here, is synced, and is renamed into place, so that nobody
//!   sees half of it; then the folders above it are synced.
//! - `~locks`: a writer holds the lock of its key's file here from looking to renaming. The system
//!   lets go of it when the process ends, however it ends.
//!
//! A version is the digest of the content. An object that was changed and changed back therefore
//! matches its old version; that is harmless, because whoever wrote it would decide the same from
//! the same bytes.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use farshore_shared::digest::Digest;
use tempfile::NamedTempFile;

use super::{
    ByteRange, Condition, Content, Key, Listed, Objects, ObjectsError, Operation, PutOutcome, Stored, Version,
};

mod list;
mod lock;
mod stream;

const STAGING: &str = "~staging";
const LOCKS: &str = "~locks";
/// Longer than any write takes: what is older was left by a process that died during its own.
const LEFT_BEHIND: Duration = Duration::from_secs(3600);
/// A record has some thousand folders; beyond, it is cheaper to sync once more than to remember.
const MOST_SYNCED: usize = 16_384;

/// The record in a folder.
#[derive(Debug, Clone)]
pub struct Disk {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    /// Folders whose own entry in the folder above is known to be on the disk.
    synced: Mutex<HashSet<PathBuf>>,
}

/// Why a folder cannot be the record.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such folder.
    #[error("there is no record here (folder {0})")]
    Absent(PathBuf),
    /// There is something else.
    #[error("the record has to be a folder, and this is not one (path {0})")]
    NotAFolder(PathBuf),
    /// The folder cannot be written.
    #[error("the record's folder is not writable (path {path})")]
    NotWritable {
        /// What could not be written.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl Disk {
    /// Opens the record in this folder, which is made if there is none, and shows that it can be
    /// written. Blocks for a few file operations.
    ///
    /// # Errors
    /// When it is no folder, or not writable.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        match fs::metadata(dir) {
            Ok(found) if !found.is_dir() => return Err(OpenError::NotAFolder(dir.to_owned())),
            Ok(_folder) => {}
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(OpenError::NotAFolder(dir.to_owned()));
            }
            Err(_absent_or_hidden) => fs::create_dir_all(dir).map_err(not_writable(dir))?,
        }
        let disk = Self::at(dir);
        for name in [STAGING, LOCKS] {
            let folder = dir.join(name);
            fs::create_dir_all(&folder).map_err(not_writable(&folder))?;
            // A folder that was writable once may be on a disk that is read-only now.
            NamedTempFile::new_in(&folder).map_err(not_writable(&folder))?;
        }
        disk.inner.sweep_staging();
        Ok(disk)
    }

    /// Opens a record that is there already, to read it or to write beside its hub; makes nothing.
    ///
    /// # Errors
    /// When it is absent or no folder.
    pub fn open_existing(dir: &Path) -> Result<Self, OpenError> {
        match fs::metadata(dir) {
            Ok(found) if found.is_dir() => Ok(Self::at(dir)),
            Ok(_file) => Err(OpenError::NotAFolder(dir.to_owned())),
            Err(_absent_or_hidden) => Err(OpenError::Absent(dir.to_owned())),
        }
    }

    fn at(dir: &Path) -> Self {
        Self { inner: Arc::new(Inner { root: dir.to_owned(), synced: Mutex::default() }) }
    }

    /// Runs file work where it may block. It goes on when the caller's future is dropped.
    async fn blocking<T: Send + 'static>(
        &self,
        operation: Operation,
        subject: &str,
        work: impl FnOnce(&Inner) -> Result<T, ObjectsError> + Send + 'static,
    ) -> Result<T, ObjectsError> {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || work(&inner)).await.unwrap_or_else(|source| {
            Err(ObjectsError::Unreachable { operation, key: subject.to_owned(), source: source.into() })
        })
    }
}

#[async_trait]
impl Objects for Disk {
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Stored>, ObjectsError> {
        let owned = key.clone();
        self.blocking(Operation::Get, key.as_str(), move |inner| inner.get(&owned, limit)).await
    }

    async fn read(&self, key: &Key, range: Option<ByteRange>) -> Result<Option<Content>, ObjectsError> {
        let owned = key.clone();
        self.blocking(Operation::Read, key.as_str(), move |inner| inner.read(&owned, range)).await
    }

    async fn put(&self, key: &Key, bytes: Bytes, condition: Condition) -> Result<PutOutcome, ObjectsError> {
        let owned = key.clone();
        self.blocking(Operation::Put, key.as_str(), move |inner| inner.put(&owned, &bytes, &condition)).await
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, ObjectsError> {
        let (owned, after) = (prefix.to_owned(), after.cloned());
        self.blocking(Operation::List, prefix, move |inner| {
            list::list(&inner.root, &owned, after.as_ref(), limit).map_err(|source| ObjectsError::Io {
                operation: Operation::List,
                key: owned,
                source,
            })
        })
        .await
    }

    async fn delete(&self, key: &Key) -> Result<(), ObjectsError> {
        let owned = key.clone();
        self.blocking(Operation::Delete, key.as_str(), move |inner| inner.delete(&owned)).await
    }

    async fn presign(&self, _key: &Key, _ttl: Duration) -> Result<Option<String>, ObjectsError> {
        Ok(None)
    }
}

impl Inner {
    fn path(&self, key: &Key) -> PathBuf {
        self.root.join(key.as_str())
    }

    fn get(&self, key: &Key, limit: u64) -> Result<Option<Stored>, ObjectsError> {
        let Some((file, size)) = open(&self.path(key), key, Operation::Get)? else {
            return Ok(None);
        };
        if size > limit {
            return Err(ObjectsError::TooLarge { key: key.to_string(), limit, size });
        }
        let mut bytes = Vec::new();
        file.take(limit.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(ObjectsError::io(Operation::Get, key))?;
        let size = bytes.len() as u64;
        if size > limit {
            return Err(ObjectsError::TooLarge { key: key.to_string(), limit, size });
        }
        let version = version_of(&bytes);
        Ok(Some(Stored { bytes: bytes.into(), version }))
    }

    fn read(&self, key: &Key, range: Option<ByteRange>) -> Result<Option<Content>, ObjectsError> {
        let Some((file, total)) = open(&self.path(key), key, Operation::Read)? else {
            return Ok(None);
        };
        let range = match range {
            None => 0..total,
            Some(range) => range
                .within(total)
                .ok_or_else(|| ObjectsError::Unsatisfiable { key: key.to_string(), total })?,
        };
        let stream = stream::pieces(file, key.clone(), range.clone());
        Ok(Some(Content { total, range, stream }))
    }

    fn put(&self, key: &Key, bytes: &[u8], condition: &Condition) -> Result<PutOutcome, ObjectsError> {
        let failed = || ObjectsError::io(Operation::Put, key);
        let path = self.path(key);
        // The slow part, before anybody has to wait for the lock.
        let staged = self.stage(bytes).map_err(failed())?;
        let _lock = self.lock(key, Operation::Put)?;
        let persisted = match condition {
            Condition::Absent => {
                self.make_folder_of(&path).map_err(failed())?;
                staged.persist_noclobber(&path)
            }
            Condition::Matches(expected) => {
                if !self.holds(&path, key, expected)? {
                    return Ok(PutOutcome::Conflict);
                }
                staged.persist(&path)
            }
            Condition::Always => {
                self.make_folder_of(&path).map_err(failed())?;
                staged.persist(&path)
            }
        };
        match persisted {
            Ok(_file) => {}
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
                // Whoever wrote it may have died before it was synced, and our caller may now write
                // something that points to it.
                self.sync_above(&path).map_err(failed())?;
                return Ok(PutOutcome::Conflict);
            }
            Err(error) => return Err(failed()(error.error)),
        }
        self.sync_above(&path).map_err(failed())?;
        Ok(PutOutcome::Stored(version_of(bytes)))
    }

    fn delete(&self, key: &Key) -> Result<(), ObjectsError> {
        let failed = || ObjectsError::io(Operation::Delete, key);
        let path = self.path(key);
        if open(&path, key, Operation::Delete)?.is_none() {
            return Ok(());
        }
        let _lock = self.lock(key, Operation::Delete)?;
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if is_absence(&error) => return Ok(()),
            Err(error) => return Err(failed()(error)),
        }
        self.sync_above(&path).map_err(failed())
    }

    fn lock(&self, key: &Key, operation: Operation) -> Result<lock::Lock, ObjectsError> {
        lock::Lock::take(&self.root.join(LOCKS), key).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => {
                ObjectsError::Unreachable { operation, key: key.to_string(), source: error.into() }
            }
            _ => ObjectsError::Io { operation, key: key.to_string(), source: error },
        })
    }

    fn stage(&self, bytes: &[u8]) -> io::Result<NamedTempFile> {
        let folder = self.root.join(STAGING);
        // A record that was opened without being made may have been copied without it.
        fs::create_dir_all(&folder)?;
        let mut staged = NamedTempFile::new_in(&folder)?;
        staged.write_all(bytes)?;
        staged.as_file().sync_all()?;
        Ok(staged)
    }

    /// Whether the object is this version, under the lock of its key.
    fn holds(&self, path: &Path, key: &Key, expected: &Version) -> Result<bool, ObjectsError> {
        let Some((mut file, _size)) = open(path, key, Operation::Put)? else {
            return Ok(false);
        };
        let mut hasher = farshore_shared::digest::Hasher::default();
        let mut piece = vec![0; 64 * 1024];
        loop {
            match file.read(&mut piece).map_err(ObjectsError::io(Operation::Put, key))? {
                0 => return Ok(Version::new(hasher.finish().to_string()) == *expected),
                read => hasher.update(&piece[..read]),
            }
        }
    }

    fn make_folder_of(&self, path: &Path) -> io::Result<()> {
        path.parent().map_or(Ok(()), fs::create_dir_all)
    }

    /// Makes a rename or removal survive a power cut, and the folders that were made for it.
    fn sync_above(&self, path: &Path) -> io::Result<()> {
        let mut folder = path.parent();
        let mut is_nearest = true;
        while let Some(current) = folder {
            if !is_nearest && self.is_synced(current) {
                break;
            }
            sync_folder(current)?;
            is_nearest = false;
            if current == self.root {
                break;
            }
            folder = current.parent();
        }
        self.remember_synced(path);
        Ok(())
    }

    /// Whether all that lies on the way to this folder is known to be on the disk.
    fn is_synced(&self, folder: &Path) -> bool {
        self.synced.lock().unwrap_or_else(PoisonError::into_inner).contains(folder)
    }

    fn remember_synced(&self, path: &Path) {
        let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        if synced.len() >= MOST_SYNCED {
            synced.clear();
        }
        synced.extend(path.ancestors().skip(1).take_while(|a| a.starts_with(&self.root)).map(Path::to_owned));
    }

    /// Removes what processes that died left in the staging folder; failing costs disk space only.
    fn sweep_staging(&self) {
        let Ok(entries) = fs::read_dir(self.root.join(STAGING)) else { return };
        for entry in entries.flatten() {
            let written = entry.metadata().and_then(|found| found.modified());
            let age = written.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
            if age.is_ok_and(|age| age > LEFT_BEHIND)
                && let Err(error) = fs::remove_file(entry.path())
            {
                tracing::warn!(path = %entry.path().display(), %error, "a file that a dead process left stays");
            }
        }
    }
}

fn version_of(bytes: &[u8]) -> Version {
    Version::new(Digest::of(bytes).to_string())
}

fn not_writable(path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError::NotWritable { path, source }
}

/// Opens an object and tells its size; `None` when there is no such object, be there a folder.
fn open(path: &Path, key: &Key, operation: Operation) -> Result<Option<(File, u64)>, ObjectsError> {
    // Looked at before it is opened, because opening a pipe would wait for its writer.
    let found = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => return Ok(None),
        Ok(found) => found,
        Err(error) if is_absence(&error) => return Ok(None),
        Err(error) => return Err(ObjectsError::io(operation, key)(error)),
    };
    if !found.is_file() {
        return Err(ObjectsError::corrupt(key, "not a regular file"));
    }
    match File::open(path) {
        Ok(file) => {
            let size = file.metadata().map_err(ObjectsError::io(operation, key))?.len();
            Ok(Some((file, size)))
        }
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(ObjectsError::io(operation, key)(error)),
    }
}

/// A part of the path that is a file means that the object cannot be there either.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
