//! What a refusal says.

use http::StatusCode;
use kube::core::Status;
use kube::core::response::StatusDetails;

/// What the API said. Proxies and its own load shedding answer in plain text.
pub(super) fn refusal(code: StatusCode, retry_after_seconds: Option<u32>, body: &[u8]) -> Status {
    let mut status = serde_json::from_slice::<Status>(body).unwrap_or_else(|_: serde_json::Error| {
        let text = String::from_utf8_lossy(body);
        let text = if text.trim().is_empty() { code.to_string() } else { text.trim().to_owned() };
        Status::failure(&text, "")
    });
    status.code = code.as_u16();
    if let Some(retry_after_seconds) = retry_after_seconds {
        let details = status.details.get_or_insert_with(|| StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: vec![],
            retry_after_seconds,
        });
        details.retry_after_seconds = retry_after_seconds;
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_in_plain_text_keeps_its_words_and_its_delay() {
        let status = refusal(StatusCode::TOO_MANY_REQUESTS, Some(2), b"Too many requests\n");
        assert_eq!((status.code, status.message.as_str()), (429, "Too many requests"));
        assert_eq!(status.details.map(|details| details.retry_after_seconds), Some(2));
        let empty = refusal(StatusCode::SERVICE_UNAVAILABLE, None, b"");
        assert_eq!(empty.message, "503 Service Unavailable");
    }
}
