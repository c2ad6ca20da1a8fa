//! Where a hub keeps things: its data folder, taken for one process; the record; the index.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
#[cfg(feature = "redis")]
use std::time::Duration;

use farshore_shared::exit::chain;

use crate::config::Config;
use crate::index::{Index, memory};
use crate::objects::{self, Objects, disk};
use crate::run::HubError;
use crate::view::STALENESS;

/// The version of the data folder's layout.
const DATA_VERSION: u32 = 1;
/// How long Redis keeps an entry: what was put there by a replica that had read too early is gone then.
#[cfg(feature = "redis")]
const INDEX_LIFE: Duration = Duration::from_secs(30);
/// The most bytes of the index of one process.
const OWN_INDEX_LIMIT: u64 = 64 << 20;

/// Takes the data folder for this process.
pub(crate) fn lock_data(path: &Path) -> Result<File, HubError> {
    let data = |why: String| HubError::Data { path: path.to_owned(), why };
    let failed = |doing: &str, error: std::io::Error| match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            data(format!("{doing}: it is not writable"))
        }
        _ => data(format!("{doing}: {error}")),
    };
    fs::create_dir_all(path).map_err(|error| failed("making it", error))?;
    let lock = File::options().create(true).append(true).open(path.join("lock"));
    let lock = lock.map_err(|error| failed("opening its lock", error))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            return Err(data("another hub uses it: stop that one, or use another folder".into()));
        }
        Err(fs::TryLockError::Error(error)) => return Err(failed("locking it", error)),
    }
    let version = path.join("version");
    match fs::read_to_string(&version) {
        Ok(text) if text.trim().parse() == Ok(DATA_VERSION) => {}
        // Power failed while it was written, before there was anything else.
        Ok(text) if text.trim().is_empty() => write_version(&version, failed)?,
        Ok(text) => {
            let found = text.trim();
            return Err(data(format!(
                "it is of version {found}, and this program knows version {DATA_VERSION}: use the program that made it, or a newer one"
            )));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => write_version(&version, failed)?,
        Err(error) => return Err(failed("reading its version", error)),
    }
    Ok(lock)
}

fn write_version(path: &Path, failed: impl Fn(&str, std::io::Error) -> HubError) -> Result<(), HubError> {
    fs::write(path, format!("{DATA_VERSION}\n")).map_err(|error| failed("writing its version", error))
}

/// The record: a bucket, or a folder.
///
/// # Errors
/// [`HubError`].
pub(crate) async fn open_objects(config: &Config) -> Result<Arc<dyn Objects>, HubError> {
    let objects = match &config.args.objects {
        None => open_disk(&config.args.data)?,
        Some(address) => open_bucket(address).await?,
    };
    Ok(Arc::new(objects::measured::Measured::new(objects)))
}

/// The record in a data folder.
///
/// # Errors
/// [`HubError`].
pub fn open_disk(data: &Path) -> Result<Arc<dyn Objects>, HubError> {
    let open = |error: disk::OpenError| HubError::Data { path: data.to_owned(), why: chain(&error) };
    Ok(Arc::new(disk::Disk::open(&data.join("objects")).map_err(open)?))
}

/// The record in a bucket.
///
/// # Errors
/// [`HubError`].
#[cfg(feature = "s3")]
pub async fn open_bucket(address: &str) -> Result<Arc<dyn Objects>, HubError> {
    use crate::objects::s3;
    let why = |error: s3::BadAddress| HubError::Address { flag: "--objects", why: error.to_string() };
    let address: s3::S3Address = address.parse().map_err(why)?;
    let connect = |error: s3::ConnectError| HubError::Address { flag: "--objects", why: chain(&error) };
    Ok(Arc::new(s3::S3::connect(&address).await.map_err(connect)?))
}

/// The record in a bucket.
///
/// # Errors
/// Always: this program was built without S3.
#[cfg(not(feature = "s3"))]
pub async fn open_bucket(_: &str) -> Result<Arc<dyn Objects>, HubError> {
    Err(HubError::Address { flag: "--objects", why: "this program was built without S3 (feature s3)".into() })
}

/// An index of this process alone. No publisher of another process tells it anything, so that it may
/// be believed no longer than a replica's own memory.
fn own_index() -> Arc<dyn Index> {
    Arc::new(memory::Memory::with(STALENESS, OWN_INDEX_LIMIT))
}

#[cfg(feature = "redis")]
pub(crate) fn open_index(config: &Config) -> Result<Arc<dyn Index>, HubError> {
    use crate::index::measured::Measured;
    use crate::index::redis::Redis;
    let Some(url) = &config.args.redis else { return Ok(own_index()) };
    match Redis::connect_with(url, INDEX_LIFE) {
        Ok(redis) => Ok(Arc::new(Measured::new(Arc::new(redis)))),
        Err(error) => Err(HubError::Address { flag: "--redis", why: chain(&error) }),
    }
}

#[cfg(not(feature = "redis"))]
pub(crate) fn open_index(_: &Config) -> Result<Arc<dyn Index>, HubError> {
    Ok(own_index())
}

#[cfg(test)]
mod tests {
    use super::*;
    use farshore_shared::exit::Exit;

    #[test]
    fn a_data_folder_is_taken_once_and_survives_a_cut_first_start() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(folder.path().join("version"), "").expect("a folder of ours");
        let lock = lock_data(folder.path()).expect("nothing was begun");
        assert!(matches!(lock_data(folder.path()), Err(HubError::Data { .. })), "it is taken");
        drop(lock);
        drop(lock_data(folder.path()).expect("it is free again"));
        fs::write(folder.path().join("version"), "2\n").expect("a folder of ours");
        let newer = lock_data(folder.path()).expect_err("from a newer version");
        assert!(newer.to_string().contains("it is of version 2"), "{newer}");
        assert_eq!(newer.exit(), Exit::BadInput);
    }
}
