//! Where programs are: those of the testbed, and those of this workspace.

use std::path::{Path, PathBuf};

use super::KitError;

/// Finds a program of the testbed, such as `redis-server` or `kubectl`.
///
/// # Errors
/// [`KitError::NoServer`] when the testbed does not hold it.
pub fn program(name: &str) -> Result<PathBuf, KitError> {
    let looked = testbeds();
    looked
        .iter()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| KitError::NoServer { program: name.to_owned(), looked })
}

/// Finds a program of this workspace, such as `farshore`, in the folder into which the running test was built.
///
/// The path of a program is taken as it is. `FARSHORE_AGENT` is the path of the agent where it is built as it is shipped,
/// in another profile.
///
/// # Errors
/// [`KitError::NoBinary`] when it is not built: Cargo builds the programs of the tested package only.
pub fn binary(name: &str) -> Result<PathBuf, KitError> {
    let shipped = std::env::var_os("FARSHORE_AGENT").filter(|_path| name == "farshore-agent");
    let path = match shipped {
        Some(path) => PathBuf::from(path),
        None => build_folder()?.join(name),
    };
    if path.is_file() { Ok(path) } else { Err(KitError::NoBinary { program: name.to_owned(), path }) }
}

/// A variable that names the folder wins, and then nothing else is looked at: who sets it means it.
fn testbeds() -> Vec<PathBuf> {
    if let Some(folder) = std::env::var_os("FARSHORE_TESTBED") {
        return vec![PathBuf::from(folder)];
    }
    // A build for a named target sits one folder deeper (target/TRIPLE/debug), so both levels are looked at.
    build_folder()
        .map(|folder| folder.ancestors().skip(1).take(2).map(|above| above.join("testbed")).collect())
        .unwrap_or_default()
}

/// The folder of the programs (`target/debug`): a test runs in `deps` below it.
fn build_folder() -> Result<PathBuf, KitError> {
    let running = std::env::current_exe().map_err(KitError::io("finding the running test", ""))?;
    let folder = running.parent().unwrap_or(Path::new("/"));
    let nested = folder.ends_with("deps") || folder.ends_with("examples");
    Ok(if nested { folder.parent().unwrap_or(folder) } else { folder }.to_owned())
}
