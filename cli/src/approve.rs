//! `farshore approve`: an operator's word for one held change.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use farshore_agent::hub::HubUrl;
use farshore_hub_fn::keyring::Keyring;
use farshore_hub_fn::record::{self, Approval, HeldChange, HoldCause, SourceHead};
use farshore_shared::dsse::Envelope;
use farshore_shared::exit::Exit;
use farshore_shared::keys::KeyId;

use crate::failure::Failure;
use crate::record::{Place, Record};
use crate::remote::Remote;
use crate::time::{now, rfc3339};

/// `farshore approve`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ApproveArgs {
    /// Id of the held change, as `farshore get sources` shows it
    #[arg(value_name = "CHANGE")]
    change: String,
    #[command(flatten)]
    place: Place,
    /// Folder of the keys [default: DATA/keys]
    #[arg(long, env = "FARSHORE_KEYS", value_name = "DIR", required_unless_present_any = ["data", "hub"], conflicts_with = "hub")]
    keys: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  farshore get sources --data ./hub
  farshore approve 3f2a9c41d07e --data ./hub
  farshore approve 3f2a9c41d07e --objects s3://fleet --keys ./keys
  farshore approve 3f2a9c41d07e --hub https://hub.example:8443 --key ./keys/operator.key

An approval is for one commit and one extent: a change that grows has another id. The publisher
sees the approval within seconds.";

/// Why a change is not approved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApproveError {
    /// Nothing of that id waits.
    #[error("no change of that id is held ({change}); {}", listed(held))]
    NotHeld {
        /// The id.
        change: String,
        /// What does wait.
        held: Vec<HeldChange>,
    },
    /// The operator key is not the fleet's.
    #[error(
        "the operator key does not belong to the record's root (key {key}): use the keys that this record was made with"
    )]
    Foreign {
        /// Its id.
        key: KeyId,
    },
}

impl ApproveError {
    /// How the program ends with it.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::NotHeld { .. } | Self::Foreign { .. } => Exit::BadInput,
        }
    }
}

fn listed(held: &[HeldChange]) -> String {
    if held.is_empty() {
        return "nothing is held".into();
    }
    held.iter().fold("held are:".to_owned(), |mut text, held| {
        let _ = write!(text, "\n  {}  {}", held.change, described(held));
        text
    })
}

/// What a change does, in one line.
fn described(held: &HeldChange) -> String {
    let HeldChange { scope, to, removes, of, .. } = held;
    let from = held.from.as_deref().map_or("nothing", short);
    let why = match held.why {
        HoldCause::NotDescending => "does not descend from what is published",
        HoldCause::MassRemoval => "removes more than the budget",
        HoldCause::NothingLeft => "leaves nothing",
    };
    format!("{scope} from {from} to {}: removes {removes} of {of} cluster-service pairs ({why})", short(to))
}

fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}

/// The held change of that id. An id that is not that of what it names would not count.
fn find(heads: Vec<SourceHead>, change: &str) -> Result<HeldChange, ApproveError> {
    let held: Vec<HeldChange> = heads.into_iter().filter_map(|head| head.held).collect();
    let is_it = |held: &&HeldChange| {
        let HeldChange { scope, from, to, why, removes, of, .. } = held;
        held.change == change
            && HeldChange::new(scope, from.as_deref(), to, *why, *removes, *of).change == held.change
    };
    match held.iter().find(is_it) {
        Some(found) => Ok(found.clone()),
        None => Err(ApproveError::NotHeld { change: change.chars().take(80).collect(), held }),
    }
}

impl ApproveArgs {
    /// Finds the change, signs and records the approval.
    pub(crate) async fn run(self) -> Result<Exit, Failure> {
        match self.place.hub.clone() {
            Some(hub) => self.ask(&hub).await,
            None => self.record().await,
        }
    }

    /// Through a hub.
    async fn ask(self, hub: &HubUrl) -> Result<Exit, Failure> {
        let mut remote = Remote::open(hub, &self.place.call)?;
        let (_, heads) = remote.sources().await?;
        let held = find(heads, &self.change)?;
        let mut out = anstream::stdout();
        writeln!(out, "approving {}", held.change)?;
        writeln!(out, "  {}", described(&held))?;
        let word = Envelope::seal(&Approval { held, issued: now()? }, &[remote.key()]);
        remote.tell("/v1/approvals", &word).await?;
        writeln!(out, "approved: the publisher lets it through within seconds")?;
        Ok(Exit::Ok)
    }

    /// In the record.
    async fn record(self) -> Result<Exit, Failure> {
        let record = Record::open(&self.place).await?;
        let mut out = anstream::stdout();
        let key = record::approval(&self.change);
        if let Some(key) = &key
            && let Some(before) = record.approval(key).await?.filter(|found| found.held.change == self.change)
        {
            let when = rfc3339(before.issued).unwrap_or_default();
            writeln!(out, "{} is approved already, since {when}", self.change)?;
            writeln!(out, "  {}", described(&before.held))?;
            return Ok(Exit::Ok);
        }
        let held = find(record.source_heads().await?, &self.change)?;
        let not_held = || ApproveError::NotHeld { change: self.change.clone(), held: vec![] };
        let key = key.ok_or_else(not_held)?;
        let keys = self.keys.or_else(|| self.place.data.map(|data| data.join("keys"))).unwrap_or_default();
        let operator = Keyring::at(&keys).operator()?;
        let id = operator.public().id();
        if !record.trust().root.roles.operator.keys.contains(&id) {
            return Err(ApproveError::Foreign { key: id }.into());
        }
        writeln!(out, "approving {}", held.change)?;
        writeln!(out, "  {}", described(&held))?;
        let envelope = Envelope::seal(&Approval { held, issued: now()? }, &[&operator]);
        record.put_approval(&key, &envelope).await?;
        writeln!(out, "approved: the publisher lets it through within seconds")?;
        Ok(Exit::Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farshore_hub_fn::record::SourceState;

    fn head(held: Option<HeldChange>) -> SourceHead {
        SourceHead {
            source: "fleet".into(),
            url: "https://git.example/fleet.git".into(),
            commit: None,
            state: SourceState::Held,
            messages: vec![],
            held,
            services: std::collections::BTreeMap::new(),
            epoch: 1,
            sequence: 1,
            issued: 1,
        }
    }

    #[test]
    fn a_change_is_found_by_its_id_and_others_are_listed() {
        let held =
            HeldChange::new("fleet", Some(&"a".repeat(40)), &"b".repeat(40), HoldCause::MassRemoval, 12, 20);
        let found = find(vec![head(None), head(Some(held.clone()))], &held.change).expect("it is held");
        assert_eq!(found, held);
        let missing = find(vec![head(Some(held.clone()))], "000000000000").expect_err("another id");
        let told = missing.to_string();
        assert!(told.contains(&held.change) && told.contains("removes 12 of 20"), "{told}");
        let none = find(vec![], "x").expect_err("nothing is held").to_string();
        assert_eq!(none, "no change of that id is held (x); nothing is held");
    }

    #[test]
    fn an_id_that_does_not_name_its_change_is_not_found() {
        let mut held = HeldChange::new("fleet", None, "b", HoldCause::NotDescending, 1, 2);
        held.removes = 2;
        assert!(find(vec![head(Some(held.clone()))], &held.change).is_err());
    }
}
