//! Many sources, slow ones, failing ones, several publishers, and a disk that is empty.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use farshore_chaos::kit::{GitHttp, GitMode, GitRepo, Redis, wait_for};
use farshore_hub_fn::index::redis::Redis as RedisIndex;
use farshore_hub_fn::objects::{Condition, Objects};
use farshore_hub_fn::publish::{Options, Publisher, Sharing, Step, SyncOptions};
use farshore_hub_fn::record::{self, SourceHead, SourceState};
use farshore_hub_fn::source::Limits;
use farshore_hub_fn::trust::Trust;

use crate::world::{World, manifest, name, service_of, sync};

/// A Git server with one manifest.
struct Upstream {
    repository: GitRepo,
    server: GitHttp,
}

impl Upstream {
    async fn new() -> Self {
        let mut repository = GitRepo::new().expect("git is on PATH");
        repository.write("it.yaml", manifest("1")).expect("a folder");
        repository.commit("one").expect("git works");
        let server = GitHttp::start(&repository).await.expect("a free port");
        Self { repository, server }
    }

    fn commit(&mut self, value: &str) -> String {
        self.repository.write("it.yaml", manifest(value)).expect("a folder");
        self.repository.commit("change").expect("git works")
    }
}

/// Declares a source of this name, and a service `{name}-app` that comes from it.
fn declare(world: &World, source: &str, upstream: &Upstream) {
    let declared = format!(
        "apiVersion: farshore.dev/v1alpha1\nkind: Source\nmetadata: {{ name: {source} }}\nspec: {{ git: {{ url: \"{}\" }} }}\n---\n",
        upstream.server.url()
    );
    let service = service_of(source, "", &format!("{source}-app"), None);
    world.fleet.write(format!("fleet/{source}.yaml"), declared + &service).expect("a folder");
}

/// Sources are due hourly: whatever happens sooner has another reason.
fn hourly(world: &World, mirrors: &str) -> Options {
    Options { interval: Duration::from_secs(3_600), ..world.options(mirrors) }
}

async fn commit_of(world: &World, objects: &Arc<dyn Objects>, source: &str) -> Option<String> {
    world.intent(objects).await.sources.get(&name(source)).and_then(|source| source.commit.clone())
}

async fn head_of(world: &World, objects: &Arc<dyn Objects>, source: &str) -> SourceHead {
    let (trust, _) = Trust::establish(&**objects, &world.ring).await.expect("our own keys");
    let stored = objects.get(&record::source_head(source), 1 << 20).await.expect("a disk").expect("written");
    let envelope: farshore_shared::dsse::Envelope =
        serde_json::from_slice(&stored.bytes).expect("an envelope");
    envelope.open(&trust.director(), 1 << 20).expect("signed by us")
}

#[tokio::test]
async fn a_slow_source_delays_no_publication_and_comes_with_a_later_one() {
    let mut world = World::new();
    let (slow, mut fast) = (Upstream::new().await, Upstream::new().await);
    declare(&world, "slow", &slow);
    declare(&world, "fast", &fast);
    world.commit();
    slow.server.set_mode(GitMode::Hang);
    let objects = world.objects();
    let mut options = hourly(&world, "mirrors");
    options.sync.grace = Duration::from_secs(2);
    let mut publisher = world.publisher_with(&objects, options).await;
    sync(&mut publisher).await;
    assert_eq!(commit_of(&world, &objects, "slow").await, None);
    let second = fast.commit("2");
    publisher.push(Some("fast"));
    sync(&mut publisher).await;
    // The fast one may take longer than the grace where the machine is busy: it comes with a later step.
    while commit_of(&world, &objects, "fast").await != Some(second.clone()) {
        publisher.arrival().await;
        sync(&mut publisher).await;
    }
    assert_eq!(commit_of(&world, &objects, "slow").await, None, "it still hangs");
    slow.server.set_mode(GitMode::Serve);
    publisher.arrival().await;
    sync(&mut publisher).await;
    assert!(commit_of(&world, &objects, "slow").await.is_some());
    assert_eq!((slow.server.fetches(), fast.server.fetches()), (1, 2));
}

#[tokio::test]
async fn a_source_that_hangs_is_shown_with_its_next_try_and_keeps_what_it_had() {
    let mut world = World::new();
    let mut upstream = Upstream::new().await;
    declare(&world, "up", &upstream);
    world.declare("near", None, "1");
    world.commit();
    let objects = world.objects();
    let mut options = hourly(&world, "mirrors");
    options.sync.limits = Limits { idle: Duration::from_millis(500), ..Limits::default() };
    let mut publisher = world.publisher_with(&objects, options).await;
    sync(&mut publisher).await;
    let first = commit_of(&world, &objects, "up").await.expect("published");
    let second = upstream.commit("2");
    upstream.server.set_mode(GitMode::Hang);
    publisher.push(Some("up"));
    let report = publisher.step(Step::Sync).await.expect("a good record");
    assert_eq!(report.failed, ["up"]);
    assert_eq!(commit_of(&world, &objects, "up").await, Some(first.clone()));
    assert!(world.intent(&objects).await.services[&name("up-app")].published.is_some());
    let head = head_of(&world, &objects, "up").await;
    assert_eq!((head.state, head.commit), (SourceState::Failed, Some(first)));
    let said = head.messages.join("; ");
    assert!(said.contains("nothing arrived") && said.contains("it failed once; next try at "), "{said}");
    assert_eq!(publisher.source_states().failing, BTreeMap::from([("up".to_owned(), 1)]));
    let fetches = upstream.server.fetches();
    publisher.step(Step::Sync).await.expect("a good record");
    assert_eq!(upstream.server.fetches(), fetches, "it is tried again at its time and not sooner");
    upstream.server.set_mode(GitMode::Serve);
    publisher.push(Some("up"));
    sync(&mut publisher).await;
    assert_eq!(commit_of(&world, &objects, "up").await, Some(second));
    assert_eq!(head_of(&world, &objects, "up").await.state, SourceState::Ready);
}

