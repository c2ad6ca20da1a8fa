//! What every store of objects keeps, against a folder, memory and a real S3 server; and what each of them
//! does when it is damaged, away, or not to be trusted.

use bytes::{Bytes, BytesMut};
use farshore_hub_fn::objects::disk::Disk;
use farshore_hub_fn::objects::{
    ByteRange, Condition, Content, Key, Objects, ObjectsError, PutOutcome, Stored, Updated, Version,
    prove_conditions, update,
};
use futures::TryStreamExt;
use futures::future::join_all;

const LIMIT: u64 = 1024 * 1024;

/// Runs each behaviour against each implementation, as a test of its own.
macro_rules! contract {
    ($($behaviour:ident),+ $(,)?) => {
        mod disk {
            $(#[tokio::test]
            async fn $behaviour() {
                let folder = tempfile::tempdir().expect("a folder");
                super::$behaviour(&super::Disk::open(folder.path()).expect("a record")).await;
            })+
        }
        mod memory {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour(&farshore_hub_fn::objects::memory::Memory::new()).await;
            })+
        }
        #[cfg(feature = "s3")]
        mod s3 {
            $(#[tokio::test]
            async fn $behaviour() {
                let (_server, objects) = super::real_s3::started().await;
                super::$behaviour(&objects).await;
            })+
        }
    };
}

contract!(
    what_is_put_is_read_back_and_replaced_and_deleted,
    an_object_over_the_limit_is_refused_by_name,
    a_read_gives_exactly_the_range,
    a_large_object_is_read_in_small_pieces,
    a_condition_that_does_not_hold_writes_nothing,
    the_conditions_keep_sixteen_writers_apart,
    no_update_of_many_at_once_is_lost,
    a_listing_is_sorted_by_key_and_paged,
    a_folder_of_objects_is_no_object,
);

fn key(text: &str) -> Key {
    Key::new(text).expect("a key")
}

async fn put(objects: &dyn Objects, name: &str, bytes: impl Into<Bytes>, condition: Condition) -> PutOutcome {
    objects.put(&key(name), bytes.into(), condition).await.expect("the store is there")
}

async fn stored(objects: &dyn Objects, name: &str, bytes: impl Into<Bytes>) -> Version {
    match put(objects, name, bytes, Condition::Always).await {
        PutOutcome::Stored(version) => version,
        PutOutcome::Conflict => panic!("there was no condition"),
    }
}

async fn get(objects: &dyn Objects, name: &str) -> Option<Stored> {
    objects.get(&key(name), LIMIT).await.expect("the store is there")
}

async fn whole(content: Content) -> Bytes {
    content.stream.try_collect::<BytesMut>().await.expect("all pieces").freeze()
}

async fn what_is_put_is_read_back_and_replaced_and_deleted(objects: &dyn Objects) {
    assert_eq!(get(objects, "fleet/head").await, None);
    assert!(objects.read(&key("fleet/head"), None).await.expect("the store").is_none());
    for body in ["", "one", "another one"] {
        let version = stored(objects, "fleet/head", body).await;
        assert_eq!(get(objects, "fleet/head").await, Some(Stored { bytes: body.into(), version }));
        let content = objects.read(&key("fleet/head"), None).await.expect("the store").expect("it is there");
        assert_eq!((content.total, content.range.clone()), (body.len() as u64, 0..body.len() as u64));
        assert_eq!(whole(content).await, body);
    }
    objects.delete(&key("fleet/head")).await.expect("it is there");
    objects.delete(&key("fleet/head")).await.expect("what is absent is deleted already");
    objects.delete(&key("never/there")).await.expect("what is absent is deleted already");
    assert_eq!(get(objects, "fleet/head").await, None);
}

async fn an_object_over_the_limit_is_refused_by_name(objects: &dyn Objects) {
    stored(objects, "fleet/head", vec![7; 1000]).await;
    assert!(objects.get(&key("fleet/head"), 1000).await.expect("it just fits").is_some());
    let error = objects.get(&key("fleet/head"), 999).await.expect_err("it is too large");
    assert!(
        matches!(&error, ObjectsError::TooLarge { key, limit: 999, size: 1000 } if key == "fleet/head"),
        "{error:?}"
    );
    assert!(!error.retryable());
}

