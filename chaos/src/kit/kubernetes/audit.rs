//! What the API server was asked for, from its audit log.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use serde_json::{Value, json};

use crate::kit::KitError;

/// A place in the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditMark(u64);

/// One request of a client to the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiRequest {
    /// `create`, `update`, `patch`, `delete` or `deletecollection` of a write; `get`, `list` or `watch` of a read.
    pub verb: String,
    /// The path and query asked for.
    pub uri: String,
    /// The user who asked, before any impersonation.
    pub user: String,
    /// The client program, as it calls itself.
    pub user_agent: String,
}

/// Who keeps the cluster itself going.
const OWN_USERS: [&str; 2] = ["system:apiserver", super::credentials::CONTROLLERS_USER];

/// A request is logged when it arrives, and not again when it was answered: that would come after the answer, and a
/// test that reads the log at once could miss it.
pub(super) fn policy() -> String {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["ResponseStarted", "ResponseComplete", "Panic"],
        "rules": [
            { "level": "None", "users": OWN_USERS },
            { "level": "None", "resources": [
                { "group": "authentication.k8s.io" }, { "group": "authorization.k8s.io" }
            ] },
            { "level": "Metadata" },
        ],
    })
    .to_string()
}

pub(super) fn mark(log: &Path) -> Result<AuditMark, KitError> {
    let length = std::fs::metadata(log).map_err(KitError::io("reading the audit log", log))?.len();
    Ok(AuditMark(length))
}

/// What reads, and changes nothing.
const READS: [&str; 3] = ["get", "list", "watch"];

pub(super) fn writes_since(log: &Path, mark: AuditMark) -> Result<Vec<ApiRequest>, KitError> {
    let mut requests = requests_since(log, mark)?;
    requests.retain(|request| !READS.contains(&request.verb.as_str()));
    Ok(requests)
}

pub(super) fn reads_since(log: &Path, mark: AuditMark) -> Result<Vec<ApiRequest>, KitError> {
    let mut requests = requests_since(log, mark)?;
    requests.retain(|request| READS.contains(&request.verb.as_str()));
    Ok(requests)
}

/// The API server's lines are longer than what a file grows by at once, so both the mark and the end may be in the
/// middle of one: such a line at the mark is of a request before it, and such a line at the end has yet to come.
fn requests_since(log: &Path, mark: AuditMark) -> Result<Vec<ApiRequest>, KitError> {
    let mut text = Vec::new();
    let mut file = std::fs::File::open(log).map_err(KitError::io("reading the audit log", log))?;
    file.seek(SeekFrom::Start(mark.0.saturating_sub(1)))
        .and_then(|_place| file.read_to_end(&mut text))
        .map_err(KitError::io("reading the audit log", log))?;
    let mut lines = text.split_inclusive(|byte| *byte == b'\n');
    if mark.0 > 0 {
        lines.next();
    }
    lines.filter_map(|line| line.strip_suffix(b"\n")).map(request).collect()
}

fn request(line: &[u8]) -> Result<ApiRequest, KitError> {
    let event: Value = serde_json::from_slice(line).map_err(|error| KitError::Answer {
        what: format!("the audit log for an event ({error})"),
        answer: String::from_utf8_lossy(line).into_owned(),
    })?;
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned();
    Ok(ApiRequest {
        verb: text("/verb"),
        uri: text("/requestURI"),
        user: text("/user/username"),
        user_agent: text("/userAgent"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_follows_the_mark_is_reported() {
        let log = tempfile::NamedTempFile::new().expect("a temporary file");
        let event = |uri: &str| format!("{}\n", json!({ "verb": "patch", "requestURI": uri }));
        std::fs::write(log.path(), event("/old")).expect("the file can be written");
        let mark = mark(log.path()).expect("the file is there");
        std::fs::write(log.path(), event("/old") + &event("/new")).expect("the file can be written");
        let writes = writes_since(log.path(), mark).expect("the events are well formed");
        assert_eq!(writes.iter().map(|write| write.uri.as_str()).collect::<Vec<_>>(), ["/new"]);
        assert_eq!(reads_since(log.path(), mark).expect("the events are well formed"), []);
    }
    #[test]
    fn a_line_that_is_being_written_belongs_before_the_mark_and_is_not_read_before_its_end() {
        let log = tempfile::NamedTempFile::new().expect("a temporary file");
        let write = |text: &str| std::fs::write(log.path(), text).expect("the file can be written");
        let uris = |mark| -> Vec<String> {
            let writes = writes_since(log.path(), mark).expect("the whole lines are well formed");
            writes.into_iter().map(|write| write.uri).collect()
        };
        let event = |uri: &str| format!("{}\n", json!({ "verb": "patch", "requestURI": uri }));
        let (begun, rest) = (&event("/begun")[..9], &event("/begun")[9..].to_owned());
        write(begun);
        let start = AuditMark(0);
        let mark = mark(log.path()).expect("the file is there");
        assert_eq!((uris(start), uris(mark)), (vec![], vec![]));
        write(&format!("{begun}{rest}{}{begun}", event("/new")));
        assert_eq!(
            (uris(start), uris(mark)),
            (vec!["/begun".to_owned(), "/new".to_owned()], vec!["/new".to_owned()])
        );
    }
}
