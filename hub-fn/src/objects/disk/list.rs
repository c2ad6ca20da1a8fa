//! The keys below a folder, in the order of S3.

use std::fs;
use std::io;
use std::path::Path;

use crate::objects::key::is_part;
use crate::objects::{Key, Listed};

/// What is being looked for.
struct Wanted<'a> {
    prefix: &'a str,
    after: &'a str,
    limit: usize,
}

/// At most `limit` objects whose key starts with `prefix` and is greater than `after`.
pub(super) fn list(root: &Path, prefix: &str, after: Option<&Key>, limit: usize) -> io::Result<Vec<Listed>> {
    let above = prefix.rsplit_once('/').map_or("", |(above, _name)| above);
    let mut found = Vec::new();
    // A folder that no key can name has no keys below it, and must not be looked for on the disk.
    if !above.is_empty() && !above.split('/').all(is_part) {
        return Ok(found);
    }
    let wanted = Wanted { prefix, after: after.map_or("", Key::as_str), limit };
    let start = if above.is_empty() { String::new() } else { format!("{above}/") };
    walk(root, &start, &wanted, &mut found)?;
    Ok(found)
}

/// Adds what lies in one folder, whose keys all start with `folder` (empty, or with a `/` at its
/// end). It goes as deep as keys have parts.
fn walk(root: &Path, folder: &str, wanted: &Wanted<'_>, found: &mut Vec<Listed>) -> io::Result<()> {
    for name in names(&root.join(folder))? {
        if found.len() >= wanted.limit {
            return Ok(());
        }
        let key = format!("{folder}{name}");
        if name.ends_with('/') {
            let may_start = key.starts_with(wanted.prefix) || wanted.prefix.starts_with(&key);
            let may_follow = key.as_str() > wanted.after || wanted.after.starts_with(&key);
            if may_start && may_follow && key.len() <= Key::MOST_BYTES {
                walk(root, &key, wanted, found)?;
            }
        } else if key.starts_with(wanted.prefix)
            && key.as_str() > wanted.after
            && let Ok(key) = Key::new(key)
            && let Some(size) = size(&root.join(key.as_str()))?
        {
            found.push(Listed { key, size });
        }
    }
    Ok(())
}

/// The names in a folder that can be part of a key, sorted as keys are: a folder counts with its `/`.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if super::is_absence(&error) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Ok(mut name) = entry.file_name().into_string() else { continue };
        if !is_part(&name) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            name.push('/');
        }
        names.push(name);
    }
    names.sort_unstable();
    Ok(names)
}

/// The size of an object; `None` when it was deleted since its folder was read.
fn size(path: &Path) -> io::Result<Option<u64>> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => Ok(Some(found.len())),
        Ok(_something_else) => Ok(None),
        Err(error) if super::is_absence(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
