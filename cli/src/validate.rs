//! `farshore validate`: every mistake of a fleet repository, before it is pushed.

use std::io::Write;
use std::path::PathBuf;

use anstyle::AnsiColor;
use clap::Args;
use farshore_hub_fn::declare::{Mistake, Reading, Warning, validate_folder};
use farshore_shared::exit::Exit;
use serde::Serialize;

use crate::failure::Failure;
use crate::get::Output;

/// `farshore validate`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ValidateArgs {
    /// Folder of a fleet repository, or one file of it
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// How it is printed
    #[arg(short, long, env = "FARSHORE_OUTPUT", value_enum, default_value_t = Output::Table)]
    output: Output,
}

const EXAMPLES: &str = "\
Examples:
  farshore validate .
  farshore validate services/web.yaml
  farshore validate . -o json | jq '.mistakes[].file'

Ends with 3 if there is a mistake. Warnings keep nothing from being published.";

/// What `-o json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    sources: usize,
    services: usize,
    clusters: usize,
    mistakes: &'a [Mistake],
    warnings: &'a [Warning],
}

impl ValidateArgs {
    /// Reads and prints.
    pub(crate) fn run(&self) -> Result<Exit, Failure> {
        let reading = validate_folder(&self.path)?;
        let mut out = anstream::stdout().lock();
        match self.output {
            Output::Table => write_text(&mut out, &reading)?,
            Output::Json => write_json(&mut out, &reading)?,
        }
        Ok(if reading.is_complete() { Exit::Ok } else { Exit::BadInput })
    }
}

fn write_text(out: &mut dyn Write, reading: &Reading) -> Result<(), Failure> {
    // Each line begins with its place, as editors and CI want it.
    for mistake in &reading.mistakes {
        writeln!(out, "{}", printable(&mistake.to_string()))?;
    }
    let style = AnsiColor::Yellow.on_default();
    for Warning { file, line, message } in &reading.warnings {
        let place = match line {
            Some(line) => format!("{file}:{line}: "),
            None if file.is_empty() => String::new(),
            None => format!("{file}: "),
        };
        writeln!(out, "{}{style}warning{style:#}: {}", printable(&place), printable(message))?;
    }
    let fleet = &reading.fleet;
    let read = [
        counted(fleet.sources.len(), "source"),
        counted(fleet.services.len(), "service"),
        counted(fleet.clusters.len(), "cluster"),
    ];
    let (mistakes, warnings) =
        (counted(reading.mistakes.len(), "mistake"), counted(reading.warnings.len(), "warning"));
    writeln!(out, "{} read; {mistakes}, {warnings}", read.join(", "))?;
    Ok(())
}

fn write_json(out: &mut dyn Write, reading: &Reading) -> Result<(), Failure> {
    let fleet = &reading.fleet;
    let report = Report {
        sources: fleet.sources.len(),
        services: fleet.services.len(),
        clusters: fleet.clusters.len(),
        mistakes: &reading.mistakes,
        warnings: &reading.warnings,
    };
    let text = serde_json::to_string_pretty(&report).expect("a report has string keys only");
    Ok(writeln!(out, "{text}")?)
}

fn counted(count: usize, what: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {what}{ending}")
}

/// What stands in a repository may hold control characters, with which a terminal can be commanded.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
