use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use bytes::Bytes;

use super::*;

/// A program that stands in for kustomize, and the folder that it lives in.
fn stand_in(script: &str) -> (tempfile::TempDir, Tools) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = folder.path().join("kustomize");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
    (folder, Tools { kustomize: Some(program), ..Tools::default() })
}

fn content() -> Content {
    let files = [("base/a.yaml", "a: 1\n"), ("app/kustomization.yaml", "resources: [../base]\n")];
    let files = files.into_iter().map(|(path, text)| (path.to_owned(), Bytes::from_static(text.as_bytes())));
    Content::from_files(files.collect::<BTreeMap<_, _>>())
}

fn within(time: Duration) -> Bounds {
    Bounds { time, memory: PROCESS_MEMORY }
}

async fn run_script(script: &str, limit: Duration) -> Result<Vec<u8>, KustomizeError> {
    let (folder, tools) = stand_in(script);
    let program = tools.kustomize.expect("the stand-in");
    run(&program, folder.path(), "", folder.path(), within(limit)).await
}

#[tokio::test]
async fn the_build_sees_the_content_and_nothing_of_the_site() {
    let (_folder, tools) = stand_in("/bin/cat \"$2/kustomization.yaml\" \"$2/../base/a.yaml\"; /usr/bin/env");
    let out = build(&content(), "app", &tools).await.expect("built");
    let out = String::from_utf8(out).expect("text");
    assert!(out.starts_with("resources: [../base]\na: 1\n"), "{out}");
    assert!(!out.contains("HOME=") && !out.contains("CARGO"), "{out}");
    assert!(out.contains("HTTPS_PROXY=http://127.0.0.1:1"), "{out}");
}

#[tokio::test]
async fn a_missing_program_says_how_to_provide_it() {
    let refused = build(&content(), "app", &Tools::default()).await.expect_err("no program").to_string();
    assert!(refused.contains("FARSHORE_KUSTOMIZE"), "{refused}");
    let gone = Tools { kustomize: Some("/nonexistent/kustomize".into()), ..Tools::default() };
    assert!(matches!(build(&content(), "app", &gone).await, Err(KustomizeError::Start { .. })));
}

#[tokio::test]
async fn a_build_that_fails_shows_the_end_of_what_it_said() {
    let script =
        "i=0; while [ $i -lt 2000 ]; do echo filler >&2; i=$((i+1)); done; echo 'the reason' >&2; exit 3";
    match run_script(script, TIME_LIMIT).await {
        Err(KustomizeError::Failed { status, stderr, hint }) => {
            assert_eq!(status.code(), Some(3));
            assert!(stderr.ends_with("the reason") && stderr.len() <= STDERR_TAIL, "{}", stderr.len());
            assert_eq!(hint, "");
        }
        other => panic!("expected a failure, got {other:?}"),
    }
}

#[tokio::test]
async fn a_build_has_no_more_memory_than_it_is_given() {
    // It asks for 300 MB at once, as soon as it is limited.
    let greedy = "while [ \"$(ulimit -d)\" = unlimited ]; do :; done; ulimit -d >&2
        exec /bin/dd if=/dev/zero of=/dev/null bs=300M count=1";
    let (folder, tools) = stand_in(greedy);
    let program = tools.kustomize.expect("the stand-in");
    let run = async |memory: u64| {
        run(&program, folder.path(), "", folder.path(), Bounds { time: TIME_LIMIT, memory }).await
    };
    let refused = run(256 << 20).await.expect_err("it has not so much").to_string();
    assert!(refused.contains("262144") && refused.contains("memory exhausted"), "{refused}");
    run(512 << 20).await.expect("here it has");
}

#[tokio::test]
async fn a_build_that_runs_out_of_memory_says_what_to_raise() {
    let script = "echo 'fatal error: runtime: out of memory' >&2
        i=0; while [ $i -lt 2000 ]; do echo 'goroutine 1 [running]' >&2; i=$((i+1)); done; exit 2";
    let refused = run_script(script, TIME_LIMIT).await.expect_err("too little").to_string();
    assert!(refused.contains("(1Gi): raise --process-memory"), "{refused}");
}

#[tokio::test]
async fn a_remote_base_is_refused_with_advice() {
    let script =
        "echo 'Get \"https://x/y\": proxyconnect tcp: dial tcp 127.0.0.1:1: connection refused' >&2; exit 1";
    let refused = run_script(script, TIME_LIMIT).await.expect_err("remote").to_string();
    assert!(refused.ends_with("keep remote bases as files in the source's repository"), "{refused}");
}

#[tokio::test]
async fn a_build_that_hangs_is_stopped_with_all_it_started() {
    let (folder, tools) = stand_in("/bin/sleep 600 & echo $! > \"$2/child\"; wait");
    let program = tools.kustomize.expect("the stand-in");
    let refused = run(&program, folder.path(), "", folder.path(), within(Duration::from_secs(2))).await;
    assert!(matches!(refused, Err(KustomizeError::Time(_))));
    let child = fs::read_to_string(folder.path().join("child")).expect("it had started a child");
    let ended = |pid: &str| match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.contains(") Z "),
        Err(_) => true,
    };
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while !ended(child.trim()) {
        assert!(std::time::Instant::now() < deadline, "process {child} is still there");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_build_that_prints_without_end_is_stopped() {
    let script = "while :; do echo 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'; done";
    let script = format!("exec /usr/bin/yes \"$(printf '%01000d' 1)\" || {script}");
    assert!(matches!(run_script(&script, TIME_LIMIT).await, Err(KustomizeError::Output)));
}

#[test]
fn the_program_is_named_or_found_on_the_path() {
    let (folder, tools) = stand_in("");
    let on_path = Tools::find(|name| (name == "PATH").then(|| folder.path().into()));
    assert_eq!(on_path, tools);
    let named = Tools::find(|name| (name == "FARSHORE_KUSTOMIZE").then(|| "/opt/kustomize".into()));
    assert_eq!(named.kustomize.as_deref(), Some(Path::new("/opt/kustomize")));
    assert_eq!(Tools::find(|_| None), Tools::default());
}
