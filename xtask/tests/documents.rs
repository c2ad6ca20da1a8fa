//! The documents say what is so: links lead somewhere, and every test and file that
//! `ARCHITECTURE.md` names is there, `docs/operations.md` has every metric, option and price, and the agent's manual and
//! the list of errors have what an agent says.

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
        let crates = [
            "agent/",
            "chaos/",
            "cli/",
            "deploy/",
            "docs/",
            "examples/",
            "hub-fn/",
            "schemas/",
            "shared/",
            "xtask/",
        ];
        crates.iter().any(|folder| word.starts_with(folder)) && !word.contains(['{', '*', ' '])
    };
    let named = text.split('`').skip(1).step_by(2).filter(is_path);
    let gone: Vec<&str> = named.filter(|path| !root().join(path).exists()).collect();
    assert!(gone.is_empty(), "files that are not there: {gone:?}");
}

/// The Rust files below a folder.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The text of all Rust files below a folder.
fn sources(folder: &Path) -> String {
    rust_files(folder).iter().map(|path| read(path)).collect()
}

/// The same without tests.
fn products(folder: &Path) -> String {
    let is_test =
        |path: &&PathBuf| path.components().any(|part| part.as_os_str().to_string_lossy().contains("tests"));
    let files = rust_files(folder);
    let product =
        |path: &PathBuf| read(path).split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned();
    files.iter().filter(|path| !is_test(path)).map(product).collect()
}

/// The words of a text that begin so.
fn words<'a>(text: &'a str, start: &str) -> BTreeSet<&'a str> {
    let found = text.match_indices(start).map(|(at, _)| {
        let rest = &text[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        &rest[..end]
    });
    found.collect()
}

#[test]
fn every_metric_and_every_option_of_the_hub_is_in_the_operator_s_manual() {
    let (manual, code) = (read(&root().join("docs/operations.md")), sources(&root().join("hub-fn/src")));
    // A test may look for a whole line, whose name has an ending of Prometheus's own.
    let bare = |metric: &str| {
        let endings = ["_bucket", "_sum", "_count"];
        endings.iter().find_map(|ending| metric.strip_suffix(ending)).unwrap_or(metric).to_owned()
    };
    let metrics = words(&code, "farshore_hub_").into_iter().map(bare).filter(|name| !name.contains("_fn"));
    // Those of clap: a test has variables of its own.
    let options: String = code.lines().filter(|line| line.contains("env = \"")).collect();
    let options = words(&options, "FARSHORE_").into_iter().map(str::to_owned);
    let unknown: Vec<String> =
        metrics.chain(options).filter(|name| !words(&manual, name).contains(name.as_str())).collect();
    assert!(unknown.is_empty(), "docs/operations.md does not have {unknown:?}");
}

#[test]
fn every_metric_of_the_agent_is_in_its_manual_and_no_other() {
    let manual = read(&root().join("docs/agent.md"));
    let code = sources(&root().join("agent/src"));
    assert_eq!(words(&code, "farshore_agent_"), words(&manual, "farshore_agent_"));
}

#[test]
fn nothing_is_in_the_operator_s_manual_that_is_not_in_the_hub() {
    let (manual, code) = (read(&root().join("docs/operations.md")), sources(&root().join("hub-fn/src")));
    let code = code + &sources(&root().join("shared/src"));
    let gone: Vec<&str> = words(&manual, "farshore_hub_")
        .into_iter()
        .chain(words(&manual, "FARSHORE_"))
        .filter(|name| !name.starts_with("farshore_hub_fn") && !words(&code, name).contains(name))
        .collect();
    assert!(gone.is_empty(), "docs/operations.md has {gone:?}");
}

#[test]
fn the_cost_of_a_fleet_is_the_one_that_is_computed() {
    let printed = std::process::Command::new(env!("CARGO_BIN_EXE_xtask")).arg("cost").output();
    let printed = String::from_utf8(printed.expect("it runs").stdout).expect("text");
    assert!(printed.lines().count() > 2, "{printed}");
    let manual = read(&root().join("docs/operations.md"));
    assert!(manual.contains(printed.trim()), "docs/operations.md should have:\n{printed}");
}

