//! Which files a service needs.

use std::collections::{BTreeMap, BTreeSet};

use farshore_shared::digest::Digest;

use super::files::{BadPath, Entry, Files, Listed, Mode, ObjectId, TreePath};
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
                Err(BadPath::Absolute(_) | BadPath::Part(_)) => outside = true,
                Err(BadPath::Character(_) | BadPath::NotUtf8(_) | BadPath::TooLong(_)) => {}
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

#[cfg(test)]
mod tests {
    use super::super::testing::MemoryFiles;
    use super::*;

    fn at(path: &str) -> TreePath {
        path.parse().expect("a path")
    }

    fn paths(closure: &Closure) -> Vec<&str> {
        closure.files().iter().map(|file| file.path.as_str()).collect()
    }

    fn kustomize(files: &[(&str, &str)], path: &str) -> Result<Closure, ArtifactError> {
        closure(&MemoryFiles::of(files), &at(path), Kind::Kustomize)
    }

    #[test]
    fn a_plain_service_is_what_is_below_its_path() {
        let files = MemoryFiles::of(&[("a/b/c.yaml", ""), ("a/d.yaml", ""), ("ab/e.yaml", ""), ("f", "")]);
        let some = closure(&files, &at("a"), Kind::Plain).expect("a good path");
        assert_eq!(paths(&some), ["a/b/c.yaml", "a/d.yaml"]);
        let all = closure(&files, &TreePath::root(), Kind::Plain).expect("the root");
        assert_eq!(all.files().len(), 4);
    }

    #[test]
    fn a_path_that_is_absent_or_a_file_is_named() {
        let files = MemoryFiles::of(&[("a/b.yaml", "")]);
        assert!(
            matches!(closure(&files, &at("x"), Kind::Plain), Err(ArtifactError::NoPath(path)) if path == at("x"))
        );
        assert!(matches!(closure(&files, &at("a/b.yaml"), Kind::Plain), Err(ArtifactError::PathIsFile(_))));
        let empty = closure(&MemoryFiles::default(), &TreePath::root(), Kind::Plain);
        assert!(matches!(empty, Err(ArtifactError::EmptyPath(_))));
    }

    #[test]
    fn links_and_submodules_are_refused_by_path_where_they_are_needed_and_only_there() {
        for (mode, text) in [(Mode::Symlink, "symbolic links"), (Mode::Submodule, "submodules")] {
            let mut files = MemoryFiles::of(&[("a/b.yaml", ""), ("c/d.yaml", "")]);
            files.put("a/odd", mode, b"");
            let error = closure(&files, &at("a"), Kind::Plain).expect_err("something odd");
            assert!(error.to_string().contains(text) && error.to_string().contains("a/odd"), "{error}");
            assert!(closure(&files, &at("c"), Kind::Plain).is_ok());
            assert!(closure(&files, &at("a/odd"), Kind::Plain).is_err());
        }
    }

    #[test]
    fn kustomizations_are_followed_to_other_folders_and_files() {
        let closure = kustomize(
            &[
                ("base/kustomization.yaml", "resources: [deploy.yaml]\ncomponents: [../parts/tls]\n"),
                ("base/deploy.yaml", ""),
                ("base/unused.txt", ""),
                ("parts/tls/kustomization.yml", "kind: Component\n"),
                ("parts/other/x.yaml", ""),
                ("shared/env", "A=1"),
                ("shared/patch.yaml", ""),
                (
                    "prod/Kustomization",
                    "resources: [../base]\npatches: [{path: ../shared/patch.yaml}]\n\
                     configMapGenerator: [{name: c, files: [env.txt=../shared/env]}]\n",
                ),
            ],
            "prod",
        )
        .expect("a good service");
        assert_eq!(
            paths(&closure),
            [
                "base/deploy.yaml",
                "base/kustomization.yaml",
                "base/unused.txt",
                "parts/tls/kustomization.yml",
                "prod/Kustomization",
                "shared/env",
                "shared/patch.yaml",
            ]
        );
    }

