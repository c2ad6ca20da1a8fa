//! Requests to enrol: who is let in, who is not, and that nothing of it can be done twice.

use std::sync::Arc;

use farshore_hub_fn::objects::{self, Objects};
use farshore_hub_fn::publish::enrol::uses_from;
use farshore_hub_fn::publish::{Publisher, Step};
use farshore_hub_fn::record::{self, TokenUse};
use farshore_shared::digest::Digest;
use farshore_shared::dsse::Envelope;
use farshore_shared::keys::SigningKey;
use farshore_shared::token::Claims;
use farshore_shared::wire::{Document, Problem, Registration, Roster};

use crate::world::{World, name};

struct Office {
    world: World,
    objects: Arc<dyn Objects>,
    publisher: Publisher,
}

impl Office {
    async fn open() -> Self {
        let world = World::new();
        let objects = world.objects();
        let publisher = world.publisher(&objects, "mirrors").await;
        Self { world, objects, publisher }
    }

    /// Asks, lets the publisher work, and returns why it was refused, if it was.
    async fn ask(&mut self, claims: Claims, cluster: &str, key: &SigningKey) -> Option<String> {
        let request = self.world.request(claims, cluster, key);
        let id = self.world.ask(&self.objects, &request).await;
        self.decide(id).await
    }

    async fn decide(&mut self, id: Digest) -> Option<String> {
        self.publisher.step(Step::Enrolments).await.expect("a good record");
        let waiting = self.objects.list(record::PENDING, None, 9).await.expect("a disk");
        assert_eq!(waiting.len(), 0, "a request is decided once");
        let stored = self.objects.get(&record::refused(id), 1 << 16).await.expect("a disk")?;
        let Problem { error } = serde_json::from_slice(&stored.bytes).expect("a problem");
        Some(error)
    }

    async fn document<T: Document>(&self, key: objects::Key) -> Option<T> {
        let stored = self.objects.get(&key, 1 << 16).await.expect("a disk")?;
        let envelope: Envelope = serde_json::from_slice(&stored.bytes).expect("an envelope");
        let keys = self.world.ring.publisher().expect("made before");
        let signers = farshore_shared::dsse::Signers::one(keys.director.public());
        Some(envelope.open(&signers, 1 << 16).expect("signed by us"))
    }

    async fn registered(&self, cluster: &str) -> Option<Registration> {
        self.document(record::registration(&name(cluster))).await
    }
}

#[tokio::test]
async fn a_site_is_let_in_with_the_labels_of_its_token_and_has_a_roster_at_once() {
    let mut office = Office::open().await;
    let key = SigningKey::generate();
    assert_eq!(office.ask(World::claims("t", "tier=edge", 1), "harbour", &key).await, None);
    let registration = office.registered("harbour").await.expect("registered");
    assert_eq!(&registration.key, key.public());
    assert_eq!(registration.labels, crate::world::labels("tier=edge"));
    let roster: Roster = office.document(record::roster(&name("harbour"))).await.expect("a roster");
    assert_eq!((roster.key, roster.labels), (key.public().id(), registration.labels));
}

#[tokio::test]
async fn the_same_key_again_succeeds_with_a_used_up_and_expired_token() {
    let mut office = Office::open().await;
    let key = SigningKey::generate();
    assert_eq!(office.ask(World::claims("t", "", 1), "harbour", &key).await, None);
    let first = office.registered("harbour").await;
    let late = Claims { expires: 1, ..World::claims("t", "", 1) };
    assert_eq!(office.ask(late, "harbour", &key).await, None);
    assert_eq!(office.registered("harbour").await, first);
}

