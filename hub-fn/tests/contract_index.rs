//! What every index keeps, against the one in memory and a real Redis; and what a Redis that is away
//! or full of garbage costs.

use std::time::{Duration, Instant};

use bytes::Bytes;
use farshore_hub_fn::index::memory::Memory;
use farshore_hub_fn::index::{Entry, Index, IndexError, Kept, MOST_BYTES, News, NewsStream};
use farshore_hub_fn::record::{self, SHARDS, SeenTable};
use farshore_shared::names::Name;
use futures::StreamExt as _;

const SOON: Duration = Duration::from_secs(10);

/// Runs each behaviour against each implementation, as a test of its own.
macro_rules! contract {
    ($($behaviour:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour(&super::Memory::new()).await;
            })+
        }
        #[cfg(feature = "redis")]
        mod redis {
            $(#[tokio::test]
            async fn $behaviour() {
                let server = farshore_chaos::kit::Redis::start().await.expect("a Redis");
                let index = farshore_hub_fn::index::redis::Redis::connect(&server.url()).expect("a URL");
                super::$behaviour(&index).await;
            })+
        }
    };
}

contract!(
    an_entry_is_there_until_it_is_forgotten,
    a_lower_version_never_replaces_a_higher_one,
    versions_are_compared_to_the_last_bit,
    an_entry_may_be_empty_or_as_large_as_allowed_and_no_larger,
    a_lease_is_one_holder_s_until_it_ends,
    times_are_kept_by_shard_or_not_at_all,
    everybody_hears_all_news_in_their_order_from_when_he_listens,
    a_listener_who_falls_behind_is_told_that_he_missed_something,
);

fn entry(version: u64, text: &'static str) -> Entry {
    Entry { version, bytes: Bytes::from_static(text.as_bytes()) }
}

async fn get(index: &dyn Index, key: &str) -> Option<Entry> {
    index.get(key).await.expect("the index is there")
}

async fn put(index: &dyn Index, key: &str, entry: &Entry) {
    index.put(key, entry).await.expect("the index is there");
}

async fn an_entry_is_there_until_it_is_forgotten(index: &dyn Index) {
    assert_eq!(get(index, "group/a").await, None);
    let held = Entry { version: 7, bytes: Bytes::from_static(b"\0any bytes\xff\r\n") };
    put(index, "group/a", &held).await;
    assert_eq!(get(index, "group/a").await, Some(held));
    assert_eq!(get(index, "group/b").await, None);
    index.forget("group/a").await.expect("the index is there");
    index.forget("group/a").await.expect("what is absent is forgotten already");
    assert_eq!(get(index, "group/a").await, None);
}

async fn a_lower_version_never_replaces_a_higher_one(index: &dyn Index) {
    put(index, "head", &entry(9, "nine")).await;
    put(index, "head", &entry(8, "eight")).await;
    assert_eq!(get(index, "head").await, Some(entry(9, "nine")));
    put(index, "head", &entry(9, "nine again")).await;
    assert_eq!(get(index, "head").await, Some(entry(9, "nine again")));
    put(index, "head", &entry(10, "ten")).await;
    assert_eq!(get(index, "head").await, Some(entry(10, "ten")));
}

async fn times_are_kept_by_shard_or_not_at_all(index: &dyn Index) {
    let clusters: Vec<Name> = (0..3000).map(|n| format!("c-{n}").parse().expect("a name")).collect();
    let times = |at: u64| clusters.iter().map(|cluster| (cluster.clone(), at)).collect();
    let shard = record::shard_of(&clusters[0]);
    match index.note_seen(&times(1_800_000_000)).await.expect("the index is there") {
        Kept::No => assert_eq!(index.seen(shard).await.expect("the index is there"), None),
        Kept::Yes => {
            let kept = index.note_seen(&times(1_800_000_015)).await.expect("the index is there");
            assert_eq!(kept, Kept::Yes);
            let mut found = SeenTable::new();
            for shard in 0..SHARDS {
                let seen = index.seen(shard).await.expect("the index is there").expect("it keeps times");
                assert_eq!(seen.since, Some(1_800_000_000));
                assert!(seen.times.keys().all(|cluster| record::shard_of(cluster) == shard));
                found.extend(seen.times);
            }
            assert_eq!(found, times(1_800_000_015));
            index.forget_seen(&clusters[..1]).await.expect("the index is there");
            let seen = index.seen(shard).await.expect("the index is there").expect("it keeps times");
            assert!(!seen.times.contains_key(&clusters[0]), "it was removed");
            index.forget_seen(&clusters[..1]).await.expect("the index is there");
        }
    }
}

