//! A repository's copy on this disk. It is a cache: whatever is wrong with it, the next fetch makes
//! it good or says why not.

use std::path::{Path, PathBuf};

use gix::objs::Kind;
use gix::refs::transaction::PreviousValue;
use gix::revision::walk::Sorting;
use gix::traverse::commit::simple::CommitTimeOrder;
use gix::{Repository, ThreadSafeRepository, create, open};
use tracing::debug;

use super::{Branch, Cause, CommitId, GitUrl, Limits, SourceError, Tree, packs, remote};

/// Holds the commit that was published last, so that a rewritten history upstream does not take
/// away what descent is told by.
const PUBLISHED: &str = "refs/farshore/published";

/// Lies in a mirror that was found damaged, until it is made anew.
const DAMAGED: &str = "farshore-damaged";

/// Each fetch that brings something adds a pack, and every look-up asks each pack: beyond so many, they
/// are merged.
const PACKS: usize = 16;
/// At so many, which could not be merged, the mirror is made anew.
const PACK_LIMIT: usize = 256;

/// How one commit stands to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Descent {
    /// They are one.
    Same,
    /// The new one comes after the old one.
    Forward,
    /// The new one comes before the old one.
    Backward,
    /// Neither comes after the other.
    Diverged,
    /// The old one is not in the mirror.
    Unknown,
}

/// What is in the folder.
enum State {
    /// A repository that can be read.
    Good(Box<Repository>),
    /// Something else.
    Damaged(Cause),
}

/// A bare repository in a folder, which follows one branch of one Git server.
///
/// Only one process may fetch into a folder at a time.
pub struct Mirror {
    dir: PathBuf,
    state: State,
}

impl Mirror {
    /// Opens the mirror in this folder, and makes an empty one if there is none. A damaged one opens
    /// too: reading it is an error, and the next fetch makes it anew.
    ///
    /// # Errors
    /// [`SourceError::Disk`] if the folder cannot be made.
    pub fn open(dir: &Path) -> Result<Self, SourceError> {
        let state = if dir.join(DAMAGED).exists() {
            State::Damaged("it was found damaged before".into())
        } else if dir.exists() {
            match open_repository(dir) {
                Ok(repo) => State::Good(Box::new(repo)),
                Err(error) => State::Damaged(error.into()),
            }
        } else {
            State::Good(Box::new(create_repository(dir)?))
        };
        Ok(Self { dir: dir.to_path_buf(), state })
    }

    /// Brings the branch's newest commit and its history, as far as it is not here yet, and returns
    /// it. A branch that was forced back is followed; commits that were here stay.
    ///
    /// # Errors
    /// [`SourceError`]; [`SourceError::is_unreachable`] tells whether anybody answered. The mirror
    /// stays as it was.
    pub fn fetch(&mut self, url: &GitUrl, branch: &Branch, limits: &Limits) -> Result<CommitId, SourceError> {
        self.merge_packs();
        let State::Good(repo) = &self.state else { return self.renew(url, branch, limits) };
        if self.dir.join(DAMAGED).exists() || packs_of(&self.dir) >= PACK_LIMIT {
            return self.renew(url, branch, limits);
        }
        match remote::fetch(repo, url, branch, limits) {
            Ok(commit) if is_commit(repo, &commit) => Ok(commit),
            // Nothing in the answer tells whether it or the mirror is at fault: a mirror made anew
            // beside this one does.
            Ok(_) | Err(SourceError::BadAnswer { .. }) => self.renew(url, branch, limits),
            Err(error) => Err(error),
        }
    }

    /// Makes one pack of many. Where that fails, they stay, and the next fetch tries again.
    fn merge_packs(&mut self) {
        let Ok(packs) = packs::list(&self.dir) else { return };
        let many = packs::to_merge(&packs, PACKS);
        if many.is_empty() {
            return;
        }
        if let Err(error) = packs::merge(&self.dir, &many) {
            debug!(mirror = %self.dir.display(), %error, "packs are not merged");
        }
        // What is open looks for packs that are gone.
        if let Ok(anew) = Self::open(&self.dir) {
            *self = anew;
        }
    }

