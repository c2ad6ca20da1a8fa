//! A fleet of any size in a record, as a publisher leaves it.
//!
//! The trust root, the groups, their bodies, their table and the head come from the real publisher, which reads
//! a fleet repository: one service for all, one for each group, one founding cluster in each group. The other
//! clusters stand in a snapshot of the directory. What is simpler than in a fleet that grew by itself:
//!
//! - clusters sign with keys of a pool of 1,000, so that making a million takes seconds;
//! - rosters and registrations lie in the record as objects only for clusters that will be asked for them
//!   ([`Recipe::documented`]). The snapshot names a roster of every cluster; of those that are no objects it
//!   names a digest that is made up.

mod change;
mod declared;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use farshore_chaos::kit::{GitHttp, GitRepo};
use farshore_hub_fn::directory::{Reader, Standing, write_snapshot};
use farshore_hub_fn::keyring::{Keyring, PublisherKeys, RootOptions};
use farshore_hub_fn::objects::{Condition, Objects, PutOutcome};
use farshore_hub_fn::publish::Step;
use farshore_hub_fn::publish::state::Published;
use farshore_hub_fn::record::{self, Entry, RosterRef};
use farshore_hub_fn::trust::Trust;
use farshore_shared::clock;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::Envelope;
use farshore_shared::etag::{DesiredTag, Mark};
use farshore_shared::keys::{Secret, SigningKey};
use farshore_shared::names::{Labels, Name};
use farshore_shared::wire::{GroupId, Registration, Roster};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use tempfile::TempDir;

use self::declared::repository;
use crate::error::BenchError;

/// How many different keys the clusters of a seeded fleet have.
const POOL: usize = 1000;
/// Fleets up to this size have all their rosters and registrations as objects.
const SMALL: usize = 2_000;
/// Writes at once.
const AT_ONCE: usize = 16;
/// The label that puts a cluster into its group.
const LABEL: &str = "bench-group";
/// 32 bytes that nothing is ever sealed to.
const SEALING: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
/// How long rosters live, in seconds: as the publisher makes them.
const ROSTER_LIFE: u64 = 60 * 86_400;

/// What sites are told of when to poll.
pub(crate) const POLL_SECONDS: u64 = 60;

/// What fleet there shall be.
pub(crate) struct Recipe<'a> {
    /// How many clusters.
    pub(crate) clusters: usize,
    /// In how many groups.
    pub(crate) groups: usize,
    /// Which clusters, by number, have roster and registration as objects of their own.
    pub(crate) documented: &'a dyn Fn(usize) -> bool,
}

/// A group, and its body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupAt {
    pub(crate) id: GroupId,
    pub(crate) sequence: u64,
    pub(crate) digest: Digest,
}

/// A seeded fleet.
pub(crate) struct Fleet {
    /// How many clusters.
    pub(crate) clusters: usize,
    /// The digest of root 1.
    pub(crate) id: Digest,
    /// The trust root.
    pub(crate) trust: Trust,
    keys: PublisherKeys,
    pool: Vec<SigningKey>,
    groups: Vec<GroupAt>,
    sequence: u64,
    issued: u64,
    founders: Vec<RosterRef>,
    /// Who has roster and registration as objects.
    documented: BTreeSet<usize>,
    // The server is dropped before the repository that it serves.
    server: GitHttp,
    repo: GitRepo,
    folder: TempDir,
}

impl Fleet {
    /// Writes the fleet into an empty record.
    ///
    /// # Errors
    /// [`BenchError`].
    pub(crate) async fn seed(objects: &Arc<dyn Objects>, recipe: &Recipe<'_>) -> Result<Self, BenchError> {
        let folder = TempDir::new().map_err(BenchError::io("making a folder"))?;
        let repo = repository(recipe.groups)?;
        let server = GitHttp::start(&repo).await?;
        let ring = Keyring::at(&folder.path().join("keys"));
        ring.init(RootOptions::default(), clock::now()).map_err(BenchError::ours("making keys"))?;
        let (trust, keys) =
            Trust::establish(&**objects, &ring).await.map_err(BenchError::ours("establishing trust"))?;
        let mut fleet = Self {
            clusters: recipe.clusters,
            id: trust.fleet,
            trust,
            keys,
            pool: (0..POOL).map(key).collect(),
            groups: Vec::new(),
            sequence: 1,
            issued: clock::now(),
            founders: Vec::new(),
            documented: (0..recipe.clusters)
                .filter(|&n| recipe.clusters <= SMALL || (recipe.documented)(n))
                .collect(),
            server,
            repo,
            folder,
        };
        fleet.found(objects, recipe.groups).await?;
        fleet.write_documents(objects).await?;
        fleet.write_directory(objects).await?;
        Ok(fleet)
    }

