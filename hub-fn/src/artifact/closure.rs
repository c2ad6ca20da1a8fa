//! Which files a service needs.

use std::collections::{BTreeMap, BTreeSet};

use farshore_shared::digest::Digest;

use super::files::{Entry, Files, Listed, Mode, ObjectId, TreePath};
use super::kustomization::{self, Role, Scalar};
use super::{ArtifactError, ENTRY_LIMIT, PACKER_VERSION};

/// The most bytes of one kustomization.
const KUSTOMIZATION_LIMIT: u64 = 1 << 20;

/// How a service's files refer to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Not at all: the service is what is below its path.
    Plain,
    /// By kustomizations: what they name in the same repository belongs to the service.
    Kustomize,
}

/// The files of a service: sorted bytewise by path, each once, none a link or another repository's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closure {
    path: TreePath,
    files: Vec<Listed>,
}

impl Closure {
    /// The service's path.
    #[must_use]
    pub fn path(&self) -> &TreePath {
        &self.path
    }

    /// The files, sorted bytewise by path.
    #[must_use]
    pub fn files(&self) -> &[Listed] {
        &self.files
    }

    /// What the artifact depends on: the service's path, every file's path, mode and blob id, and
    /// how it is packed. The same key gives the same artifact, so that nothing has to be built.
    #[must_use]
    pub fn key(&self) -> Digest {
        let version = PACKER_VERSION.to_be_bytes();
        let head = [b"farshore artifact".as_slice(), &version, self.path.as_str().as_bytes()];
        let files = self.files.iter().flat_map(|file| {
            let mode: &[u8] = if file.mode == Mode::Executable { b"x" } else { b"-" };
            [file.path.as_str().as_bytes(), mode, &file.id.0]
        });
        Digest::of_parts(head.into_iter().chain(files))
    }
}

/// Finds the files of the service at `path`.
///
/// # Errors
/// [`ArtifactError`], naming the path or file that is at fault.
pub fn closure(tree: &impl Files, path: &TreePath, kind: Kind) -> Result<Closure, ArtifactError> {
    match entry(tree, path)? {
        Some(Entry { mode: Mode::Folder, .. }) => {}
        Some(Entry { mode, .. }) => {
            deliverable(path, mode)?;
            return Err(ArtifactError::PathIsFile(path.clone()));
        }
        None => return Err(ArtifactError::NoPath(path.clone())),
    }
    let mut search =
        Search { tree, service: path, files: BTreeMap::new(), taken: BTreeSet::new(), left: Vec::new() };
    search.take_folder(path.clone())?;
    if search.files.is_empty() {
        return Err(ArtifactError::EmptyPath(path.clone()));
    }
    if kind == Kind::Kustomize {
        if search.kustomization(path)?.is_none() {
            return Err(ArtifactError::NoKustomization(path.clone()));
        }
        search.follow()?;
    }
    let files = search.files.into_iter().map(|(path, (mode, id))| Listed { path, mode, id }).collect();
    Ok(Closure { path: path.clone(), files })
}

fn entry(tree: &impl Files, path: &TreePath) -> Result<Option<Entry>, ArtifactError> {
    tree.entry(path).map_err(|source| ArtifactError::Reading { path: path.clone(), source })
}

fn deliverable(path: &TreePath, mode: Mode) -> Result<(), ArtifactError> {
    match mode {
        Mode::Symlink => Err(ArtifactError::Symlink(path.clone())),
        Mode::Submodule => Err(ArtifactError::Submodule(path.clone())),
        Mode::Folder | Mode::File | Mode::Executable => Ok(()),
    }
}

struct Search<'a, F> {
    tree: &'a F,
    service: &'a TreePath,
    files: BTreeMap<TreePath, (Mode, ObjectId)>,
    /// Folders that were listed: each once, however often it is named.
    taken: BTreeSet<TreePath>,
    /// Those of them whose kustomizations have not been read.
    left: Vec<TreePath>,
}

