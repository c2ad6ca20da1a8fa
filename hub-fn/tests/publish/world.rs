//! A fleet repository, a record on disk, and publishers over it; and sites that believe what they see.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use farshore_chaos::kit::GitRepo;
use farshore_hub_fn::index::Index;
use farshore_hub_fn::index::memory::Memory;
use farshore_hub_fn::keyring::{Keyring, RootOptions};
use farshore_hub_fn::objects::disk::Disk;
use farshore_hub_fn::objects::{Condition, Objects, PutOutcome};
use farshore_hub_fn::publish::partition::Policy;
use farshore_hub_fn::publish::state::Published;
use farshore_hub_fn::publish::{FleetRepository, Options, Publisher, Step, StepReport, SyncOptions};
use farshore_hub_fn::record::{self, Approval, HeldChange, Intent};
use farshore_hub_fn::source::{Branch, FileSources, GitUrl};
use farshore_hub_fn::trust::Trust;
use farshore_hub_fn::view::{Freshness, View};
use farshore_shared::digest::Digest;
use farshore_shared::dsse::Envelope;
use farshore_shared::keys::SigningKey;
use farshore_shared::names::{Labels, Name};
use farshore_shared::token::{Claims, JoinToken};
use farshore_shared::wire::{EnrollRequest, Group, GroupId, Roster};
use tempfile::TempDir;

pub(crate) const NOW: u64 = 1_800_000_000;

/// One fleet.
pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) fleet: GitRepo,
    pub(crate) ring: Keyring,
    /// What publishers tell and replicas ask.
    pub(crate) index: Arc<dyn Index>,
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

pub(crate) fn labels(text: &str) -> Labels {
    let pairs = text.split(',').filter(|pair| !pair.is_empty());
    pairs.map(|pair| farshore_shared::names::label_pair(pair).expect("a label")).collect()
}

/// A service that lives in the fleet repository, for clusters of a tier, or for all.
pub(crate) fn service(name: &str, tier: Option<&str>) -> String {
    service_of("fleet", &format!("apps/{name}"), name, tier)
}

pub(crate) fn service_of(source: &str, path: &str, name: &str, tier: Option<&str>) -> String {
    let clusters = tier.map_or("{}".to_owned(), |tier| format!("{{ matchLabels: {{ tier: {tier} }} }}"));
    format!(
        "apiVersion: farshore.dev/v1alpha1\nkind: Service\nmetadata: {{ name: {name} }}\nspec: {{ source: {source}, path: {path}, clusters: {clusters} }}\n"
    )
}

pub(crate) fn manifest(value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: it }}\ndata: {{ value: \"{value}\" }}\n")
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let ring = Keyring::at(&folder.path().join("keys"));
        ring.init(RootOptions::default(), NOW).expect("an empty folder");
        Self { fleet: GitRepo::new().expect("git is on PATH"), folder, ring, index: Arc::new(Memory::new()) }
    }

    /// Writes a service with its manifest; it is not committed.
    pub(crate) fn declare(&self, name: &str, tier: Option<&str>, value: &str) {
        self.fleet.write(format!("fleet/{name}.yaml"), service(name, tier)).expect("a temporary folder");
        self.fleet.write(format!("apps/{name}/it.yaml"), manifest(value)).expect("a temporary folder");
    }

    pub(crate) fn commit(&mut self) -> String {
        self.fleet.commit("change").expect("git works")
    }

    pub(crate) fn objects(&self) -> Arc<dyn Objects> {
        self.objects_at("record")
    }

    pub(crate) fn objects_at(&self, folder: &str) -> Arc<dyn Objects> {
        Arc::new(Disk::open(&self.folder.path().join(folder)).expect("a folder of ours"))
    }

    pub(crate) async fn publisher(&self, objects: &Arc<dyn Objects>, mirrors: &str) -> Publisher {
        self.publisher_through(objects, objects, mirrors).await
    }

    /// A publisher that works through other objects than it has its trust root from.
    pub(crate) async fn publisher_through(
        &self,
        objects: &Arc<dyn Objects>,
        through: &Arc<dyn Objects>,
        mirrors: &str,
    ) -> Publisher {
        let trust = Trust::establish(&**objects, &self.ring).await.expect("our own keys");
        Publisher::new(Arc::clone(through), Arc::clone(&self.index), trust, self.options(mirrors))
    }

    /// A publisher that is told something else than most are.
    pub(crate) async fn publisher_with(&self, objects: &Arc<dyn Objects>, options: Options) -> Publisher {
        let trust = Trust::establish(&**objects, &self.ring).await.expect("our own keys");
        Publisher::new(Arc::clone(objects), Arc::clone(&self.index), trust, options)
    }

    /// What publishers are told: every source is due at every step.
    pub(crate) fn options(&self, mirrors: &str) -> Options {
        let fleet = FleetRepository {
            url: GitUrl::of_path(self.fleet.path()).expect("an absolute path"),
            branch: Branch::Default,
        };
        Options {
            fleet: Some(fleet),
            files: FileSources::Allowed,
            mirrors: self.folder.path().join(mirrors),
            policy: Policy::default(),
            interval: Duration::ZERO,
            // What is begun is waited for, so that a test knows when it is done.
            sync: SyncOptions { grace: Duration::from_secs(60), ..SyncOptions::default() },
        }
    }

    pub(crate) fn root(&self) -> Digest {
        Digest::of(&self.ring.root().expect("made before"))
    }

    pub(crate) fn claims(id: &str, given: &str, uses: u32) -> Claims {
        Claims { id: id.into(), labels: labels(given), expires: u64::MAX / 2, uses, replaces: None }
    }

    pub(crate) fn request(&self, claims: Claims, cluster: &str, key: &SigningKey) -> EnrollRequest {
        let token = JoinToken::issue(claims, &self.ring.token().expect("made before"), self.root());
        let (cluster, key, sealing_key) = (name(cluster), key.public().clone(), "sealing".to_owned());
        let proof = token.prove(&cluster, &key, &sealing_key);
        EnrollRequest { claims: token.claims_text, cluster, key, sealing_key, proof }
    }

    /// Records a request to enrol, as a serving replica does, and returns its id.
    pub(crate) async fn ask(&self, objects: &Arc<dyn Objects>, request: &EnrollRequest) -> Digest {
        let bytes = Bytes::from(serde_json::to_vec(request).expect("a request is JSON"));
        let id = Digest::of(&bytes);
        let put = objects.put(&record::pending(id), bytes, Condition::Always).await.expect("a disk");
        assert!(matches!(put, PutOutcome::Stored(_)));
        id
    }

    pub(crate) async fn enrol(&self, objects: &Arc<dyn Objects>, cluster: &str, given: &str) -> SigningKey {
        let key = SigningKey::generate();
        let request = self.request(Self::claims(&format!("of-{cluster}"), given, 1), cluster, &key);
        self.ask(objects, &request).await;
        key
    }

    pub(crate) async fn approve(&self, objects: &Arc<dyn Objects>, held: &HeldChange, key: &SigningKey) {
        let approval = Approval { held: held.clone(), issued: NOW };
        let bytes = Bytes::from(Envelope::seal(&approval, &[key]).to_bytes());
        let key = record::approval(&held.change).expect("an id is a part of a key");
        let _ = objects.put(&key, bytes, Condition::Always).await.expect("a disk");
    }

    pub(crate) async fn published(&self, objects: &Arc<dyn Objects>) -> Published {
        let (trust, _) = Trust::establish(&**objects, &self.ring).await.expect("our own keys");
        Published::load(objects, &trust.director()).await.expect("a whole publication")
    }

    pub(crate) async fn intent(&self, objects: &Arc<dyn Objects>) -> Intent {
        self.published(objects).await.intent
    }

    /// A copy of the record as it is now.
    pub(crate) fn copy_record(&self, from: &str, to: &str) {
        let to = self.folder.path().join(to);
        if to.exists() {
            std::fs::remove_dir_all(&to).expect("a folder of ours");
        }
        copy(&self.folder.path().join(from), &to);
    }
}

pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder of ours");
    for entry in std::fs::read_dir(from).expect("a folder of ours").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).expect("a file of ours");
        }
    }
}

/// Syncs, and everything must go well.
pub(crate) async fn sync(publisher: &mut Publisher) -> StepReport {
    let report = publisher.step(Step::Sync).await.expect("a good record");
    assert_eq!(report.failed, Vec::<String>::new());
    report
}

/// A site as the wire wants it: it takes what is not older than what it has, and lets a service go only
/// by a tombstone.
#[derive(Debug, Default, Clone)]
pub(crate) struct Site {
    pub(crate) services: BTreeMap<Name, u64>,
    pub(crate) roster: u64,
    pub(crate) groups: BTreeMap<GroupId, u64>,
}

impl Site {
    pub(crate) fn take(&mut self, roster: &Roster, group: &Group) {
        assert!(roster.sequence >= self.roster, "a roster went back ({} < {})", roster.sequence, self.roster);
        let mark = self.groups.entry(group.group).or_default();
        assert!(group.sequence >= *mark, "a group went back ({} < {mark})", group.sequence);
        assert!(group.sequence >= roster.floor, "a group below the floor");
        (*mark, self.roster) = (group.sequence, roster.sequence);
        let entries: Vec<_> = group.entries().into_iter().map(|entry| entry.expect("an entry")).collect();
        for tombstone in roster.tombstones.iter().chain(&group.tombstones) {
            let is_named =
                entries.iter().any(|e| e.name == tombstone.service && e.incarnation == tombstone.incarnation);
            if !is_named && self.services.get(&tombstone.service) == Some(&tombstone.incarnation) {
                self.services.remove(&tombstone.service);
            }
        }
        self.services.extend(entries.into_iter().map(|entry| (entry.name, entry.incarnation)));
    }

    /// Polls, and checks that everything which the answer names is there.
    pub(crate) async fn poll(&mut self, objects: &Arc<dyn Objects>, cluster: &str) -> bool {
        let view = View::new(Arc::clone(objects), Arc::new(Memory::new()));
        let Some(roster) = view.roster(&name(cluster), Freshness::Now).await.expect("a good record") else {
            return false;
        };
        let publication = view.publication(Freshness::Now).await.expect("a good record");
        let Some(publication) = publication else { return false };
        let id = roster.document.group;
        let reference = publication.group(&id).expect("a roster names a group of the table");
        let group = view.group(id, reference.sequence).await.expect("a body that the table names");
        assert_eq!(group.digest, reference.digest, "the table names the body by its digest");
        for entry in group.document.entries().into_iter().flatten() {
            let key = record::artifact(entry.artifact.digest);
            let stored = objects.get(&key, 1 << 20).await.expect("a disk").expect("a named artifact");
            assert_eq!(Digest::of(&stored.bytes), entry.artifact.digest);
        }
        self.take(&roster.document, &group.document);
        true
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.services.keys().map(Name::as_str).collect()
    }
}
