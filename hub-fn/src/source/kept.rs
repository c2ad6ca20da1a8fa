//! Mirrors in the record, so that a replica with an empty disk fetches only what is new.
//!
//! `mirrors/{name}/head` lists packs that are complete together, and each is an object of its own, named
//! by its digest. None of it is signed and none is believed: a pack counts if it has its digest and every
//! object in it is what its id says, and the mirror if the commit is there that is asked for. What is
//! wrong costs a fetch of everything.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use farshore_shared::digest::Digest;
use futures::TryStreamExt as _;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;

use super::packs::{self, Pack};
use super::{CommitId, GitUrl, Mirror, SourceError};
use crate::objects::{Condition, Objects, ObjectsError, PutOutcome, update};
use crate::record;

/// The most bytes of one pack that is kept: it is held in memory on its way.
pub const PACK_LIMIT: u64 = 256 << 20;
/// The most bytes of all packs of one mirror.
pub const MIRROR_LIMIT: u64 = 1 << 30;
/// The most bytes of the list.
const HEAD_LIMIT: u64 = 1 << 20;

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
    #[error("reading the list of a mirror's packs")]
    List(#[from] serde_json::Error),
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

async fn head(objects: &dyn Objects, name: &str, url: &GitUrl) -> Result<Option<KeptMirror>, KeptError> {
    let Some(stored) = objects.get(&record::mirror_head(name), HEAD_LIMIT).await? else { return Ok(None) };
    let kept: KeptMirror = serde_json::from_slice(&stored.bytes)?;
    Ok(Some(kept).filter(|kept| kept.url == address(url)))
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
    // A list that cannot be read is replaced.
    let before = match head(objects, name, url).await {
        Err(KeptError::List(_)) => None,
        read => read?,
    };
    let before = before.map(|kept| kept.packs).unwrap_or_default();
    let known = |pack: &Pack| before.iter().find(|kept| kept.pack == pack.id).cloned();
    let Some(commit) = commit.filter(|_| !local.iter().all(|pack| known(pack).is_some())) else {
        return Ok(false);
    };
    let mut packs = Vec::new();
    for pack in &local {
        packs.push(match known(pack) {
            Some(kept) => kept,
            None => store(objects, name, pack).await?,
        });
    }
    let kept = KeptMirror { url: address(url), commit: commit.to_string(), packs };
    let bytes = Bytes::from(serde_json::to_vec(&kept).expect("a list of packs has string keys only"));
    update(objects, &record::mirror_head(name), HEAD_LIMIT, |_| Some(bytes.clone())).await?;
    for old in before.iter().filter(|old| !kept.packs.contains(old)) {
        objects.delete(&record::mirror_pack(name, old.digest)).await?;
    }
    Ok(true)
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
    let Some(kept) = head(objects, name, url).await? else { return Ok(false) };
    let total: u64 = kept.packs.iter().map(|pack| pack.size).sum();
    let Some(commit) = kept.commit.parse::<CommitId>().ok().filter(|_| total <= MIRROR_LIMIT) else {
        return Err(KeptError::TooLarge(total));
    };
    let beside = dir.with_added_extension("restored");
    remove(&beside).await?;
    tokio::fs::create_dir_all(&beside).await.map_err(disk(&beside))?;
    let made = restore_into(objects, name, &kept, &beside).await;
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
