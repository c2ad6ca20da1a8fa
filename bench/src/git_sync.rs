//! `git-sync`: from the fetch to the digest of a new commit.
//!
//! Unit: seconds. A repository of 1,001 files over smart HTTP gets a commit that changes one of them. Ours: a
//! process that opens the mirror, fetches, finds the files of the service and packs them: what is named by a digest
//! then is the compressed artifact. Yardstick: `git fetch && git archive | sha256sum` in a bare clone. The start
//! of the processes counts for both. They take turns in going first; the figure is the median.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use farshore_chaos::kit::{GitHttp, GitRepo};
use farshore_hub_fn::artifact::{Kind, closure, pack};
use farshore_hub_fn::source::{Branch, FileSources, GitUrl, Limits, Mirror};
use tempfile::TempDir;

use crate::error::BenchError;
use crate::report::{Ratio, median};

/// Seconds from fetch to digest of a new commit, beside git
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Manifests in the repository
    #[arg(long, default_value_t = 1000)]
    files: usize,
    /// Commits
    #[arg(long, default_value_t = 21)]
    runs: usize,
}

/// One measurement, in a process of its own.
#[derive(clap::Args)]
pub(crate) struct Once {
    mirror: PathBuf,
    url: String,
}

const PATH: &str = "manifests";

/// Measures.
///
/// # Errors
/// [`BenchError`].
pub(crate) async fn run(options: &Options) -> Result<Ratio, BenchError> {
    let mut repo = repository(options.files)?;
    let server = GitHttp::start(&repo).await?;
    let folder = TempDir::new().map_err(BenchError::io("making a folder"))?;
    let (mirror, clone) = (folder.path().join("mirror"), folder.path().join("clone.git"));
    ours(&mirror, &server.url()).await?;
    git(Command::new("git").args(["clone", "--quiet", "--bare", &server.url()]).arg(&clone)).await?;
    let (mut our_times, mut their_times) = (Vec::new(), Vec::new());
    for number in 1..=options.runs {
        repo.write(format!("{PATH}/0.yaml"), manifest(number))?;
        let commit = repo.commit("change")?;
        let is_our_turn = number % 2 == 0;
        if is_our_turn {
            our_times.push(ours(&mirror, &server.url()).await?);
        }
        their_times.push(theirs(&clone).await?);
        if !is_our_turn {
            our_times.push(ours(&mirror, &server.url()).await?);
        }
        eprintln!("git-sync: commit {number} of {} ({})", options.runs, &commit[..12]);
    }
    println!("{} files; {}", options.files + 1, version().await?);
    println!("ours:  {}", list(&our_times));
    println!("git:   {}", list(&their_times));
    Ok(Ratio { name: "git-sync", ours: median(&our_times), theirs: median(&their_times) })
}

/// Fetches and packs; the digest goes to standard output.
///
/// # Errors
/// [`BenchError`].
pub(crate) fn once(once: &Once) -> Result<(), BenchError> {
    let url =
        GitUrl::parse(&once.url, FileSources::Refused).map_err(BenchError::ours("reading the address"))?;
    let mut mirror = Mirror::open(&once.mirror).map_err(BenchError::ours("opening the mirror"))?;
    let commit = mirror.fetch(&url, &Branch::Default, &Limits::default());
    let commit = commit.map_err(BenchError::ours("fetching"))?;
    let tree = mirror.tree(&commit).map_err(BenchError::ours("reading the commit"))?;
    let path = PATH.parse().map_err(BenchError::ours("naming the path"))?;
    let closure = closure(&tree, &path, Kind::Plain).map_err(BenchError::ours("finding the files"))?;
    let packed = pack(&closure, |id, limit| Ok(tree.blob(id, limit)?));
    let packed = packed.map_err(BenchError::ours("packing the files"))?;
    println!("{} {commit} {}", packed.artifact.digest, closure.files().len());
    Ok(())
}

async fn ours(mirror: &Path, url: &str) -> Result<f64, BenchError> {
    let program = std::env::current_exe().map_err(BenchError::io("finding this program"))?;
    let mut command = Command::new(program);
    command.arg("git-sync-once").arg(mirror).arg(url);
    git(&mut command).await
}

async fn theirs(clone: &Path) -> Result<f64, BenchError> {
    // With a path, as the service has one.
    let script = format!("set -e; git fetch --quiet origin main; git archive FETCH_HEAD {PATH} | sha256sum");
    git(Command::new("sh").arg("-c").arg(script).current_dir(clone)).await
}

/// Seconds that a program took, which must succeed and, as Git, hear of no configuration of this machine.
async fn git(command: &mut Command) -> Result<f64, BenchError> {
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    let program = command.get_program().to_string_lossy().into_owned();
    let mut command = tokio::process::Command::from(std::mem::replace(command, Command::new("true")));
    let began = Instant::now();
    let output = command.output().await.map_err(BenchError::io(format!("running {program}")))?;
    let took = began.elapsed().as_secs_f64();
    if output.status.success() {
        return Ok(took);
    }
    Err(BenchError::Failed { program, said: String::from_utf8_lossy(&output.stderr).into_owned() })
}

async fn version() -> Result<String, BenchError> {
    let output = tokio::process::Command::new("git").arg("--version").output().await;
    let output = output.map_err(BenchError::io("running git"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn repository(files: usize) -> Result<GitRepo, BenchError> {
    let mut repo = GitRepo::new()?;
    for number in 0..files {
        repo.write(format!("{PATH}/{number}.yaml"), manifest(number))?;
    }
    repo.write("README.md", "A thousand manifests.\n")?;
    repo.commit("first")?;
    Ok(repo)
}

/// About a kilobyte, as manifests have.
fn manifest(number: usize) -> String {
    let filler = format!("value {number} ").repeat(80);
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: it-{number} }}\ndata: {{ value: \"{filler}\" }}\n"
    )
}

fn list(times: &[f64]) -> String {
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let most = times.iter().copied().fold(0.0, f64::max);
    format!("median {:.4} s, {least:.4} to {most:.4}", median(times))
}
