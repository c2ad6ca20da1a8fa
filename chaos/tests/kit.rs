//! The kit itself: each server starts, answers, breaks as it is told, and is gone afterwards.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use farshore_chaos::kit::{
    GitHttp, GitMode, GitRepo, KitError, Process, ProxyMode, Redis, S3, TcpProxy, wait_for,
};

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn redis_answers_forgets_when_flushed_and_is_gone_when_dropped() -> Result<(), KitError> {
    let redis = Redis::start().await?;
    let address = address(&redis.url());
    assert_eq!(ask_redis(&address, "SET a 1"), "+OK");
    redis.flush_all().await?;
    assert_eq!(ask_redis(&address, "EXISTS a"), ":0");
    drop(redis);
    assert!(TcpStream::connect(&address).is_err(), "it still listens");
    Ok(())
}

#[tokio::test]
async fn redis_comes_back_empty_on_the_same_port() -> Result<(), KitError> {
    let mut redis = Redis::start().await?;
    let url = redis.url();
    assert_eq!(ask_redis(&address(&url), "SET a 1"), "+OK");
    redis.stop();
    assert!(TcpStream::connect(address(&url)).is_err(), "it still listens");
    redis.restart().await?;
    assert_eq!(redis.url(), url);
    assert_eq!(ask_redis(&address(&url), "EXISTS a"), ":0");
    Ok(())
}

#[tokio::test]
async fn a_paused_redis_hangs_until_it_is_resumed() -> Result<(), KitError> {
    let mut redis = Redis::start().await?;
    redis.pause()?;
    let mut asking = TcpStream::connect(address(&redis.url())).expect("the kernel still accepts");
    asking.set_read_timeout(Some(Duration::from_millis(100))).expect("a time-out");
    asking.write_all(b"PING\r\n").expect("the kernel still takes bytes");
    let error = asking.read(&mut [0]).expect_err("nothing reads them");
    assert!(matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut), "{error}");
    redis.resume()?;
    asking.set_read_timeout(Some(SOON)).expect("a time-out");
    asking.read_exact(&mut [0; 5]).expect("it answers what was asked meanwhile");
    Ok(())
}

#[tokio::test]
async fn s3_answers_keeps_its_buckets_over_a_restart_and_is_gone_when_dropped() -> Result<(), KitError> {
    let mut s3 = S3::start().await?;
    let address = address(&s3.endpoint());
    s3.create_bucket("fleet")?;
    s3.restart().await?;
    assert!(s3.bucket_folder("fleet").is_dir());
    // Refused for want of a signature, which tells that the server is one of S3.
    let answer = get(&address, "/fleet");
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("AccessDenied"), "{answer}");
    s3.stop();
    assert!(TcpStream::connect(&address).is_err(), "it still listens");
    Ok(())
}

#[test]
fn the_same_writes_give_the_same_commit() -> Result<(), KitError> {
    let commit = || {
        let mut repo = GitRepo::new()?;
        repo.write("a/b.yaml", "b: 1\n")?;
        repo.commit("first")
    };
    assert_eq!(commit()?, commit()?);
    Ok(())
}

#[test]
fn a_repository_takes_folders_in_loses_files_and_goes_back() -> Result<(), KitError> {
    let outside = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(outside.path().join("deep")).expect("a folder");
    std::fs::write(outside.path().join("deep/x"), "x").expect("a file");
    let mut repo = GitRepo::new()?;
    repo.import(outside.path(), "app")?;
    let first = repo.commit("first")?;
    repo.remove("app/deep")?;
    let second = repo.commit("second")?;
    assert_ne!(first, second);
    assert!(!repo.path().join("app/deep").exists());
    repo.reset_hard(&first)?;
    assert_eq!(repo.head()?, first);
    assert!(repo.path().join("app/deep/x").exists());
    Ok(())
}

#[tokio::test]
async fn git_over_http_serves_new_commits_and_counts_fetches() -> Result<(), KitError> {
    let mut repo = GitRepo::new()?;
    repo.write("a", "1")?;
    repo.commit("first")?;
    let server = GitHttp::start(&repo).await?;
    let clone = GitRepo::new()?;
    let first = clone.git(&["ls-remote", &server.url(), "main"])?;
    repo.write("a", "2".repeat(1 << 20))?;
    let commit = repo.commit("second")?;
    clone.git(&["fetch", "--quiet", &server.url(), "main"])?;
    assert_eq!(clone.git(&["rev-parse", "FETCH_HEAD"])?, commit);
    assert!(!first.contains(&commit));
    assert_eq!(server.fetches(), 2);
    Ok(())
}

#[tokio::test]
async fn git_over_http_fails_hangs_and_refuses_as_it_is_told() -> Result<(), KitError> {
    let mut repo = GitRepo::new()?;
    let commit = repo.commit("first")?;
    let mut server = GitHttp::start(&repo).await?;
    let listed = |url: &str| repo.git(&["ls-remote", url, "main"]);
    server.set_mode(GitMode::Fail);
    let error = listed(&server.url()).expect_err("it was told to fail").to_string();
    assert!(error.contains("500"), "{error}");
    server.stop().await?;
    assert!(TcpStream::connect(address(&server.url())).is_err(), "it still listens");
    server.start_again().await?;
    server.set_mode(GitMode::Hang);
    let seen = server.fetches();
    let url = server.url();
    let path = repo.path().to_owned();
    let hanging = std::thread::spawn(move || {
        Command::new("git").args(["ls-remote", &url, "main"]).current_dir(path).output().expect("git runs")
    });
    wait_for("the request that hangs", SOON, async || match server.fetches() {
        now if now > seen => Ok(()),
        now => Err(format!("{now} requests")),
    })
    .await?;
    assert!(!hanging.is_finished(), "it was told to hang");
    server.set_mode(GitMode::Serve);
    let output = hanging.join().expect("git ran");
    assert!(String::from_utf8_lossy(&output.stdout).contains(&commit));
    Ok(())
}

