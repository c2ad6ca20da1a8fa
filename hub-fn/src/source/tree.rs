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
        let size = self.repo.find_header(id).map_err(damaged)?.size();
        if size > limit {
            return Err(SourceError::BlobTooLarge { blob: id.to_string(), size, limit });
        }
        let mut object = self.repo.find_object(id).map_err(damaged)?;
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
