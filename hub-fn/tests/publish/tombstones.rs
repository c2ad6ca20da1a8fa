//! How long a tombstone stays: until every cluster of its group has said, signed with its own key, that it is heard.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use farshore_chaos::kit::wait_for;
use farshore_hub_fn::index::memory::Memory;
use farshore_hub_fn::objects::Objects;
use farshore_hub_fn::publish::partition::Policy;
use farshore_hub_fn::publish::{Options, Publisher};
use farshore_hub_fn::record::{Buried, GroupRef, Report};
use farshore_hub_fn::status::{Compactor, TOGETHER, Writer};
use farshore_hub_fn::view::{Freshness, View};
use farshore_shared::clock::now;
use farshore_shared::dsse::Envelope;
use farshore_shared::keys::SigningKey;
use farshore_shared::wire::Status;

use crate::world::{Site, World, name, sync};

const SOON: Duration = Duration::from_secs(20);
const CLUSTERS: [&str; 2] = ["a", "b"];

struct Fleet {
    world: World,
    objects: Arc<dyn Objects>,
    keys: BTreeMap<&'static str, SigningKey>,
    reports: u64,
}

impl Fleet {
    /// Two clusters that had two services, of which one is removed.
    async fn new() -> Self {
        let mut world = World::new();
        world.declare("web", None, "1");
        world.declare("old", None, "1");
        world.commit();
        let objects = world.objects();
        let mut keys = BTreeMap::new();
        for cluster in CLUSTERS {
            keys.insert(cluster, world.enrol(&objects, cluster, "").await);
        }
        let mut fleet = Self { world, objects, keys, reports: 0 };
        let mut publisher = fleet.publisher().await;
        sync(&mut publisher).await;
        fleet.world.fleet.remove("fleet/old.yaml").expect("it is there");
        fleet.world.commit();
        sync(&mut publisher).await;
        fleet
    }

    /// One that has not looked at any report yet, and writes every body anew.
    async fn publisher(&self) -> Publisher {
        let options = self.world.options("mirrors");
        let policy = Policy { group_life: 0, ..options.policy };
        self.world.publisher_with(&self.objects, Options { policy, ..options }).await
    }

    async fn group(&self) -> GroupRef {
        self.world.published(&self.objects).await.table.0.into_values().next().expect("one group")
    }

    async fn tombstones(&self) -> Vec<Buried> {
        self.group().await.tombstones
    }

    /// What a cluster says of itself, signed by somebody: that it has accepted all, and has these services.
    async fn report(&mut self, cluster: &str, by: &SigningKey, services: &[&str]) {
        self.reports += 1;
        let view = View::new(Arc::clone(&self.objects), Arc::new(Memory::new()));
        let roster =
            view.roster(&name(cluster), Freshness::Now).await.expect("a good record").expect("it has one");
        let service =
            |of: &&str| serde_json::json!({ "name": of, "commit": "c", "state": "applied", "objects": 1 });
        let status = serde_json::json!({
            "cluster": cluster, "stateId": "one", "sequence": self.reports, "at": 1, "agent": "test", "pollSeconds": 60,
            "holds": { "epoch": 1, "roster": roster.document.sequence, "group": self.group().await.sequence },
            "services": services.iter().map(service).collect::<Vec<_>>(),
        });
        let status: Status = serde_json::from_value(status).expect("a status");
        let envelope = Envelope::seal(&status, &[by]);
        let report = Report { cluster: name(cluster), received: self.reports, envelope };
        Writer::start(Arc::clone(&self.objects), TOGETHER).append(report).await.expect("a disk");
        let index = Arc::new(Memory::new());
        let view = View::new(Arc::clone(&self.objects), index.clone());
        Compactor::new(view, index).fold().await.expect("a disk");
    }

    /// Has a publisher look at all reports and write the body again, once what is buried is old enough.
    async fn publish(&mut self) {
        let newest = self.tombstones().await.iter().map(|buried| buried.since).max().unwrap_or(0);
        wait_for("the clock to go on", SOON, async || {
            if now() * 1000 >= newest { Ok(()) } else { Err("the same second".to_owned()) }
        })
        .await
        .expect("it does");
        let mut publisher = self.publisher().await;
        sync(&mut publisher).await;
        while publisher.hear_sites().await.expect("a disk") {}
        assert_eq!(sync(&mut publisher).await.groups, 1, "every body is written anew");
    }
}

#[tokio::test]
async fn a_tombstone_stays_until_every_cluster_has_signed_that_it_is_heard() {
    let mut fleet = Fleet::new().await;
    let stays = async |fleet: &mut Fleet, why: &str| {
        fleet.publish().await;
        let left: Vec<String> = fleet.tombstones().await.iter().map(|b| b.service.to_string()).collect();
        assert_eq!(left, ["old"], "{why}");
    };
    stays(&mut fleet, "nobody has reported").await;
    let keys = std::mem::take(&mut fleet.keys);
    fleet.report("a", &keys["a"], &["web"]).await;
    stays(&mut fleet, "one has not reported").await;
    fleet.report("b", &SigningKey::generate(), &["web"]).await;
    stays(&mut fleet, "a stranger has signed its report").await;
    fleet.report("b", &keys["a"], &["web"]).await;
    stays(&mut fleet, "its neighbour has signed its report").await;
    fleet.report("b", &keys["b"], &["old", "web"]).await;
    stays(&mut fleet, "it could not delete it yet").await;
    fleet.report("b", &keys["b"], &["web"]).await;
    fleet.publish().await;
    assert_eq!(fleet.tombstones().await, [], "everybody has said so");
    for cluster in CLUSTERS {
        let mut site = Site::default();
        assert!(site.poll(&fleet.objects, cluster).await);
        assert_eq!(site.names(), ["web"]);
    }
}