async fn versions_are_compared_to_the_last_bit(index: &dyn Index) {
    put(index, "head", &entry(u64::MAX - 1, "newer")).await;
    put(index, "head", &entry(u64::MAX - 2, "older")).await;
    assert_eq!(get(index, "head").await, Some(entry(u64::MAX - 1, "newer")));
    put(index, "head", &entry(u64::MAX, "newest")).await;
    assert_eq!(get(index, "head").await, Some(entry(u64::MAX, "newest")));
}

async fn an_entry_may_be_empty_or_as_large_as_allowed_and_no_larger(index: &dyn Index) {
    put(index, "empty", &entry(1, "")).await;
    assert_eq!(get(index, "empty").await, Some(entry(1, "")));
    let large = Entry { version: 1, bytes: vec![7; MOST_BYTES].into() };
    put(index, "large", &large).await;
    assert_eq!(get(index, "large").await, Some(large));
    let larger = Entry { version: 2, bytes: vec![7; MOST_BYTES + 1].into() };
    let error = index.put("large", &larger).await.expect_err("it is too large");
    assert!(
        matches!(&error, IndexError::TooLarge { key, size } if key == "large" && *size == MOST_BYTES + 1)
    );
}

async fn a_lease_is_one_holder_s_until_it_ends(index: &dyn Index) {
    let long = Duration::from_secs(60);
    let lease = async |name: &str, holder: &str, ttl| index.lease(name, holder, ttl).await.expect("an index");
    assert!(lease("sync/podinfo", "hub-1", long).await);
    assert!(!lease("sync/podinfo", "hub-2", long).await);
    assert!(lease("sync/other", "hub-2", long).await);
    assert!(lease("sync/podinfo", "hub-1", Duration::from_millis(50)).await, "the holder may change its end");
    farshore_chaos::kit::wait_for("the lease's end", SOON, async || {
        if lease("sync/podinfo", "hub-2", long).await { Ok(()) } else { Err("still hub-1's".to_owned()) }
    })
    .await
    .expect("it ends");
    assert!(!lease("sync/podinfo", "hub-1", long).await);
}

fn all_news() -> Vec<News> {
    vec![
        News::Head { sequence: u64::MAX },
        News::Directory { position: 7 },
        News::Pushed { source: Some("app".parse().expect("a name")) },
        News::Pushed { source: None },
        News::Requests,
    ]
}

async fn tell(index: &dyn Index, news: &News) {
    index.tell(news).await.expect("the index is there");
}

/// The next of the news; they come soon or not at all.
async fn heard(news: &mut NewsStream) -> News {
    tokio::time::timeout(SOON, news.next()).await.expect("news in time").expect("a stream never ends")
}

