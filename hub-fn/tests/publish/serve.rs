//! What a replica answers from the record, whatever the index says.

use std::sync::Arc;

use bytes::Bytes;
use farshore_hub_fn::auth::Gate;
use farshore_hub_fn::handlers::{Hub, artifact, desired};
use farshore_hub_fn::index::Entry;
use farshore_hub_fn::metrics::Metrics;
use farshore_hub_fn::objects::{Condition, Objects};
use farshore_hub_fn::publish::Publisher;
use farshore_hub_fn::record;
use farshore_hub_fn::seen::Seen;
use farshore_hub_fn::status::{Statuses, Writer};
use farshore_hub_fn::view::View;
use farshore_shared::clock::now;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::Signers;
use farshore_shared::etag::DesiredTag;
use farshore_shared::keys::SigningKey;
use farshore_shared::pass;
use farshore_shared::wire::{BEHIND_HEADER, DESIRED_LIMIT, Desired, Group, Roster};
use http::header::{AUTHORIZATION, CONTENT_ENCODING, ETAG, IF_NONE_MATCH};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;

use crate::world::{World, name, sync};

struct Served {
    world: World,
    objects: Arc<dyn Objects>,
    publisher: Publisher,
    key: SigningKey,
}

struct Answered {
    status: StatusCode,
    tag: Option<String>,
    is_behind: bool,
    desired: Option<Desired>,
}

impl Served {
    async fn new() -> Self {
        let mut world = World::new();
        world.declare("edge", Some("edge"), "1");
        world.declare("core", Some("core"), "1");
        world.commit();
        let objects = world.objects();
        let key = world.enrol(&objects, "harbour", "tier=edge").await;
        world.enrol(&objects, "vault", "tier=core").await;
        let mut publisher = world.publisher(&objects, "mirrors").await;
        sync(&mut publisher).await;
        Self { world, objects, publisher, key }
    }

    /// A replica that has just been started.
    fn hub(&self) -> Hub {
        let view = View::new(Arc::clone(&self.objects), Arc::clone(&self.world.index));
        Hub {
            statuses: Statuses::new(&view, Arc::clone(&self.world.index)),
            gate: Gate::new(view.clone()),
            view,
            seen: Arc::new(Seen::default()),
            metrics: Arc::new(Metrics::new()),
            reports: Writer::start(Arc::clone(&self.objects)),
            wake: Arc::default(),
        }
    }

    fn request(&self, tag: Option<&str>) -> Request<()> {
        let pass = pass::issue(&self.key, &name("harbour"), self.world.root(), now());
        let mut request = Request::builder().header(AUTHORIZATION, format!("Bearer {pass}"));
        if let Some(tag) = tag {
            request = request.header(IF_NONE_MATCH, tag);
        }
        request.body(()).expect("good headers")
    }

    async fn poll(&self, hub: &Hub, tag: Option<&str>) -> Answered {
        let request = self.request(tag);
        let response = match desired::get(hub, &request).await {
            Ok(response) => response,
            Err(refusal) => refusal.into_response(),
        };
        let header = |name: &str| Some(response.headers().get(name)?.to_str().expect("text").to_owned());
        let (tag, is_behind) = (header(ETAG.as_str()), header(BEHIND_HEADER).is_some());
        assert_eq!(header(CONTENT_ENCODING.as_str()), None, "nobody asked for zstd");
        let status = response.status();
        let bytes = response.into_body().collect().await.expect("memory").to_bytes();
        assert!(bytes.len() < DESIRED_LIMIT);
        let desired = (status == StatusCode::OK).then(|| serde_json::from_slice(&bytes).expect("documents"));
        Answered { status, tag, is_behind, desired }
    }

    async fn artifact(&self, digest: Digest) -> StatusCode {
        let answer = artifact::get(&self.hub(), &digest.to_string(), &self.request(None)).await;
        answer.map_or_else(|refusal| refusal.into_response().status(), |response| response.status())
    }

