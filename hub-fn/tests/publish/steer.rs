//! Agents that wait for news, and webhooks of Git servers, over the real front door.

use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use farshore_chaos::kit::wait_for;
use farshore_hub_fn::hooks::pace::PAUSE;
use farshore_hub_fn::index::News;
use farshore_hub_fn::load;
use farshore_hub_fn::record::{self, Pushed};
use farshore_hub_fn::routes::Door;
use farshore_hub_fn::server::Limits;
use farshore_hub_fn::waiting::WakeLimits;
use farshore_shared::clock::now;
use farshore_shared::wire::{HOLDS_HEADER, PASS_HEADER, POLL_AFTER_HEADER, Woken};
use futures::StreamExt as _;
use futures::future::join_all;
use http::header::{CONTENT_LENGTH, ETAG, RETRY_AFTER};
use http::{Request, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::front_door::{Answered, BOTH, Client, House, Speaks};
use crate::world::{name, sync};

const SOON: Duration = Duration::from_secs(20);
const SECRET: &str = "a secret of both";

/// The tag of what is published for the site.
async fn tag(house: &House, client: &mut Client) -> String {
    client.send(house.request("GET", "/v1/desired"), "").await.header(&ETAG).to_owned()
}

fn waits(house: &House, tag: &str) -> http::request::Builder {
    house.request("GET", "/v1/wake").header(HOLDS_HEADER, tag)
}

async fn until_waiting(house: &House, count: usize) {
    wait_for("the waiting agents", SOON, async || match house.waiting.count() {
        waiting if waiting == count => Ok(()),
        waiting => Err(format!("{waiting} wait")),
    })
    .await
    .expect("they wait");
}

/// Publishes a change of this service, and lets the replica know.
async fn publish(house: &mut House, service: &str, value: &str) {
    let tier = if service == "edge" { "edge" } else { "core" };
    house.world.declare(service, Some(tier), value);
    house.world.commit();
    let report = sync(&mut house.world.publisher(&house.objects, "mirrors").await).await;
    until_served(house, report.published.expect("something changed")).await;
}

async fn until_served(house: &House, sequence: u64) {
    // As old as what a replica remembers may be, the replica has it.
    let view = house.view.clone();
    wait_for("the replica to see it", SOON, async || {
        match view.publication(farshore_hub_fn::view::Freshness::Recent).await {
            Ok(Some(publication)) if publication.head.sequence >= sequence => Ok(()),
            other => Err(format!("{:?}", other.map(|found| found.map(|found| found.head.sequence)))),
        }
    })
    .await
    .expect("it does");
}

#[tokio::test]
async fn an_agent_that_waits_is_woken_by_what_concerns_it_and_by_nothing_else() {
    let mut house = House::public().await;
    let mut client = house.client(Speaks::Http2).await;
    let tag = tag(&house, &mut client).await;
    let (mut beside, request) = (client.again(), waits(&house, &tag));
    let waiting = tokio::spawn(async move { beside.send(request, "").await });
    until_waiting(&house, 1).await;
    let metrics = client.send(house.request("GET", "/metrics"), "").await;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    for gauge in ["waiting_agents 1", "waiting_reports 0", "waiting_report_bytes 0", "moving_clusters 0"] {
        assert!(text.lines().any(|line| line == format!("farshore_hub_{gauge}")), "{gauge} in {text}");
    }
    publish(&mut house, "core", "2").await;
    // A poll beside it is answered meanwhile, over the same connection.
    let poll = house.request("GET", "/v1/desired").header(HOLDS_HEADER, &tag);
    assert_eq!(client.send(poll, "").await.status, StatusCode::NOT_MODIFIED);
    assert_eq!(house.waiting.count(), 1, "another group's change wakes nobody");
    publish(&mut house, "edge", "2").await;
    let woken = waiting.await.expect("an answer");
    let said: Woken = serde_json::from_slice(&woken.body).expect("news");
    assert_eq!((woken.status, said.spread_millis), (StatusCode::OK, 0));
    until_waiting(&house, 0).await;
    // Whoever holds less is not held at all.
    let late = client.send(waits(&house, &tag), "").await;
    assert_eq!(late.status, StatusCode::OK);
}

#[tokio::test]
async fn waiting_takes_a_pass_a_tag_and_a_place() {
    let house = House::public().await;
    let mut client = house.client(Speaks::Http2).await;
    let tag = tag(&house, &mut client).await;
    let bare = Request::builder().uri("https://localhost/v1/wake").header(HOLDS_HEADER, &tag);
    assert_eq!(client.send(bare, "").await.status, StatusCode::UNAUTHORIZED);
    for bad in ["", "x", "\"1.2.3\"", &"9".repeat(4000)] {
        assert_eq!(client.send(waits(&house, bad), "").await.status, StatusCode::BAD_REQUEST, "{bad:?}");
    }
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let (mut beside, request) = (client.again(), waits(&house, &tag));
            tokio::spawn(async move { beside.send(request, "").await })
        })
        .collect();
    until_waiting(&house, 3).await;
    let full = client.send(waits(&house, &tag), "").await;
    assert_eq!((full.status, full.header(&RETRY_AFTER)), (StatusCode::SERVICE_UNAVAILABLE, "60"));
    assert!(String::from_utf8_lossy(&full.body).contains("wake is full"));
    // An agent that goes away leaves its place.
    waiting[0].abort();
    until_waiting(&house, 2).await;
    // A replica that ends sends them away before its time to drain is over.
    let before = Instant::now();
    house.stop.send(true).expect("it runs");
    for waiting in waiting.into_iter().skip(1) {
        let closing = waiting.await.expect("an answer");
        assert_eq!(closing.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(closing.headers.contains_key(RETRY_AFTER));
    }
    assert!(before.elapsed() < Limits::default().drain, "{:?}", before.elapsed());
}