async fn a_read_gives_exactly_the_range(objects: &dyn Objects) {
    stored(objects, "artifact", "0123456789").await;
    stored(objects, "empty", "").await;
    for (range, bytes, start) in [
        (ByteRange::From(0), "0123456789", 0),
        (ByteRange::From(7), "789", 7),
        (ByteRange::Within(2, 2), "2", 2),
        (ByteRange::Within(8, 100), "89", 8),
        (ByteRange::Last(3), "789", 7),
        (ByteRange::Last(100), "0123456789", 0),
    ] {
        let content =
            objects.read(&key("artifact"), Some(range)).await.expect("a range").expect("it is there");
        assert_eq!((content.total, content.range.start), (10, start), "{range:?}");
        assert_eq!(whole(content).await, bytes, "{range:?}");
    }
    for (name, range) in
        [("artifact", ByteRange::From(10)), ("artifact", ByteRange::Last(0)), ("empty", ByteRange::From(0))]
    {
        let error = objects.read(&key(name), Some(range)).await.expect_err("no byte of it is there");
        let expected = if name == "empty" { 0 } else { 10 };
        assert!(matches!(error, ObjectsError::Unsatisfiable { total, .. } if total == expected), "{error:?}");
    }
    let absent = objects.read(&key("absent"), Some(ByteRange::From(3))).await.expect("the store");
    assert!(absent.is_none());
}

async fn a_large_object_is_read_in_small_pieces(objects: &dyn Objects) {
    let body: Bytes = (0..=250).cycle().take(20 * 1024 * 1024).collect();
    stored(objects, "artifact", body.clone()).await;
    let content = objects.read(&key("artifact"), None).await.expect("the store").expect("it is there");
    let pieces: Vec<Bytes> = content.stream.try_collect().await.expect("all pieces");
    let largest = pieces.iter().map(Bytes::len).max().unwrap_or_default();
    assert!(largest <= 1024 * 1024, "a piece of {largest} bytes");
    assert!(pieces.concat() == body, "the pieces are not the object");
}

async fn a_condition_that_does_not_hold_writes_nothing(objects: &dyn Objects) {
    let PutOutcome::Stored(first) = put(objects, "head", "first", Condition::Absent).await else {
        panic!("nothing was there")
    };
    assert_eq!(put(objects, "head", "other", Condition::Absent).await, PutOutcome::Conflict);
    let matches = Condition::Matches(first.clone());
    let PutOutcome::Stored(second) = put(objects, "head", "second", matches.clone()).await else {
        panic!("it was the first")
    };
    assert_ne!(first, second);
    assert_eq!(put(objects, "head", "other", matches).await, PutOutcome::Conflict);
    assert_eq!(get(objects, "head").await, Some(Stored { bytes: "second".into(), version: second.clone() }));
    let matches = Condition::Matches(second);
    objects.delete(&key("head")).await.expect("it is there");
    assert_eq!(put(objects, "head", "other", matches.clone()).await, PutOutcome::Conflict);
    assert_eq!(put(objects, "never/there", "other", matches).await, PutOutcome::Conflict);
    assert_eq!(get(objects, "head").await, None);
}

async fn the_conditions_keep_sixteen_writers_apart(objects: &dyn Objects) {
    prove_conditions(objects).await.expect("it honours them");
    let left = objects.list("", None, 10).await.expect("a listing");
    assert!(left.is_empty(), "the proof left {left:?}");
}

async fn increment(objects: &dyn Objects) -> Result<Updated, ObjectsError> {
    update(objects, &key("counter"), 100, |held| {
        let count: u64 =
            held.map_or(0, |held| std::str::from_utf8(&held.bytes).expect("text").parse().expect("a number"));
        Some((count + 1).to_string().into())
    })
    .await
}

async fn no_update_of_many_at_once_is_lost(objects: &dyn Objects) {
    let writers = (0..8).map(|_| async {
        for _ in 0..5 {
            increment(objects).await.expect("it gets through");
        }
    });
    join_all(writers).await;
    assert_eq!(get(objects, "counter").await.map(|held| held.bytes), Some("40".into()));
    let unchanged = update(objects, &key("counter"), 100, |_held| None).await.expect("the store");
    assert_eq!(unchanged, Updated::Unchanged);
}

