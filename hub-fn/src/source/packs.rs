//! The packs of a mirror: what each fetch brought, as files. A pack is named by its own checksum.
//!
//! Everything here blocks.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use gix::hash::{Hasher, Kind, hasher};
use gix::odb::pack::Bundle;
use gix::odb::pack::bundle::write::Options;
use gix::progress::Discard;

use super::Cause;

/// `PACK`, the version, and how many objects follow.
const HEADER: u64 = 12;
/// The SHA-1 of everything before it.
const TRAILER: u64 = 20;

/// One pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pack {
    /// Its checksum, by which it is named.
    pub(super) id: String,
    /// Where it is.
    pub(super) path: PathBuf,
    /// Its bytes.
    pub(super) size: u64,
}

fn folder(mirror: &Path) -> PathBuf {
    mirror.join("objects/pack")
}

/// The packs of a mirror that can be read, in the order of their names.
pub(super) fn list(mirror: &Path) -> io::Result<Vec<Pack>> {
    let mut packs = Vec::new();
    for entry in std::fs::read_dir(folder(mirror))? {
        let path = entry?.path();
        let name =
            path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.strip_prefix("pack-"));
        let is_pack = path.extension().is_some_and(|kind| kind == "pack");
        // Without its index, a pack is half written.
        if let Some(id) = name.filter(|_| is_pack && path.with_extension("idx").exists()) {
            packs.push(Pack { id: id.to_owned(), size: path.metadata()?.len(), path: path.clone() });
        }
    }
    packs.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(packs)
}

/// Takes a pack into a mirror. Every object in it is read and named by what it is.
///
/// # Errors
/// What is wrong with the pack.
pub(super) fn take(mirror: &Path, pack: impl Read) -> Result<(), Cause> {
    let mut pack = BufReader::new(pack);
    let interrupted = AtomicBool::new(false);
    let none = None::<gix::odb::HandleArc>;
    let into = folder(mirror);
    let outcome = Bundle::write_to_directory(
        &mut pack,
        Some(&into),
        &mut Discard,
        &interrupted,
        none,
        Kind::Sha1,
        Options::default(),
    )?;
    // It is kept from a collection that nobody runs here.
    if let Some(keep) = outcome.keep_path {
        std::fs::remove_file(keep).ok();
    }
    Ok(())
}

/// Which packs to make one of, once there are more than `most`: all but the largest, as long as they are
/// small beside it, so that a byte is not moved again and again.
pub(super) fn to_merge(packs: &[Pack], most: usize) -> Vec<Pack> {
    if packs.len() <= most {
        return Vec::new();
    }
    let mut by_size = packs.to_vec();
    by_size.sort_by_key(|pack| std::cmp::Reverse(pack.size));
    let rest: u64 = by_size[1..].iter().map(|pack| pack.size).sum();
    if rest < by_size[0].size / 2 { by_size.split_off(1) } else { by_size }
}

/// Makes one pack of several. Deltas name their bases by object or by distance within the pack, and both
/// stay as they are when packs are put one after the other.
///
/// # Errors
/// What is wrong with a pack, or the disk.
pub(super) fn merge(mirror: &Path, packs: &[Pack]) -> Result<(), Cause> {
    let mut objects = 0_u32;
    for pack in packs {
        objects = objects.checked_add(count(pack)?).ok_or_else(|| io::Error::other("too many objects"))?;
    }
    let head = [b"PACK".as_slice(), &2_u32.to_be_bytes(), &objects.to_be_bytes()].concat();
    let mut hasher: Hasher = hasher(Kind::Sha1);
    hasher.update(&head);
    let mut piece = vec![0; 64 << 10];
    for pack in packs {
        let mut body = body(pack)?;
        loop {
            match body.read(&mut piece)? {
                0 => break,
                taken => hasher.update(&piece[..taken]),
            }
        }
    }
    let trailer = hasher.try_finalize()?;
    let mut whole: Box<dyn Read> = Box::new(io::Cursor::new(head));
    for pack in packs {
        whole = Box::new(whole.chain(body(pack)?));
    }
    take(mirror, whole.chain(trailer.as_bytes()))?;
    let made = format!("{trailer}");
    for pack in packs.iter().filter(|pack| pack.id != made) {
        // The index first: without it, the pack is not looked at.
        std::fs::remove_file(pack.path.with_extension("idx"))?;
        std::fs::remove_file(&pack.path)?;
    }
    Ok(())
}

fn count(pack: &Pack) -> io::Result<u32> {
    let mut head = [0; 12];
    File::open(&pack.path)?.read_exact(&mut head)?;
    let [b'P', b'A', b'C', b'K', 0, 0, 0, 2, a, b, c, d] = head else {
        return Err(io::Error::other("not a pack of version 2"));
    };
    Ok(u32::from_be_bytes([a, b, c, d]))
}

fn body(pack: &Pack) -> io::Result<io::Take<File>> {
    let mut file = File::open(&pack.path)?;
    file.seek(SeekFrom::Start(HEADER))?;
    Ok(file.take(pack.size.saturating_sub(HEADER + TRAILER)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sizes: &[u64]) -> Vec<Pack> {
        let pack = |(n, size): (usize, &u64)| Pack { id: n.to_string(), path: PathBuf::new(), size: *size };
        sizes.iter().enumerate().map(pack).collect()
    }

    #[test]
    fn small_packs_are_merged_beside_a_large_one_and_with_it_once_they_are_not_small() {
        assert_eq!(to_merge(&of(&[9, 1, 1]), 3), []);
        let ids = |packs: &[u64]| -> Vec<String> {
            to_merge(&of(packs), 3).into_iter().map(|pack| pack.id).collect()
        };
        assert_eq!(ids(&[1, 90, 2, 1]), ["2", "0", "3"]);
        assert_eq!(ids(&[30, 90, 30, 1]).len(), 4);
    }
}
