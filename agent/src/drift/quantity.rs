//! Amounts that are written in more than one way. Pure.
//!
//! Kubernetes API reference, `Quantity` (`k8s.io/apimachinery/pkg/api/resource`): a decimal number and
//! a suffix, which the API server writes in one canonical way whatever it was given.

/// Fields whose values are amounts by name.
const MAPS: [&str; 10] = [
    "limits",
    "requests",
    "hard",
    "capacity",
    "podFixed",
    "default",
    "defaultRequest",
    "max",
    "min",
    "maxLimitRequestRatio",
];
/// Fields that are amounts.
const FIELDS: [&str; 3] = ["sizeLimit", "divisor", "averageValue"];

/// Whether what stands at this JSON pointer is an amount.
#[must_use]
pub fn is_at(pointer: &str) -> bool {
    let mut parts = pointer.rsplit('/');
    let (last, above) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    FIELDS.contains(&last) || MAPS.contains(&above)
}

/// An amount in thousand millionths. None for what is no amount, or is beyond what 128 bits hold.
#[must_use]
pub fn read(text: &str) -> Option<i128> {
    let end = text.find(|c: char| !c.is_ascii_digit() && !"+-.".contains(c)).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let sign = if whole.starts_with('-') { -1 } else { 1 };
    let digits = format!("{}{fraction}", whole.trim_start_matches(['+', '-']));
    if digits.is_empty() || digits.len() > 30 {
        return None;
    }
    let value: i128 = digits.parse().ok()?;
    let places = i32::try_from(fraction.len()).ok()?;
    let (factor, power) = suffix_of(suffix)?;
    let scaled = value.checked_mul(factor)?.checked_mul(sign)?;
    shifted(scaled, power.checked_add(9)?.checked_sub(places)?)
}

/// A factor and a power of ten.
fn suffix_of(suffix: &str) -> Option<(i128, i32)> {
    let binary = |power: u32| Some((1_i128 << (10 * power), 0));
    let decimal = |power: i32| Some((1, power));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => decimal(suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    }
}

/// A number moved by so many powers of ten, if nothing is cut off.
fn shifted(value: i128, power: i32) -> Option<i128> {
    let factor = 10_i128.checked_pow(power.unsigned_abs())?;
    if power >= 0 { value.checked_mul(factor) } else { (value % factor == 0).then(|| value / factor) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_amount_in_many_ways_is_one_amount() {
        for same in [
            &["1", "1000m", "1.0", "1e0", "+1", "1000000u", "0.001k", "1000000000n"][..],
            &["1Gi", "1024Mi", "1073741824"],
            &["0.5", "500m", ".5"],
            &["-1k", "-1000", "-1e3", "-1E3"],
            &["0", "0Gi", "0m"],
        ] {
            let values: Vec<_> = same.iter().map(|text| read(text)).collect();
            assert!(
                values[0].is_some() && values.iter().all(|value| *value == values[0]),
                "{same:?} {values:?}"
            );
        }
        assert_ne!(read("1G"), read("1Gi"));
        assert_ne!(read("1"), read("1m"));
    }

    #[test]
    fn what_is_no_amount_is_not_taken_for_one() {
        let none =
            ["", "a", "1x", "m", "1 ", "--", ".", "1e", "99999999999999999999999999999999999999999", "1e99"];
        for text in none {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    #[test]
    fn amounts_stand_in_few_places() {
        for place in [
            "/spec/template/spec/containers/0/resources/limits/cpu",
            "/spec/hard/requests.storage",
            "/spec/resources/requests/storage",
            "/spec/template/spec/volumes/0/emptyDir/sizeLimit",
        ] {
            assert!(is_at(place), "{place}");
        }
        for place in
            ["/data/limits", "/data/a", "/spec/replicas", "/spec/template/spec/containers/0/env/0/value", ""]
        {
            assert!(!is_at(place), "{place}");
        }
    }
}
