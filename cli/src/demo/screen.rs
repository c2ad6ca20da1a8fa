//! What a person sees. Colours and progress are for terminals; elsewhere there are plain lines.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Duration;

use anstyle::{AnsiColor, Style};

use super::world::{INTERVAL, World};

const HEADING: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();
const FIGURE: Style = AnsiColor::Cyan.on_default();
const QUIET: Style = Style::new().dimmed();

/// An edit that changes something whatever the notice says.
const EDIT: &str = "\
echo '  more: of it' >> fleet/apps/notice/notice.yaml; git -C fleet commit -am 'A change of mine'
sleep 5; grep more: sites/*/manifests/*";

/// The story as it is told.
#[derive(Debug)]
pub(super) struct Screen {
    progress: Progress,
    step: u32,
}

/// Whether a line may be written over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Shown,
    Hidden,
}

impl Screen {
    pub(super) fn new() -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let shown = std::io::stdout().is_terminal() && !dumb;
        Self { progress: if shown { Progress::Shown } else { Progress::Hidden }, step: 0 }
    }

    /// What will be shown, and where it is.
    pub(super) fn open(&mut self, world: &World) {
        let (sites, interval) = (counted(world.sites.len(), "site"), INTERVAL.as_secs());
        self.line(&format!("{HEADING}Farshore: GitOps for sites that lose their link{HEADING:#}"));
        self.line("");
        self.line(&format!(
            "A fleet repository, a hub and {sites}; the hub and the agents are processes of their own."
        ));
        self.line(&format!(
            "Hub and sites look for news, and sites for damage, every {interval} s (2 min and 1 min if nothing is said)."
        ));
        self.line(&format!("Everything is in {FIGURE}{}{FIGURE:#}", world.folder().display()));
    }

    /// A new step begins.
    pub(super) fn step(&mut self, heading: &str) {
        self.step += 1;
        let step = self.step;
        self.line("");
        self.line(&format!("{HEADING}{step}. {heading}{HEADING:#}"));
    }

    /// What is being done.
    pub(super) fn act(&mut self, text: &str) {
        self.line(&format!("   {QUIET}${QUIET:#} {text}"));
    }

    /// Something that has been seen to be so.
    pub(super) fn saw(&mut self, text: &str) {
        self.line(&format!("   {GOOD}ok{GOOD:#} {text}"));
    }

    /// The same, with how long it took.
    pub(super) fn took(&mut self, text: &str, took: Duration) {
        self.saw(&format!("{text} {FIGURE}after {:.1} s{FIGURE:#}", took.as_secs_f64()));
    }

    /// Anything else.
    pub(super) fn say(&mut self, text: &str) {
        self.line(&format!("   {text}"));
    }

    /// What is being waited for; written over by whatever comes next.
    pub(super) fn wait(&mut self, what: &str, waited: Duration) {
        if self.progress == Progress::Shown {
            let waited = waited.as_secs_f64();
            let mut out = anstream::stdout().lock();
            // A screen that cannot be written to is no reason to end the story.
            let _ = write!(out, "\r\x1b[2K   {QUIET}.. {what} ({waited:.1} s){QUIET:#}");
            let _ = out.flush();
        }
    }

    /// The end of a story of which all has happened.
    pub(super) fn praise(&mut self) {
        self.line("");
        self.line(&format!("{GOOD}All of it happened.{GOOD:#}"));
    }

    /// A step that did not happen, and what there was instead.
    pub(super) fn miss(&mut self, why: &str, logs: &[(&Path, Vec<String>)]) {
        self.line(&format!("   {BAD}This did not happen:{BAD:#} {why}"));
        for (log, lines) in logs {
            self.line("");
            self.line(&format!("   {QUIET}the end of {}{QUIET:#}", log.display()));
            for line in lines {
                self.line(&format!("   {QUIET}|{QUIET:#} {line}"));
            }
        }
        self.line("");
        self.line(&format!("{BAD}The story is not complete.{BAD:#}"));
    }

    /// What to try next.
    pub(super) fn invite(&mut self, world: &World) {
        self.line("");
        self.line(&format!("{HEADING}It stays up. Try, in another terminal:{HEADING:#}"));
        self.suggest("", &format!("cd {}", world.folder().display()));
        self.suggest("change what every site shall have, and see it arrive", EDIT);
        if let Some(site) = world.sites.first() {
            let files = format!("{}/*notice*", world.shown(&site.manifests));
            self.suggest(
                "damage a site, and see it repaired",
                &format!("rm {files}; sleep 3; grep text: {files}"),
            );
        }
        if let Some(hub) = world.hub.id() {
            let commands = format!("kill -9 {hub}\n./farshore {}", world.hub_line());
            self.suggest("kill the hub, damage a site again, and start the hub again", &commands);
        }
        let agents = world.sites.iter().filter_map(|site| Some((&site.name, site.id()?)));
        let kills: Vec<String> = agents.map(|(name, id)| format!("kill -9 {id}  # {name}")).collect();
        self.suggest("kill the agent of a site", &kills.join("\n"));
        self.suggest("see what the hub's record knows", "./farshore get clusters --data hub");
        self.line("");
        self.line("Ctrl-C ends all of it.");
    }

    /// The end of the demo, and the folder that it leaves.
    pub(super) fn close(&mut self, kept: Option<&Path>) {
        match kept {
            Some(folder) => {
                self.line(&format!("Everything is still in {FIGURE}{}{FIGURE:#}", folder.display()));
            }
            None => self.line("Hub, sites and folder are gone."),
        }
    }

    fn suggest(&mut self, what: &str, commands: &str) {
        if !what.is_empty() {
            self.line(&format!("   {what}"));
        }
        for command in commands.lines() {
            self.line(&format!("      {FIGURE}{command}{FIGURE:#}"));
        }
    }

    fn line(&mut self, text: &str) {
        let mut out = anstream::stdout().lock();
        let clear = if self.progress == Progress::Shown { "\r\x1b[2K" } else { "" };
        // As above: whoever closed the pipe does not want to read on.
        let _ = writeln!(out, "{clear}{text}");
    }
}

/// `1 site`, `3 sites`.
pub(super) fn counted(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// `12,345 bytes`.
pub(super) fn bytes(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    format!("{text} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_for_people() {
        assert_eq!(bytes(0), "0 bytes");
        assert_eq!(bytes(999), "999 bytes");
        assert_eq!(bytes(1000), "1,000 bytes");
        assert_eq!(bytes(12_345_678), "12,345,678 bytes");
        assert_eq!(counted(1, "site"), "1 site");
        assert_eq!(counted(3, "site"), "3 sites");
    }
}
