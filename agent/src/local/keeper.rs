//! The task that writes what the agent knows to the state folder, when it changed and not too often.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use farshore_shared::exit::chain;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::{Contact, Snapshot};
use crate::store::{Found, StoreError, files};

/// The shortest time between two writes.
const PAUSE: Duration = Duration::from_secs(2);
/// The most bytes of a snapshot.
const SNAPSHOT_LIMIT: u64 = 16 << 20;
/// The most bytes of when the hub was heard.
const CONTACT_LIMIT: u64 = 64 << 10;

/// What the agent knows, and hands on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// What the last pass found; none before the first.
    pub snapshot: Option<Arc<Snapshot>>,
    /// When the hub was heard.
    pub contact: Contact,
    /// Whether another agent of this site works, and this one waits.
    pub standby: bool,
}

fn folder(state: &Path) -> PathBuf {
    state.join("local")
}

/// Writes whatever comes until nobody tells any more.
pub async fn keep(state: PathBuf, mut known: watch::Receiver<Known>) {
    let mut written = Known::default();
    let mut failed = false;
    while known.changed().await.is_ok() {
        let now = known.borrow_and_update().clone();
        match write(&state, &written, &now) {
            Ok(()) => (written, failed) = (now, false),
            Err(error) if !failed => {
                warn!(error = %chain(&error), "the site's own status cannot be written; everything else goes on");
                failed = true;
            }
            Err(error) => debug!(error = %chain(&error), "the site's own status still cannot be written"),
        }
        sleep(PAUSE).await;
    }
}

/// Writes what differs from what was written before. After a power cut either may be older, or damaged, which its
/// checksum shows: nothing depends on it.
fn write(state: &Path, before: &Known, now: &Known) -> Result<(), StoreError> {
    let dir = folder(state);
    files::make_folder(&dir)?;
    if let Some(snapshot) = &now.snapshot
        && before.snapshot.as_ref().is_none_or(|before| differs(before, snapshot))
    {
        files::save_lightly(&dir.join("status.json"), &**snapshot)?;
    }
    if before.contact != now.contact {
        files::save_lightly(&dir.join("contact.json"), &now.contact)?;
    }
    Ok(())
}

fn differs(before: &Snapshot, now: &Snapshot) -> bool {
    let later = Snapshot { at: now.at, ..before.clone() };
    later != *now
}

/// What the last pass had found, as it was written last.
///
/// # Errors
/// [`StoreError::Io`].
pub fn snapshot(state: &Path) -> Result<Found<Snapshot>, StoreError> {
    files::load(&folder(state).join("status.json"), SNAPSHOT_LIMIT)
}

/// When the hub was heard, as it was written last.
///
/// # Errors
/// [`StoreError::Io`].
pub fn contact(state: &Path) -> Result<Contact, StoreError> {
    Ok(files::load(&folder(state).join("contact.json"), CONTACT_LIMIT)?.good().unwrap_or_default())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs;

    use farshore_shared::wire::{ServiceState, ServiceStatus};

    pub(crate) fn snapshot() -> Snapshot {
        let web = "web".parse().expect("a name");
        Snapshot {
            cluster: "shop-7".parse().expect("a name"),
            agent: "0.1.0".into(),
            hub: "https://hub.example:8443".into(),
            target: "kubernetes".into(),
            reached: true,
            at: 1_800_000_000,
            holds: None,
            services: vec![ServiceStatus {
                objects: 3,
                ..ServiceStatus::new(web, &"c".repeat(40), ServiceState::Applied)
            }],
            alarms: vec![],
            controls: None,
            footprint: None,
            windows: vec![],
            poll_seconds: 60,
        }
    }

    #[test]
    fn what_is_written_reads_back_and_a_later_look_at_the_same_writes_nothing() {
        let temp = tempfile::tempdir().expect("a folder");
        let known = Known {
            snapshot: Some(Arc::new(snapshot())),
            contact: Contact { last: Some(7), silent: None },
            standby: false,
        };
        write(temp.path(), &Known::default(), &known).expect("written");
        assert_eq!(super::snapshot(temp.path()).expect("readable"), Found::Good(snapshot()));
        assert_eq!(contact(temp.path()).expect("readable"), known.contact);
        let path = folder(temp.path()).join("status.json");
        fs::remove_file(&path).expect("removed");
        let later = Snapshot { at: 1_900_000_000, ..snapshot() };
        let later = Known { snapshot: Some(Arc::new(later)), contact: known.contact.clone(), standby: false };
        write(temp.path(), &known, &later).expect("there is nothing to write");
        assert!(!path.exists());
    }

    #[test]
    fn a_damaged_status_is_none() {
        let temp = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder(temp.path())).expect("made");
        fs::write(folder(temp.path()).join("status.json"), "{").expect("written");
        fs::write(folder(temp.path()).join("contact.json"), "{").expect("written");
        let (found, contact) = (super::snapshot(temp.path()), contact(temp.path()).expect("readable"));
        assert!(matches!(found, Ok(Found::Corrupt(_))) && contact == Contact::default());
    }
}
