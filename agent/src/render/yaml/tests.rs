use proptest::prelude::*;
use serde_json::json;

use super::*;

/// What `kubectl patch --local -o json` (1.32.4) made of each scalar or flow node: regenerate the right
/// column with it when in doubt.
const KUBECTL: &str = include_str!("kubectl.tsv");

fn one(text: &str) -> Result<Value, YamlError> {
    let mut documents = read(text.as_bytes());
    assert!(documents.len() <= 1, "one document: {text:?} gave {documents:?}");
    documents.pop().map_or(Ok(Value::Null), |(_, document)| document)
}

fn fault(text: &str) -> Fault {
    match one(text) {
        Err(YamlError::Refused { fault, .. }) => fault,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn every_scalar_means_what_it_means_to_kubectl() {
    let mut wrong = Vec::new();
    for line in KUBECTL.lines() {
        let (text, expected) = line.split_once('\t').expect("two columns");
        let found = one(&format!("kind: Foo\ndata: {text}\n")).map(|body| body["data"].clone());
        let expected: Option<Value> =
            (expected != "error").then(|| serde_json::from_str(expected).expect("JSON"));
        // Floats are compared as numbers: the reader of the table may be off by the last bit.
        let alike = match (&found, &expected) {
            (Ok(found), Some(expected)) => {
                found == expected
                    || (found.as_f64().zip(expected.as_f64()).filter(|_| found.is_f64()))
                        .is_some_and(|(a, b)| (a - b).abs() <= b.abs() * 4.0 * f64::EPSILON)
            }
            (Err(_), None) => true,
            _ => false,
        };
        if !alike {
            wrong.push(format!("{text}: {found:?}, kubectl: {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn documents_are_split_as_kubectl_splits_them() {
    let text = "# nothing\n---\na: 1\n--- # comment\n\n---\nb: [\n---\nc: |\n  x\n  ---\n  y\n---\n";
    let documents = read(text.as_bytes());
    let shown: Vec<_> = documents.iter().map(|(_, document)| document.as_ref().ok()).collect();
    assert_eq!(shown, [Some(&json!({"a": 1})), None, Some(&json!({"c": "x\n---\ny\n"}))]);
}

#[test]
fn documents_that_kubectl_would_drop_are_read() {
    let documents = read(b"a: 1\n...\n---\nb: 2\n--- {c: 3}\n");
    let values: Vec<_> = documents.into_iter().map(|(_, document)| document.expect("good")).collect();
    assert_eq!(values, [json!({"a": 1}), json!({"b": 2}), json!({"c": 3})]);
}

#[test]
fn an_error_names_the_line_in_the_file() {
    let documents = read(b"a: 1\n---\nb: 1\nc: 2\nb: 3\n---\nd: [1,\n");
    let errors: Vec<_> = documents
        .iter()
        .filter_map(|(_, document)| document.as_ref().err().map(ToString::to_string))
        .collect();
    assert_eq!(errors[0], "line 5: key \"b\" is there twice");
    assert!(errors[1].starts_with("line "), "{}", errors[1]);
}

#[test]
fn a_key_that_is_there_twice_is_refused() {
    for text in ["a: 1\na: 2", "{1: a, \"1\": b}", "{yes: 1, true: 2}", "x: &a k\ny: {k: 1, *a : 2}"] {
        assert!(matches!(fault(text), Fault::DuplicateKey(_)), "{text}");
    }
    assert!(
        one(r#"{"a": {"b": 1, "b": 2}}"#).expect_err("twice").to_string().contains("\"b\" is there twice")
    );
}

#[test]
fn aliases_that_expand_without_measure_are_refused() {
    let mut laughs = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for n in 1..12 {
        let inner = vec![format!("*a{}", n - 1); 9].join(", ");
        laughs.push_str(&format!("a{n}: &a{n} [{inner}]\n"));
    }
    assert_eq!(fault(&laughs), Fault::Aliases);
    assert_eq!(fault("a: &a [*a]"), Fault::Alias);
}

#[test]
fn nesting_stops_at_its_limit() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(one(&nested(DEPTH_LIMIT)).is_ok());
    assert_eq!(fault(&nested(DEPTH_LIMIT + 1)), Fault::Depth);
    assert!(one(&nested(100_000)).is_err(), "far too deep");
    let json = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    assert!(one(&json(DEPTH_LIMIT)).is_ok());
    assert!(one(&json(DEPTH_LIMIT + 1)).is_err());
    let base = format!("a: &a {}\nb: [[*a]]", nested(DEPTH_LIMIT - 2));
    assert_eq!(fault(&base), Fault::Depth, "an alias counts from where it stands");
}

#[test]
fn json_is_read_with_the_numbers_of_kubectl() {
    assert_eq!(
        one("{\"a\": 1.0, \"b\": 1e3, \"c\": -0.5}").expect("JSON"),
        json!({"a": 1, "b": 1000, "c": -0.5})
    );
    assert!(one("{\"a\": 18446744073709551615}").expect("JSON")["a"].is_f64());
    assert_eq!(read(b"{\"a\": 1}\n{\"a\": 2}").len(), 2, "several objects in a row");
    assert_eq!(one("{a: yes}").expect("YAML in flow style"), json!({"a": true}));
    assert_eq!(one("\u{feff}a: 1\r\nb: 2\r\n").expect("a BOM and CRLF"), json!({"a": 1, "b": 2}));
}

#[test]
fn bytes_that_are_no_text_and_files_without_measure_are_refused() {
    assert_eq!(read(b"a: \xff")[0].1, Err(YamlError::Encoding(3)));
    assert!(matches!(read(&vec![b' '; FILE_LIMIT + 1])[0].1, Err(YamlError::Size(_))));
}

#[test]
fn yaml_is_written_in_block_style() {
    let value = json!({
        "apiVersion": "v1", "data": {"a.conf": "x = 1\n  y: \"2\"\n\nz\n", "b": "yes", "c": "", "d": "1", "e": "a: b"},
        "list": [{"a": 1, "b": [[1, 2], {}]}, "x", null, []], "t": "a\u{2028}b\u{85}"
    });
    let text = write(&value);
    assert_eq!(one(&text).expect("YAML"), value, "{text}");
    assert!(text.contains("  a.conf: |\n    x = 1\n      y: \"2\"\n\n    z\n"), "{text}");
    assert!(text.contains("  b: \"yes\"\n"), "{text}");
}

fn any_json() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        any::<String>(),
        "[a-zA-Z0-9 :#\n'\"|>&*!%@`{},\\[\\]~=<._+-]{0,12}",
        proptest::sample::select(
            KUBECTL.lines().filter_map(|line| line.split('\t').next()).collect::<Vec<_>>()
        )
        .prop_map(str::to_owned),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter_map("JSON has finite numbers", scalar::float),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map(text.clone(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_is_written_is_read_back(value in any_json()) {
        let text = write(&value);
        prop_assert_eq!(one(&text), Ok(value), "{}", text);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[a-z0-9 :#\n'\"|>&*!%@`{},\\[\\]~=<?\t-]{0,80}", bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = (read(text.as_bytes()), read(&bytes));
    }
}
