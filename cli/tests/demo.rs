//! The demo as a person starts it: it tells everything it promises, and leaves nothing behind.

use std::fs;
use std::io::{BufRead as _, BufReader, Lines};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use farshore_chaos::kit::wait_for;

const SOON: Duration = Duration::from_secs(60);

fn demo(temporary: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
    command.arg("demo").env("TMPDIR", temporary).env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).expect("the folder is there").next().is_none()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn the_demo_tells_every_step_with_figures_and_leaves_nothing() {
    let temporary = temporary();
    let output = demo(temporary.path()).arg("--once").output().expect("the demo starts");
    let told = told(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    for expected in [
        "1. 3 sites join",
        "harbour (process",
        "has enrolled and has its 3 services after",
        "2. A commit arrives",
        "bytes received, after",
        "3. The hub is killed",
        "nobody answers any more",
        "4. Drift is repaired without it",
        "harbour has put it back after",
        "5. trawler boots cold, with the hub still gone",
        "from its own disk, after",
        "6. A commit made meanwhile arrives when the hub returns",
        "7. A commit that removes everything is held",
        "would leave nothing",
        "none has lost anything",
        "8. Nothing changes, and polls are small",
        "trawler is told 304 Not Modified",
        "All of it happened.",
    ] {
        assert!(told.contains(expected), "{expected:?} was not told:\n{told}");
    }
    assert!(!told.contains('\u{1b}'), "there are escapes for a terminal:\n{told}");
    assert!(is_empty(temporary.path()), "the folder is still there");
}

#[test]
fn one_site_is_a_fleet_too() {
    let temporary = temporary();
    let output = demo(temporary.path()).args(["--once", "--sites", "1"]).output().expect("the demo starts");
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
}

#[test]
fn a_demo_without_git_says_so_and_fails() {
    let temporary = temporary();
    let output = demo(temporary.path()).arg("--once").env("PATH", "/nowhere").output();
    let output = output.expect("the demo starts");
    let told = told(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("starting a program (git): is it installed?"), "{told}");
    assert!(is_empty(temporary.path()), "the folder is still there");
}

/// A demo whose sites have joined.
struct Running {
    demo: Child,
    /// Where its hub listens.
    address: String,
    /// The hub's process.
    hub: String,
    lines: Lines<BufReader<ChildStdout>>,
}

fn running(mut demo: Command) -> Running {
    let mut demo = demo.stdout(Stdio::piped()).spawn().expect("the demo starts");
    let mut lines = BufReader::new(demo.stdout.take().expect("standard output is a pipe")).lines();
    let (mut hub, mut address) = (None, None);
    for line in lines.by_ref() {
        let line = line.expect("lines are text");
        if let Some((before, after)) = line.split_once(") listens on https://") {
            hub = before.split("(process ").nth(1).map(str::to_owned);
            address = after.split(' ').next().map(str::to_owned);
        }
        if line.contains("2. A commit arrives") {
            let (hub, address) = hub.zip(address).expect("the hub is told of before sites join");
            return Running { demo, address, hub, lines };
        }
    }
    panic!("the demo ended before sites had joined: {:?}", demo.wait());
}

fn signal(name: &str, process: &str) {
    let sent = Command::new("kill").args(["-s", name, process]).status().expect("kill runs");
    assert!(sent.success(), "{sent}");
}

async fn nothing_is_left(temporary: &Path, hub: &str) {
    wait_for("the demo to be gone", SOON, async || {
        if TcpStream::connect(hub).is_ok() {
            return Err("the hub runs".into());
        }
        if is_empty(temporary) { Ok(()) } else { Err("the folder is there".into()) }
    })
    .await
    .expect("nothing is left");
}

#[tokio::test]
async fn a_demo_that_is_killed_leaves_nothing() {
    let temporary = temporary();
    let Running { mut demo, address, .. } = running(demo(temporary.path()));
    demo.kill().and_then(|()| demo.wait()).expect("the demo is killed");
    nothing_is_left(temporary.path(), &address).await;
}

#[tokio::test]
async fn a_demo_that_is_asked_to_stop_ends_well_and_leaves_nothing() {
    let temporary = temporary();
    let Running { mut demo, address, lines, .. } = running(demo(temporary.path()));
    signal("INT", &demo.id().to_string());
    let told: Vec<String> = lines.map(|line| line.expect("lines are text")).collect();
    let status = demo.wait().expect("the demo ends");
    assert_eq!(status.code(), Some(0), "{told:#?}");
    nothing_is_left(temporary.path(), &address).await;
}

#[tokio::test]
async fn a_step_that_does_not_happen_is_told_with_what_was_seen_instead() {
    let temporary = temporary();
    let mut command = demo(temporary.path());
    command.arg("--once");
    let Running { mut demo, address, hub, lines } = running(command);
    signal("KILL", &hub);
    let told: Vec<String> = lines.map(|line| line.expect("lines are text")).collect();
    let told = told.join("\n");
    assert_eq!(demo.wait().expect("the demo ends").code(), Some(1), "{told}");
    for expected in ["This did not happen: hub has ended by itself", "the end of", "harbour.log"] {
        assert!(told.contains(expected), "{expected:?} was not told:\n{told}");
    }
    nothing_is_left(temporary.path(), &address).await;
}