/// The texts in quotes of each call that begins so.
fn calls(code: &str, start: &str) -> Vec<Vec<String>> {
    code.match_indices(start).map(|(at, _)| texts(&code[at + start.len()..])).collect()
}

/// The texts in quotes up to the parenthesis that closes.
fn texts(code: &str) -> Vec<String> {
    let (mut found, mut depth, mut text, mut chars) = (vec![], 1, None::<String>, code.chars().peekable());
    while let Some(c) = chars.next() {
        match (&mut text, c) {
            (Some(_), '"') => found.extend(text.take()),
            (Some(said), '\\') => match chars.next() {
                // A line that goes on.
                Some('\n') => while chars.next_if(|c| c.is_whitespace()).is_some() {},
                escaped => said.extend(escaped),
            },
            (Some(said), c) => said.push(c),
            (None, '"') => text = Some(String::new()),
            (None, '(') => depth += 1,
            (None, ')') => depth -= 1,
            (None, _) => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// The part of a message by which a person finds it: the longest that is the same each time, of what stands before the
/// first parenthesis if that is long enough.
fn telling(message: &str) -> Option<String> {
    let mut pieces = vec![];
    let (mut piece, mut braces) = (String::new(), 0);
    for c in message.replace('`', "").chars().chain([';']) {
        braces += i32::from(c == '{') - i32::from(c == '}');
        if braces > 0 || matches!(c, '}' | ':' | ';' | '(' | ')' | '"' | '[' | ']') {
            pieces.push((std::mem::take(&mut piece), c));
        } else {
            piece.push(c);
        }
    }
    let length = |piece: &str| piece.trim_matches([' ', ',', '.']).len();
    let first = pieces.iter().position(|(_, end)| *end == '(').map_or(pieces.len(), |at| at + 1);
    let longest = |pieces: &[(String, char)]| {
        pieces.iter().map(|(piece, _)| piece.clone()).max_by_key(|piece| length(piece))
    };
    let before = longest(&pieces[..first]).filter(|piece| length(piece) >= 8);
    let piece = before.or_else(|| longest(&pieces)).filter(|piece| length(piece) >= 8)?;
    Some(piece.trim_matches([' ', ',', '.']).to_owned())
}

#[test]
fn every_message_of_the_agent_is_explained() {
    let code = products(&root().join("agent/src"));
    let manual = read(&root().join("docs/agent.md")) + &read(&root().join("docs/errors.md"));
    let manual = manual.replace('`', "").split_whitespace().collect::<Vec<_>>().join(" ");
    let first = ["#[error(", "alarms.push(", "Complaint::worthwhile(", "Complaint::pointless("];
    let first =
        first.iter().flat_map(|start| calls(&code, start)).filter_map(|texts| texts.into_iter().next());
    // What is logged is the last text: before it stand fields.
    let last = ["warn!(", "error!(", "info!("];
    let last =
        last.iter().flat_map(|start| calls(&code, start)).filter_map(|texts| texts.into_iter().next_back());
    let messages: BTreeSet<String> = first.chain(last).filter_map(|message| telling(&message)).collect();
    assert!(messages.len() > 150, "these are not all: {messages:?}");
    let untold: Vec<&String> = messages.iter().filter(|message| !manual.contains(message.as_str())).collect();
    assert!(untold.is_empty(), "neither docs/agent.md nor docs/errors.md has {untold:#?}");
}

#[test]
fn every_event_and_every_mark_of_the_agent_is_in_its_manual() {
    let code = products(&root().join("agent/src"));
    let manual = read(&root().join("docs/agent.md"));
    let happenings = products(&root().join("agent/src/announce"));
    let is_reason = |text: &&str| {
        text.chars().next().is_some_and(char::is_uppercase) && text.chars().all(char::is_alphabetic)
    };
    let reasons: BTreeSet<&str> = happenings.split('"').skip(1).step_by(2).filter(is_reason).collect();
    assert!(reasons.len() > 10, "these are not all: {reasons:?}");
    let marks =
        code.split('"').filter(|text| text.starts_with("farshore.dev/") && !text.contains([' ', '1']));
    let untold: Vec<&str> =
        reasons.into_iter().chain(marks).filter(|word| !manual.contains(&format!("`{word}"))).collect();
    assert!(untold.is_empty(), "docs/agent.md does not have {untold:?}");
}
