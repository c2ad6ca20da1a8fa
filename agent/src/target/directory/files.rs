//! The folder on disk: who owns which file, and writes that survive a power cut.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use farshore_shared::digest::Digest;
use farshore_shared::names::Name;
use rustix::fs::{Access, OFlags};
use serde::{Deserialize, Serialize};

use super::{Applied, Deleted, Live, ObjectError, Retry, file_name};
use crate::object::{Manifest, ObjectKey, Owner, is_marked};
use crate::plan::Item;
use crate::render::yaml;
use crate::target::{Sighting, Stamp, Whole};
use crate::terms::FieldMarks;

/// Which life of a name a file is: a folder does not tell one from the next.
const UID: &str = "file";
/// Where the records of ownership and the temporary files are.
const RECORDS: &str = ".farshore";
const TEMPORARY: &str = "tmp-";
/// The most bytes that are read of a file: more than any that is written here.
const READ_LIMIT: u64 = 16 << 20;

/// Something about one file did not work.
#[derive(Debug, Clone)]
pub(super) struct FileError {
    message: String,
    retry: Retry,
}

impl FileError {
    fn refused(message: String) -> Self {
        Self { message, retry: Retry::Pointless }
    }

    fn io<'a>(doing: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |error| Self {
            message: format!("{doing} ({}): {error}", path.display()),
            retry: Retry::Worthwhile,
        }
    }

    pub(super) fn stopped(error: tokio::task::JoinError) -> Self {
        Self { message: format!("working on the folder: {error}"), retry: Retry::Worthwhile }
    }

    pub(super) fn of(self, key: ObjectKey) -> ObjectError {
        ObjectError { key, message: self.message, retry: self.retry }
    }

    pub(super) fn describe(self) -> String {
        self.message
    }
}

/// Who writes a file, as `.farshore/NAME.owner` says it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    cluster: Name,
    service: Name,
    key: ObjectKey,
}

/// What a record says.
enum Recorded {
    Nobody,
    Is(Record),
    /// It is there and cannot be read: the file itself must tell.
    Corrupt,
}

/// What is at a path.
enum Found {
    Nothing,
    File(Vec<u8>),
    /// A link, a folder, a socket ...
    Other(&'static str),
}

/// Where an object goes, and what is there.
struct Place {
    path: PathBuf,
    /// What its record has to say.
    record: Record,
    /// What it says.
    recorded: Recorded,
    found: Found,
}

/// The folder.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    records: PathBuf,
    /// Set when the temporary files of an earlier process are gone; those of this one are in use.
    cleared: OnceLock<()>,
}

impl Folder {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { records: root.join(RECORDS), root, cleared: OnceLock::new() }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn record_file(&self, name: &str) -> PathBuf {
        self.records.join(format!("{name}.owner"))
    }

