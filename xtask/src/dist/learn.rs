//! Watches an agent at work, and writes down which of its functions run.
//!
//! It applies, puts back what others change, and goes on after a restart, under valgrind's callgrind. That is done seldom:
//! when much has changed in what an agent does, or in what it is built with.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::layout;
use crate::command;
use crate::error::ChoreError;
use crate::workspace::Workspace;

/// What an agent does meanwhile. It is fifty times slower than usual, so few objects are enough of a day's work.
const WORK: [&[&str]; 2] = [
    &["drift", "--objects=41", "--runs=20", "--bursts=1", "--burst=20"],
    &["agent-memory", "--objects=100", "--settle=60"],
];

/// Returns the list of functions that run, one in a line.
pub(super) fn hot(workspace: &Workspace, agent: &Path, bench: &Path) -> Result<String, ChoreError> {
    let folder = tempfile::tempdir().map_err(ChoreError::io("making a folder", std::env::temp_dir()))?;
    let watched = folder.path().join("farshore-agent");
    // It is killed like any agent, so it writes down what it did now and then.
    let script = format!(
        "#!/bin/sh\nexec valgrind --tool=callgrind --demangle=no --dump-every-bb=2000000 \
         --callgrind-out-file='{}/ran.%p' '{}' \"$@\"\n",
        folder.path().display(),
        agent.display()
    );
    fs::write(&watched, script)
        .and_then(|()| fs::set_permissions(&watched, fs::Permissions::from_mode(0o755)))
        .map_err(ChoreError::io("writing a program", &watched))?;
    for work in WORK {
        let mut measuring = Command::new(bench);
        measuring.args(work).env("FARSHORE_TESTBED", workspace.testbed()).env("FARSHORE_AGENT", &watched);
        command::run(&mut measuring)?;
    }
    let mut ran = BTreeSet::new();
    let entries = fs::read_dir(folder.path()).map_err(ChoreError::io("reading a folder", folder.path()))?;
    for entry in entries {
        let path = entry.map_err(ChoreError::io("reading a folder", folder.path()))?.path();
        if path != watched {
            let text = fs::read(&path).map_err(ChoreError::io("reading what ran", &path))?;
            ran.extend(functions(&String::from_utf8_lossy(&text)));
        }
    }
    let of_the_agent = layout::functions(agent)?;
    let known: BTreeSet<&str> = of_the_agent.iter().map(|symbol| layout::key(symbol)).collect();
    let lines = ran.iter().filter(|name| known.contains(name.as_str()));
    Ok(lines.flat_map(|name| [name.as_str(), "\n"]).collect())
}

/// The functions that a dump of callgrind names: `fn=(12) NAME`, or `cfn=` of who is called, with `'2` after the name where
/// it calls itself.
fn functions(dump: &str) -> impl Iterator<Item = String> {
    dump.lines().filter_map(|line| {
        let (_number, name) =
            line.strip_prefix('c').unwrap_or(line).strip_prefix("fn=(")?.split_once(") ")?;
        let name = name.split_once('\'').map_or(name, |(name, _depth)| name);
        Some(layout::key(name).to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_names_who_ran_and_who_was_called() {
        let dump = "fl=(1) a.rs\nfn=(1) _ZN1a17h0123456789abcdefE\n0 5\ncfn=(2) ZSTD_compress'2\ncalls=1 0\nfn=(1)\n";
        assert_eq!(functions(dump).collect::<Vec<_>>(), ["_ZN1a", "ZSTD_compress"]);
    }
}
