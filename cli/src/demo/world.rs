//! The world of the demo: one folder with a fleet repository, a hub, and sites with an agent each.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use farshore_agent::object::ObjectKey;
use farshore_agent::target::directory::file_name;
use serde::Deserialize;

use super::DemoError;
use super::process::{Janitor, Process, tail};
use super::repository::Repository;

/// How often the hub looks at Git, sites ask the hub, and sites look at what they have.
pub(super) const INTERVAL: Duration = Duration::from_secs(2);

/// Names of the first sites.
const NAMES: [&str; 3] = ["harbour", "lighthouse", "trawler"];

/// Everything that the demo has made. Its drop ends and removes it all.
#[derive(Debug)]
pub(super) struct World {
    program: PathBuf,
    pub(super) fleet: Repository,
    pub(super) hub: Hub,
    pub(super) sites: Vec<Site>,
    janitor: Arc<Janitor>,
}

/// The hub, running or not.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) address: SocketAddr,
    pub(super) data: PathBuf,
    log: PathBuf,
    process: Option<Process>,
}

/// A site, its agent running or not.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) name: String,
    pub(super) place: &'static str,
    pub(super) manifests: PathBuf,
    state: PathBuf,
    log: PathBuf,
    agent: Option<Process>,
}

/// One poll as an agent's log tells of it.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Poll {
    pub(super) status: u16,
    pub(super) sent: u64,
    pub(super) received: u64,
}

impl World {
    /// Makes the folder; nothing runs yet.
    pub(super) fn make(sites: usize, keep: bool) -> Result<Self, DemoError> {
        let system = |doing| move |source| DemoError::System { doing, source };
        let folder = tempfile::Builder::new().prefix("farshore-demo-").tempdir();
        let janitor = Janitor::of(folder.map_err(system("making a temporary folder"))?, keep)?;
        let program = std::env::current_exe().map_err(system("finding this program"))?;
        let root = janitor.folder().to_owned();
        for folder in ["fleet", "logs", "sites"] {
            let path = root.join(folder);
            fs::create_dir(&path).map_err(|source| DemoError::Io {
                doing: "making a folder",
                path,
                source,
            })?;
        }
        let link = root.join("farshore");
        std::os::unix::fs::symlink(&program, &link).map_err(|source| DemoError::Io {
            doing: "making a link to this program",
            path: link,
            source,
        })?;
        let hub = Hub {
            address: free_port().map_err(system("finding a free port"))?,
            data: root.join("hub"),
            log: root.join("logs/hub.log"),
            process: None,
        };
        let sites = (0..sites).map(|n| Site::new(n, &root)).collect();
        let fleet = Repository::at(root.join("fleet"));
        Ok(Self { program, fleet, hub, sites, janitor: Arc::new(janitor) })
    }

    pub(super) fn folder(&self) -> &Path {
        self.janitor.folder()
    }

    /// Starts the hub on its data folder.
    pub(super) fn start_hub(&mut self) -> Result<u32, DemoError> {
        let mut command = self.farshore();
        command.arg("hub").arg("--data").arg(&self.hub.data).arg("--fleet").arg(self.fleet.path());
        command.args(self.hub_options().split(' '));
        let process = Process::start("hub", command, &self.hub.log, &self.janitor)?;
        Ok(self.hub.process.insert(process).id())
    }

    /// The command line of the hub, for somebody in the demo's folder.
    pub(super) fn hub_line(&self) -> String {
        format!("hub --data hub --fleet $PWD/fleet {}", self.hub_options())
    }

    fn hub_options(&self) -> String {
        let (address, interval) = (self.hub.address, seconds(INTERVAL));
        format!("--listen {address} --interval {interval} --site-poll {interval}")
    }

    /// Starts the agent of a site; with a join token if it is to enrol.
    pub(super) fn start_agent(&mut self, site: usize, token: Option<&str>) -> Result<u32, DemoError> {
        let mut command = self.farshore();
        let site = &mut self.sites[site];
        command.args(["agent", "--hub", &format!("https://{}", self.hub.address), "--name", &site.name]);
        command.arg("--state").arg(&site.state).args(["--sweep", &seconds(INTERVAL)]);
        command.arg("--target").arg(format!("dir:{}", site.manifests.display()));
        if let Some(token) = token {
            // Not an argument: those are seen by everybody on the machine.
            command.env("FARSHORE_JOIN", token);
        }
        let process = Process::start(&site.name, command, &site.log, &self.janitor)?;
        Ok(site.agent.insert(process).id())
    }

