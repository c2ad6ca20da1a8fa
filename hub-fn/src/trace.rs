//! Traces from a webhook to the first report, for whoever runs a collector.
//!
//! They are off unless `OTEL_EXPORTER_OTLP_ENDPOINT` is set (OTLP over HTTP, protobuf; the other variables
//! of the OpenTelemetry specification count too). A publication is one trace, and its identifiers follow
//! from its sequence: so a publisher, every replica and nobody's storage agree on them, and nothing has to
//! be carried along.
//!
//! ```text
//! publication (publisher)
//! ├── hook          a webhook that this process took since the last publication it knew of
//! ├── sync          a look at a source, by the publisher
//! ├── poll          the first answer of this replica that brought the publication to a site
//! └── report        the first report to this replica that says that a site has accepted it
//! ```

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use farshore_shared::etag::DesiredTag;
use farshore_shared::names::Name;
use farshore_shared::wire::Holds;
use http::HeaderMap;
use http::header::ETAG;

#[cfg(feature = "otel")]
mod export;
#[cfg(feature = "otel")]
pub use export::{Traces, start};

/// The variable that turns traces on.
pub const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// The most moments that wait for a publication.
const WAITING: usize = 256;

static JOURNAL: OnceLock<Mutex<Journal>> = OnceLock::new();

/// Why no traces are written.
#[derive(Debug, thiserror::Error)]
#[error("traces cannot be sent ({variable} is set): {why}", variable = ENDPOINT)]
pub struct TraceError {
    why: String,
}

/// Something with a beginning and an end that belongs to a publication.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Moment {
    kind: &'static str,
    /// Which source or cluster.
    of: String,
    began: SystemTime,
    ended: SystemTime,
}

impl Moment {
    fn until_now(kind: &'static str, of: impl Into<String>, began: SystemTime) -> Self {
        Self { kind, of: of.into(), began, ended: SystemTime::now() }
    }
}

/// What belongs to a publication whose number is not known yet, and which ones have been told of.
#[derive(Debug, Default)]
struct Journal {
    waiting: Vec<Moment>,
    polled: u64,
    reported: u64,
}

impl Journal {
    fn keep(&mut self, moment: Moment) {
        if self.waiting.len() == WAITING {
            self.waiting.remove(0);
        }
        self.waiting.push(moment);
    }

    /// What waited for this publication: a hook waits as long as the publication is not there.
    fn published(&mut self) -> Vec<Moment> {
        let now = SystemTime::now();
        let mut all = std::mem::take(&mut self.waiting);
        for hook in all.iter_mut().filter(|moment| moment.kind == "hook") {
            hook.ended = now;
        }
        all
    }

    fn published_by(&mut self, step: Moment) -> Vec<Moment> {
        let mut all = self.published();
        all.push(step);
        all
    }

    /// What was looked at in vain is nobody's; a hook may have come after the look.
    fn nothing_published(&mut self) {
        self.waiting.retain(|moment| moment.kind == "hook");
    }

    /// What there is to tell of an answer with this publication; nothing but the first time.
    fn polled(&mut self, sequence: u64, poll: Moment) -> Vec<Moment> {
        if sequence <= self.polled {
            return vec![];
        }
        self.polled = sequence;
        let mut all = self.published();
        all.push(poll);
        all
    }

    fn reported(&mut self, sequence: u64, report: Moment) -> Vec<Moment> {
        if sequence <= self.reported {
            return vec![];
        }
        self.reported = sequence;
        vec![report]
    }
}

/// Runs on the journal, if there is one: without a collector nothing is noted.
fn journal<T>(note: impl FnOnce(&mut Journal) -> T) -> Option<T> {
    let journal = JOURNAL.get()?;
    Some(note(&mut journal.lock().unwrap_or_else(PoisonError::into_inner)))
}

#[cfg(feature = "otel")]
fn tell(sequence: u64, moments: Vec<Moment>) {
    export::tell(sequence, moments);
}

#[cfg(not(feature = "otel"))]
fn tell(_: u64, _: Vec<Moment>) {}

/// A webhook of this source was taken.
pub fn hook(source: &str) {
    journal(|journal| journal.keep(Moment::until_now("hook", source, SystemTime::now())));
}