    /// Makes a mirror in `dir`, where none is, of packs that are complete together and have this commit.
    pub(super) fn restore(
        dir: &Path,
        beside: &Path,
        packs: &[PathBuf],
        commit: &CommitId,
    ) -> Result<(), SourceError> {
        let beside = beside.join("mirror");
        drop(create_repository(&beside)?);
        for path in packs {
            let file = std::fs::File::open(path).map_err(disk("opening a pack", path))?;
            packs::take(&beside, file)
                .map_err(|source| SourceError::Corrupt { dir: dir.to_path_buf(), source })?;
        }
        let repo = open_repository(&beside)
            .map_err(|source| SourceError::Corrupt { dir: dir.to_path_buf(), source: source.into() })?;
        if !is_commit(&repo, commit) {
            return Err(SourceError::UnknownCommit { dir: dir.to_path_buf(), commit: *commit });
        }
        point_to(&repo, remote::FETCHED, &beside, commit)?;
        drop(repo);
        std::fs::rename(&beside, dir).map_err(disk("moving a restored mirror to its place", dir))
    }

    /// Fetches into a new mirror beside this one, and puts it in this one's place if that went well.
    fn renew(&mut self, url: &GitUrl, branch: &Branch, limits: &Limits) -> Result<CommitId, SourceError> {
        let beside = self.dir.with_added_extension("new");
        remove(&beside)?;
        let repo = create_repository(&beside)?;
        let commit = remote::fetch(&repo, url, branch, limits)?;
        if !is_commit(&repo, &commit) {
            let source = format!("the branch's tip is no commit ({commit})").into();
            return Err(SourceError::BadAnswer { url: url.clone(), source });
        }
        if let Some(published) = self.published()
            && is_commit(&repo, &published)
        {
            point(&repo, &beside, &published)?;
        }
        drop(repo);
        remove(&self.dir)?;
        std::fs::rename(&beside, &self.dir).map_err(disk("moving a new mirror to its place", &self.dir))?;
        *self = Self::open(&self.dir)?;
        Ok(commit)
    }

    /// Keeps this commit, which was published, until another is kept.
    ///
    /// # Errors
    /// [`SourceError::UnknownCommit`] if it is not here, [`SourceError::Disk`] if it cannot be noted.
    pub fn keep(&self, commit: &CommitId) -> Result<(), SourceError> {
        let repo = self.repo()?;
        if self.published() == Some(*commit) {
            return Ok(());
        }
        if !is_commit(repo, commit) {
            return Err(SourceError::UnknownCommit { dir: self.dir.clone(), commit: *commit });
        }
        point(repo, &self.dir, commit)
    }

    /// How `new` stands to `old`.
    ///
    /// # Errors
    /// [`SourceError::UnknownCommit`] if `new` is not here, [`SourceError::Corrupt`] if a commit
    /// between them is missing.
    pub fn descent(&self, old: &CommitId, new: &CommitId) -> Result<Descent, SourceError> {
        let repo = self.repo()?;
        if !is_commit(repo, new) {
            return Err(SourceError::UnknownCommit { dir: self.dir.clone(), commit: *new });
        }
        if old == new {
            return Ok(Descent::Same);
        }
        if !is_commit(repo, old) {
            return Ok(Descent::Unknown);
        }
        let reaches = |from, to| reaches(repo, from, to).map_err(|error| self.damaged(error.into()));
        if reaches(new, old)? {
            Ok(Descent::Forward)
        } else if reaches(old, new)? {
            Ok(Descent::Backward)
        } else {
            Ok(Descent::Diverged)
        }
    }

