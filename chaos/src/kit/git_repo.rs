//! A Git repository that a test writes, by the `git` program.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::KitError;

/// A repository with a working tree, on branch `main`, in a temporary folder.
///
/// Nothing of the machine's Git configuration is used, and authors and dates are fixed: the same writes give the same
/// commit ids.
#[derive(Debug)]
pub struct GitRepo {
    folder: TempDir,
    /// Seconds after the first moment of 2026 at which the next commit is dated.
    clock: u64,
}

impl GitRepo {
    /// Makes an empty repository, without any commit.
    ///
    /// # Errors
    /// When there is no `git`, or no temporary folder.
    pub fn new() -> Result<Self, KitError> {
        let folder = TempDir::new().map_err(KitError::io("making a folder", std::env::temp_dir()))?;
        let repo = Self { folder, clock: 0 };
        repo.git(&["init", "--quiet", "--initial-branch=main"])?;
        // A server must be able to hand out any commit that a test names, also one that no branch holds any more.
        repo.git(&["config", "uploadpack.allowAnySHA1InWant", "true"])?;
        // Collecting garbage in the background would write to the folder while it is being deleted.
        repo.git(&["config", "gc.auto", "0"])?;
        Ok(repo)
    }

    /// Writes a file of the working tree, with the folders it needs.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: impl AsRef<Path>, text: impl AsRef<[u8]>) -> Result<(), KitError> {
        let path = self.path().join(path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(KitError::io("making a folder", folder))?;
        }
        std::fs::write(&path, text).map_err(KitError::io("writing a file", path))
    }

    /// Removes a file or a folder of the working tree.
    ///
    /// # Errors
    /// When there is none.
    pub fn remove(&self, path: impl AsRef<Path>) -> Result<(), KitError> {
        let path = self.path().join(path);
        let removed =
            if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.map_err(KitError::io("removing a file", path))
    }

    /// Copies the contents of a folder into the folder `to` of the working tree (`""` is its root).
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn import(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), KitError> {
        copy(from.as_ref(), &self.path().join(to))
    }

    /// Commits the whole working tree, even when nothing changed, and returns the commit's id.
    ///
    /// # Errors
    /// When `git` fails.
    pub fn commit(&mut self, message: &str) -> Result<String, KitError> {
        self.clock += 1;
        self.git(&["add", "--all", "--force"])?;
        self.git(&["commit", "--quiet", "--allow-empty", "--message", message])?;
        self.head()
    }

    /// The id of the last commit.
    ///
    /// # Errors
    /// When there is none.
    pub fn head(&self) -> Result<String, KitError> {
        self.git(&["rev-parse", "HEAD"])
    }

    /// Moves the branch and the working tree to a commit, as a force-push to it would.
    ///
    /// # Errors
    /// When the repository does not hold it.
    pub fn reset_hard(&self, commit: &str) -> Result<(), KitError> {
        self.git(&["reset", "--quiet", "--hard", commit]).map(|_silence| ())
    }

    /// Runs any `git` command in the working tree and returns what it printed, trimmed.
    ///
    /// # Errors
    /// When it fails.
    pub fn git(&self, arguments: &[&str]) -> Result<String, KitError> {
        let mut command = git();
        let date = format!("{} +0000", 1_767_225_600 + self.clock);
        command
            .args(arguments)
            .current_dir(self.path())
            .env("GIT_AUTHOR_DATE", &date)
            .env("GIT_COMMITTER_DATE", &date);
        let output = command.output().map_err(KitError::io("running a program", "git"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        let printed = [output.stdout, output.stderr].concat();
        Err(KitError::Failed {
            what: format!("git {}", arguments.join(" ")),
            status: output.status,
            output: String::from_utf8_lossy(&printed).into_owned(),
        })
    }

    /// The working tree; the repository proper is `.git` below it.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The repository as a `file://` URL.
    #[must_use]
    pub fn file_url(&self) -> String {
        format!("file://{}", self.path().display())
    }
}

/// The `git` program, deaf to the machine's and the user's configuration.
pub(crate) fn git() -> Command {
    let mut command = Command::new("git");
    // Set by Git when the tests run in one of its hooks, they would name another repository.
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"] {
        command.env_remove(name);
    }
    command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_AUTHOR_NAME", "Kit")
        .env("GIT_AUTHOR_EMAIL", "kit@farshore.invalid")
        .env("GIT_COMMITTER_NAME", "Kit")
        .env("GIT_COMMITTER_EMAIL", "kit@farshore.invalid");
    command
}

/// Copies the contents of a folder into another.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), KitError> {
    std::fs::create_dir_all(to).map_err(KitError::io("making a folder", to))?;
    for entry in std::fs::read_dir(from).map_err(KitError::io("reading a folder", from))? {
        let entry = entry.map_err(KitError::io("reading a folder", from))?;
        let kind = entry.file_type().map_err(KitError::io("looking at a file", entry.path()))?;
        let target: PathBuf = to.join(entry.file_name());
        if kind.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target).map_err(KitError::io("copying a file", entry.path()))?;
        }
    }
    Ok(())
}
