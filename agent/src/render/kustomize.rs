//! `kustomize build`, as a process in a folder of its own: bounded in time, output and memory, without the site's
//! environment.
//!
//! Rendering is offline. The process finds neither `git` nor a way through a proxy, so that a remote
//! base fails at once instead of rendering something that nobody signed.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use farshore_shared::size::HumanSize;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};

use super::Content;
use crate::ceiling;
use crate::footprint::PROCESS_MEMORY;

/// How long one build may take.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);
/// The most bytes that a build may print.
pub const OUTPUT_LIMIT: usize = super::yaml::FILE_LIMIT;
/// How much of the end of its error output is shown.
const STDERR_TAIL: usize = 2 << 10;
/// How much of its beginning is looked at.
const STDERR_HEAD: usize = 4 << 10;
/// Nothing listens there: a request that would leave the site is refused at once.
const NO_PROXY_THERE: &str = "http://127.0.0.1:1";

/// The programs that renderers start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools {
    /// `kustomize`, if it was found.
    pub kustomize: Option<PathBuf>,
    /// Bytes of memory that each process has.
    pub memory: u64,
}

impl Default for Tools {
    fn default() -> Self {
        Self { kustomize: None, memory: PROCESS_MEMORY }
    }
}

impl Tools {
    /// Looks for the programs: `FARSHORE_KUSTOMIZE` names one, or else `PATH` is searched.
    pub fn find(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let named = variable("FARSHORE_KUSTOMIZE").filter(|name| !name.is_empty()).map(PathBuf::from);
        let on_path = || {
            let path = variable("PATH")?;
            std::env::split_paths(&path).map(|folder| folder.join("kustomize")).find(|file| file.is_file())
        };
        Self { kustomize: named.or_else(on_path), ..Self::default() }
    }
}

