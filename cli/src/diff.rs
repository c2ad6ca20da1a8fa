//! `farshore diff`: what the agent of a site would change, before it does.

use std::io::Write;

use anstyle::AnsiColor;
use clap::Args;
use farshore_agent::foresight::{Fate, ServiceForesight, Sight};
use farshore_agent::target::Preview;
use farshore_shared::exit::Exit;
use farshore_shared::names::Name;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::get::Output;
use crate::site::{SiteArgs, SiteTarget};

/// `farshore diff`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DiffArgs {
    /// Services to look at [default: all]
    #[arg(value_name = "SERVICE")]
    services: Vec<Name>,
    #[command(flatten)]
    site: SiteArgs,
    /// How it is printed
    #[arg(short, long, env = "FARSHORE_OUTPUT", value_enum, default_value_t = Output::Table)]
    output: Output,
}

const EXAMPLES: &str = "\
Examples:
  farshore diff --state /var/lib/farshore-agent
  farshore diff web till --state /var/lib/farshore-agent --kubeconfig ~/.kube/config
  farshore diff --state ./state --target dir:./manifests -o json | jq '.services[].objects'

It shows what is accepted at the site against what is there, by server-side dry runs, beside a running
agent. Nothing is written. Values of Secrets are not shown.";

impl DiffArgs {
    /// Looks and prints.
    pub(crate) async fn run(self) -> Result<Exit, Failure> {
        let (store, tools) = (self.site.store()?, self.site.tools());
        let services = match self.site.target().await? {
            SiteTarget::Directory(target) => {
                Sight::open(&store, &target, tools).await?.services(&self.services).await?
            }
            #[cfg(feature = "kubernetes")]
            SiteTarget::Kubernetes(target) => {
                Sight::open(&store, &*target, tools).await?.services(&self.services).await?
            }
        };
        let mut out = anstream::stdout().lock();
        match self.output {
            Output::Table => services.iter().try_for_each(|service| write_text(&mut out, service))?,
            Output::Json => {
                let services: Vec<Value> = services.iter().map(as_json).collect();
                let text = serde_json::to_string_pretty(&json!({ "services": services }));
                writeln!(out, "{}", text.expect("a report has string keys only"))?;
            }
        }
        Ok(Exit::Ok)
    }
}

fn write_text(out: &mut dyn Write, service: &ServiceForesight) -> Result<(), Failure> {
    let (bad, good, new) =
        (AnsiColor::Red.on_default(), AnsiColor::Green.on_default(), AnsiColor::Yellow.on_default());
    let commit = service.commit.get(..12).unwrap_or(&service.commit);
    let what = if commit.is_empty() { "removed".to_owned() } else { format!("commit {commit}") };
    writeln!(out, "{} ({what}): {} objects stay as they are", service.name, service.same)?;
    for problem in &service.problems {
        writeln!(out, "  {bad}! {}{bad:#}", printable(problem))?;
    }
    for (key, fate) in &service.objects {
        let key = printable(&key.to_string());
        match fate {
            Fate::Applied(Preview::New(_)) => writeln!(out, "  {good}+ {key}{good:#}")?,
            Fate::Applied(Preview::Anew) => {
                writeln!(out, "  {bad}~ {key}: deleted and made anew{bad:#}")?;
            }
            Fate::Applied(_) => writeln!(out, "  {new}~ {key}{new:#}")?,
            Fate::Removed => writeln!(out, "  {bad}- {key}{bad:#}")?,
            Fate::Failed(why) => writeln!(out, "  {bad}! {key}: {}{bad:#}", printable(why))?,
        }
        if let Fate::Applied(Preview::New(difference) | Preview::Changed(difference)) = fate {
            for line in difference.to_string().lines() {
                writeln!(out, "    {}", printable(line.trim_start()))?;
            }
        }
    }
    for kept in &service.kept {
        writeln!(out, "  = {} left and is kept: {}", printable(&kept.key.to_string()), kept.why)?;
    }
    if let Some(held) = &service.held {
        writeln!(out, "  {new}= {held}{new:#}")?;
    }
    Ok(())
}

fn as_json(service: &ServiceForesight) -> Value {
    let object = |(key, fate): &(farshore_agent::object::ObjectKey, Fate)| {
        let (what, lines, why) = match fate {
            Fate::Applied(Preview::New(difference)) => ("create", Some(difference), None),
            Fate::Applied(Preview::Changed(difference)) => ("change", Some(difference), None),
            Fate::Applied(Preview::Anew) => ("recreate", None, None),
            Fate::Applied(Preview::Same) => ("keep", None, None),
            Fate::Removed => ("remove", None, None),
            Fate::Failed(why) => ("fail", None, Some(why)),
        };
        let lines: Vec<Value> = lines
            .iter()
            .flat_map(|difference| &difference.lines)
            .map(|line| json!({"path": line.path, "before": line.before, "after": line.after}))
            .collect();
        json!({"object": key.to_string(), "what": what, "fields": lines, "why": why})
    };
    let kept =
        service.kept.iter().map(|kept| json!({"object": kept.key.to_string(), "why": kept.why.to_string()}));
    json!({
        "service": service.name,
        "commit": service.commit,
        "unchanged": service.same,
        "problems": service.problems,
        "objects": service.objects.iter().map(object).collect::<Vec<_>>(),
        "kept": kept.collect::<Vec<_>>(),
        "held": service.held.as_ref().map(ToString::to_string),
    })
}

/// What stands in a cluster or in a manifest may hold control characters, with which a terminal can be
/// commanded.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use farshore_agent::object::ObjectKey;
    use farshore_agent::plan::{Kept, Stays};
    use farshore_shared::wire::ProtectedKind;

    fn key(kind: &str, name: &str) -> ObjectKey {
        let (group, kind) = (String::new(), kind.to_owned());
        ObjectKey { group, kind, namespace: Some("shop".into()), name: name.to_owned() }
    }

    fn foresight() -> ServiceForesight {
        let next = json!({"data": {"a": "2"}});
        let changed = Preview::of(Some(&json!({"data": {"a": "1"}})), &next, &key("ConfigMap", "a"));
        ServiceForesight {
            name: "web".into(),
            commit: "0123456789abcdef".into(),
            problems: vec!["a.yaml: kind is missing".into()],
            objects: vec![
                (key("ConfigMap", "a"), Fate::Applied(changed)),
                (key("ConfigMap", "b"), Fate::Applied(Preview::of(None, &next, &key("ConfigMap", "b")))),
                (key("ConfigMap", "c"), Fate::Removed),
                (key("Job", "d"), Fate::Applied(Preview::Anew)),
                (key("Pod", "e\u{1b}"), Fate::Failed("not allowed".into())),
            ],
            same: 7,
            held: None,
            kept: vec![Kept {
                key: key("PersistentVolumeClaim", "data"),
                why: Stays::Protected(ProtectedKind::PersistentVolumeClaim),
            }],
        }
    }

    #[test]
    fn a_person_sees_what_would_become_of_each_object() {
        let mut out = anstream::StripStream::new(Vec::new());
        write_text(&mut out, &foresight()).expect("memory takes it");
        insta::assert_snapshot!(String::from_utf8(out.into_inner()).expect("text"));
    }

    #[test]
    fn a_program_reads_the_same() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&as_json(&foresight())).expect("JSON"));
    }
}
