//! What a site remembers of the rollouts of its services, and what somebody at the site asks of it.
//!
//! An ask is an empty file in `asks/`: whoever may write to the state folder may ask, also while an agent
//! has the folder, and nothing else is needed for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use farshore_shared::exit::chain;
use farshore_shared::names::Name;

use super::{Found, Store, StoreError, files};
use crate::rollout::Record;

/// The most bytes of one service's record.
const RECORD_LIMIT: u64 = 4 << 20;
/// How the file of an ask to try a failed revision again begins.
const RETRY: &str = "retry.";

impl Store {
    /// The records of all services.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn rollouts(&self) -> Result<BTreeMap<Name, Found<Record>>, StoreError> {
        let dir = self.rollouts_dir();
        let mut records = BTreeMap::new();
        if !dir.is_dir() {
            return Ok(records);
        }
        for file in files::list(&dir)? {
            if let Some(name) = file.strip_suffix(".json").and_then(|name| name.parse::<Name>().ok()) {
                // A disk that refuses one file refuses only what that file knows.
                let record = files::load(&dir.join(&file), RECORD_LIMIT);
                records.insert(name, record.unwrap_or_else(|error| Found::Corrupt(chain(&error))));
            }
        }
        Ok(records)
    }

    /// Replaces a service's record.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn save_rollout(&self, service: &Name, record: &Record) -> Result<(), StoreError> {
        let dir = self.rollouts_dir();
        files::make_folder(&dir)?;
        files::save(&dir.join(format!("{service}.json")), record)
    }

    /// Removes a service's record, if there is one.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn forget_rollout(&self, service: &Name) -> Result<(), StoreError> {
        files::remove(&self.rollouts_dir().join(format!("{service}.json")))
    }

    /// The services whose failed revision shall be tried again; each is given once.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn take_retries(&self) -> Result<Vec<Name>, StoreError> {
        let dir = asks(&self.dir);
        if !dir.is_dir() {
            return Ok(vec![]);
        }
        let mut services = vec![];
        for file in files::list(&dir)? {
            let Some(name) = file.strip_prefix(RETRY) else { continue };
            files::remove(&dir.join(&file))?;
            services.extend(name.parse::<Name>().ok());
        }
        Ok(services)
    }

    fn rollouts_dir(&self) -> PathBuf {
        self.dir.join("rollouts")
    }
}

/// Asks the agent that has this state folder to try a service's failed revision again. It hears of it at
/// its next pass.
///
/// # Errors
/// [`StoreError::Io`], also where there is no state folder.
pub fn ask_retry(dir: &Path, service: &Name) -> Result<(), StoreError> {
    if !dir.join("version").is_file() {
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(StoreError::Io { action: "finding a state folder", path: dir.to_owned(), source });
    }
    files::make_folder(&asks(dir))?;
    files::write(&asks(dir).join(format!("{RETRY}{service}")), b"")
}

fn asks(dir: &Path) -> PathBuf {
    dir.join("asks")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use farshore_shared::digest::Digest;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    #[test]
    fn a_record_reads_back_and_a_damaged_one_is_not_an_absent_one() {
        let temp = tempfile::tempdir().expect("a folder");
        let store = Store::open(temp.path()).expect("new");
        assert!(store.rollouts().expect("readable").is_empty());
        let record = Record::new(Digest::of(b"1"));
        store.save_rollout(&name("web"), &record).expect("written");
        store.save_rollout(&name("db"), &record).expect("written");
        fs::write(temp.path().join("rollouts/db.json"), "x").expect("damaged");
        let records = store.rollouts().expect("readable");
        assert_eq!(records[&name("web")], Found::Good(record));
        assert!(matches!(records[&name("db")], Found::Corrupt(_)));
        store.forget_rollout(&name("db")).expect("removed");
        store.forget_rollout(&name("db")).expect("it is gone already");
        assert_eq!(store.rollouts().expect("readable").len(), 1);
    }

    #[test]
    fn an_ask_is_heard_once_also_while_an_agent_has_the_folder() {
        let temp = tempfile::tempdir().expect("a folder");
        let refused = ask_retry(temp.path(), &name("web")).expect_err("it is no state folder").to_string();
        assert!(refused.contains("finding a state folder"), "{refused}");
        let store = Store::open(temp.path()).expect("new");
        assert!(store.take_retries().expect("readable").is_empty());
        ask_retry(temp.path(), &name("web")).expect("asked");
        ask_retry(temp.path(), &name("web")).expect("asked twice");
        assert_eq!(store.take_retries().expect("readable"), [name("web")]);
        assert!(store.take_retries().expect("readable").is_empty());
    }
}
