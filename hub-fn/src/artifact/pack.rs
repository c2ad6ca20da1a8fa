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

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use proptest::prelude::*;

    use super::super::testing::MemoryFiles;
    use super::super::{Files as _, Kind, TreePath, closure};
    use super::*;

    fn packed(files: &MemoryFiles, path: &str) -> Packed {
        let path = path.parse().expect("a path");
        let closure = closure(files, &path, Kind::Plain).expect("a good path");
        pack(&closure, |id, limit| files.blob(id, limit)).expect("within the limits")
    }

    /// What a reader finds: path, mode, time, owner and content of each entry.
    fn unpacked(packed: &Packed) -> Vec<(String, u32, u64, u64, String)> {
        let tar = zstd::stream::decode_all(packed.blob.as_slice()).expect("a zstd frame");
        assert_eq!(Digest::of(&tar), packed.artifact.tar_digest);
        let mut archive = tar::Archive::new(tar.as_slice());
        let entries = archive.entries().expect("a tar");
        entries
            .map(|entry| {
                let mut entry = entry.expect("an entry");
                assert_eq!(entry.header().entry_type(), tar::EntryType::Regular);
                assert_eq!(entry.header().username().expect("no name"), Some(""));
                let mut content = String::new();
                entry.read_to_string(&mut content).expect("a file");
                let header = entry.header();
                (
                    entry.path().expect("a path").to_string_lossy().into_owned(),
                    header.mode().expect("a mode"),
                    header.mtime().expect("a time"),
                    header.uid().expect("an owner") + header.gid().expect("a group"),
                    content,
                )
            })
            .collect()
    }

    fn plain(path: &str, mode: u32, content: &str) -> (String, u32, u64, u64, String) {
        (path.to_owned(), mode, 0, 0, content.to_owned())
    }

    #[test]
    fn an_artifact_has_its_files_by_repository_path_without_times_and_owners() {
        let mut files =
            MemoryFiles::of(&[("app/B.yaml", "big"), ("app/b.yaml", "small"), ("app.yaml", "no")]);
        files.put("app/bin/run", Mode::Executable, b"#!");
        let packed = packed(&files, "app");
        assert_eq!(
            unpacked(&packed),
            [
                plain("app/B.yaml", 0o644, "big"),
                plain("app/b.yaml", 0o644, "small"),
                plain("app/bin/run", 0o755, "#!")
            ]
        );
        assert_eq!(packed.artifact.digest, Digest::of(&packed.blob));
        assert_eq!(packed.artifact.size, u64::try_from(packed.blob.len()).expect("a length"));
        let size = zstd::zstd_safe::get_frame_content_size(&packed.blob).expect("a frame");
        assert_eq!(size, Some(packed.artifact.tar_size));
    }

    #[test]
    fn long_paths_come_out_whole() {
        let long = format!("app/{}/{}.yaml", "d".repeat(150), "f".repeat(200));
        let files = MemoryFiles::of(&[(&long, "x"), ("app/a", "y")]);
        let paths: Vec<_> = unpacked(&packed(&files, "app")).into_iter().map(|entry| entry.0).collect();
        assert_eq!(paths, ["app/a".to_owned(), long]);
    }

    #[test]
    fn the_bytes_of_an_artifact_do_not_change_from_release_to_release() {
        let long = format!("app/{}.yaml", "n".repeat(120));
        let mut files = MemoryFiles::of(&[("app/a.yaml", "kind: ConfigMap\n"), (&long, "kind: Secret\n")]);
        files.put("app/run.sh", Mode::Executable, b"#!/bin/sh\n");
        let packed = packed(&files, "app");
        // Where this has to change, PACKER_VERSION has to count up.
        assert_eq!(PACKER_VERSION, 1);
        assert_eq!(
            packed.artifact.tar_digest.to_string(),
            "a6bb8078479f22d82869ab16f102dd6cac50e138c24dc4a10302743ee5451a9b"
        );
        assert_eq!(
            packed.artifact.digest.to_string(),
            "282d073e627a58709fc23d206d6fcc90b6ebc9bd445d6d4a084b9eaf09a86329"
        );
    }

    #[test]
    fn what_a_file_may_have_left_is_what_the_others_left_over() {
        let files = MemoryFiles::of(&[("a", "1"), ("b", "2")]);
        let closure = closure(&files, &TreePath::root(), Kind::Plain).expect("the root");
        let mut limits = Vec::new();
        pack(&closure, |id, limit| {
            limits.push(limit);
            files.blob(id, limit)
        })
        .expect("within the limits");
        assert_eq!(limits, [TAR_LIMIT - 8 * BLOCK, TAR_LIMIT - 10 * BLOCK]);
        let error = pack(&closure, |_, _| Err("gone".into())).expect_err("it cannot be read");
        assert!(matches!(error, ArtifactError::Reading { path, .. } if path.as_str() == "a"));
    }

    proptest! {
        #[test]
        fn the_order_in_which_files_came_to_be_does_not_matter(
            files in proptest::collection::btree_map("[a-c]{1,3}/[A-Ca-c.-]{1,4}x", ".{0,40}", 1..12),
            seed in any::<u64>(),
        ) {
            let mut order: Vec<_> = files.iter().collect();
            order.sort_by_key(|(path, _)| Digest::of_parts([path.as_bytes(), &seed.to_be_bytes()]));
            let mut shuffled = MemoryFiles::default();
            for (path, content) in order {
                shuffled.put(path, Mode::File, content.as_bytes());
            }
            let sorted: Vec<_> = files.iter().map(|(path, content)| (path.as_str(), content.as_str())).collect();
            let expected = packed(&MemoryFiles::of(&sorted), "");
            prop_assert_eq!(&packed(&shuffled, ""), &expected);
            let mut paths: Vec<_> = files.keys().map(String::as_str).collect();
            paths.sort_unstable();
            let found = unpacked(&expected);
            prop_assert_eq!(found.iter().map(|entry| entry.0.as_str()).collect::<Vec<_>>(), paths);
        }
    }
}
