//! `farshore agent pause`, `resume`, `hold` and `retry`.

use std::io::Write;
use std::path::Path;

use clap::Args;
use farshore_shared::clock;
use farshore_shared::duration::HumanDuration;
use farshore_shared::exit::Exit;
use farshore_shared::names::Name;
use farshore_shared::wire::UnixSeconds;

use super::{SiteError, StateArgs, heard, known_service};
use crate::controls::files::{self, Control, HOLD_UNLESS_SAID};
use crate::controls::stop::{end, shown};
use crate::controls::window::rfc3339;
use crate::store::{Found, Store, ask_retry};
use crate::verify::Clock;
use crate::verify::clock::Trust;

/// `farshore agent pause`.
#[derive(Debug, Args)]
#[command(after_help = PAUSE)]
pub struct PauseArgs {
    #[command(flatten)]
    state: StateArgs,
    /// Only this service [default: everything]
    #[arg(long, env = "FARSHORE_SERVICE", value_name = "NAME")]
    service: Option<Name>,
    #[command(flatten)]
    end: EndArgs,
}

const PAUSE: &str = "\
Examples:
  farshore agent pause --state /var/lib/farshore --for 2h --reason 'looking at the tills'
  farshore agent pause --state /var/lib/farshore --service web
  farshore agent resume --state /var/lib/farshore

Nothing of what is paused is written: no new revision, no repair of drift, no removal. It outlives reboots, and
ends at its time or by resume; what was changed meanwhile is then put back.";

/// `farshore agent resume`.
#[derive(Debug, Args)]
#[command(after_help = RESUME)]
pub struct ResumeArgs {
    #[command(flatten)]
    state: StateArgs,
    /// Only this service [default: everything that is paused]
    #[arg(long, env = "FARSHORE_SERVICE", value_name = "NAME")]
    service: Option<Name>,
}

const RESUME: &str = "\
Examples:
  farshore agent resume --state /var/lib/farshore
  farshore agent resume --state /var/lib/farshore --service web";

/// `farshore agent hold`.
#[derive(Debug, Args)]
#[command(after_help = HOLD)]
pub struct HoldArgs {
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    end: EndArgs,
    /// End the hold that is on
    #[arg(long, env = "FARSHORE_RELEASE", conflicts_with_all = ["for", "until", "reason"])]
    release: bool,
}

const HOLD: &str = "\
Examples:
  farshore agent hold --state /var/lib/farshore --for 3h --reason 'tills are counted'
  farshore agent hold --state /var/lib/farshore --until 2026-12-27T06:00:00Z
  farshore agent hold --state /var/lib/farshore --release
  echo 2h tills are counted > /var/lib/farshore/controls/hold

No new revision begins; one that has begun goes on, and what is in place is repaired. Without a time it ends after 4 h.";

/// `farshore agent retry`.
#[derive(Debug, Args)]
#[command(after_help = RETRY)]
pub struct RetryArgs {
    #[command(flatten)]
    state: StateArgs,
    /// The service [default: every one whose revision was given up, or had a hook or a test that failed]
    #[arg(value_name = "SERVICE")]
    service: Option<Name>,
}

const RETRY: &str = "\
Examples:
  farshore agent retry --state /var/lib/farshore
  farshore agent retry --state /var/lib/farshore web";

/// Until when, and why.
#[derive(Debug, Args)]
struct EndArgs {
    /// For how long, such as 2h
    #[arg(long, env = "FARSHORE_FOR", value_name = "DURATION", conflicts_with = "until")]
    r#for: Option<HumanDuration>,
    /// Until when, such as 2026-12-27T06:00:00Z
    #[arg(long, env = "FARSHORE_UNTIL", value_name = "TIME", value_parser = time)]
    until: Option<UnixSeconds>,
    /// Why, for whoever looks
    #[arg(long, env = "FARSHORE_REASON", value_name = "TEXT", default_value = "")]
    reason: String,
}

fn time(text: &str) -> Result<UnixSeconds, String> {
    // A duration would be read as well: it has an option of its own.
    let at = end(text, 0).filter(|_| text.parse::<HumanDuration>().is_err());
    at.ok_or_else(|| {
        format!("a time is such as 2026-12-27T06:00:00Z or 2026-12-27T07:00:00+01:00 (got {text:?})")
    })
}