#[tokio::test]
async fn a_proxy_forwards_refuses_and_swallows() -> Result<(), KitError> {
    let redis = Redis::start().await?;
    let proxy = TcpProxy::start(address(&redis.url())).await?;
    assert_eq!(ask_redis(&proxy.address(), "PING"), "+PONG");
    assert_eq!((proxy.connections(), proxy.bytes_to_server(), proxy.bytes_to_client()), (1, 6, 7));

    let mut open = TcpStream::connect(proxy.address()).expect("it forwards");
    open.set_read_timeout(Some(Duration::from_millis(100))).expect("a time-out");
    proxy.set_mode(ProxyMode::Blackhole).await?;
    open.write_all(b"PING\r\n").expect("the kernel takes bytes");
    open.read(&mut [0]).expect_err("nothing comes back");
    proxy.set_mode(ProxyMode::Forward).await?;
    open.set_read_timeout(Some(SOON)).expect("a time-out");
    open.read_exact(&mut [0; 7]).expect("what was sent meanwhile arrives");

    proxy.set_mode(ProxyMode::Refuse).await?;
    assert!(TcpStream::connect(proxy.address()).is_err(), "it was told to refuse");
    assert!(matches!(open.read(&mut [0]), Ok(0) | Err(_)), "the open connection is cut");
    proxy.set_mode(ProxyMode::Forward).await?;
    assert_eq!(ask_redis(&proxy.address(), "PING"), "+PONG");
    Ok(())
}

#[tokio::test]
async fn a_process_keeps_its_output_and_tells_how_it_ended() -> Result<(), KitError> {
    let script = "echo out; echo err >&2; test -z \"$FARSHORE_X\"; exit 3";
    let finished = Process::run("/bin/sh", ["-c", script], SOON).await?;
    assert_eq!(finished.status.code(), Some(3));
    assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("out\n", "err\n"));
    Ok(())
}

#[tokio::test]
async fn a_killed_process_takes_along_what_it_started() -> Result<(), KitError> {
    let mut process = Process::start("/bin/sh", ["-c", "sleep 600 & echo started $!; wait"])?;
    let line = process.wait_for_line("started", SOON).await?;
    let child = line.trim_start_matches("started ").to_owned();
    assert!(is_alive(&child));
    process.kill()?;
    wait_for("its child to be gone", SOON, async || if is_alive(&child) { Err(line.clone()) } else { Ok(()) })
        .await
}

#[tokio::test]
async fn a_process_that_ends_before_its_line_is_reported_with_its_output() -> Result<(), KitError> {
    let mut process = Process::start("/bin/sh", ["-c", "echo port in use >&2; exit 1"])?;
    let error = process.wait_for_line("listening", SOON).await.expect_err("it ended").to_string();
    assert!(error.contains("exit status: 1") && error.contains("port in use"), "{error}");
    Ok(())
}

#[tokio::test]
#[ignore = "started by the next test, in a process of its own, and killed there"]
async fn hold_a_server_until_killed() -> Result<(), KitError> {
    let redis = Redis::start().await?;
    println!("holding {}", redis.url());
    // Ends by itself when nobody is left to kill it.
    std::io::stdin().read_to_end(&mut Vec::new()).expect("standard input can be read");
    Ok(())
}

#[tokio::test]
async fn a_balancer_takes_servers_in_turn_and_passes_over_one_that_is_gone() -> Result<(), KitError> {
    let (mut one, two) = (Redis::start().await?, Redis::start().await?);
    assert_eq!(ask_redis(&address(&two.url()), "SET two 1"), "+OK");
    let balancer = TcpProxy::balance([address(&one.url()), address(&two.url())]).await?;
    let turns = [(); 4].map(|()| ask_redis(&balancer.address(), "EXISTS two"));
    assert_eq!(turns, [":0", ":1", ":0", ":1"]);
    one.stop();
    let turns = [(); 2].map(|()| ask_redis(&balancer.address(), "EXISTS two"));
    assert_eq!(turns, [":1", ":1"]);
    Ok(())
}

#[tokio::test]
async fn a_server_is_gone_after_its_test_was_killed() -> Result<(), KitError> {
    let mut test = Command::new(std::env::current_exe().expect("this test is a program"))
        .args(["--exact", "hold_a_server_until_killed", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let lines = BufReader::new(test.stdout.take().expect("a pipe")).lines();
    let url = lines
        .map(|line| line.expect("it prints text"))
        .find_map(|line| line.split_once("holding ").map(|(_before, url)| url.to_owned()))
        .expect("it says which server it holds");
    assert_eq!(ask_redis(&address(&url), "PING"), "+PONG");
    test.kill().expect("it runs");
    test.wait().expect("it was killed");
    wait_for("the server to be gone", SOON, async || match TcpStream::connect(address(&url)) {
        Ok(_stream) => Err("it listens".to_owned()),
        Err(_refused) => Ok(()),
    })
    .await
}

fn address(url: &str) -> String {
    let (_scheme, rest) = url.split_once("://").expect("a URL");
    rest.split('/').next().expect("an address").to_owned()
}

fn ask_redis(address: &str, command: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(SOON)).expect("a time-out");
    stream.write_all(format!("{command}\r\n").as_bytes()).expect("it reads");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("it answers");
    line.trim_end().to_owned()
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

/// Neither gone nor a zombie that nobody has reaped yet.
fn is_alive(process: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(process).join("stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}
