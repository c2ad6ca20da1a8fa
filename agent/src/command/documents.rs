//! What `docs/agent.md` says of options and states is what there is.

use std::collections::BTreeSet;
use std::path::Path;

use clap::{Args as _, Command, Subcommand as _};
use farshore_shared::wire::{CheckOutcome, DriftAction, ServiceState};
use serde::Serialize;

use super::{SiteArgs, SiteCommand};
use crate::local::Health;

fn manual() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/agent.md");
    std::fs::read_to_string(path).expect("the manual is there")
}

/// The rows of its tables that have an option or a variable: option, variable, default.
fn rows(manual: &str) -> Vec<[String; 3]> {
    let rows = manual.lines().filter(|line| line.starts_with('|') && line.contains("`FARSHORE_"));
    rows.map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', ""));
        std::array::from_fn(|_| cells.next().unwrap_or_default())
    })
    .collect()
}

/// Every option of the agent and of its commands: its long name, variable and default.
fn options() -> BTreeSet<[String; 3]> {
    let agent = SiteArgs::augment_args(Command::new("agent"));
    let commands = SiteCommand::augment_subcommands(Command::new("agent"));
    let all = std::iter::once(&agent).chain(commands.get_subcommands());
    let arguments = all.flat_map(Command::get_arguments);
    let options = arguments.filter_map(|argument| {
        let name = format!("--{}", argument.get_long()?);
        let variable = argument.get_env().map(|variable| variable.to_string_lossy().into_owned());
        let value = argument.get_default_values().first().filter(|_| argument.get_action().takes_values());
        let value = value.map(|value| value.to_string_lossy().into_owned()).unwrap_or_default();
        Some([name, variable.unwrap_or_default(), value])
    });
    options.filter(|[name, ..]| !matches!(name.as_str(), "--help" | "--version")).collect()
}

#[test]
fn the_manual_has_every_option_with_its_variable_and_default_and_no_other() {
    let (manual, options) = (manual(), options());
    let rows = rows(&manual);
    assert!(options.len() > 20, "these are not all: {options:?}");
    let is_of = |row: &[String; 3], option: &[String; 3]| {
        let named = row[0].split([' ', ',']).next() == Some(&option[0]);
        named && row[1] == option[1] && row[2].contains(&option[2])
    };
    let untold: Vec<_> = options.iter().filter(|option| !rows.iter().any(|row| is_of(row, option))).collect();
    assert!(untold.is_empty(), "docs/agent.md does not have {untold:?}");
    let gone = rows.iter().filter(|row| row[0].starts_with("--"));
    let gone: Vec<_> = gone.filter(|row| !options.iter().any(|option| is_of(row, option))).collect();
    assert!(gone.is_empty(), "docs/agent.md has {gone:?}");
}

/// How a state is written.
fn word<T: Serialize>(state: T) -> String {
    serde_json::to_value(state).expect("a word").as_str().expect("a word").to_owned()
}

#[test]
fn the_manual_has_every_state() {
    let manual = manual();
    let section = manual.split("\n## Every state\n").nth(1).and_then(|rest| rest.split("\n## ").next());
    let section = section.expect("it has such a section");
    // Whoever adds one finds it missing here.
    let state = |state: ServiceState| match state {
        ServiceState::Applied | ServiceState::Waiting | ServiceState::Held | ServiceState::Failed => {
            word(state)
        }
    };
    let health = |health: Health| match health {
        Health::Healthy
        | Health::Progressing
        | Health::Waiting
        | Health::Held
        | Health::Failed
        | Health::Unknown => health.word().to_owned(),
    };
    let outcome = |outcome: CheckOutcome| match outcome {
        CheckOutcome::Passed | CheckOutcome::Failed => word(outcome),
    };
    let action = |action: DriftAction| match action {
        DriftAction::Corrected | DriftAction::Reported | DriftAction::Damped => word(action),
    };
    let mut words: Vec<String> =
        [ServiceState::Applied, ServiceState::Waiting, ServiceState::Held, ServiceState::Failed]
            .map(state)
            .into();
    words.extend(
        [
            Health::Healthy,
            Health::Progressing,
            Health::Waiting,
            Health::Held,
            Health::Failed,
            Health::Unknown,
        ]
        .map(health),
    );
    words.extend([CheckOutcome::Passed, CheckOutcome::Failed].map(outcome));
    words.extend([DriftAction::Corrected, DriftAction::Reported, DriftAction::Damped].map(action));
    let untold: Vec<_> = words.iter().filter(|word| !section.contains(&format!("`{word}`"))).collect();
    assert!(untold.is_empty(), "\"Every state\" of docs/agent.md does not have {untold:?}");
}
