//! What is seen of the Git repositories: fetched, told whether it descends, packed where it changed.
//!
//! Everything here blocks on Git and so runs where blocking is allowed; artifacts are handed over one
//! by one, so that no more than one is held in memory per source.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use bytes::Bytes;
use farshore_shared::digest::Digest;
use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use tokio::sync::mpsc;
use tracing::debug;

use super::settle::{Content, SourceSeen};
use crate::artifact::{self, Closure, Kind, Packed, TreePath};
use crate::declare::{self, Reading, RendererSpec, ServiceSpec};
use crate::record::{HeldChange, HoldCause, Published};
use crate::source::{Branch, CommitId, Descent, FileSources, GitUrl, Limits, Mirror, Reach, SourceError};

/// The most files of a fleet repository that are looked at.
const FLEET_FILES: usize = 100_000;

/// Where a repository is, and where its mirror.
#[derive(Debug, Clone)]
pub struct Place {
    /// Its name: `fleet`, or a source's.
    pub name: String,
    /// Where it is.
    pub url: GitUrl,
    /// Which branch.
    pub branch: Branch,
    /// Whether repositories on this machine may be read.
    pub files: FileSources,
    /// The folder of all mirrors.
    pub mirrors: PathBuf,
}

impl Place {
    /// The folder of its mirror.
    pub(super) fn folder(&self) -> PathBuf {
        // By address, so that a source that moved begins with a new mirror.
        let id = Digest::of_parts([self.name.as_bytes(), self.url.as_str().as_bytes()]);
        self.mirrors.join(format!("{}-{}", self.name, id.short()))
    }

    /// Whether it is on another machine, as far as its address tells.
    pub(super) fn is_remote(&self) -> bool {
        self.url.reach() == Reach::Http
    }

    fn open(&self) -> Result<Mirror, SourceError> {
        Mirror::open(&self.folder())
    }

    /// Fetches the newest commit, and before that keeps the published one from going: descent is told by
    /// it, also after a force-push.
    fn fetch(
        &self,
        mirror: &mut Mirror,
        published: Option<&str>,
        limits: &Limits,
    ) -> Result<CommitId, String> {
        self.url.check(self.files).map_err(|error| error.to_string())?;
        if let Some(Ok(commit)) = published.map(str::parse)
            && let Err(error) = mirror.keep(&commit)
        {
            debug!(source = self.name, error = %chain(&error), "published commit is not in the mirror");
        }
        mirror.fetch(&self.url, &self.branch, limits).map_err(|error| chain(&error))
    }
}

/// What a fetch of the fleet repository brought.
#[derive(Debug)]
pub struct FleetFetched {
    /// Its newest commit.
    pub commit: String,
    /// How that stands to the last published one.
    pub descent: Descent,
    /// What it says.
    pub reading: Reading,
    /// The paths of all its files that may declare something.
    pub files: BTreeSet<String>,
}

/// Fetches the fleet repository and reads its declarations.
///
/// # Errors
/// What a person should know, in one line.
pub fn fleet(place: &Place, published: Option<&str>, limits: &Limits) -> Result<FleetFetched, String> {
    let mut mirror = place.open().map_err(|error| chain(&error))?;
    let commit = place.fetch(&mut mirror, published, limits)?;
    let descent = descent(&mirror, published, &commit)?;
    let tree = mirror.tree(&commit).map_err(|error| chain(&error))?;
    let listed = tree.list(&TreePath::root(), FLEET_FILES).map_err(|error| chain(&error))?;
    let mut files = Vec::new();
    for file in listed.iter().filter(|file| declare::is_declaration_path(file.path.as_str())) {
        let bytes = match tree.blob(&file.id, declare::FILE_LIMIT as u64) {
            Ok(bytes) => bytes,
            // The reader refuses it by its size, and names file and limit; the others go on.
            Err(SourceError::BlobTooLarge { .. }) => vec![b' '; declare::FILE_LIMIT + 1],
            Err(error) => return Err(chain(&error)),
        };
        files.push((file.path.as_str().to_owned(), bytes));
    }
    let paths = files.iter().map(|(path, _)| path.clone()).collect();
    let reading = declare::read(files);
    Ok(FleetFetched { commit: commit.to_string(), descent, reading, files: paths })
}

