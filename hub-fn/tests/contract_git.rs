//! Sources against a real Git server over smart HTTP, and artifacts of real repositories.
#![cfg(feature = "git-http")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use farshore_chaos::kit::{GitHttp, GitMode, GitRepo};
use farshore_hub_fn::artifact::{Kind, Packed, closure, pack};
use farshore_hub_fn::source::{Branch, CommitId, Descent, FileSources, GitUrl, Limits, Mirror, SourceError};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A fetch as the publisher does it: where blocking is allowed.
async fn fetch(
    mut mirror: Mirror,
    url: &str,
    branch: &str,
    limits: Limits,
) -> (Mirror, Result<CommitId, SourceError>) {
    let url = GitUrl::parse(url, FileSources::Refused).expect("a good URL");
    let branch: Branch = branch.parse().expect("a branch");
    tokio::task::spawn_blocking(move || {
        let fetched = mirror.fetch(&url, &branch, &limits);
        (mirror, fetched)
    })
    .await
    .expect("fetching does not panic")
}

fn mirror(folder: &TempDir) -> Mirror {
    Mirror::open(&folder.path().join("mirror")).expect("an empty folder")
}

fn repository(files: &[(&str, &str)]) -> (GitRepo, CommitId) {
    let mut repository = GitRepo::new().expect("git is on PATH");
    for (path, content) in files {
        repository.write(path, content).expect("a temporary folder");
    }
    let commit = repository.commit("first").expect("something to commit");
    (repository, commit.parse().expect("git prints a commit"))
}

#[tokio::test]
async fn commits_arrive_over_http_and_their_descent_is_told() {
    let (mut repository, first) = repository(&[("a.yaml", "a: 1\n")]);
    let server = GitHttp::start(&repository).await.expect("a free port");
    let folder = TempDir::new().expect("a temporary folder");
    let (mirror, got) = fetch(mirror(&folder), &server.url(), "", Limits::default()).await;
    assert_eq!(got.expect("a good repository"), first);
    repository.write("a.yaml", "a: 2\n").expect("a temporary folder");
    let second: CommitId = repository.commit("second").expect("a change").parse().expect("a commit");
    let (mirror, got) = fetch(mirror, &server.url(), "", Limits::default()).await;
    assert_eq!(got.expect("a good repository"), second);
    assert_eq!(mirror.descent(&first, &second).expect("both are here"), Descent::Forward);
    repository.reset_hard(&first.to_string()).expect("the commit is there");
    let (mirror, got) = fetch(mirror, &server.url(), "", Limits::default()).await;
    assert_eq!(got.expect("a branch that was forced back"), first);
    assert_eq!(mirror.descent(&second, &first).expect("both are here"), Descent::Backward);
}

#[tokio::test]
async fn a_server_that_hangs_ends_at_the_limit_which_the_error_names() {
    let (repository, _) = repository(&[("a", "1")]);
    let server = GitHttp::start(&repository).await.expect("a free port");
    server.set_mode(GitMode::Hang);
    let folder = TempDir::new().expect("a temporary folder");
    let limits = Limits { idle: Duration::from_millis(300), ..Limits::default() };
    let (mirror, got) = fetch(mirror(&folder), &server.url(), "", limits).await;
    let error = got.expect_err("nobody answers");
    assert!(matches!(error, SourceError::Stalled { .. }) && error.is_unreachable(), "{error:?}");
    assert!(error.to_string().contains("0.3 s") && error.to_string().contains(&server.url()), "{error}");
    server.set_mode(GitMode::Serve);
    let (_, got) = fetch(mirror, &server.url(), "", limits).await;
    got.expect("the server answers again");
}

/// For so long a trickling server sends, if nobody hangs up: so a fetch that nothing stops ends nevertheless.
const TRICKLES: Duration = Duration::from_secs(15);

/// A Git server whose every answer begins well and then goes on a byte at a time, without end.
async fn trickling() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/repo.git", listener.local_addr().expect("it is bound"));
    tokio::spawn(async move {
        while let Ok((stream, _peer)) = listener.accept().await {
            tokio::spawn(async move {
                // Whoever hangs up has what it came for.
                let _ = tokio::time::timeout(TRICKLES, trickle(stream)).await;
            });
        }
    });
    url
}

async fn trickle(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        request.push(stream.read_u8().await?);
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-git-upload-pack-advertisement\r\ncontent-length: 1000000\r\n\r\n";
    stream.write_all(format!("{head}001e# service=git-upload-pack\n0000fff0").as_bytes()).await?;
    let mut pace = tokio::time::interval(Duration::from_millis(5));
    loop {
        pace.tick().await;
        stream.write_all(b"x").await?;
    }
}

