//! An S3 server over a folder.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::leash::Leashed;
use super::{KitError, Port, program};

const READY_WITHIN: Duration = Duration::from_secs(20);
const ACCESS_KEY: &str = "kit-access";
const SECRET_KEY: &str = "kit-secret";
const REGION: &str = "us-east-1";

/// A `versitygw` whose buckets are folders: it honours conditional PUTs, and what it holds survives a restart.
#[derive(Debug)]
pub struct S3 {
    server: Option<Leashed>,
    port: Port,
    folder: TempDir,
}

impl S3 {
    /// Starts a server without buckets and returns when it answers.
    ///
    /// # Errors
    /// As said in the [module](super).
    pub async fn start() -> Result<Self, KitError> {
        let folder = TempDir::new().map_err(KitError::io("making a folder", std::env::temp_dir()))?;
        let mut s3 = Self { server: None, port: Port::take()?, folder };
        std::fs::create_dir(s3.buckets()).map_err(KitError::io("making a folder", s3.buckets()))?;
        s3.restart().await?;
        Ok(s3)
    }

    /// The server's address, as `http://127.0.0.1:PORT`; buckets are the first part of the path.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.port.address())
    }

    /// The process id while it runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.server.as_ref().map(Leashed::id)
    }

    /// The id of the only key, which may do everything.
    #[must_use]
    pub fn access_key(&self) -> &str {
        ACCESS_KEY
    }

    /// The secret of that key.
    #[must_use]
    pub fn secret_key(&self) -> &str {
        SECRET_KEY
    }

    /// The region that requests must be signed for.
    #[must_use]
    pub fn region(&self) -> &str {
        REGION
    }

    /// Makes an empty bucket, also while the server is stopped.
    ///
    /// # Errors
    /// When there is one of that name.
    pub fn create_bucket(&self, name: &str) -> Result<(), KitError> {
        let folder = self.bucket_folder(name);
        std::fs::create_dir(&folder).map_err(KitError::io("making a bucket", folder))
    }

    /// The folder that holds a bucket's objects as files, to look at or to damage behind the server's back.
    #[must_use]
    pub fn bucket_folder(&self, name: &str) -> PathBuf {
        self.buckets().join(name)
    }

    /// Kills the server; connections are reset and new ones refused until [`S3::restart`].
    pub fn stop(&mut self) {
        self.server = None;
    }

    /// Starts the server again on the same port, with what it held.
    ///
    /// # Errors
    /// As [`S3::start`].
    pub async fn restart(&mut self) -> Result<(), KitError> {
        self.stop();
        let mut command = Command::new(program("versitygw")?);
        command
            .args(["--port", &self.port.address(), "--region", REGION, "--quiet"])
            // Without it the server closes the connection after each answer, as no S3 service does.
            .arg("--keep-alive")
            .arg("posix")
            .arg(self.buckets())
            .env("ROOT_ACCESS_KEY", ACCESS_KEY)
            .env("ROOT_SECRET_KEY", SECRET_KEY);
        let mut server = Leashed::start("versitygw", &command, self.folder.path())?;
        let address = self.port.address();
        server.until_ready(READY_WITHIN, async || answers(&address).await).await?;
        self.server = Some(server);
        Ok(())
    }

    fn buckets(&self) -> PathBuf {
        self.folder.path().join("buckets")
    }
}

/// Ready is whoever speaks HTTP, be it to refuse an unsigned request.
async fn answers(address: &str) -> Result<(), String> {
    let ask = async || {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: kit\r\n\r\n").await?;
        let mut start = [0; 5];
        stream.read_exact(&mut start).await?;
        Ok::<_, std::io::Error>(start)
    };
    match ask().await {
        Ok(start) if &start == b"HTTP/" => Ok(()),
        Ok(start) => Err(format!("it answered {:?}", String::from_utf8_lossy(&start))),
        Err(error) => Err(error.to_string()),
    }
}
