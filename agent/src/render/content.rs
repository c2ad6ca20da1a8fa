//! From an artifact's blob to its files: verified before it is decompressed, bounded, in memory.
//!
//! Every file is a slice of the one decompressed tar, so unpacking copies nothing. Nothing here
//! touches the file system.

use std::collections::BTreeMap;
use std::io::Read as _;

use bytes::Bytes;
use farshore_shared::digest::Digest;
use farshore_shared::wire::{ARTIFACT_LIMIT, Artifact, TAR_LIMIT};
use tar::{EntryType, Header};

const BLOCK: usize = 512;

/// The files of an artifact, by their path from the root of the repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    files: BTreeMap<String, Bytes>,
}

/// How much of an artifact is unpacked at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the compressed blob.
    pub blob: u64,
    /// Bytes of the tar.
    pub tar: u64,
    /// Files.
    pub entries: usize,
    /// Bytes of one path.
    pub path: usize,
    /// The zstd window, as a power of two: it is allocated before any content is seen.
    pub window_log: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { blob: ARTIFACT_LIMIT, tar: TAR_LIMIT, entries: 100_000, path: 1024, window_log: 27 }
    }
}

/// Why an artifact cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// It is declared larger than what is ever accepted.
    #[error("artifact is too large ({what} of {size} bytes, limit {limit})")]
    TooLarge {
        /// The blob or the tar.
        what: &'static str,
        /// The declared size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The bytes are not the ones that were signed for.
    #[error("artifact is not the one that was signed ({what}: expected {expected}, got {got})")]
    Mismatch {
        /// Which property of which layer.
        what: &'static str,
        /// As signed.
        expected: String,
        /// As found.
        got: String,
    },
    /// The compressed layer is broken, or asks for too large a window.
    #[error("decompressing the artifact (window limit 2^{window_log} bytes)")]
    Zstd {
        /// The limit on the window.
        window_log: u32,
        /// What the decoder said.
        #[source]
        source: std::io::Error,
    },
    /// Bytes follow the one compressed frame.
    #[error("artifact has bytes after its end ({count})")]
    Concatenated {
        /// How many.
        count: usize,
    },
    /// The tar is broken or has something that an artifact never has.
    #[error("reading the artifact's tar (entry {entry:?} at byte {at}): {fault}")]
    Tar {
        /// The path of the entry, as far as it is known.
        entry: String,
        /// Where its header begins.
        at: usize,
        /// What is wrong with it.
        fault: TarFault,
    },
}

/// What is wrong with an entry of a tar.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TarFault {
    /// The archive ends in the middle of something.
    #[error("it is cut off")]
    Truncated,
    /// The header's checksum does not fit, or a number in it cannot be read.
    #[error("its header is broken")]
    Header,
    /// The header promises more data than there is.
    #[error("it promises {0} bytes, more than the archive has left")]
    Size(u64),
    /// A link, a device, a folder, a sparse file ...
    #[error("it is not a regular file (type {0:?})")]
    Kind(char),
    /// An extended header with something else than a path.
    #[error("its extended header has {0:?}, where only a path is known")]
    Extension(String),
    /// A path that leads elsewhere or means different things to different readers.
    #[error("its path is not accepted: {0}")]
    Path(&'static str),
    /// A path over the limit.
    #[error("its path has {0} bytes, limit {1}")]
    LongPath(usize, usize),
    /// Two entries of one path, or a file where another entry needs a folder.
    #[error("another entry has that path already")]
    Duplicate,
    /// Too many entries.
    #[error("there are more than {0} entries")]
    Entries(usize),
    /// Something follows the end of the archive.
    #[error("something follows the end of the archive")]
    Trailing,
}

impl Content {
    /// Content made of these files, for callers that have them already.
    #[must_use]
    pub fn from_files(files: BTreeMap<String, Bytes>) -> Self {
        Self { files }
    }

    /// Every file, sorted by path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.files.iter().map(|(path, bytes)| (path.as_str(), bytes))
    }

    /// The files at or below a folder, sorted by path; all of them for the empty path.
    ///
    /// A path that names one file gives that file.
    pub fn below<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = (&'a str, &'a Bytes)> {
        let folder = folder.trim_matches('/');
        let folder = if folder == "." { "" } else { folder };
        self.iter().filter(move |(path, _)| match path.strip_prefix(folder) {
            Some(rest) => folder.is_empty() || rest.is_empty() || rest.starts_with('/'),
            None => false,
        })
    }
}

