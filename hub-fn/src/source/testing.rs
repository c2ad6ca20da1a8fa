//! A repository to fetch from, made with `git` in a temporary folder.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::{CommitId, GitUrl};

/// A repository with a working tree, on branch `main`.
pub(crate) struct Upstream {
    dir: TempDir,
}

impl Upstream {
    pub(crate) fn new() -> Self {
        let upstream = Self { dir: TempDir::new().expect("a temporary folder") };
        std::fs::create_dir(upstream.folder().join("work")).expect("a folder in our own");
        upstream.git(&["init", "-q", "-b", "main"]);
        upstream
    }

    /// The temporary folder; the repository is its `work`.
    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn work(&self) -> std::path::PathBuf {
        self.folder().join("work")
    }

    pub(crate) fn url(&self) -> GitUrl {
        GitUrl::of_path(&self.work()).expect("a temporary folder's path is absolute and UTF-8")
    }

    /// Runs `git` in the repository and returns what it prints.
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let output = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"])
            .args(arguments)
            .current_dir(self.work())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .expect("git is on PATH");
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("git prints UTF-8 here").trim().to_owned()
    }

    /// Writes files and commits everything there is.
    pub(crate) fn commit(&self, files: &[(&str, &str)]) -> CommitId {
        for (path, content) in files {
            let path = self.work().join(path);
            std::fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("our own folder");
            std::fs::write(path, content).expect("our own folder");
        }
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", "change"]);
        self.git(&["rev-parse", "HEAD"]).parse().expect("git prints a commit")
    }
}
