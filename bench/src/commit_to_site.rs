//! `commit-to-site`: from the push of a commit to the object applied at a site.
//!
//! Unit: seconds, at p50. Hub and agent are processes of their own, with the programs' defaults for everything
//! that decides when a site hears of a commit; the target is a folder. A push is the moment at which the commit is in
//! the repository and the hub's webhook is called, with GitLab's header; a hub without webhooks finds out by its interval,
//! and a site that is not woken by its own (`--interval 1s --poll 1s` then makes the runs short, and says so). Applied is
//! when the manifest in the folder has the new value. Yardstick: `git fetch` of the same commit alone, by a clone that
//! has the one before.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use farshore_chaos::kit::Process;
use farshore_chaos::world::{Hub, Role, Site, Target, World, declare};
use tempfile::TempDir;

use crate::error::BenchError;
use crate::load::http1::Line;
use crate::load::tls;
use crate::report::{Ratio, median};

/// Seconds at p50 from a push to the object applied at a site, beside git fetch
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Commits
    #[arg(long, default_value_t = 21)]
    runs: usize,
    /// How often the hub fetches of its own accord
    #[arg(long, default_value = "2m")]
    interval: String,
    /// Seconds between an applied commit and the next: a hub takes word of pushes to one source once in two
    /// seconds, so that closer ones measure that rest
    #[arg(long, default_value_t = 3)]
    pause: u64,
    /// How often the site polls of its own accord
    #[arg(long, default_value = "2m")]
    poll: String,
}

const SERVICE: &str = "shop";
/// Two polls at the slowest setting.
const APPLIED_WITHIN: Duration = Duration::from_secs(300);

/// Measures.
///
/// # Errors
/// [`BenchError`].
pub(crate) async fn run(options: &Options) -> Result<Ratio, BenchError> {
    let file = |value: &str| [("it.yaml".to_owned(), declare::config_map("it", value))];
    let first = file("start");
    let mut world = World::on_disk(SERVICE, &borrowed(&first)).await?;
    let hook = Hook::of_hub().await?;
    world.hub = hook.option(
        world
            .fleet
            .hub("hub", Role::All)?
            .option(format!("--interval={}", options.interval))
            .option(format!("--site-poll={}", options.poll)),
    );
    world.hub.start().await?;
    let site = world.fleet.site("site", &world.hub.address(), Target::Directory)?;
    let mut site = site.option(format!("--poll={}", options.poll)).without("--sweep");
    site.start().await?;
    applied(&site, "start").await?;
    let folder = TempDir::new().map_err(BenchError::io("making a folder"))?;
    fetch(folder.path(), &["clone", "--quiet", "--bare", &world.app.url(), "clone.git"]).await?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for number in 1..=options.runs {
        let value = format!("commit-{number}");
        let files = file(&value);
        tokio::time::sleep(Duration::from_secs(options.pause)).await;
        world.commit(&borrowed(&files))?;
        let began = Instant::now();
        hook.call(&world.hub.address(), &value).await?;
        applied(&site, &value).await?;
        let took = began.elapsed().as_secs_f64();
        let git = fetch(&folder.path().join("clone.git"), &["fetch", "--quiet", "origin", "main"]).await?;
        eprintln!("commit-to-site: {number} of {}: {took:.3} s, git fetch {git:.3} s", options.runs);
        ours.push(took);
        theirs.push(git);
    }
    let most = ours.iter().copied().fold(0.0, f64::max);
    println!(
        "{} commits {} s apart, hub fetches every {}, site polls every {}",
        options.runs, options.pause, options.interval, options.poll
    );
    println!("p50 {:.3} s, max {most:.3} s; git fetch p50 {:.3} s", median(&ours), median(&theirs));
    Ok(Ratio { name: "commit-to-site", ours: median(&ours), theirs: median(&theirs) })
}

/// The webhook of the source `app`, where the hub has webhooks.
struct Hook {
    secrets: Option<TempDir>,
}

/// What GitLab would be told to send.
const SECRET: &str = "a-secret-of-this-bench";

impl Hook {
    /// Asks the program what it can be told.
    async fn of_hub() -> Result<Self, BenchError> {
        let help = Process::run("farshore-hub", ["--help"], Duration::from_secs(30)).await?;
        if !help.stdout.contains("--hook-secrets") {
            eprintln!("commit-to-site: this hub has no webhooks: it finds out by its interval");
            return Ok(Self { secrets: None });
        }
        let folder = TempDir::new().map_err(BenchError::io("making a folder"))?;
        std::fs::write(folder.path().join("app"), SECRET).map_err(BenchError::io("writing a secret"))?;
        Ok(Self { secrets: Some(folder) })
    }

    fn option(&self, hub: Hub) -> Hub {
        match &self.secrets {
            Some(folder) => hub.option(format!("--hook-secrets={}", folder.path().display())),
            None => hub,
        }
    }

    /// Tells the hub of a push, as a Git server does.
    async fn call(&self, hub: &str, what: &str) -> Result<(), BenchError> {
        if self.secrets.is_none() {
            return Ok(());
        }
        let body = format!("{{\"object_kind\":\"push\",\"after\":\"{what}\"}}");
        let request = format!(
            "POST /v1/hooks/git/app HTTP/1.1\r\nhost: hub\r\ncontent-type: application/json\r\n\
             x-gitlab-token: {SECRET}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut line = Line::new(tls::connect(hub, b"http/1.1").await?);
        let answer = line.ask(request.as_bytes()).await.map_err(BenchError::io("calling the webhook"))?;
        if (200..300).contains(&answer.status) {
            return Ok(());
        }
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        Err(BenchError::Wrong(format!("the webhook was answered {}: {body}", answer.status)))
    }
}

fn borrowed(files: &[(String, String)]) -> Vec<(&str, &str)> {
    files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect()
}

/// Returns when the manifest at the site has this value; looked at every few milliseconds.
async fn applied(site: &Site, value: &str) -> Result<(), BenchError> {
    let until = Instant::now() + APPLIED_WITHIN;
    loop {
        let said = match site.config_map(SERVICE, "it") {
            Ok((_, text))
                if text.contains(&format!("\"{value}\"")) || text.contains(&format!("{value}\n")) =>
            {
                return Ok(());
            }
            Ok((_, text)) => text,
            Err(not_yet) => not_yet,
        };
        if Instant::now() > until {
            return Err(BenchError::Wrong(format!("{value} is not applied: {said}")));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn fetch(folder: &Path, arguments: &[&str]) -> Result<f64, BenchError> {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(folder);
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    let began = Instant::now();
    let output = tokio::process::Command::from(command).output().await;
    let output = output.map_err(BenchError::io("running git"))?;
    if output.status.success() {
        return Ok(began.elapsed().as_secs_f64());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(BenchError::Failed { program: "git".to_owned(), said })
}
