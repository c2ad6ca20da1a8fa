//! Artifacts by digest. Nothing is visible under a digest that was not verified against it.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use farshore_shared::digest::{Digest, Hasher};
use farshore_shared::wire::ARTIFACT_LIMIT;

use super::{Found, StoreError, files};

/// The folder of artifacts.
#[derive(Debug, Clone)]
pub struct Content {
    dir: PathBuf,
}

impl Content {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn path(&self, digest: Digest) -> PathBuf {
        self.dir.join(digest.to_string())
    }

    fn partial(&self, digest: Digest) -> PathBuf {
        self.dir.join("partial").join(digest.to_string())
    }

    /// Stores bytes under their digest.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] when it is not theirs; [`StoreError::Io`].
    pub fn put(&self, digest: Digest, bytes: &[u8]) -> Result<(), StoreError> {
        let got = Digest::of(bytes);
        if got != digest {
            return Err(StoreError::Mismatch { expected: digest, got });
        }
        files::write(&self.path(digest), bytes)
    }

    /// An artifact's bytes, verified again.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn get(&self, digest: Digest) -> Result<Found<Vec<u8>>, StoreError> {
        let bytes = match files::read(&self.path(digest), ARTIFACT_LIMIT) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Found::Absent),
            Err(error @ StoreError::TooLarge { .. }) => return Ok(Found::Corrupt(error.to_string())),
            Err(error) => return Err(error),
        };
        let got = Digest::of(&bytes);
        Ok(if got == digest { Found::Good(bytes) } else { Found::Corrupt(mismatch(digest, got)) })
    }

    /// Verifies an artifact without holding it in memory, and says where it is.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn check(&self, digest: Digest) -> Result<Found<PathBuf>, StoreError> {
        let path = self.path(digest);
        Ok(match hash(&path)? {
            None => Found::Absent,
            Some((got, _)) if got == digest => Found::Good(path),
            Some((got, _)) => Found::Corrupt(mismatch(digest, got)),
        })
    }

    /// Hides an artifact that is not what its digest says, so that it is missing and fetched again. Its
    /// bytes stay beside it until [`Content::collect`]: the disk may only have been read wrongly.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn set_aside(&self, digest: Digest) -> Result<(), StoreError> {
        files::publish(&self.path(digest), &self.dir.join(format!("{digest}.corrupt")))
    }

    /// How many bytes of an artifact an interrupted download has left.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn resume_offset(&self, digest: Digest) -> Result<u64, StoreError> {
        let path = self.partial(digest);
        match fs::metadata(&path) {
            Ok(metadata) => Ok(metadata.len()),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(0),
            Err(source) => Err(StoreError::Io { action: "reading a file's length", path, source }),
        }
    }

    /// Begins a download of `size` bytes, or goes on with an interrupted one.
    ///
    /// # Errors
    /// [`StoreError::Io`]; [`StoreError::TooLarge`] for more than an artifact may have.
    pub fn download(&self, digest: Digest, size: u64) -> Result<Download, StoreError> {
        let partial = self.partial(digest);
        if size > ARTIFACT_LIMIT {
            return Err(StoreError::TooLarge { path: partial, limit: ARTIFACT_LIMIT });
        }
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&partial)
            .map_err(|source| io("opening a partial download", &partial, source))?;
        let written = self.resume_offset(digest)?;
        let mut download = Download { digest, size, written, file, partial, target: self.path(digest) };
        if written > size {
            download.restart()?;
        }
        Ok(download)
    }

    /// The artifacts that are here whole. They are verified when they are read, not now.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn present(&self) -> Result<BTreeSet<Digest>, StoreError> {
        Ok(files::list(&self.dir)?.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// Removes every artifact and partial download that is not in `keep`. Gives how many went.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn collect(&self, keep: &BTreeSet<Digest>) -> Result<usize, StoreError> {
        let mut gone = 0;
        for dir in [self.dir.clone(), self.dir.join("partial")] {
            for name in files::list(&dir)? {
                if !name.parse().is_ok_and(|digest: Digest| keep.contains(&digest)) {
                    files::remove(&dir.join(name))?;
                    gone += 1;
                }
            }
        }
        Ok(gone)
    }
}

fn io(action: &'static str, path: &Path, source: std::io::Error) -> StoreError {
    StoreError::Io { action, path: path.to_owned(), source }
}

fn mismatch(expected: Digest, got: Digest) -> String {
    StoreError::Mismatch { expected, got }.to_string()
}

/// The digest and the length of a file, piece by piece.
fn hash(path: &Path) -> Result<Option<(Digest, u64)>, StoreError> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(io("reading a file", path, source)),
    };
    let (mut hasher, mut length, mut piece) = (Hasher::default(), 0, vec![0; 64 << 10]);
    loop {
        match file.read(&mut piece).map_err(|source| io("reading a file", path, source))? {
            0 => return Ok(Some((hasher.finish(), length))),
            n => {
                hasher.update(&piece[..n]);
                length += u64::try_from(n).unwrap_or(u64::MAX);
            }
        }
    }
}