    async fn artifact_of(&self, service: &str) -> Digest {
        let intent = self.world.intent(&self.objects).await;
        intent.services[&name(service)].published.clone().expect("published").artifact.digest
    }
}

#[tokio::test]
async fn a_poll_is_answered_in_full_and_then_with_nothing_new_by_any_replica() {
    let mut served = Served::new().await;
    let hub = served.hub();
    let first = served.poll(&hub, None).await;
    assert_eq!(first.status, StatusCode::OK);
    let desired = first.desired.expect("documents");
    let keys = served.world.ring.publisher().expect("made before");
    let signers = Signers::one(keys.director.public());
    let roster: Roster = desired.roster.expect("a roster").open(&signers, DESIRED_LIMIT).expect("signed");
    let group: Group = desired.group.expect("a group").open(&signers, DESIRED_LIMIT).expect("signed");
    assert_eq!((roster.cluster, roster.group), (name("harbour"), group.group));
    let tag = first.tag.expect("a tag");
    for hub in [hub, served.hub()] {
        let again = served.poll(&hub, Some(&tag)).await;
        assert_eq!((again.status, again.is_behind), (StatusCode::NOT_MODIFIED, false));
        assert_eq!(again.tag.as_ref(), Some(&tag));
    }
    served.world.declare("edge", Some("edge"), "2");
    served.world.commit();
    sync(&mut served.publisher).await;
    let third = served.poll(&served.hub(), Some(&tag)).await;
    let desired = third.desired.expect("documents");
    assert!(desired.roster.is_none() && desired.group.is_some(), "only what changed is sent");
    for garbage in ["\"x\"", "*", "W/\"1.2\"", ""] {
        let answer = served.poll(&served.hub(), Some(garbage)).await;
        assert!(answer.desired.is_some_and(|d| d.roster.is_some() && d.group.is_some()), "{garbage}");
    }
}

#[tokio::test]
async fn an_agent_that_holds_more_than_the_record_is_told_so_and_sent_nothing() {
    let mut served = Served::new().await;
    let old = served.objects.get(&record::head(), 1 << 20).await.expect("a disk").expect("published");
    let stale = served.hub();
    let before = served.poll(&stale, None).await.tag.expect("a tag");
    served.world.declare("edge", Some("edge"), "2");
    served.world.commit();
    sync(&mut served.publisher).await;
    let tag = served.poll(&served.hub(), None).await.tag.expect("a tag");
    assert_ne!(tag, before);
    // Whatever the index says, and whatever this replica remembers, it reads through.
    let entry = Entry { version: u64::MAX, bytes: old.bytes.clone() };
    served.world.index.put(record::head().as_str(), &entry).await.expect("memory");
    let through = served.poll(&stale, Some(&tag)).await;
    assert_eq!((through.status, through.is_behind), (StatusCode::NOT_MODIFIED, false));
    // A record from a backup has nothing better.
    let _ = served.objects.put(&record::head(), old.bytes, Condition::Always).await.expect("a disk");
    let behind = served.poll(&served.hub(), Some(&tag)).await;
    assert_eq!((behind.status, behind.is_behind), (StatusCode::NOT_MODIFIED, true));
    assert_eq!(behind.tag, Some(tag));
}

#[tokio::test]
async fn a_cluster_that_moves_to_a_group_with_an_older_body_is_sent_it() {
    let mut served = Served::new().await;
    served.world.declare("edge", Some("edge"), "2");
    served.world.commit();
    sync(&mut served.publisher).await;
    let tag = served.poll(&served.hub(), None).await.tag.expect("a tag");
    let cluster = "apiVersion: farshore.dev/v1alpha1\nkind: Cluster\nmetadata: { name: harbour, labels: { tier: core } }\n";
    served.world.fleet.write("fleet/harbour.yaml", cluster).expect("a folder");
    served.world.commit();
    let report = sync(&mut served.publisher).await;
    assert_eq!((report.groups, report.rosters), (0, 1));
    let moved = served.poll(&served.hub(), Some(&tag)).await;
    assert_eq!(moved.status, StatusCode::OK);
    let parsed = |tag: &str| tag.parse::<DesiredTag>().expect("a tag of ours");
    assert!(parsed(&moved.tag.expect("a tag")).group.sequence < parsed(&tag).group.sequence);
}

