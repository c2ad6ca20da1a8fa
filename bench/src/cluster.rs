//! A real Kubernetes API, a fleet whose only service is a number of `ConfigMap`s, and a site that applies them: what the
//! benches of the agent run on. And a client of that API, for whoever changes and watches beside the agent.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use farshore_chaos::kit::{ApiRequest, AuditMark, Kubernetes, Process, program, wait_for};
use farshore_chaos::world::{Site, Target, World, declare};
use farshore_shared::wire::ServiceState;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::error::BenchError;
use crate::load::http1::Line;
use crate::load::tls;

/// The service, its namespace, and the site.
pub(crate) const NAME: &str = "shop";
/// What every object holds.
pub(crate) const SIGNED: &str = "as signed";
/// Objects in one file of the service's repository.
const IN_A_FILE: usize = 500;
/// Ten thousand objects on a busy machine.
const APPLIED_WITHIN: Duration = Duration::from_secs(600);
/// Longer, and something is wrong.
const LISTED_WITHIN: Duration = Duration::from_secs(120);
/// The kit's administrator.
const TOKEN: &str = "kit-admin";

/// The name of an object by its number.
pub(crate) fn object(number: usize) -> String {
    format!("c{number:05}")
}

/// A cluster with a site in it. The agent has its defaults, but for the hub's and the site's polls.
pub(crate) struct Cluster {
    // In the order in which they are dropped.
    pub(crate) site: Site,
    pub(crate) world: World,
    pub(crate) kubernetes: Kubernetes,
}

impl Cluster {
    /// Starts everything, and returns when so many objects are applied. The agent reaches the API as this kubeconfig
    /// says, made from that of the API.
    ///
    /// # Errors
    /// When something does not start, or does not come to its end.
    pub(crate) async fn with(
        objects: usize,
        kubernetes: Kubernetes,
        kubeconfig: PathBuf,
    ) -> Result<Self, BenchError> {
        let files: Vec<(String, String)> = (0..objects.div_ceil(IN_A_FILE))
            .map(|file| {
                let numbers = file * IN_A_FILE..objects.min((file + 1) * IN_A_FILE);
                let text =
                    numbers.map(|number| declare::config_map(&object(number), SIGNED) + "---\n").collect();
                (format!("{file:03}.yaml"), text)
            })
            .collect();
        let files: Vec<(&str, &str)> =
            files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let world = World::on_disk(NAME, &files).await?;
        let mut cluster = Self::of(world, kubernetes, kubeconfig)?;
        cluster.site.start().await?;
        cluster.until_applied(objects).await?;
        Ok(cluster)
    }

    /// The same of a world that is there, with an agent that has not been started.
    ///
    /// # Errors
    /// When it cannot be prepared.
    pub(crate) fn of(world: World, kubernetes: Kubernetes, kubeconfig: PathBuf) -> Result<Self, BenchError> {
        let site = world.fleet.site(NAME, &world.hub.address(), Target::Kubernetes(kubeconfig))?;
        Ok(Self { site: site.option("--poll=2m").without("--sweep"), world, kubernetes })
    }

    /// Returns when the site has reported so many objects applied.
    ///
    /// # Errors
    /// When it does not.
    pub(crate) async fn until_applied(&self, objects: usize) -> Result<(), BenchError> {
        wait_for("everything to be applied", APPLIED_WITHIN, async || {
            let status = self.world.fleet.status(NAME).map_err(|error| error.to_string())?;
            let service =
                status.and_then(|status| status.services.into_iter().next()).ok_or("no status has come")?;
            let there = usize::try_from(service.objects).unwrap_or_default();
            if service.state == ServiceState::Applied && there == objects {
                return Ok(());
            }
            Err(format!("{:?}, {there} objects: {}", service.state, service.message))
        })
        .await?;
        Ok(())
    }

