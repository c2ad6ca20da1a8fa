//! When an answer was given, by the clock of whoever gave it.

use farshore_shared::wire::UnixSeconds;
use http::HeaderMap;

/// The `Date` of an answer (RFC 9110, section 6.6.1).
#[must_use]
pub fn of(headers: &HeaderMap) -> Option<UnixSeconds> {
    let text = headers.get(http::header::DATE)?.to_str().ok()?;
    // RFC 9110 writes the zone as a name that means UTC; RFC 2822, which is parsed here, as a number.
    let text = format!("{} +0000", text.strip_suffix("GMT")?.trim_end());
    let time = jiff::fmt::rfc2822::parse(&text).ok()?;
    u64::try_from(time.timestamp().as_second()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_read_as_rfc_9110_writes_it() {
        let dated =
            |text: &str| HeaderMap::from_iter([(http::header::DATE, text.parse().expect("a header"))]);
        assert_eq!(of(&dated("Sun, 06 Nov 1994 08:49:37 GMT")), Some(784_111_777));
        assert_eq!(of(&dated("yesterday")), None);
        assert_eq!(of(&HeaderMap::new()), None);
    }
}
