//! What services rendered to, so that an object can be put back without rendering everything again.
//!
//! One file per service: a line that says from what it was made, then one line per manifest, each below
//! its own checksum. It is read line by line, so that one object of ten thousand costs one object's
//! memory. Whatever is wrong with it, it can be made again from the artifact; it holds nothing that
//! the artifact beside it does not, and like everything here it is readable by its owner only.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, BufWriter, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use farshore_shared::digest::Digest;
use farshore_shared::names::Name;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Found, Store, StoreError, files};
use crate::object::{Manifest, ObjectKey};
use crate::terms::Terms;

/// The longest line: the largest object that a render may have, and what stands around it.
const LINE_LIMIT: u64 = 4 << 20;
/// How many characters of a checksum and a space stand before each line's JSON.
const PREFIX: usize = 65;

/// From what a render was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Made {
    /// The signed revision.
    pub revision: Digest,
    /// Everything else that decides what comes out.
    pub inputs: Digest,
    /// How many manifests there are.
    pub count: usize,
}

#[derive(Serialize, Deserialize)]
struct Line<'a> {
    key: std::borrow::Cow<'a, ObjectKey>,
    version: std::borrow::Cow<'a, str>,
    origin: std::borrow::Cow<'a, str>,
    body: std::borrow::Cow<'a, Value>,
}

/// The rendered manifests of all services.
#[derive(Debug, Clone)]
pub struct Renders {
    dir: PathBuf,
}

impl Store {
    /// What services rendered to.
    #[must_use]
    pub fn renders(&self) -> Renders {
        Renders { dir: self.dir.join("rendered") }
    }
}

impl Renders {
    /// From what a service's render was made, where there is one.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn made(&self, service: &Name) -> Result<Found<Made>, StoreError> {
        let path = self.path(service);
        match Reader::open(&path)? {
            None => Ok(Found::Absent),
            Some(mut reader) => reader.line(),
        }
    }

    /// Keeps a complete render. It is whole or not there after a power cut.
    ///
    /// # Errors
    /// [`StoreError::Io`], such as a full disk; then there is none.
    pub fn save(&self, service: &Name, made: Made, manifests: &[Manifest]) -> Result<(), StoreError> {
        let path = self.path(service);
        files::make_folder(&self.dir)?;
        let temporary = self.dir.join(format!(".{service}.new"));
        let written = write(&temporary, made, manifests);
        if let Err(source) = written {
            // What was half written is of no use; if even this fails, the next write truncates it.
            drop(std::fs::remove_file(&temporary));
            files::remove(&path)?;
            return Err(StoreError::Io { action: "writing a render", path, source });
        }
        files::publish(&temporary, &path)
    }

    /// The manifests of a service with these keys, or all of them.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn pick(
        &self,
        service: &Name,
        wanted: Option<&BTreeSet<ObjectKey>>,
    ) -> Result<Found<Vec<Manifest>>, StoreError> {
        let path = self.path(service);
        let Some(mut reader) = Reader::open(&path)? else { return Ok(Found::Absent) };
        let made: Made = match reader.line()? {
            Found::Good(made) => made,
            Found::Absent => return Ok(Found::Corrupt(reader.cut())),
            Found::Corrupt(why) => return Ok(Found::Corrupt(why)),
        };
        let mut picked = Vec::with_capacity(wanted.map_or(made.count, BTreeSet::len).min(made.count));
        for _ in 0..made.count {
            match reader.line::<Line<'_>>()? {
                Found::Good(Line { key, version, origin, body }) => {
                    if wanted.is_none_or(|wanted| wanted.contains(&*key)) {
                        let (key, body) = (key.into_owned(), body.into_owned());
                        let (version, origin) = (version.into(), origin.into());
                        picked.push(Manifest { key, version, body, origin, terms: Terms::default() });
                    }
                }
                Found::Absent => return Ok(Found::Corrupt(reader.cut())),
                Found::Corrupt(why) => return Ok(Found::Corrupt(why)),
            }
        }
        Ok(Found::Good(picked))
    }

    /// Removes what a service rendered to.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn remove(&self, service: &Name) -> Result<(), StoreError> {
        files::remove(&self.path(service))
    }

    fn path(&self, service: &Name) -> PathBuf {
        self.dir.join(service.as_str())
    }
}

fn write(path: &Path, made: Made, manifests: &[Manifest]) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let mut file = BufWriter::new(file);
    put(&mut file, &made)?;
    for Manifest { key, version, body, origin, .. } in manifests {
        use std::borrow::Cow::Borrowed;
        let (key, version) = (Borrowed(key), Borrowed(version.as_str()));
        put(&mut file, &Line { key, version, origin: Borrowed(origin), body: Borrowed(body) })?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

fn put(file: &mut impl io::Write, value: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_vec(value)?;
    file.write_all(format!("{} ", Digest::of(&json)).as_bytes())?;
    file.write_all(&json)?;
    file.write_all(b"\n")
}

struct Reader<'a> {
    path: &'a Path,
    file: BufReader<File>,
    line: Vec<u8>,
}