async fn a_listing_is_sorted_by_key_and_paged(objects: &dyn Objects) {
    // A folder sorts as if its name ended with a slash: behind a dot and a hyphen.
    let sorted = ["a-b", "a.b", "a/1", "a/b/1", "a/b/2", "a/c", "a0", "b/1"];
    for name in sorted.iter().rev() {
        stored(objects, name, *name).await;
    }
    let list = async |prefix: &str, after: Option<&str>, limit| -> Vec<String> {
        let after = after.map(key);
        let listed = objects.list(prefix, after.as_ref(), limit).await.expect("a listing");
        assert!(listed.iter().all(|object| object.size == object.key.as_str().len() as u64));
        listed.into_iter().map(|object| object.key.to_string()).collect()
    };
    assert_eq!(list("", None, 100).await, sorted);
    assert_eq!(list("a/", None, 100).await, ["a/1", "a/b/1", "a/b/2", "a/c"]);
    assert_eq!(list("a/b", None, 100).await, ["a/b/1", "a/b/2"]);
    assert_eq!(list("a/", Some("a/b/1"), 100).await, ["a/b/2", "a/c"]);
    assert_eq!(list("a/", Some("a/bb"), 100).await, ["a/c"]);
    assert_eq!(list("", Some("a/c"), 2).await, ["a0", "b/1"]);
    assert_eq!(list("", Some("b/1"), 2).await, [""; 0]);
    assert_eq!(list("../", None, 2).await, [""; 0]);
    assert_eq!(list("c/d", None, 2).await, [""; 0]);
    assert_eq!(list("", None, 0).await, [""; 0]);
    let mut paged = Vec::<String>::new();
    loop {
        let page = list("", paged.last().map(String::as_str), 3).await;
        let is_last = page.len() < 3;
        paged.extend(page);
        if is_last {
            break;
        }
    }
    assert_eq!(paged, sorted);
}

async fn a_folder_of_objects_is_no_object(objects: &dyn Objects) {
    stored(objects, "a/b/c", "c").await;
    assert_eq!(get(objects, "a/b").await, None);
    assert_eq!(get(objects, "a/b/c/d").await, None);
    objects.delete(&key("a/b")).await.expect("what is absent is deleted already");
    assert_eq!(get(objects, "a/b/c").await.map(|held| held.bytes), Some("c".into()));
}

