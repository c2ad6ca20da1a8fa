//! `farshore token create`: a join token, alone on standard output.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use farshore_hub_fn::keyring::Keyring;
use farshore_shared::digest::Digest;
use farshore_shared::duration::HumanDuration;
use farshore_shared::exit::Exit;
use farshore_shared::names::{LabelKey, LabelValue, Name, label_pair};
use farshore_shared::token::{Claims, JoinToken};

use crate::failure::Failure;
use crate::time::{now, rfc3339};

/// The longest life of a token, in seconds: a year.
const TTL_LIMIT: u64 = 365 * 86_400;
/// The most clusters that one token enrols: every use is an object of the record.
const USES_LIMIT: i64 = 10_000;

/// `farshore token`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Subcommand)]
enum TokenCommand {
    /// Make a join token; it alone is printed on standard output
    ///
    /// Nothing is stored and no hub is asked: a token is signed with the fleet's token key, and the
    /// hub counts its uses when sites enrol.
    Create(CreateArgs),
}

/// `farshore token create`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
struct CreateArgs {
    #[command(flatten)]
    place: KeysPlace,
    /// Label of the clusters that enrol with it; may be repeated
    #[arg(long, env = "FARSHORE_LABEL", value_name = "KEY=VALUE", value_parser = label_pair, value_delimiter = ',')]
    label: Vec<(LabelKey, LabelValue)>,
    /// How long it enrols
    #[arg(long, env = "FARSHORE_TTL", value_name = "DURATION", default_value = "1h", value_parser = life)]
    ttl: HumanDuration,
    /// How many clusters it enrols
    #[arg(long, env = "FARSHORE_USES", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=USES_LIMIT))]
    uses: u32,
    /// Enrol this cluster again with a new key, which replaces the one that it had
    #[arg(long, env = "FARSHORE_REPLACE", value_name = "NAME")]
    replace: Option<Name>,
}

/// Where the keys are.
#[derive(Args)]
#[group(required = true, multiple = true)]
struct KeysPlace {
    /// Data folder of a hub that is complete by itself: its keys are in DIR/keys
    #[arg(long, env = "FARSHORE_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// Folder of the keys [default: DATA/keys]
    #[arg(long, env = "FARSHORE_KEYS", value_name = "DIR")]
    keys: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  TOKEN=$(farshore token create --data ./hub)
  farshore token create --data ./hub --label tier=edge --label region=north --ttl 7d --uses 200
  farshore token create --keys ./keys --replace shop-7";

fn uses(count: u32) -> String {
    if count == 1 { "1 use".into() } else { format!("{count} uses") }
}

fn life(text: &str) -> Result<HumanDuration, String> {
    let duration: HumanDuration = text.parse().map_err(|error| format!("{error}"))?;
    match duration.0.as_secs() {
        1..=TTL_LIMIT => Ok(duration),
        _ => Err(format!("a token lives between 1s and 365d (got {text:?})")),
    }
}

impl TokenArgs {
    /// Does it.
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        match self.command {
            TokenCommand::Create(args) => args.run(),
        }
    }
}

impl CreateArgs {
    fn run(self) -> Result<Exit, Failure> {
        let KeysPlace { data, keys } = self.place;
        let keys = keys.or_else(|| data.map(|data| data.join("keys"))).unwrap_or_default();
        let ring = Keyring::at(&keys);
        let (root, secret) = (Digest::of(&ring.root()?), ring.token()?);
        let expires = now()? + self.ttl.0.as_secs();
        let claims = Claims {
            id: ulid::Ulid::generate().to_string(),
            labels: self.label.into_iter().collect(),
            expires,
            uses: self.uses,
            replaces: self.replace,
        };
        let token = JoinToken::issue(claims, &secret, root);
        let until = rfc3339(expires).unwrap_or_default();
        let whom = token.claims.replaces.as_ref().map_or_else(String::new, |name| format!(" as {name} only"));
        anstream::eprintln!(
            "join token for the fleet {}{whom}: {}, until {until}",
            root.short(),
            uses(self.uses)
        );
        writeln!(std::io::stdout(), "{}", token.expose())?;
        Ok(Exit::Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_has_bounds() {
        for good in ["1s", "1h", "365d"] {
            assert!(life(good).is_ok(), "{good}");
        }
        for bad in ["0s", "366d", "1y", ""] {
            assert!(life(bad).is_err(), "{bad}");
        }
    }
}
