//! What an agent is told: command line and environment.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use farshore_shared::duration::HumanDuration;
use farshore_shared::names::Name;
use farshore_shared::size::HumanSize;
use farshore_shared::wire::Footprint;

use crate::controls::window::{Window, Windows};
use crate::hub::HubUrl;
use crate::lead::LeaseName;

/// `farshore agent` and `farshore-agent`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct AgentArgs {
    /// Where the hub is: `https://HOST:PORT`
    #[arg(long, env = "FARSHORE_HUB", value_name = "URL")]
    pub hub: HubUrl,
    /// Join token: needed until enrolled, ignored after
    #[arg(long, env = "FARSHORE_JOIN", value_name = "TOKEN", hide_env_values = true)]
    pub join: Option<String>,
    /// This site's name in the fleet
    #[arg(long, env = "FARSHORE_NAME", value_name = "NAME")]
    pub name: Name,
    /// Folder for what this site keeps: keys, accepted documents, content, inventory
    #[arg(long, env = "FARSHORE_STATE", value_name = "DIR")]
    pub state: PathBuf,
    /// Where manifests go
    #[arg(long, env = "FARSHORE_TARGET", value_name = "dir:PATH|kubernetes")]
    pub target: TargetSpec,
    /// Kubeconfig for --target kubernetes [default: in the cluster, else $KUBECONFIG]
    #[arg(long, env = "FARSHORE_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Which service account each service is applied as [default: all as the agent itself]
    #[arg(long, env = "FARSHORE_ACCOUNTS", value_name = "FILE")]
    pub accounts: Option<PathBuf>,
    /// How often the hub is asked [default: what the hub says, 2m until it has said it]
    #[arg(long, env = "FARSHORE_POLL", value_name = "DURATION", value_parser = interval)]
    pub poll: Option<HumanDuration>,
    /// Whether a request is kept open at the hub, so that news arrive before the next poll
    #[arg(long, env = "FARSHORE_WAKE", value_enum, default_value_t = Wakes::On)]
    pub wake: Wakes,
    /// How often everything is looked at and repaired [default: as the fleet says, else 10m where the target tells of
    /// every change, else 1m]
    #[arg(long, env = "FARSHORE_SWEEP", value_name = "DURATION", value_parser = interval)]
    pub sweep: Option<HumanDuration>,
    /// When new revisions may begin, such as 'Mon-Fri 02:00-05:00 Europe/Berlin'; several with ';' [default: always]
    #[arg(long, env = "FARSHORE_WINDOW", value_name = "WINDOW", value_delimiter = ';')]
    pub window: Vec<Window>,
    /// Of several agents of this site in one cluster the holder of this Lease works, the others stand by [default: no Lease]
    #[arg(long, env = "FARSHORE_LEADER_ELECT", value_name = "NAMESPACE/NAME")]
    pub leader_elect: Option<LeaseName>,
    /// Where a read-only page shows how this site is, such as 127.0.0.1:9090 [default: nowhere]
    #[arg(long, env = "FARSHORE_STATUS_ADDRESS", value_name = "ADDRESS:PORT")]
    pub status_address: Option<SocketAddr>,
    /// Whether the cluster is told about its services: Events, and a FarshoreService each
    #[arg(long, env = "FARSHORE_ANNOUNCE", value_enum, default_value_t = Announces::On)]
    pub announce: Announces,
    /// The most requests to the Kubernetes API at once, beside its watches [default: as the fleet says, else 32]
    #[arg(long, env = "FARSHORE_IN_FLIGHT", value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub in_flight: Option<u16>,
    /// The most requests to the Kubernetes API a second [default: as the fleet says, else as many as it takes]
    #[arg(long, env = "FARSHORE_QPS", value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub qps: Option<u32>,
    /// How much memory each process has that the agent starts [default: as the fleet says, else 1Gi]
    #[arg(long, env = "FARSHORE_PROCESS_MEMORY", value_name = "SIZE", value_parser = memory)]
    pub process_memory: Option<HumanSize>,
}

