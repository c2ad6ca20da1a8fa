//! `farshore adopt`: takes a service's objects over from kubectl, Helm, Argo CD or Flux.

use std::io::Write as _;

use clap::Args;
use farshore_agent::foresight::Sight;
use farshore_agent::object::ObjectKey;
use farshore_agent::target::{Effect, ObjectError, Taken};
use farshore_shared::exit::Exit;
use farshore_shared::names::Name;

use crate::failure::Failure;
use crate::site::{SiteArgs, SiteTarget};

/// `farshore adopt`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AdoptArgs {
    /// Service whose objects are taken over, as it is accepted at the site
    #[arg(value_name = "SERVICE")]
    service: Name,
    #[command(flatten)]
    site: SiteArgs,
    /// Do it; without this, only what would happen is told
    #[arg(long, env = "FARSHORE_YES")]
    yes: bool,
}

const EXAMPLES: &str = "\
Examples:
  farshore adopt web --state /var/lib/farshore-agent
  farshore adopt web --state /var/lib/farshore-agent --yes

First stop who applied them before: `flux suspend kustomization web`, Argo CD without automated sync. The
fields of kubectl, Helm, Argo CD and Flux become Farshore's, with the values that they have: nothing
restarts. What the service does not have is removed when the agent applies it next; look at it with
`farshore diff` first. `apply: { adopt: true }` in the Service does the same at its first apply.";

type Answers = Vec<(ObjectKey, Result<Vec<Taken>, ObjectError>)>;

impl AdoptArgs {
    /// Takes over, or tells from whom.
    pub(crate) async fn run(self) -> Result<Exit, Failure> {
        let (store, tools) = (self.site.store()?, self.site.tools());
        let effect = if self.yes { Effect::Lasting } else { Effect::Rehearsed };
        let answers: Answers = match self.site.target().await? {
            SiteTarget::Directory(target) => {
                Sight::open(&store, &target, tools).await?.adopt(&self.service, effect).await?
            }
            #[cfg(feature = "kubernetes")]
            SiteTarget::Kubernetes(target) => {
                Sight::open(&store, &*target, tools).await?.adopt(&self.service, effect).await?
            }
        };
        let mut out = anstream::stdout().lock();
        let (mut count, mut failed) = (0, 0);
        for (key, answer) in &answers {
            match answer {
                Ok(taken) if taken.is_empty() => {}
                Ok(taken) => {
                    count += 1;
                    let told = |Taken { manager, fields }: &Taken| format!("{manager} ({fields} fields)");
                    writeln!(out, "{key}: {}", taken.iter().map(told).collect::<Vec<_>>().join(", "))?;
                }
                Err(error) => {
                    failed += 1;
                    writeln!(out, "{error}")?;
                }
            }
        }
        let of = answers.len();
        match (self.yes, count) {
            (_, 0) => writeln!(out, "nothing to take over ({of} objects, {failed} failed)")?,
            (true, _) => writeln!(out, "{count} of {of} objects taken over, {failed} failed")?,
            (false, _) => {
                writeln!(out, "{count} of {of} objects would be taken over, {failed} would fail")?;
                writeln!(out, "nothing is done yet: say it with --yes")?;
                return Ok(Exit::Held);
            }
        }
        Ok(if failed == 0 { Exit::Ok } else { Exit::BadInput })
    }
}
