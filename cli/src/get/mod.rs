//! `farshore get`: what there is, as a table or as JSON.
//!
//! Loading is apart from deciding: the submodules make rows of loaded documents and a time, and touch
//! nothing. `schemas/get.schema.json` is made from the rows.

mod clusters;
mod services;
mod sources;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::num::NonZeroUsize;

use clap::{Args, Subcommand, ValueEnum};
use farshore_shared::exit::Exit;
use farshore_shared::names::{LabelKey, LabelValue, Name, label_pair};
use schemars::JsonSchema;
use serde::Serialize;

use crate::failure::Failure;
use crate::record::{Place, Record};
use crate::remote::Remote;
use crate::table::{self, Cell};
use crate::time::now;
use clusters::{ClusterRow, ClusterState};
use services::{ServiceRow, ServiceState};
use sources::{SourceRow, SourceState};

/// `farshore get`.
#[derive(Args)]
#[command(after_help = ALL)]
pub(crate) struct GetArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Show every registered cluster, and whether it is as it should be
    #[command(after_help = CLUSTERS)]
    Clusters(ClustersArgs),
    /// Show every declared service, and what is published of it
    #[command(after_help = SERVICES)]
    Services(ListArgs<ServiceState>),
    /// Show every source, and the changes that wait for an approval
    #[command(after_help = SOURCES)]
    Sources(ListArgs<SourceState>),
}

const ALL: &str = "\
Examples:
  farshore get clusters --data ./hub
  farshore get services --objects s3://fleet -o json
  farshore get sources --hub https://hub.example:8443 --key ./keys/operator.key

Beside the record of a hub with --data or --objects; from anywhere with --hub and an operator's key.";

const CLUSTERS: &str = "\
Examples:
  farshore get clusters --data ./hub
  farshore get clusters --data ./hub --selector tier=edge --state failed,unreachable
  farshore get clusters --hub https://hub.example:8443 --key ./keys/operator.key --state failed
  farshore get clusters --objects s3://fleet -o json | jq '.items[] | select(.state != \"converged\")'

States: converged (holds what is published, and all of it is applied), converging, failed (a service
failed), unreachable (not heard for three polls and a minute), never-seen.";

const SERVICES: &str = "\
Examples:
  farshore get services --data ./hub
  farshore get services --data ./hub --state error -o json

States: published, pending (never published), error (not as declared; sites keep what they have).";

const SOURCES: &str = "\
Examples:
  farshore get sources --data ./hub
  farshore get sources --data ./hub --state held

States: ready, degraded (published as far as it can be read), held (waits for an approval: see
farshore approve), failed (cannot be fetched), pending (not looked at yet).";

/// How many clusters are shown unless somebody wants more.
const LIMIT: NonZeroUsize = NonZeroUsize::new(10_000).expect("it is not zero");

#[derive(Args)]
struct ClustersArgs {
    /// Only clusters with this label; may be repeated
    #[arg(short = 'l', long, env = "FARSHORE_SELECTOR", value_name = "KEY=VALUE", value_parser = label_pair, value_delimiter = ',')]
    selector: Vec<(LabelKey, LabelValue)>,
    /// Only clusters whose names begin so
    #[arg(long, env = "FARSHORE_PREFIX", value_name = "TEXT", default_value = "", hide_default_value = true)]
    prefix: String,
    /// At most so many clusters
    #[arg(long, env = "FARSHORE_LIMIT", value_name = "N", default_value_t = LIMIT)]
    limit: NonZeroUsize,
    #[command(flatten)]
    list: ListArgs<ClusterState>,
}

#[derive(Args)]
struct ListArgs<S: ValueEnum + Send + Sync + 'static> {
    #[command(flatten)]
    place: Place,
    /// How it is printed
    #[arg(short, long, env = "FARSHORE_OUTPUT", value_enum, default_value_t = Output::Table)]
    output: Output,
    // No variable: FARSHORE_STATE is the agent's folder.
    /// Only what is in this state; may be repeated
    #[arg(long, value_enum, value_delimiter = ',')]
    state: Vec<S>,
}

/// How a command prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    Table,
    /// For programs
    Json,
}

/// What `farshore get clusters`, `services` and `sources` print with `-o json`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum Listing {
    /// `farshore get clusters`.
    Clusters(List<ClusterRow>),
    /// `farshore get services`.
    Services(List<ServiceRow>),
    /// `farshore get sources`.
    Sources(List<SourceRow>),
}

/// A list.
#[derive(Debug, Serialize, JsonSchema)]
struct List<T> {
    /// The rows, by name; a hub that is asked gives clusters in an order of its own.
    items: Vec<T>,
}

impl GetArgs {
    /// Loads, decides and prints.
    pub(crate) async fn run(self) -> Result<Exit, Failure> {
        let output = match &self.what {
            What::Clusters(args) => args.list.output,
            What::Services(args) => args.output,
            What::Sources(args) => args.output,
        };
        let listing = self.what.load().await?;
        let mut out = anstream::stdout().lock();
        match output {
            Output::Table => listing.write_table(&mut out, now()?)?,
            Output::Json => {
                let text = serde_json::to_string_pretty(&listing).expect("rows have string keys only");
                writeln!(out, "{text}")?;
            }
        }
        Ok(Exit::Ok)
    }
}

