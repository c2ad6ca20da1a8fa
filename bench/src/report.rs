//! What is printed: progress, medians, and the last line.

use std::fmt;

/// The last line of a bench: bare numbers, in the unit of the bench.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) name: &'static str,
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, ours, theirs } = self;
        let ratio = if *theirs == 0.0 { f64::NAN } else { ours / theirs };
        write!(f, "{name} ratio={} ours={} theirs={}", bare(ratio), bare(*ours), bare(*theirs))
    }
}

/// Four significant digits at least, and no exponent.
fn bare(number: f64) -> String {
    let digits = if number.abs() >= 1000.0 {
        0
    } else if number.abs() >= 10.0 {
        2
    } else {
        4
    };
    let text = format!("{number:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// The middle value; of an even number, the mean of the two in the middle. 0 of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        length if length % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// A number as a person reads it.
#[expect(clippy::cast_precision_loss, reason = "what is counted here is far below 2^52")]
pub(crate) fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_has_bare_numbers() {
        let ratio = |ours, theirs| Ratio { name: "hub-poll", ours, theirs }.to_string();
        assert_eq!(ratio(123_456.7, 120_000.0), "hub-poll ratio=1.0288 ours=123457 theirs=120000");
        assert_eq!(ratio(138.25, 600.0), "hub-poll ratio=0.2304 ours=138.25 theirs=600");
        assert_eq!(ratio(0.0401, 0.04), "hub-poll ratio=1.0025 ours=0.0401 theirs=0.04");
    }

    #[test]
    fn the_median_of_nothing_is_nothing() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).abs() < 1e-9);
    }
}