/// How a build failed.
#[derive(Debug, thiserror::Error)]
pub enum KustomizeError {
    /// There is no such program at this site.
    #[error(
        "kustomize is not installed at this site: put it on the agent's PATH, or name it in FARSHORE_KUSTOMIZE"
    )]
    Missing,
    /// The folder to build in could not be made.
    #[error("writing the content to a temporary folder")]
    Folder(#[source] io::Error),
    /// The program could not be started.
    #[error("starting kustomize ({program})")]
    Start {
        /// Which program.
        program: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It could not be read from or waited for.
    #[error("reading from kustomize")]
    Read(#[source] io::Error),
    /// Its memory could not be limited.
    #[error("limiting the memory of kustomize")]
    Limit(#[source] rustix::io::Errno),
    /// It needs more memory.
    #[error("kustomize needs more memory than it has here ({}): raise --process-memory", HumanSize(*.0))]
    Memory(u64),
    /// It took too long.
    #[error("kustomize did not finish within {} s and was stopped", .0.as_secs())]
    Time(Duration),
    /// It printed too much.
    #[error("kustomize printed more than {OUTPUT_LIMIT} bytes and was stopped")]
    Output,
    /// It said no.
    #[error("kustomize failed ({status}): {stderr}{hint}")]
    Failed {
        /// How it ended.
        status: ExitStatus,
        /// The end of what it said.
        stderr: String,
        /// What to do, where that is known.
        hint: &'static str,
    },
}

/// Builds the kustomization at `path` and returns what it prints.
///
/// # Errors
/// [`KustomizeError`].
pub async fn build(content: &Content, path: &str, tools: &Tools) -> Result<Vec<u8>, KustomizeError> {
    let program = tools.kustomize.as_deref().ok_or(KustomizeError::Missing)?;
    let folder =
        tempfile::Builder::new().prefix("farshore-render-").tempdir().map_err(KustomizeError::Folder)?;
    let root = folder.path().join("content");
    let (written, target) = (content.clone(), root.clone());
    let task = tokio::task::spawn_blocking(move || write_files(&written, &target));
    task.await.map_err(io::Error::other).and_then(|done| done).map_err(KustomizeError::Folder)?;
    let bounds = Bounds { time: TIME_LIMIT, memory: tools.memory };
    run(program, &root, path, folder.path(), bounds).await
}

/// What one build may take.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    time: Duration,
    /// In bytes.
    memory: u64,
}

fn write_files(content: &Content, root: &Path) -> io::Result<()> {
    fs::create_dir(root)?;
    for (path, bytes) in content.iter() {
        let file = root.join(path);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(file, bytes)?;
    }
    Ok(())
}

async fn run(
    program: &Path,
    root: &Path,
    path: &str,
    scratch: &Path,
    bounds: Bounds,
) -> Result<Vec<u8>, KustomizeError> {
    let mut command = Command::new(program);
    command.arg("build").arg(root.join(path.trim_matches('/'))).current_dir(scratch);
    command.env_clear().env("TMPDIR", scratch);
    for variable in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
        command.env(variable, NO_PROXY_THERE);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0).kill_on_drop(true);
    let start = |source| KustomizeError::Start { program: program.to_owned(), source };
    let mut group = Group(command.spawn().map_err(start)?);
    if let Some(pid) = group.pid() {
        ceiling::of_child(pid, bounds.memory).map_err(KustomizeError::Limit)?;
    }
    let (out, err) = (group.0.stdout.take(), group.0.stderr.take());
    let work = async {
        let (out, err) = tokio::try_join!(bounded(out), tail(err))?;
        let status = group.0.wait().await.map_err(KustomizeError::Read)?;
        Ok((status, out, err))
    };
    let timed = tokio::time::timeout(bounds.time, work).await;
    let (status, out, Said { head, tail }) = timed.map_err(|_| KustomizeError::Time(bounds.time))??;
    if status.success() {
        return Ok(out);
    }
    if ran_out_of_memory(&head) {
        return Err(KustomizeError::Memory(bounds.memory));
    }
    let scratch = format!("{}/", root.display());
    let stderr = String::from_utf8_lossy(&tail).replace(&scratch, "").trim().to_owned();
    let remote = stderr.contains("127.0.0.1:1") || stderr.contains("\"git\"") || stderr.contains("no 'git'");
    let hint = if remote {
        "; rendering is offline: keep remote bases as files in the source's repository"
    } else {
        ""
    };
    Err(KustomizeError::Failed { status, stderr, hint })
}

/// A program in Go says so first, and then where each of its threads was.
fn ran_out_of_memory(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    ["out of memory", "cannot allocate memory"].iter().any(|said| head.contains(said))
}

/// A process that takes its whole group with it when it is given up.
struct Group(Child);

impl Group {
    /// No id any more means that it was waited for.
    fn pid(&self) -> Option<rustix::process::Pid> {
        self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            // It may have ended on its own meanwhile.
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }
}

async fn bounded(stream: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, KustomizeError> {
    let mut out = Vec::new();
    if let Some(stream) = stream {
        stream.take(OUTPUT_LIMIT as u64 + 1).read_to_end(&mut out).await.map_err(KustomizeError::Read)?;
    }
    if out.len() > OUTPUT_LIMIT { Err(KustomizeError::Output) } else { Ok(out) }
}

/// What of an error output is kept.
#[derive(Debug, Default)]
struct Said {
    head: Vec<u8>,
    tail: Vec<u8>,
}

/// Reads everything and keeps the beginning and the end.
async fn tail(stream: Option<impl AsyncRead + Unpin>) -> Result<Said, KustomizeError> {
    let mut kept = Said::default();
    let Some(mut stream) = stream else { return Ok(kept) };
    let mut piece = vec![0; STDERR_TAIL];
    loop {
        let count = stream.read(&mut piece).await.map_err(KustomizeError::Read)?;
        if count == 0 {
            return Ok(kept);
        }
        let room = STDERR_HEAD.saturating_sub(kept.head.len()).min(count);
        kept.head.extend_from_slice(&piece[..room]);
        kept.tail.extend_from_slice(&piece[..count]);
        kept.tail.drain(..kept.tail.len().saturating_sub(STDERR_TAIL));
    }
}

#[cfg(test)]
#[path = "kustomize_tests.rs"]
mod tests;