#[tokio::test]
async fn one_cluster_that_asks_too_often_is_asked_to_wait_and_no_other_is() {
    let house = House::public().await;
    let mut client = house.client(Speaks::Http2).await;
    let tag = tag(&house, &mut client).await;
    let mut refused = None;
    for _ in 0..200 {
        let answer = client.send(house.request("GET", "/v1/desired"), "").await;
        if answer.status != StatusCode::OK {
            refused = Some(answer);
            break;
        }
        assert!(!answer.headers.contains_key(POLL_AFTER_HEADER), "nothing is asked of a calm fleet");
    }
    // What costs next to nothing is not counted: it is answered before anybody is asked.
    let steady = house.request("GET", "/v1/desired").header(HOLDS_HEADER, &tag);
    assert_eq!(client.send(steady, "").await.status, StatusCode::NOT_MODIFIED);
    let refused = refused.expect("a limit");
    assert_eq!((refused.status, refused.header(&RETRY_AFTER)), (StatusCode::TOO_MANY_REQUESTS, "1"));
    assert!(String::from_utf8_lossy(&refused.body).contains("too many requests of one cluster"));
    let health = Request::builder().uri("https://localhost/healthz");
    assert_eq!(client.send(health, "").await.status, StatusCode::OK);
}

#[tokio::test]
async fn how_often_a_fleet_polls_is_decided_by_no_stranger_and_by_no_single_cluster() {
    let house = House::public().await;
    let mut client = house.client(Speaks::Http2).await;
    let tag = tag(&house, &mut client).await;
    let counted = || house.hub.load.polls();
    let before = counted();
    for pass in ["", "x.y.z"] {
        let poll = || Request::builder().uri("https://localhost/v1/desired").header(HOLDS_HEADER, &tag);
        let polls = (0..100).map(|_| {
            let (mut beside, request) = (client.again(), poll().header(PASS_HEADER, pass));
            async move { beside.send(request, "").await.status }
        });
        assert!(join_all(polls).await.iter().all(|status| *status == StatusCode::UNAUTHORIZED));
    }
    assert_eq!(counted(), before, "strangers count for nothing");
    let began = Instant::now();
    let polls = (0..500).map(|_| {
        let (mut beside, request) =
            (client.again(), house.request("GET", "/v1/desired").header(HOLDS_HEADER, &tag));
        async move { beside.send(request, "").await.status }
    });
    let answers = join_all(polls).await;
    let seconds = began.elapsed().as_secs();
    assert!(counted() - before <= seconds + 2, "{} in {seconds} s", counted() - before);
    let of = |status| answers.iter().filter(|answer| **answer == status).count();
    let (steady, refused) = (of(StatusCode::NOT_MODIFIED), of(StatusCode::TOO_MANY_REQUESTS));
    assert_eq!(steady + refused, answers.len());
    // In each second that it touches 20, and what any request may be: 20 at first, and 5 a second.
    assert!(steady as u64 <= 20 * (seconds + 2) + 20 + 5 * (seconds + 1), "{steady} in {seconds} s");
}