    /// Makes the folder when it is missing, proves that it can be written to, and clears away what a
    /// power cut left half written.
    pub(super) fn prepare(&self) -> Result<(), FileError> {
        fs::create_dir_all(&self.root).map_err(FileError::io("making the folder", &self.root))?;
        match fs::symlink_metadata(&self.records) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => {
                let path = self.records.display();
                return Err(FileError::refused(format!(
                    "something else is where a folder should be ({path})"
                )));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir(&self.records).map_err(FileError::io("making the folder", &self.records))?;
                sync_folder(&self.root)?;
            }
            Err(error) => return Err(FileError::io("looking at the folder", &self.records)(error)),
        }
        for folder in [&self.root, &self.records] {
            rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK)
                .map_err(io::Error::from)
                .map_err(FileError::io("folder is not writable", folder))?;
        }
        if self.cleared.get().is_none() {
            self.clear().map_err(FileError::io("clearing the folder", &self.records))?;
            self.cleared.get_or_init(|| ());
        }
        Ok(())
    }

    fn clear(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.records)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// What lives in a file.
    pub(super) fn look(&self, name: &str) -> Result<Live, FileError> {
        Ok(match find(&self.file(name))? {
            Found::Nothing => Live::Absent,
            Found::File(bytes) => Live::Present { uid: UID.to_owned(), fingerprint: Digest::of(&bytes) },
            // No file that was written here has this fingerprint: it is drift.
            Found::Other(what) => {
                Live::Present { uid: what.to_owned(), fingerprint: Digest::of(what.as_bytes()) }
            }
        })
    }

    /// A file as a document; one that cannot be read is an empty one.
    pub(super) fn read(&self, name: &str) -> Result<Option<Whole>, FileError> {
        let (uid, bytes) = match find(&self.file(name))? {
            Found::Nothing => return Ok(None),
            Found::File(bytes) => (UID, bytes),
            Found::Other(what) => (what, what.into()),
        };
        let body = yaml::read(&bytes).into_iter().next().and_then(|(_, body)| body.ok()).unwrap_or_default();
        let fingerprint = Digest::of(&bytes);
        Ok(Some(Whole {
            sighting: Sighting { uid: uid.to_owned(), fingerprint, stamp: Stamp::default() },
            body,
        }))
    }

    /// Writes a marked manifest to its file.
    pub(super) fn put(&self, owner: &Owner, manifest: &Manifest) -> Result<Applied, FileError> {
        let name = file_name(&manifest.key);
        let Place { path, record, recorded, found } = self.place(owner, &manifest.key, &name)?;
        let bytes = yaml::write(&manifest.body).into_bytes();
        if bytes.len() as u64 >= READ_LIMIT {
            return Err(FileError::refused(format!("object is too large ({} bytes)", bytes.len())));
        }
        // The record goes first: a file without one would be a stranger's after a power cut.
        if !matches!(&recorded, Recorded::Is(known) if *known == record) {
            let text = serde_json::to_vec(&record).expect("a record has string keys only");
            self.write(&self.record_file(&name), &text)?;
        }
        let fingerprint = Digest::of(&bytes);
        if !matches!(found, Found::File(present) if present == bytes) {
            self.write(&path, &bytes)?;
        }
        let (stamp, fields) = (Stamp::default(), FieldMarks::default());
        Ok(Applied { uid: UID.to_owned(), fingerprint, stamp, fields })
    }

    /// Removes an object's file, if it is ours by record and by its marks.
    pub(super) fn remove(&self, owner: &Owner, item: &Item) -> Result<Deleted, FileError> {
        let name = file_name(&item.key);
        let path = self.file(&name);
        let found = find(&path)?;
        let known_life = item.uid.as_deref().is_none_or(|uid| uid == UID);
        let marked = matches!(&found, Found::File(bytes) if carries_marks(bytes, owner, &item.key));
        let recorded = self.recorded(&name)?;
        let others = matches!(&recorded, Recorded::Is(record) if !record.is(owner, &item.key));
        // The record goes first: what is left by a power cut then still carries our marks.
        if !others {
            remove_file(&self.record_file(&name))?;
        }
        match found {
            Found::Nothing => Ok(Deleted::Gone),
            Found::File(_) if known_life && marked && !others => {
                remove_file(&path)?;
                Ok(Deleted::Gone)
            }
            Found::File(_) | Found::Other(_) => Ok(Deleted::NotOurs),
        }
    }

    /// What the file of a manifest that may be written there holds; a file that cannot be read as one
    /// document is written anew.
    pub(super) fn document(
        &self,
        owner: &Owner,
        manifest: &Manifest,
    ) -> Result<Option<serde_json::Value>, FileError> {
        let place = self.place(owner, &manifest.key, &file_name(&manifest.key))?;
        let Found::File(bytes) = place.found else { return Ok(None) };
        Ok(yaml::read(&bytes).pop().and_then(|(_, body)| body.ok()))
    }

    /// The place of an object that may be written there.
    fn place(&self, owner: &Owner, key: &ObjectKey, name: &str) -> Result<Place, FileError> {
        let path = self.file(name);
        let record =
            Record { cluster: owner.cluster.clone(), service: owner.service.clone(), key: key.clone() };
        let (recorded, found) = (self.recorded(name)?, find(&path)?);
        may_write(&recorded, &record, &found, owner, &path)?;
        Ok(Place { path, record, recorded, found })
    }

    fn recorded(&self, name: &str) -> Result<Recorded, FileError> {
        Ok(match find(&self.record_file(name))? {
            Found::Nothing => Recorded::Nobody,
            Found::File(bytes) => match serde_json::from_slice(&bytes) {
                Ok(record) => Recorded::Is(record),
                Err(error) => {
                    tracing::warn!(file = name, %error, "a record of ownership cannot be read");
                    Recorded::Corrupt
                }
            },
            Found::Other(_) => Recorded::Corrupt,
        })
    }

    /// Temporary file, sync, rename, sync of the folder.
    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
        let failed = |error| FileError::io("writing the file", path)(error);
        let mut file =
            tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(&self.records).map_err(failed)?;
        file.write_all(bytes).map_err(failed)?;
        file.as_file().sync_all().map_err(failed)?;
        file.persist(path).map_err(|error| failed(error.error))?;
        sync_folder(path.parent().unwrap_or(&self.root))
    }
}

