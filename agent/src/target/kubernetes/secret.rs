//! Secrets as the API keeps them.
//!
//! `stringData` of a Secret is for writing only: the API moves it to `data`, and the fields there belong
//! to nobody, so that a change of them would go unnoticed. What is applied is therefore `data` alone.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::object::Manifest;

/// Moves the texts of a Secret to where the API keeps them. Where both name a key, the text wins, as it
/// does in the API. What is no text stays, for the API to refuse.
pub(super) fn settle(manifest: &mut Manifest) {
    if !manifest.key.group.is_empty() || manifest.key.kind != "Secret" {
        return;
    }
    let Some(body) = manifest.body.as_object_mut() else { return };
    let texts = match body.get("stringData") {
        Some(Value::Object(texts)) if texts.values().all(Value::is_string) => texts.clone(),
        _ => return,
    };
    if !body.get("data").is_none_or(|data| data.is_object() || data.is_null()) {
        return;
    }
    let data = body.entry("data").or_insert(Value::Null);
    if data.is_null() {
        *data = Value::Object(Map::new());
    }
    for (key, text) in texts {
        data[key] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
    }
    body.remove("stringData");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn settled(kind: &str, fields: Value) -> Value {
        let mut body = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}});
        body.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        let mut manifest = Manifest::read(body, "test".into()).expect("a manifest");
        settle(&mut manifest);
        json!({"data": manifest.body.get("data"), "stringData": manifest.body.get("stringData")})
    }

    #[test]
    fn texts_of_a_secret_are_kept_where_the_api_keeps_them() {
        let both = json!({"data": {"a": "eA==", "b": "eA=="}, "stringData": {"b": "ü", "c": ""}});
        let kept = json!({"data": {"a": "eA==", "b": "w7w=", "c": ""}, "stringData": null});
        assert_eq!(settled("Secret", both), kept);
        let alone = json!({"stringData": {"b": "y"}, "data": null});
        assert_eq!(settled("Secret", alone), json!({"data": {"b": "eQ=="}, "stringData": null}));
    }

    #[test]
    fn what_is_no_secret_or_no_text_stays_as_it_is() {
        for (kind, fields) in [
            ("ConfigMap", json!({"data": null, "stringData": {"b": "y"}})),
            ("Secret", json!({"data": null, "stringData": {"b": 1}})),
            ("Secret", json!({"data": "x", "stringData": {"b": "y"}})),
        ] {
            assert_eq!(settled(kind, fields.clone()), fields, "{kind}");
        }
    }
}
