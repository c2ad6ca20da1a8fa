//! The task that notices that something was stopped, or asked, at the site, and has the reconciler look. What was
//! stopped it tells the mender itself, and ends what is going on.
//!
//! It asks the file system for the times of two folders, which costs next to nothing and works wherever the state
//! folder lies; of services nothing is decided here, for the reconciler reads the files itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use farshore_shared::wire::UnixSeconds;
use tokio::time::sleep;
use tracing::warn;

use super::window::Windows;
use super::{Controls, files};
use crate::drift::Shared;
use crate::moment::Moment;
use crate::store::Store;

/// How often it looks.
const EVERY: Duration = Duration::from_secs(2);

/// What it sees of a folder: when a name in it came, went or was replaced, and when each file was written.
type Sight = Vec<Option<SystemTime>>;

/// Looks at a state folder until the process ends.
pub async fn watch(state: PathBuf, windows: Windows, shared: Arc<Shared>) {
    let mut seen = sight(&state);
    let mut looked = shared.moment();
    let mut bound = 0;
    let mut known = heard(&state, &shared, &mut bound);
    let mut edge = next_edge(known.as_ref(), &windows, looked);
    loop {
        sleep(EVERY).await;
        let now = sight(&state);
        let moment = shared.moment();
        let was_set = tell_of_clock(looked, moment);
        looked = moment;
        // After that, what ends when and which window is open are other matters.
        let is_over = was_set || edge.is_some_and(|edge| moment.wall >= edge);
        if now != seen || is_over {
            let controls = heard(&state, &shared, &mut bound);
            if is_over || controls != known {
                // What cannot be read leaves it as it is.
                if let Some(controls) = &controls {
                    shared.state().leave_alone = controls.leave_alone(&windows, moment.wall);
                }
                shared.turn_era();
                known = controls;
            }
            shared.ask_for_a_look();
            edge = next_edge(known.as_ref(), &windows, moment);
            seen = now;
        }
    }
}

/// What cannot be read for a moment makes the lower bound of the time no other.
fn heard(state: &Path, shared: &Shared, bound: &mut UnixSeconds) -> Option<Controls> {
    let (mut controls, _) = files::load(state).ok()?;
    *bound = Store::peek(state).map_or(*bound, |store| store.lower_time().max(*bound));
    let bound = *bound;
    shared.state().doubts.settle(&mut controls, shared.moment(), bound);
    Some(controls)
}

/// When something is stopped or free by the time alone. What cannot be read has no such time.
fn next_edge(controls: Option<&Controls>, windows: &Windows, at: Moment) -> Option<UnixSeconds> {
    let none = Controls::default();
    controls.unwrap_or(&none).next_change(windows, at.wall)
}

/// Says that the clock was set, if it was.
fn tell_of_clock(before: Moment, now: Moment) -> bool {
    let by = now.set_since(before);
    match by {
        Some(seconds @ ..0) => warn!(seconds = -seconds, "the clock of this site went back"),
        Some(seconds) => {
            warn!(seconds, "the clock of this site went ahead: it was set, or this machine slept")
        }
        None => {}
    }
    by.is_some()
}

fn sight(state: &Path) -> Sight {
    let modified = |path: &Path| path.metadata().and_then(|found| found.modified()).ok();
    let controls = files::folder(state);
    // A shell that writes into a file that is there changes that file alone.
    let files = std::fs::read_dir(&controls).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = files.take(2_000).collect();
    files.sort_unstable();
    let folders = [modified(&controls), modified(&state.join("asks"))];
    folders.into_iter().chain(files.iter().map(|file| modified(file))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controls::files::{Control, clear, set};

    #[tokio::test]
    async fn a_pause_is_known_to_the_mender_at_once_and_ends_what_goes_on_and_an_ask_ends_nothing() {
        let temp = tempfile::tempdir().expect("a folder");
        let shared = Arc::new(Shared::default());
        let watching = watch(temp.path().to_owned(), Windows::default(), Arc::clone(&shared));
        let watching = tokio::spawn(watching);
        // It has seen the folder as it is.
        tokio::task::yield_now().await;
        std::fs::create_dir(temp.path().join("asks")).expect("made");
        shared.asked_for_a_look().await;
        assert_eq!(shared.era(), 0);
        let web = "web".parse().expect("a name");
        set(temp.path(), &Control::Pause, None, "").expect("written");
        shared.asked_for_a_look().await;
        assert!(shared.era() > 0 && shared.state().leave_alone.covers(&web));
        watching.abort();
    }

    #[test]
    fn whatever_is_done_to_a_file_is_seen() {
        let temp = tempfile::tempdir().expect("a folder");
        let mut before = sight(temp.path());
        let mut changes = |what: &str| {
            let now = sight(temp.path());
            assert_ne!(now, before, "{what}");
            before = now;
        };
        set(temp.path(), &Control::Hold, None, "").expect("written");
        changes("made");
        let later = SystemTime::now() + Duration::from_secs(5);
        let hold = files::folder(temp.path()).join("hold");
        std::fs::File::options()
            .write(true)
            .open(&hold)
            .and_then(|file| file.set_modified(later))
            .expect("touched");
        changes("written again");
        clear(temp.path(), &Control::Hold).expect("removed");
        changes("removed");
        std::fs::create_dir(temp.path().join("asks")).expect("made");
        changes("asked");
    }
}