/// An artifact that is being downloaded. What has arrived stays on disk until it is whole.
#[derive(Debug)]
#[must_use = "a download becomes visible when it is finished"]
pub struct Download {
    digest: Digest,
    size: u64,
    written: u64,
    file: File,
    partial: PathBuf,
    target: PathBuf,
}

impl Download {
    /// How many bytes have arrived.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.written
    }

    /// Whether all bytes have arrived.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.written == self.size
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`StoreError::Length`] for more than was announced; [`StoreError::Io`].
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let got = self.written.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if got > self.size {
            return Err(StoreError::Length { digest: self.digest, size: self.size, got });
        }
        self.file
            .write_all(bytes)
            .map_err(|source| io("writing a partial download", &self.partial, source))?;
        self.written = got;
        Ok(())
    }

    /// Forgets what has arrived.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn restart(&mut self) -> Result<(), StoreError> {
        self.file.set_len(0).map_err(|source| io("emptying a partial download", &self.partial, source))?;
        self.written = 0;
        Ok(())
    }

    /// Verifies length and digest, and makes the artifact visible.
    ///
    /// # Errors
    /// [`StoreError::Length`] when bytes are missing; [`StoreError::Mismatch`] when they are not the
    /// artifact: they are removed then, so that the next download begins anew.
    pub fn finish(self) -> Result<(), StoreError> {
        if !self.is_whole() {
            return Err(StoreError::Length { digest: self.digest, size: self.size, got: self.written });
        }
        self.file.sync_all().map_err(|source| io("syncing a partial download", &self.partial, source))?;
        let (got, _) = hash(&self.partial)?.unwrap_or((Digest::of(b""), 0));
        if got != self.digest {
            files::remove(&self.partial)?;
            return Err(StoreError::Mismatch { expected: self.digest, got });
        }
        files::publish(&self.partial, &self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    fn content() -> (tempfile::TempDir, Content) {
        let temp = tempfile::tempdir().expect("a folder");
        let content = Store::open(temp.path()).expect("new").content();
        (temp, content)
    }

    #[test]
    fn a_download_goes_on_where_it_was_interrupted() {
        let (_temp, content) = content();
        let bytes = b"artifact ".repeat(1000);
        let (digest, size) = (Digest::of(&bytes), 9000);
        let mut download = content.download(digest, size).expect("begun");
        download.append(&bytes[..4000]).expect("written");
        drop(download);
        assert_eq!(content.resume_offset(digest).expect("known"), 4000);
        assert_eq!(content.get(digest).expect("readable"), Found::Absent, "half is not visible");
        let mut download = content.download(digest, size).expect("resumed");
        assert_eq!(download.offset(), 4000);
        download.append(&bytes[4000..]).expect("written");
        download.finish().expect("whole");
        assert_eq!(content.get(digest).expect("readable"), Found::Good(bytes));
        assert!(matches!(content.check(digest), Ok(Found::Good(_))));
        assert_eq!(content.resume_offset(digest).expect("known"), 0);
    }

    #[test]
    fn wrong_bytes_never_become_visible() {
        let (_temp, content) = content();
        let digest = Digest::of(b"right");
        assert!(matches!(content.put(digest, b"wrong"), Err(StoreError::Mismatch { .. })));
        let mut download = content.download(digest, 5).expect("begun");
        assert!(matches!(download.append(b"too long"), Err(StoreError::Length { .. })));
        download.append(b"wrong").expect("written");
        assert!(matches!(download.finish(), Err(StoreError::Mismatch { .. })));
        assert_eq!(content.resume_offset(digest).expect("known"), 0, "the next download begins anew");
        let short = content.download(digest, 5).expect("begun");
        assert!(matches!(short.finish(), Err(StoreError::Length { got: 0, .. })));
        assert!(matches!(content.download(digest, u64::MAX), Err(StoreError::TooLarge { .. })));
    }

    #[test]
    fn a_flipped_bit_on_disk_is_found_when_it_is_read() {
        let (temp, content) = content();
        let digest = Digest::of(b"right");
        content.put(digest, b"right").expect("written");
        fs::write(temp.path().join(format!("content/{digest}")), b"rigit").expect("damaged");
        assert!(matches!(content.get(digest), Ok(Found::Corrupt(_))));
        assert!(matches!(content.check(digest), Ok(Found::Corrupt(_))));
        assert!(content.present().expect("listed").contains(&digest));
        content.set_aside(digest).expect("renamed");
        assert!(content.present().expect("listed").is_empty(), "what is corrupt is missing");
        content.put(digest, b"right").expect("made good");
        assert!(matches!(content.get(digest), Ok(Found::Good(_))));
    }

    #[test]
    fn collecting_keeps_what_is_named() {
        let (_temp, content) = content();
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        content.put(a, b"a").expect("written");
        content.put(b, b"b").expect("written");
        drop(content.download(Digest::of(b"c"), 1).expect("begun"));
        assert_eq!(content.collect(&BTreeSet::from([a])).expect("collected"), 2);
        assert!(matches!(content.get(a), Ok(Found::Good(_))));
        assert_eq!(content.get(b).expect("readable"), Found::Absent);
    }
}
