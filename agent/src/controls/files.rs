//! The files that stop something, in the folder `controls` of the state folder: `pause`, `pause.SERVICE` and `hold`.
//!
//! Whoever may write to the state folder may make and remove them, also while an agent has the folder, and with
//! nothing but a shell: `echo 2h tills are counted > STATE/controls/hold`.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use farshore_shared::wire::{Stop, UnixSeconds};

use super::Controls;
use super::stop::{Unsaid, read, write};
use crate::store::{StoreError, files};

/// How long a lock holds whose file does not say it, in seconds: one that was forgotten ends.
pub const HOLD_UNLESS_SAID: u64 = 4 * 3600;
/// The most bytes of such a file that are read.
const READ_LIMIT: u64 = 4096;
/// The most services that can be paused one by one.
const SERVICES_LIMIT: usize = 1_000;

/// What a file stops.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Control {
    /// Everything.
    Pause,
    /// One service.
    PauseService(Name),
    /// What is new.
    Hold,
}

impl Control {
    fn file(&self) -> String {
        match self {
            Self::Pause => "pause".to_owned(),
            Self::PauseService(service) => format!("pause.{service}"),
            Self::Hold => "hold".to_owned(),
        }
    }

    fn of(file: &str) -> Option<Self> {
        match file {
            "pause" => Some(Self::Pause),
            "hold" => Some(Self::Hold),
            _ => Some(Self::PauseService(file.strip_prefix("pause.")?.parse().ok()?)),
        }
    }
}

/// The folder of these files.
#[must_use]
pub fn folder(state: &Path) -> PathBuf {
    state.join("controls")
}

/// What is stopped, by what the files of a state folder say. A file that cannot be read stops what its name says, and
/// the second answer tells of it.
///
/// # Errors
/// [`StoreError::Io`] when the folder cannot be listed.
pub fn load(state: &Path) -> Result<(Controls, Vec<String>), StoreError> {
    let dir = folder(state);
    let (mut controls, mut alarms, mut overflow) = (Controls::default(), vec![], vec![]);
    if !dir.is_dir() {
        return Ok((controls, alarms));
    }
    for file in files::list(&dir)? {
        let Some(control) = Control::of(&file) else { continue };
        // It may have been removed just now.
        let Some(stop) = stop_of(&dir.join(&file), &control, &mut alarms) else { continue };
        match control {
            Control::Pause => controls.pause = Some(stop),
            Control::Hold => controls.hold = Some(stop),
            Control::PauseService(service) if controls.services.len() < SERVICES_LIMIT => {
                controls.services.insert(service, stop);
            }
            Control::PauseService(_) => overflow.push(stop),
        }
    }
    if !overflow.is_empty() {
        let count = SERVICES_LIMIT + overflow.len();
        let why = format!("{count} services are paused one by one (limit {SERVICES_LIMIT})");
        alarms.push(format!(
            "{why}: everything is paused instead; use one pause, and remove the files of pauses that are over"
        ));
        controls.pause = controls.pause.into_iter().chain(overflow).reduce(longer);
        if let Some(pause) = &mut controls.pause {
            pause.reason = why;
        }
    }
    Ok((controls, alarms))
}

/// The one of two that lasts longer.
fn longer(one: Stop, other: Stop) -> Stop {
    match (one.until, other.until) {
        (Some(ends), Some(ends_too)) if ends_too > ends => other,
        (Some(_), None) => other,
        _ => one,
    }
}

/// What a file stops, if it is there. One that cannot be read stops what its name says, from when it was written: not
/// from now, or it would never end.
fn stop_of(path: &Path, control: &Control, alarms: &mut Vec<String>) -> Option<Stop> {
    let unsaid = if *control == Control::Hold { Unsaid::For(HOLD_UNLESS_SAID) } else { Unsaid::ForEver };
    match contents(path) {
        Ok(found) => found.map(|(text, written)| read(&text, written, unsaid)),
        Err(error) => {
            alarms.push(chain(&error));
            let written = path.metadata().and_then(|metadata| metadata.modified()).map(seconds);
            Some(read("", written.unwrap_or_else(|_| farshore_shared::clock::now()), unsaid))
        }
    }
}

fn seconds(at: SystemTime) -> UnixSeconds {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// What a file holds, and when it was written.
fn contents(path: &Path) -> Result<Option<(String, UnixSeconds)>, StoreError> {
    let failed = |source| StoreError::Io { action: "reading a file", path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let written = file.metadata().and_then(|metadata| metadata.modified()).map_err(failed)?;
    let mut bytes = vec![];
    file.take(READ_LIMIT).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some((String::from_utf8_lossy(&bytes).into_owned(), seconds(written))))
}

/// Stops something.
///
/// # Errors
/// [`StoreError::Io`].
pub fn set(
    state: &Path,
    control: &Control,
    until: Option<UnixSeconds>,
    reason: &str,
) -> Result<(), StoreError> {
    let dir = folder(state);
    files::make_folder(&dir)?;
    let path = dir.join(control.file());
    files::write(&path, write(until, reason).as_bytes())?;
    owned_as(state, &dir)?;
    owned_as(state, &path)
}

/// Writes down when a stop ends that is as it was; one that somebody changed meanwhile is left as it is.
///
/// # Errors
/// [`StoreError::Io`].
pub fn amend(state: &Path, control: &Control, was: &Stop, until: UnixSeconds) -> Result<(), StoreError> {
    let is_same = load(state)?.0.each().any(|(other, stop)| other == *control && *stop == *was);
    if is_same { set(state, control, Some(until), &was.reason) } else { Ok(()) }
}

/// Gives what an administrator wrote to whoever has the state folder: the agent may run as somebody else.
///
/// # Errors
/// [`StoreError::Io`].
pub fn owned_as(state: &Path, path: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::Io { action: "giving away a file", path: path.to_owned(), source };
    let (owner, now) = (state.metadata().map_err(failed)?, path.metadata().map_err(failed)?);
    if owner.uid() == now.uid() {
        return Ok(());
    }
    std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid())).map_err(failed)
}

