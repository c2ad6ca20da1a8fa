//! What every target promises, whatever it is made of: run against each implementation.
//!
//! A [`World`] is a target with somebody else in it who changes, removes and plants things behind the
//! agent's back. [`holds`] plays every promise in it, one after the other; each uses names of its own,
//! so a world may be shared with other tests.

use farshore_agent::object::{Manifest, ObjectKey, Owner, is_marked};
use farshore_agent::plan::Item;
use farshore_agent::target::{Deleted, Live, Target};
use serde_json::{Value, json};

/// A target, and the means to meddle with what lives in it.
pub(crate) trait World {
    /// The target that is tried.
    type Target: Target;

    /// The target.
    fn target(&self) -> &Self::Target;

    /// A namespace that exists, or for which it does not matter.
    fn namespace(&self) -> &str;

    /// A manifest that this target refuses, with this name.
    async fn spoiled(&self, name: &str) -> Manifest;

    /// Sets a field (by JSON pointer) of an object, as somebody who is not Farshore.
    async fn meddle(&self, key: &ObjectKey, pointer: &str, value: Value);

    /// Takes the label and the annotation that are our marks from an object.
    async fn unmark(&self, key: &ObjectKey);

    /// Removes an object, and returns once it is gone.
    async fn remove(&self, key: &ObjectKey);

    /// Puts an object there that Farshore never applied, in place of what may be there.
    async fn plant_foreign(&self, manifest: &Manifest);

    /// What lives under a key now.
    async fn read(&self, key: &ObjectKey) -> Option<Value>;
}

/// Plays every promise, and says which.
pub(crate) async fn holds(world: &impl World) {
    macro_rules! play {
        ($($promise:ident),* $(,)?) => {
            $(
                println!("promise: {}", stringify!($promise).replace('_', " "));
                $promise(world).await;
            )*
        };
    }
    play!(
        what_was_applied_is_observed_with_the_same_fingerprint,
        applying_the_same_again_changes_nothing,
        a_foreign_change_is_seen_and_put_back,
        a_deleted_object_is_seen_and_comes_back,
        a_new_manifest_replaces_the_old_one,
        what_was_applied_carries_the_marks,
        a_deletion_removes_what_is_ours_and_finds_it_gone_the_second_time,
        an_object_that_lost_its_marks_is_never_deleted,
        a_foreign_object_under_our_key_is_never_deleted,
        an_object_of_another_service_is_never_deleted,
        a_bad_object_does_not_stop_the_others,
        every_manifest_is_put_in_its_place,
        one_answer_comes_for_every_item_in_order,
    );
}

async fn what_was_applied_is_observed_with_the_same_fingerprint(world: &impl World) {
    let (item, live) = applied(world, "observed", "1").await;
    assert_eq!(look(world, &item).await, live);
}

async fn applying_the_same_again_changes_nothing(world: &impl World) {
    let (item, live) = applied(world, "again", "1").await;
    let before = world.read(&item.key).await;
    let (_, second) = applied(world, "again", "1").await;
    assert_eq!(second, live, "the same manifest gives the same fingerprint");
    assert_eq!(world.read(&item.key).await, before, "not a byte of it changed");
}

async fn a_foreign_change_is_seen_and_put_back(world: &impl World) {
    let (item, live) = applied(world, "drift", "1").await;
    world.meddle(&item.key, "/data/value", json!("meddled")).await;
    let drifted = look(world, &item).await;
    assert!(drifted != live && drifted != Live::Absent, "{drifted:?}");
    let (item, _) = applied(world, "drift", "1").await;
    let body = world.read(&item.key).await.expect("it is still there");
    assert_eq!(body["data"]["value"], "1");
}

async fn a_deleted_object_is_seen_and_comes_back(world: &impl World) {
    let (item, _) = applied(world, "deleted", "1").await;
    world.remove(&item.key).await;
    assert_eq!(look(world, &item).await, Live::Absent);
    let (item, live) = applied(world, "deleted", "1").await;
    assert_eq!(look(world, &item).await, live);
}

async fn a_new_manifest_replaces_the_old_one(world: &impl World) {
    applied(world, "replaced", "1").await;
    let (item, live) = applied(world, "replaced", "2").await;
    assert_eq!(look(world, &item).await, live);
    let body = world.read(&item.key).await.expect("it is there");
    assert_eq!(body["data"]["value"], "2");
}

async fn what_was_applied_carries_the_marks(world: &impl World) {
    let (item, _) = applied(world, "marked", "1").await;
    let body = world.read(&item.key).await.expect("it is there");
    assert!(is_marked(&body, &owner("web")), "{body}");
    assert_eq!(body["metadata"]["labels"]["own"], "label", "what the service says stays");
}