#[tokio::test]
async fn a_pack_that_is_too_large_is_that_sources_error_and_names_the_limit() {
    let mut world = World::new();
    let (mut large, small) = (Upstream::new().await, Upstream::new().await);
    let noise: String = (0..40_000u64).map(|n| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a))).collect();
    large.commit(&noise);
    declare(&world, "large", &large);
    declare(&world, "small", &small);
    world.commit();
    let objects = world.objects();
    let mut options = hourly(&world, "mirrors");
    options.sync.limits = Limits { bytes: 50_000, ..Limits::default() };
    let mut publisher = world.publisher_with(&objects, options).await;
    let report = publisher.step(Step::Sync).await.expect("a good record");
    assert_eq!(report.failed, ["large"]);
    assert!(commit_of(&world, &objects, "small").await.is_some());
    let head = head_of(&world, &objects, "large").await;
    assert!(head.messages[0].contains("50000 bytes"), "{:?}", head.messages);
}

#[tokio::test]
async fn what_a_git_server_said_into_the_record_makes_its_source_due() {
    let mut world = World::new();
    let mut upstream = Upstream::new().await;
    declare(&world, "up", &upstream);
    world.commit();
    let objects = world.objects();
    let mut publisher = world.publisher_with(&objects, hourly(&world, "mirrors")).await;
    sync(&mut publisher).await;
    let second = upstream.commit("2");
    sync(&mut publisher).await;
    assert_eq!(upstream.server.fetches(), 1, "nobody said anything, and it is not due for an hour");
    for source in ["up", "nobody"] {
        let put = objects.put(&record::hook(source), Bytes::new(), Condition::Always).await;
        put.map(drop).expect("a disk");
    }
    assert!(publisher.take_hooks().await.expect("a disk"));
    assert!(publisher.next_look().is_some_and(|next| next <= std::time::Instant::now()));
    sync(&mut publisher).await;
    assert_eq!(commit_of(&world, &objects, "up").await, Some(second));
    assert!(objects.list(record::HOOKS, None, 10).await.expect("a disk").is_empty());
    assert!(!publisher.take_hooks().await.expect("a disk"));
}

#[tokio::test]
async fn a_replica_with_an_empty_disk_restores_the_mirror_and_fetches_only_what_is_new() {
    let mut world = World::new();
    let mut upstream = Upstream::new().await;
    let noise: String = (0..40_000u64).map(|n| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a))).collect();
    upstream.repository.write("noise", &noise).expect("a folder");
    upstream.repository.commit("noise").expect("git works");
    declare(&world, "up", &upstream);
    world.commit();
    let objects = world.objects();
    let mut first = world.publisher_with(&objects, hourly(&world, "mirrors-1")).await;
    sync(&mut first).await;
    first.finish().await;
    let whole = upstream.server.sent();
    assert!(whole > 100_000, "the repository is large ({whole} bytes)");
    let second = upstream.commit("2");
    let mut bare = world.publisher_with(&objects, hourly(&world, "mirrors-2")).await;
    sync(&mut bare).await;
    assert_eq!(commit_of(&world, &objects, "up").await, Some(second));
    let new = upstream.server.sent() - whole;
    assert!(new < 5_000, "{new} bytes of {whole} were fetched again");
    bare.finish().await;
    // What lies in the record is not believed: a pack that was changed costs a fetch of everything.
    for listed in objects.list(record::MIRRORS, None, 100).await.expect("a disk") {
        if listed.key.as_str().ends_with(".pack") {
            let stored = objects.get(&listed.key, 1 << 24).await.expect("a disk").expect("it is listed");
            let mut bytes = stored.bytes.to_vec();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            objects.put(&listed.key, bytes.into(), Condition::Always).await.map(drop).expect("a disk");
        }
    }
    let third = upstream.commit("3");
    let before = upstream.server.sent();
    let mut bare = world.publisher_with(&objects, hourly(&world, "mirrors-3")).await;
    sync(&mut bare).await;
    assert_eq!(commit_of(&world, &objects, "up").await, Some(third));
    assert!(upstream.server.sent() - before > 100_000, "all of it");
}

