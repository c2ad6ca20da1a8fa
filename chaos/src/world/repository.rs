//! A Git repository over smart HTTP.

use crate::kit::{GitHttp, GitRepo, KitError};

/// A repository on branch `main`, and the server that hands it out.
pub struct Repository {
    // The server is dropped before the folder that it serves.
    server: GitHttp,
    repo: GitRepo,
}

impl Repository {
    /// A served repository with one commit of these files.
    ///
    /// # Errors
    /// When there is no `git`, or no port.
    pub async fn of(files: &[(&str, &str)]) -> Result<Self, KitError> {
        let mut repo = GitRepo::new()?;
        write(&repo, files)?;
        repo.commit("first")?;
        Ok(Self { server: GitHttp::start(&repo).await?, repo })
    }

    /// Writes files, commits, and returns the commit's id.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn commit(&mut self, files: &[(&str, &str)]) -> Result<String, KitError> {
        write(&self.repo, files)?;
        self.repo.commit("next")
    }

    /// Removes files and folders, commits, and returns the commit's id.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn commit_without(&mut self, paths: &[&str]) -> Result<String, KitError> {
        paths.iter().try_for_each(|path| self.repo.remove(path))?;
        self.repo.commit("less")
    }

    /// Keeps a copy of the repository as it is, for [`Repository::restore`].
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn back_up(&self) -> Result<GitRepo, KitError> {
        let backup = GitRepo::new()?;
        backup.remove(".git")?;
        backup.import(self.repo.path(), "")?;
        Ok(backup)
    }

    /// Puts a copy in the place of the repository, as the restore of a Git server does: nothing later is known.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn restore(&mut self, backup: &GitRepo) -> Result<(), KitError> {
        self.repo.remove(".git")?;
        self.repo.import(backup.path(), "")?;
        self.repo.git(&["reset", "--quiet", "--hard"]).map(|_silence| ())
    }

    /// Where it is served.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The repository itself.
    #[must_use]
    pub fn repo(&mut self) -> &mut GitRepo {
        &mut self.repo
    }

    /// The server.
    #[must_use]
    pub fn server(&mut self) -> &mut GitHttp {
        &mut self.server
    }
}

fn write(repo: &GitRepo, files: &[(&str, &str)]) -> Result<(), KitError> {
    files.iter().try_for_each(|(path, text)| repo.write(path, text))
}
