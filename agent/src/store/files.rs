//! How anything in the state folder is written and read: whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use farshore_shared::digest::Digest;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Found, StoreError};

/// Writes a file that its owner alone reads: after a power cut there is the old one or the new one.
///
/// # Errors
/// [`StoreError::Io`], such as a full disk; the old file is untouched then.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    stage(path, bytes)?;
    publish(&temporary(path), path)
}

/// Writes files of one folder: after a power cut each of them is the old one or the new one.
///
/// # Errors
/// [`StoreError::Io`], such as a full disk; then all are the old ones, or some are new already.
pub fn write_all(dir: &Path, files: &[(PathBuf, Vec<u8>)]) -> Result<(), StoreError> {
    for (path, bytes) in files {
        stage(path, bytes)?;
    }
    for (path, _) in files {
        rename(&temporary(path), path)?;
    }
    sync_folder(dir)
}

/// Writes a file under its temporary name, so that it survives a power cut there.
fn stage(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    put(path, bytes, File::sync_all)
}

/// Writes a file under its temporary name; `then` says what else it takes for that to be done.
fn put(path: &Path, bytes: &[u8], then: fn(&File) -> io::Result<()>) -> Result<(), StoreError> {
    let temporary = temporary(path);
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| then(&file)));
    written.map_err(|source| {
        // What was half written is of no use; if even this fails, the next write truncates it.
        drop(fs::remove_file(&temporary));
        StoreError::Io { action: "writing a file", path: path.to_owned(), source }
    })
}

/// Gives a file that is whole and synced its name.
///
/// # Errors
/// [`StoreError::Io`].
pub fn publish(temporary: &Path, path: &Path) -> Result<(), StoreError> {
    rename(temporary, path)?;
    sync_folder(path.parent().unwrap_or(path))
}

fn rename(temporary: &Path, path: &Path) -> Result<(), StoreError> {
    fs::rename(temporary, path).map_err(|source| StoreError::Io {
        action: "renaming a file",
        path: path.to_owned(),
        source,
    })
}

/// The name under which a file is written before it has its own. The folder is locked, so that
/// nobody else uses it; what a power cut left there is overwritten.
fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.new"))
}

/// Makes the names in a folder survive a power cut.
///
/// # Errors
/// [`StoreError::Io`].
pub fn sync_folder(dir: &Path) -> Result<(), StoreError> {
    File::open(dir).and_then(|folder| folder.sync_all()).map_err(|source| StoreError::Io {
        action: "syncing a folder",
        path: dir.to_owned(),
        source,
    })
}

/// Makes a folder, and those above it, unless it is there; after a power cut it is still there.
///
/// # Errors
/// [`StoreError::Io`].
pub fn make_folder(dir: &Path) -> Result<(), StoreError> {
    if dir.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(dir).map_err(|source| StoreError::Io {
        action: "making a folder",
        path: dir.to_owned(),
        source,
    })?;
    sync_folder(dir.parent().unwrap_or(dir))
}

/// Reads a file of at most `limit` bytes; nothing where there is none.
///
/// # Errors
/// [`StoreError::Io`], [`StoreError::TooLarge`].
pub fn read(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, StoreError> {
    let failed = |source| StoreError::Io { action: "reading a file", path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    let mut bytes = Vec::new();
    let read = file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    if u64::try_from(read).is_ok_and(|read| read <= limit) {
        Ok(Some(bytes))
    } else {
        Err(StoreError::TooLarge { path: path.to_owned(), limit })
    }
}

/// Removes a file; one that is not there is fine.
///
/// # Errors
/// [`StoreError::Io`].
pub fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(source) => Err(StoreError::Io { action: "removing a file", path: path.to_owned(), source }),
    }
}

