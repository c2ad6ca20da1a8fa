//! Webhooks of Git servers: who may say that something was pushed, and how often that is passed on.
//!
//! What a webhook says is never believed: it is a reason to look at the source, no more. Its secret signs
//! nothing that a site or the publisher trusts, so that a serving replica may hold it.
//!
//! - [`proof`]: what a Git server shows, and whether it is right (pure).
//! - [`pace`]: how often word of one source is passed on (pure).

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use farshore_shared::digest::Digest;
use farshore_shared::names::Name;
use moka::future::Cache;

pub mod pace;
pub mod proof;

use pace::{Pace, Pass};

/// The most bytes of a webhook's body.
pub const BODY_LIMIT: usize = 1 << 20;
/// The most bytes of a file of secrets.
const FILE_LIMIT: u64 = 4096;
/// The fewest bytes of a secret.
const SECRET_LEAST: usize = 8;
/// How many secrets of one source are valid at once: the old one and the new one, and room for a mistake.
const SECRETS: usize = 4;
/// How long the same body again is known to be the same.
const REPLAY: Duration = Duration::from_secs(60);
/// How many bodies are remembered.
const REMEMBERED: u64 = 1024;

/// Why there is no secret to check with.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// No file is named after the source.
    #[error("no webhook is set up for this source")]
    None,
    /// The file cannot be read.
    #[error("reading the secret of a webhook ({path})")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The file holds no secret that may be used.
    #[error("file of webhook secrets is of no use ({path}): {why}")]
    Bad {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// The webhooks of one process.
#[derive(Debug)]
pub struct Hooks {
    /// A folder with one file per source.
    secrets: Option<PathBuf>,
    pace: Mutex<Pace>,
    seen: Cache<Digest, ()>,
}

impl Hooks {
    /// Webhooks whose secrets are in this folder: a file per source, named after it, a secret per line. Without
    /// a folder there are none.
    #[must_use]
    pub fn new(secrets: Option<PathBuf>) -> Self {
        let seen = Cache::builder().max_capacity(REMEMBERED).time_to_live(REPLAY).build();
        Self { secrets, pace: Mutex::default(), seen }
    }

    /// The secrets of a source, each of which is good. They are read anew, so that one that is replaced counts
    /// at once; beside the tasks that answer polls, for a disk may be slow.
    ///
    /// # Errors
    /// [`SecretError`].
    pub async fn secrets(&self, source: &Name) -> Result<Vec<Vec<u8>>, SecretError> {
        let folder = self.secrets.as_deref().ok_or(SecretError::None)?;
        let path = folder.join(source.as_str());
        let reading = path.clone();
        let read = tokio::task::spawn_blocking(move || read_secrets(&reading)).await;
        read.unwrap_or_else(|stopped| Err(SecretError::Io { path, source: stopped.into() }))
    }

    /// Whether a body with this digest has not come for this source a moment ago.
    pub async fn is_new(&self, source: &Name, body: Digest) -> bool {
        let key = Digest::of_parts([source.as_str().as_bytes(), body.as_bytes()]);
        self.seen.entry(key).or_insert(()).await.is_fresh()
    }

    /// Takes a body for new again: word of it could not be passed on.
    pub async fn forget(&self, source: &Name, body: Digest) {
        self.seen.invalidate(&Digest::of_parts([source.as_str().as_bytes(), body.as_bytes()])).await;
    }

    /// What to do with word of a source at this time.
    pub fn pass(&self, source: &Name, now: Instant) -> Pass {
        self.pace().pass(source, now)
    }

    /// Word that was kept back is passed on at this time.
    pub fn passed(&self, source: &Name, now: Instant) {
        self.pace().passed(source, now);
    }

    fn pace(&self) -> std::sync::MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_secrets(path: &Path) -> Result<Vec<Vec<u8>>, SecretError> {
    let io = |source| SecretError::Io { path: path.to_owned(), source };
    let bad = |why: String| SecretError::Bad { path: path.to_owned(), why };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(SecretError::None),
        Err(error) => return Err(io(error)),
    };
    let mut text = String::new();
    file.take(FILE_LIMIT + 1).read_to_string(&mut text).map_err(io)?;
    if text.len() as u64 > FILE_LIMIT {
        return Err(bad(format!("it is too large (limit {FILE_LIMIT} bytes)")));
    }
    let secrets: Vec<Vec<u8>> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(|line| line.into()).collect();
    if secrets.is_empty() || secrets.len() > SECRETS {
        return Err(bad(format!("it has {} secrets (1 to {SECRETS}, one a line)", secrets.len())));
    }
    if secrets.iter().any(|secret| secret.len() < SECRET_LEAST) {
        return Err(bad(format!("a secret is too short (at least {SECRET_LEAST} bytes)")));
    }
    Ok(secrets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_secrets_is_read_anew_and_refused_when_it_is_of_no_use() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("app");
        assert!(matches!(read_secrets(&path), Err(SecretError::None)));
        std::fs::write(&path, "first-secret\n\n  second-secret \n").expect("a folder of ours");
        assert_eq!(read_secrets(&path).expect("two"), [b"first-secret".to_vec(), b"second-secret".to_vec()]);
        for bad in ["", "\n", "short\n", &"x".repeat(5000), &"long-enough\n".repeat(5)] {
            std::fs::write(&path, bad).expect("a folder of ours");
            assert!(matches!(read_secrets(&path), Err(SecretError::Bad { .. })), "{bad:?}");
        }
        std::fs::remove_file(&path).expect("a folder of ours");
        std::fs::create_dir(&path).expect("a folder of ours");
        assert!(matches!(read_secrets(&path), Err(SecretError::Io { .. })));
    }

    #[tokio::test]
    async fn the_same_body_for_the_same_source_is_a_replay() {
        let hooks = Hooks::new(None);
        let (app, other) = ("app".parse().expect("a name"), "other".parse().expect("a name"));
        let body = Digest::of(b"push");
        assert!(hooks.is_new(&app, body).await);
        assert!(!hooks.is_new(&app, body).await);
        assert!(hooks.is_new(&other, body).await);
        assert!(hooks.is_new(&app, Digest::of(b"another push")).await);
    }
}
