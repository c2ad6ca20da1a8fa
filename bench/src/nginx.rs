//! The yardstick of answering: nginx with one worker, `return 304`.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use farshore_chaos::kit::{Port, Process, wait_for};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::error::BenchError;
use crate::hub::Certificate;

/// Everything that would cost nginx what the hub does not do is off: no log, no time-out of busy
/// connections. One worker.
const CONFIG: &str = "
daemon off;
worker_processes 1;
error_log stderr crit;
pid PID;
events { worker_connections 4096; }
http {
  access_log off;
  keepalive_requests 1000000000;
  keepalive_timeout 3600s;
  client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy; fastcgi_temp_path FOLDER/fastcgi;
  uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;
  ssl_protocols TLSv1.3;
  ssl_certificate CERT; ssl_certificate_key KEY;
  server {
    listen 127.0.0.1:PLAIN1;
    listen 127.0.0.1:PLAIN2 http2;
    listen 127.0.0.1:TLS ssl http2;
    location / { return 304; }
  }
}
";

/// A running nginx.
pub(crate) struct Nginx {
    process: Process,
    // Its files outlive it.
    _folder: TempDir,
    plain1: Port,
    plain2: Port,
    tls: Port,
}

/// Where nginx is, and how it is told what to do.
pub(crate) struct Prepared {
    program: PathBuf,
    folder: TempDir,
    plain1: Port,
    plain2: Port,
    tls: Port,
}

impl Prepared {
    /// Finds the program and writes its configuration.
    ///
    /// # Errors
    /// When it is not installed.
    pub(crate) fn with(certificate: &Certificate) -> Result<Self, BenchError> {
        let program = find()?;
        let folder = TempDir::new().map_err(BenchError::io("making a folder"))?;
        let (plain1, plain2, tls) = (Port::take()?, Port::take()?, Port::take()?);
        let here = folder.path().display().to_string();
        let text = CONFIG
            .replace("PID", &format!("{here}/pid"))
            .replace("FOLDER", &here)
            .replace("CERT", &certificate.cert().display().to_string())
            .replace("KEY", &certificate.key().display().to_string())
            .replace("PLAIN1", &plain1.number().to_string())
            .replace("PLAIN2", &plain2.number().to_string())
            .replace("TLS ssl", &format!("{} ssl", tls.number()));
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, text).map_err(BenchError::io("writing nginx.conf"))?;
        // The worker drops root's rights and still has to use its folders.
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .map_err(BenchError::io("opening a folder to nginx"))?;
        Ok(Self { program, folder, plain1, plain2, tls })
    }

    /// The command that runs it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(self.arguments());
        command
    }

    /// Where it will answer over plain HTTP/1.1.
    pub(crate) fn plain(&self) -> String {
        self.plain1.address()
    }

    fn arguments(&self) -> Vec<String> {
        let here = self.folder.path().display();
        vec!["-p".to_owned(), here.to_string(), "-c".to_owned(), format!("{here}/nginx.conf")]
    }

    /// Runs it, and returns when it accepts connections.
    ///
    /// # Errors
    /// When it does not.
    pub(crate) async fn start(self) -> Result<Nginx, BenchError> {
        let process = Process::start(&self.program.display().to_string(), self.arguments())?;
        let address = self.plain1.address();
        let waited = wait_for("nginx to accept connections", Duration::from_secs(10), async || {
            TcpStream::connect(&address).await.map(drop).map_err(|error| error.to_string())
        });
        if let Err(error) = waited.await {
            return Err(BenchError::Failed {
                program: "nginx".to_owned(),
                said: format!("{error}: {}", process.stderr()),
            });
        }
        let Self { folder, plain1, plain2, tls, .. } = self;
        Ok(Nginx { process, _folder: folder, plain1, plain2, tls })
    }
}

impl Nginx {
    /// The process id of the master, whose child the worker is.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Where it answers over plain HTTP/1.1.
    pub(crate) fn plain1(&self) -> String {
        self.plain1.address()
    }

    /// Where it answers over plain HTTP/2.
    pub(crate) fn plain2(&self) -> String {
        self.plain2.address()
    }

    /// Where it answers over TLS.
    pub(crate) fn tls(&self) -> String {
        self.tls.address()
    }
}

/// Its version, as it prints it.
///
/// # Errors
/// When it is not installed.
pub(crate) fn version() -> Result<String, BenchError> {
    let output = Command::new(find()?).arg("-v").output().map_err(BenchError::io("running nginx"))?;
    Ok(String::from_utf8_lossy(&output.stderr).trim().replace("nginx version: ", ""))
}

fn find() -> Result<PathBuf, BenchError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Not every user has the folder of system programs on the path.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let mut programs = folders.map(|folder| folder.join("nginx"));
    programs.find(|path| path.is_file()).ok_or(BenchError::NoProgram { program: "nginx", package: "nginx" })
}
