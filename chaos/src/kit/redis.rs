//! A Redis server that keeps nothing.

use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::leash::Leashed;
use super::{KitError, Port, program};

const READY_WITHIN: Duration = Duration::from_secs(20);

/// A `redis-server` without persistence: what it held is gone after [`Redis::stop`].
#[derive(Debug)]
pub struct Redis {
    server: Option<Leashed>,
    port: Port,
    folder: TempDir,
}

impl Redis {
    /// Starts a server and returns when it answers.
    ///
    /// # Errors
    /// As said in the [module](super).
    pub async fn start() -> Result<Self, KitError> {
        let folder = TempDir::new().map_err(KitError::io("making a folder", std::env::temp_dir()))?;
        let mut redis = Self { server: None, port: Port::take()?, folder };
        redis.restart().await?;
        Ok(redis)
    }

    /// The server's address, as `redis://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.port.address())
    }

    /// The process id while it runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.server.as_ref().map(Leashed::id)
    }

    /// Deletes everything the server holds, as an operator's `FLUSHALL` does.
    ///
    /// # Errors
    /// When the server is away, or refuses.
    pub async fn flush_all(&self) -> Result<(), KitError> {
        let answer = ask(&self.port.address(), "FLUSHALL")
            .await
            .map_err(KitError::io("asking Redis to flush all", self.url()))?;
        if answer == "+OK" {
            return Ok(());
        }
        Err(KitError::Answer { what: "Redis to flush all".to_owned(), answer })
    }

    /// Kills the server; connections are reset and new ones refused until [`Redis::restart`].
    pub fn stop(&mut self) {
        self.server = None;
    }

    /// Starts the server again on the same port, empty.
    ///
    /// # Errors
    /// As [`Redis::start`].
    pub async fn restart(&mut self) -> Result<(), KitError> {
        self.stop();
        let mut command = Command::new(program("redis-server")?);
        command
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"])
            .arg("--port")
            .arg(self.port.number().to_string())
            .arg("--dir")
            .arg(self.folder.path());
        let mut server = Leashed::start("redis-server", &command, self.folder.path())?;
        let address = self.port.address();
        server
            .until_ready(READY_WITHIN, async || match ask(&address, "PING").await {
                Ok(answer) if answer == "+PONG" => Ok(()),
                Ok(answer) => Err(format!("it answered {answer:?}")),
                Err(error) => Err(error.to_string()),
            })
            .await?;
        self.server = Some(server);
        Ok(())
    }

    /// Stops the server's execution (SIGSTOP): connections stay open and hang.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn pause(&mut self) -> Result<(), KitError> {
        self.server.as_mut().map_or(Ok(()), |server| server.signal(Signal::STOP))
    }

    /// Lets a paused server go on (SIGCONT).
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn resume(&mut self) -> Result<(), KitError> {
        self.server.as_mut().map_or(Ok(()), |server| server.signal(Signal::CONT))
    }
}

/// One command without arguments and the first line of its answer, in the protocol's inline form.
async fn ask(address: &str, command: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("{command}\r\n").as_bytes()).await?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await?;
    Ok(line.trim_end().to_owned())
}