impl<F: Files> Search<'_, F> {
    fn take(&mut self, path: TreePath, mode: Mode, id: ObjectId) -> Result<(), ArtifactError> {
        deliverable(&path, mode)?;
        self.files.insert(path, (mode, id));
        if self.files.len() > ENTRY_LIMIT {
            return Err(ArtifactError::TooManyFiles(self.service.clone()));
        }
        Ok(())
    }

    fn take_folder(&mut self, folder: TreePath) -> Result<(), ArtifactError> {
        if !self.taken.insert(folder.clone()) {
            return Ok(());
        }
        let files = self
            .tree
            .list(&folder, ENTRY_LIMIT)
            .map_err(|source| ArtifactError::Reading { path: folder.clone(), source })?;
        self.left.push(folder);
        files.into_iter().try_for_each(|file| self.take(file.path, file.mode, file.id))
    }

    /// The kustomization of a folder that was taken.
    fn kustomization(&self, folder: &TreePath) -> Result<Option<(TreePath, ObjectId)>, ArtifactError> {
        let mut found = None;
        for name in kustomization::NAMES {
            let path = folder
                .child(name.as_bytes())
                .map_err(|source| ArtifactError::Reading { path: folder.clone(), source: source.into() })?;
            if let Some((_, id)) = self.files.get(&path)
                && found.replace((path, *id)).is_some()
            {
                return Err(ArtifactError::ManyKustomizations(folder.clone()));
            }
        }
        Ok(found)
    }

    fn follow(&mut self) -> Result<(), ArtifactError> {
        while let Some(folder) = self.left.pop() {
            let Some((file, id)) = self.kustomization(&folder)? else { continue };
            let bytes = self
                .tree
                .blob(&id, KUSTOMIZATION_LIMIT)
                .map_err(|source| ArtifactError::Reading { path: file.clone(), source })?;
            let scalars = kustomization::scalars(&bytes)
                .map_err(|source| ArtifactError::BadKustomization { file: file.clone(), source })?;
            for scalar in scalars {
                self.reference(&folder, &file, &scalar)?;
            }
        }
        Ok(())
    }

    fn reference(
        &mut self,
        folder: &TreePath,
        file: &TreePath,
        scalar: &Scalar,
    ) -> Result<(), ArtifactError> {
        let Scalar { role, text } = scalar;
        if text.is_empty() || text.contains('\n') {
            return Ok(());
        }
        // Generators write KEY=PATH.
        let values = [Some(text.as_str()), text.split_once('=').map(|(_, path)| path)];
        let mut local = false;
        let mut outside = false;
        for value in values.into_iter().flatten().filter(|value| !value.is_empty()) {
            match kustomization::resolve(folder, value) {
                Ok(path) => local |= self.take_reference(path, *role)?,
                Err(_) if *role == Role::Perhaps => {}
                Err(_) => outside |= value.starts_with(['/', '.']),
            }
        }
        let (file, value) = (file.clone(), text.clone());
        match role {
            _ if local => Ok(()),
            Role::Path | Role::Load if kustomization::is_remote(text) => {
                Err(ArtifactError::Remote { file, value })
            }
            Role::Path | Role::Load if outside => Err(ArtifactError::Outside { file, value }),
            Role::Path => Err(ArtifactError::Missing { file, value }),
            Role::Load | Role::Perhaps => Ok(()),
        }
    }

    /// Takes what is at the path, and says whether anything is. A link that is only perhaps meant
    /// is left alone.
    fn take_reference(&mut self, path: TreePath, role: Role) -> Result<bool, ArtifactError> {
        if self.files.contains_key(&path) {
            return Ok(true);
        }
        match entry(self.tree, &path)? {
            None => Ok(false),
            Some(Entry { mode: Mode::Symlink | Mode::Submodule, .. }) if role == Role::Perhaps => Ok(false),
            Some(Entry { mode: Mode::Folder, .. }) => self.take_folder(path).map(|()| true),
            Some(Entry { mode, id }) => self.take(path, mode, id).map(|()| true),
        }
    }
}