    #[test]
    fn kustomizations_that_name_each_other_or_everything_end() {
        let closure = kustomize(
            &[
                ("a/kustomization.yaml", "resources: [../b, ..]"),
                ("b/kustomization.yaml", "resources: [../a]"),
            ],
            "a",
        )
        .expect("kustomize refuses the cycle, not we");
        assert_eq!(paths(&closure), ["a/kustomization.yaml", "b/kustomization.yaml"]);
    }

    #[test]
    fn what_a_site_could_not_load_is_refused_with_file_and_value() {
        let with = |content: &str| {
            kustomize(&[("a/kustomization.yaml", content), ("b/c.yaml", "")], "a")
                .expect_err("a bad reference")
        };
        for (content, value) in [
            ("resources: [https://example.com/a.yaml]", "https://example.com/a.yaml"),
            ("resources: ['github.com/org/repo//x?ref=v1']", "github.com/org/repo//x?ref=v1"),
            ("bases: ['git@example.com:org/repo']", "git@example.com:org/repo"),
            ("patches: [{path: 'https://example.com/p.yaml'}]", "https://example.com/p.yaml"),
            ("helmCharts: [{name: x, repo: 'https://charts.example'}]", "https://charts.example"),
        ] {
            let error = with(content);
            assert!(
                matches!(&error, ArtifactError::Remote { file, value: got }
                if file.as_str() == "a/kustomization.yaml" && got == value),
                "{error:?}"
            );
        }
        assert!(matches!(with("resources: [../../x]"), ArtifactError::Outside { .. }));
        assert!(matches!(with("resources: [/etc/passwd]"), ArtifactError::Outside { .. }));
        assert!(matches!(with("resources: [../b/gone.yaml]"), ArtifactError::Missing { .. }));
        assert!(matches!(with("resources: [../b"), ArtifactError::BadKustomization { .. }));
    }

    #[test]
    fn scalars_that_only_look_like_references_are_left_alone() {
        let closure = kustomize(
            &[(
                "a/kustomization.yaml",
                "commonAnnotations: {docs: 'https://example.com', up: ../../.., host: 'a.b:c'}\n\
                 images: [{name: github.com/org/app, newTag: v1}]\n\
                 patchesStrategicMerge: [\"kind: A\\nname: b\"]\n",
            )],
            "a",
        );
        assert_eq!(paths(&closure.expect("nothing is referred to")), ["a/kustomization.yaml"]);
    }

    #[test]
    fn kustomize_needs_exactly_one_kustomization() {
        let none = kustomize(&[("a/deploy.yaml", "")], "a");
        assert!(matches!(none, Err(ArtifactError::NoKustomization(_))));
        let two = kustomize(&[("a/kustomization.yaml", ""), ("a/Kustomization", "")], "a");
        assert!(matches!(two, Err(ArtifactError::ManyKustomizations(_))));
    }

    #[test]
    fn the_key_tells_path_mode_and_content_apart_and_nothing_else() {
        let key = |files: &MemoryFiles, path: &str| {
            closure(files, &at(path), Kind::Plain).expect("a good path").key()
        };
        let files = MemoryFiles::of(&[("a/b.yaml", "1"), ("c/d.yaml", "2")]);
        let same = key(&files, "a");
        let mut other = files.clone();
        other.put("c/d.yaml", Mode::File, b"3");
        assert_eq!(key(&other, "a"), same, "another service's file does not matter");
        assert_ne!(key(&files, ""), same);
        for (path, mode, content) in [
            ("a/b.yaml", Mode::Executable, "1"),
            ("a/b.yaml", Mode::File, "2"),
            ("a/c.yaml", Mode::File, "1"),
        ] {
            let mut other = files.clone();
            other.put(path, mode, content.as_bytes());
            assert_ne!(key(&other, "a"), same, "{path} {mode:?}");
        }
    }
}
