//! The mirrors on this disk: a cache. What is missing comes from the record, what is new goes there, and
//! what was not used for longest is dropped beyond a limit.
//!
//! One task, the *keeper*, stores and drops; it hears of used mirrors by a channel, so that no
//! publication waits for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use farshore_shared::exit::chain;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use super::sync::Place;
use crate::objects::Objects;
use crate::source::kept::{self, KeptError};

/// What a mirror is to the cache.
#[derive(Debug, Clone, Copy)]
struct Cached {
    /// How many looks use it in this moment.
    users: usize,
    bytes: u64,
    used: Instant,
}

type Cache = Arc<Mutex<BTreeMap<PathBuf, Cached>>>;

fn locked(cache: &Cache) -> MutexGuard<'_, BTreeMap<PathBuf, Cached>> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The mirrors, for one look.
#[derive(Debug, Clone)]
pub(super) struct Mirrors {
    objects: Arc<dyn Objects>,
    cache: Cache,
    used: mpsc::UnboundedSender<Told>,
}

/// What the keeper hears.
#[derive(Debug)]
enum Told {
    /// A look at this place is over.
    Used(Place),
    /// Somebody waits until everything is stored that was used so far.
    Waits(oneshot::Sender<()>),
}

/// The keeper and the way to it.
#[derive(Debug)]
pub(super) struct Keeper {
    mirrors: Mirrors,
    task: JoinHandle<()>,
}

impl Keeper {
    /// Starts the keeper of the mirrors in this folder, which may hold so many bytes.
    pub(super) fn start(objects: Arc<dyn Objects>, folder: PathBuf, limit: u64) -> Self {
        let (used, mut heard) = mpsc::unbounded_channel::<Told>();
        let mirrors = Mirrors { objects, cache: Cache::default(), used };
        let (objects, cache) = (Arc::clone(&mirrors.objects), Arc::clone(&mirrors.cache));
        let task = tokio::spawn(async move {
            find(&cache, &folder);
            let mut known = BTreeMap::new();
            while let Some(told) = heard.recv().await {
                match told {
                    Told::Used(place) => {
                        keep(&*objects, &place, &mut known).await;
                        drop_least_used(&cache, &place.folder(), limit);
                    }
                    // Whoever waited may have gone.
                    Told::Waits(waits) => drop(waits.send(())),
                }
            }
        });
        Self { mirrors, task }
    }

    /// The mirrors, for one look.
    pub(super) fn mirrors(&self) -> Mirrors {
        self.mirrors.clone()
    }

    /// Waits until everything is stored that was used so far, and goes on.
    pub(super) async fn settle(&self) {
        let (waits, stored) = oneshot::channel();
        // A keeper that panicked stores nothing any more: the next process does.
        if self.mirrors.used.send(Told::Waits(waits)).is_err() || stored.await.is_err() {
            warn!("mirrors may not be in the record");
        }
    }

    /// Waits until everything is stored that was used so far, and ends.
    pub(super) async fn finish(self) {
        drop(self.mirrors);
        // It ends once nobody can tell it anything; if it panicked, the next process stores the rest.
        if let Err(error) = self.task.await {
            warn!(%error, "mirrors may not be in the record");
        }
    }
}

impl Mirrors {
    /// Keeps the mirror of this place from being dropped, and makes it from the record if it is not here.
    pub(super) async fn restore(&self, place: &Place) {
        let dir = place.folder();
        locked(&self.cache)
            .entry(dir.clone())
            .or_insert(Cached { users: 0, bytes: 0, used: Instant::now() })
            .users += 1;
        if dir.exists() || !place.is_remote() {
            return;
        }
        match kept::restore(&*self.objects, &place.name, &place.url, &dir).await {
            Ok(true) => info!(source = place.name, "the mirror is restored from the record"),
            Ok(false) => {}
            Err(error) => {
                let error = chain(&error);
                warn!(source = place.name, %error, "the mirror is fetched anew: it is not restored");
            }
        }
    }

    /// The look is over: what is new may be stored, and the mirror dropped when there are too many.
    pub(super) fn release(&self, place: &Place) {
        if let Some(cached) = locked(&self.cache).get_mut(&place.folder()) {
            cached.users = cached.users.saturating_sub(1);
            cached.used = Instant::now();
        }
        // The keeper lives as long as the publisher; after it, there is nothing left to store.
        self.used.send(Told::Used(place.clone())).ok();
    }
}

