//! The servers and programs that tests run against: found, else built from pinned, checksummed modules.
//!
//! - `tool`: which there are, and how each is had.
//! - `find`: looks for what is installed, and asks it for its version.
//! - `build`: builds from `xtask/testbed/MODULE/{go.mod,go.sum}` into the user's cache folder.
//! - `system`: installs what comes from the system's packages.
//!
//! Each program is linked into `target/testbed`. Builds are kept in `CACHE/farshore/testbed/HASH`, where the hash is
//! of all that decides what is built, so that clones share them and a changed pin never finds an old build.

mod build;
mod find;
mod system;
mod tool;

use std::fs::File;
use std::path::{Path, PathBuf};

use self::tool::{Origin, TOOLS, Tool};
use crate::error::ChoreError;
use crate::workspace::{self, Workspace};

/// Provide the servers and programs that tests run against.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only print what there is: program, version, path.
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), ChoreError> {
    let workspace = Workspace::read()?;
    if options.list {
        list(&workspace.testbed());
        return Ok(());
    }
    ensure(&workspace)
}

/// Makes sure that every program is linked into the workspace's testbed.
pub(crate) fn ensure(workspace: &Workspace) -> Result<(), ChoreError> {
    let place = Place::of(workspace)?;
    let missing: Vec<&Tool> = TOOLS.iter().filter(|tool| !place.has(tool)).collect();
    if missing.is_empty() {
        eprintln!("testbed: all {} programs are in {}", TOOLS.len(), place.links.display());
        return Ok(());
    }
    for folder in [&place.links, &place.builds] {
        std::fs::create_dir_all(folder).map_err(ChoreError::io("making a folder", folder))?;
    }
    let _held = lock(&place.builds.with_extension("lock"))?;
    for (number, tool) in missing.iter().enumerate() {
        let path = provide(tool, &place, &format!("{} of {}", number + 1, missing.len()))?;
        link(&path, &place.link(tool))?;
    }
    Ok(())
}

/// Makes sure that a program of the system's packages is there, of whatever version.
pub(crate) fn system_program(program: &'static str, package: &'static str) -> Result<(), ChoreError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Not every user has the folders of system programs on the path.
    let mut folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    if folders.any(|folder| tool::is_program(&folder.join(program))) {
        return Ok(());
    }
    system::install(program, package)
}

/// Found, else built earlier, else built or installed now.
fn provide(tool: &Tool, place: &Place, number: &str) -> Result<PathBuf, ChoreError> {
    if let Some(found) = find::installed(tool, &place.links)? {
        eprintln!("testbed: {} is at {}", tool.name, found.display());
        return Ok(found);
    }
    match &tool.origin {
        Origin::Module(module) => {
            let built = place.builds.join(tool.name);
            if !built.is_file() {
                build::build(tool, module, &built, number)?;
            }
            Ok(built)
        }
        Origin::System { package } => {
            system::install(tool.name, package)?;
            find::installed(tool, &place.links)?
                .ok_or(ChoreError::NoSystemProgram { program: tool.name, package })
        }
    }
}

fn list(links: &Path) {
    for tool in &TOOLS {
        let link = links.join(tool.name);
        // One step only: a distribution's own links would show a name that nobody knows.
        let path = std::fs::read_link(&link);
        match (find::version(tool, &link), path) {
            (Some(version), Ok(path)) => println!("{:24} {version:10} {}", tool.name, path.display()),
            _ => println!("{:24} {:10} run cargo xtask testbed", tool.name, "missing"),
        }
    }
}

/// Two clones must not build the same thing at once.
fn lock(path: &Path) -> Result<File, ChoreError> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(ChoreError::io("opening the lock of the testbed", path))?;
    if file.try_lock().is_err() {
        eprintln!("testbed: waiting for another clone that provides it ({})", path.display());
        file.lock().map_err(ChoreError::io("locking the testbed", path))?;
    }
    Ok(file)
}

/// Replaces a link at once, so that a test never sees it absent.
fn link(program: &Path, link: &Path) -> Result<(), ChoreError> {
    let fresh = link.with_extension("new");
    if fresh.is_symlink() {
        std::fs::remove_file(&fresh).map_err(ChoreError::io("removing a link", &fresh))?;
    }
    std::os::unix::fs::symlink(program, &fresh)
        .and_then(|()| std::fs::rename(&fresh, link))
        .map_err(ChoreError::io("linking a program", link))
}

/// Where the testbed's programs are kept.
struct Place {
    /// This clone's links.
    links: PathBuf,
    /// Builds of all versions, shared by clones.
    cache: PathBuf,
    /// Builds of the versions now pinned.
    builds: PathBuf,
}

impl Place {
    fn of(workspace: &Workspace) -> Result<Self, ChoreError> {
        let cache = workspace::cache()?.join("testbed");
        let builds = cache.join(build::hash()?);
        Ok(Self { links: workspace.testbed(), cache, builds })
    }

    fn link(&self, tool: &Tool) -> PathBuf {
        self.links.join(tool.name)
    }

    /// A link to an installed program is good while that is there; one to a build only if the pins are the same.
    fn has(&self, tool: &Tool) -> bool {
        let link = self.link(tool);
        let is_current = std::fs::read_link(&link)
            .is_ok_and(|path| path.starts_with(&self.builds) || !path.starts_with(&self.cache));
        is_current && link.is_file()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(folder: &Path) -> Place {
        let cache = folder.join("cache");
        let place = Place { links: folder.join("links"), builds: cache.join("new"), cache };
        for folder in [&place.links, &place.builds, &place.cache.join("old")] {
            std::fs::create_dir_all(folder).expect("a temporary folder can be written");
        }
        place
    }

    #[test]
    fn a_build_of_other_pins_is_missing_and_an_installed_program_is_not() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let place = place(folder.path());
        let tool = &TOOLS[0];
        assert!(!place.has(tool), "nothing is linked");
        for (program, is_good) in [("cache/old/x", false), ("cache/new/x", true), ("installed", true)] {
            let program = folder.path().join(program);
            std::fs::write(&program, "").expect("a temporary file can be written");
            link(&program, &place.link(tool)).expect("it can be linked");
            assert_eq!(place.has(tool), is_good, "{}", program.display());
        }
        std::fs::remove_file(folder.path().join("installed")).expect("it is there");
        assert!(!place.has(tool), "the link leads nowhere");
    }
}
