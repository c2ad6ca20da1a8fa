//! What of the record is needed, and how long what is not needed is kept. Pure.

use std::collections::{BTreeMap, BTreeSet};

use farshore_shared::digest::Digest;
use farshore_shared::wire::Group;

use crate::objects::Key;
use crate::record::{self, DirectoryHead, Head, Intent, Manifest, Table};

/// A kind of object that can become unneeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Content of a service.
    Artifact,
    /// The body of a group document.
    Group,
    /// What a publication decided.
    Intent,
    /// A shard of the table of groups.
    Table,
    /// A shard of the directory.
    DirectoryShard,
    /// The list of the directory's shards.
    DirectoryManifest,
    /// A part of the directory's log.
    DirectoryLog,
    /// Why a request to enrol was refused.
    Refusal,
    /// An operator's word for a held change.
    Approval,
    /// A patch from one artifact to another.
    Delta,
    /// What a start-up proof left behind.
    Proof,
    /// Which packs a mirror has.
    Mirror,
    /// A pack of a mirror.
    MirrorPack,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Artifact,
        Self::Group,
        Self::Intent,
        Self::Table,
        Self::DirectoryShard,
        Self::DirectoryManifest,
        Self::DirectoryLog,
        Self::Refusal,
        Self::Approval,
        Self::Delta,
        Self::Proof,
        Self::Mirror,
        Self::MirrorPack,
    ];

    /// What keys of any kind begin with.
    pub const PREFIXES: [&str; 10] = [
        record::APPROVALS,
        "artifacts/",
        "deltas/",
        "enrolments/refused/",
        "fleet/intents/",
        "fleet/tables/",
        "groups/",
        "index/",
        record::MIRRORS,
        "proof/",
    ];

    /// The kind of an object; none of one that is never collected.
    #[must_use]
    pub fn of(key: &Key) -> Option<Self> {
        let parts: Vec<&str> = key.as_str().split('/').collect();
        match parts[..] {
            ["artifacts", "sha256", _] => Some(Self::Artifact),
            ["groups", _, _] => Some(Self::Group),
            ["fleet", "intents", _] => Some(Self::Intent),
            ["fleet", "tables", _] => Some(Self::Table),
            ["index", "manifests", _] => Some(Self::DirectoryManifest),
            ["index", "log", _] => Some(Self::DirectoryLog),
            ["index", shard, _] if shard.parse::<u16>().is_ok() => Some(Self::DirectoryShard),
            ["enrolments", "refused", _] => Some(Self::Refusal),
            ["approvals", _] => Some(Self::Approval),
            ["deltas", _, _] => Some(Self::Delta),
            ["proof", _] => Some(Self::Proof),
            ["mirrors", _, "head"] => Some(Self::Mirror),
            ["mirrors", _, pack] if pack.ends_with(".pack") => Some(Self::MirrorPack),
            _ => None,
        }
    }

    /// The pointer behind which an object of this kind is found, if any: who moves it fences them.
    #[must_use]
    pub fn pointer(self, key: &Key) -> Option<Pointer> {
        match self {
            Self::Artifact | Self::Group | Self::Intent | Self::Table => Some(Pointer::Fleet),
            Self::DirectoryShard | Self::DirectoryManifest | Self::DirectoryLog => Some(Pointer::Directory),
            Self::Mirror | Self::MirrorPack => mirror_of(key).map(|name| Pointer::Mirror(name.to_owned())),
            Self::Refusal | Self::Approval | Self::Delta | Self::Proof => None,
        }
    }

    /// Its name: what metrics and listings are labelled with.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Artifact => "artifact",
            Self::Group => "group",
            Self::Intent => "intent",
            Self::Table => "table",
            Self::DirectoryShard => "directory-shard",
            Self::DirectoryManifest => "directory-manifest",
            Self::DirectoryLog => "directory-log",
            Self::Refusal => "refusal",
            Self::Approval => "approval",
            Self::Delta => "delta",
            Self::Proof => "proof",
            Self::Mirror => "mirror",
            Self::MirrorPack => "mirror-pack",
        }
    }

    /// Why an object of this kind is not needed.
    #[must_use]
    pub fn why(self) -> &'static str {
        match self {
            Self::Artifact => "no current or previous group document names it",
            Self::Group => "it is neither the current nor the previous document of its group",
            Self::Intent | Self::Table => "fleet/head does not name it",
            Self::DirectoryShard => "the current manifest does not name it",
            Self::DirectoryManifest => "index/head does not name it",
            Self::DirectoryLog => "the snapshot of the directory holds it",
            Self::Refusal => "the site has had time to read it",
            Self::Approval => "its commit is published, or nobody used it",
            Self::Delta => "the artifact that it leads to is not needed",
            Self::Proof => "its proof is over",
            Self::Mirror => "no source of its name is declared",
            Self::MirrorPack => "no mirror of a declared source has it",
        }
    }
}

/// A pointer that moves by compare-and-swap.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pointer {
    /// `fleet/head`.
    Fleet,
    /// `index/head`.
    Directory,
    /// `mirrors/{name}/head`.
    Mirror(String),
}