/// The names of the files in a folder, without those that are being written.
///
/// # Errors
/// [`StoreError::Io`].
pub fn list(dir: &Path) -> Result<Vec<String>, StoreError> {
    let failed =
        |source: io::Error| StoreError::Io { action: "listing a folder", path: dir.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_file()
            && let Some(name) = entry.file_name().to_str()
            && !name.starts_with('.')
        {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Writes a value as [`save`] does, but waits for no disk: after a power cut there is the old one, the new one, or
/// one that its checksum shows to be damaged. For what nothing depends on.
///
/// # Errors
/// [`StoreError::Io`].
pub fn save_lightly<T: Serialize>(path: &Path, value: &T) -> Result<(), StoreError> {
    put(path, &encode(value), |_| Ok(()))?;
    rename(&temporary(path), path)
}

/// Writes a value as JSON below a line with its checksum: `sha256 <64 hexadecimal digits>`.
///
/// # Errors
/// [`StoreError::Io`].
pub fn save<T: Serialize>(path: &Path, value: &T) -> Result<(), StoreError> {
    write(path, &encode(value))
}

/// What [`save`] writes.
///
/// # Panics
/// Never: what is stored has string keys only.
#[must_use]
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let json = serde_json::to_vec(value).expect("what is stored has string keys only");
    let mut bytes = format!("sha256 {}\n", Digest::of(&json)).into_bytes();
    bytes.extend_from_slice(&json);
    bytes
}

/// Reads what [`save`] wrote.
///
/// # Errors
/// [`StoreError::Io`] when the disk refuses; a file that is not what was written is
/// [`Found::Corrupt`].
pub fn load<T: DeserializeOwned>(path: &Path, limit: u64) -> Result<Found<T>, StoreError> {
    let bytes = match read(path, limit) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(Found::Absent),
        Err(error @ StoreError::TooLarge { .. }) => return Ok(Found::Corrupt(error.to_string())),
        Err(error) => return Err(error),
    };
    Ok(parse(&bytes).map_or_else(|why| Found::Corrupt(format!("{} {why}", path.display())), Found::Good))
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let newline = bytes.iter().position(|b| *b == b'\n').ok_or("has no checksum: it was cut")?;
    let (line, json) = bytes.split_at(newline);
    let json = &json[1..];
    if line != format!("sha256 {}", Digest::of(json)).as_bytes() {
        return Err("does not match its checksum".to_owned());
    }
    serde_json::from_slice(json).map_err(|e| format!("cannot be read by this version: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_cut_at_any_byte_leaves_the_old_file() {
        let temp = tempfile::tempdir().expect("a folder");
        let path = temp.path().join("file");
        save(&path, &"old").expect("written");
        save(&temp.path().join("next"), &"new").expect("written");
        let new = fs::read(temp.path().join("next")).expect("there");
        for end in 0..=new.len() {
            // The power goes after so many bytes of the temporary file.
            fs::write(temporary(&path), &new[..end]).expect("written");
            assert_eq!(load::<String>(&path, 1000).expect("readable"), Found::Good("old".to_owned()));
        }
        assert_eq!(list(temp.path()).expect("listed"), ["file", "next"]);
        save(&path, &"newer").expect("a leftover is no obstacle");
        assert_eq!(load::<String>(&path, 1000).expect("readable"), Found::Good("newer".to_owned()));
    }

    #[test]
    fn a_cut_or_flipped_file_is_corrupt_and_not_absent() {
        let temp = tempfile::tempdir().expect("a folder");
        let path = temp.path().join("file");
        assert_eq!(load::<String>(&path, 1000).expect("readable"), Found::Absent);
        save(&path, &"value").expect("written");
        let whole = fs::read(&path).expect("there");
        for at in 0..whole.len() {
            fs::write(&path, &whole[..at]).expect("written");
            assert!(matches!(load::<String>(&path, 1000), Ok(Found::Corrupt(_))), "cut at {at}");
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << bit;
                fs::write(&path, &flipped).expect("written");
                assert!(matches!(load::<String>(&path, 1000), Ok(Found::Corrupt(_))), "flipped at {at}");
            }
        }
        fs::write(&path, vec![b'x'; 1001]).expect("written");
        assert!(matches!(load::<String>(&path, 1000), Ok(Found::Corrupt(_))));
    }

    #[test]
    fn a_full_disk_is_an_error_that_names_the_file_and_keeps_the_old_one() {
        let temp = tempfile::tempdir().expect("a folder");
        let path = temp.path().join("file");
        write(&path, b"old").expect("written");
        std::os::unix::fs::symlink("/dev/full", temporary(&path)).expect("linked");
        let refused = write(&path, b"new").expect_err("no space");
        assert!(refused.to_string().contains(&path.display().to_string()), "{refused}");
        assert_eq!(fs::read(&path).expect("there"), b"old");
    }
}
