//! The documents say what is so: links lead somewhere, and every test and file that
//! `ARCHITECTURE.md` names is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace").to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{} cannot be read: {error}", path.display()))
}

/// The Markdown files of the top folder and of `docs/`.
fn documents() -> Vec<PathBuf> {
    let in_folder = |folder: PathBuf| fs::read_dir(folder).expect("the folder is there");
    let entries = in_folder(root()).chain(in_folder(root().join("docs")));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// What stands between `](` and `)`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link)
}

/// The anchor of a heading, as renderers of Markdown make it.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

#[test]
fn every_link_of_a_document_leads_somewhere() {
    let mut dead = vec![];
    for document in documents() {
        let text = read(&document);
        for link in links(&text).filter(|link| !link.contains("://")) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let folder = document.parent().expect("a file has a folder");
            let target = if file.is_empty() { document.clone() } else { folder.join(file) };
            let is_there =
                target.exists() && (heading.is_empty() || anchors(&read(&target)).contains(heading));
            if !is_there {
                dead.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(dead.is_empty(), "links that lead nowhere:\n{}", dead.join("\n"));
}

/// The cells of the rows of all tables, without backticks.
fn rows(text: &str) -> impl Iterator<Item = Vec<String>> {
    let rows = text.lines().filter(|line| line.starts_with("| "));
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect())
}

#[test]
fn every_test_that_guards_an_invariant_is_there() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let mut guarded = BTreeSet::new();
    let mut gone = vec![];
    for row in rows(&text) {
        let [invariant, test, file] = &row[..] else { continue };
        let Ok(invariant) = invariant.parse::<u32>() else { continue };
        guarded.insert(invariant);
        let source = fs::read_to_string(root().join(file)).unwrap_or_default();
        // A behaviour of a contract is named once more, in the list that runs it everywhere.
        if !source.contains(&format!("fn {test}(")) {
            gone.push(format!("{invariant}: {test} in {file}"));
        }
    }
    assert_eq!(guarded, (1..=10).collect(), "an invariant has no test");
    assert!(gone.is_empty(), "tests that are not there:\n{}", gone.join("\n"));
}

#[test]
fn every_file_that_the_architecture_names_is_there() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let is_path = |word: &&str| {
        let crates =
            ["agent/", "chaos/", "cli/", "docs/", "examples/", "hub-fn/", "schemas/", "shared/", "xtask/"];
        crates.iter().any(|folder| word.starts_with(folder)) && !word.contains(['{', '*', ' '])
    };
    let named = text.split('`').skip(1).step_by(2).filter(is_path);
    let gone: Vec<&str> = named.filter(|path| !root().join(path).exists()).collect();
    assert!(gone.is_empty(), "files that are not there: {gone:?}");
}