#[tokio::test]
async fn a_token_enrols_as_many_as_it_says_and_a_cut_enrolment_costs_no_use() {
    let mut office = Office::open().await;
    let claims = World::claims("t", "", 2);
    let key = SigningKey::generate();
    // Its use was taken, and then power failed.
    let taken = TokenUse { key: key.public().id(), cluster: name("a") };
    let bytes = serde_json::to_vec(&taken).expect("a use is JSON");
    let first = uses_from(&key.public().id(), 2).next().expect("two uses");
    let place = record::token_use(Digest::of(b"t"), first);
    let _ = office.objects.put(&place, bytes.into(), objects::Condition::Absent).await.expect("a disk");
    assert_eq!(office.ask(claims.clone(), "a", &key).await, None);
    assert_eq!(office.ask(claims.clone(), "b", &SigningKey::generate()).await, None);
    let refused = office.ask(claims, "c", &SigningKey::generate()).await;
    assert_eq!(refused.as_deref(), Some("join token is used up (2 of 2 uses): ask for a new one"));
    assert_eq!(office.registered("c").await, None);
}

#[tokio::test]
async fn an_expired_token_lets_nobody_in() {
    let mut office = Office::open().await;
    let claims = Claims { expires: 1, ..World::claims("t", "", 1) };
    let refused = office.ask(claims, "harbour", &SigningKey::generate()).await.expect("refused");
    assert!(refused.starts_with("join token expired (1, now "), "{refused}");
    assert_eq!(office.registered("harbour").await, None);
}

#[tokio::test]
async fn a_forged_request_is_refused_and_uses_nothing() {
    let mut office = Office::open().await;
    let key = SigningKey::generate();
    let good = office.world.request(World::claims("t", "", 1), "harbour", &key);
    let stranger = World::new().request(World::claims("t", "", 1), "harbour", &key);
    let mut of_another_name = good.clone();
    of_another_name.cluster = name("other");
    let mut with_another_key = good.clone();
    with_another_key.key = SigningKey::generate().public().clone();
    let mut sealed_elsewhere = good.clone();
    sealed_elsewhere.sealing_key = "mine".into();
    let mut with_more = good.clone();
    with_more.claims = stranger.claims.clone() + "AA";
    for forged in [stranger, of_another_name, with_another_key, sealed_elsewhere, with_more] {
        let id = office.world.ask(&office.objects, &forged).await;
        let refused = office.decide(id).await;
        assert_eq!(refused.as_deref(), Some("join token is not of this hub, or was changed"));
    }
    let id = office.world.ask(&office.objects, &good).await;
    assert_eq!(office.decide(id).await, None);
}

#[tokio::test]
async fn a_name_that_is_taken_stays_taken_unless_the_token_replaces_it() {
    let mut office = Office::open().await;
    let (old, new) = (SigningKey::generate(), SigningKey::generate());
    assert_eq!(office.ask(World::claims("one", "", 1), "harbour", &old).await, None);
    let refused = office.ask(World::claims("two", "", 1), "harbour", &new).await.expect("refused");
    assert!(refused.starts_with("a cluster named harbour is enrolled with another key"), "{refused}");
    let claims = Claims { replaces: Some(name("harbour")), ..World::claims("three", "", 1) };
    let refused = office.ask(claims.clone(), "beach", &new).await;
    assert_eq!(refused.as_deref(), Some("join token is for the cluster harbour, not beach"));
    assert_eq!(office.ask(claims, "harbour", &new).await, None);
    let registration = office.registered("harbour").await.expect("registered");
    assert_eq!(&registration.key, new.public());
    let roster: Roster = office.document(record::roster(&name("harbour"))).await.expect("a roster");
    assert_eq!(roster.key, new.public().id(), "the roster is for the new key");
}

#[tokio::test]
async fn a_request_that_is_no_request_is_put_away() {
    let mut office = Office::open().await;
    let id = Digest::of(b"noise");
    let noise = bytes::Bytes::from_static(b"noise");
    let _ =
        office.objects.put(&record::pending(id), noise, objects::Condition::Absent).await.expect("a disk");
    let key = SigningKey::generate();
    assert_eq!(office.ask(World::claims("t", "", 1), "harbour", &key).await, None);
}
