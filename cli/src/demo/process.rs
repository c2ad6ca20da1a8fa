//! Processes that cannot outlive the demo, however it ends.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use tempfile::TempDir;

use super::DemoError;

/// Keeps account of who runs. At the end of its input, which comes when the demo ends of whatever cause,
/// it kills who still does and removes the folder.
const JANITOR: &str = r#"
alive=
while read -r verb pid; do
  case $verb in
    started) alive="$alive $pid" ;;
    ended) rest=
      for one in $alive; do [ "$one" = "$pid" ] || rest="$rest $one"; done
      alive=$rest ;;
  esac
done
for pid in $alive; do kill -s KILL "$pid" 2>/dev/null; done
[ -z "$1" ] || rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }
"#;

/// How many lines of a log a person is shown.
const SHOWN_LINES: usize = 6;
/// How many bytes of a log's end are looked at for them.
const SHOWN_BYTES: usize = 4096;

/// Cleans up behind the demo; owns its folder.
#[derive(Debug)]
pub(super) struct Janitor {
    shell: Child,
    folder: TempDir,
}

impl Janitor {
    pub(super) fn of(mut folder: TempDir, keep: bool) -> Result<Self, DemoError> {
        folder.disable_cleanup(keep);
        let removed = if keep { OsStr::new("") } else { folder.path().as_os_str() };
        let shell = Command::new("/bin/sh")
            .args(["-c", JANITOR, "janitor"])
            .arg(removed)
            // A group of its own: Ctrl-C in a terminal must not take it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| DemoError::Start { program: "/bin/sh".into(), source })?;
        Ok(Self { shell, folder })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn note(&self, verb: &str, pid: u32) {
        let mut orders = self.shell.stdin.as_ref().expect("standard input is a pipe until the drop");
        // A janitor that was killed cannot clean up; the demo itself still does.
        let _ = writeln!(orders, "{verb} {pid}");
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // Only a janitor that was killed leaves anything, and then the folder's own drop removes it.
        let _ = self.shell.wait();
    }
}

/// A running program, with its output in a file.
#[derive(Debug)]
pub(super) struct Process {
    name: String,
    child: Child,
    janitor: Arc<Janitor>,
}

impl Process {
    /// Starts a program whose output goes to the end of `log`.
    pub(super) fn start(
        name: &str,
        mut command: Command,
        log: &Path,
        janitor: &Arc<Janitor>,
    ) -> Result<Self, DemoError> {
        let open = || File::options().create(true).append(true).open(log);
        let io = |source| DemoError::Io { doing: "opening a log", path: log.to_owned(), source };
        let (out, err) = (open().map_err(io)?, open().map_err(io)?);
        let child = command.process_group(0).stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        let child = child.map_err(|source| DemoError::Start {
            program: command.get_program().to_string_lossy().into_owned(),
            source,
        })?;
        janitor.note("started", child.id());
        Ok(Self { name: name.to_owned(), child, janitor: Arc::clone(janitor) })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// An error if it does not run any more.
    pub(super) fn check(&mut self) -> Result<(), DemoError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(DemoError::Ended { name: self.name.clone(), status }),
            Err(source) => Err(DemoError::System { doing: "looking at a process", source }),
        }
    }
}

impl Drop for Process {
    /// SIGKILL: no program here is asked to end.
    fn drop(&mut self) {
        self.janitor.note("ended", self.child.id());
        // It may have ended before; there is nobody left to tell of anything else.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last lines of a log.
pub(super) fn tail(log: &Path) -> Vec<String> {
    let bytes = match std::fs::read(log) {
        Ok(bytes) => bytes,
        Err(error) => return vec![format!("({error})")],
    };
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(SHOWN_BYTES)..]);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].iter().map(ToString::to_string).collect()
}
