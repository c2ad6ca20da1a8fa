use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;

use super::super::super::connection::Options;
use super::super::Watches;
use super::*;
use crate::target::Coverage;

/// An API that answers each request with the next of these, and what it was asked for.
struct Api {
    watches: Watches,
    asked: mpsc::UnboundedReceiver<String>,
    _folder: tempfile::TempDir,
}

/// What is answered to a request; nothing ends the answer but the next one.
enum Answer {
    /// As a whole.
    Whole(&'static str, Value),
    /// Lines; then the end, or silence.
    Lines(Vec<Value>, Then),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    End,
    Silence,
}

impl Api {
    async fn answering(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let server = format!("http://{}", listener.local_addr().expect("an address"));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("kubeconfig");
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{"name": "a", "cluster": {"server": server}}],
            "users": [{"name": "a", "user": {}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]});
        std::fs::write(&path, kubeconfig.to_string()).expect("a file");
        let (ask, asked) = mpsc::unbounded_channel();
        tokio::spawn(serve(listener, answers, ask));
        let options = Options { quiet: Duration::from_millis(300), ..Options::default() };
        let connection = Connection::open(Some(&path), options).await.expect("a kubeconfig");
        let watches = Watches::new(connection.clone(), Discovery::new(connection));
        let kind = Kind { group: String::new(), version: "v1".into(), kind: "ConfigMap".into() };
        watches.follow(&BTreeSet::from([kind]));
        Self { watches, asked, _folder: folder }
    }

    /// The path and query of the next request, without what is the same in all.
    async fn asked(&mut self) -> String {
        let asked = self.asked.recv().await.expect("the server goes on");
        asked.replace("labelSelector=farshore.dev%2Fservice&", "").replace("allowWatchBookmarks=true&", "")
    }

    /// The same for a watch: from which version.
    async fn watched_from(&mut self) -> String {
        let asked = self.asked().await;
        assert!(asked.starts_with("/api/v1/configmaps?watch=1&timeoutSeconds="), "{asked}");
        asked.rsplit_once("resourceVersion=").expect("a version").1.to_owned()
    }

    async fn changes(&self, count: usize) -> Vec<Change> {
        let mut changes = vec![];
        while changes.len() < count {
            changes.extend(self.watches.changes().await);
        }
        changes
    }
}

/// One connection per request. When there are no answers left, what is asked is not answered.
async fn serve(listener: TcpListener, answers: Vec<Answer>, ask: mpsc::UnboundedSender<String>) {
    let mut open = vec![];
    for answer in answers {
        let (stream, _) = listener.accept().await.expect("a client");
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            stream.read_line(&mut head).await.expect("a request");
        }
        let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
        if ask.send(target).is_err() {
            return;
        }
        let (text, then) = match answer {
            Answer::Whole(status, body) => {
                let body = body.to_string();
                let head = format!(
                    "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                (head + &body, Then::End)
            }
            Answer::Lines(lines, then) => {
                let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
                let head = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_owned();
                (head + &lines, then)
            }
        };
        stream.get_mut().write_all(text.as_bytes()).await.expect("the client reads");
        if then == Then::Silence {
            open.push(stream);
        }
    }
    while let Ok((stream, _)) = listener.accept().await {
        open.push(BufReader::new(stream));
    }
}

fn kinds() -> Answer {
    let resource =
        json!({"name": "configmaps", "kind": "ConfigMap", "namespaced": true, "verbs": ["list", "watch"]});
    Answer::Whole("200 OK", json!({"resources": [resource]}))
}

fn page(version: &str) -> Answer {
    Answer::Whole("200 OK", json!({"metadata": {"resourceVersion": version}, "items": []}))
}

fn changed(version: &str) -> Value {
    let metadata = json!({"name": "a", "namespace": "shop", "uid": "1", "resourceVersion": version});
    json!({"type": "MODIFIED", "object": {"metadata": metadata}})
}

fn bookmark(version: &str) -> Value {
    json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}})
}

