//! Files as a deterministic tar, compressed with zstd.

use std::io::{self, Write};

use farshore_shared::digest::Digest;
use farshore_shared::wire::{ARTIFACT_LIMIT, Artifact, TAR_LIMIT};

use super::files::{Listed, Mode, ObjectId, ReadError};
use super::{ArtifactError, Closure, ENTRY_LIMIT};

/// Counts up whenever the same files would give other bytes: a change of the format below, or a
/// library that compresses differently.
pub const PACKER_VERSION: u32 = 1;

/// Above 3, levels cost much time and save little on manifests.
const LEVEL: i32 = 3;

/// A tar ends with two blocks of zeros, and every header is one block.
const BLOCK: u64 = 512;

/// An artifact and its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The compressed tar.
    pub blob: Vec<u8>,
    /// Its names and sizes.
    pub artifact: Artifact,
}

/// Packs the files of a closure, whose contents `read` brings: it gets a blob's id and how many bytes
/// it may have.
///
/// The tar has regular files only, by their paths from the repository's root, sorted bytewise; modes
/// are 0644 or 0755, times, owners and groups are 0 without names; paths over 100 bytes have GNU
/// long-name entries. The zstd frame has its content's size and checksum.
///
/// # Errors
/// [`ArtifactError`], naming the file at which a limit was reached or that could not be read.
pub fn pack(
    closure: &Closure,
    mut read: impl FnMut(&ObjectId, u64) -> Result<Vec<u8>, ReadError>,
) -> Result<Packed, ArtifactError> {
    if closure.files().len() > ENTRY_LIMIT {
        return Err(ArtifactError::TooManyFiles(closure.path().clone()));
    }
    let mut tar = tar::Builder::new(Vec::new());
    for file in closure.files() {
        let used = u64::try_from(tar.get_ref().len()).expect("a length fits in 64 bits");
        let left = TAR_LIMIT.saturating_sub(used + 8 * BLOCK);
        let bytes = read(&file.id, left)
            .map_err(|source| ArtifactError::Reading { path: file.path.clone(), source })?;
        if u64::try_from(bytes.len()).expect("a length fits in 64 bits") > left {
            return Err(ArtifactError::TarTooLarge(file.path.clone()));
        }
        append(&mut tar, file, &bytes)
            .map_err(|source| ArtifactError::Packing { path: file.path.clone(), source })?;
    }
    let packing = |source| ArtifactError::Packing { path: closure.path().clone(), source };
    let tar = tar.into_inner().map_err(packing)?;
    let blob = compress(&tar).map_err(packing)?;
    describe(&tar, blob)
}

fn append(tar: &mut tar::Builder<Vec<u8>>, file: &Listed, bytes: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(if file.mode == Mode::Executable { 0o755 } else { 0o644 });
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(u64::try_from(bytes.len()).expect("a length fits in 64 bits"));
    tar.append_data(&mut header, file.path.as_str(), bytes)
}

fn compress(tar: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), LEVEL)?;
    encoder.include_checksum(true)?;
    encoder.include_contentsize(true)?;
    encoder.set_pledged_src_size(Some(u64::try_from(tar.len()).expect("a length fits in 64 bits")))?;
    encoder.write_all(tar)?;
    encoder.finish()
}

fn describe(tar: &[u8], blob: Vec<u8>) -> Result<Packed, ArtifactError> {
    let size = u64::try_from(blob.len()).expect("a length fits in 64 bits");
    if size > ARTIFACT_LIMIT {
        return Err(ArtifactError::TooLarge(size));
    }
    let artifact = Artifact {
        digest: Digest::of(&blob),
        size,
        tar_digest: Digest::of(tar),
        tar_size: u64::try_from(tar.len()).expect("a length fits in 64 bits"),
    };
    Ok(Packed { blob, artifact })
}
