//! The exit codes of every Farshore program: scripts rely on them.

use std::process::ExitCode;

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: done.
    Ok,
    /// 1: our fault.
    Fault,
    /// 2: the command line cannot be understood.
    Usage,
    /// 3: what was given to work on is bad.
    BadInput,
    /// 4: a change waits for an approval.
    Held,
    /// 5: somebody who is needed does not answer.
    Unreachable,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Ok => 0,
            Exit::Fault => 1,
            Exit::Usage => 2,
            Exit::BadInput => 3,
            Exit::Held => 4,
            Exit::Unreachable => 5,
        })
    }
}

/// An error and all its causes in one line, as the top of a program prints it.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
