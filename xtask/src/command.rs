//! Running other programs.

use std::path::Path;
use std::process::{Command, Output};

use crate::error::ChoreError;

/// Runs a program with the terminal as its output.
pub(crate) fn run(command: &mut Command) -> Result<(), ChoreError> {
    eprintln!("$ {}", line(command));
    let status = command.status().map_err(start(command))?;
    if status.success() {
        return Ok(());
    }
    Err(ChoreError::Failed { what: line(command), status, output: String::new() })
}

/// Runs a program and returns what it printed on standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, ChoreError> {
    let Output { status, stdout, stderr } = command.output().map_err(start(command))?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let output = format!(":\n{}", String::from_utf8_lossy(&stderr));
    Err(ChoreError::Failed { what: line(command), status, output })
}

/// The program's name, without its folder, and its arguments.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let words = program.file_name().into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// The error of a program that could not be started, to be used with `map_err`.
pub(crate) fn start(command: &Command) -> impl FnOnce(std::io::Error) -> ChoreError {
    let program = command.get_program().to_string_lossy().into_owned();
    move |source| ChoreError::Start { program, source }
}
