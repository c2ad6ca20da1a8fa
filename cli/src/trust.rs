//! `farshore trust init`: the keys of a fleet and its trust root, made before there is a hub.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use farshore_agent::hub::HubUrl;
use farshore_hub_fn::keyring::{Keyring, RootOptions};
use farshore_hub_fn::tls::TlsFiles;
use farshore_shared::digest::Digest;
use farshore_shared::exit::Exit;

use crate::failure::Failure;
use crate::time::now;

/// `farshore trust`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TrustArgs {
    #[command(subcommand)]
    command: TrustCommand,
}

#[derive(Subcommand)]
enum TrustCommand {
    /// Make new keys and trust root 1 in a folder that is not there yet
    ///
    /// A hub that is complete by itself makes its own at its first start; this is for a publisher
    /// that runs apart from the hubs that serve. Keys are never overwritten.
    Init(InitArgs),
}

/// `farshore trust init`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
struct InitArgs {
    /// Folder of the keys: absent or empty
    #[arg(long, env = "FARSHORE_KEYS", value_name = "DIR")]
    keys: PathBuf,
    /// Where sites reach the hub, best first
    #[arg(long, env = "FARSHORE_HUB", value_name = "URL", value_delimiter = ',')]
    hub: Vec<HubUrl>,
    /// Certificate of a hub, PEM: its key is pinned
    #[arg(long, env = "FARSHORE_TLS_CERT", value_name = "FILE", value_delimiter = ',')]
    tls_cert: Vec<PathBuf>,
    /// SHA-256 of a key that a hub may show (of its SubjectPublicKeyInfo, in hexadecimal)
    #[arg(long, env = "FARSHORE_TLS_PIN", value_name = "HEX", value_delimiter = ',')]
    tls_pin: Vec<Digest>,
}

const EXAMPLES: &str = "\
Examples:
  farshore trust init --keys ./keys --hub https://hub.example:8443 --tls-cert hub.pem
  farshore trust init --keys ./keys --hub https://a.example --hub https://b.example

Without a pin, sites believe the certificate authorities that they have.";

impl TrustArgs {
    /// Does it.
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        match self.command {
            TrustCommand::Init(args) => args.run(),
        }
    }
}

impl InitArgs {
    fn run(self) -> Result<Exit, Failure> {
        let mut tls_pins = self.tls_pin;
        for cert in self.tls_cert {
            // Only the certificate is looked at for a pin.
            tls_pins.push(TlsFiles { key: cert.clone(), cert }.pin()?);
        }
        let hubs: Vec<String> = self.hub.iter().map(ToString::to_string).collect();
        let ring = Keyring::at(&self.keys);
        let root = ring.init(RootOptions { hubs: hubs.clone(), tls_pins: tls_pins.clone() }, now()?)?;
        let director = ring.publisher()?.director.public().id();
        let operator = ring.operator()?.public().id();
        let mut out = anstream::stdout().lock();
        let folder = self.keys.display();
        writeln!(out, "made new keys and trust root 1 in {folder}")?;
        writeln!(out, "  fleet (root 1)  {}", Digest::of(&root))?;
        writeln!(out, "  director key    {director}")?;
        writeln!(out, "  operator key    {operator}")?;
        hubs.iter().try_for_each(|hub| writeln!(out, "  hub             {hub}"))?;
        tls_pins.iter().try_for_each(|pin| writeln!(out, "  TLS pin         {pin}"))?;
        if tls_pins.is_empty() {
            writeln!(
                out,
                "  TLS pin         none: a hub's certificate must be one that sites' authorities know"
            )?;
        }
        writeln!(out, "next:")?;
        writeln!(out, "  keep a copy of {folder} in a safe place: whoever has root.key has the fleet")?;
        writeln!(out, "  farshore hub --role publish --keys {folder} --data DIR --fleet URL")?;
        writeln!(out, "  farshore token create --keys {folder}")?;
        Ok(Exit::Ok)
    }
}
