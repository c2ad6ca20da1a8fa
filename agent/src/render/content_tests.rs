use std::io::Write as _;

use super::*;

/// A tar made block by block, so that it can be wrong in every way.
#[derive(Default)]
struct Forge(Vec<u8>);

impl Forge {
    fn entry(mut self, path: &[u8], kind: EntryType, data: &[u8]) -> Self {
        let header = header(path, kind, data.len() as u64);
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(BLOCK), 0);
        self
    }

    fn file(self, path: &str, data: &[u8]) -> Self {
        self.entry(path.as_bytes(), EntryType::Regular, data)
    }

    fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 2 * BLOCK, 0);
        self.0
    }
}

fn header(path: &[u8], kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..path.len()].copy_from_slice(path);
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o644);
    header.set_cksum();
    header
}

fn signed(tar: &[u8]) -> (Vec<u8>, Artifact) {
    let blob = zstd::bulk::compress(tar, 3).expect("memory to memory");
    let artifact = artifact(&blob, tar);
    (blob, artifact)
}

fn artifact(blob: &[u8], tar: &[u8]) -> Artifact {
    Artifact {
        digest: Digest::of(blob),
        size: blob.len() as u64,
        tar_digest: Digest::of(tar),
        tar_size: tar.len() as u64,
    }
}

fn open(tar: &[u8]) -> Result<Content, ContentError> {
    let (blob, artifact) = signed(tar);
    unpack(&blob, &artifact, &Limits::default())
}

fn fault(tar: &[u8]) -> TarFault {
    match open(tar) {
        Err(ContentError::Tar { fault, .. }) => fault,
        other => panic!("expected a fault in the tar, got {other:?}"),
    }
}

#[test]
fn files_come_out_by_their_path() {
    let content =
        open(&Forge::default().file("a/b.yaml", b"b").file("a.yaml", b"a").end()).expect("a good tar");
    let paths: Vec<_> = content.iter().map(|(path, bytes)| (path, bytes.as_ref())).collect();
    assert_eq!(paths, [("a.yaml", b"a".as_slice()), ("a/b.yaml", b"b")]);
    assert_eq!(content.below("a").map(|(path, _)| path).collect::<Vec<_>>(), ["a/b.yaml"]);
    assert_eq!(content.below("a.yaml").count(), 1, "a file is below itself");
    assert_eq!(content.below("").count(), 2);
    assert_eq!(content.below("./").count(), 2);
}

#[test]
fn a_long_path_comes_from_its_extended_header() {
    let long = format!("{}/x.yaml", "d".repeat(200));
    for (kind, data) in [
        (EntryType::GNULongName, format!("{long}\0")),
        (EntryType::XHeader, format!("{} path={long}\n", long.len() + 10)),
    ] {
        let tar = Forge::default().entry(b"long", kind, data.as_bytes()).file("short", b"x").end();
        let content = open(&tar).expect("a long path");
        assert_eq!(content.iter().map(|(path, _)| path).collect::<Vec<_>>(), [long.as_str()]);
    }
}

#[test]
fn a_tar_of_the_tar_crate_is_read() {
    let mut builder = tar::Builder::new(Vec::new());
    let long = format!("{}/x.yaml", "e".repeat(150));
    for path in ["a.yaml", long.as_str()] {
        let mut header = Header::new_gnu();
        header.set_size(1);
        builder.append_data(&mut header, path, b"x".as_slice()).expect("into memory");
    }
    let content = open(&builder.into_inner().expect("into memory")).expect("a good tar");
    assert_eq!(content.iter().map(|(path, _)| path).collect::<Vec<_>>(), ["a.yaml", long.as_str()]);
}

#[test]
fn a_path_that_leads_elsewhere_is_refused() {
    for path in ["../x", "..", "a/..", "a/../b", "/etc/passwd", "a\\b", "a//b", "./a", "a/.", "a/"] {
        let refused = fault(&Forge::default().file(path, b"x").end());
        assert!(matches!(refused, TarFault::Path(_)), "{path}: {refused}");
    }
    let not_text = Forge::default().entry(b"a\xff", EntryType::Regular, b"").end();
    assert_eq!(fault(&not_text), TarFault::Path("not UTF-8"));
    let nul = Forge::default().entry(b"l", EntryType::GNULongName, b"a\0b\0").file("x", b"").end();
    assert_eq!(fault(&nul), TarFault::Path("a backslash or a NUL"));
    let long = "x".repeat(4096);
    let long = Forge::default().entry(b"l", EntryType::GNULongName, long.as_bytes()).file("x", b"").end();
    assert_eq!(fault(&long), TarFault::LongPath(4096, 1024));
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let kinds = [
        EntryType::Symlink,
        EntryType::Link,
        EntryType::Char,
        EntryType::Block,
        EntryType::Fifo,
        EntryType::Directory,
        EntryType::GNUSparse,
        EntryType::GNULongLink,
        EntryType::XGlobalHeader,
        EntryType::Continuous,
    ];
    for kind in kinds {
        let refused = fault(&Forge::default().entry(b"a", kind, b"").end());
        assert_eq!(refused, TarFault::Kind(char::from(kind.as_byte())));
    }
}