impl AgentArgs {
    /// The maintenance windows.
    #[must_use]
    pub fn windows(&self) -> Windows {
        Windows(self.window.clone())
    }

    /// What this site says of its footprint, whatever the fleet says.
    #[must_use]
    pub fn footprint(&self) -> Footprint {
        Footprint {
            in_flight: self.in_flight.map(u64::from),
            qps: self.qps.map(u64::from),
            sweep_seconds: self.sweep.map(|sweep| sweep.0.as_secs()),
            process_memory: self.process_memory.map(|memory| memory.0),
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  farshore agent --hub https://hub.example:8443 --join \"$TOKEN\" --name shop-7 \\
      --state /var/lib/farshore --target kubernetes
  farshore agent --hub https://127.0.0.1:8443 --join \"$TOKEN\" --name ship-1 \\
      --state ./state --target dir:./manifests --poll 10s
  farshore agent --hub https://hub.example:8443 --name till-3 --state /var/lib/farshore \\
      --target kubernetes --sweep 30m --in-flight 8 --qps 50
  farshore agent --hub https://hub.example:8443 --name till-3 --state /var/lib/farshore \\
      --target kubernetes --window 'Mon-Fri 02:00-05:00 Europe/Berlin' --window 'Sat,Sun 22:00-06:00'

At the site, with no hub and also while no agent runs:
  farshore agent status --state /var/lib/farshore";

/// Whether a site waits for news between two polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Wakes {
    /// It does, over HTTP/2.
    On,
    /// It only polls.
    Off,
}

/// Whether a cluster is told about its services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Announces {
    /// It is.
    On,
    /// It is not.
    Off,
}

/// Where manifests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetSpec {
    /// Files in a folder.
    Directory(PathBuf),
    /// A Kubernetes cluster.
    Kubernetes,
}

impl fmt::Display for TargetSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "dir:{}", path.display()),
            Self::Kubernetes => f.write_str("kubernetes"),
        }
    }
}

impl FromStr for TargetSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("dir", path)) if !path.is_empty() => Ok(Self::Directory(path.into())),
            None if text == "kubernetes" && cfg!(feature = "kubernetes") => Ok(Self::Kubernetes),
            None if text == "kubernetes" => {
                Err("this program was built without Kubernetes (feature kubernetes)".into())
            }
            _ => Err(format!("a target is dir:PATH or kubernetes (got {text:?})")),
        }
    }
}

fn interval(text: &str) -> Result<HumanDuration, String> {
    let duration: HumanDuration = text.parse().map_err(|error| format!("{error}"))?;
    match duration.0.as_secs() {
        1..=86_400 => Ok(duration),
        _ => Err(format!("an interval is between 1s and 1d (got {text:?})")),
    }
}

fn memory(text: &str) -> Result<HumanSize, String> {
    let size: HumanSize = text.parse().map_err(|error| format!("{error}"))?;
    match Footprint::MEMORY.contains(&size.0) {
        true => Ok(size),
        false => Err(format!("the memory of a process is between 256Mi and 64Gi (got {text:?})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_folder_or_kubernetes() {
        assert_eq!("dir:/srv/x".parse(), Ok(TargetSpec::Directory("/srv/x".into())));
        for bad in ["dir:", "dir", "/srv/x", "kube", ""] {
            assert!(bad.parse::<TargetSpec>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_interval_has_bounds() {
        assert!(interval("1s").is_ok());
        assert!(interval("0s").is_err());
        assert!(interval("2d").is_err());
    }

    #[test]
    fn the_memory_of_a_process_has_bounds() {
        assert_eq!(memory("256Mi"), Ok(HumanSize(256 << 20)));
        assert!(memory("255Mi").is_err() && memory("65Gi").is_err() && memory("1G").is_err());
    }
}