impl What {
    async fn load(self) -> Result<Listing, Failure> {
        match self {
            Self::Clusters(args) => Ok(Listing::Clusters(List { items: args.load().await? })),
            Self::Services(list) => Ok(Listing::Services(List { items: list.services().await? })),
            Self::Sources(list) => Ok(Listing::Sources(List { items: list.sources().await? })),
        }
    }
}

impl ClustersArgs {
    async fn load(self) -> Result<Vec<ClusterRow>, Failure> {
        let limit = self.limit.get();
        let (items, counts, is_cut) = match &self.list.place.hub {
            Some(hub) => {
                let mut remote = Remote::open(hub, &self.list.place.call)?;
                let (items, is_cut, counts) = remote.clusters(&self.query(), limit).await?;
                (items.into_iter().map(clusters::told).collect(), counts, is_cut)
            }
            None => {
                let record = Record::open(&self.list.place).await?;
                // First the clusters: a group that a roster names stays published until the roster moves.
                let known = record.clusters().await?;
                let mut items = clusters::rows(&known, &record.published().await?, now()?);
                let counts = clusters::count(&items);
                items.retain(|row| self.is_wanted(row));
                let is_cut = items.len() > limit;
                items.truncate(limit);
                (items, Some(counts), is_cut)
            }
        };
        // Beside the output, so that what reads it finds rows only.
        if let Some(counts) = counts.filter(|counts| counts.total() > 0) {
            anstream::eprintln!("{}", clusters::counted(&counts));
        }
        if is_cut {
            anstream::eprintln!("only {limit} are shown: more with --limit");
        }
        Ok(items)
    }

    fn is_wanted(&self, row: &ClusterRow) -> bool {
        self.list.is_wanted(row.state)
            && row.name.as_str().starts_with(&self.prefix)
            && self.selector.iter().all(|(key, value)| row.labels.get(key) == Some(value))
    }

    /// The same as a hub is asked for it.
    fn query(&self) -> Vec<(&'static str, String)> {
        let states: Vec<&str> = self.list.state.iter().map(|state| state.word()).collect();
        let labels: Vec<String> = self.selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let all =
            [("state", states.join(",")), ("selector", labels.join(",")), ("prefix", self.prefix.clone())];
        all.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }
}

impl ListArgs<ServiceState> {
    async fn services(self) -> Result<Vec<ServiceRow>, Failure> {
        let mut items = match &self.place.hub {
            Some(hub) => {
                let (intent, heads, counts) = Remote::open(hub, &self.place.call)?.services().await?;
                let count = |name: &Name| counts.get(name).and_then(|count| usize::try_from(*count).ok());
                services::counted(&intent, &heads, |name, _| count(name).unwrap_or_default())
            }
            None => {
                let record = Record::open(&self.place).await?;
                let (known, heads) = (record.clusters().await?, record.source_heads().await?);
                services::rows(&record.published().await?.intent, &heads, &known)
            }
        };
        items.retain(|row| self.is_wanted(row.state));
        Ok(items)
    }
}

impl ListArgs<SourceState> {
    async fn sources(self) -> Result<Vec<SourceRow>, Failure> {
        let mut items = match &self.place.hub {
            Some(hub) => {
                let (intent, heads) = Remote::open(hub, &self.place.call)?.sources().await?;
                sources::rows(&intent, &heads)
            }
            None => {
                let record = Record::open(&self.place).await?;
                let heads = record.source_heads().await?;
                sources::rows(&record.published().await?.intent, &heads)
            }
        };
        items.retain(|row| self.is_wanted(row.state));
        Ok(items)
    }
}

impl<S: ValueEnum + PartialEq + Send + Sync + 'static> ListArgs<S> {
    fn is_wanted(&self, state: S) -> bool {
        self.state.is_empty() || self.state.contains(&state)
    }
}

impl Listing {
    fn write_table(&self, out: &mut dyn Write, now: u64) -> std::io::Result<()> {
        match self {
            Self::Clusters(list) => {
                let rows: Vec<[Cell; 7]> = list.items.iter().map(|row| row.cells(now)).collect();
                table::write(out, clusters::HEADER, &rows)
            }
            Self::Services(list) => {
                let rows: Vec<[Cell; 7]> = list.items.iter().map(ServiceRow::cells).collect();
                table::write(out, services::HEADER, &rows)
            }
            Self::Sources(list) => {
                let rows: Vec<[Cell; 6]> = list.items.iter().map(SourceRow::cells).collect();
                table::write(out, sources::HEADER, &rows)
            }
        }
    }
}

/// A commit as people read it.
fn short(commit: Option<&str>) -> &str {
    commit.map_or("", |commit| commit.get(..12).unwrap_or(commit))
}
