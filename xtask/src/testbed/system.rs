//! Programs from the system's packages.

use std::process::Command;

use crate::command;
use crate::error::ChoreError;

/// Installs a package where that needs no question: as root, on a system with `apt-get`.
pub(super) fn install(program: &'static str, package: &'static str) -> Result<(), ChoreError> {
    let has_apt =
        Command::new("apt-get").arg("--version").output().is_ok_and(|output| output.status.success());
    if !rustix::process::geteuid().is_root() || !has_apt {
        return Err(ChoreError::NoSystemProgram { program, package });
    }
    eprintln!("testbed: installing {package} with apt-get");
    for arguments in [&["update", "--quiet"][..], &["install", "--yes", "--quiet", package][..]] {
        let mut command = Command::new("apt-get");
        command::output(command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))?;
    }
    Ok(())
}