    /// Returns when the site has reported this commit applied.
    ///
    /// # Errors
    /// When it does not in this time.
    pub(crate) async fn until_revision(&self, commit: &str, within: Duration) -> Result<(), BenchError> {
        wait_for("a commit to be applied", within, async || {
            let status = self.world.fleet.status(NAME).map_err(|error| error.to_string())?;
            match status.and_then(|status| status.services.into_iter().next()) {
                Some(service) if service.commit == commit && service.state == ServiceState::Applied => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await?;
        Ok(())
    }

    /// The process id of the agent.
    pub(crate) fn agent(&mut self) -> u32 {
        self.site.process().id()
    }

    /// What the agent has asked the API for since then.
    ///
    /// # Errors
    /// When the API's audit log cannot be read.
    pub(crate) fn asked(&self, mark: AuditMark) -> Result<Vec<ApiRequest>, BenchError> {
        let mut requests = self.kubernetes.audit_reads_since(mark)?;
        requests.extend(self.kubernetes.audit_writes_since(mark)?);
        requests.retain(|request| request.user_agent.starts_with("farshore-agent/"));
        Ok(requests)
    }

    /// Where the API listens, as `HOST:PORT`.
    pub(crate) fn address(&self) -> String {
        address(&self.kubernetes)
    }
}

/// Where an API listens, as `HOST:PORT`.
pub(crate) fn address(kubernetes: &Kubernetes) -> String {
    kubernetes.url().replace("https://", "")
}

/// A kubeconfig in this folder that leads to another address.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn kubeconfig_by(kubernetes: &Kubernetes, by: &str, folder: &Path) -> Result<PathBuf, BenchError> {
    let text =
        std::fs::read_to_string(kubernetes.kubeconfig()).map_err(BenchError::io("reading a kubeconfig"))?;
    let path = folder.join("kubeconfig");
    let text = text.replace(&address(kubernetes), by);
    std::fs::write(&path, text).map_err(BenchError::io("writing a kubeconfig"))?;
    Ok(path)
}

/// A `kubectl` with this kubeconfig that watches all objects and has listed so many.
///
/// # Errors
/// When it does not.
pub(crate) async fn watching(kubeconfig: &Path, objects: usize) -> Result<Process, BenchError> {
    let kubectl = program("kubectl")?.display().to_string();
    let (kubeconfig, namespace) =
        (format!("--kubeconfig={}", kubeconfig.display()), format!("--namespace={NAME}"));
    let arguments = ["get", "configmaps", "--watch", "--output=name", &namespace, &kubeconfig];
    let kubectl = Process::start(&kubectl, arguments)?;
    wait_for("kubectl to list everything", LISTED_WITHIN, async || match kubectl.stdout().lines().count() {
        listed if listed >= objects => Ok(()),
        listed => Err(format!("{listed} are listed")),
    })
    .await?;
    Ok(kubectl)
}

/// A connection of somebody else to the API.
pub(crate) struct Client {
    line: Line<TlsStream<TcpStream>>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// When nobody answers.
    pub(crate) async fn connect(address: &str) -> Result<Self, BenchError> {
        Ok(Self { line: Line::new(tls::connect(address, b"http/1.1").await?) })
    }

    /// Applies an object as `kubectl apply --server-side --force-conflicts` does, without what a client does beside.
    ///
    /// # Errors
    /// When the API refuses.
    pub(crate) async fn apply(&mut self, path: &str, manifest: &str) -> Result<(), BenchError> {
        let request = format!(
            "PATCH {path}?fieldManager=bench&force=true&fieldValidation=Strict HTTP/1.1\r\n{}\
             content-type: application/apply-patch+yaml\r\ncontent-length: {}\r\n\r\n{manifest}",
            head(),
            manifest.len()
        );
        let answer = self.line.ask(request.as_bytes()).await.map_err(BenchError::io("applying an object"))?;
        if matches!(answer.status, 200 | 201) {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        Err(BenchError::Wrong(format!("an apply was answered {}: {said}", answer.status)))
    }

    /// Gives an object another value, as another field manager.
    ///
    /// # Errors
    /// When the API refuses.
    pub(crate) async fn change(&mut self, name: &str, value: &str) -> Result<(), BenchError> {
        let body = format!("{{\"data\":{{\"value\":\"{value}\"}}}}");
        let request = format!(
            "PATCH /api/v1/namespaces/{NAME}/configmaps/{name}?fieldManager=bench HTTP/1.1\r\n{}\
             content-type: application/merge-patch+json\r\ncontent-length: {}\r\n\r\n{body}",
            head(),
            body.len()
        );
        let answer = self.line.ask(request.as_bytes()).await.map_err(BenchError::io("changing an object"))?;
        if answer.status == 200 {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        Err(BenchError::Wrong(format!("a change was answered {}: {said}", answer.status)))
    }
}

/// What changes, as anybody sees it who watches.
pub(crate) struct Watch {
    stream: BufReader<TlsStream<TcpStream>>,
    text: Vec<u8>,
}

/// One change of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// The object.
    pub(crate) name: String,
    /// Its value.
    pub(crate) value: String,
    /// When it was heard of.
    pub(crate) at: Instant,
}

impl Watch {
    /// Watches the objects of a path from now on.
    ///
    /// # Errors
    /// When the API refuses.
    pub(crate) async fn begin(address: &str, path: &str) -> Result<Self, BenchError> {
        let mut line = Line::new(tls::connect(address, b"http/1.1").await?);
        let list = format!("GET {path}?limit=1 HTTP/1.1\r\n{}\r\n", head());
        let answer = line.ask(list.as_bytes()).await.map_err(BenchError::io("listing objects"))?;
        let page: Value = serde_json::from_slice(&answer.body).map_err(BenchError::ours("reading a list"))?;
        let version = page["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let mut stream = BufReader::new(tls::connect(address, b"http/1.1").await?);
        let watch = format!("GET {path}?watch=1&resourceVersion={version} HTTP/1.1\r\n{}\r\n", head());
        stream.get_mut().write_all(watch.as_bytes()).await.map_err(BenchError::io("watching"))?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let read = stream.read_line(&mut head).await.map_err(BenchError::io("watching"))?;
            if read == 0 {
                return Err(BenchError::Wrong(format!("a watch was answered {head}")));
            }
        }
        if !head.starts_with("HTTP/1.1 200") {
            return Err(BenchError::Wrong(format!("a watch was answered {head}")));
        }
        Ok(Self { stream, text: Vec::new() })
    }

    /// The next change.
    ///
    /// # Errors
    /// When the watch ends.
    pub(crate) async fn next(&mut self) -> Result<Event, BenchError> {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                let event: Value =
                    serde_json::from_slice(&line).map_err(BenchError::ours("reading an event"))?;
                let text =
                    |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned();
                let (name, value) = (text("/object/metadata/name"), text("/object/data/value"));
                return Ok(Event { name, value, at: Instant::now() });
            }
            self.chunk().await?;
        }
    }

    /// RFC 9112, section 7.1.
    async fn chunk(&mut self) -> Result<(), BenchError> {
        let failed = || BenchError::io("watching");
        let mut size = String::new();
        self.stream.read_line(&mut size).await.map_err(failed())?;
        let size = usize::from_str_radix(size.trim(), 16);
        let size = size.map_err(|_no_number| BenchError::Wrong("a watch ended".to_owned()))?;
        let mut chunk = vec![0; size + 2];
        self.stream.read_exact(&mut chunk).await.map_err(failed())?;
        self.text.extend_from_slice(&chunk[..size]);
        Ok(())
    }
}

/// The path of the objects of a kind in the service's namespace, as `v1` and `configmaps`.
pub(crate) fn path(version: &str, plural: &str) -> String {
    let root = if version.contains('/') { "apis" } else { "api" };
    format!("/{root}/{version}/namespaces/{NAME}/{plural}")
}

fn head() -> String {
    format!("host: kubernetes\r\nauthorization: Bearer {TOKEN}\r\naccept: application/json\r\n")
}