mod folder {
    use std::fs::{self, File};
    use std::path::Path;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, SystemTime};

    use farshore_chaos::kit::wait_for;
    use farshore_hub_fn::objects::disk::OpenError;
    use tempfile::TempDir;

    use super::*;

    const SOON: Duration = Duration::from_secs(30);
    /// Set for a process that takes part in [`a_process_that_increments`].
    const FOLDER: &str = "FARSHORE_TEST_FOLDER";
    const TIMES: &str = "FARSHORE_TEST_TIMES";

    fn opened() -> (TempDir, Disk) {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = Disk::open(folder.path()).expect("a record");
        (folder, disk)
    }

    #[test]
    fn what_cannot_be_a_record_is_said_with_its_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "").expect("a file");
        assert!(matches!(Disk::open(&file), Err(OpenError::NotAFolder(path)) if path == file));
        let below = file.join("below");
        assert!(matches!(Disk::open(&below), Err(OpenError::NotAFolder(path)) if path == below));
        let nowhere = Path::new("/proc/farshore-record");
        let error = Disk::open(nowhere).expect_err("nobody may write there");
        assert!(matches!(&error, OpenError::NotWritable { path, .. } if path == nowhere), "{error:?}");
        let absent = folder.path().join("absent");
        assert!(matches!(Disk::open_existing(&absent), Err(OpenError::Absent(path)) if path == absent));
        assert!(!absent.exists(), "looking for a record has made one");
    }

    #[tokio::test]
    async fn what_was_half_written_is_not_seen_and_goes_away() {
        let (folder, disk) = opened();
        stored(&disk, "a/b", "whole").await;
        let half = folder.path().join("~staging/half");
        let file = File::create(&half).expect("a file");
        let listed = disk.list("", None, 10).await.expect("a listing");
        assert_eq!(listed.iter().map(|object| object.key.as_str()).collect::<Vec<_>>(), ["a/b"]);
        Disk::open(folder.path()).expect("a record");
        assert!(half.exists(), "another process may be writing it");
        file.set_modified(SystemTime::now() - Duration::from_secs(7200)).expect("its time is set");
        Disk::open(folder.path()).expect("a record");
        assert!(!half.exists(), "a process that died two hours ago left it");
    }

    #[tokio::test]
    async fn a_pipe_in_the_place_of_an_object_is_damage_and_stops_nobody() {
        let (folder, disk) = opened();
        let made = Command::new("mkfifo").arg(folder.path().join("pipe")).status().expect("mkfifo");
        assert!(made.success());
        let error = disk.get(&key("pipe"), LIMIT).await.expect_err("it is no object");
        assert!(matches!(error, ObjectsError::Corrupt { key, .. } if key == "pipe"));
        assert_eq!(disk.list("", None, 10).await.expect("a listing"), []);
    }

    #[tokio::test]
    async fn a_read_shows_one_version_although_the_object_is_replaced_and_deleted() {
        let (_folder, disk) = opened();
        let body: Bytes = vec![1; 3 * 1024 * 1024].into();
        stored(&disk, "artifact", body.clone()).await;
        let content = disk.read(&key("artifact"), None).await.expect("the disk").expect("it is there");
        stored(&disk, "artifact", "other").await;
        disk.delete(&key("artifact")).await.expect("it is there");
        assert!(whole(content).await == body, "the pieces are not of one version");
    }

    #[tokio::test]
    async fn the_largest_artifact_is_not_held_in_memory() {
        let (folder, disk) = opened();
        let size = 256 * 1024 * 1024;
        let file = File::create(folder.path().join("artifact")).expect("a file");
        file.set_len(size).expect("a hole of that size");
        let mut content = disk.read(&key("artifact"), None).await.expect("the disk").expect("it is there");
        let (mut read, mut largest) = (0, 0);
        while let Some(piece) = content.stream.try_next().await.expect("a piece") {
            read += piece.len() as u64;
            largest = largest.max(piece.len());
        }
        assert_eq!(read, size);
        assert!(largest <= 1024 * 1024, "a piece of {largest} bytes");
    }

    /// Not a test of its own: what [`process`] starts.
    #[tokio::test]
    async fn a_process_that_increments() {
        let (Ok(folder), Ok(times)) = (std::env::var(FOLDER), std::env::var(TIMES)) else { return };
        let disk = Disk::open_existing(Path::new(&folder)).expect("a record");
        for _ in 0..times.parse::<u64>().expect("a number") {
            increment(&disk).await.expect("it gets through");
        }
    }

    fn process(folder: &Path, times: u64) -> Child {
        Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "folder::a_process_that_increments"])
            .env(FOLDER, folder)
            .env(TIMES, times.to_string())
            .stdout(Stdio::null())
            .spawn()
            .expect("another process")
    }

    async fn count(disk: &Disk) -> u64 {
        let held = get(disk, "counter").await;
        held.map_or(0, |held| String::from_utf8_lossy(&held.bytes).parse().expect("a number"))
    }

    #[tokio::test]
    async fn processes_that_write_at_once_lose_nothing() {
        let (folder, disk) = opened();
        let children: Vec<_> = (0..3).map(|_| process(folder.path(), 20)).collect();
        for _ in 0..20 {
            increment(&disk).await.expect("it gets through");
        }
        for mut child in children {
            assert!(child.wait().expect("it ends").success());
        }
        assert_eq!(count(&disk).await, 80);
    }

    #[tokio::test]
    async fn a_process_killed_while_it_writes_leaves_neither_a_lock_nor_half_an_object() {
        let (folder, disk) = opened();
        for round in 1..=5 {
            let before = count(&disk).await;
            let mut child = process(folder.path(), u64::MAX);
            let moved = wait_for("the other process to write", SOON, async || match count(&disk).await {
                now if now > before + round => Ok(()),
                now => Err(format!("{now} after {before}")),
            })
            .await;
            child.kill().expect("it runs");
            child.wait().expect("it is dead");
            moved.expect("it writes");
            let held = count(&disk).await;
            increment(&disk).await.expect("nobody holds the lock");
            assert_eq!(count(&disk).await, held + 1);
        }
        assert_eq!(disk.list("", None, 10).await.expect("a listing").len(), 1);
    }
}

mod faulty {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use farshore_hub_fn::objects::Operation;
    use farshore_hub_fn::objects::faulty::{Decision, Faulty, Steps};