#[test]
fn two_entries_cannot_share_a_path() {
    assert_eq!(fault(&Forge::default().file("a", b"1").file("a", b"2").end()), TarFault::Duplicate);
    assert_eq!(fault(&Forge::default().file("a/b", b"1").file("a", b"2").end()), TarFault::Duplicate);
    let both = Forge::default().file("a", b"").file("A", b"").end();
    assert_eq!(open(&both).expect("names that differ in case are two").iter().count(), 2);
}

#[test]
fn an_extended_header_cannot_change_a_size() {
    let tar = Forge::default().entry(b"p", EntryType::XHeader, b"12 size=999\n").file("x", b"x").end();
    assert_eq!(fault(&tar), TarFault::Extension("size".into()));
}

#[test]
fn a_header_that_lies_is_refused() {
    let mut tar = header(b"a", EntryType::Regular, 1 << 40).as_bytes().to_vec();
    tar.resize(4 * BLOCK, 0);
    assert_eq!(fault(&tar), TarFault::Size(1 << 40));
    let mut broken = Forge::default().file("a", b"x").end();
    broken[0] = b'b';
    assert_eq!(fault(&broken), TarFault::Header, "its checksum does not fit");
}

#[test]
fn a_tar_that_is_cut_or_goes_on_is_refused() {
    let whole = Forge::default().file("a", b"x").end();
    for length in [BLOCK, 2 * BLOCK, 2 * BLOCK + 100, whole.len() - BLOCK] {
        let cut = fault(&whole[..length]);
        assert!(matches!(cut, TarFault::Truncated | TarFault::Size(1)), "cut at {length}: {cut}");
    }
    let mut more = whole.clone();
    more.extend_from_slice(&Forge::default().file("b", b"x").end());
    assert_eq!(fault(&more), TarFault::Trailing);
    let mut padded = whole;
    padded.resize(10_240, 0);
    assert!(open(&padded).is_ok(), "zeros up to a whole record are no content");
}

#[test]
fn a_million_empty_files_stop_at_the_limit() {
    let tar = (0..20).fold(Forge::default(), |forge, n| forge.file(&format!("f{n}"), b"")).end();
    let (blob, artifact) = signed(&tar);
    let limits = Limits { entries: 10, ..Limits::default() };
    let refused = unpack(&blob, &artifact, &limits).expect_err("too many").to_string();
    assert!(refused.contains("more than 10 entries") && refused.contains("\"f10\""), "{refused}");
}

#[test]
fn bytes_that_were_not_signed_for_are_refused_before_they_are_decompressed() {
    let (blob, artifact) = signed(&Forge::default().file("a", b"x").end());
    let mut flipped = blob.clone();
    flipped[blob.len() / 2] ^= 1;
    let refused = unpack(&flipped, &artifact, &Limits::default()).expect_err("a flipped bit").to_string();
    assert!(refused.contains("digest of the blob"), "{refused}");
    let refused = unpack(&blob[1..], &artifact, &Limits::default()).expect_err("cut").to_string();
    assert!(refused.contains("size of the blob"), "{refused}");
    let huge = Artifact { tar_size: TAR_LIMIT + 1, ..artifact };
    assert!(matches!(unpack(&blob, &huge, &Limits::default()), Err(ContentError::TooLarge { .. })));
}

#[test]
fn a_bomb_stops_at_its_declared_size() {
    let blob = zstd::bulk::compress(&vec![0; 64 << 20], 3).expect("memory to memory");
    let mut artifact = artifact(&blob, b"");
    artifact.tar_size = 1024;
    let refused = unpack(&blob, &artifact, &Limits::default()).expect_err("a bomb").to_string();
    assert!(refused.contains("size of the tar") && refused.contains("1025"), "{refused}");
}

#[test]
fn a_window_beyond_the_limit_is_refused() {
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).expect("an encoder");
    encoder.window_log(28).expect("a window that zstd knows");
    encoder.write_all(b"x").expect("into memory");
    let blob = encoder.finish().expect("into memory");
    let artifact = artifact(&blob, b"x");
    assert!(matches!(unpack(&blob, &artifact, &Limits::default()), Err(ContentError::Zstd { .. })));
}

#[test]
fn a_second_frame_or_half_a_frame_is_refused() {
    let tar = Forge::default().file("a", b"x").end();
    let (blob, _) = signed(&tar);
    let twice = [blob.as_slice(), &blob].concat();
    let refused = unpack(&twice, &artifact(&twice, &tar), &Limits::default());
    assert!(matches!(refused, Err(ContentError::Concatenated { .. })));
    let half = &blob[..blob.len() - 2];
    assert!(matches!(
        unpack(half, &artifact(half, &tar), &Limits::default()),
        Err(ContentError::Zstd { .. })
    ));
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..3000)) {
        let _ = open(&bytes);
        let mut tar = Forge::default().file("a", b"x").end();
        for (at, byte) in bytes.iter().enumerate().take(40) {
            tar[(at * 97 + usize::from(*byte)) % 1536] ^= byte;
        }
        let _ = open(&tar);
    }
}