impl<'a> Reader<'a> {
    fn open(path: &'a Path) -> Result<Option<Self>, StoreError> {
        match File::open(path) {
            Ok(file) => Ok(Some(Self { path, file: BufReader::new(file), line: Vec::new() })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StoreError::Io { action: "reading a render", path: path.to_owned(), source }),
        }
    }

    /// The next line; absent at the end of the file.
    fn line<T: DeserializeOwned>(&mut self) -> Result<Found<T>, StoreError> {
        self.line.clear();
        let read = (&mut self.file).take(LINE_LIMIT).read_until(b'\n', &mut self.line);
        let read = read.map_err(|source| StoreError::Io {
            action: "reading a render",
            path: self.path.to_owned(),
            source,
        })?;
        if read == 0 {
            return Ok(Found::Absent);
        }
        let Some((b'\n', line)) = self.line.split_last() else { return Ok(Found::Corrupt(self.cut())) };
        let (sum, json) = line.split_at(PREFIX.min(line.len()));
        if sum != format!("{} ", Digest::of(json)).as_bytes() {
            return Ok(Found::Corrupt(format!("{} does not match its checksum", self.path.display())));
        }
        Ok(match serde_json::from_slice(json) {
            Ok(value) => Found::Good(value),
            Err(error) => Found::Corrupt(format!("{} cannot be read: {error}", self.path.display())),
        })
    }

    fn cut(&self) -> String {
        format!("{} was cut", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;

    fn manifest(name: &str) -> Manifest {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "é\n"}});
        Manifest::read(body, format!("{name}.yaml (document 1)")).expect("a manifest")
    }

    fn made(count: usize) -> Made {
        Made { revision: Digest::of(b"r"), inputs: Digest::of(b"i"), count }
    }

    struct Case {
        temp: tempfile::TempDir,
        renders: Renders,
        web: Name,
        manifests: Vec<Manifest>,
    }

    impl Case {
        fn new() -> Self {
            let temp = tempfile::tempdir().expect("a folder");
            let renders = Store::open(temp.path()).expect("new").renders();
            let manifests: Vec<_> = ["a", "b", "c"].map(manifest).into();
            let web: Name = "web".parse().expect("a name");
            renders.save(&web, made(3), &manifests).expect("written");
            Self { temp, renders, web, manifests }
        }
    }

    #[test]
    fn manifests_come_back_as_they_were_all_or_some() {
        let Case { temp: _temp, renders, web, manifests } = Case::new();
        assert_eq!(renders.made(&web).expect("readable"), Found::Good(made(3)));
        assert_eq!(renders.pick(&web, None).expect("readable"), Found::Good(manifests.clone()));
        let wanted = BTreeSet::from([manifests[1].key.clone(), manifest("x").key]);
        assert_eq!(
            renders.pick(&web, Some(&wanted)).expect("readable"),
            Found::Good(vec![manifests[1].clone()])
        );
        renders.remove(&web).expect("removed");
        assert_eq!(renders.made(&web).expect("readable"), Found::Absent);
        assert_eq!(renders.pick(&web, None).expect("readable"), Found::Absent);
    }

    #[test]
    fn a_cut_or_flipped_render_is_corrupt() {
        let Case { temp, renders, web, manifests: _ } = Case::new();
        let path = temp.path().join("rendered/web");
        let whole = fs::read(&path).expect("there");
        for at in 0..whole.len() {
            fs::write(&path, &whole[..at]).expect("written");
            let cut = renders.pick(&web, None).expect("readable");
            assert!(matches!(cut, Found::Corrupt(_)), "cut at {at}: {cut:?}");
            let mut flipped = whole.clone();
            flipped[at] ^= 4;
            fs::write(&path, &flipped).expect("written");
            let flipped = renders.pick(&web, None).expect("readable");
            assert!(matches!(flipped, Found::Corrupt(_)), "flipped at {at}: {flipped:?}");
        }
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing_old_behind() {
        let Case { temp, renders, web, manifests } = Case::new();
        std::os::unix::fs::symlink("/dev/full", temp.path().join("rendered/.web.new")).expect("linked");
        let refused = renders.save(&web, made(3), &manifests).expect_err("no space").to_string();
        assert!(refused.contains("rendered/web"), "{refused}");
        assert_eq!(renders.made(&web).expect("readable"), Found::Absent);
    }
}