    /// Opens the files of this commit.
    ///
    /// # Errors
    /// [`SourceError::UnknownCommit`] if it is not here, [`SourceError::Corrupt`] if it cannot be read.
    pub fn tree(&self, commit: &CommitId) -> Result<Tree<'_>, SourceError> {
        let repo = self.repo()?;
        if !repo.has_object(commit.object()) {
            return Err(SourceError::UnknownCommit { dir: self.dir.clone(), commit: *commit });
        }
        Tree::open(self, repo, commit)
    }

    /// Notes that this mirror must be made anew, and says why.
    pub(super) fn damaged(&self, source: Cause) -> SourceError {
        // Where this cannot be noted, the disk is at fault, and the next fetch will tell.
        std::fs::write(self.dir.join(DAMAGED), b"").ok();
        SourceError::Corrupt { dir: self.dir.clone(), source }
    }

    fn repo(&self) -> Result<&Repository, SourceError> {
        match &self.state {
            State::Good(repo) => Ok(repo),
            State::Damaged(why) => {
                Err(SourceError::Corrupt { dir: self.dir.clone(), source: why.to_string().into() })
            }
        }
    }

    /// The commit that was fetched last.
    pub(super) fn fetched(&self) -> Option<CommitId> {
        self.reference(remote::FETCHED)
    }

    fn published(&self) -> Option<CommitId> {
        self.reference(PUBLISHED)
    }

    fn reference(&self, name: &str) -> Option<CommitId> {
        let repo = self.repo().ok()?;
        let found = repo.try_find_reference(name).ok()??;
        found.target().try_id().map(CommitId::of)
    }
}

/// Reads only the repository's own configuration: neither the user's nor the machine's may redirect
/// a URL or offer credentials.
fn options() -> open::Options {
    open::Options::isolated().open_path_as_is(true)
}

fn open_repository(dir: &Path) -> gix::Result<Repository> {
    Ok(ThreadSafeRepository::open_opts(dir, options())?.to_thread_local())
}

fn create_repository(dir: &Path) -> Result<Repository, SourceError> {
    let doing = "making an empty mirror";
    std::fs::create_dir_all(dir).map_err(disk(doing, dir))?;
    let plain = create::Options { destination_must_be_empty: Some(true), ..create::Options::default() };
    ThreadSafeRepository::init_opts(dir, create::Kind::Bare, plain, options())
        .map(|repo| repo.to_thread_local())
        .map_err(|source| SourceError::Disk { doing, path: dir.to_path_buf(), source: source.into() })
}

fn remove(dir: &Path) -> Result<(), SourceError> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => std::fs::remove_file(dir),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
    .map_err(disk("removing a mirror", dir))
}