fn descent(mirror: &Mirror, published: Option<&str>, commit: &CommitId) -> Result<Descent, String> {
    match published.map(str::parse::<CommitId>) {
        None => Ok(Descent::Forward),
        Some(Ok(published)) => mirror.descent(&published, commit).map_err(|error| chain(&error)),
        // What was published is not of this kind of repository at all.
        Some(Err(_)) => Ok(Descent::Unknown),
    }
}

/// A service that is to be made from a source.
#[derive(Debug, Clone)]
pub struct Order {
    /// Its name.
    pub name: Name,
    /// Its declaration.
    pub spec: ServiceSpec,
    /// What was made of it last.
    pub published: Option<Published>,
}

impl Order {
    /// Whether the artifact was made for what is declared now.
    #[must_use]
    pub fn is_made(&self) -> bool {
        self.published.as_ref().is_some_and(|published| published.made.serves(&self.spec))
    }
}

/// Which commit of a source is wanted.
pub enum Wanted<'a> {
    /// The newest, if it descends from the last published one or was approved.
    Newest {
        /// The last published commit.
        published: Option<&'a str>,
        /// Cluster-service pairs that depend on the source.
        pairs: u64,
        /// Whether a change that does not descend was approved.
        is_approved: &'a (dyn Fn(&HeldChange) -> bool + Sync),
        /// What the fetch may take.
        limits: &'a Limits,
    },
    /// This one, which is in the mirror already: the accepted commit of the fleet repository.
    Accepted(&'a str),
}

/// Fetches a source and packs those of its services that changed; each artifact goes into `packed`
/// before anything says that it exists.
#[must_use]
pub fn source(
    place: &Place,
    wanted: &Wanted<'_>,
    orders: &[Order],
    packed: &mpsc::Sender<Packed>,
) -> SourceSeen {
    match try_source(place, wanted, orders, packed) {
        Ok(seen) => seen,
        Err(message) => SourceSeen::Failed(message),
    }
}

fn try_source(
    place: &Place,
    wanted: &Wanted<'_>,
    orders: &[Order],
    packed: &mpsc::Sender<Packed>,
) -> Result<SourceSeen, String> {
    let mut mirror = place.open().map_err(|error| chain(&error))?;
    let commit = match wanted {
        Wanted::Accepted(commit) => commit.parse().map_err(|error| format!("{error}"))?,
        Wanted::Newest { published, pairs, is_approved, limits } => {
            let commit = place.fetch(&mut mirror, *published, limits)?;
            let descends = matches!(descent(&mirror, *published, &commit)?, Descent::Same | Descent::Forward);
            let to = commit.to_string();
            let held = HeldChange::new(&place.name, *published, &to, HoldCause::NotDescending, 0, *pairs);
            if !descends && !is_approved(&held) {
                return Ok(SourceSeen::Held(held));
            }
            commit
        }
    };
    let tree = mirror.tree(&commit).map_err(|error| chain(&error))?;
    let mut services = BTreeMap::new();
    for order in orders {
        let content = path_of(order).and_then(|path| {
            let closure = artifact::closure(&tree, &path, kind_of(order)).map_err(|error| chain(&error))?;
            content(&tree, &closure, order, packed)
        });
        services.insert(order.name.clone(), content);
    }
    Ok(SourceSeen::Ready { commit: commit.to_string(), services })
}

fn path_of(order: &Order) -> Result<TreePath, String> {
    order.spec.path.to_string().parse::<TreePath>().map_err(|error| error.to_string())
}

fn kind_of(order: &Order) -> Kind {
    match order.spec.renderer {
        RendererSpec::Kustomize => Kind::Kustomize,
        RendererSpec::Raw | RendererSpec::Template { .. } => Kind::Plain,
    }
}

fn content(
    tree: &crate::source::Tree<'_>,
    closure: &Closure,
    order: &Order,
    packed: &mpsc::Sender<Packed>,
) -> Result<Content, String> {
    let key = closure.key();
    if let Some(before) = order.published.as_ref().filter(|before| before.key == key) {
        return Ok(Content { key, artifact: before.artifact.clone() });
    }
    let made =
        artifact::pack(closure, |id, limit| Ok(tree.blob(id, limit)?)).map_err(|error| chain(&error))?;
    let artifact = made.artifact.clone();
    packed.blocking_send(made).map_err(|_| "the publisher is stopping".to_owned())?;
    Ok(Content { key, artifact })
}

/// The bytes of an artifact, ready to be stored.
#[must_use]
pub fn blob(packed: Packed) -> (Digest, Bytes) {
    (packed.artifact.digest, Bytes::from(packed.blob))
}