#[tokio::test]
async fn what_the_index_holds_is_served_only_if_it_is_what_was_asked_for() {
    let served = Served::new().await;
    let good = served.poll(&served.hub(), None).await;
    let roster = |cluster: &str| record::roster(&name(cluster));
    let registration = |cluster: &str| record::registration(&name(cluster));
    let table = served.world.published(&served.objects).await.table;
    let bodies: Vec<_> = table.0.iter().map(|(id, group)| record::group(*id, group.sequence)).collect();
    // Well signed, but of another cluster or group; and noise.
    let swaps = [
        (roster("harbour"), roster("vault")),
        (registration("harbour"), registration("vault")),
        (bodies[0].clone(), bodies[1].clone()),
        (bodies[1].clone(), bodies[0].clone()),
        (record::head(), roster("vault")),
    ];
    for (key, other) in swaps {
        let foreign = served.objects.get(&other, 1 << 20).await.expect("a disk").expect("written").bytes;
        for bytes in [foreign, Bytes::from_static(b"noise"), Bytes::new()] {
            let entry = Entry { version: u64::MAX, bytes };
            served.world.index.forget(key.as_str()).await.expect("memory");
            served.world.index.put(key.as_str(), &entry).await.expect("memory");
            let answer = served.poll(&served.hub(), None).await;
            assert_eq!((answer.status, &answer.tag), (StatusCode::OK, &good.tag), "{key} is {other}");
            assert_eq!(answer.desired, good.desired);
        }
    }
}

#[tokio::test]
async fn an_artifact_is_for_clusters_whose_documents_name_it_now_or_did_before() {
    let mut served = Served::new().await;
    let (edge, core) = (served.artifact_of("edge").await, served.artifact_of("core").await);
    assert_eq!(served.artifact(edge).await, StatusCode::OK);
    assert_eq!(served.artifact(core).await, StatusCode::NOT_FOUND);
    for (value, status) in [("2", StatusCode::OK), ("3", StatusCode::NOT_FOUND)] {
        served.world.declare("edge", Some("edge"), value);
        served.world.commit();
        sync(&mut served.publisher).await;
        assert_eq!(served.artifact(edge).await, status, "after revision {value}");
    }
    let newest = served.artifact_of("edge").await;
    served.objects.delete(&record::artifact(newest)).await.expect("a disk");
    assert_eq!(served.artifact(newest).await, StatusCode::GONE);
}

#[tokio::test]
async fn a_pass_of_another_key_or_fleet_is_not_let_in_and_an_unknown_cluster_neither() {
    let served = Served::new().await;
    let hub = served.hub();
    let root = served.world.root();
    let passes = [
        pass::issue(&SigningKey::generate(), &name("harbour"), root, now()),
        pass::issue(&served.key, &name("harbour"), Digest::of(b"another"), now()),
        pass::issue(&served.key, &name("vault"), root, now()),
        pass::issue(&served.key, &name("nobody"), root, now()),
        pass::issue(&served.key, &name("harbour"), root, now() - 2 * pass::LIFETIME),
        pass::issue(&served.key, &name("harbour"), root, now() + 2 * pass::LEEWAY),
        String::new(),
    ];
    for pass in passes {
        let request = Request::builder().header(AUTHORIZATION, format!("Bearer {pass}")).body(());
        let refusal = desired::get(&hub, &request.expect("good headers")).await.expect_err("not let in");
        assert_eq!(refusal.into_response().status(), StatusCode::UNAUTHORIZED);
    }
    let refusal = desired::get(&hub, &Request::new(())).await.expect_err("not let in");
    assert_eq!(refusal.into_response().status(), StatusCode::UNAUTHORIZED);
}
