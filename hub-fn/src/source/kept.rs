//! Mirrors in the record, so that a replica with an empty disk fetches only what is new.
//!
//! `mirrors/{name}/head` lists packs that are complete together, and each is an object of its own, named
//! by its digest. None of it is signed and none is believed: a pack counts if it has its digest and every
//! object in it is what its id says, and the mirror if the commit is there that is asked for. What is
//! wrong costs a fetch of everything.
//!
//! The head moves by compare-and-swap, and nothing is deleted here: a pack that no head lists any more is left to
//! [`crate::retention`], beside which this is safe for the reasons that are given there.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use farshore_shared::digest::Digest;
use futures::TryStreamExt as _;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;

use super::packs::{self, Pack};
use super::{CommitId, GitUrl, Mirror, SourceError};
use crate::objects::{Condition, Key, Objects, ObjectsError, PutOutcome, Version};
use crate::record;

/// The most bytes of one pack that is kept: it is held in memory on its way.
pub const PACK_LIMIT: u64 = 256 << 20;
/// The most bytes of all packs of one mirror.
pub const MIRROR_LIMIT: u64 = 1 << 30;
/// The most bytes of the list.
const HEAD_LIMIT: u64 = 1 << 20;
/// How often a list is decided anew when others move it.
const ATTEMPTS: u32 = 8;
/// How many keys are listed at once.
const PAGE: usize = 1000;

/// A mirror in the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptMirror {
    /// The digest of the repository's address: a source that moved begins anew.
    pub url: Digest,
    /// A commit that is in it, with its history.
    pub commit: String,
    /// The packs, complete together.
    pub packs: Vec<KeptPack>,
    /// How often it was written: so that no two lists of one mirror are the same bytes.
    #[serde(default)]
    pub generation: u64,
}

/// One pack of a [`KeptMirror`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptPack {
    /// Git's own checksum of it.
    pub pack: String,
    /// The digest of its bytes, by which the object is named.
    pub digest: Digest,
    /// Its bytes.
    pub size: u64,
}

