use std::sync::Mutex;

use farshore_shared::wire::PruneBudget;
use futures::poll;
use serde_json::json;

use super::*;
use crate::target::memory::Memory;

/// A target, and a ledger whose writes stand in the target's log.
#[derive(Default)]
struct Site {
    target: Memory,
    kept: Mutex<Inventory>,
}

impl Ledger for Site {
    fn save(&self, inventory: &Inventory) -> Result<(), StoreError> {
        let names: Vec<&str> = inventory.items.iter().map(|item| item.key.name.as_str()).collect();
        self.target.inner().log.push(format!("list {}", names.join(" ")));
        *self.kept.lock().expect("not poisoned") = inventory.clone();
        Ok(())
    }
}

impl Site {
    /// What is on disk.
    fn kept(&self) -> Inventory {
        self.kept.lock().expect("not poisoned").clone()
    }

    fn listed(&self) -> Vec<String> {
        self.kept().items.into_iter().map(|item| item.key.name).collect()
    }

    async fn enforce(&self, revision: &str, names: &[&str]) -> Outcome {
        // As after a restart: what is on disk is all that is known.
        let mut inventory = self.kept();
        let desired = desired(revision, names);
        enforce(&self.target, &owner(), desired, &mut inventory, self, None)
            .await
            .expect("the ledger has room")
    }

    fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.target.inner().log)
    }
}

fn owner() -> Owner {
    Owner { cluster: "shop-7".parse().expect("a name"), service: "web".parse().expect("a name") }
}

fn desired(revision: &str, names: &[&str]) -> Desired {
    let revision = Digest::of(revision.as_bytes());
    let manifest = |name: &&str| {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "shop"}, "data": {"value": "as signed"}});
        let mut manifest = Manifest::read(body, "test".into()).expect("a manifest");
        manifest.mark(&owner());
        manifest
    };
    Desired {
        manifests: names.iter().map(manifest).collect(),
        completeness: Completeness::Complete,
        removal: Removal::Revision { revision, budget: PruneBudget::default() },
        revision: Some((revision, 1)),
        aside: BTreeSet::new(),
        once: BTreeSet::new(),
        claimed: Claimed::default(),
    }
}

#[tokio::test]
async fn what_is_about_to_be_applied_is_listed_first() {
    let site = Site::default();
    site.enforce("1", &["a", "b"]).await;
    let log = site.take_log();
    assert_eq!(log[0], "list a b");
    assert!(log[1..3].iter().all(|line| line.starts_with("apply")), "{log:?}");
    site.enforce("2", &["a", "c"]).await;
    assert_eq!(site.take_log(), ["list a b c", "apply c", "delete b", "list a c"]);
}

#[tokio::test]
async fn the_same_again_writes_nothing() {
    let site = Site::default();
    site.enforce("1", &["a", "b"]).await;
    site.take_log();
    let outcome = site.enforce("1", &["a", "b"]).await;
    assert_eq!((outcome.objects, outcome.changed, outcome.repaired), (2, 0, 0));
    assert!(site.take_log().is_empty());
}

#[tokio::test]
async fn a_power_cut_at_any_moment_leaves_nothing_that_is_not_listed_and_is_made_good() {
    let mut cuts = 0;
    loop {
        let site = Site::default();
        site.enforce("1", &["a", "b"]).await;
        let mut inventory = site.kept();
        let (owner, owned) = (owner(), desired("2", &["a", "c"]));
        let mut work = Box::pin(enforce(&site.target, &owner, owned, &mut inventory, &site, None));
        let mut ended = false;
        for _ in 0..cuts {
            ended = ended || poll!(&mut work).is_ready();
            if ended {
                break;
            }
            // What woke it is told by the runtime.
            tokio::task::yield_now().await;
        }
        drop(work);
        let listed = site.listed();
        for name in site.target.names() {
            assert!(listed.contains(&name), "{name} is there and not listed after {cuts} steps");
        }
        let outcome = site.enforce("2", &["a", "c"]).await;
        assert!(outcome.failures.is_empty() && outcome.held.is_none(), "{outcome:?}");
        assert_eq!(
            (site.target.names(), site.listed()),
            (vec!["a".into(), "c".into()], vec!["a".into(), "c".into()])
        );
        if ended {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 4, "the work was cut in {cuts} places only");
}

#[tokio::test]
async fn nothing_is_deleted_while_something_cannot_be_applied() {
    let site = Site::default();
    site.enforce("1", &["a", "b"]).await;
    site.target.inner().refused.insert("c".into());
    let outcome = site.enforce("2", &["a", "c"]).await;
    assert_eq!((outcome.failures.len(), outcome.removed), (1, 0));
    assert_eq!(site.listed(), ["a", "b", "c"], "what could not be applied is listed all the same");
    site.target.inner().refused.clear();
    let outcome = site.enforce("2", &["a", "c"]).await;
    assert_eq!((outcome.failures.len(), outcome.removed), (0, 1));
    assert_eq!(site.target.names(), ["a", "c"]);
}

#[tokio::test]
async fn an_object_that_cannot_be_deleted_stays_listed_until_it_can() {
    let site = Site::default();
    site.enforce("1", &["a", "b"]).await;
    site.target.inner().refused.insert("b".into());
    let outcome = site.enforce("2", &["a"]).await;
    assert_eq!((outcome.failures.len(), outcome.removed), (1, 0));
    assert_eq!(site.listed(), ["a", "b"]);
    site.target.inner().refused.clear();
    assert_eq!(site.enforce("2", &["a"]).await.removed, 1);
    assert_eq!(site.listed(), ["a"]);
}

#[tokio::test]
async fn a_revision_that_failed_in_part_does_not_shrink() {
    let site = Site::default();
    site.enforce("1", &["a", "b"]).await;
    site.target.inner().refused.insert("c".into());
    site.enforce("2", &["a", "b", "c"]).await;
    let outcome = site.enforce("2", &["a"]).await;
    assert_eq!(outcome.held, Some(Held::SameRevision { count: 2 }));
    assert_eq!(site.target.names(), ["a", "b"]);
}

#[tokio::test]
async fn what_somebody_changed_or_removed_is_repaired() {
    let site = Site::default();
    site.enforce("1", &["a", "b"]).await;
    site.target.meddle("a", "as changed");
    let gone = site.target.inner().objects.keys().find(|key| key.name == "b").cloned().expect("applied");
    site.target.inner().objects.remove(&gone);
    let outcome = site.enforce("1", &["a", "b"]).await;
    assert_eq!((outcome.repaired, outcome.changed), (2, 0));
    assert_eq!(site.target.value("a").as_deref(), Some("as signed"));
    assert_eq!(site.target.names(), ["a", "b"]);
}

#[tokio::test]
async fn what_somebody_made_ours_in_name_only_is_not_deleted() {
    let site = Site::default();
    site.enforce("1", &["a", "b"]).await;
    for (key, (_, body)) in &mut site.target.inner().objects {
        if key.name == "b" {
            body["metadata"]["labels"] = json!({});
        }
    }
    let outcome = site.enforce("2", &["a"]).await;
    assert_eq!((outcome.removed, outcome.failures.len()), (0, 0));
    assert_eq!((site.target.names(), site.listed()), (vec!["a".into(), "b".into()], vec!["a".into()]));
}
