//! One conversation with a Git server: which commit a branch is at, and the objects that are missing.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gix::Repository;
use gix::progress::Discard;
use gix::protocol::fetch::refmap::Source;
use gix::protocol::handshake::Ref;
use gix::protocol::transport::client::blocking_io::Transport;
use gix::remote::fetch::Tags;
use gix::remote::{Direction, ref_map};

#[cfg(feature = "git-http")]
use super::http;
use super::meter::Meter;
use super::url::Reach;
use super::{Branch, CommitId, GitUrl, Limits, SourceError, child};

/// Where the tip of the branch that was fetched last is kept, so that the next fetch is small.
pub(super) const FETCHED: &str = "refs/farshore/fetched";

/// How many branches an error names.
const BRANCHES_SHOWN: usize = 8;

/// What a conversation is about.
enum Question<'a> {
    /// Bring the tip of this branch.
    Fetch(&'a Branch),
    /// Say which branches there are.
    Branches,
}

/// What came of it.
enum Answer {
    Tip(CommitId),
    Missing,
    Branches(Vec<String>),
}

/// Brings a branch's tip, with its history, into the repository.
///
/// # Errors
/// [`SourceError`], naming the URL and, where one was reached, the limit.
pub(super) fn fetch(
    repo: &Repository,
    url: &GitUrl,
    branch: &Branch,
    limits: &Limits,
) -> Result<CommitId, SourceError> {
    match ask(repo, url, &Question::Fetch(branch), limits)? {
        Answer::Tip(commit) => Ok(commit),
        Answer::Missing | Answer::Branches(_) => Err(missing(repo, url, branch, limits)?),
    }
}

/// Why there is no tip: the repository is empty, or it has other branches.
fn missing(
    repo: &Repository,
    url: &GitUrl,
    branch: &Branch,
    limits: &Limits,
) -> Result<SourceError, SourceError> {
    let available = match ask(repo, url, &Question::Branches, limits)? {
        Answer::Branches(names) => names,
        Answer::Tip(_) | Answer::Missing => Vec::new(),
    };
    Ok(if available.is_empty() {
        SourceError::Empty { url: url.clone() }
    } else {
        SourceError::BranchMissing { url: url.clone(), branch: branch.clone(), available }
    })
}

fn ask(
    repo: &Repository,
    url: &GitUrl,
    question: &Question<'_>,
    limits: &Limits,
) -> Result<Answer, SourceError> {
    let meter = Meter::start(*limits);
    match url.reach() {
        Reach::File(path) => {
            let (upload, transport) = child::start(url, path, &meter)?;
            converse(repo, url, question, transport, None).map_err(|error| {
                upload.judge();
                meter.explain(url, error.into())
            })
        }
        Reach::Http => ask_http(repo, url, question, &meter),
    }
}

#[cfg(feature = "git-http")]
fn ask_http(
    repo: &Repository,
    url: &GitUrl,
    question: &Question<'_>,
    meter: &Arc<Meter>,
) -> Result<Answer, SourceError> {
    let transport = http::start(url, meter)?;
    let options: Box<dyn Any> = Box::new(http::options(meter.limits().idle));
    converse(repo, url, question, transport, Some(options)).map_err(|error| meter.explain(url, error.into()))
}

#[cfg(not(feature = "git-http"))]
fn ask_http(_: &Repository, url: &GitUrl, _: &Question<'_>, _: &Arc<Meter>) -> Result<Answer, SourceError> {
    Err(SourceError::NoHttp { url: url.clone() })
}

fn converse<T: Transport>(
    repo: &Repository,
    url: &GitUrl,
    question: &Question<'_>,
    transport: T,
    options: Option<Box<dyn Any>>,
) -> gix::Result<Answer> {
    let spec = match question {
        Question::Fetch(Branch::Default) => format!("+HEAD:{FETCHED}"),
        Question::Fetch(Branch::Named(name)) => format!("+refs/heads/{}:{FETCHED}", name.as_str()),
        Question::Branches => "refs/heads/*:refs/farshore/seen/*".to_owned(),
    };
    let remote = repo
        .remote_at_without_url_rewrite(url.as_str())?
        .with_fetch_tags(Tags::None)
        .with_refspecs([spec.as_str()], Direction::Fetch)?;
    let mut connection = remote.to_connection_with_transport(transport).with_credentials(|_| Ok(None));
    if let Some(options) = options {
        connection.set_transport_options(options);
    }
    match question {
        Question::Branches => {
            let (map, _) = connection.ref_map(Discard, ref_map::Options::default())?;
            Ok(Answer::Branches(names(&map.remote_refs)))
        }
        Question::Fetch(_) => {
            let prepared = connection.prepare_fetch(Discard, ref_map::Options::default())?;
            let tip = prepared.ref_map().mappings.first().and_then(|mapping| tip_of(&mapping.remote));
            let Some(tip) = tip else { return Ok(Answer::Missing) };
            // Whatever ends a fetch ends its reads, so there is nothing to interrupt.
            prepared.receive(Discard, &AtomicBool::new(false))?;
            Ok(Answer::Tip(tip))
        }
    }
}

fn tip_of(source: &Source) -> Option<CommitId> {
    match source {
        Source::ObjectId(id) => Some(CommitId::of(id)),
        Source::Ref(found) => found.unpack().1.map(CommitId::of),
    }
}

fn names(refs: &[Ref]) -> Vec<String> {
    refs.iter()
        .filter_map(|found| found.unpack().0.strip_prefix(b"refs/heads/"))
        .map(|name| String::from_utf8_lossy(name).chars().take(80).collect())
        .take(BRANCHES_SHOWN)
        .collect()
}
