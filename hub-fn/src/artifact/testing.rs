//! Files in memory: the double of a repository's tree.

use std::collections::BTreeMap;

use super::{Entry, Files, Listed, Mode, ObjectId, ReadError, TreePath};

/// Files by path, each with its mode and content.
#[derive(Default, Clone)]
pub(crate) struct MemoryFiles(BTreeMap<TreePath, (Mode, Vec<u8>)>);

impl MemoryFiles {
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let mut all = Self::default();
        for (path, content) in files {
            all.put(path, Mode::File, content.as_bytes());
        }
        all
    }

    pub(crate) fn put(&mut self, path: &str, mode: Mode, content: &[u8]) {
        self.0.insert(path.parse().expect("a path"), (mode, content.to_vec()));
    }

    fn id(content: &[u8]) -> ObjectId {
        let mut id = [0; 20];
        id.copy_from_slice(&farshore_shared::digest::Digest::of(content).as_bytes()[..20]);
        ObjectId(id)
    }
}

fn below(path: &TreePath, folder: &TreePath) -> bool {
    folder.as_str().is_empty()
        || path.as_str().strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
}

impl Files for MemoryFiles {
    fn entry(&self, path: &TreePath) -> Result<Option<Entry>, ReadError> {
        if let Some((mode, content)) = self.0.get(path) {
            return Ok(Some(Entry { mode: *mode, id: Self::id(content) }));
        }
        let folder = path.as_str().is_empty() || self.0.keys().any(|file| below(file, path));
        Ok(folder.then_some(Entry { mode: Mode::Folder, id: Self::id(b"folder") }))
    }

    fn list(&self, folder: &TreePath, limit: usize) -> Result<Vec<Listed>, ReadError> {
        let found: Vec<_> = self
            .0
            .iter()
            .filter(|(path, _)| below(path, folder))
            .map(|(path, (mode, content))| Listed { path: path.clone(), mode: *mode, id: Self::id(content) })
            .collect();
        if found.len() > limit { Err("too many".into()) } else { Ok(found) }
    }

    fn blob(&self, id: &ObjectId, limit: u64) -> Result<Vec<u8>, ReadError> {
        let found = self.0.values().find(|(_, content)| Self::id(content) == *id);
        let (_, content) = found.ok_or("no such blob")?;
        if u64::try_from(content.len())? > limit { Err("too large".into()) } else { Ok(content.clone()) }
    }
}