#[tokio::test]
async fn a_server_that_trickles_ends_at_the_limit_of_all_the_time() {
    let url = trickling().await;
    let folder = TempDir::new().expect("a temporary folder");
    let total = Duration::from_millis(400);
    let limits = Limits { idle: Duration::from_secs(10), total, ..Limits::default() };
    let began = Instant::now();
    let (_, got) = fetch(mirror(&folder), &url, "", limits).await;
    let error = got.expect_err("it never ends");
    assert!(matches!(error, SourceError::Overdue { limit, .. } if limit == total), "{error:?}");
    assert!(error.is_unreachable() && error.to_string().contains(&url), "{error}");
    assert!(began.elapsed() < TRICKLES, "it was stopped, and did not end by itself");
}

#[tokio::test]
async fn failing_refusing_and_unknown_servers_are_unreachable() {
    let (repository, _) = repository(&[("a", "1")]);
    let mut server = GitHttp::start(&repository).await.expect("a free port");
    let folder = TempDir::new().expect("a temporary folder");
    server.set_mode(GitMode::Fail);
    let (mirror, failed) = fetch(mirror(&folder), &server.url(), "", Limits::default()).await;
    let failed = failed.expect_err("status 500");
    assert!(matches!(failed, SourceError::Unreachable { .. }), "{failed:?}");
    server.stop().await.expect("its port closes");
    let (mirror, refused) = fetch(mirror, &server.url(), "", Limits::default()).await;
    let refused = refused.expect_err("nobody listens");
    assert!(matches!(refused, SourceError::Unreachable { .. }), "{refused:?}");
    let (_, unknown) = fetch(mirror, "http://no-such-host.invalid/a", "", Limits::default()).await;
    let unknown = unknown.expect_err("no such host");
    assert!(matches!(unknown, SourceError::Unreachable { .. }), "{unknown:?}");
}

#[tokio::test]
async fn a_missing_repository_and_a_missing_branch_are_told_apart() {
    let (repository, _) = repository(&[("a", "1")]);
    let server = GitHttp::start(&repository).await.expect("a free port");
    let folder = TempDir::new().expect("a temporary folder");
    let gone = server.url().replace("repo.git", "gone.git");
    let (mirror, missing) = fetch(mirror(&folder), &gone, "", Limits::default()).await;
    let missing = missing.expect_err("no such repository");
    assert!(matches!(missing, SourceError::NotFound { .. }), "{missing:?}");
    let (_, missing) = fetch(mirror, &server.url(), "gone", Limits::default()).await;
    let missing = missing.expect_err("no such branch");
    assert!(
        matches!(&missing, SourceError::BranchMissing { available, .. } if !available.is_empty()),
        "{missing:?}"
    );
}

#[tokio::test]
async fn a_repository_that_is_too_large_ends_at_the_limit() {
    let noise: String = (0..40_000u64).map(|n| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a))).collect();
    let (repository, _) = repository(&[("big", &noise)]);
    let server = GitHttp::start(&repository).await.expect("a free port");
    let folder = TempDir::new().expect("a temporary folder");
    let limits = Limits { bytes: 20_000, ..Limits::default() };
    let (_, got) = fetch(mirror(&folder), &server.url(), "", limits).await;
    let error = got.expect_err("a limit");
    assert!(matches!(error, SourceError::TooLarge { limit: 20_000, .. }), "{error:?}");
}

fn corpus(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus").join(name);
    if path.is_dir() {
        Some(path)
    } else {
        eprintln!("skipped: there is no {}", path.display());
        None
    }
}

/// Imports a folder of the corpus and packs the service at `path`: how many files, and the artifact.
fn packed(from: &Path, path: &str, kind: Kind) -> (usize, Packed) {
    let mut repository = GitRepo::new().expect("git is on PATH");
    repository.import(from, "in").expect("a temporary folder");
    let commit: CommitId = repository.commit("import").expect("files").parse().expect("a commit");
    let folder = TempDir::new().expect("a temporary folder");
    let mut mirror = mirror(&folder);
    let url = repository.file_url().parse().expect("a good URL");
    assert_eq!(mirror.fetch(&url, &Branch::Default, &Limits::default()).expect("a good repository"), commit);
    let tree = mirror.tree(&commit).expect("it was fetched");
    let closure = closure(&tree, &path.parse().expect("a path"), kind).expect("a good service");
    let packed =
        pack(&closure, |id, limit| tree.blob(id, limit).map_err(Into::into)).expect("within the limits");
    (closure.files().len(), packed)
}

#[test]
fn real_repositories_become_artifacts() {
    for (name, path, kind, files) in [
        ("podinfo", "in/kustomize", Kind::Kustomize, 4),
        ("argocd-example-apps", "in/guestbook", Kind::Plain, 2),
        ("argocd-example-apps", "in/kustomize-guestbook", Kind::Kustomize, 3),
        ("kube-prometheus", "in/manifests", Kind::Plain, 95),
    ] {
        let Some(from) = corpus(name) else { return };
        let (count, first) = packed(&from, path, kind);
        assert_eq!(count, files, "{name}");
        let (_, second) = packed(&from, path, kind);
        assert_eq!(first, second, "{name} in another repository");
    }
}