impl Pointer {
    /// Whether an object is one of them: whoever has read one reads the claim next.
    #[must_use]
    pub fn is_at(key: &Key) -> bool {
        *key == record::head() || *key == record::directory_head() || Kind::of(key) == Some(Kind::Mirror)
    }
}

/// The source of whose mirror an object is a part.
fn mirror_of(key: &Key) -> Option<&str> {
    key.as_str().strip_prefix(record::MIRRORS)?.split('/').next()
}

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

/// How long what nobody needs is kept, in seconds since it was first found unneeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// What documents named: longer than a publication, a presigned URL and a download together.
    pub unneeded: u64,
    /// Refusals of requests to enrol.
    pub refusals: u64,
    /// Approvals that nobody used.
    pub approvals: u64,
}

impl Rules {
    /// The shortest time for which what documents named is kept.
    pub const LEAST: u64 = HOUR;
}

impl Default for Rules {
    fn default() -> Self {
        Self { unneeded: DAY, refusals: 7 * DAY, approvals: 90 * DAY }
    }
}

/// What one reading of the record's pointers needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needed {
    keys: BTreeSet<Key>,
    artifacts: BTreeSet<Digest>,
    used: BTreeSet<Key>,
    directory: Option<u64>,
    mirrors: BTreeMap<String, Packs>,
}

/// Which packs the mirror of a declared source needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packs {
    /// Those that its head lists.
    Listed(BTreeSet<Digest>),
    /// Any: its head cannot be read, and the next fetch replaces it.
    Unknown,
}

impl Needed {
    /// What a publication needs, beside the bodies of its groups.
    pub fn publication(&mut self, head: &Head, intent: &Intent, table: &Table) {
        self.keys.insert(record::intent(head.intent));
        self.keys.extend(head.tables.iter().map(|&digest| record::table(digest)));
        self.keys.extend(table.0.iter().map(|(id, group)| record::group(*id, group.sequence)));
        let published = intent.services.values().filter_map(|service| service.published.as_ref());
        for published in published {
            self.artifact(published.artifact.digest);
        }
    }

    /// What the body of a group needs: its artifacts. Its own key is needed as the table, or the body
    /// after it, names it.
    pub fn body(&mut self, group: &Group) {
        self.keys.insert(record::group(group.group, group.sequence));
        for entry in group.entries().into_iter().flatten() {
            self.artifact(entry.artifact.digest);
        }
    }

    /// What a snapshot of the directory needs.
    pub fn directory(&mut self, head: &DirectoryHead, manifest: &Manifest) {
        self.keys.insert(record::directory_manifest(head.manifest));
        let shards = manifest.shards.iter();
        self.keys.extend(shards.map(|(&shard, at)| record::directory_shard(shard, at.digest)));
        self.directory = Some(head.position);
    }

    /// What the mirror of a declared source needs.
    pub fn mirror(&mut self, source: &str, packs: Packs) {
        self.mirrors.insert(source.to_owned(), packs);
    }

    /// An approval whose commit is published.
    pub fn used_approval(&mut self, key: Key) {
        self.used.insert(key);
    }

    fn artifact(&mut self, digest: Digest) {
        self.artifacts.insert(digest);
        self.keys.insert(record::artifact(digest));
    }

    /// What an object is and for how many seconds it is kept, if it is not needed.
    #[must_use]
    pub fn unneeded(&self, key: &Key, rules: &Rules) -> Option<(Kind, u64)> {
        let kind = Kind::of(key)?;
        if self.is_needed(kind, key) {
            return None;
        }
        let keep = match kind {
            Kind::Refusal => rules.refusals,
            Kind::Approval if !self.used.contains(key) => rules.approvals,
            _ => rules.unneeded,
        };
        Some((kind, keep))
    }

    fn is_needed(&self, kind: Kind, key: &Key) -> bool {
        let last = key.as_str().rsplit('/').next().unwrap_or_default();
        match kind {
            Kind::Artifact | Kind::Group | Kind::Intent | Kind::Table => self.keys.contains(key),
            // Without a snapshot every part of the directory is needed.
            Kind::DirectoryShard | Kind::DirectoryManifest => {
                self.directory.is_none() || self.keys.contains(key)
            }
            Kind::DirectoryLog => match (self.directory, last.parse::<u64>()) {
                (Some(position), Ok(part)) => part > position,
                _ => true,
            },
            Kind::Delta => last.parse().is_ok_and(|to| self.artifacts.contains(&to)),
            Kind::Mirror => mirror_of(key).is_some_and(|name| self.mirrors.contains_key(name)),
            Kind::MirrorPack => match mirror_of(key).and_then(|name| self.mirrors.get(name)) {
                Some(Packs::Listed(packs)) => {
                    let digest = last.strip_suffix(".pack").and_then(|digest| digest.parse().ok());
                    digest.is_some_and(|digest| packs.contains(&digest))
                }
                Some(Packs::Unknown) => true,
                None => false,
            },
            Kind::Refusal | Kind::Approval | Kind::Proof => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).expect("a key")
    }

