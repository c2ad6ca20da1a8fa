//! What operators ask, over real TLS, as an operator and as somebody who is none; and who is enrolled, read
//! from a directory without listing anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use farshore_hub_fn::directory::{encode_manifest, encode_shard};
use farshore_hub_fn::index::memory::Memory;
use farshore_hub_fn::objects::faulty::{Decision, Faulty, Steps};
use farshore_hub_fn::objects::{Condition, Objects, Operation};
use farshore_hub_fn::record::{
    self, Approval, DirectoryHead, Entry, HeldChange, HoldCause, LogPart, Manifest, Removal, SHARDS,
    ShardPart,
};
use farshore_hub_fn::status::{Compactor, Statuses};
use farshore_hub_fn::trust::Trust;
use farshore_hub_fn::view::View;
use farshore_shared::clock::now;
use farshore_shared::dsse::Envelope;
use farshore_shared::keys::SigningKey;
use farshore_shared::names::{Labels, Name};
use farshore_shared::operator::{Ask, OPERATOR_HEADER, OPERATOR_LIMIT, WINDOW};
use http::{Request, StatusCode};
use serde_json::Value;

use crate::front_door::{Answered, Client, House, Speaks};
use crate::world::{World, name};

struct Desk {
    house: House,
    client: Client,
    operator: SigningKey,
}

impl Desk {
    async fn open() -> Self {
        let house = House::public().await;
        let client = house.client(Speaks::Http2).await;
        let operator = house.world.ring.operator().expect("made before");
        Self { house, client, operator }
    }

    async fn send(&mut self, method: &str, target: &str, headers: &[String], body: &[u8]) -> Answered {
        let mut request = Request::builder().method(method).uri(format!("https://localhost{target}"));
        for header in headers {
            request = request.header(OPERATOR_HEADER, header);
        }
        self.client.send(request, body.to_vec()).await
    }

    async fn ask(&mut self, method: &str, target: &str, body: &[u8]) -> Answered {
        let header = Ask::new(method, target, body, now()).header(&self.operator);
        self.send(method, target, &[header], body).await
    }

    async fn get(&mut self, target: &str) -> Value {
        let answer = self.ask("GET", target, b"").await;
        assert_eq!(answer.status, StatusCode::OK, "{target}: {:?}", answer.body);
        serde_json::from_slice(&answer.body).expect("JSON")
    }

    /// One of the two clusters reports, and the fleet is counted.
    async fn report(&mut self) {
        let body = self.house.status(&self.house.key, 1);
        let answer = self.client.send(self.house.request("POST", "/v1/status"), body).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT);
        let index = Arc::new(Memory::new());
        let view = View::new(Arc::clone(&self.house.objects), index.clone());
        let done = Compactor::new(view, index).step(now()).await.expect("a good record");
        assert_eq!((done.parts, done.reports), (1, 1));
    }
}

fn names(page: &Value) -> Vec<&str> {
    let clusters = page["clusters"].as_array().expect("a list");
    clusters.iter().map(|cluster| cluster["name"].as_str().expect("a name")).collect()
}

#[tokio::test]
async fn clusters_are_listed_page_by_page_and_only_those_that_are_asked_for() {
    let mut desk = Desk::open().await;
    let before = desk.get("/v1/clusters").await;
    assert_eq!(before["counts"], Value::Null, "nobody has counted yet");
    desk.report().await;
    // What was read before is remembered for a moment: another replica has not read it.
    let mut desk = Desk { house: desk.house.again().await, ..desk };
    desk.client = desk.house.client(Speaks::Http2).await;
    let all = desk.get("/v1/clusters").await;
    assert_eq!(names(&all).len(), 2);
    assert_eq!((&all["counts"]["converging"], &all["counts"]["neverSeen"]), (&1.into(), &1.into()));
    let first = desk.get("/v1/clusters?limit=1").await;
    let cursor = first["next"].as_str().expect("there is another").to_owned();
    let second = desk.get(&format!("/v1/clusters?limit=1&cursor={cursor}")).await;
    assert_eq!([names(&first), names(&second)].concat(), names(&all));
    for (query, wanted) in [
        ("state=never-seen", vec!["vault"]),
        ("state=converging,failed", vec!["harbour"]),
        ("state=failed", vec![]),
        ("selector=tier%3Dedge", vec!["harbour"]),
        ("selector=tier=core", vec!["vault"]),
        ("prefix=ha", vec!["harbour"]),
        ("prefix=ha&selector=tier=core", vec![]),
    ] {
        assert_eq!(names(&desk.get(&format!("/v1/clusters?{query}")).await), wanted, "{query}");
    }
    let one = desk.get("/v1/clusters/harbour").await;
    let sent: Value = serde_json::from_slice(&desk.house.status(&desk.house.key, 1)).expect("JSON");
    assert_eq!(one["status"], sent, "as it was signed");
    assert_eq!(desk.ask("GET", "/v1/clusters/nobody", b"").await.status, StatusCode::NOT_FOUND);
    for wrong in ["/v1/clusters/NO", "/v1/clusters?limit=0", "/v1/clusters?order=x", "/v1/clusters?state=x"] {
        assert_eq!(desk.ask("GET", wrong, b"").await.status, StatusCode::BAD_REQUEST, "{wrong}");
    }
}