    /// Enrols one cluster in each group and lets the publisher publish.
    async fn found(&mut self, objects: &Arc<dyn Objects>, groups: usize) -> Result<(), BenchError> {
        // Until the publisher has said which there are.
        self.groups = vec![GroupAt { id: self.id, sequence: 0, digest: self.id }; groups];
        for n in 0..groups {
            let registration = Envelope::seal(&self.registration(n), &[&self.keys.director]).to_bytes();
            put(objects, &record::registration(&self.name(n)), registration.into()).await?;
        }
        let mut publisher = self.publisher(objects)?;
        let report = publisher.step(Step::Sync).await.map_err(BenchError::ours("publishing"))?;
        if report.published.is_none() || !report.failed.is_empty() {
            return Err(BenchError::Wrong(format!("the publisher's first step did {report:?}")));
        }
        let published = Published::load(objects, &self.trust.director()).await;
        let published = published.map_err(BenchError::ours("reading what was published"))?;
        for n in 0..groups {
            let name = self.name(n);
            let bytes = read(objects, &record::roster(&name)).await?;
            let envelope: Envelope =
                serde_json::from_slice(&bytes).map_err(BenchError::ours("reading a roster"))?;
            let roster: Roster = envelope
                .open(&self.trust.director(), farshore_shared::wire::SMALL_LIMIT)
                .map_err(BenchError::ours("opening a roster"))?;
            let group = published.table.0.get(&roster.group);
            let group = group.ok_or_else(|| BenchError::Wrong(format!("{name}'s group has no body")))?;
            self.groups[n] = GroupAt { id: roster.group, sequence: group.sequence, digest: group.digest };
            self.founders.push(RosterRef::of(&roster, Digest::of(&bytes), &roster.labels));
            self.sequence = self.sequence.max(roster.sequence);
        }
        Ok(())
    }

