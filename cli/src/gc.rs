//! `farshore gc`: what of the record nobody needs any more, and its deletion.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use farshore_hub_fn::keyring::Keyring;
use farshore_hub_fn::retention::{Collector, Found, Rules};
use farshore_hub_fn::status::judge::age;
use farshore_shared::duration::HumanDuration;
use farshore_shared::exit::Exit;
use serde::Serialize;

use crate::failure::Failure;
use crate::get::Output;
use crate::record::{Place, Record};
use crate::table::{self, Cell, Tone};
use crate::time::{now, rfc3339};

/// `farshore gc`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GcArgs {
    #[command(flatten)]
    place: Place,
    /// Folder of the keys [default: DATA/keys]; not needed with --dry-run
    #[arg(long, env = "FARSHORE_KEYS", value_name = "DIR")]
    keys: Option<PathBuf>,
    /// Show what is unneeded and since when; mark and delete nothing
    #[arg(long, env = "FARSHORE_DRY_RUN")]
    dry_run: bool,
    /// How long what no document names any more is kept (at least 1h)
    #[arg(long, env = "FARSHORE_KEEP_UNNEEDED", value_name = "DURATION", default_value = "1d")]
    keep_unneeded: HumanDuration,
    /// How it is printed
    #[arg(short, long, env = "FARSHORE_OUTPUT", value_enum, default_value_t = Output::Table)]
    output: Output,
}

const EXAMPLES: &str = "\
Examples:
  farshore gc --data ./hub --dry-run
  farshore gc --objects s3://fleet --keys ./keys
  farshore gc --objects s3://fleet --dry-run -o json | jq .totals

What is unneeded is marked by the first round that finds it, and deleted by a later one, when it was
unneeded for its time. Publishers do the same once an hour; both may run at once.";

/// Why nothing was collected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GcError {
    /// The time is too short.
    #[error("--keep-unneeded is at least 1h (got {0}): downloads may still be running")]
    TooShort(HumanDuration),
    /// There are no keys to sign with.
    #[error(
        "--keys DIR is needed beside --objects: deleting moves signed pointers; to look only, use --dry-run"
    )]
    NoKeys,
}

/// What was found and done.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    /// Objects, by key.
    items: Vec<Item>,
    /// All together.
    totals: Totals,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    key: String,
    kind: &'static str,
    bytes: u64,
    state: State,
    /// Since when it is known to be unneeded.
    unneeded_since: Option<String>,
    why: &'static str,
    #[serde(skip)]
    since: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    /// Kept until its time is over.
    Waiting,
    /// To be deleted.
    Due,
    /// Deleted.
    Deleted,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Totals {
    waiting: Sum,
    due: Sum,
    deleted: Sum,
    /// Whether another collector was at work, so that this one stopped.
    was_busy: bool,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Sum {
    objects: u64,
    bytes: u64,
}

impl GcArgs {
    /// Looks, and unless it is a dry run, deletes.
    pub(crate) async fn run(self) -> Result<Exit, Failure> {
        let unneeded = self.keep_unneeded.0.as_secs();
        if unneeded < Rules::LEAST {
            return Err(GcError::TooShort(self.keep_unneeded).into());
        }
        let record = Record::open(&self.place).await?;
        let rules = Rules { unneeded, ..Rules::default() };
        let (collector, now) = (Collector::new(record.objects(), record.trust(), rules), now()?);
        let report = if self.dry_run {
            report(&collector.look().await?, &[], now)
        } else {
            let keys = self.keys.or_else(|| self.place.data.map(|data| data.join("keys")));
            let director = Keyring::at(&keys.ok_or(GcError::NoKeys)?).publisher()?.director;
            let round = collector.round(&director, now).await?;
            let mut report = report(&round.unneeded, &round.deleted, now);
            report.totals.was_busy = round.was_busy;
            report
        };
        report.print(self.output, now)?;
        Ok(Exit::Ok)
    }
}

fn report(unneeded: &[Found], deleted: &[Found], now: u64) -> Report {
    let gone: std::collections::BTreeSet<_> = deleted.iter().map(|found| &found.key).collect();
    let waiting = unneeded.iter().filter(|found| !gone.contains(&found.key));
    let waiting = waiting.map(|found| (found, if found.is_due(now) { State::Due } else { State::Waiting }));
    let all = deleted.iter().map(|found| (found, State::Deleted)).chain(waiting);
    let mut items: Vec<Item> = all.map(|(found, state)| item(found, state)).collect();
    items.sort_by(|a, b| a.key.cmp(&b.key));
    let mut totals = Totals::default();
    for item in &items {
        let sum = match item.state {
            State::Waiting => &mut totals.waiting,
            State::Due => &mut totals.due,
            State::Deleted => &mut totals.deleted,
        };
        sum.objects += 1;
        sum.bytes += item.bytes;
    }
    Report { items, totals }
}

fn item(found: &Found, state: State) -> Item {
    Item {
        key: found.key.to_string(),
        kind: found.kind.label(),
        bytes: found.size,
        state,
        unneeded_since: found.since.and_then(rfc3339),
        why: found.kind.why(),
        since: found.since,
    }
}

impl Report {
    fn print(&self, output: Output, now: u64) -> std::io::Result<()> {
        let mut out = anstream::stdout().lock();
        if output == Output::Json {
            let text = serde_json::to_string_pretty(self).expect("a report has string keys only");
            return writeln!(out, "{text}");
        }
        let rows: Vec<[Cell; 6]> = self.items.iter().map(|item| item.cells(now)).collect();
        if !rows.is_empty() {
            table::write(&mut out, ["KIND", "STATE", "UNNEEDED", "BYTES", "KEY", "WHY"], &rows)?;
        }
        let Totals { waiting, due, deleted, was_busy } = &self.totals;
        for (word, sum) in [("waiting", waiting), ("due", due), ("deleted", deleted)] {
            writeln!(out, "{word}: {} objects, {} bytes", sum.objects, sum.bytes)?;
        }
        if *was_busy {
            writeln!(out, "another collector is at work: it deletes the rest")?;
        }
        Ok(())
    }
}

impl Item {
    fn cells(&self, now: u64) -> [Cell; 6] {
        let (state, tone) = match self.state {
            State::Waiting => ("waiting", Tone::Plain),
            State::Due => ("due", Tone::Wait),
            State::Deleted => ("deleted", Tone::Good),
        };
        let since = self.since.map_or_else(|| "new".to_owned(), |since| age(now.saturating_sub(since)));
        [
            Cell::plain(self.kind),
            Cell::toned(state, tone),
            Cell::plain(&since),
            Cell::plain(&self.bytes.to_string()),
            Cell::plain(&self.key),
            Cell::plain(self.why),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farshore_hub_fn::objects::Key;
    use farshore_hub_fn::retention::Kind;

    #[test]
    fn a_report_counts_each_object_once_by_what_became_of_it() {
        let found = |key: &str, since| Found {
            key: Key::new(key).expect("a key"),
            kind: Kind::Artifact,
            size: 10,
            keep: 100,
            since,
        };
        let all = [found("a", Some(100)), found("b", Some(100)), found("c", Some(150)), found("d", None)];
        let report = report(&all, &all[..1], 200);
        let sum = |objects| Sum { objects, bytes: objects * 10 };
        let expected = Totals { waiting: sum(2), due: sum(1), deleted: sum(1), was_busy: false };
        assert_eq!(report.totals, expected);
    }
}