impl Record {
    fn is(&self, owner: &Owner, key: &ObjectKey) -> bool {
        self.cluster == owner.cluster && self.service == owner.service && self.key == *key
    }
}

/// A file is written where nothing is, where the record names us, or where our own marks are.
fn may_write(
    recorded: &Recorded,
    record: &Record,
    found: &Found,
    owner: &Owner,
    path: &Path,
) -> Result<(), FileError> {
    let path = path.display();
    let bytes = match found {
        Found::Nothing => return Ok(()),
        Found::Other("folder") => {
            return Err(FileError::refused(format!("a folder is where the file should be ({path})")));
        }
        Found::Other(_) => [].as_slice(),
        Found::File(bytes) => bytes,
    };
    match recorded {
        Recorded::Is(known) if known == record => Ok(()),
        Recorded::Is(Record { cluster, service, key }) => Err(FileError {
            message: format!("file belongs to {key} of service {service} in cluster {cluster} ({path})"),
            retry: Retry::Worthwhile,
        }),
        Recorded::Nobody | Recorded::Corrupt if carries_marks(bytes, owner, &record.key) => Ok(()),
        Recorded::Nobody | Recorded::Corrupt => Err(FileError::refused(format!(
            "file exists and is not Farshore's: move it away, or take the object out of the service ({path})"
        ))),
    }
}

/// Whether a file is this object with this owner's marks.
fn carries_marks(bytes: &[u8], owner: &Owner, key: &ObjectKey) -> bool {
    let mut documents = yaml::read(bytes);
    let (Some((_, Ok(body))), true) = (documents.pop(), documents.is_empty()) else { return false };
    is_marked(&body, owner) && Manifest::read(body, String::new()).is_ok_and(|manifest| manifest.key == *key)
}

/// What is at a path, without following a link.
fn find(path: &Path) -> Result<Found, FileError> {
    let failed = FileError::io("reading the file", path);
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(failed(error)),
    };
    if !kind.is_file() {
        let what = if kind.is_dir() { "folder" } else { "not a regular file" };
        return Ok(Found::Other(what));
    }
    // Between the look and the opening it may have become a link or a pipe: neither is followed or waited for.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).expect("flags of open(2) fit an int");
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    let mut bytes = Vec::new();
    match file.and_then(|file| file.take(READ_LIMIT).read_to_end(&mut bytes)) {
        Ok(_) => Ok(Found::File(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Nothing),
        Err(error) => Err(failed(error)),
    }
}

fn remove_file(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Ok(()) => sync_folder(path.parent().unwrap_or(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(FileError::io("removing the file", path)(error)),
    }
}

fn sync_folder(path: &Path) -> Result<(), FileError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(FileError::io("syncing the folder", path))
}