async fn a_deletion_removes_what_is_ours_and_finds_it_gone_the_second_time(world: &impl World) {
    let (item, _) = applied(world, "leaving", "1").await;
    for time in ["first", "second"] {
        let deleted = world.target().delete(&owner("web"), &item).await;
        assert_eq!(deleted, Ok(Deleted::Gone), "the {time} time");
    }
    assert_eq!(world.read(&item.key).await, None);
}

async fn an_object_that_lost_its_marks_is_never_deleted(world: &impl World) {
    let (item, _) = applied(world, "unmarked", "1").await;
    world.unmark(&item.key).await;
    kept(world, &owner("web"), &item).await;
}

async fn a_foreign_object_under_our_key_is_never_deleted(world: &impl World) {
    let (item, _) = applied(world, "foreign", "1").await;
    world.remove(&item.key).await;
    world.plant_foreign(&manifest(world, "foreign", "theirs")).await;
    kept(world, &owner("web"), &item).await;
}

async fn an_object_of_another_service_is_never_deleted(world: &impl World) {
    let (item, _) = applied(world, "neighbour", "1").await;
    kept(world, &owner("shop"), &item).await;
}

async fn a_bad_object_does_not_stop_the_others(world: &impl World) {
    let bad = world.spoiled(&name("spoiled")).await;
    let refused = world.target().apply(&owner("web"), &bad).await.expect_err("a bad object");
    assert_eq!(refused.key, bad.key);
    assert!(!refused.message.is_empty());
    let (item, live) = applied(world, "beside", "1").await;
    assert_eq!(look(world, &item).await, live);
}

async fn every_manifest_is_put_in_its_place(world: &impl World) {
    let read = |body: Value| Manifest::read(body, "contract".into()).expect("a manifest");
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "r", "namespace": "wrong"}});
    let bare = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let own = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "namespace": "own"}});
    let manifests = vec![read(role), read(bare.clone()), read(own)];
    let placed = world.target().locate(manifests, Some("shop")).await;
    let placed: Vec<_> = placed.into_iter().map(|manifest| manifest.expect("a known kind")).collect();
    let namespaces: Vec<_> = placed.iter().map(|manifest| manifest.key.namespace.as_deref()).collect();
    assert_eq!(namespaces, [None, Some("shop"), Some("own")]);
    assert_eq!(placed[0].body["metadata"].get("namespace"), None, "the body says the same as the key");
    assert_eq!(placed[1].body["metadata"]["namespace"], "shop");
    let placed = world.target().locate(vec![read(bare)], None).await;
    let namespace = placed[0].as_ref().expect("a known kind").key.namespace.as_deref();
    assert_eq!(namespace, Some("default"));
}

async fn one_answer_comes_for_every_item_in_order(world: &impl World) {
    let (first, live) = applied(world, "first", "1").await;
    let (third, other) = applied(world, "third", "3").await;
    let absent = Item::new(&manifest(world, "absent", "1"));
    let seen = world.target().observe(&owner("web"), &[first, absent, third]).await;
    assert_eq!(seen, [Ok(live), Ok(Live::Absent), Ok(other)]);
    assert_eq!(world.target().observe(&owner("web"), &[]).await, []);
}

async fn kept(world: &impl World, owner: &Owner, item: &Item) {
    let before = world.read(&item.key).await.expect("it is there");
    assert_eq!(world.target().delete(owner, item).await, Ok(Deleted::NotOurs));
    assert_eq!(world.read(&item.key).await.as_ref(), Some(&before), "it stays as it was");
}

/// Applies a `ConfigMap`: the item that the inventory would have, and what is observed from now on.
async fn applied(world: &impl World, what: &str, value: &str) -> (Item, Live) {
    world.target().ready().await.expect("the target answers");
    let manifest = manifest(world, what, value);
    let applied = world.target().apply(&owner("web"), &manifest).await.expect("it is applied");
    let mut item = Item::new(&manifest);
    item.uid = Some(applied.uid.clone());
    item.applied = Some(manifest.digest());
    item.fingerprint = Some(applied.fingerprint);
    (item, Live::Present { uid: applied.uid, fingerprint: applied.fingerprint })
}

async fn look(world: &impl World, item: &Item) -> Live {
    let mut seen = world.target().observe(&owner("web"), std::slice::from_ref(item)).await;
    assert_eq!(seen.len(), 1, "one item, one answer");
    seen.remove(0).expect("the target tells")
}

fn owner(service: &str) -> Owner {
    Owner { cluster: "shop-7".parse().expect("a name"), service: service.parse().expect("a name") }
}

fn name(what: &str) -> String {
    format!("contract-{what}")
}

fn manifest(world: &impl World, what: &str, value: &str) -> Manifest {
    let body = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name(what), "namespace": world.namespace(), "labels": {"own": "label"}},
        "data": {"value": value},
    });
    Manifest::read(body, "contract".into()).expect("a manifest")
}
