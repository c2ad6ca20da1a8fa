//! What one pass says of each service.

use farshore_shared::names::Name;
use farshore_shared::wire::{Holds, ObjectFailure, ServiceState, ServiceStatus};

use crate::apply::Outcome;
use crate::decide::Work;
use crate::target::ObjectError;
use crate::verify::Documents;

/// The most failures of one service that a status tells of.
pub(super) const FAILURES_TOLD: usize = 20;
/// The most characters of one message.
const MESSAGE_LIMIT: usize = 400;

/// Which documents are enforced.
pub(super) fn holds(documents: &Documents) -> Holds {
    let Documents { roster, group, .. } = documents;
    Holds { epoch: group.epoch, roster: roster.sequence, group: group.sequence }
}

/// The status of a service of which nothing is known yet.
pub(super) fn blank(name: Name, commit: &str) -> ServiceStatus {
    let (state, message) = (ServiceState::Waiting, String::new());
    ServiceStatus {
        name,
        commit: commit.to_owned(),
        state,
        message,
        objects: 0,
        failures: vec![],
        repairs: 0,
    }
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
pub(super) fn fill(status: &mut ServiceStatus, outcome: &Outcome, mistakes: &[String], note: Option<&str>) {
    status.objects = u32::try_from(outcome.objects).unwrap_or(u32::MAX);
    let failure =
        |error: &ObjectError| ObjectFailure { object: error.key.to_string(), message: short(&error.message) };
    status.failures = outcome.failures.iter().take(FAILURES_TOLD).map(failure).collect();
    let (failed, broken) = (outcome.failures.len(), mistakes.len());
    (status.state, status.message) = match (&outcome.held, note) {
        _ if failed + broken > 0 => {
            let first = mistakes.first().cloned().or_else(|| Some(outcome.failures.first()?.to_string()));
            let first = first.unwrap_or_default();
            (
                ServiceState::Failed,
                format!(
                    "{} of {} objects failed; {first}",
                    failed + broken,
                    failed + broken + outcome.objects
                ),
            )
        }
        (Some(held), _) => (ServiceState::Held, held.to_string()),
        (None, Some(note)) => (ServiceState::Waiting, note.to_owned()),
        (None, None) => (ServiceState::Applied, String::new()),
    };
    status.message = short(&status.message);
}

/// A message that is not longer than one may be.
pub(super) fn short(message: &str) -> String {
    match message.char_indices().nth(MESSAGE_LIMIT) {
        None => message.to_owned(),
        Some((end, _)) => format!("{}...", &message[..end]),
    }
}