    /// A join token for a site, made as a person makes one.
    pub(super) async fn token(&self, site: usize) -> Result<String, DemoError> {
        let label = format!("place={}", self.sites[site].place);
        self.ask(&["token", "create", "--label", &label]).await
    }

    /// What another `farshore` command about this hub prints.
    pub(super) async fn ask(&self, args: &[&str]) -> Result<String, DemoError> {
        let mut command = tokio::process::Command::from(self.farshore());
        command.args(args).arg("--data").arg(&self.hub.data).kill_on_drop(true);
        output(command, &format!("farshore {}", args.join(" "))).await
    }

    /// An error if a process that should run does not.
    pub(super) fn check(&mut self) -> Result<(), DemoError> {
        let agents = self.sites.iter_mut().filter_map(|site| site.agent.as_mut());
        self.hub.process.iter_mut().chain(agents).try_for_each(Process::check)
    }

    /// How many polls every site has told of.
    pub(super) fn polls(&self) -> Vec<usize> {
        self.sites.iter().map(|site| site.polls().len()).collect()
    }

    /// A path as it is seen from the demo's folder.
    pub(super) fn shown(&self, path: &Path) -> String {
        path.strip_prefix(self.folder()).unwrap_or(path).display().to_string()
    }

    /// The ends of all logs, by the names of their files.
    pub(super) fn logs(&self) -> Vec<(&Path, Vec<String>)> {
        let files = std::iter::once(&self.hub.log).chain(self.sites.iter().map(|site| &site.log));
        files.filter(|log| log.exists()).map(|log| (log.as_path(), tail(log))).collect()
    }

    /// This program, as if nothing about Farshore were configured around it.
    fn farshore(&self) -> Command {
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FARSHORE_") {
                command.env_remove(name);
            }
        }
        command.env("FARSHORE_LOG", "info,farshore::polls=info").env("FARSHORE_LOG_FORMAT", "json");
        command
    }
}

impl Hub {
    /// SIGKILL.
    pub(super) fn kill(&mut self) -> Option<u32> {
        self.process.take().map(|process| process.id())
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }
}

impl Site {
    fn new(n: usize, root: &Path) -> Self {
        let name = NAMES.get(n).map_or_else(|| format!("boat-{}", n + 1), ToString::to_string);
        let folder = root.join("sites").join(&name);
        Self {
            place: if n == 0 { "land" } else { "sea" },
            manifests: folder.join("manifests"),
            state: folder.join("state"),
            log: root.join(format!("logs/{name}.log")),
            agent: None,
            name,
        }
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self) -> Option<u32> {
        self.agent.take().map(|process| process.id())
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.agent.as_ref().map(Process::id)
    }

    /// The services that belong on it.
    pub(super) fn services(&self) -> &'static [&'static str] {
        if self.place == "sea" { &["notice", "greeting", "tides"] } else { &["notice", "greeting"] }
    }

    /// The file of a service's only object.
    pub(super) fn file(&self, service: &str) -> PathBuf {
        self.manifests.join(file_name(&ObjectKey {
            group: String::new(),
            kind: "ConfigMap".into(),
            namespace: Some("demo".into()),
            name: service.into(),
        }))
    }

    /// The content of that file; empty while there is none.
    pub(super) fn read(&self, service: &str) -> String {
        fs::read_to_string(self.file(service)).unwrap_or_default()
    }

    /// All polls that its agent has told of.
    pub(super) fn polls(&self) -> Vec<Poll> {
        let log = fs::read(&self.log).unwrap_or_default();
        let lines = log.split(|byte| *byte == b'\n');
        lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }
}

/// What a program prints that ends by itself.
pub(super) async fn output(mut command: tokio::process::Command, shown: &str) -> Result<String, DemoError> {
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let out = command.stdin(Stdio::null()).output().await;
    let out = out.map_err(|source| DemoError::Start { program, source })?;
    if !out.status.success() {
        let said = format!("{}: {}", out.status, String::from_utf8_lossy(&out.stderr).trim());
        return Err(DemoError::Command { command: shown.to_owned(), said });
    }
    Ok(String::from_utf8_lossy(&out.stdout).trim_end().to_owned())
}

/// A port that nobody listens on. It is the hub's from its start on; until then somebody else may take it,
/// and the hub says so.
fn free_port() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs())
}
