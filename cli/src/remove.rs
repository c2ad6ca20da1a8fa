//! `farshore remove`: an operator's word that a cluster is no part of the fleet any more.

use std::io::Write as _;

use clap::Args;
use farshore_agent::hub::HubUrl;
use farshore_hub_fn::record::Removal;
use farshore_shared::dsse::Envelope;
use farshore_shared::exit::Exit;
use farshore_shared::names::Name;

use crate::failure::Failure;
use crate::remote::{CallArgs, Remote};
use crate::time::now;

/// `farshore remove`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RemoveArgs {
    /// Name of the cluster
    #[arg(value_name = "CLUSTER")]
    cluster: Name,
    /// Hub to ask, as an operator: https://HOST:PORT
    #[arg(long, env = "FARSHORE_HUB", value_name = "URL", requires = "key")]
    hub: HubUrl,
    #[command(flatten)]
    call: CallArgs,
    /// Remove it; without this, only what would happen is told
    #[arg(long, env = "FARSHORE_YES")]
    yes: bool,
}

const EXAMPLES: &str = "\
Examples:
  farshore remove shop-7 --hub https://hub.example:8443 --key ./keys/operator.key
  farshore remove shop-7 --hub https://hub.example:8443 --key ./keys/operator.key --yes

The site keeps what it has and goes on enforcing it: its agent is told nothing any more. To empty a site, first
take its services away in the fleet repository, and wait until they are gone there.";

impl RemoveArgs {
    /// Finds the cluster, says what happens, signs and sends the removal.
    pub(crate) async fn run(self) -> Result<Exit, Failure> {
        let mut remote = Remote::open(&self.hub, &self.call)?;
        let found = remote.cluster(&self.cluster).await?;
        let mut out = anstream::stdout();
        let name = &self.cluster;
        writeln!(out, "removing {name} (key {})", found.key)?;
        writeln!(
            out,
            "  its pass is refused: it gets no document and no content any more, and reports nothing"
        )?;
        writeln!(
            out,
            "  the site keeps what it has, {} services, and goes on enforcing it",
            found.cluster.services
        )?;
        writeln!(out, "  its name is free: it joins again with a new token only")?;
        if !self.yes {
            writeln!(out, "nothing is done yet: say it with --yes")?;
            return Ok(Exit::Held);
        }
        let word = Removal { cluster: self.cluster, key: found.key, issued: now()? };
        remote.tell("/v1/removals", &Envelope::seal(&word, &[remote.key()])).await?;
        writeln!(out, "removed: the publisher takes it out within seconds")?;
        Ok(Exit::Ok)
    }
}
