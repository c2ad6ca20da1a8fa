//! Ports that no other test holds.

use std::fs::{File, TryLockError};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;

use super::{KitError, wait_for};

/// Below the range from which Linux and macOS take the ports of outgoing connections: there, a connection of another
/// test could sit on the port of a server that is being restarted.
const FIRST: u16 = 10_000;
const COUNT: u16 = 22_000;

const CLOSED_WITHIN: Duration = Duration::from_secs(10);

/// A TCP port of 127.0.0.1 that is this test's until the value is dropped, also while nothing listens on it.
///
/// Held by a lock on a file, so that it is kept from other test processes, and free again when this one dies.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _held: File,
}

impl Port {
    /// Takes a port on which nothing listens.
    ///
    /// # Errors
    /// [`KitError::NoPort`] when all are held, [`KitError::Io`] when the temporary folder cannot be written.
    pub fn take() -> Result<Self, KitError> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let folder = folder();
        std::fs::create_dir_all(&folder).map_err(KitError::io("making the folder of held ports", &folder))?;
        // Each process starts elsewhere, so that test processes seldom meet.
        let start = (std::process::id() % u32::from(COUNT)) as u16;
        for _ in 0..COUNT {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let number = FIRST + start.wrapping_mul(37).wrapping_add(step) % COUNT;
            if let Some(port) = Self::hold(number, &folder.join(number.to_string()))? {
                return Ok(port);
            }
        }
        Err(KitError::NoPort { tried: COUNT })
    }

    /// The port's number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The address of a server on this port, as `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.number)
    }

    fn hold(number: u16, path: &Path) -> Result<Option<Self>, KitError> {
        let held = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(KitError::io("opening the lock of a port", path))?;
        match held.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(source)) => {
                return Err(KitError::io("locking a port", path)(source));
            }
        }
        // Asked by connecting and not by listening: a child that another test is just starting would hold a copy of
        // the listener, and the server for which this port is meant would find it taken.
        let is_taken = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, number)).is_ok();
        Ok((!is_taken).then_some(Self { number, _held: held }))
    }
}

/// Returns when connections to an address are refused, after its listener was dropped.
///
/// That is not at once: a child that another test is just starting holds a copy of every socket of this process until
/// it becomes its program.
pub(crate) async fn closed(address: &str) -> Result<(), KitError> {
    let what = format!("{address} to be closed");
    wait_for(&what, CLOSED_WITHIN, async || match TcpStream::connect(address).await {
        Ok(_stream) => Err("a connection was accepted".to_owned()),
        Err(_refused) => Ok(()),
    })
    .await
}

/// One folder for each user, because a lock file of another user cannot be opened.
fn folder() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    std::env::temp_dir().join(format!("farshore-kit-ports-{user}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_held_ports_differ_although_nothing_listens_on_them() {
        let one = Port::take().expect("a free port");
        let two = Port::take().expect("a free port");
        assert_ne!(one.number(), two.number());
        assert!(
            Port::hold(one.number(), &folder().join(one.number().to_string())).expect("a lock").is_none()
        );
    }
}
