//! The query of a request, parsed once. Pure.

use http::StatusCode;

use crate::answer::Refusal;

/// The names and values of a query, `%XX` and `+` decoded.
///
/// # Errors
/// `400` for what is not one.
pub(super) fn pairs(query: &str) -> Result<Vec<(String, String)>, Refusal> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decoded(name)?, decoded(value)?))
        })
        .collect()
}

/// What somebody asked for that is not to be had.
pub(super) fn bad(message: impl Into<String>) -> Refusal {
    Refusal::of(StatusCode::BAD_REQUEST, message)
}

/// A parameter that there is none of.
pub(super) fn unknown(name: &str, known: &str) -> Refusal {
    bad(format!("parameter is not known ({}; known: {known})", name.chars().take(80).collect::<String>()))
}

/// A number of items, 1 to `most`.
pub(super) fn limit(value: &str, most: usize) -> Result<usize, Refusal> {
    let number = value.parse().ok().filter(|limit| (1..=most).contains(limit));
    number.ok_or_else(|| bad(format!("limit is between 1 and {most} (got {value:?})")))
}

fn decoded(text: &str) -> Result<String, Refusal> {
    let wrong = || bad("query is not percent-encoded UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next()), digit(rest.next()));
                let value = high.zip(low).map(|(high, low)| high * 16 + low).ok_or_else(wrong)?;
                u8::try_from(value).map_err(|_never| wrong())?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_not_text| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded_once_and_garbage_is_refused() {
        let read = pairs("selector=example.com%2Ftier%3Dedge&limit=5&&flag").expect("a query");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read, [pair("selector", "example.com/tier=edge"), pair("limit", "5"), pair("flag", "")]);
        for wrong in ["a=%", "a=%4", "a=%zz", "a=%ff"] {
            assert!(pairs(wrong).is_err(), "{wrong}");
        }
        assert!(limit("0", 10).is_err() && limit("11", 10).is_err() && limit("x", 10).is_err());
    }
}