    #[test]
    fn what_is_never_collected_has_no_kind() {
        for kept in [
            "fleet/head",
            "index/head",
            "sources/podinfo/head",
            "mirrors/podinfo/notes",
            "rosters/0001/a",
            "registrations/0001/a",
            "status/0001/a",
            "enrolments/pending/x",
            "enrolments/used/x/1",
            "seen/01",
            "trust/roots/1",
            "gc/claim",
            "something/else",
        ] {
            assert_eq!(Kind::of(&key(kept)), None, "{kept}");
        }
    }

    #[test]
    fn every_kind_is_listed_under_a_prefix() {
        let digest = Digest::of(b"x");
        let keys = [
            record::artifact(digest),
            record::group(digest, 1),
            record::intent(digest),
            record::table(digest),
            record::directory_shard(7, digest),
            record::directory_manifest(digest),
            record::directory_log(3),
            record::refused(digest),
            key("approvals/abc"),
            key("deltas/a/b"),
            key("proof/x"),
            record::mirror_head("podinfo"),
            record::mirror_pack("podinfo", digest),
        ];
        for (key, kind) in keys.iter().zip(Kind::ALL) {
            assert_eq!(Kind::of(key), Some(kind), "{key}");
            assert_eq!(Kind::PREFIXES.iter().filter(|p| key.as_str().starts_with(**p)).count(), 1, "{key}");
        }
    }

    #[test]
    fn a_directory_without_a_snapshot_needs_all_its_parts_and_one_with_a_snapshot_those_after_it() {
        let (mut needed, rules) = (Needed::default(), Rules::default());
        let (old, new) = (Digest::of(b"old"), Digest::of(b"new"));
        let (shard, log) = (record::directory_shard(1, old), record::directory_log(4));
        assert_eq!(needed.unneeded(&shard, &rules), None);
        assert_eq!(needed.unneeded(&log, &rules), None);
        let head = DirectoryHead { epoch: 1, position: 4, manifest: new, issued: 1 };
        needed.directory(&head, &Manifest::default());
        assert_eq!(needed.unneeded(&shard, &rules), Some((Kind::DirectoryShard, DAY)));
        assert_eq!(needed.unneeded(&log, &rules), Some((Kind::DirectoryLog, DAY)));
        assert_eq!(needed.unneeded(&record::directory_log(5), &rules), None);
        assert_eq!(needed.unneeded(&record::directory_manifest(new), &rules), None);
        assert_eq!(needed.unneeded(&key("index/log/garbage"), &rules), None, "what cannot be read is kept");
    }

    #[test]
    fn an_approval_is_kept_long_until_it_is_used_and_a_delta_as_long_as_its_target() {
        let (mut needed, rules) = (Needed::default(), Rules::default());
        let (used, unused) = (key("approvals/used"), key("approvals/unused"));
        needed.used_approval(used.clone());
        assert_eq!(needed.unneeded(&used, &rules), Some((Kind::Approval, DAY)));
        assert_eq!(needed.unneeded(&unused, &rules), Some((Kind::Approval, 90 * DAY)));
        let (from, to) = (Digest::of(b"from"), Digest::of(b"to"));
        needed.artifact(to);
        assert_eq!(needed.unneeded(&key(&format!("deltas/{from}/{to}")), &rules), None);
        let back = key(&format!("deltas/{to}/{from}"));
        assert_eq!(needed.unneeded(&back, &rules), Some((Kind::Delta, DAY)));
        assert_eq!(needed.unneeded(&record::artifact(from), &rules), Some((Kind::Artifact, DAY)));
        assert_eq!(needed.unneeded(&record::artifact(to), &rules), None);
    }

    #[test]
    fn a_mirror_needs_the_packs_of_its_head_and_is_needed_as_long_as_its_source_is_declared() {
        let (mut needed, rules) = (Needed::default(), Rules::default());
        let (listed, old) = (Digest::of(b"listed"), Digest::of(b"old"));
        needed.mirror("app", Packs::Listed([listed].into()));
        needed.mirror("odd", Packs::Unknown);
        let pack = |name: &str, digest| needed.unneeded(&record::mirror_pack(name, digest), &rules);
        assert_eq!((pack("app", listed), pack("app", old)), (None, Some((Kind::MirrorPack, DAY))));
        assert_eq!(pack("odd", old), None, "a head that cannot be read may list anything");
        assert_eq!(pack("gone", listed), Some((Kind::MirrorPack, DAY)));
        let head = |name: &str| needed.unneeded(&record::mirror_head(name), &rules);
        assert_eq!((head("app"), head("odd"), head("gone")), (None, None, Some((Kind::Mirror, DAY))));
        let pointer = |key: &Key| Kind::of(key).and_then(|kind| kind.pointer(key));
        for key in [record::mirror_head("app"), record::mirror_pack("app", old)] {
            assert_eq!(pointer(&key), Some(Pointer::Mirror("app".into())), "{key}");
        }
    }
}