/// Kibibytes of this process in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line of it");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

/// Prints what an agent that waits costs, its own end of the connection included.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures the memory of this process: run it alone"]
async fn what_a_waiting_agent_costs() {
    let limits = load::Limits { cluster: 1_000_000, ..load::Limits::default() };
    let wake = WakeLimits { waiting: 100_000, rate: 2_000 };
    let house = House::taking_on(Door::Public, Limits::default(), wake, limits).await;
    let tag = tag(&house, &mut house.client(Speaks::Http2).await).await;
    let mut waiting = 0;
    for (connections, streams) in [(100, 100), (2_000, 1)] {
        let before = resident();
        for _ in 0..connections {
            let client = house.client(Speaks::Http2).await;
            for _ in 0..streams {
                let (mut beside, request) = (client.again(), waits(&house, &tag));
                tokio::spawn(async move { beside.send(request, "").await });
            }
            waiting += streams;
        }
        until_waiting(&house, waiting).await;
        let each = (resident() - before) * 1024 / (connections * streams) as u64;
        println!("{connections} connections, {streams} waiting on each: {each} bytes per waiting agent");
    }
}

/// A webhook as GitHub sends it.
fn github(source: &str, secret: &str, body: &[u8]) -> http::request::Builder {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), body);
    hook(source).header("x-hub-signature-256", format!("sha256={}", hex::encode(tag)))
}

fn hook(source: &str) -> http::request::Builder {
    Request::builder().method("POST").uri(format!("https://localhost/v1/hooks/git/{source}"))
}

/// A request, its body, and how it is answered.
type Case<'a> = (&'a dyn Fn() -> http::request::Builder, &'a [u8], StatusCode);

async fn word(house: &House, source: &str) -> Option<Pushed> {
    let stored = house.objects.get(&record::hook(source), 100).await.expect("a disk")?;
    Some(serde_json::from_slice(&stored.bytes).expect("word of a push"))
}

#[tokio::test]
async fn a_push_is_passed_on_by_news_and_by_the_record() {
    let house = House::public().await;
    for source in ["fleet", "app"] {
        std::fs::write(house.secrets.join(source), SECRET).expect("a folder of ours");
    }
    let mut news = house.world.index.hear();
    let gitea = |body: &[u8]| {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), body);
        hook("fleet").header("x-gitea-signature", hex::encode(tag))
    };
    let mut client = house.client(Speaks::Http1).await;
    // What it says is not read: a right signature is enough.
    let answer = client.send(github("app", SECRET, b"{ malformed"), "{ malformed").await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{:?}", answer.body);
    assert_eq!(news.next().await, Some(News::Pushed { source: Some(name("app")) }));
    assert!(word(&house, "app").await.expect("word").at.abs_diff(now()) < 60);
    let answer = client.send(gitea(b"{}"), "{}").await;
    assert_eq!(answer.status, StatusCode::ACCEPTED);
    assert_eq!(news.next().await, Some(News::Pushed { source: None }), "the fleet repository");
    assert!(word(&house, "fleet").await.is_some());
}

#[tokio::test]
async fn replays_and_bursts_are_passed_on_once_and_once_more() {
    let house = House::public().await;
    std::fs::write(house.secrets.join("app"), SECRET).expect("a folder of ours");
    let mut news = house.world.index.hear();
    let mut client = house.client(Speaks::Http2).await;
    for _ in 0..20 {
        let answer = client.send(github("app", SECRET, b"the same"), "the same").await;
        assert_eq!(answer.status, StatusCode::ACCEPTED);
    }
    let pushed = News::Pushed { source: Some(name("app")) };
    assert_eq!(news.next().await, Some(pushed.clone()));
    let began = Instant::now();
    for n in 0..20 {
        let token = hook("app").header("x-gitlab-token", SECRET);
        assert_eq!(client.send(token, format!("push {n}")).await.status, StatusCode::ACCEPTED);
    }
    assert_eq!(news.next().await, Some(pushed.clone()), "the burst is passed on");
    assert!(began.elapsed() > Duration::from_secs(1), "not before the pause is over");
    let pauses = began.elapsed().as_secs() / PAUSE.as_secs();
    let mut more = 0;
    while let Ok(heard) = tokio::time::timeout(PAUSE + PAUSE / 2, news.next()).await {
        assert_eq!(heard, Some(pushed.clone()));
        more += 1;
    }
    assert!(more <= pauses + 1, "{more} more in {pauses} pauses");
}

