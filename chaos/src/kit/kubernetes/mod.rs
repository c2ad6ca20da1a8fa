//! A Kubernetes API: etcd and kube-apiserver, and the controllers where a test asks for them. There are no nodes.

mod audit;
mod available;
mod compact;
mod credentials;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use self::credentials::Credentials;
use super::leash::Leashed;
use super::{KitError, Port, copy, program};

pub use self::audit::{ApiRequest, AuditMark};

/// Measured 4 s on two idle cores; generous, because tests share them.
const READY_WITHIN: Duration = Duration::from_secs(90);

/// A Kubernetes API server with its store, RBAC and an administrator.
///
/// Without controllers nothing follows from what is written: a Deployment makes no Pods, a deleted Namespace stays
/// `Terminating`, a new Namespace has no default service account.
#[derive(Debug)]
pub struct Kubernetes {
    controllers: Option<Leashed>,
    api: Option<Leashed>,
    // Ended after the API server, which complains for seconds when its store goes first.
    etcd: Option<Leashed>,
    etcd_port: Port,
    api_port: Port,
    with: Controllers,
    cache: Cache,
    credentials: Credentials,
    folder: TempDir,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Controllers {
    Absent,
    Running,
}

/// Whether the API server answers watches from its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cache {
    Present,
    Absent,
}

impl Kubernetes {
    /// Starts an API without controllers and returns when it is ready and its `default` namespace is there.
    ///
    /// # Errors
    /// As said in the [module](super).
    pub async fn start() -> Result<Self, KitError> {
        Self::start_either(Controllers::Absent, Cache::Present).await
    }

    /// The same, without a cache for watches: each goes to the store, and what that has forgotten is gone
    /// ([`Kubernetes::compact`]).
    ///
    /// # Errors
    /// As said in the [module](super).
    pub async fn start_without_cache() -> Result<Self, KitError> {
        Self::start_either(Controllers::Absent, Cache::Absent).await
    }

    /// Starts an API with kube-controller-manager, and returns when the default service account is there too.
    ///
    /// # Errors
    /// As said in the [module](super).
    pub async fn start_with_controllers() -> Result<Self, KitError> {
        let mut kubernetes = Self::start_either(Controllers::Running, Cache::Present).await?;
        kubernetes.start_controllers().await?;
        Ok(kubernetes)
    }