    use super::*;

    #[derive(Debug)]
    struct Nth(AtomicUsize, usize, Decision);

    #[async_trait]
    impl Steps for Nth {
        async fn before(&self, _operation: Operation, _key: &str) -> Decision {
            let n = self.0.fetch_add(1, Ordering::Relaxed) + 1;
            if n == self.1 { self.2.clone() } else { Decision::Proceed }
        }
    }

    async fn update_with(n: usize, decision: Decision) -> (Result<Updated, ObjectsError>, Option<Bytes>) {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = Disk::open(folder.path()).expect("a record");
        let steps = Nth(AtomicUsize::new(0), n, decision);
        let faulty = Faulty::new(Arc::new(disk.clone()), Arc::new(steps));
        let result = increment(&faulty).await;
        (result, get(&disk, "counter").await.map(|held| held.bytes))
    }

    #[tokio::test]
    async fn each_operation_can_be_failed_or_lose_its_answer() {
        for n in [1, 2] {
            let (result, held) = update_with(n, Decision::Fail).await;
            assert!(result.expect_err("it failed").retryable());
            assert_eq!(held, None, "operation {n}");
        }
        let (result, held) = update_with(2, Decision::LoseAnswer).await;
        assert!(matches!(result, Err(ObjectsError::Unreachable { operation: Operation::Put, .. })));
        assert_eq!(held, Some("1".into()));
        let (result, held) = update_with(3, Decision::Fail).await;
        assert!(matches!(result, Ok(Updated::Stored(_))));
        assert_eq!(held, Some("1".into()));
    }

    #[tokio::test]
    async fn an_update_that_is_refused_or_saw_an_old_object_begins_anew() {
        let (result, held) = update_with(2, Decision::Refuse).await;
        assert!(matches!(result, Ok(Updated::Stored(_))));
        assert_eq!(held, Some("1".into()));
        let old = Stored { bytes: "6".into(), version: Version::new("of last month") };
        let (result, held) = update_with(1, Decision::Answer(Some(old))).await;
        assert!(matches!(result, Ok(Updated::Stored(_))));
        assert_eq!(held, Some("1".into()), "what was seen first was never written on");
    }
}

#[cfg(feature = "s3")]
mod real_s3 {
    use std::net::SocketAddr;

    use farshore_chaos::kit;
    use farshore_hub_fn::objects::s3::{S3, S3Address};
    use farshore_hub_fn::objects::{Ignored, ProofError};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use s3s::auth::SimpleAuth;
    use s3s::service::S3ServiceBuilder;

    use super::*;

    const BUCKET: &str = "fleet";

    fn address(place: &str, endpoint: &str) -> S3Address {
        format!("s3://{place}?endpoint={endpoint}").parse().expect("an address")
    }

    pub(super) async fn started() -> (kit::S3, S3) {
        let server = kit::S3::start().await.expect("an S3 server");
        server.create_bucket(BUCKET).expect("a bucket");
        let objects = connected(&server, "fleet/some/prefix").await;
        (server, objects)
    }

    async fn connected(server: &kit::S3, place: &str) -> S3 {
        let address = address(place, &server.endpoint());
        S3::connect_with(&address, server.access_key(), server.secret_key())
            .await
            .expect("a region and a key")
    }

    #[tokio::test]
    async fn a_prefix_keeps_two_records_of_one_bucket_apart() {
        let (server, one) = started().await;
        let other = connected(&server, BUCKET).await;
        stored(&one, "head", "one").await;
        stored(&other, "head", "other").await;
        assert_eq!(get(&one, "head").await.map(|held| held.bytes), Some("one".into()));
        assert_eq!(one.list("", None, 10).await.expect("a listing").len(), 1);
        assert_eq!(get(&other, "some/prefix/head").await.map(|held| held.bytes), Some("one".into()));
    }

    #[tokio::test]
    async fn a_server_that_is_away_is_unreachable_and_returns() {
        let (mut server, objects) = started().await;
        stored(&objects, "head", "one").await;
        server.stop();
        let error = objects.get(&key("head"), LIMIT).await.expect_err("it is away");
        assert!(matches!(&error, ObjectsError::Unreachable { key, .. } if key == "head"), "{error:?}");
        assert!(error.retryable());
        let error = objects.put(&key("head"), "two".into(), Condition::Absent).await.expect_err("it is away");
        assert!(matches!(error, ObjectsError::Unreachable { .. }), "{error:?}");
        server.restart().await.expect("it starts again");
        assert_eq!(get(&objects, "head").await.map(|held| held.bytes), Some("one".into()));
    }