/// This source was looked at.
pub fn looked(source: &str, began: SystemTime) {
    journal(|journal| journal.keep(Moment::until_now("sync", source, began)));
}

/// A step of the publisher that began then has ended. One that published nothing is not told of.
pub fn stepped(published: Option<u64>, began: SystemTime) {
    let step = Moment::until_now("publication", "", began);
    match published {
        None => drop(journal(Journal::nothing_published)),
        Some(sequence) => {
            tell(sequence, journal(|journal| journal.published_by(step)).unwrap_or_default());
        }
    }
}

/// A poll was answered with documents, under these headers.
pub fn polled(headers: &HeaderMap, began: SystemTime) {
    if JOURNAL.get().is_none() {
        return;
    }
    let tag = headers.get(farshore_shared::wire::TAG_HEADER).or_else(|| headers.get(ETAG));
    let tag: Option<DesiredTag> = tag.and_then(|value| value.to_str().ok()?.parse().ok());
    let Some(tag) = tag else { return };
    let sequence = tag.group.sequence;
    let moments = journal(|journal| journal.polled(sequence, Moment::until_now("poll", "", began)));
    tell(sequence, moments.unwrap_or_default());
}

/// A site has reported what it holds.
pub fn reported(cluster: &Name, holds: Option<&Holds>, began: SystemTime) {
    let Some(sequence) = holds.map(|holds| holds.group) else { return };
    let report = || Moment::until_now("report", cluster.as_str(), began);
    let moments = journal(|journal| journal.reported(sequence, report()));
    tell(sequence, moments.unwrap_or_default());
}

/// No traces: this program was built without them.
#[cfg(not(feature = "otel"))]
#[derive(Debug)]
pub struct Traces;

#[cfg(not(feature = "otel"))]
impl Traces {
    /// Nothing is left to be sent.
    pub async fn end(self) {}
}

/// Starts nothing.
///
/// # Errors
/// [`TraceError`] where traces are asked for.
#[cfg(not(feature = "otel"))]
pub fn start() -> Result<Traces, TraceError> {
    match std::env::var_os(ENDPOINT) {
        None => Ok(Traces),
        Some(_) => Err(TraceError { why: "this program was built without traces (feature otel)".into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(moments: &[Moment]) -> Vec<&'static str> {
        moments.iter().map(|moment| moment.kind).collect()
    }

    #[test]
    fn what_waited_belongs_to_the_next_publication_and_to_no_other() {
        let mut journal = Journal::default();
        let moment = |kind| Moment::until_now(kind, "app", SystemTime::UNIX_EPOCH);
        journal.keep(moment("hook"));
        journal.keep(moment("sync"));
        assert_eq!(kinds(&journal.polled(7, moment("poll"))), ["hook", "sync", "poll"]);
        assert!(journal.polled(7, moment("poll")).is_empty(), "only the first is told of");
        assert!(journal.polled(6, moment("poll")).is_empty());
        assert_eq!(kinds(&journal.polled(8, moment("poll"))), ["poll"]);
        assert_eq!(kinds(&journal.reported(8, moment("report"))), ["report"]);
        assert!(journal.reported(8, moment("report")).is_empty());
    }

    #[test]
    fn a_look_that_brought_nothing_belongs_to_no_publication_and_a_hook_waits_for_the_next() {
        let mut journal = Journal::default();
        let moment = |kind| Moment::until_now(kind, "app", SystemTime::UNIX_EPOCH);
        journal.keep(moment("sync"));
        journal.keep(moment("hook"));
        journal.nothing_published();
        let told = journal.published_by(moment("publication"));
        assert_eq!(kinds(&told), ["hook", "publication"]);
        assert!(told[0].ended > SystemTime::UNIX_EPOCH, "it waited until now");
    }

    #[test]
    fn a_flood_of_hooks_without_a_publication_is_bounded() {
        let mut journal = Journal::default();
        for n in 0..2 * WAITING {
            journal.keep(Moment::until_now("hook", n.to_string(), SystemTime::now()));
        }
        assert_eq!(journal.waiting.len(), WAITING);
        assert_eq!(journal.waiting[0].of, WAITING.to_string(), "the oldest went first");
    }
}