/// Learns which mirrors an earlier process left here.
fn find(cache: &Cache, folder: &Path) {
    // There is none before the first fetch.
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()) {
        if path.extension().is_some_and(|kind| kind == "dropped" || kind == "restored") {
            // Cut short by the end of that process; what cannot be removed is found again.
            std::fs::remove_dir_all(&path).ok();
            continue;
        }
        let bytes = size(&path);
        locked(cache).entry(path).or_insert(Cached { users: 0, bytes: 0, used: Instant::now() }).bytes =
            bytes;
    }
}

/// Stores what the last fetch brought. `known` are the packs that are stored already, so that a fetch
/// which brought nothing costs no request.
async fn keep(objects: &dyn Objects, place: &Place, known: &mut BTreeMap<PathBuf, Vec<PathBuf>>) {
    let dir = place.folder();
    let packs = packs(&dir);
    if !place.is_remote() || known.get(&dir) == Some(&packs) {
        return;
    }
    match kept::keep(objects, &place.name, &place.url, &dir).await {
        Ok(stored) => {
            debug!(source = place.name, stored, "the mirror is in the record");
            known.insert(dir, packs);
        }
        Err(error @ KeptError::TooLarge(_)) => {
            info!(source = place.name, error = %chain(&error), "a bare replica will fetch all of it");
            known.insert(dir, packs);
        }
        Err(error) => debug!(source = place.name, error = %chain(&error), "the mirror is not stored yet"),
    }
}

fn packs(dir: &Path) -> Vec<PathBuf> {
    // A mirror that is not there has none.
    let entries = std::fs::read_dir(dir.join("objects/pack")).into_iter().flatten().flatten();
    let mut packs: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    packs.sort();
    packs
}

/// The bytes of all files below a folder; what goes away meanwhile counts nothing.
fn size(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_gone) => 0,
    };
    entries.map(of).sum()
}

/// Which mirrors to drop so that the rest fits: least recently used first, none that is in use.
fn to_drop(cached: &BTreeMap<PathBuf, Cached>, limit: u64) -> Vec<PathBuf> {
    let mut total: u64 = cached.values().map(|cached| cached.bytes).sum();
    let mut idle: Vec<_> = cached.iter().filter(|(_, cached)| cached.users == 0).collect();
    idle.sort_by_key(|(_, cached)| cached.used);
    let mut dropped = Vec::new();
    for (dir, cached) in idle {
        if total <= limit {
            break;
        }
        total -= cached.bytes;
        dropped.push(dir.clone());
    }
    dropped
}

fn drop_least_used(cache: &Cache, used: &Path, limit: u64) {
    let bytes = size(used);
    let moved: Vec<PathBuf> = {
        let mut cache = locked(cache);
        if let Some(cached) = cache.get_mut(used) {
            cached.bytes = bytes;
        }
        let moved = to_drop(&cache, limit).into_iter().filter_map(|dir| {
            cache.remove(&dir);
            // Moved away while nobody can begin to use it, removed at leisure.
            let away = dir.with_added_extension("dropped");
            std::fs::rename(&dir, &away).ok().map(|()| away)
        });
        moved.collect()
    };
    for dir in moved {
        info!(mirror = %dir.display(), "a mirror is dropped: the cache is full");
        if let Err(error) = std::fs::remove_dir_all(&dir) {
            warn!(mirror = %dir.display(), %error, "removing a mirror");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_least_recently_used_mirrors_go_and_none_that_is_in_use() {
        let start = Instant::now();
        let cached = |users, bytes, age: u64| Cached { users, bytes, used: start + Duration::from_secs(age) };
        let cache: BTreeMap<PathBuf, Cached> = [
            ("oldest-in-use", cached(1, 50, 0)),
            ("old", cached(0, 30, 1)),
            ("older", cached(0, 30, 0)),
            ("new", cached(0, 30, 2)),
        ]
        .map(|(name, cached)| (PathBuf::from(name), cached))
        .into();
        let dropped = |limit| to_drop(&cache, limit);
        assert_eq!(dropped(140), Vec::<PathBuf>::new());
        assert_eq!(dropped(139), [PathBuf::from("older")]);
        assert_eq!(dropped(80), [PathBuf::from("older"), PathBuf::from("old")]);
        assert_eq!(dropped(0).len(), 3);
    }
}
