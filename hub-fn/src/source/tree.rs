//! Reads the files of one commit from the object database.

use gix::objs::{CommitRefIter, Kind, TreeRefIter, tree};
use gix::{ObjectId as GitId, Repository};

use super::{CommitId, Mirror, SourceError};
use crate::artifact::{Entry, Files, Listed, Mode, ObjectId, ReadError, TreePath};

/// The most bytes of one tree or commit object.
const OBJECT_LIMIT: u64 = 64 << 20;

/// The files of one commit. Every object is checked against its id as it is read.
pub struct Tree<'a> {
    mirror: &'a Mirror,
    repo: &'a Repository,
    root: GitId,
}

impl<'a> Tree<'a> {
    pub(super) fn open(
        mirror: &'a Mirror,
        repo: &'a Repository,
        commit: &CommitId,
    ) -> Result<Self, SourceError> {
        let mut tree = Self { mirror, repo, root: commit.object() };
        let bytes = tree.object(commit.object(), Kind::Commit, OBJECT_LIMIT)?;
        tree.root = CommitRefIter::from_bytes(&bytes, gix::hash::Kind::Sha1)
            .tree_id()
            .map_err(|error| mirror.damaged(error.into()))?;
        Ok(tree)
    }

    /// What is at this path; the root is a folder.
    ///
    /// # Errors
    /// [`SourceError::Corrupt`] if the mirror is damaged.
    pub fn entry(&self, path: &TreePath) -> Result<Option<Entry>, SourceError> {
        let mut found = (Mode::Folder, self.root);
        for part in path.parts() {
            if found.0 != Mode::Folder {
                return Ok(None);
            }
            let bytes = self.object(found.1, Kind::Tree, OBJECT_LIMIT)?;
            let mut next = None;
            for entry in entries(&bytes) {
                let entry = entry.map_err(|error| self.mirror.damaged(error.into()))?;
                if entry.filename == part.as_bytes() {
                    next = Some((mode(entry.mode), entry.oid.to_owned()));
                    break;
                }
            }
            let Some(next) = next else { return Ok(None) };
            found = next;
        }
        Ok(Some(Entry { mode: found.0, id: id(&found.1) }))
    }

    /// Everything below this folder but folders, recursively, sorted bytewise by path; nothing if
    /// there is no such folder.
    ///
    /// # Errors
    /// [`SourceError::TooMany`] beyond `limit` entries, folders included; [`SourceError::BadName`]
    /// for a name that is no [`TreePath`]; [`SourceError::Corrupt`] if the mirror is damaged.
    pub fn list(&self, folder: &TreePath, limit: usize) -> Result<Vec<Listed>, SourceError> {
        let mut found = Vec::new();
        let mut seen = 0;
        let mut left = match self.entry(folder)? {
            Some(Entry { mode: Mode::Folder, id }) => vec![(folder.clone(), GitId::Sha1(id.0))],
            Some(_) | None => Vec::new(),
        };
        while let Some((parent, tree)) = left.pop() {
            let bytes = self.object(tree, Kind::Tree, OBJECT_LIMIT)?;
            for entry in entries(&bytes) {
                let entry = entry.map_err(|error| self.mirror.damaged(error.into()))?;
                seen += 1;
                if seen > limit {
                    return Err(SourceError::TooMany { folder: folder.to_string(), limit });
                }
                let path = parent
                    .child(entry.filename)
                    .map_err(|source| SourceError::BadName { folder: parent.to_string(), source })?;
                match mode(entry.mode) {
                    Mode::Folder => left.push((path, entry.oid.to_owned())),
                    mode => found.push(Listed { path, mode, id: id(entry.oid) }),
                }
            }
        }
        found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// The content of a blob.
    ///
    /// # Errors
    /// [`SourceError::BlobTooLarge`] beyond `limit` bytes; [`SourceError::Corrupt`] if it is missing
    /// or is not what its id says.
    pub fn blob(&self, blob: &ObjectId, limit: u64) -> Result<Vec<u8>, SourceError> {
        self.object(GitId::Sha1(blob.0), Kind::Blob, limit)
    }

    fn object(&self, id: GitId, kind: Kind, limit: u64) -> Result<Vec<u8>, SourceError> {
        let damaged = |error: gix::Error| self.mirror.damaged(error.into());
        // One look-up: what any object may have was checked when it arrived.
        let mut object = self.repo.find_object(id).map_err(damaged)?;
        let size = u64::try_from(object.data.len()).expect("a length fits in 64 bits");
        if size > limit {
            return Err(SourceError::BlobTooLarge { blob: id.to_string(), size, limit });
        }
        let real = gix::objs::compute_hash(id.kind(), object.kind, &object.data).map_err(damaged)?;
        if real != id || object.kind != kind {
            let what = format!("an object is not what its id says (a {} instead of {id})", object.kind);
            return Err(self.mirror.damaged(what.into()));
        }
        Ok(std::mem::take(&mut object.data))
    }
}

impl Files for Tree<'_> {
    fn entry(&self, path: &TreePath) -> Result<Option<Entry>, ReadError> {
        Ok(Tree::entry(self, path)?)
    }