#[tokio::test]
async fn a_webhook_that_is_not_right_is_refused_and_is_not_passed_on() {
    let house = House::public().await;
    std::fs::write(house.secrets.join("app"), SECRET).expect("a folder of ours");
    let (body, large) = (b"{}".to_vec(), vec![b'x'; (1 << 20) + 1]);
    let right = "0".repeat(64);
    let cases: [Case<'_>; 10] = [
        (&|| hook("app"), &body, StatusCode::UNAUTHORIZED),
        (&|| github("app", "another secret", &body), &body, StatusCode::UNAUTHORIZED),
        (&|| github("app", SECRET, b"another body"), &body, StatusCode::UNAUTHORIZED),
        (&|| hook("app").header("x-hub-signature-256", "sha256=x"), &body, StatusCode::UNAUTHORIZED),
        (&|| hook("app").header("x-gitea-signature", &right), &body, StatusCode::UNAUTHORIZED),
        (&|| hook("app").header("x-gitlab-token", "a secret of bot"), &body, StatusCode::UNAUTHORIZED),
        (&|| github("nobody", SECRET, &body), &body, StatusCode::NOT_FOUND),
        (&|| github("App", SECRET, &body), &body, StatusCode::BAD_REQUEST),
        (&|| github("..%2fkeys", SECRET, &body), &body, StatusCode::BAD_REQUEST),
        (&|| github("app", SECRET, &large), &large, StatusCode::PAYLOAD_TOO_LARGE),
    ];
    for speaks in BOTH {
        for (n, (request, body, status)) in cases.iter().enumerate() {
            let answer = house.client(speaks).await.send(request(), body.to_vec()).await;
            assert_eq!(answer.status, *status, "{speaks:?} {n}: {:?}", answer.body);
        }
    }
    std::fs::write(house.secrets.join("app"), "short").expect("a folder of ours");
    let answer: Answered = house.client(Speaks::Http2).await.send(github("app", "short", &body), body).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "a secret that is of no use");
    assert!(house.objects.list(record::HOOKS, None, 9).await.expect("a disk").is_empty());
}