fn expired() -> Value {
    json!({"type": "ERROR", "object": {"metadata": {}, "code": 410, "reason": "Expired", "message": "too old"}})
}

fn is_missed(change: &Change) -> bool {
    matches!(change, Change::Missed { .. })
}

#[tokio::test]
async fn a_watch_goes_on_from_the_last_change_or_bookmark_and_asks_for_no_list() {
    let mut api = Api::answering(vec![
        kinds(),
        page("5"),
        Answer::Lines(vec![changed("7")], Then::End),
        Answer::Lines(vec![bookmark("20")], Then::End),
        Answer::Lines(vec![changed("21")], Then::Silence),
    ])
    .await;
    assert_eq!(api.asked().await, "/api/v1");
    assert_eq!(api.asked().await, "/api/v1/configmaps?limit=1");
    for from in ["5", "7", "20"] {
        assert_eq!(api.watched_from().await, from);
    }
    let changes = api.changes(3).await;
    assert!(is_missed(&changes[0]), "what was before it began is not known");
    assert!(changes[1..].iter().all(|change| matches!(change, Change::Seen { .. })), "{changes:?}");
}

#[tokio::test]
async fn a_place_that_is_too_old_costs_one_short_list_and_word_that_something_was_missed() {
    let gone = json!({"kind": "Status", "code": 410, "reason": "Gone", "message": "too old"});
    let mut api = Api::answering(vec![
        kinds(),
        page("5"),
        Answer::Lines(vec![changed("6"), expired()], Then::End),
        page("50"),
        Answer::Whole("410 Gone", gone),
        page("60"),
        Answer::Lines(vec![changed("61")], Then::Silence),
    ])
    .await;
    api.asked().await;
    for from in ["5", "50", "60"] {
        assert_eq!(api.asked().await, "/api/v1/configmaps?limit=1");
        assert_eq!(api.watched_from().await, from);
    }
    let missed = api.changes(5).await.iter().filter(|change| is_missed(change)).count();
    assert_eq!(missed, 3);
}

#[tokio::test]
async fn a_store_that_was_restored_is_followed_from_where_it_is() {
    let ahead = json!({"kind": "Status", "code": 504, "reason": "Timeout", "message": "Too large resource version: 9, current: 3",
        "details": {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}});
    let mut api = Api::answering(vec![
        kinds(),
        page("9"),
        Answer::Whole("504 Gateway Timeout", ahead),
        page("3"),
        Answer::Lines(vec![], Then::Silence),
    ])
    .await;
    for _ in 0..3 {
        api.asked().await;
    }
    assert_eq!(api.asked().await, "/api/v1/configmaps?limit=1");
    assert_eq!(api.watched_from().await, "3");
}

#[tokio::test]
async fn a_watch_that_is_silent_for_too_long_is_begun_again_where_it_was() {
    let mut api = Api::answering(vec![
        kinds(),
        page("5"),
        Answer::Lines(vec![bookmark("8")], Then::Silence),
        Answer::Lines(vec![changed("9")], Then::Silence),
    ])
    .await;
    api.asked().await;
    api.asked().await;
    assert_eq!(api.watched_from().await, "5");
    assert_eq!(api.watched_from().await, "8");
    let changes = api.changes(2).await;
    assert_eq!(changes.iter().filter(|change| is_missed(change)).count(), 1);
}

#[tokio::test]
async fn who_may_not_watch_is_told_which_rule_is_missing() {
    let denied = json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "cannot list"});
    let mut api = Api::answering(vec![kinds(), Answer::Whole("403 Forbidden", denied)]).await;
    api.asked().await;
    api.asked().await;
    let coverage = async {
        loop {
            match api.watches.coverage() {
                Coverage { blind, watched: 0, .. } if !blind.is_empty() => return blind,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    let blind = tokio::time::timeout(Duration::from_secs(20), coverage).await.expect("it is told");
    assert!(
        blind[0].contains(r#"{apiGroups: [""], resources: [configmaps], verbs: [list, watch]}"#),
        "{blind:?}"
    );
}