fn disk(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> SourceError {
    let path = path.to_path_buf();
    move |source| SourceError::Disk { doing, path, source: source.into() }
}

fn packs_of(dir: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(dir.join("objects/pack")) else { return 0 };
    entries.flatten().filter(|entry| entry.path().extension().is_some_and(|kind| kind == "idx")).count()
}

fn point(repo: &Repository, dir: &Path, commit: &CommitId) -> Result<(), SourceError> {
    point_to(repo, PUBLISHED, dir, commit)
}

fn point_to(
    repo: &Repository,
    reference: &'static str,
    dir: &Path,
    commit: &CommitId,
) -> Result<(), SourceError> {
    let failed = |source: gix::Error| SourceError::Disk {
        doing: "noting a commit in a mirror",
        path: dir.to_path_buf(),
        source: source.into(),
    };
    repo.reference(reference, commit.object(), PreviousValue::Any, "noted").map(drop).map_err(failed)
}

fn is_commit(repo: &Repository, commit: &CommitId) -> bool {
    repo.find_header(commit.object()).is_ok_and(|header| header.kind() == Kind::Commit)
}

/// Whether `to` is among the ancestors of `from`. Newest first, so that the usual case, a few
/// commits apart, ends after a few.
fn reaches(repo: &Repository, from: &CommitId, to: &CommitId) -> gix::Result<bool> {
    let newest_first = Sorting::ByCommitTime(CommitTimeOrder::NewestFirst);
    for step in repo.rev_walk([from.object()]).sorting(newest_first).all()? {
        if step?.id == to.object() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::testing::Upstream;
    use super::*;

    fn fetch(mirror: &mut Mirror, upstream: &Upstream) -> Result<CommitId, SourceError> {
        mirror.fetch(&upstream.url(), &Branch::Default, &Limits::default())
    }

    fn mirror(upstream: &Upstream) -> Mirror {
        Mirror::open(&upstream.folder().join("mirror")).expect("an empty folder can hold a mirror")
    }

    #[test]
    fn a_fetch_brings_the_newest_commit_and_a_second_one_only_what_is_new() {
        let upstream = Upstream::new();
        let first = upstream.commit(&[("a.yaml", "a: 1\n")]);
        let mut mirror = mirror(&upstream);
        assert_eq!(fetch(&mut mirror, &upstream).expect("a good repository"), first);
        assert_eq!(fetch(&mut mirror, &upstream).expect("nothing new"), first);
        assert_eq!(packs_of(&mirror.dir), 1);
        let second = upstream.commit(&[("a.yaml", "a: 2\n")]);
        assert_eq!(fetch(&mut mirror, &upstream).expect("something new"), second);
        assert_eq!(packs_of(&mirror.dir), 2);
        assert_eq!(mirror.descent(&first, &second).expect("both are here"), Descent::Forward);
        assert_eq!(mirror.descent(&second, &second).expect("it is here"), Descent::Same);
    }

    #[test]
    fn a_branch_that_was_forced_back_is_told_from_one_that_was_rewritten() {
        let upstream = Upstream::new();
        let first = upstream.commit(&[("a", "1")]);
        let second = upstream.commit(&[("a", "2")]);
        let mut mirror = mirror(&upstream);
        fetch(&mut mirror, &upstream).expect("a good repository");
        mirror.keep(&second).expect("it is here");
        upstream.git(&["reset", "-q", "--hard", &first.to_string()]);
        assert_eq!(fetch(&mut mirror, &upstream).expect("a forced branch"), first);
        assert_eq!(mirror.descent(&second, &first).expect("both are here"), Descent::Backward);
        let rewritten = upstream.commit(&[("a", "3")]);
        assert_eq!(fetch(&mut mirror, &upstream).expect("a forced branch"), rewritten);
        assert_eq!(mirror.descent(&second, &rewritten).expect("both are here"), Descent::Diverged);
    }

    #[test]
    fn what_was_never_here_is_unknown_as_old_and_an_error_as_new() {
        let upstream = Upstream::new();
        let first = upstream.commit(&[("a", "1")]);
        let mut mirror = mirror(&upstream);
        fetch(&mut mirror, &upstream).expect("a good repository");
        let stranger: CommitId = "0123456789012345678901234567890123456789".parse().expect("a commit");
        assert_eq!(mirror.descent(&stranger, &first).expect("the new one is here"), Descent::Unknown);
        assert!(matches!(mirror.descent(&first, &stranger), Err(SourceError::UnknownCommit { .. })));
        assert!(matches!(mirror.keep(&stranger), Err(SourceError::UnknownCommit { .. })));
        assert!(matches!(mirror.tree(&stranger), Err(SourceError::UnknownCommit { .. })));
    }

    #[test]
    fn a_named_branch_is_followed_and_a_missing_one_names_those_that_are() {
        let upstream = Upstream::new();
        upstream.commit(&[("a", "1")]);
        upstream.git(&["checkout", "-q", "-b", "release/1"]);
        let release = upstream.commit(&[("a", "2")]);
        upstream.git(&["checkout", "-q", "main"]);
        let mut mirror = mirror(&upstream);
        let named = |name: &str| name.parse::<Branch>().expect("a branch");
        let got = mirror.fetch(&upstream.url(), &named("release/1"), &Limits::default());
        assert_eq!(got.expect("the branch is there"), release);
        let error = mirror
            .fetch(&upstream.url(), &named("gone"), &Limits::default())
            .expect_err("the branch is not there");
        assert!(
            matches!(&error, SourceError::BranchMissing { available, .. }
            if available.as_slice() == ["main", "release/1"]),
            "{error:?}"
        );
        assert!(error.to_string().contains("it has main, release/1"), "{error}");
    }

    #[test]
    fn a_repository_without_commits_is_empty_and_one_that_is_away_is_not_found() {
        let upstream = Upstream::new();
        let mut mirror = mirror(&upstream);
        let error = fetch(&mut mirror, &upstream).expect_err("no commits");
        assert!(matches!(error, SourceError::Empty { .. }), "{error:?}");
        for away in [upstream.folder().join("away"), upstream.folder().join("mirror/objects")] {
            let url = GitUrl::of_path(&away).expect("an absolute path");
            let error = mirror.fetch(&url, &Branch::Default, &Limits::default()).expect_err("no repository");
            assert!(matches!(error, SourceError::NotFound { .. }), "{error:?}");
            assert!(!error.is_unreachable());
        }
    }

    #[test]
    fn a_fetch_stops_at_its_limit_of_bytes_and_leaves_the_mirror_as_it_was() {
        let upstream = Upstream::new();
        let first = upstream.commit(&[("a", "1")]);
        let mut mirror = mirror(&upstream);
        fetch(&mut mirror, &upstream).expect("a good repository");
        let noise: String =
            (0..40_000u64).map(|n| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a))).collect();
        upstream.commit(&[("big", &noise)]);
        let limits = Limits { bytes: 20_000, ..Limits::default() };
        let error = mirror.fetch(&upstream.url(), &Branch::Default, &limits).expect_err("a limit");
        assert!(matches!(error, SourceError::TooLarge { limit: 20_000, .. }), "{error:?}");
        assert!(mirror.tree(&first).is_ok());
        fetch(&mut mirror, &upstream).expect("within the usual limits");
    }

    #[test]
    fn a_fetch_ends_when_its_time_is_over() {
        let upstream = Upstream::new();
        upstream.commit(&[("a", "1")]);
        let limits = Limits { total: Duration::ZERO, ..Limits::default() };
        let error =
            mirror(&upstream).fetch(&upstream.url(), &Branch::Default, &limits).expect_err("no time at all");
        assert!(matches!(error, SourceError::Overdue { .. }), "{error:?}");
        assert!(error.is_unreachable());
    }

    #[test]
    fn absent_and_corrupt_and_good_are_three_states() {
        let upstream = Upstream::new();
        let first = upstream.commit(&[("a", "1")]);
        let dir = upstream.folder().join("mirror");
        std::fs::create_dir(&dir).expect("a folder");
        std::fs::write(dir.join("HEAD"), "no repository").expect("a file");
        let mut mirror = Mirror::open(&dir).expect("a damaged mirror opens");
        assert!(matches!(mirror.tree(&first), Err(SourceError::Corrupt { .. })));
        assert_eq!(fetch(&mut mirror, &upstream).expect("made anew"), first);
        mirror.keep(&first).expect("it is here");

        for pack in std::fs::read_dir(dir.join("objects/pack")).expect("packs").flatten() {
            std::fs::remove_file(pack.path()).expect("our own file");
        }
        let mut mirror = Mirror::open(&dir).expect("its references are still there");
        assert_eq!(fetch(&mut mirror, &upstream).expect("made anew"), first);
        assert_eq!(mirror.published(), Some(first), "what was published is still known");
        assert!(
            Tree::list(&mirror.tree(&first).expect("it is here"), &"".parse().expect("a path"), 9).is_ok()
        );
    }

    #[test]
    fn damage_that_is_found_while_reading_is_mended_by_the_next_fetch() {
        let upstream = Upstream::new();
        let first = upstream.commit(&[("a", "1"), ("b", "2")]);
        let mut mirror = mirror(&upstream);
        fetch(&mut mirror, &upstream).expect("a good repository");
        mirror.damaged("a bit flipped".into());
        assert!(mirror.tree(&first).is_ok(), "what can be read is read");
        assert_eq!(fetch(&mut mirror, &upstream).expect("made anew"), first);
        assert!(!mirror.dir.join(DAMAGED).exists());
    }
}