/// Nothing of a hundred megabytes is read when the head says so, and little when it does not.
#[tokio::test]
async fn a_webhook_of_a_hundred_megabytes_is_refused_without_being_read() {
    let house = House::open(Door::Public, Limits::default()).await;
    std::fs::write(house.secrets.join("app"), SECRET).expect("a folder of ours");
    let head = format!("POST /v1/hooks/git/app HTTP/1.1\r\nhost: x\r\nx-gitlab-token: {SECRET}\r\n");
    let mut stream = house.tls(b"http/1.1").await;
    let announced = format!("{head}content-length: 104857600\r\n\r\n");
    stream.write_all(announced.as_bytes()).await.expect("open");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.expect("an answer before a byte of the body");
    assert_eq!(&answer, b"HTTP/1.1 413");
    let (mut read, mut write) = tokio::io::split(house.tls(b"http/1.1").await);
    write.write_all(format!("{head}transfer-encoding: chunked\r\n\r\n").as_bytes()).await.expect("open");
    let sending = tokio::spawn(async move {
        let chunk = [b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat();
        let mut sent = 0;
        while sent < 1600 && write.write_all(&chunk).await.is_ok() {
            sent += 1;
        }
        sent
    });
    read.read_exact(&mut answer).await.expect("an answer before all of the body");
    assert_eq!(&answer, b"HTTP/1.1 413");
    drop(read);
    let sent = sending.await.expect("it ends");
    assert!(sent < 1600, "all of it was taken");
}

/// A service whose artifact is larger than what a connection takes unread.
async fn publish_large(house: &mut House) -> farshore_shared::digest::Digest {
    // Nothing that could be compressed to little.
    let noise: String = (0..12_000)
        .map(|n| farshore_shared::digest::Digest::of(&[n as u8, (n >> 8) as u8]).to_string())
        .collect();
    publish(house, "edge", &noise).await;
    house.artifact_of("edge").await
}

async fn house_that_sends(artifacts: usize, stalled: Duration) -> House {
    let load = load::Limits { artifacts, stalled, ..load::Limits::default() };
    House::taking_on(Door::Public, Limits::default(), WakeLimits::default(), load).await
}

#[tokio::test]
async fn a_download_that_nobody_reads_on_is_given_up_and_its_place_is_somebody_else_s() {
    let stalled = Duration::from_secs(1);
    let mut house = house_that_sends(1, stalled).await;
    let path = format!("/v1/artifacts/{}", publish_large(&mut house).await);
    let mut client = house.client(Speaks::Http2).await;
    let unread = client.open(house.request("GET", &path)).await;
    assert_eq!(unread.status(), StatusCode::OK);
    let began = Instant::now();
    // It waits for its turn, which comes.
    let answer = client.send(house.request("GET", &path), "").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert!(began.elapsed() >= stalled / 2, "there was one place only");
    drop(unread);
}

#[tokio::test]
async fn one_cluster_fetches_a_few_artifacts_at_once_and_leaves_the_rest_to_others() {
    let mut house = house_that_sends(256, Duration::from_secs(120)).await;
    let path = format!("/v1/artifacts/{}", publish_large(&mut house).await);
    let mut client = house.client(Speaks::Http2).await;
    let mut unread = Vec::new();
    let refused = loop {
        let answer = client.open(house.request("GET", &path)).await;
        if answer.status() != StatusCode::OK {
            break answer;
        }
        unread.push(answer);
        assert!(unread.len() <= 8, "one cluster has all places");
    };
    assert_eq!((refused.status(), unread.len()), (StatusCode::TOO_MANY_REQUESTS, 8));
    unread.clear();
    let answer = wait_for("its places to be free again", SOON, async || {
        let answer = client.again().send(house.request("GET", &path), "").await;
        if answer.status == StatusCode::OK { Ok(answer) } else { Err(format!("{}", answer.status)) }
    });
    assert!(answer.await.expect("they are").body.len() > 256 << 10);
}

#[tokio::test]
async fn documents_that_nobody_reads_are_given_up_and_one_cluster_has_few_of_them() {
    let stalled = Duration::from_secs(5);
    let mut house = house_that_sends(256, stalled).await;
    let values = "x".repeat(200 << 10);
    let service = crate::world::service("edge", Some("edge"));
    let service = service
        .replace("path:", &format!("renderer: {{ template: {{ values: {{ a: {values} }} }} }}, path:"));
    house.world.fleet.write("fleet/edge.yaml", service).expect("a temporary folder");
    house.world.commit();
    let report = sync(&mut house.world.publisher(&house.objects, "mirrors").await).await;
    until_served(&house, report.published.expect("something changed")).await;
    let mut client = house.client(Speaks::Http2).await;
    let whole = client.send(house.request("GET", "/v1/desired"), "").await;
    assert!(whole.body.len() > 200 << 10, "{}", whole.status);
    assert_eq!(whole.headers[&CONTENT_LENGTH], whole.body.len().to_string().as_str());
    let mut unread = Vec::new();
    let refused = loop {
        let answer = client.open(house.request("GET", "/v1/desired")).await;
        if answer.status() != StatusCode::OK {
            break answer.status();
        }
        unread.push(answer);
        assert!(unread.len() <= 4, "what one cluster does not read is without a bound");
    };
    assert_eq!((refused, unread.len()), (StatusCode::TOO_MANY_REQUESTS, 4));
    let again = wait_for("what nobody reads to be given up", SOON, async || {
        let answer = client.again().send(house.request("GET", "/v1/desired"), "").await;
        if answer.status == StatusCode::OK { Ok(answer) } else { Err(format!("{}", answer.status)) }
    });
    assert_eq!(again.await.expect("it is").body.len(), whole.body.len());
    drop(unread);
}

/// Opens as many connections with the head of a request and the beginning of its body, which never goes on.
async fn begin(
    house: &House,
    count: usize,
    head: &str,
) -> Vec<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
    let mut open = Vec::new();
    for _ in 0..count {
        let mut stream = house.tls(b"http/1.1").await;
        let begun = format!("{head}\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{{");
        stream.write_all(begun.as_bytes()).await.expect("open");
        open.push(stream);
    }
    open
}

/// A house that lets so few bodies of strangers arrive at once.
async fn house_of_few_arrivals(arriving: usize) -> House {
    let load = load::Limits { arriving, ..load::Limits::default() };
    let limits = Limits { quiet: Duration::from_secs(60), ..Limits::default() };
    let house = House::taking_on(Door::Public, limits, WakeLimits::default(), load).await;
    std::fs::write(house.secrets.join("app"), SECRET).expect("a folder of ours");
    house
}