    /// The path of a kubeconfig file with the administrator's credentials.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.credentials.kubeconfig()
    }

    /// The path of a kubeconfig file with the credentials of a service account, as its Pods have them.
    ///
    /// # Errors
    /// When there is no such account, or the file cannot be written.
    pub fn kubeconfig_of(&self, namespace: &str, account: &str) -> Result<PathBuf, KitError> {
        let token = self.kubectl(&["create", "token", account, "--namespace", namespace])?;
        self.credentials.kubeconfig_of(&format!("{namespace}.{account}"), &self.api_port, token.trim())
    }

    /// The API's address, as `https://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.api_port.address())
    }

    /// Runs `kubectl` as the administrator and returns what it printed on standard output.
    ///
    /// # Errors
    /// [`KitError::Failed`], with what it printed, when it fails.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String, KitError> {
        self.kubectl_with_input(arguments, "")
    }

    /// Runs `kubectl` with `input` on its standard input, for `apply -f -`.
    ///
    /// # Errors
    /// As [`Kubernetes::kubectl`].
    pub fn kubectl_with_input(&self, arguments: &[&str], input: &str) -> Result<String, KitError> {
        kubectl(self.folder.path(), &self.kubeconfig(), arguments, input)
    }

    /// The present end of the audit log.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn audit_mark(&self) -> Result<AuditMark, KitError> {
        audit::mark(&self.audit_log())
    }

    /// The writes that clients asked for since `mark`, dry runs included, refused or not, in order.
    ///
    /// A request is in the log before it is answered. Left out are the API server's and the controllers' own writes,
    /// and reviews (`SelfSubjectAccessReview` and the like), which are sent as writes but store nothing.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn audit_writes_since(&self, mark: AuditMark) -> Result<Vec<ApiRequest>, KitError> {
        audit::writes_since(&self.audit_log(), mark)
    }

    /// The reads that clients asked for since `mark`, as [`Kubernetes::audit_writes_since`] has the writes.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn audit_reads_since(&self, mark: AuditMark) -> Result<Vec<ApiRequest>, KitError> {
        audit::reads_since(&self.audit_log(), mark)
    }

    /// Kills the API server; its store stays.
    pub fn stop_api(&mut self) {
        self.api = None;
    }

    /// Kills the API server and its store, in the middle of whatever they do.
    pub fn stop_all(&mut self) {
        self.etcd = None;
        self.api = None;
    }

    /// Starts the store and the API server again, with what the store holds.
    ///
    /// # Errors
    /// As [`Kubernetes::start`].
    pub async fn start_all(&mut self) -> Result<(), KitError> {
        self.stop_all();
        self.etcd = Some(start_etcd(self.folder.path(), &self.etcd_port)?);
        self.start_api().await
    }

    /// Keeps a copy of the store as it is, for [`Kubernetes::restore`]. Both servers are started anew.
    ///
    /// # Errors
    /// When it cannot be copied, or as [`Kubernetes::start`].
    pub async fn back_up(&mut self) -> Result<TempDir, KitError> {
        let backup = TempDir::new().map_err(KitError::io("making a folder", std::env::temp_dir()))?;
        self.stop_all();
        copy(&self.store(), backup.path())?;
        self.start_all().await?;
        Ok(backup)
    }

    /// Puts a copy in the place of the store, as the restore of a snapshot does: nothing later is known. Both
    /// servers are started anew.
    ///
    /// # Errors
    /// As [`Kubernetes::back_up`].
    pub async fn restore(&mut self, backup: &TempDir) -> Result<(), KitError> {
        self.stop_all();
        let store = self.store();
        std::fs::remove_dir_all(&store).map_err(KitError::io("removing a folder", &store))?;
        copy(backup.path(), &store)?;
        self.start_all().await
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("etcd")
    }

    /// Starts the API server again, on the same port, with what its store holds.
    ///
    /// # Errors
    /// As [`Kubernetes::start`].
    pub async fn start_api(&mut self) -> Result<(), KitError> {
        self.stop_api();
        let mut api = Leashed::start("kube-apiserver", &self.api_command()?, self.folder.path())?;
        let (folder, kubeconfig) = (self.folder.path(), self.kubeconfig());
        api.until_ready(READY_WITHIN, async || {
            let ask = |arguments: &[&str]| kubectl(folder, &kubeconfig, arguments, "");
            ask(&["get", "--raw", "/readyz"])
                .and_then(|_ok| ask(&["get", "namespace", "default"]))
                .map(|_there| ())
                .map_err(|error| error.to_string())
        })
        .await?;
        self.api = Some(api);
        Ok(())
    }

    /// Kills the API server and starts it again.
    ///
    /// # Errors
    /// As [`Kubernetes::start`].
    pub async fn restart(&mut self) -> Result<(), KitError> {
        self.start_api().await
    }

    async fn start_either(with: Controllers, cache: Cache) -> Result<Self, KitError> {
        let folder = TempDir::new().map_err(KitError::io("making a folder", std::env::temp_dir()))?;
        let (etcd_port, api_port) = (Port::take()?, Port::take()?);
        let credentials = Credentials::write(folder.path(), &api_port)?;
        let etcd = start_etcd(folder.path(), &etcd_port)?;
        let mut kubernetes = Self {
            controllers: None,
            api: None,
            etcd: Some(etcd),
            etcd_port,
            api_port,
            with,
            cache,
            credentials,
            folder,
        };
        kubernetes.start_api().await?;
        Ok(kubernetes)
    }

    fn api_command(&self) -> Result<Command, KitError> {
        let policy = self.folder.path().join("audit-policy.json");
        std::fs::write(&policy, audit::policy()).map_err(KitError::io("writing a file", &policy))?;
        let mut command = Command::new(program("kube-apiserver")?);
        command
            .arg(format!("--etcd-servers=http://{}", self.etcd_port.address()))
            .arg(format!("--secure-port={}", self.api_port.number()))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            // Nothing in the cluster calls the API by its service, and an endpoint on loopback is refused.
            .arg("--endpoint-reconciler-type=none")
            .args(["--service-cluster-ip-range=10.96.0.0/24", "--allow-privileged=true"])
            .args(["--authorization-mode=RBAC", "--service-account-issuer=https://kubernetes.default.svc"])
            .args(self.credentials.api_arguments())
            .arg(option("--audit-policy-file", &policy))
            .arg(option("--audit-log-path", &self.audit_log()));
        if self.with == Controllers::Absent {
            // Nobody makes the service accounts that this plug-in demands of every Pod.
            command.arg("--disable-admission-plugins=ServiceAccount");
        }
        if self.cache == Cache::Absent {
            command.arg("--watch-cache=false");
        }
        Ok(command)
    }

    async fn start_controllers(&mut self) -> Result<(), KitError> {
        let mut command = Command::new(program("kube-controller-manager")?);
        // Without leader election it starts at once; without a port it needs none.
        command
            .args(["--leader-elect=false", "--secure-port=0"])
            .args(self.credentials.controller_arguments());
        let mut controllers = Leashed::start("kube-controller-manager", &command, self.folder.path())?;
        controllers
            .until_ready(READY_WITHIN, async || {
                let there = self.kubectl(&["get", "serviceaccount", "default"]);
                there.map(|_there| ()).map_err(|error| error.to_string())
            })
            .await?;
        self.controllers = Some(controllers);
        Ok(())
    }

    fn audit_log(&self) -> PathBuf {
        self.folder.path().join("audit.log")
    }
}

/// Does not wait: the API server does, and says so when it waits in vain.
fn start_etcd(folder: &Path, port: &Port) -> Result<Leashed, KitError> {
    let client = format!("http://{}", port.address());
    // No other member ever calls, so the port of members is any that is free.
    let peer = "http://127.0.0.1:0";
    let mut command = Command::new(program("etcd")?);
    command
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer])
        .args(["--initial-cluster", &format!("default={peer}"), "--log-level", "warn"])
        // The store lives as long as the test: it need not survive a power cut.
        .arg("--unsafe-no-fsync")
        .arg("--data-dir")
        .arg(folder.join("etcd"));
    Leashed::start("etcd", &command, folder)
}

fn kubectl(folder: &Path, kubeconfig: &Path, arguments: &[&str], input: &str) -> Result<String, KitError> {
    let path = program("kubectl")?;
    let mut command = Command::new(&path);
    command.args(arguments).env("KUBECONFIG", kubeconfig).env("KUBECACHEDIR", folder.join("kubectl-cache"));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(KitError::io("starting a program", &path))?;
    let mut stdin = child.stdin.take().expect("standard input is a pipe");
    let output = std::thread::scope(|scope| {
        // Fed from a thread, because a program that prints while it reads would block on a full pipe. One that reads
        // less than there is fails by its own status, if it matters.
        scope.spawn(move || stdin.write_all(input.as_bytes()).is_ok());
        child.wait_with_output()
    });
    let output = output.map_err(KitError::io("running a program", &path))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(KitError::Failed {
        what: format!("kubectl {}", arguments.join(" ")),
        status: output.status,
        output: String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
    })
}

fn option(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}
