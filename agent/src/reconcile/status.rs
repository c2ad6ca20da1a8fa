//! What one pass says of each service.

use farshore_shared::names::Name;
use farshore_shared::wire::{Holds, ObjectFailure, Progress, ServiceState, ServiceStatus};

use crate::apply::Outcome;
use crate::decide::Work;
use crate::object::BadManifest;
use crate::rollout::Verdict;
use crate::verify::Documents;

/// The most failures of one service that a status tells of.
pub(super) const FAILURES_TOLD: usize = 20;
/// The most characters of one message.
const MESSAGE_LIMIT: usize = 400;

/// What is said of a service whose pass is out of date.
pub(super) const OVERTAKEN: &str = "left to the next pass, which has other orders";

/// Which documents are enforced.
pub(super) fn holds(documents: &Documents) -> Holds {
    let Documents { roster, group, .. } = documents;
    Holds { epoch: group.epoch, roster: roster.sequence, group: group.sequence }
}

/// The status of a service of which nothing is known yet.
pub(super) fn blank(name: Name, commit: &str) -> ServiceStatus {
    ServiceStatus::new(name, commit, ServiceState::Waiting)
}

/// The status of a service for which nothing could be done.
pub(super) fn waiting(work: &Work, why: &str) -> ServiceStatus {
    // A service whose very name cannot be read is reported under a name of our own.
    let name = work.name().parse().unwrap_or_else(|_| "unreadable".parse().expect("a good name"));
    let commit = match work {
        Work::Enforce(enforce) => enforce.entry.revision.commit.as_str(),
        Work::Remove(_) | Work::Blocked { .. } => "",
    };
    ServiceStatus { message: short(why), ..blank(name, commit) }
}

/// Puts what an outcome was into a status.
pub(super) fn fill(
    status: &mut ServiceStatus,
    outcome: &Outcome,
    mistakes: &[BadManifest],
    note: Option<&str>,
) {
    status.objects = u32::try_from(outcome.objects).unwrap_or(u32::MAX);
    let told = |object: String, message: &str| ObjectFailure { object, message: short(message) };
    // A document that is no manifest has no name, only a place.
    let unread = mistakes.iter().map(|mistake| told(mistake.origin.clone(), &mistake.why));
    let failed = outcome.failures.iter().map(|error| told(error.key.to_string(), &error.message));
    status.failures = unread.chain(failed).take(FAILURES_TOLD).collect();
    let bad = outcome.failures.len() + mistakes.len();
    (status.state, status.message) = match (status.failures.first(), &outcome.held, note) {
        (Some(ObjectFailure { object, message }), ..) => {
            let of = bad + outcome.objects;
            (ServiceState::Failed, format!("{bad} of {of} objects failed; {object}: {message}"))
        }
        (None, Some(held), _) => (ServiceState::Held, held.to_string()),
        (None, None, Some(note)) => (ServiceState::Waiting, note.to_owned()),
        (None, None, None) => (ServiceState::Applied, left_over(outcome)),
    };
    status.message = short(&status.message);
}

/// What left the service and is still there.
fn left_over(outcome: &Outcome) -> String {
    let going = match outcome.going {
        0 => None,
        count => Some(format!("{count} objects are being deleted")),
    };
    let kept = outcome.kept.first().map(|first| {
        let count = outcome.kept.len();
        format!("{count} objects that left are kept; {}: {}", first.key, first.why)
    });
    kept.into_iter().chain(going).collect::<Vec<_>>().join("; ")
}

/// Says what a service waits for on its way to a revision.
pub(super) fn under_way(status: &mut ServiceStatus, verdict: &Verdict) {
    let (state, progress) = match verdict {
        Verdict::Healthy => return,
        Verdict::Waiting(progress) => (ServiceState::Waiting, progress),
        Verdict::Failed(progress) => (ServiceState::Failed, progress),
    };
    // A failed object says more than that it is waited for.
    if status.state != ServiceState::Failed || state == ServiceState::Failed && status.failures.is_empty() {
        let Progress { stage, object, why, .. } = progress;
        let waits = if state == ServiceState::Waiting { "waits for " } else { "" };
        (status.state, status.message) = (state, short(&format!("{stage}: {waits}{object}: {why}")));
    }
    status.progress = Some(Progress { why: short(&progress.why), ..progress.clone() });
}

/// A message that is not longer than one may be.
pub(super) fn short(message: &str) -> String {
    match message.char_indices().nth(MESSAGE_LIMIT) {
        None => message.to_owned(),
        Some((end, _)) => format!("{}...", &message[..end]),
    }
}