/// The status with which a connection is answered on which [`begin`] sent half a request, with time to spare before
/// bodies are given up because they take too long.
async fn answered(stream: &mut tokio_rustls::client::TlsStream<tokio::net::TcpStream>) -> String {
    let mut answer = [0; 12];
    let read = tokio::time::timeout(Duration::from_secs(5), stream.read_exact(&mut answer)).await;
    read.expect("an answer in time").expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

async fn enrols(house: &House, client: &mut Client) -> StatusCode {
    let key = farshore_shared::keys::SigningKey::generate();
    let claims = crate::world::World::claims("one", "", 1);
    let asked = serde_json::to_vec(&house.world.request(claims, "new", &key)).expect("JSON");
    let enrol = Request::builder().method("POST").uri("https://localhost/v1/enroll");
    client.send(enrol, asked).await.status
}

#[tokio::test]
async fn whoever_enrols_slowly_makes_room_for_others_however_many_they_are() {
    let house = house_of_few_arrivals(4).await;
    let mut slow = begin(&house, 6, "POST /v1/enroll HTTP/1.1").await;
    assert_eq!(enrols(&house, &mut house.client(Speaks::Http2).await).await, StatusCode::ACCEPTED);
    let given_up = join_all(slow.iter_mut().take(2).map(answered)).await;
    assert_eq!(given_up, ["HTTP/1.1 503"; 2], "those that have been arriving longest");
}

#[tokio::test]
async fn webhooks_that_are_slow_to_arrive_make_room_for_others_and_a_wrong_token_is_refused_before_its_body()
{
    let house = house_of_few_arrivals(4).await;
    let mut wrong =
        begin(&house, 1, "POST /v1/hooks/git/app HTTP/1.1\r\nx-gitlab-token: another secret").await;
    assert_eq!(answered(&mut wrong[0]).await, "HTTP/1.1 401");
    let signed = format!("POST /v1/hooks/git/app HTTP/1.1\r\nx-gitea-signature: {}", "0".repeat(64));
    let mut slow = begin(&house, 6, &signed).await;
    let given_up = join_all(slow.iter_mut().take(2).map(answered)).await;
    assert_eq!(given_up, ["HTTP/1.1 503"; 2], "those that have been arriving longest");
    let mut client = house.client(Speaks::Http2).await;
    assert_eq!(client.send(github("app", SECRET, b"{}"), "{}").await.status, StatusCode::ACCEPTED);
}

#[tokio::test]
async fn bodies_that_are_slow_to_arrive_keep_nobody_from_enrolling_or_telling_of_a_push() {
    let house =
        House::open(Door::Public, Limits { quiet: Duration::from_secs(60), ..Limits::default() }).await;
    std::fs::write(house.secrets.join("app"), SECRET).expect("a folder of ours");
    let _slow = begin(&house, 40, "POST /v1/enroll HTTP/1.1").await;
    let _also =
        begin(&house, 40, &format!("POST /v1/hooks/git/app HTTP/1.1\r\nx-gitlab-token: {SECRET}")).await;
    let mut client = house.client(Speaks::Http2).await;
    let began = Instant::now();
    assert_eq!(enrols(&house, &mut client).await, StatusCode::ACCEPTED);
    let answer = client.send(github("app", SECRET, b"{}"), "{}").await;
    assert_eq!(answer.status, StatusCode::ACCEPTED);
    assert!(began.elapsed() < Duration::from_secs(8), "it waited for the slow ones ({:?})", began.elapsed());
}

#[tokio::test]
async fn webhooks_of_strangers_take_nothing_from_those_of_git_servers() {
    let house = House::public().await;
    std::fs::write(house.secrets.join("app"), SECRET).expect("a folder of ours");
    let client = house.client(Speaks::Http2).await;
    let send = |secret: &'static str| {
        let (mut beside, request) = (client.again(), github("app", secret, b"{}"));
        async move { beside.send(request, "{}").await.status }
    };
    let all = join_all((0..300).map(|_| send("another secret"))).await;
    assert!(all.iter().all(|status| *status == StatusCode::UNAUTHORIZED), "{all:?}");
    assert_eq!(send(SECRET).await, StatusCode::ACCEPTED);
    let all = join_all((0..300).map(|_| send(SECRET))).await;
    assert!(
        all.contains(&StatusCode::TOO_MANY_REQUESTS),
        "whose secret is right may not send any number either"
    );
}
