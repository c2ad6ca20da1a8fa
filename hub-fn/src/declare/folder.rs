//! A fleet repository that lies in a folder, for `farshore validate`.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::{FILE_LIMIT, FILES_LIMIT, Reading, is_declaration_path, read};

/// The deepest folder that is looked into.
const FOLDERS_LIMIT: usize = 64;

/// Why a folder could not be read at all. Mistakes in its files are in the [`Reading`] instead.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Nothing is there.
    #[error("there is no such file or folder ({})", .0.display())]
    Missing(PathBuf),
    /// A folder in which no YAML file is.
    #[error("the folder has no .yaml or .yml file outside folders that begin with '.' ({})", .0.display())]
    Empty(PathBuf),
    /// A file that is not YAML by its name.
    #[error("the file is no YAML by its name, which ends in .yaml or .yml ({})", .0.display())]
    NotYaml(PathBuf),
    /// Folders in folders, deeper than is sensible.
    #[error("folders lie deeper than {FOLDERS_LIMIT} in each other ({})", .0.display())]
    TooDeep(PathBuf),
    /// Reading failed.
    #[error("cannot read ({})", path.display())]
    Io {
        /// What was being read.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// Reads the fleet repository in a folder, or the one file that `path` names, as [`read`] does.
/// Symbolic links are not followed: Git keeps them as links.
///
/// # Errors
/// [`FolderError`], when there is nothing to read or the disk refuses.
pub fn validate_folder(path: &Path) -> Result<Reading, FolderError> {
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            return Err(FolderError::Missing(path.to_owned()));
        }
        Err(source) => return Err(FolderError::Io { path: path.to_owned(), source }),
    };
    if !meta.is_dir() {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !is_declaration_path(&name) {
            return Err(FolderError::NotYaml(path.to_owned()));
        }
        return Ok(read([(name, content(path)?)]));
    }
    let mut files = Vec::new();
    walk(path, "", 0, &mut files)?;
    if files.is_empty() {
        return Err(FolderError::Empty(path.to_owned()));
    }
    files.sort();
    let mut failed = None;
    let contents = files.into_iter().map_while(|file| match content(&path.join(&file)) {
        Ok(bytes) => Some((file, bytes)),
        Err(why) => {
            failed = Some(why);
            None
        }
    });
    let reading = read(contents);
    failed.map_or(Ok(reading), Err)
}

/// Lists the YAML files below a folder: one more than [`FILES_LIMIT`] at most, which is enough for
/// [`read`] to refuse.
fn walk(root: &Path, inside: &str, depth: usize, files: &mut Vec<String>) -> Result<(), FolderError> {
    let folder = root.join(inside);
    if depth > FOLDERS_LIMIT {
        return Err(FolderError::TooDeep(folder));
    }
    let failed = |source| FolderError::Io { path: folder.clone(), source };
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if inside.is_empty() { name.clone() } else { format!("{inside}/{name}") };
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() && !name.starts_with('.') {
            walk(root, &path, depth + 1, files)?;
        } else if kind.is_file() && is_declaration_path(&path) && files.len() <= FILES_LIMIT {
            files.push(path);
        }
    }
    Ok(())
}

fn content(path: &Path) -> Result<Vec<u8>, FolderError> {
    let failed = |source| FolderError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let limit = u64::try_from(FILE_LIMIT).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path).map_err(failed)?.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
