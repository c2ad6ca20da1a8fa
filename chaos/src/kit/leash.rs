//! Child processes that cannot outlive the test, however it ends.
//!
//! A child leads a process group of its own. `Drop` kills the group; and a second process, the leash, kills it when
//! its standard input closes, which happens when this process dies of whatever cause. The child starts its program
//! only after the leash is on, and exits instead if this process dies in between.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::{KitError, wait_for};

/// Waits for a line on standard input, then becomes the program; the end of input means that the test is gone.
const GATE: &str = r#"read -r _ && exec "$@" </dev/null"#;
/// Waits for the end of standard input, then kills the process group.
const LEASH: &str = r#"cat >/dev/null; kill -s KILL -- "-$1""#;

/// How much of a log an error shows.
const SHOWN_LINES: usize = 30;

/// A running program, with its output in two files.
#[derive(Debug)]
pub(crate) struct Leashed {
    what: String,
    child: Child,
    /// None once the group was killed and the child reaped: from then on its number may be another process's.
    leash: Option<Child>,
    log: Log,
}

/// The two files with a program's output.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    out: PathBuf,
    err: PathBuf,
}

impl Leashed {
    /// Starts `command` with its output in `folder/NAME.out` and `folder/NAME.err`, to which it appends.
    ///
    /// Program, arguments, variables and working folder are taken from `command`; it must not clear its environment
    /// (a removed variable is kept removed), because that cannot be read back.
    pub(crate) fn start(what: &str, command: &Command, folder: &Path) -> Result<Self, KitError> {
        let log = Log { out: folder.join(format!("{what}.out")), err: folder.join(format!("{what}.err")) };
        let mut child = gated(command)
            .stdin(Stdio::piped())
            .stdout(append(&log.out)?)
            .stderr(append(&log.err)?)
            .spawn()
            .map_err(KitError::io("starting a program", command.get_program()))?;
        let leash = match leash(child.id()) {
            Ok(leash) => leash,
            Err(error) => {
                // Behind its gate the program has not begun; closing the gate ends the child.
                drop(child.stdin.take());
                child.wait().map_err(KitError::io("ending a program", command.get_program()))?;
                return Err(error);
            }
        };
        let gate = child.stdin.take().expect("standard input is a pipe");
        let leashed = Self { what: what.to_owned(), child, leash: Some(leash), log };
        open(gate).map_err(KitError::io("starting a program", command.get_program()))?;
        Ok(leashed)
    }

    /// The process id, which is also the id of its group.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> Log {
        self.log.clone()
    }

    /// The exit status if the program has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>, KitError> {
        self.child.try_wait().map_err(KitError::io("looking at a program", &self.what))
    }

    /// Sends a signal to the program alone.
    pub(crate) fn signal(&mut self, signal: Signal) -> Result<(), KitError> {
        if self.ended()?.is_some() {
            return Ok(());
        }
        kill_process(pid(&self.child), signal)
            .map_err(|errno| KitError::io("signalling a program", &self.what)(errno.into()))
    }

    /// Waits until the program has ended.
    pub(crate) async fn wait(&mut self, deadline: Duration) -> Result<ExitStatus, KitError> {
        let what = format!("{} to end", self.what);
        wait_for(&what, deadline, async || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            Ok(None) => Err("it runs".to_owned()),
            Err(error) => Err(error.to_string()),
        })
        .await
    }

    /// Kills the program and everything it started, and returns when the program is gone.
    pub(crate) fn kill(&mut self) -> Result<ExitStatus, KitError> {
        if let Some(mut leash) = self.leash.take() {
            self.kill_group();
            // Killed rather than let loose, which would make it kill whatever has the group's number by then.
            leash.kill().and_then(|()| leash.wait()).map_err(KitError::io("ending a leash", &self.what))?;
        }
        self.child.wait().map_err(KitError::io("ending a program", &self.what))
    }

    /// Waits until `probe` says ready; ends early, with the log, if the program ends first.
    pub(crate) async fn until_ready(
        &mut self,
        deadline: Duration,
        mut probe: impl AsyncFnMut() -> Result<(), String>,
    ) -> Result<(), KitError> {
        let child = &mut self.child;
        let what = self.what.as_str();
        let looked = wait_for(what, deadline, async || match child.try_wait() {
            Ok(Some(status)) => Ok(Some(status)),
            Ok(None) => probe().await.map(|()| None),
            Err(error) => Err(error.to_string()),
        })
        .await;
        let state = match looked {
            Ok(None) => return Ok(()),
            Ok(Some(status)) => format!("it ended: {status}"),
            Err(KitError::NotYet { waited, last, .. }) => format!("not ready after {waited:?}: {last}"),
            Err(other) => return Err(other),
        };
        Err(KitError::NotReady { what: what.to_owned(), state, log: self.log.tail() })
    }

    /// Without effect on a group that is gone already.
    fn kill_group(&mut self) {
        if let Err(errno) = kill_process_group(pid(&self.child), Signal::KILL)
            && errno != rustix::io::Errno::SRCH
        {
            eprintln!("killing {} ({errno})", self.what);
        }
    }
}

impl Log {
    pub(crate) fn stdout(&self) -> String {
        read(&self.out)
    }

    pub(crate) fn stderr(&self) -> String {
        read(&self.err)
    }

    /// The first line, of either file, that contains `fragment`.
    pub(crate) fn line_with(&self, fragment: &str) -> Option<String> {
        let log = self.stdout() + &self.stderr();
        log.lines().find(|line| line.contains(fragment)).map(str::to_owned)
    }

    fn tail(&self) -> String {
        let log = self.stdout() + &self.stderr();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
    }
}

impl Drop for Leashed {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            eprintln!("{error:?}");
        }
    }
}

fn gated(command: &Command) -> Command {
    let mut gated = Command::new("/bin/sh");
    gated.args(["-c", GATE, "gate"]).arg(command.get_program()).args(command.get_args()).process_group(0);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => gated.env(name, value),
            None => gated.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        gated.current_dir(folder);
    }
    gated
}

fn leash(child: u32) -> Result<Child, KitError> {
    Command::new("/bin/sh")
        .args(["-c", LEASH, "leash", &child.to_string()])
        // A group of its own, so that Ctrl-C in a terminal does not take the leash before its child.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(KitError::io("starting a leash", "/bin/sh"))
}

fn open(mut gate: impl Write) -> std::io::Result<()> {
    gate.write_all(b"go\n")
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

fn append(path: &Path) -> Result<File, KitError> {
    File::options().create(true).append(true).open(path).map_err(KitError::io("opening a log", path))
}

fn read(path: &Path) -> String {
    match std::fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("(reading {}: {error})\n", path.display()),
    }
}
