//! Reading what the record needs now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use farshore_shared::dsse::{Envelope, Refused};
use farshore_shared::names::Name;
use farshore_shared::wire::{DESIRED_LIMIT, Document, Group, GroupId, SMALL_LIMIT};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::needed::{Needed, Packs};
use crate::directory::{DirectoryError, Reader};
use crate::objects::{Key, Objects, ObjectsError, Version};
use crate::publish::state::{Published, StateError};
use crate::record::{self, Approval, DirectoryHead, FLEET, Intent};
use crate::source::kept;
use crate::trust::Trust;

/// How many objects are read at once.
const IN_FLIGHT: usize = 16;
const PAGE: usize = 1000;

/// Why nothing is collected: whoever does not know what is needed deletes nothing.
#[derive(Debug, thiserror::Error)]
pub enum RetentionError {
    /// The object storage.
    #[error("accessing the record")]
    Objects(#[from] ObjectsError),
    /// What was published last cannot be read.
    #[error("reading what was published last")]
    State(#[from] StateError),
    /// The directory cannot be read.
    #[error("reading the directory of clusters")]
    Directory(#[from] DirectoryError),
    /// A body that the table names is not there.
    #[error("object that the record names is missing ({0})")]
    Missing(Key),
    /// A body cannot be read.
    #[error("object of the record is damaged ({0})")]
    Damaged(Key),
    /// A body is not signed by the director.
    #[error("document of the record is refused ({key})")]
    Refused {
        /// Which.
        key: Key,
        /// Why.
        #[source]
        source: Refused,
    },
    /// Publications moved the pointers every time.
    #[error("the record kept changing while it was fenced ({0} attempts)")]
    Contended(usize),
    /// It was stopped, or the record was slow: what is left waits for whoever takes the claim over.
    #[error("collecting took too long and was given up (limit {0} s): the rest is deleted later")]
    TooLate(u64),
}

/// What is published, who is enrolled, and all that both need.
#[derive(Debug)]
pub struct Survey {
    /// What is published; it has a head.
    pub published: Published,
    /// The pointer of the directory, once there is one.
    pub directory: Option<(DirectoryHead, Version)>,
    /// The pointers of all mirrors, those included of sources that are declared no more.
    pub mirrors: BTreeMap<String, kept::Head>,
    /// What is needed.
    pub needed: Needed,
}

impl Survey {
    /// Reads the pointers and all that they lead to; none if nothing was ever published.
    ///
    /// # Errors
    /// [`RetentionError`], also when a single document cannot be read: what it names would be taken for
    /// unneeded.
    pub async fn take(objects: &Arc<dyn Objects>, trust: &Trust) -> Result<Option<Self>, RetentionError> {
        let published = Published::load(objects, &trust.director()).await?;
        let Some((head, _)) = &published.head else { return Ok(None) };
        let mut needed = Needed::default();
        needed.publication(head, &published.intent, &published.table);
        let bodies = published.table.0.iter().map(|(id, group)| bodies(objects, trust, *id, group.sequence));
        let mut bodies = stream::iter(bodies.collect::<Vec<_>>()).buffer_unordered(IN_FLIGHT);
        while let Some(found) = bodies.try_next().await? {
            found.iter().for_each(|body| needed.body(body));
        }
        drop(bodies);
        let directory = read_directory(objects, trust, &mut needed).await?;
        let mirrors = note_mirrors(objects, &published.intent, &mut needed).await?;
        note_used(objects, trust, &published.intent, &mut needed).await?;
        Ok(Some(Self { published, directory, mirrors, needed }))
    }
}

/// The current body of a group, and the one before if it is still there.
async fn bodies(
    objects: &Arc<dyn Objects>,
    trust: &Trust,
    id: GroupId,
    sequence: u64,
) -> Result<Vec<Group>, RetentionError> {
    let current = body(objects, trust, id, sequence).await?;
    let current = current.ok_or_else(|| RetentionError::Missing(record::group(id, sequence)))?;
    let previous = match current.previous {
        Some(previous) => body(objects, trust, id, previous).await?,
        None => None,
    };
    Ok([Some(current), previous].into_iter().flatten().collect())
}

async fn body(
    objects: &Arc<dyn Objects>,
    trust: &Trust,
    id: GroupId,
    sequence: u64,
) -> Result<Option<Group>, RetentionError> {
    let key = record::group(id, sequence);
    let Some(stored) = objects.get(&key, 2 * DESIRED_LIMIT as u64).await? else { return Ok(None) };
    let Ok(envelope) = serde_json::from_slice::<Envelope>(&stored.bytes) else {
        return Err(RetentionError::Damaged(key));
    };
    match envelope.open::<Group>(&trust.director(), DESIRED_LIMIT) {
        // What a newer program wrote and this one cannot read may name something as well.
        Ok(group) if group.entries().iter().any(Result::is_err) => Err(RetentionError::Damaged(key)),
        Ok(group) if group.group == id && group.sequence == sequence => Ok(Some(group)),
        Ok(_another) => Err(RetentionError::Damaged(key)),
        Err(source) => Err(RetentionError::Refused { key, source }),
    }
}

async fn read_directory(
    objects: &Arc<dyn Objects>,
    trust: &Trust,
    needed: &mut Needed,
) -> Result<Option<(DirectoryHead, Version)>, RetentionError> {
    let director = trust.director();
    let reader = Reader::new(&**objects, &director);
    let head = reader.head().await?;
    if let Some((head, _)) = &head {
        needed.directory(head, &reader.manifest(head.manifest).await?);
    }
    Ok(head)
}

/// Reads the heads of all mirrors, and notes what those of declared sources need.
async fn note_mirrors(
    objects: &Arc<dyn Objects>,
    intent: &Intent,
    needed: &mut Needed,
) -> Result<BTreeMap<String, kept::Head>, ObjectsError> {
    let names = mirrors(objects).await?;
    let read = |name: String| async move {
        let head = kept::read_head(&**objects, &name).await?;
        Ok::<_, ObjectsError>((name, head))
    };
    let heads: BTreeMap<String, kept::Head> =
        stream::iter(names).map(read).buffer_unordered(IN_FLIGHT).try_collect().await?;
    let is_declared =
        |name: &str| name == FLEET || name.parse().is_ok_and(|name: Name| intent.sources.contains_key(&name));
    for (name, head) in &heads {
        let packs = match head {
            // It cannot be fenced, so that nothing behind it is touched.
            kept::Head::Unreadable(None) => Packs::Unknown,
            _ if !is_declared(name) => continue,
            kept::Head::Absent => Packs::Listed(BTreeSet::new()),
            kept::Head::Listed(kept, _) => Packs::Listed(kept.packs.iter().map(|pack| pack.digest).collect()),
            kept::Head::Unreadable(Some(_)) => Packs::Unknown,
        };
        needed.mirror(name, packs);
    }
    Ok(heads)
}

/// The sources of which the record has anything of a mirror.
async fn mirrors(objects: &Arc<dyn Objects>) -> Result<BTreeSet<String>, ObjectsError> {
    let (mut names, mut after) = (BTreeSet::new(), None);
    loop {
        let page = objects.list(record::MIRRORS, after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else { return Ok(names) };
        after = Some(last.key.clone());
        names.extend(
            page.iter().filter_map(|listed| listed.key.as_str().split('/').nth(1)).map(ToOwned::to_owned),
        );
    }
}

/// Notes the approvals whose commits are published.
async fn note_used(
    objects: &Arc<dyn Objects>,
    trust: &Trust,
    intent: &Intent,
    needed: &mut Needed,
) -> Result<(), RetentionError> {
    let mut after = None;
    loop {
        let page = objects.list(record::APPROVALS, after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.key.clone());
        for listed in page {
            let stored = match objects.get(&listed.key, 2 * SMALL_LIMIT as u64).await {
                Ok(stored) => stored,
                // Not an approval, then; it ages like one that nobody used.
                Err(ObjectsError::TooLarge { .. }) => None,
                Err(error) => return Err(error.into()),
            };
            let approval = stored.and_then(|stored| opened::<Approval>(trust, &stored.bytes));
            if approval.is_some_and(|approval| is_published(intent, &approval)) {
                needed.used_approval(listed.key);
            }
        }
    }
}

fn opened<T: Document>(trust: &Trust, bytes: &[u8]) -> Option<T> {
    let envelope: Envelope = serde_json::from_slice(bytes).ok()?;
    envelope.open(&trust.operator(), SMALL_LIMIT).ok()
}

fn is_published(intent: &Intent, approval: &Approval) -> bool {
    let held = &approval.held;
    let commit = if held.scope == FLEET {
        intent.fleet.as_ref()
    } else {
        let source = held.scope.parse().ok().and_then(|name| {
            let name: Name = name;
            intent.sources.get(&name)
        });
        source.and_then(|source| source.commit.as_ref())
    };
    commit == Some(&held.to)
}