impl EndArgs {
    /// An end that is named means nothing to a clock that is wrong.
    fn end(&self, now: UnixSeconds, bound: UnixSeconds) -> Result<Option<UnixSeconds>, SiteError> {
        let trust = Clock { now }.trust(bound);
        if self.until.is_some() && trust != Trust::Good {
            return Err(SiteError::Clock(rfc3339(now)));
        }
        let end = self.until.or_else(|| self.r#for.map(|long| now.saturating_add(long.0.as_secs())));
        match end {
            Some(end) if end <= now => Err(SiteError::Over(rfc3339(end))),
            end => Ok(end),
        }
    }
}

impl PauseArgs {
    /// Does it.
    ///
    /// # Errors
    /// [`SiteError`].
    pub fn run(&self, out: &mut dyn Write) -> Result<Exit, SiteError> {
        let state = &self.state.state;
        let bound = Store::peek(state)?.lower_time();
        let until = self.end.end(clock::now(), bound)?;
        let (control, what) = match &self.service {
            Some(service) => {
                known_service(state, service)?;
                (Control::PauseService(service.clone()), service.to_string())
            }
            None => (Control::Pause, "everything".to_owned()),
        };
        files::set(state, &control, until, &self.end.reason)?;
        let until = until.map_or_else(|| "somebody resumes it".to_owned(), rfc3339);
        writeln!(out, "{what} is paused until {until}: nothing of it is written")?;
        heard(out, state)?;
        Ok(Exit::Ok)
    }
}

impl ResumeArgs {
    /// Does it.
    ///
    /// # Errors
    /// [`SiteError`].
    pub fn run(&self, out: &mut dyn Write) -> Result<Exit, SiteError> {
        let state = &self.state.state;
        drop(Store::peek(state)?);
        let (paused, _) = files::load(state)?;
        let all: Vec<Control> = match &self.service {
            Some(service) => vec![Control::PauseService(service.clone())],
            None => {
                let services = paused.services.into_keys().map(Control::PauseService);
                std::iter::once(Control::Pause).chain(services).collect()
            }
        };
        let mut count = 0;
        for control in all {
            if let Some(was) = files::clear(state, &control)? {
                count += 1;
                let what = if let Control::PauseService(service) = &control {
                    service.as_str()
                } else {
                    "everything"
                };
                writeln!(out, "{what} goes on (it was paused {})", shown(&was))?;
            }
        }
        match (count, &self.service) {
            (0, Some(_)) if paused.pause.is_some() => {
                writeln!(out, "not paused by itself: everything is. Resume without --service")?;
            }
            (0, _) => writeln!(out, "nothing was paused")?,
            (_, Some(_)) if paused.pause.is_some() => {
                writeln!(out, "everything is paused all the same: resume without --service")?;
            }
            _ => heard(out, state)?,
        }
        Ok(Exit::Ok)
    }
}

impl HoldArgs {
    /// Does it.
    ///
    /// # Errors
    /// [`SiteError`].
    pub fn run(&self, out: &mut dyn Write) -> Result<Exit, SiteError> {
        let state = &self.state.state;
        let bound = Store::peek(state)?.lower_time();
        if self.release {
            match files::clear(state, &Control::Hold)? {
                Some(was) => writeln!(out, "new revisions may begin (they were held {})", shown(&was))?,
                None => writeln!(out, "nothing was held")?,
            }
        } else {
            let now = clock::now();
            let until = self.end.end(now, bound)?.unwrap_or(now.saturating_add(HOLD_UNLESS_SAID));
            files::set(state, &Control::Hold, Some(until), &self.end.reason)?;
            writeln!(
                out,
                "no new revision begins until {}; what is in place is kept and repaired",
                rfc3339(until)
            )?;
        }
        heard(out, state)?;
        Ok(Exit::Ok)
    }
}

impl RetryArgs {
    /// Does it.
    ///
    /// # Errors
    /// [`SiteError`].
    pub fn run(&self, out: &mut dyn Write) -> Result<Exit, SiteError> {
        let state = &self.state.state;
        let services = match &self.service {
            Some(service) => {
                known_service(state, service)?;
                vec![service.clone()]
            }
            None => failed(state)?,
        };
        for service in &services {
            ask_retry(state, service)?;
            files::owned_as(state, &state.join("asks"))?;
            writeln!(out, "{service} is tried again")?;
        }
        if services.is_empty() {
            writeln!(out, "nothing was given up, and no hook or test failed")?;
        } else {
            heard(out, state)?;
        }
        Ok(Exit::Ok)
    }
}

/// The services of which something failed for good.
fn failed(state: &Path) -> Result<Vec<Name>, SiteError> {
    let records = Store::peek(state)?.rollouts()?;
    let failed = records.into_iter().filter_map(|(service, record)| {
        let Found::Good(mut record) = record else { return None };
        record.retry().then_some(service)
    });
    Ok(failed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rollout::Record;
    use clap::Parser;
    use farshore_shared::digest::Digest;
    use farshore_shared::wire::FailedRevision;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        command: super::super::SiteCommand,
    }

    fn run(line: &str) -> Result<String, SiteError> {
        use super::super::SiteCommand::{Hold, Pause, Preflight, Resume, Retry, Status};
        let line =
            Line::try_parse_from(std::iter::once("agent").chain(line.split(' '))).expect("a command line");
        let mut out = vec![];
        match line.command {
            Status(args) => args.run(&mut out)?,
            Pause(args) => args.run(&mut out)?,
            Resume(args) => args.run(&mut out)?,
            Hold(args) => args.run(&mut out)?,
            Retry(args) => args.run(&mut out)?,
            Preflight(_) => unreachable!("no test here asks for it"),
        };
        Ok(String::from_utf8(out).expect("text"))
    }

    #[test]
    fn what_is_paused_is_shown_and_resumed_with_no_agent_and_no_hub() {
        let temp = tempfile::tempdir().expect("a folder");
        let state = format!("--state={}", temp.path().display());
        assert!(run(&format!("pause {state}")).is_err(), "it is no state folder");
        drop(Store::open(temp.path()).expect("new"));
        let said = run(&format!("pause {state} --for=2h --reason=tills")).expect("paused");
        assert!(said.contains("everything is paused until") && said.contains("no agent runs here"), "{said}");
        let shown = run(&format!("status {state}")).expect("shown");
        assert!(shown.contains("paused: everything, until ") && shown.contains("(tills)"), "{shown}");
        let said = run(&format!("resume {state}")).expect("resumed");
        assert!(said.contains("everything goes on") && said.contains("tills"), "{said}");
        assert!(run(&format!("resume {state}")).expect("done").contains("nothing was paused"));
        let refused = run(&format!("pause {state} --service=web")).expect_err("no such service");
        assert!(matches!(refused, SiteError::NoService { .. }));
        let over = run(&format!("pause {state} --until=2020-01-01T00:00:00Z")).expect_err("it is over");
        assert!(over.to_string().contains("2020-01-01T00:00:00Z"), "{over}");
    }

    #[test]
    fn an_end_that_is_named_is_refused_by_a_clock_that_is_wrong_and_a_duration_is_not() {
        let line = |arguments: &[&str]| {
            let line = Line::try_parse_from(["agent", "pause", "--state=/s"].iter().chain(arguments));
            let super::super::SiteCommand::Pause(args) = line.expect("a command line").command else {
                unreachable!("it says pause")
            };
            args.end
        };
        let (bound, in_1970, in_2038) = (1_800_000_000, 600, 2_147_483_647);
        for now in [in_1970, in_2038] {
            let refused = line(&["--until=2050-01-01T00:00:00Z"]).end(now, bound).expect_err("which clock?");
            assert!(matches!(&refused, SiteError::Clock(_)) && refused.exit() == Exit::BadInput, "{refused}");
            assert_eq!(
                line(&["--for=2h"]).end(now, bound).expect("two hours are two hours"),
                Some(now + 7200)
            );
        }
        assert!(line(&["--until=2050-01-01T00:00:00Z"]).end(bound, bound).is_ok());
    }

    #[test]
    fn a_hold_always_ends() {
        let temp = tempfile::tempdir().expect("a folder");
        drop(Store::open(temp.path()).expect("new"));
        let state = format!("--state={}", temp.path().display());
        run(&format!("hold {state}")).expect("held");
        let (controls, _) = files::load(temp.path()).expect("readable");
        let lasts = controls.hold.and_then(|hold| hold.until).expect("it ends").abs_diff(clock::now());
        assert!(lasts.abs_diff(HOLD_UNLESS_SAID) < 60, "{lasts}");
        assert!(
            run(&format!("hold {state} --release")).expect("released").contains("new revisions may begin")
        );
        assert!(run(&format!("hold {state} --release")).expect("released").contains("nothing was held"));
    }

    #[test]
    fn what_failed_is_asked_for_again_and_nothing_else() {
        let temp = tempfile::tempdir().expect("a folder");
        let store = Store::open(temp.path()).expect("new");
        let state = format!("--state={}", temp.path().display());
        assert!(run(&format!("retry {state}")).expect("done").contains("nothing was given up"));
        let failed = FailedRevision { commit: "c".into(), why: "b".into(), at: 1 };
        let given_up = Record { failed: Some(failed), ..Record::new(Digest::of(b"1")) };
        store.save_rollout(&"web".parse().expect("a name"), &given_up).expect("written");
        store.save_rollout(&"db".parse().expect("a name"), &Record::new(Digest::of(b"1"))).expect("written");
        let said = run(&format!("retry {state}")).expect("asked");
        assert!(said.contains("web is tried again") && said.contains("within seconds"), "{said}");
        assert_eq!(store.take_retries().expect("readable"), ["web".parse::<Name>().expect("a name")]);
    }
}