#[tokio::test]
async fn services_and_sources_are_listed() {
    let mut desk = Desk::open().await;
    let services = desk.get("/v1/services").await;
    assert!(services["services"]["edge"]["published"].is_object(), "{services}");
    assert_eq!(services["heads"][0]["source"], "fleet");
    let page = desk.get("/v1/services?limit=1").await;
    assert_eq!(page["next"], "core");
    let rest = desk.get("/v1/services?limit=1&cursor=core").await;
    assert!(rest["services"]["edge"].is_object() && rest["next"].is_null(), "{rest}");
    assert_eq!(desk.get("/v1/sources").await["heads"][0]["source"], "fleet");
}

#[tokio::test]
async fn nobody_but_an_operator_is_answered_and_only_what_was_signed() {
    let mut desk = Desk::open().await;
    let target = "/v1/clusters?limit=5";
    let signed = |method: &str, target: &str, body: &[u8], at: u64, key: &SigningKey| {
        Ask::new(method, target, body, at).header(key)
    };
    let good = signed("GET", target, b"", now(), &desk.operator);
    let stranger = SigningKey::generate();
    let foreign = signed("GET", target, b"", now(), &stranger);
    let bad: Vec<Vec<String>> = vec![
        vec![],
        vec![good.clone(), good.clone()],
        vec!["garbage".into()],
        vec!["a".repeat(OPERATOR_LIMIT + 1)],
        vec![foreign.clone()],
        vec![signed("POST", target, b"", now(), &desk.operator)],
        vec![signed("GET", "/v1/clusters", b"", now(), &desk.operator)],
        vec![signed("GET", target, b"x", now(), &desk.operator)],
        vec![signed("GET", target, b"", now() - WINDOW - 5, &desk.operator)],
        vec![signed("GET", target, b"", now() + WINDOW + 5, &desk.operator)],
    ];
    for headers in bad {
        let answer = desk.send("GET", target, &headers, b"").await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{headers:?}");
    }
    let told = desk.send("GET", target, &[foreign], b"").await;
    let told = String::from_utf8(told.body.to_vec()).expect("text");
    for key in [&stranger, &desk.operator] {
        assert!(told.contains(&key.public().id().to_string()), "{told}");
    }
    // A site's pass is no operator's key.
    let pass = desk.client.send(desk.house.request("GET", target), "").await;
    assert_eq!(pass.status, StatusCode::UNAUTHORIZED);
    for _ in 0..2 {
        let answer = desk.send("GET", target, std::slice::from_ref(&good), b"").await;
        assert_eq!(answer.status, StatusCode::OK, "again is harmless");
    }
}