/// Unpacks an artifact.
///
/// Digest and size of the blob are verified before anything is decompressed, digest and size of the
/// tar before anything in it is read.
///
/// # Errors
/// [`ContentError`], naming the entry and the limit.
pub fn unpack(blob: &[u8], artifact: &Artifact, limits: &Limits) -> Result<Content, ContentError> {
    let declared = [("blob", artifact.size, limits.blob), ("tar", artifact.tar_size, limits.tar)];
    if let Some((what, size, limit)) = declared.into_iter().find(|(_, size, limit)| size > limit) {
        return Err(ContentError::TooLarge { what, size, limit });
    }
    verify(blob, artifact.size, artifact.digest, "size of the blob", "digest of the blob")?;
    let tar = decompress(blob, artifact.tar_size, limits.window_log)?;
    verify(&tar, artifact.tar_size, artifact.tar_digest, "size of the tar", "digest of the tar")?;
    read_tar(&Bytes::from(tar), limits)
}

fn verify(
    bytes: &[u8],
    size: u64,
    digest: Digest,
    size_name: &'static str,
    digest_name: &'static str,
) -> Result<(), ContentError> {
    let mismatch = |what, expected: String, got: String| Err(ContentError::Mismatch { what, expected, got });
    if bytes.len() as u64 != size {
        return mismatch(size_name, size.to_string(), bytes.len().to_string());
    }
    let got = Digest::of(bytes);
    if got != digest {
        return mismatch(digest_name, digest.to_string(), got.to_string());
    }
    Ok(())
}

/// At most one byte more than `size`, which is what tells a bomb from a mistake.
fn decompress(blob: &[u8], size: u64, window_log: u32) -> Result<Vec<u8>, ContentError> {
    let broken = |source| ContentError::Zstd { window_log, source };
    let mut decoder = zstd::stream::read::Decoder::with_buffer(blob).map_err(broken)?.single_frame();
    decoder.window_log_max(window_log).map_err(broken)?;
    let mut tar = Vec::new();
    (&mut decoder).take(size.saturating_add(1)).read_to_end(&mut tar).map_err(broken)?;
    if tar.len() as u64 == size {
        let count = decoder.into_inner().len();
        if count > 0 {
            return Err(ContentError::Concatenated { count });
        }
    }
    Ok(tar)
}

fn read_tar(tar: &Bytes, limits: &Limits) -> Result<Content, ContentError> {
    let mut reader = Reader { tar, at: 0, limits, long_path: None };
    let mut files = BTreeMap::new();
    while let Some((at, path, data)) = reader.next()? {
        let fault = |fault| Err(ContentError::Tar { entry: path.clone(), at, fault });
        if files.len() == limits.entries {
            return fault(TarFault::Entries(limits.entries));
        }
        if files.contains_key(&path) {
            return fault(TarFault::Duplicate);
        }
        files.insert(path, data);
    }
    for path in files.keys() {
        let mut parents = path.match_indices('/').map(|(at, _)| &path[..at]);
        if parents.any(|parent| files.contains_key(parent)) {
            let fault = TarFault::Duplicate;
            return Err(ContentError::Tar { entry: path.clone(), at: tar.len(), fault });
        }
    }
    Ok(Content { files })
}

/// Walks over the headers of a tar (POSIX.1-2017, pax, section "ustar Interchange Format").
struct Reader<'a> {
    tar: &'a Bytes,
    at: usize,
    limits: &'a Limits,
    /// What a preceding extended header says of the next entry.
    long_path: Option<Vec<u8>>,
}