    #[tokio::test]
    async fn a_bucket_that_is_not_there_is_not_an_empty_one() {
        let (server, _objects) = started().await;
        let objects = connected(&server, "nowhere").await;
        let refused = |error: ObjectsError| {
            let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            assert!(matches!(error, ObjectsError::Refused { .. }), "{error:?}");
            assert!(source.contains("NoSuchBucket"), "{source}");
        };
        refused(objects.get(&key("head"), LIMIT).await.expect_err("no bucket"));
        refused(objects.read(&key("head"), None).await.expect_err("no bucket"));
        refused(objects.list("", None, 10).await.expect_err("no bucket"));
        refused(objects.put(&key("head"), "x".into(), Condition::Absent).await.expect_err("no bucket"));
        let version = Condition::Matches(Version::new("\"x\""));
        refused(objects.put(&key("head"), "x".into(), version).await.expect_err("no bucket"));
    }

    /// Asks for what an address names, as any HTTP client would; the status and the body.
    async fn fetched(address: &str, range: Option<&str>) -> (u16, String) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let uri: http::Uri = address.parse().expect("an address");
        let (host, path) = (uri.authority().expect("a host"), uri.path_and_query().expect("a path"));
        let range = range.map_or(String::new(), |range| format!("Range: {range}\r\n"));
        let mut stream = tokio::net::TcpStream::connect(host.as_str()).await.expect("the server");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{range}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("the server");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("the server");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
    }

    #[tokio::test]
    async fn a_signed_address_gives_the_object_or_a_range_of_it_and_no_other_and_expires() {
        use std::time::Duration;
        let (_server, objects) = started().await;
        stored(&objects, "artifact", "0123456789").await;
        stored(&objects, "another", "secret").await;
        let sign =
            async |ttl| objects.presign(&key("artifact"), ttl).await.expect("it signs").expect("an address");
        let address = sign(Duration::from_secs(60)).await;
        assert_eq!(fetched(&address, None).await, (200, "0123456789".into()));
        assert_eq!(fetched(&address, Some("bytes=7-")).await, (206, "789".into()));
        assert_eq!(fetched(&address.replace("/artifact?", "/another?"), None).await.0, 403);
        let brief = sign(Duration::from_secs(1)).await;
        kit::wait_for("the address to expire", Duration::from_secs(20), async || {
            match fetched(&brief, None).await.0 {
                403 | 400 => Ok(()),
                status => Err(format!("status {status}")),
            }
        })
        .await
        .expect("it expires");
        let folder = tempfile::tempdir().expect("a folder");
        let disk = Disk::open(folder.path()).expect("a record");
        let none = disk.presign(&key("artifact"), Duration::from_secs(60)).await.expect("a disk");
        assert_eq!(none, None, "a folder has no addresses");
    }

    /// A server that gives everybody the same answer; how many it has answered.
    async fn stubborn(answer: &'static str) -> (S3, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
        use std::sync::atomic::{AtomicUsize, Ordering};
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let server = listener.local_addr().expect("an address");
        let count = std::sync::Arc::new(AtomicUsize::new(0));
        let counted = std::sync::Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((mut stream, _peer)) = listener.accept().await {
                let mut request = vec![0; 64 * 1024];
                if stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                    counted.fetch_add(1, Ordering::SeqCst);
                    stream.write_all(answer.as_bytes()).await.ok();
                }
            }
        });
        let address = address(BUCKET, &format!("http://{server}"));
        (S3::connect_with(&address, "id", "secret").await.expect("a region and a key"), count)
    }

    const BUSY: &str = "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    const CUT: &str =
        "HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: 100\r\nConnection: close\r\n\r\nhalf";
    const CONFLICTS: [&str; 2] = [
        "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        // The write met another one: it was not looked at which of them holds.
        "HTTP/1.1 409 Conflict\r\nContent-Length: 57\r\nConnection: close\r\n\r\n<Error><Code>ConditionalRequestConflict</Code></Error>   ",
    ];

    #[tokio::test]
    async fn a_busy_bucket_is_asked_a_few_times_and_a_conditional_write_once() {
        use std::sync::atomic::Ordering;
        let (objects, count) = stubborn(BUSY).await;
        let error = objects.get(&key("head"), LIMIT).await.expect_err("it is busy");
        assert!(error.retryable(), "{error:?}");
        let reads = count.swap(0, Ordering::SeqCst);
        assert!((2..=5).contains(&reads), "{reads} reads");
        let error = objects.put(&key("head"), "x".into(), Condition::Absent).await.expect_err("it is busy");
        assert!(error.retryable(), "{error:?}");
        assert_eq!(count.load(Ordering::SeqCst), 1, "a second attempt would meet the first one's success");
    }

    #[tokio::test]
    async fn a_body_that_is_cut_is_an_error_and_never_a_shorter_object() {
        let (objects, _count) = stubborn(CUT).await;
        let error = objects.get(&key("head"), LIMIT).await.expect_err("it is cut");
        assert!(matches!(error, ObjectsError::Unreachable { .. }), "{error:?}");
        let content = objects.read(&key("head"), None).await.expect("a head").expect("it is there");
        content.stream.try_collect::<BytesMut>().await.expect_err("it is cut");
    }

    #[tokio::test]
    async fn a_condition_that_a_bucket_refuses_is_a_conflict_of_a_conditional_write_alone() {
        for answer in CONFLICTS {
            let (objects, _count) = stubborn(answer).await;
            let put = async |condition| objects.put(&key("head"), "x".into(), condition).await;
            for condition in [Condition::Absent, Condition::Matches(Version::new("\"x\""))] {
                assert_eq!(put(condition).await.expect("an answer"), PutOutcome::Conflict, "{answer}");
            }
            put(Condition::Always).await.expect_err("nothing was asked that could conflict");
        }
    }

    #[tokio::test]
    async fn a_wrong_key_is_refused_and_asking_again_does_not_help() {
        let (server, _objects) = started().await;
        let address = address(BUCKET, &server.endpoint());
        let objects =
            S3::connect_with(&address, server.access_key(), "wrong").await.expect("a region and a key");
        let error = objects.get(&key("head"), LIMIT).await.expect_err("the secret is wrong");
        assert!(matches!(error, ObjectsError::Refused { .. }) && !error.retryable(), "{error:?}");
    }

    /// A server that looks whether there is an object, and then writes.
    async fn s3s(folder: &std::path::Path) -> SocketAddr {
        let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(folder).expect("a folder"));
        builder.set_auth(SimpleAuth::from_single("id", "secret"));
        let service = builder.build();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((stream, _peer)) = listener.accept().await {
                stream.set_nodelay(true).expect("a socket");
                let service = service.clone();
                tokio::spawn(async move {
                    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    server.serve_connection(TokioIo::new(stream), service).await.ok();
                });
            }
        });
        address
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_bucket_that_looks_and_then_writes_is_not_proven() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join(BUCKET)).expect("a bucket");
        let server = s3s(folder.path()).await;
        let address = address(BUCKET, &format!("http://{server}"));
        let objects = S3::connect_with(&address, "id", "secret").await.expect("a region and a key");
        let error = prove_conditions(&objects).await.expect_err("it lets several writers through");
        assert!(
            matches!(&error, ProofError::Ignored { ignored: Ignored::Absent | Ignored::Matches, .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains("does not honour If-"), "{error}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_publisher_refuses_to_start_on_a_bucket_that_looks_and_then_writes() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join(BUCKET)).expect("a bucket");
        let server = s3s(folder.path()).await;
        let hub = tokio::process::Command::new(env!("CARGO_BIN_EXE_farshore-hub"))
            .arg("--data")
            .arg(folder.path().join("data"))
            .args(["--objects", &format!("s3://{BUCKET}?endpoint=http://{server}")])
            .args(["--listen", "127.0.0.1:0"])
            .envs([("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret")])
            .kill_on_drop(true)
            .output();
        let ended = tokio::time::timeout(std::time::Duration::from_secs(60), hub).await;
        let ended = ended.expect("it ends by itself").expect("it starts");
        let told = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(3), "{told}");
        assert!(told.contains("does not honour If-"), "{told}");
    }
}