#[tokio::test]
async fn an_approval_is_stored_as_it_was_signed_and_nothing_else_is() {
    let mut desk = Desk::open().await;
    let held = HeldChange::new("fleet", None, &"b".repeat(40), HoldCause::MassRemoval, 12, 20);
    let key = record::approval(&held.change).expect("an id is a part of a key");
    let seal = |held: &HeldChange, key: &SigningKey| {
        Envelope::seal(&Approval { held: held.clone(), issued: now() }, &[key]).to_bytes()
    };
    let misnamed = HeldChange { removes: 1, ..held.clone() };
    for body in [
        b"{}".to_vec(),
        b"\xff".to_vec(),
        seal(&held, &SigningKey::generate()),
        seal(&misnamed, &desk.operator),
        desk.house.status(&desk.operator, 1),
    ] {
        let answer = desk.ask("POST", "/v1/approvals", &body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{:?}", answer.body);
    }
    let large = desk.ask("POST", "/v1/approvals", &vec![b' '; 65 << 10]).await;
    assert_eq!(large.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(desk.house.objects.get(&key, 1 << 20).await.expect("a disk").is_none());
    let good = seal(&held, &desk.operator);
    for _ in 0..2 {
        assert_eq!(desk.ask("POST", "/v1/approvals", &good).await.status, StatusCode::OK);
    }
    let stored = desk.house.objects.get(&key, 1 << 20).await.expect("a disk").expect("stored");
    assert_eq!(stored.bytes, good);
}

#[tokio::test]
async fn a_removal_is_of_a_cluster_with_its_very_key() {
    let mut desk = Desk::open().await;
    let word = |cluster: &str, of: &SigningKey, by: &SigningKey| {
        let removal = Removal { cluster: name(cluster), key: of.public().id(), issued: now() };
        Envelope::seal(&removal, &[by]).to_bytes()
    };
    let stranger = SigningKey::generate();
    for (body, status) in [
        (word("harbour", &desk.house.key, &stranger), StatusCode::BAD_REQUEST),
        (word("harbour", &stranger, &desk.operator), StatusCode::NOT_FOUND),
        (word("nobody", &desk.house.key, &desk.operator), StatusCode::NOT_FOUND),
    ] {
        assert_eq!(desk.ask("POST", "/v1/removals", &body).await.status, status);
    }
    let key = record::removal(&name("harbour"));
    assert!(desk.house.objects.get(&key, 1 << 20).await.expect("a disk").is_none());
    let good = word("harbour", &desk.house.key, &desk.operator);
    assert_eq!(desk.ask("POST", "/v1/removals", &good).await.status, StatusCode::OK);
    assert!(desk.house.objects.get(&key, 1 << 20).await.expect("a disk").is_some());
}

/// A store that nobody may list.
#[derive(Debug)]
struct NoLists;

#[async_trait]
impl Steps for NoLists {
    async fn before(&self, operation: Operation, _: &str) -> Decision {
        if operation == Operation::List { Decision::Fail } else { Decision::Proceed }
    }
}

#[tokio::test]
async fn who_is_enrolled_is_read_from_the_directory_and_its_log_without_listing_anything() {
    let world = World::new();
    let objects = world.objects();
    Trust::establish(&*objects, &world.ring).await.expect("our own keys");
    let director = world.ring.publisher().expect("made before").director;
    let key = SigningKey::generate().public().clone();
    let entry = |cluster: &str, sequence: u64, is_enrolled: bool| Entry {
        cluster: name(cluster),
        epoch: 1,
        sequence,
        key: is_enrolled.then(|| key.clone()),
        labels: Labels::default(),
        roster: None,
    };
    let mut shards: BTreeMap<u16, Vec<Entry>> = BTreeMap::new();
    for cluster in ["a", "b", "c", "d"] {
        shards.entry(record::directory_shard_of(&name(cluster))).or_default().push(entry(cluster, 1, true));
    }
    let put = async |key, bytes: Vec<u8>| {
        let _ = objects.put(&key, bytes.into(), Condition::Always).await.expect("a disk");
    };
    let mut manifest = Manifest::default();
    for (shard, entries) in shards {
        let (bytes, at) = encode_shard(&ShardPart(entries));
        put(record::directory_shard(shard, at.digest), bytes.to_vec()).await;
        manifest.shards.insert(shard, at);
    }
    let (bytes, digest) = encode_manifest(&manifest);
    put(record::directory_manifest(digest), bytes.to_vec()).await;
    let head = DirectoryHead { epoch: 1, position: 4, manifest: digest, issued: 1 };
    put(record::directory_head(), Envelope::seal(&head, &[&director]).to_bytes()).await;
    let part = LogPart { epoch: 1, position: 5, entries: vec![entry("b", 2, false), entry("e", 2, true)] };
    put(record::directory_log(5), Envelope::seal(&part, &[&director]).to_bytes()).await;

    let through: Arc<dyn Objects> = Arc::new(Faulty::new(Arc::clone(&objects), Arc::new(NoLists)));
    let index = Arc::new(Memory::new());
    let statuses = Statuses::new(&View::new(through, index.clone()), index);
    let mut found: Vec<Name> = Vec::new();
    for shard in 0..SHARDS {
        let clusters = statuses.shard(shard, now()).await.expect("it is read by name");
        found.extend(clusters.into_iter().map(|found| found.entry.cluster));
    }
    found.sort();
    assert_eq!(found, ["a", "c", "d", "e"].map(name));
}
