//! Whether bytes are anywhere in the memory of a process, or in its files.
//!
//! Memory is read as Linux shows it (`proc(5)`: `/proc/PID/maps` and `/proc/PID/mem`), which a process may do to those
//! that it started.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::{KitError, Process};

/// How much is read at once.
const PIECE: usize = 1 << 20;

/// Byte strings to look for, each under a name.
#[derive(Debug, Clone, Default)]
pub struct Search {
    needles: Vec<(String, Vec<u8>)>,
}

/// What a [`Search`] has seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Searched {
    /// How many bytes were looked at.
    pub bytes: u64,
    /// The names of what was found, in the order in which they were given.
    pub found: Vec<String>,
}

impl Search {
    /// Looks for these bytes too. Several may bear the same name: each is one form of the same thing.
    #[must_use]
    pub fn with(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.needles.push((name.to_owned(), bytes.into()));
        self
    }

    /// Searches all memory of a process that can be read, while it is paused.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn memory(&self, process: &mut Process) -> Result<Searched, KitError> {
        process.pause()?;
        let searched = self.memory_of(process.id());
        process.resume()?;
        searched
    }

    /// Searches all files below a folder.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn folder(&self, folder: &Path) -> Result<Searched, KitError> {
        let mut found = Findings::new(self);
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = std::fs::read_dir(&folder).map_err(KitError::io("reading a folder", &folder))?;
            for entry in entries {
                let path = entry.map_err(KitError::io("reading a folder", &folder))?.path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let bytes = std::fs::read(&path).map_err(KitError::io("reading a file", &path))?;
                    found.look(&bytes);
                }
            }
        }
        Ok(found.into_searched())
    }

    fn memory_of(&self, process: u32) -> Result<Searched, KitError> {
        let folder = PathBuf::from(format!("/proc/{process}"));
        let (maps, path) = (folder.join("maps"), folder.join("mem"));
        let maps =
            std::fs::read_to_string(&maps).map_err(KitError::io("reading the map of a memory", maps))?;
        let memory = File::open(&path).map_err(KitError::io("opening a memory", &path))?;
        let mut found = Findings::new(self);
        for (start, end) in maps.lines().filter_map(readable_region) {
            found.look_at(&memory, start, end).map_err(KitError::io("reading a memory", &path))?;
        }
        Ok(found.into_searched())
    }

    /// The longest needle, of which a piece may hold all but one byte.
    fn overlap(&self) -> usize {
        self.needles.iter().map(|(_name, bytes)| bytes.len()).max().unwrap_or(1) - 1
    }
}

/// What has been seen so far.
struct Findings<'a> {
    search: &'a Search,
    /// Whether a needle begins with this byte: one look at the table for most bytes of a memory.
    begins: [bool; 256],
    bytes: u64,
    found: Vec<bool>,
}

impl<'a> Findings<'a> {
    fn new(search: &'a Search) -> Self {
        let mut begins = [false; 256];
        for first in search.needles.iter().filter_map(|(_name, bytes)| bytes.first()) {
            begins[usize::from(*first)] = true;
        }
        Self { search, begins, bytes: 0, found: vec![false; search.needles.len()] }
    }

    /// Looks at one region, piece by piece, so that a needle across two pieces is seen.
    fn look_at(&mut self, memory: &File, start: u64, end: u64) -> io::Result<()> {
        let overlap = self.search.overlap();
        let mut buffer = vec![0; PIECE + overlap];
        let (mut kept, mut at) = (0, start);
        while at < end {
            let room = PIECE.min(usize::try_from(end - at).unwrap_or(PIECE));
            let length = match memory.read_at(&mut buffer[kept..kept + room], at) {
                // Pages of the kernel (vvar), and pages behind the end of a mapped file.
                Ok(0) => return Ok(()),
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
                Ok(length) => length,
            };
            self.look(&buffer[..kept + length]);
            self.bytes -= kept as u64;
            let next = overlap.min(kept + length);
            buffer.copy_within(kept + length - next..kept + length, 0);
            (kept, at) = (next, at + length as u64);
        }
        Ok(())
    }

    fn look(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        for (place, first) in bytes.iter().enumerate() {
            if !self.begins[usize::from(*first)] {
                continue;
            }
            for (found, (_name, needle)) in self.found.iter_mut().zip(&self.search.needles) {
                *found |= bytes[place..].starts_with(needle);
            }
        }
    }

    fn into_searched(self) -> Searched {
        let named = self.search.needles.iter().zip(&self.found).filter(|(_needle, found)| **found);
        let mut found: Vec<String> = named.map(|((name, _bytes), _found)| name.clone()).collect();
        found.dedup();
        Searched { bytes: self.bytes, found }
    }
}

/// `START-END PERMISSIONS ...`, where the first permission is to read.
fn readable_region(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let is_readable = fields.next()?.starts_with('r');
    // Not a memory of the process, and at an address that no file offset reaches.
    let is_real = !line.ends_with("[vsyscall]");
    let region = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    (is_readable && is_real).then_some(region)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_across_two_pieces_are_found_and_others_are_not() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let mut bytes = vec![b'.'; 2 * PIECE];
        bytes[PIECE - 3..PIECE + 3].copy_from_slice(b"secret");
        std::fs::write(file.path(), &bytes).expect("the file can be written");
        let search = Search::default().with("there", *b"secret").with("absent", *b"public");
        let mut found = Findings::new(&search);
        let memory = File::open(file.path()).expect("the file is there");
        found.look_at(&memory, 0, bytes.len() as u64).expect("it can be read");
        let searched = found.into_searched();
        assert_eq!(searched, Searched { bytes: bytes.len() as u64, found: vec!["there".to_owned()] });
    }

    #[test]
    fn only_regions_that_can_be_read_are() {
        assert_eq!(readable_region("1000-2000 rw-p 00000000 00:00 0 [heap]"), Some((0x1000, 0x2000)));
        assert_eq!(readable_region("1000-2000 ---p 00000000 00:00 0"), None);
        assert_eq!(readable_region("ffffffffff600000-ffffffffff601000 r-xp 0 00:00 0 [vsyscall]"), None);
    }
}