#[tokio::test]
async fn mirrors_beyond_the_cache_are_dropped_and_come_back_from_the_record() {
    let mut world = World::new();
    let mut upstream = Upstream::new().await;
    declare(&world, "up", &upstream);
    world.commit();
    let objects = world.objects();
    let mut options = hourly(&world, "mirrors");
    options.sync.mirror_cache = 0;
    for value in ["2", "3"] {
        let newest = upstream.commit(value);
        let mut publisher = world.publisher_with(&objects, options.clone()).await;
        sync(&mut publisher).await;
        publisher.finish().await;
        assert_eq!(commit_of(&world, &objects, "up").await, Some(newest));
        let left = std::fs::read_dir(world.folder.path().join("mirrors")).expect("a folder").count();
        assert_eq!(left, 0, "nothing is in use");
    }
}

const MANY: usize = 10;

/// Steps of both until everything is published that is the newest.
async fn settle(world: &World, objects: &Arc<dyn Objects>, both: &mut [Publisher; 2], newest: &[String]) {
    let deadline = Duration::from_secs(60);
    wait_for("every source is published", deadline, async || {
        for publisher in both.iter_mut() {
            publisher.tend().await;
            publisher.step(Step::Sync).await.map_err(|error| error.to_string())?;
        }
        for (n, commit) in newest.iter().enumerate() {
            let published = commit_of(world, objects, &format!("s{n}")).await;
            if published.as_ref() != Some(commit) {
                return Err(format!("s{n} is at {published:?}"));
            }
        }
        Ok(())
    })
    .await
    .expect("both go on");
}

#[tokio::test]
async fn two_publishers_fetch_each_source_once_and_a_flushed_redis_changes_nothing() {
    let mut world = World::new();
    let redis = Redis::start().await.expect("a Redis");
    world.index = Arc::new(RedisIndex::connect(&redis.url()).expect("a URL"));
    let mut upstreams = Vec::new();
    for n in 0..MANY {
        upstreams.push(Upstream::new().await);
        declare(&world, &format!("s{n}"), &upstreams[n]);
    }
    world.commit();
    let objects = world.objects();
    let options = |mirrors| {
        let options = hourly(&world, mirrors);
        Options { sync: SyncOptions { sharing: Sharing::Shared, ..options.sync }, ..options }
    };
    let mut both = [
        world.publisher_with(&objects, options("mirrors-a")).await,
        world.publisher_with(&objects, options("mirrors-b")).await,
    ];
    // Both are known before anything is.
    wait_for("both know of each other", Duration::from_secs(30), async || {
        both[0].tend().await;
        both[1].tend().await;
        let known = both.iter().map(Publisher::publishers).collect::<Vec<_>>();
        if known == [2, 2] { Ok(()) } else { Err(format!("they know of {known:?}")) }
    })
    .await
    .expect("they share a Redis");
    let head = |upstream: &Upstream| upstream.repository.head().expect("it has a commit");
    let newest: Vec<String> = upstreams.iter().map(head).collect();
    settle(&world, &objects, &mut both, &newest).await;
    let counts =
        |upstreams: &[Upstream]| -> Vec<u64> { upstreams.iter().map(|u| u.server.fetches()).collect() };
    assert_eq!(counts(&upstreams), [1; MANY], "each was fetched once by whoever has it");
    let led = |publisher: &Publisher| (0..MANY).filter(|n| publisher.leads(&format!("s{n}"))).count();
    let (a, b) = (led(&both[0]), led(&both[1]));
    assert!(a > 0 && b > 0 && a + b == MANY, "they are spread ({a} and {b})");

    let newest: Vec<String> = upstreams.iter_mut().map(|upstream| upstream.commit("2")).collect();
    for publisher in &mut both {
        (0..MANY).for_each(|n| publisher.push(Some(&format!("s{n}"))));
    }
    settle(&world, &objects, &mut both, &newest).await;
    assert_eq!(counts(&upstreams), [2; MANY]);

    redis.flush_all().await.expect("it is there");
    let newest: Vec<String> = upstreams.iter_mut().map(|upstream| upstream.commit("3")).collect();
    for publisher in &mut both {
        (0..MANY).for_each(|n| publisher.push(Some(&format!("s{n}"))));
    }
    settle(&world, &objects, &mut both, &newest).await;
    assert!(counts(&upstreams).iter().all(|n| (3..=4).contains(n)), "{:?}", counts(&upstreams));

    // One ends; the other has everything at once.
    let [a, mut b] = both;
    a.finish().await;
    let newest: Vec<String> = upstreams.iter_mut().map(|upstream| upstream.commit("4")).collect();
    wait_for("the other takes over", Duration::from_secs(60), async || {
        b.tend().await;
        (0..MANY).for_each(|n| b.push(Some(&format!("s{n}"))));
        b.step(Step::Sync).await.map_err(|error| error.to_string())?;
        for (n, commit) in newest.iter().enumerate() {
            let published = commit_of(&world, &objects, &format!("s{n}")).await;
            if published.as_ref() != Some(commit) {
                return Err(format!("s{n} is at {published:?}"));
            }
        }
        Ok(())
    })
    .await
    .expect("b goes on");
}