    async fn write_documents(&self, objects: &Arc<dyn Objects>) -> Result<(), BenchError> {
        let numbers = self.documented.range(self.founders.len()..).copied();
        let writes = numbers.map(|n| async move {
            let name = self.name(n);
            let registration = Envelope::seal(&self.registration(n), &[&self.keys.director]).to_bytes();
            put(objects, &record::registration(&name), registration.into()).await?;
            put(objects, &record::roster(&name), self.sealed_roster(n)).await
        });
        stream::iter(writes).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// The snapshot, after every part of the log that there is.
    async fn write_directory(&self, objects: &Arc<dyn Objects>) -> Result<(), BenchError> {
        let director = self.trust.director();
        let reader = Reader::new(&**objects, &director);
        let before = reader.head().await.map_err(BenchError::ours("reading the directory"))?;
        let (mut position, condition) = match before {
            Some((head, version)) => (head.position, Condition::Matches(version)),
            None => (0, Condition::Absent),
        };
        while reader
            .log(position + 1)
            .await
            .map_err(BenchError::ours("reading the directory's log"))?
            .is_some()
        {
            position += 1;
        }
        let standing = Standing { epoch: self.epoch(), position, issued: clock::now() };
        let entries = (0..self.clusters).map(|n| self.entry(n));
        let written = write_snapshot(&**objects, &self.keys.director, standing, condition, entries);
        match written.await? {
            PutOutcome::Stored(_) => Ok(()),
            PutOutcome::Conflict => Err(BenchError::Wrong("somebody else writes the directory".to_owned())),
        }
    }

    fn entry(&self, n: usize) -> Entry {
        let cluster = self.name(n);
        let roster = self.founders.get(n).cloned().unwrap_or_else(|| {
            let roster = self.roster(n);
            let digest = self.roster_digest(n);
            RosterRef::of(&roster, digest, &roster.labels)
        });
        Entry {
            cluster,
            epoch: self.epoch(),
            sequence: 1,
            key: Some(self.key(n).public().clone()),
            labels: self.labels(n),
            roster: Some(roster),
        }
    }

    fn registration(&self, n: usize) -> Registration {
        Registration {
            cluster: self.name(n),
            key: self.key(n).public().clone(),
            sealing_key: SEALING.to_owned(),
            labels: self.labels(n),
            token: "bench".to_owned(),
            epoch: self.epoch(),
            sequence: 1,
            issued: self.issued,
            critical: vec![],
        }
    }

    fn roster(&self, n: usize) -> Roster {
        let group = self.groups[self.group_of(n)];
        Roster {
            cluster: self.name(n),
            key: self.key(n).public().id(),
            group: group.id,
            floor: group.sequence,
            epoch: self.epoch(),
            sequence: self.sequence,
            issued: self.issued,
            expires: self.issued + ROSTER_LIFE,
            labels: self.labels(n),
            tombstones: vec![],
            max_delay_seconds: 3600,
            footprint: Default::default(),
            critical: vec![],
        }
    }

    /// A roster as it is stored. The same fields give the same bytes: Ed25519 is deterministic.
    fn sealed_roster(&self, n: usize) -> Bytes {
        Envelope::seal(&self.roster(n), &[&self.keys.director]).to_bytes().into()
    }

    fn roster_digest(&self, n: usize) -> Digest {
        if self.documented.contains(&n) {
            Digest::of(&self.sealed_roster(n))
        } else {
            Digest::of(self.name(n).as_str().as_bytes())
        }
    }

    fn labels(&self, n: usize) -> Labels {
        let pair = format!("{LABEL}=g{}", n % self.groups.len());
        [farshore_shared::names::label_pair(&pair).expect("a label of letters and digits")]
            .into_iter()
            .collect()
    }

    fn epoch(&self) -> u64 {
        self.trust.root.epoch
    }

    /// The name of a cluster.
    #[expect(clippy::unused_self, reason = "a name is a fleet's; that all fleets name alike is chance")]
    pub(crate) fn name(&self, n: usize) -> Name {
        format!("site-{n:07}").parse().expect("letters, digits and a dash make a name")
    }

    /// The key with which a cluster signs.
    pub(crate) fn key(&self, n: usize) -> &SigningKey {
        &self.pool[n % self.pool.len()]
    }

    /// The group of a cluster, by its place among the groups.
    pub(crate) fn group_of(&self, n: usize) -> usize {
        n % self.groups.len()
    }

    /// Id and body of every group.
    pub(crate) fn groups(&self) -> &[GroupAt] {
        &self.groups
    }

    /// What a cluster holds that has everything, once its roster's digest is known.
    pub(crate) fn tag(&self, n: usize) -> DesiredTag {
        let group = self.groups[self.group_of(n)];
        let (sequence, digest) = match self.founders.get(n) {
            Some(founder) => (founder.sequence, founder.digest),
            None => (self.sequence, self.roster_digest(n)),
        };
        let mark = |sequence, digest: Digest| Mark { sequence, short: digest.short() };
        DesiredTag {
            epoch: self.epoch(),
            roster: mark(sequence, digest),
            group: mark(group.sequence, group.digest),
        }
    }

    /// Where its fleet repository is served.
    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// How often its fleet repository was asked for.
    pub(crate) fn fetches(&self) -> u64 {
        self.server.fetches()
    }

    /// The folder of its keys.
    pub(crate) fn keys_folder(&self) -> PathBuf {
        self.folder.path().join("keys")
    }

    fn ring(&self) -> Keyring {
        Keyring::at(&self.keys_folder())
    }
}

/// A key that is the same in every run.
fn key(n: usize) -> SigningKey {
    let seed = Digest::of(format!("farshore bench key {n}").as_bytes());
    let text = format!("farshore-ed25519 {seed}\n");
    SigningKey::from_seed(Secret::from_file(&text, "ed25519").expect("a digest is 64 hexadecimal digits"))
}

async fn put(
    objects: &Arc<dyn Objects>,
    key: &farshore_hub_fn::objects::Key,
    bytes: Bytes,
) -> Result<(), BenchError> {
    match objects.put(key, bytes, Condition::Always).await? {
        PutOutcome::Stored(_) => Ok(()),
        PutOutcome::Conflict => {
            Err(BenchError::Wrong(format!("a write without a condition met one ({key})")))
        }
    }
}

async fn read(objects: &Arc<dyn Objects>, key: &farshore_hub_fn::objects::Key) -> Result<Bytes, BenchError> {
    let stored = objects.get(key, 4 << 20).await?;
    stored.map(|stored| stored.bytes).ok_or_else(|| BenchError::Wrong(format!("{key} is not in the record")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use farshore_hub_fn::objects::disk::Disk;

    #[tokio::test]
    async fn a_seeded_fleet_is_published_and_its_directory_reads_back() {
        let folder = TempDir::new().expect("a temporary folder");
        let objects: Arc<dyn Objects> = Arc::new(Disk::open(folder.path()).expect("an empty folder"));
        let recipe = Recipe { clusters: 30, groups: 3, documented: &|n| n == 7 };
        let fleet = Fleet::seed(&objects, &recipe).await.expect("a record on disk");
        let director = fleet.trust.director();
        let reader = Reader::new(&*objects, &director);
        let (head, _) = reader.head().await.expect("signed").expect("written");
        let manifest = reader.manifest(head.manifest).await.expect("addressed");
        let mut tags = Vec::new();
        for (shard, at) in &manifest.shards {
            let part = reader.shard(*shard, at).await.expect("addressed");
            tags.extend(part.0.into_iter().map(|entry| (entry.cluster, entry.roster.expect("all have one"))));
        }
        assert_eq!(tags.len(), 30);
        for n in 0..30 {
            let (_, roster) = tags.iter().find(|(name, _)| *name == fleet.name(n)).expect("it is there");
            assert_eq!(fleet.tag(n).roster.short, roster.digest.short(), "cluster {n}");
            assert!(fleet.groups().iter().any(|group| group.id == roster.group));
        }
    }
}