/// Why a mirror is not in the record, or does not come out of it.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// The object storage.
    #[error("accessing the record")]
    Objects(#[from] ObjectsError),
    /// The list cannot be read.
    #[error("the list of a mirror's packs cannot be read ({0})")]
    List(Key),
    /// A pack that is listed is not there.
    #[error("a pack that is listed is missing ({0})")]
    Missing(Digest),
    /// A pack is not what its name says.
    #[error("a pack does not have the digest that names it ({0})")]
    Digest(Digest),
    /// More bytes than a mirror may have.
    #[error("a mirror is larger than what is kept in the record ({0} bytes of {MIRROR_LIMIT})")]
    TooLarge(u64),
    /// The disk.
    #[error("using the disk ({path})")]
    Disk {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A pack, or what the packs make together.
    #[error("making a mirror of what is in the record")]
    Source(#[from] SourceError),
    /// The task that does it was ended.
    #[error("working on a mirror")]
    Ended(#[from] tokio::task::JoinError),
}

fn address(url: &GitUrl) -> Digest {
    Digest::of(url.as_str().as_bytes())
}

fn disk(path: &Path) -> impl FnOnce(io::Error) -> KeptError {
    let path = path.to_path_buf();
    move |source| KeptError::Disk { path, source }
}

/// What stands in the record as the head of a mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// Nothing.
    Absent,
    /// A list.
    Listed(KeptMirror, Version),
    /// Something else; without its version where it is too large to be read at all.
    Unreadable(Option<Version>),
}

/// Reads the head of a mirror.
///
/// # Errors
/// [`ObjectsError`].
pub async fn read_head(objects: &dyn Objects, name: &str) -> Result<Head, ObjectsError> {
    match objects.get(&record::mirror_head(name), HEAD_LIMIT).await {
        Ok(None) => Ok(Head::Absent),
        Ok(Some(stored)) => Ok(match serde_json::from_slice(&stored.bytes) {
            Ok(kept) => Head::Listed(kept, stored.version),
            Err(_not_a_list) => Head::Unreadable(Some(stored.version)),
        }),
        Err(ObjectsError::TooLarge { .. }) => Ok(Head::Unreadable(None)),
        Err(error) => Err(error),
    }
}

impl Head {
    /// The list, where it is of this address.
    fn of(&self, url: &GitUrl) -> Option<&KeptMirror> {
        match self {
            Self::Listed(kept, _) if kept.url == address(url) => Some(kept),
            Self::Listed(..) | Self::Absent | Self::Unreadable(_) => None,
        }
    }

    fn generation(&self) -> u64 {
        if let Self::Listed(kept, _) = self { kept.generation } else { 0 }
    }

    /// Under which condition it is replaced; none where it is too large to be anything of ours.
    fn condition(&self) -> Option<Condition> {
        match self {
            Self::Absent => Some(Condition::Absent),
            Self::Listed(_, version) | Self::Unreadable(Some(version)) => {
                Some(Condition::Matches(version.clone()))
            }
            Self::Unreadable(None) => None,
        }
    }

    /// What says the same in other bytes, and under which condition it is written: whoever has read this head
    /// before has to read it again. None where that cannot be done.
    #[must_use]
    pub fn fence(&self) -> Option<(Bytes, Condition)> {
        let nothing =
            KeptMirror { url: Digest::of(b""), commit: String::new(), packs: vec![], generation: 0 };
        let kept = if let Self::Listed(kept, _) = self { kept.clone() } else { nothing };
        Some((KeptMirror { generation: kept.generation + 1, ..kept }.encode(), self.condition()?))
    }
}

impl KeptMirror {
    fn encode(&self) -> Bytes {
        Bytes::from(serde_json::to_vec(self).expect("a list of packs has string keys only"))
    }
}

/// Stores what the record does not have of the mirror in this folder, and which packs it has; true if
/// anything was stored.
///
/// # Errors
/// [`KeptError`]. The record then has what it had.
pub async fn keep(objects: &dyn Objects, name: &str, url: &GitUrl, dir: &Path) -> Result<bool, KeptError> {
    let (local, commit) = {
        let folder = dir.to_path_buf();
        let read = move || Ok((packs::list(&folder)?, Mirror::open(&folder).ok().and_then(|m| m.fetched())));
        tokio::task::spawn_blocking(read).await?.map_err(disk(dir))?
    };
    let total: u64 = local.iter().map(|pack| pack.size).sum();
    if total > MIRROR_LIMIT || local.iter().any(|pack| pack.size > PACK_LIMIT) {
        return Err(KeptError::TooLarge(total));
    }
    let Some(commit) = commit else { return Ok(false) };
    let key = record::mirror_head(name);
    for _ in 0..ATTEMPTS {
        let head = read_head(objects, name).await?;
        let before = head.of(url).map(|kept| kept.packs.clone()).unwrap_or_default();
        // A pack that somebody deleted is stored again.
        let there = stored(objects, name).await?;
        let known = |pack: &Pack| {
            before.iter().find(|kept| kept.pack == pack.id && there.contains(&kept.digest)).cloned()
        };
        if local.iter().all(|pack| known(pack).is_some()) {
            return Ok(false);
        }
        let mut packs = Vec::new();
        for pack in &local {
            packs.push(match known(pack) {
                Some(kept) => kept,
                None => store(objects, name, pack).await?,
            });
        }
        let generation = head.generation() + 1;
        let kept = KeptMirror { url: address(url), commit: commit.to_string(), packs, generation };
        let condition = head.condition().ok_or_else(|| KeptError::List(key.clone()))?;
        match objects.put(&key, kept.encode(), condition).await? {
            PutOutcome::Stored(_) => return Ok(true),
            PutOutcome::Conflict => {}
        }
    }
    Err(ObjectsError::Contended { key: key.to_string(), attempts: ATTEMPTS }.into())
}

/// The packs that the record has of a mirror, listed in its head or not.
async fn stored(objects: &dyn Objects, name: &str) -> Result<BTreeSet<Digest>, ObjectsError> {
    let prefix = format!("{}{name}/", record::MIRRORS);
    let (mut digests, mut after) = (BTreeSet::new(), None);
    loop {
        let page = objects.list(&prefix, after.as_ref(), PAGE).await?;
        let is_last = page.len() < PAGE;
        after = page.last().map(|listed| listed.key.clone());
        let digest = |key: &Key| -> Option<Digest> {
            key.as_str().strip_prefix(&prefix)?.strip_suffix(".pack")?.parse().ok()
        };
        digests.extend(page.iter().filter_map(|listed| digest(&listed.key)));
        if is_last {
            return Ok(digests);
        }
    }
}

async fn store(objects: &dyn Objects, name: &str, pack: &Pack) -> Result<KeptPack, KeptError> {
    let bytes = tokio::fs::read(&pack.path).await.map_err(disk(&pack.path))?;
    let (digest, size) = (Digest::of(&bytes), bytes.len() as u64);
    match objects.put(&record::mirror_pack(name, digest), bytes.into(), Condition::Absent).await? {
        PutOutcome::Stored(_) | PutOutcome::Conflict => {}
    }
    Ok(KeptPack { pack: pack.id.clone(), digest, size })
}

/// Makes the mirror of a source from what the record has of it, in a folder that does not exist; false
/// if it has nothing.
///
/// # Errors
/// [`KeptError`]. The folder then does not exist.
pub async fn restore(objects: &dyn Objects, name: &str, url: &GitUrl, dir: &Path) -> Result<bool, KeptError> {
    let head = read_head(objects, name).await?;
    if let Head::Unreadable(_) = head {
        return Err(KeptError::List(record::mirror_head(name)));
    }
    let Some(kept) = head.of(url) else { return Ok(false) };
    let total: u64 = kept.packs.iter().map(|pack| pack.size).sum();
    let Some(commit) = kept.commit.parse::<CommitId>().ok().filter(|_| total <= MIRROR_LIMIT) else {
        return Err(KeptError::TooLarge(total));
    };
    let beside = dir.with_added_extension("restored");
    remove(&beside).await?;
    tokio::fs::create_dir_all(&beside).await.map_err(disk(&beside))?;
    let made = restore_into(objects, name, kept, &beside).await;
    let made = match made {
        Ok(packs) => {
            let (dir, beside) = (dir.to_path_buf(), beside.clone());
            tokio::task::spawn_blocking(move || Mirror::restore(&dir, &beside, &packs, &commit))
                .await?
                .map_err(Into::into)
        }
        Err(error) => Err(error),
    };
    remove(&beside).await?;
    made.map(|()| true)
}

/// Brings every pack into the folder, each with its digest.
async fn restore_into(
    objects: &dyn Objects,
    name: &str,
    kept: &KeptMirror,
    folder: &Path,
) -> Result<Vec<PathBuf>, KeptError> {
    let mut packs = Vec::new();
    for pack in &kept.packs {
        let content = objects.read(&record::mirror_pack(name, pack.digest), None).await?;
        let mut content = content.ok_or(KeptError::Missing(pack.digest))?;
        if content.total != pack.size {
            return Err(KeptError::Digest(pack.digest));
        }
        let path = folder.join(pack.digest.to_string());
        let mut file = tokio::fs::File::create(&path).await.map_err(disk(&path))?;
        while let Some(piece) = content.stream.try_next().await? {
            file.write_all(&piece).await.map_err(disk(&path))?;
        }
        file.flush().await.map_err(disk(&path))?;
        let (written, digest) = (path.clone(), pack.digest);
        let real = tokio::task::spawn_blocking(move || std::fs::read(&written).map(|b| Digest::of(&b)));
        if real.await?.map_err(disk(&path))? != digest {
            return Err(KeptError::Digest(digest));
        }
        packs.push(path);
    }
    Ok(packs)
}

async fn remove(folder: &Path) -> Result<(), KeptError> {
    match tokio::fs::remove_dir_all(folder).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(disk(folder)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}
