//! A service's content as one blob: the same files give the same bytes, wherever and whenever it is
//! packed.
//!
//! - [`Files`]: what an artifact is made from; [`crate::source::Tree`] is one.
//! - [`closure()`]: which files a service needs: those below its path and, for kustomize, whatever its
//!   kustomizations name in the same repository.
//! - [`pack()`]: those files as a deterministic tar, compressed with zstd.
//!
//! Nothing here reads a clock, a disk or the network.

mod closure;
mod files;
mod kustomization;
mod pack;
#[cfg(test)]
mod testing;

use farshore_shared::wire::{ARTIFACT_LIMIT, TAR_LIMIT};

pub use closure::{Closure, Kind, closure};
pub use files::{BadPath, Entry, Files, Listed, Mode, ObjectId, PATH_LIMIT, ReadError, TreePath};
pub use pack::{PACKER_VERSION, Packed, pack};

/// The most files of one artifact.
pub const ENTRY_LIMIT: usize = 100_000;

/// Why a service's content could not be put together. Each names the file that is at fault.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// Nothing is at the service's path.
    #[error(
        "the service's path does not exist in its source ({0}): restore it, or change spec.path; sites that have the service keep what they have"
    )]
    NoPath(TreePath),
    /// A folder without a file.
    #[error(
        "the service's path is empty: there is no file below it ({0}): restore its files, or change spec.path; sites that have the service keep what they have"
    )]
    EmptyPath(TreePath),
    /// A file where a folder is needed.
    #[error("the service's path is a file, and has to be a folder ({0})")]
    PathIsFile(TreePath),
    /// Symbolic links mean something else wherever they are unpacked.
    #[error("symbolic links cannot be delivered: put the file itself there ({0})")]
    Symlink(TreePath),
    /// The other repository is not part of this one.
    #[error("submodules cannot be delivered: put the files themselves there ({0})")]
    Submodule(TreePath),
    /// The folder has nothing that kustomize would build.
    #[error("the folder has no kustomization.yaml, kustomization.yml or Kustomization ({0})")]
    NoKustomization(TreePath),
    /// Kustomize refuses more than one.
    #[error("the folder has more than one kustomization ({0})")]
    ManyKustomizations(TreePath),
    /// Not YAML, or not a mapping.
    #[error("reading a kustomization ({file})")]
    BadKustomization {
        /// Which.
        file: TreePath,
        /// What is wrong.
        source: ReadError,
    },
    /// Something that would have to be downloaded at the site.
    #[error("a kustomization refers to another place, but sites render offline ({value:?} in {file})")]
    Remote {
        /// The kustomization.
        file: TreePath,
        /// What it refers to.
        value: String,
    },
    /// A path that goes up beyond the repository's root, or is absolute.
    #[error("a kustomization refers to something outside of its repository ({value:?} in {file})")]
    Outside {
        /// The kustomization.
        file: TreePath,
        /// What it refers to.
        value: String,
    },
    /// A path at which nothing is.
    #[error("a kustomization refers to something that does not exist ({value:?} in {file})")]
    Missing {
        /// The kustomization.
        file: TreePath,
        /// What it refers to.
        value: String,
    },
    /// More files than [`ENTRY_LIMIT`].
    #[error("an artifact has at most {ENTRY_LIMIT} files (the service at {0} has more)")]
    TooManyFiles(TreePath),
    /// A tar beyond [`TAR_LIMIT`].
    #[error("an artifact's files are at most {TAR_LIMIT} bytes together (reached at {0})")]
    TarTooLarge(TreePath),
    /// A blob beyond [`ARTIFACT_LIMIT`].
    #[error("a compressed artifact is at most {ARTIFACT_LIMIT} bytes (this one has {0})")]
    TooLarge(u64),
    /// The source could not be read.
    #[error("reading the source ({path})")]
    Reading {
        /// What was read.
        path: TreePath,
        /// Why it could not be.
        source: ReadError,
    },
    /// Writing to memory failed.
    #[error("packing an artifact ({path})")]
    Packing {
        /// The file.
        path: TreePath,
        /// Why.
        source: std::io::Error,
    },
}