impl Reader<'_> {
    /// The next regular file: where its header begins, its path, its data.
    fn next(&mut self) -> Result<Option<(usize, String, Bytes)>, ContentError> {
        loop {
            let at = self.at;
            let block = self.block().map_err(|fault| self.fault(at, &[], fault))?;
            if block.iter().all(|byte| *byte == 0) {
                return self.end(at).map(|()| None).map_err(|fault| self.fault(at, &[], fault));
            }
            let header = Header::from_byte_slice(&block);
            let short = header.path_bytes().into_owned();
            let fail = |reader: &Self, fault| reader.fault(at, &short, fault);
            let data = self.data(header).map_err(|fault| fail(self, fault))?;
            match header.entry_type() {
                EntryType::Regular => {
                    let path = self.long_path.take().unwrap_or_else(|| short.clone());
                    let path = accept(&path, self.limits.path).map_err(|f| self.fault(at, &path, f))?;
                    return Ok(Some((at, path, data)));
                }
                EntryType::GNULongName => self.extend(data.strip_suffix(b"\0").unwrap_or(&data)),
                EntryType::XHeader => pax_path(&data).and_then(|path| self.extend(path)),
                other => Err(TarFault::Kind(char::from(other.as_byte()))),
            }
            .map_err(|fault| fail(self, fault))?;
        }
    }

    fn block(&mut self) -> Result<Bytes, TarFault> {
        let block = self.tar.get(self.at..self.at + BLOCK).ok_or(TarFault::Truncated)?;
        self.at += BLOCK;
        Ok(self.tar.slice_ref(block))
    }

    fn data(&mut self, header: &Header) -> Result<Bytes, TarFault> {
        let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
        let bytes = header.as_bytes();
        // The checksum is taken with its own eight bytes as spaces.
        let expected = sum(&bytes[..148]) + 8 * u32::from(b' ') + sum(&bytes[156..]);
        if header.cksum().ok() != Some(expected) {
            return Err(TarFault::Header);
        }
        let size = header.entry_size().map_err(|_| TarFault::Header)?;
        let left = self.tar.len() - self.at;
        let length = usize::try_from(size).ok().filter(|size| *size <= left).ok_or(TarFault::Size(size))?;
        let data = self.tar.slice(self.at..self.at + length);
        self.at += length.next_multiple_of(BLOCK);
        Ok(data)
    }

    fn extend(&mut self, path: &[u8]) -> Result<(), TarFault> {
        if self.long_path.is_some() {
            return Err(TarFault::Duplicate);
        }
        if path.len() > self.limits.path {
            return Err(TarFault::LongPath(path.len(), self.limits.path));
        }
        self.long_path = Some(path.to_vec());
        Ok(())
    }

    /// The archive ends with two blocks of zeros, and after them is nothing but zeros.
    fn end(&self, at: usize) -> Result<(), TarFault> {
        let rest = &self.tar[at..];
        match (rest.len() >= 2 * BLOCK && self.long_path.is_none(), rest.iter().all(|byte| *byte == 0)) {
            (true, true) => Ok(()),
            (false, true) => Err(TarFault::Truncated),
            (_, false) => Err(TarFault::Trailing),
        }
    }

    fn fault(&self, at: usize, path: &[u8], fault: TarFault) -> ContentError {
        let path = self.long_path.as_deref().unwrap_or(path);
        let entry = String::from_utf8_lossy(&path[..path.len().min(200)]).into_owned();
        ContentError::Tar { entry, at, fault }
    }
}

/// The path in an extended header that has nothing else.
fn pax_path(data: &[u8]) -> Result<&[u8], TarFault> {
    let mut path = None;
    for record in tar::PaxExtensions::new(data) {
        let record = record.map_err(|_| TarFault::Header)?;
        if record.key_bytes() != b"path" || path.is_some() {
            return Err(TarFault::Extension(String::from_utf8_lossy(record.key_bytes()).into_owned()));
        }
        path = Some(record.value_bytes());
    }
    path.ok_or(TarFault::Header)
}

fn accept(path: &[u8], limit: usize) -> Result<String, TarFault> {
    if path.len() > limit {
        return Err(TarFault::LongPath(path.len(), limit));
    }
    let path = std::str::from_utf8(path).map_err(|_| TarFault::Path("not UTF-8"))?;
    if path.contains(['\\', '\0']) {
        return Err(TarFault::Path("a backslash or a NUL"));
    }
    if path.starts_with('/') {
        return Err(TarFault::Path("absolute"));
    }
    match path.split('/').find(|part| matches!(*part, "" | "." | "..")) {
        Some("..") => Err(TarFault::Path("'..' in it")),
        Some(_) => Err(TarFault::Path("an empty part or '.' in it")),
        None => Ok(path.to_owned()),
    }
}

#[cfg(test)]
#[path = "content_tests.rs"]
mod tests;
