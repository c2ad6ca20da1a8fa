//! Git on this disk: `git upload-pack` as a child process, watched and ended with the fetch.

use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use gix::protocol::transport::Protocol;
use gix::protocol::transport::client::git::ConnectMode;
use gix::protocol::transport::client::git::blocking_io::Connection;

use super::meter::{Meter, Metered, Stop};
use super::{GitUrl, SourceError};

/// How much of what `git` complains about is kept.
const COMPLAINT_LIMIT: u64 = 4_096;

/// The transport that talks to the child.
pub(super) type Transport = Connection<Metered<ChildStdout>, ChildStdin>;

/// The child and its watch: both have ended when this is dropped.
pub(super) struct UploadPack {
    child: Arc<Mutex<Child>>,
    watch: Option<(Sender<()>, JoinHandle<()>)>,
    meter: Arc<Meter>,
}

/// Starts `git upload-pack` on a repository of this disk.
///
/// # Errors
/// [`SourceError::NotFound`] if there is nothing at the path, [`SourceError::NoGit`] if `git` does
/// not start.
pub(super) fn start(
    url: &GitUrl,
    path: &Path,
    meter: &Arc<Meter>,
) -> Result<(UploadPack, Transport), SourceError> {
    if !path.exists() {
        return Err(SourceError::NotFound { url: url.clone(), answer: "no such folder".to_owned() });
    }
    let no_git = |source| SourceError::NoGit { url: url.clone(), source };
    let mut child = command(path).spawn().map_err(no_git)?;
    let input = child.stdin.take().expect("the child was given a pipe to read from");
    let output = child.stdout.take().expect("the child was given a pipe to write to");
    let child = Arc::new(Mutex::new(child));
    let mut upload = UploadPack { child: child.clone(), watch: None, meter: meter.clone() };
    upload.watch = Some(watch(child, meter.clone()).map_err(no_git)?);
    let output = Metered::new(output, meter.clone(), |_, error| error);
    let place = path.to_string_lossy().into_owned();
    let transport = Connection::new(
        output,
        input,
        Protocol::V2,
        place,
        None::<(&str, Option<u16>)>,
        ConnectMode::Process,
        false,
    );
    Ok((upload, transport))
}

fn command(path: &Path) -> Command {
    let mut command = Command::new("git");
    // A hub that was itself started by Git, as from a hook, would point the child at that repository.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GIT_")) {
        command.env_remove(name);
    }
    command
        .args(["upload-pack", "--"])
        .arg(path)
        .env("GIT_PROTOCOL", "version=2")
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Ends the child when the meter says so: whoever reads from it is blocked and cannot.
fn watch(child: Arc<Mutex<Child>>, meter: Arc<Meter>) -> io::Result<(Sender<()>, JoinHandle<()>)> {
    let (done, finished) = mpsc::channel();
    let thread = std::thread::Builder::new().name("farshore-git-watch".to_owned()).spawn(move || {
        loop {
            let left = meter.left();
            if left.is_zero() {
                // It may have ended by itself meanwhile.
                child.lock().unwrap_or_else(PoisonError::into_inner).kill().ok();
                return;
            }
            match finished.recv_timeout(left) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    })?;
    Ok((done, thread))
}

impl UploadPack {
    /// Ends the child and tells the meter that it was no repository, if that is what it said.
    pub(super) fn judge(&self) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // Ending what has ended is no error worth telling, and its complaint is all that is wanted.
        child.kill().ok();
        let mut complaint = String::new();
        if let Some(errors) = child.stderr.take() {
            errors.take(COMPLAINT_LIMIT).read_to_string(&mut complaint).ok();
        }
        let complaint = complaint.trim();
        if complaint.contains("not appear to be a git repository") || complaint.contains("dubious ownership")
        {
            let first = complaint.lines().next().unwrap_or_default().trim_start_matches("fatal: ");
            self.meter.stop(Stop::NotFound(first.to_owned()));
        }
    }
}

impl Drop for UploadPack {
    fn drop(&mut self) {
        if let Some((done, thread)) = self.watch.take() {
            drop(done);
            // A watch that panicked has nothing left to tell.
            thread.join().ok();
        }
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.kill().ok();
        child.wait().ok();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Limits;
    use super::*;

    #[test]
    fn a_child_that_hangs_is_ended_at_the_limit() {
        let limits = Limits { idle: Duration::from_millis(50), ..Limits::default() };
        let meter = Meter::start(limits);
        let mut child =
            Command::new("sleep").arg("600").stdout(Stdio::piped()).spawn().expect("sleep is on PATH");
        let output = child.stdout.take().expect("it was given a pipe");
        let child = Arc::new(Mutex::new(child));
        let watch = watch(child.clone(), meter.clone()).expect("a thread starts");
        let upload = UploadPack { child: child.clone(), watch: Some(watch), meter: meter.clone() };
        let mut nothing = Vec::new();
        Metered::new(output, meter.clone(), |_, error| error).read_to_end(&mut nothing).expect("it ended");
        drop(upload);
        let url = "file:///a".parse().expect("a URL");
        assert!(matches!(meter.explain(&url, "cut".into()), SourceError::Stalled { .. }));
        let ended = child.lock().expect("no panic").try_wait().expect("our own child");
        assert!(ended.is_some(), "no child is left behind");
    }
}
