//! The kit of the command's tests: the program itself, run to its end.

use std::process::{Command, Output};

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The exit code.
    pub(crate) code: Option<i32>,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
}

impl Ended {
    /// Fails the test unless the program ended with this code.
    #[track_caller]
    pub(crate) fn with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }
}

/// Runs `farshore` with arguments, without any variable of its own.
pub(crate) fn farshore(arguments: &[&str]) -> Ended {
    run(arguments, &[])
}

/// Runs `farshore` with arguments and variables.
pub(crate) fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FARSHORE_") {
            command.env_remove(name);
        }
    }
    command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").envs(variables.iter().copied());
    let Output { status, stdout, stderr } = command.args(arguments).output().expect("the program runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints text");
    Ended { code: status.code(), out: text(stdout), err: text(stderr) }
}