/// Listens, and returns when what is told is heard: a listener may first have to connect.
async fn listening(index: &dyn Index) -> NewsStream {
    let mut news = index.hear();
    let sign = News::Head { sequence: 0 };
    farshore_chaos::kit::wait_for("the listener", SOON, async || {
        tell(index, &sign).await;
        match tokio::time::timeout(Duration::from_millis(20), news.next()).await {
            Ok(Some(heard)) if heard == sign => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .expect("it listens");
    // What of the signs is still on its way is before this.
    tell(index, &News::Head { sequence: 1 }).await;
    while heard(&mut news).await != (News::Head { sequence: 1 }) {}
    news
}

async fn everybody_hears_all_news_in_their_order_from_when_he_listens(index: &dyn Index) {
    tell(index, &News::Head { sequence: 3 }).await;
    let (mut one, mut other) = (listening(index).await, listening(index).await);
    while heard(&mut one).await != (News::Head { sequence: 1 }) {}
    for told in &all_news() {
        tell(index, told).await;
    }
    for news in [&mut one, &mut other] {
        let mut all = Vec::new();
        for _ in 0..all_news().len() {
            all.push(heard(news).await);
        }
        assert_eq!(all, all_news());
    }
    drop((one, other));
    tell(index, &News::Requests).await;
}

async fn a_listener_who_falls_behind_is_told_that_he_missed_something(index: &dyn Index) {
    let mut news = listening(index).await;
    for sequence in 0..MANY {
        tell(index, &News::Head { sequence }).await;
    }
    // He hears the last one, and either all before it or that he missed some.
    let (mut count, mut missed) = (0, false);
    loop {
        count += 1;
        match heard(&mut news).await {
            News::Missed => missed = true,
            News::Head { sequence } if sequence == MANY - 1 => break,
            _ => {}
        }
    }
    assert!(missed || count == MANY, "{count} heard of {MANY}, and no word of the others");
}

/// More news than wait for a listener in memory.
const MANY: u64 = 1000;

async fn expires(index: &dyn Index) {
    put(index, "head", &entry(u64::MAX, "wrong and too high")).await;
    farshore_chaos::kit::wait_for("the entry's end", SOON, async || {
        // A lower version does not keep the higher one alive.
        put(index, "head", &entry(1, "right")).await;
        match get(index, "head").await {
            Some(held) if held.version == 1 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .expect("it expires");
}

#[tokio::test]
async fn an_entry_in_memory_expires() {
    expires(&Memory::with(Duration::from_millis(100), 1024)).await;
}

#[tokio::test]
async fn memory_holds_no_more_bytes_than_it_may() {
    let most = 1024 * 1024;
    let index = Memory::with(Duration::from_secs(300), most);
    let kilobyte = Bytes::from(vec![7; 1024]);
    for n in 0..4096 {
        put(&index, &n.to_string(), &Entry { version: 1, bytes: kilobyte.clone() }).await;
    }
    farshore_chaos::kit::wait_for("the eviction", SOON, async || {
        let mut bytes = 0;
        for n in 0..4096 {
            bytes += get(&index, &n.to_string()).await.map_or(0, |entry| entry.bytes.len() as u64);
        }
        if bytes <= most { Ok(()) } else { Err(format!("{bytes} bytes")) }
    })
    .await
    .expect("it is bounded");
}

#[cfg(feature = "redis")]
mod real_redis {
    use super::*;
    use farshore_chaos::kit::{self, wait_for};
    use farshore_hub_fn::index::redis::Redis;

    /// A connection of the test's own, to put what the index never would.
    struct Raw(::redis::aio::MultiplexedConnection);

    impl Raw {
        async fn run(&mut self, command: &str, key: &str, value: &[u8]) {
            ::redis::cmd(command)
                .arg(key)
                .arg(value)
                .query_async::<()>(&mut self.0)
                .await
                .expect("Redis does it");
        }
    }

    async fn started() -> (kit::Redis, Redis, Raw) {
        let server = kit::Redis::start().await.expect("a Redis");
        let index = Redis::connect(&server.url()).expect("a URL");
        let client = ::redis::Client::open(server.url()).expect("a URL");
        let raw = client.get_multiplexed_async_connection().await.expect("a connection");
        (server, index, Raw(raw))
    }

    #[tokio::test]
    async fn an_entry_expires() {
        let server = kit::Redis::start().await.expect("a Redis");
        let index = Redis::connect_with(&server.url(), Duration::from_millis(100)).expect("a URL");
        expires(&index).await;
    }

    #[tokio::test]
    async fn times_of_a_hash_that_has_grown_large_are_read_piece_by_piece() {
        let (_server, index, mut raw) = started().await;
        for n in 0..5_000 {
            let fields = ["farshore:seen:7:1".to_owned(), format!("c-{n}"), "1800000000".to_owned()];
            ::redis::cmd("HSET").arg(&fields).query_async::<()>(&mut raw.0).await.expect("Redis does it");
        }
        ::redis::cmd("CONFIG").arg("RESETSTAT").query_async::<()>(&mut raw.0).await.expect("Redis does it");
        let seen = index.seen(7).await.expect("the index is there").expect("it keeps times");
        assert_eq!(seen.times.len(), 5_000);
        let info: String =
            ::redis::cmd("INFO").arg("commandstats").query_async(&mut raw.0).await.expect("it says");
        let calls = |command: &str| {
            let line = info.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:")));
            line.and_then(|line| line.split_once("calls=")?.1.split(',').next()?.parse::<u32>().ok())
                .unwrap_or(0)
        };
        assert_eq!(calls("hgetall"), 0);
        assert!(calls("hscan") >= 6, "all four hashes, and the large one in five pieces or more: {info}");
    }

    #[tokio::test]
    async fn garbage_is_an_error_once_and_is_then_forgotten() {
        let (_server, index, mut raw) = started().await;
        let too_large = vec![b'f'; MOST_BYTES + 100];
        let newest = [b"fs1 99999999999999999999".as_slice(), &[0; 40]].concat();
        for (command, garbage) in [
            ("SET", b"x".as_slice()),
            ("SET", b"fs1 "),
            ("SET", &newest),
            ("SET", &too_large),
            ("LPUSH", b"x"),
        ] {
            raw.run(command, "farshore:a", garbage).await;
            let error = index.get("a").await.expect_err("it is garbage");
            assert!(matches!(&error, IndexError::Garbage { key, .. } if key == "a"), "{error:?}");
            assert_eq!(get(&index, "a").await, None);
        }
    }

    #[tokio::test]
    async fn what_is_put_over_garbage_is_kept() {
        let (_server, index, mut raw) = started().await;
        raw.run("LPUSH", "farshore:a", b"x").await;
        put(&index, "a", &entry(1, "right")).await;
        assert_eq!(get(&index, "a").await, Some(entry(1, "right")));
        raw.run("LPUSH", "farshore:lease:b", b"x").await;
        assert!(index.lease("b", "hub-1", SOON).await.expect("a lease"));
    }

    #[tokio::test]
    async fn a_redis_that_is_away_costs_little_and_is_used_again_when_it_returns() {
        let (mut server, index, _raw) = started().await;
        put(&index, "a", &entry(1, "one")).await;
        server.stop();
        let before = Instant::now();
        for _ in 0..100 {
            assert!(matches!(index.get("a").await, Err(IndexError::Away { .. })));
        }
        assert!(before.elapsed() < Duration::from_secs(5), "{:?} for a hundred calls", before.elapsed());
        server.restart().await.expect("it starts again");
        wait_for("Redis to be used again", SOON, async || {
            index.put("a", &entry(1, "one")).await.map_err(|error| error.to_string())
        })
        .await
        .expect("it is");
        assert_eq!(get(&index, "a").await, Some(entry(1, "one")));
        server.flush_all().await.expect("it flushes");
        assert_eq!(get(&index, "a").await, None);
    }

    #[tokio::test]
    async fn a_redis_that_hangs_costs_one_time_out_and_is_used_again_when_it_goes_on() {
        let (mut server, index, _raw) = started().await;
        put(&index, "a", &entry(1, "one")).await;
        server.pause().expect("it is paused");
        let before = Instant::now();
        assert!(matches!(index.get("a").await, Err(IndexError::Away { .. })));
        assert!(before.elapsed() < Duration::from_secs(3), "{:?}", before.elapsed());
        let before = Instant::now();
        assert!(matches!(index.get("a").await, Err(IndexError::Away { .. })));
        assert!(before.elapsed() < Duration::from_millis(400), "it was asked again: {:?}", before.elapsed());
        server.resume().expect("it goes on");
        wait_for("Redis to be used again", SOON, async || match index.get("a").await {
            Ok(Some(_entry)) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await
        .expect("it is");
    }

    #[tokio::test]
    async fn a_redis_that_is_away_at_start_does_not_stop_the_hub() {
        let mut server = kit::Redis::start().await.expect("a Redis");
        server.stop();
        let index = Redis::connect(&server.url()).expect("nothing is asked yet");
        assert!(matches!(index.get("a").await, Err(IndexError::Away { .. })));
        server.restart().await.expect("it starts");
        wait_for("Redis to be used", SOON, async || index.get("a").await.map_err(|error| error.to_string()))
            .await
            .expect("it is");
    }

    /// Tells until it is heard, through a Redis that has just come back; gives all that was heard.
    async fn until_heard(index: &Redis, news: &mut NewsStream, sequence: u64) -> Vec<News> {
        let mut all = Vec::new();
        wait_for("news to be heard again", SOON, async || {
            // It may be lost as long as Redis or the listener is not back.
            let _ = index.tell(&News::Head { sequence }).await;
            while let Ok(Some(heard)) = tokio::time::timeout(Duration::from_millis(50), news.next()).await {
                all.push(heard);
            }
            let is_heard = all.contains(&News::Head { sequence });
            if is_heard { Ok(()) } else { Err(format!("{all:?}")) }
        })
        .await
        .expect("they are");
        all
    }

    #[tokio::test]
    async fn after_a_redis_was_killed_news_are_heard_again_and_those_between_are_known_to_be_missed() {
        let (mut server, index, _raw) = started().await;
        let mut news = listening(&index).await;
        for round in 10..12 {
            server.stop();
            assert!(index.tell(&News::Requests).await.is_err(), "nobody is told");
            server.restart().await.expect("it starts again");
            let all = until_heard(&index, &mut news, round).await;
            assert_eq!(all[0], News::Missed, "{all:?}");
        }
    }

    #[tokio::test]
    async fn a_redis_that_is_away_at_start_is_heard_when_it_comes() {
        let (mut server, index, _raw) = started().await;
        server.stop();
        let mut news = index.hear();
        assert!(tokio::time::timeout(Duration::from_millis(50), news.next()).await.is_err());
        server.restart().await.expect("it starts");
        let all = until_heard(&index, &mut news, 7).await;
        assert_eq!(all[0], News::Missed, "{all:?}");
    }

    #[tokio::test]
    async fn a_message_that_is_garbage_is_a_reason_to_look_and_no_more() {
        let (_server, index, mut raw) = started().await;
        let mut news = listening(&index).await;
        let nested = [b'['; 100_000];
        for garbage in
            [b"".as_slice(), b"{", br#"{"kind":"head"}"#, br#"{"kind":"tomorrow"}"#, b"\xff", &nested]
        {
            raw.run("PUBLISH", "farshore:news", garbage).await;
            assert_eq!(heard(&mut news).await, News::Missed);
        }
        tell(&index, &News::Requests).await;
        assert_eq!(heard(&mut news).await, News::Requests);
    }

    #[test]
    fn a_bad_url_is_refused_and_a_password_is_not_shown() {
        assert!(Redis::connect("http://127.0.0.1").is_err());
        assert!(Redis::connect("").is_err());
        let index = Redis::connect("redis://me:hush@127.0.0.1:6379/0").expect("a URL");
        let shown = format!("{index:?}");
        assert!(shown.contains("127.0.0.1:6379") && !shown.contains("hush"), "{shown}");
    }
}