/// Lets something go on. Gives what it was stopped by, if it was.
///
/// # Errors
/// [`StoreError::Io`].
pub fn clear(state: &Path, control: &Control) -> Result<Option<Stop>, StoreError> {
    let path = folder(state).join(control.file());
    let unsaid = if *control == Control::Hold { Unsaid::For(HOLD_UNLESS_SAID) } else { Unsaid::ForEver };
    let was = contents(&path)?.map(|(text, written)| read(&text, written, unsaid));
    if was.is_some() {
        files::remove(&path)?;
        files::sync_folder(&folder(state))?;
    }
    Ok(was)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    #[test]
    fn what_is_set_is_on_until_it_is_cleared() {
        let temp = tempfile::tempdir().expect("a folder");
        assert_eq!(load(temp.path()).expect("readable"), (Controls::default(), vec![]));
        set(temp.path(), &Control::Pause, None, "by hand").expect("written");
        set(temp.path(), &Control::PauseService(name("web")), Some(1_800_000_000), "").expect("written");
        set(temp.path(), &Control::Hold, Some(1_800_000_000), "x").expect("written");
        let (controls, alarms) = load(temp.path()).expect("readable");
        assert_eq!(
            controls.pause.as_ref().map(|pause| (pause.until, pause.reason.as_str())),
            Some((None, "by hand"))
        );
        assert_eq!(controls.services[&name("web")].until, Some(1_800_000_000));
        assert_eq!(controls.hold.and_then(|hold| hold.until), Some(1_800_000_000));
        assert!(alarms.is_empty());
        for control in [Control::Pause, Control::PauseService(name("web")), Control::Hold] {
            assert!(clear(temp.path(), &control).expect("removed").is_some());
            assert!(clear(temp.path(), &control).expect("it is gone already").is_none());
        }
        assert_eq!(load(temp.path()).expect("readable").0, Controls::default());
    }

    #[test]
    fn what_cannot_be_read_stops_from_when_it_was_written_and_ends() {
        use std::os::unix::fs::PermissionsExt as _;
        let temp = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder(temp.path())).expect("made");
        let hold = folder(temp.path()).join("hold");
        let written = UNIX_EPOCH + std::time::Duration::from_secs(1_800_000_000);
        fs::write(&hold, "").expect("written");
        File::open(&hold).and_then(|file| file.set_modified(written)).expect("its time is set");
        fs::set_permissions(&hold, fs::Permissions::from_mode(0o000)).expect("nobody may read it");
        let ends = Some(1_800_000_000 + HOLD_UNLESS_SAID);
        let (controls, _) = load(temp.path()).expect("the folder is readable");
        assert_eq!(controls.hold.expect("it holds").until, ends);
        fs::remove_file(&hold).expect("removed");

        // Root may read every file; what is no file nobody can.
        fs::create_dir(&hold).expect("made");
        File::open(&hold).and_then(|file| file.set_modified(written)).expect("its time is set");
        let mut alarms = vec![];
        let stop = stop_of(&hold, &Control::Hold, &mut alarms).expect("it holds");
        assert_eq!((stop.until, alarms.len()), (ends, 1));
        let stop = stop_of(&hold, &Control::Pause, &mut alarms).expect("it pauses");
        assert_eq!((stop.since, stop.until), (1_800_000_000, None));
    }

    #[test]
    fn more_single_pauses_than_are_counted_pause_everything_for_as_long_as_they_last() {
        let temp = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder(temp.path())).expect("made");
        let pause = |n: usize, text: &str| {
            fs::write(folder(temp.path()).join(format!("pause.s{n:04}")), text).expect("written");
        };
        (0..SERVICES_LIMIT).for_each(|n| pause(n, ""));
        let (controls, alarms) = load(temp.path()).expect("readable");
        assert_eq!((controls.services.len(), controls.pause, alarms.len()), (SERVICES_LIMIT, None, 0));

        pause(SERVICES_LIMIT, "2026-12-27T06:00:00Z");
        let (controls, alarms) = load(temp.path()).expect("readable");
        let all = controls.pause.expect("everything is paused");
        assert_eq!((all.until, controls.services.len()), (Some(1_798_351_200), SERVICES_LIMIT));
        assert!(alarms[0].starts_with("1001 services are paused one by one (limit 1000)"), "{alarms:?}");

        pause(SERVICES_LIMIT + 1, "");
        set(temp.path(), &Control::Pause, Some(1_800_000_000), "by hand").expect("written");
        let all = load(temp.path()).expect("readable").0.pause.expect("everything is paused");
        assert_eq!(all.until, None, "one of them is for ever");
    }

    #[test]
    fn a_script_s_lock_holds_whatever_is_in_it_and_never_for_ever() {
        let temp = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder(temp.path())).expect("made");
        let path = folder(temp.path()).join("hold");
        for text in ["", "2h tills are counted\n", "\u{0}\u{ff}", &"x".repeat(1 << 20)] {
            fs::write(&path, text).expect("written");
            let (controls, _) = load(temp.path()).expect("readable");
            let hold = controls.hold.expect("it holds");
            let lasts = hold.until.expect("it ends") - hold.since;
            assert_eq!(lasts, if text.starts_with("2h") { 7200 } else { HOLD_UNLESS_SAID });
        }
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("made");
        fs::write(folder(temp.path()).join("pause.Not A Name"), "").expect("written");
        assert_eq!(load(temp.path()).expect("readable").0, Controls::default(), "neither is such a file");
    }
}
