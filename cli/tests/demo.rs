//! The demo as a person starts it: it tells everything it promises, and leaves nothing behind.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
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

/// Starts a demo and waits until its hub listens and all sites have joined; the hub's address.
fn running(temporary: &Path) -> (Child, String) {
    let mut demo = demo(temporary).stdout(Stdio::piped()).spawn().expect("the demo starts");
    let lines = BufReader::new(demo.stdout.take().expect("standard output is a pipe")).lines();
    let mut address = None;
    for line in lines {
        let line = line.expect("lines are text");
        if let Some((_, rest)) = line.split_once("https://") {
            address = rest.split(' ').next().map(str::to_owned);
        }
        if line.contains("2. A commit arrives") {
            return (demo, address.expect("the hub's address is told before sites join"));
        }
    }
    panic!("the demo ended before sites had joined: {:?}", demo.wait());
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
    let (mut demo, hub) = running(temporary.path());
    demo.kill().and_then(|()| demo.wait()).expect("the demo is killed");
    nothing_is_left(temporary.path(), &hub).await;
}

#[tokio::test]
async fn a_demo_that_is_asked_to_stop_ends_well_and_leaves_nothing() {
    let temporary = temporary();
    let (mut demo, hub) = running(temporary.path());
    let asked = Command::new("kill").args(["-s", "INT", &demo.id().to_string()]).status();
    assert!(asked.expect("kill runs").success());
    let status = demo.wait().expect("the demo ends");
    assert_eq!(status.code(), Some(0));
    nothing_is_left(temporary.path(), &hub).await;
}