    fn list(&self, folder: &TreePath, limit: usize) -> Result<Vec<Listed>, ReadError> {
        Ok(Tree::list(self, folder, limit)?)
    }

    fn blob(&self, id: &ObjectId, limit: u64) -> Result<Vec<u8>, ReadError> {
        Ok(Tree::blob(self, id, limit)?)
    }
}

fn entries(bytes: &[u8]) -> TreeRefIter<'_> {
    TreeRefIter::from_bytes(bytes, gix::hash::Kind::Sha1)
}

fn id(id: &gix::hash::oid) -> ObjectId {
    let mut bytes = [0; 20];
    bytes.copy_from_slice(id.as_bytes());
    ObjectId(bytes)
}

fn mode(mode: tree::EntryMode) -> Mode {
    match mode.kind() {
        tree::EntryKind::Tree => Mode::Folder,
        tree::EntryKind::Blob => Mode::File,
        tree::EntryKind::BlobExecutable => Mode::Executable,
        tree::EntryKind::Link => Mode::Symlink,
        tree::EntryKind::Commit => Mode::Submodule,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Upstream;
    use super::super::{Branch, Limits};
    use super::*;
    use crate::artifact::{self, ArtifactError, BadPath};

    fn at(path: &str) -> TreePath {
        path.parse().expect("a path")
    }

    fn mirrored(upstream: &Upstream) -> (Mirror, CommitId) {
        let mut mirror = Mirror::open(&upstream.folder().join("mirror")).expect("an empty folder");
        let commit =
            mirror.fetch(&upstream.url(), &Branch::Default, &Limits::default()).expect("a good repository");
        (mirror, commit)
    }

    #[test]
    fn a_tree_lists_what_is_below_a_folder_in_bytewise_order() {
        let upstream = Upstream::new();
        upstream.commit(&[("a/b/c", "1"), ("a/b.x", "2"), ("a/B", "3"), ("d", "4")]);
        let (mirror, commit) = mirrored(&upstream);
        let tree = mirror.tree(&commit).expect("it was fetched");
        let paths = |folder| -> Vec<String> {
            let listed = tree.list(&at(folder), 100).expect("a good tree");
            listed.into_iter().map(|file| file.path.to_string()).collect()
        };
        assert_eq!(paths("a"), ["a/B", "a/b.x", "a/b/c"]);
        assert_eq!(paths(""), ["a/B", "a/b.x", "a/b/c", "d"]);
        assert!(paths("gone").is_empty() && paths("d").is_empty() && paths("d/e").is_empty());
        let entry = tree.entry(&at("a/b/c")).expect("a good tree").expect("it is there");
        assert_eq!(entry.mode, Mode::File);
        assert_eq!(tree.blob(&entry.id, 1).expect("a good blob"), b"1");
        assert!(matches!(tree.blob(&entry.id, 0), Err(SourceError::BlobTooLarge { size: 1, .. })));
        assert_eq!(tree.entry(&at("d/e")).expect("a good tree"), None);
    }

    #[test]
    fn a_tree_with_too_many_entries_ends_at_the_limit() {
        let upstream = Upstream::new();
        upstream.commit(&[("a/b/c", "1"), ("a/d", "2")]);
        let (mirror, commit) = mirrored(&upstream);
        let tree = mirror.tree(&commit).expect("it was fetched");
        assert!(tree.list(&at("a"), 3).is_ok());
        assert!(matches!(tree.list(&at("a"), 2), Err(SourceError::TooMany { limit: 2, .. })));
    }

    #[test]
    fn links_submodules_and_names_that_are_no_paths_are_told_apart() {
        let upstream = Upstream::new();
        upstream.commit(&[("a/x", "1"), ("b/run.sh", "2"), ("c/back\\slash", "3"), ("d/x", "4")]);
        std::os::unix::fs::symlink("/etc/passwd", upstream.work().join("a/link")).expect("our own folder");
        let head = upstream.git(&["rev-parse", "HEAD"]);
        upstream.git(&["add", "-A"]);
        upstream.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{head},d/module")]);
        upstream.git(&["update-index", "--chmod=+x", "b/run.sh"]);
        upstream.git(&["commit", "-q", "-m", "odd things"]);
        let (mirror, commit) = mirrored(&upstream);
        let tree = mirror.tree(&commit).expect("it was fetched");
        let mode = |path| tree.entry(&at(path)).expect("a good tree").map(|entry| entry.mode);
        assert_eq!(mode("a/link"), Some(Mode::Symlink));
        assert_eq!(mode("b/run.sh"), Some(Mode::Executable));
        assert_eq!(mode("d/module"), Some(Mode::Submodule));
        let closure = |path| artifact::closure(&tree, &at(path), artifact::Kind::Plain);
        assert!(matches!(closure("a"), Err(ArtifactError::Symlink(path)) if path == at("a/link")));
        assert!(matches!(closure("d"), Err(ArtifactError::Submodule(path)) if path == at("d/module")));
        assert!(closure("b").is_ok());
        let bad = tree.list(&at("c"), 100).expect_err("a backslash");
        assert!(matches!(bad, SourceError::BadName { source: BadPath::Character(_), .. }), "{bad:?}");
    }

    #[test]
    fn a_flipped_bit_is_noticed_and_mended_by_the_next_fetch() {
        let upstream = Upstream::new();
        let noise: String =
            (0..2_000u64).map(|n| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a))).collect();
        upstream.commit(&[("a/big", &noise)]);
        let (mut mirror, commit) = mirrored(&upstream);
        let packs = std::fs::read_dir(upstream.folder().join("mirror/objects/pack")).expect("packs");
        let pack = packs
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|kind| kind == "pack"))
            .expect("one pack");
        let mut bytes = std::fs::read(&pack).expect("our own file");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        std::fs::remove_file(&pack).expect("our own file");
        std::fs::write(&pack, bytes).expect("our own file");
        let reopened = Mirror::open(&upstream.folder().join("mirror")).expect("its references are good");
        let read = |mirror: &Mirror| {
            let tree = mirror.tree(&commit)?;
            let entry = tree.entry(&at("a/big"))?.expect("the tree is good");
            tree.blob(&entry.id, 1 << 20)
        };
        assert!(matches!(read(&reopened), Err(SourceError::Corrupt { .. })));
        mirror.fetch(&upstream.url(), &Branch::Default, &Limits::default()).expect("made anew");
        assert_eq!(read(&mirror).expect("a good blob"), noise.as_bytes());
    }
}
