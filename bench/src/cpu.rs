//! What processes used, as Linux shows it (`proc(5)`).

use std::fs;
use std::path::Path;

use crate::error::BenchError;
use crate::report::float;

/// Ticks in a second, as Linux shows them to programs on every common architecture.
const TICKS: f64 = 100.0;

/// CPU seconds of a process and of its children that run, in user and in kernel mode.
///
/// # Errors
/// When there is no such process.
pub(crate) fn seconds(id: u32) -> Result<f64, BenchError> {
    let mut total = own_seconds(id)?;
    for child in children(id)? {
        total += own_seconds(child)?;
    }
    Ok(total)
}

/// CPU seconds of this process.
///
/// # Errors
/// When `/proc` is not there.
pub(crate) fn own() -> Result<f64, BenchError> {
    own_seconds(std::process::id())
}

/// The memory of a process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Resident now.
    pub(crate) resident: u64,
    /// Of that, what is backed by no file: its heap and stacks.
    pub(crate) own: u64,
    /// The most that was ever resident.
    pub(crate) peak: u64,
}

/// The memory of a process.
///
/// # Errors
/// When there is no such process.
pub(crate) fn memory(id: u32) -> Result<Memory, BenchError> {
    let text = read(&format!("/proc/{id}/status"))?;
    let bytes = |field: &str| {
        let kilobytes = text.lines().find_map(|line| line.strip_prefix(field)?.trim().strip_suffix(" kB"));
        kilobytes.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) << 10
    };
    Ok(Memory { resident: bytes("VmRSS:"), own: bytes("RssAnon:"), peak: bytes("VmHWM:") })
}

fn own_seconds(id: u32) -> Result<f64, BenchError> {
    let text = read(&format!("/proc/{id}/stat"))?;
    let ticks = ticks(&text).ok_or_else(|| BenchError::Wrong(format!("/proc/{id}/stat says {text:?}")))?;
    Ok(float(ticks) / TICKS)
}

/// Fields 14 and 15, counted after the name, which may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11);
    let (user, kernel): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + kernel)
}

fn children(id: u32) -> Result<Vec<u32>, BenchError> {
    let text = read(&format!("/proc/{id}/task/{id}/children"))?;
    Ok(text.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}

fn read(path: &str) -> Result<String, BenchError> {
    fs::read_to_string(Path::new(path)).map_err(BenchError::io(format!("reading {path}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_may_hold_anything() {
        let stat = "77 (a b) c) S 1 77 77 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 5 6 7";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("nonsense"), None);
    }
}
