//! How much agents may ask of their clusters and of their machines, as far as the fleet says.

use std::ops::RangeInclusive;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// How much an agent may ask of its cluster and of its machine; what is not said here is said elsewhere.
///
/// It is read leniently: what is no whole number counts as not said, and keeps no document from being accepted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Footprint {
    /// Requests to the API at once, within [`Footprint::IN_FLIGHT`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u64>,
    /// Requests to the API a second, within [`Footprint::QPS`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qps: Option<u64>,
    /// How often everything is looked at, in seconds, within [`Footprint::SWEEP`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep_seconds: Option<u64>,
    /// Bytes of memory that each process has which the agent starts, within [`Footprint::MEMORY`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_memory: Option<u64>,
}

impl Footprint {
    /// Requests to the API at once. With one alone, a request that hangs would keep all others waiting.
    pub const IN_FLIGHT: RangeInclusive<u64> = 2..=1000;
    /// Requests to the API a second. The highest is as good as no limit.
    pub const QPS: RangeInclusive<u64> = 1..=100_000;
    /// Seconds between two looks at everything.
    pub const SWEEP: RangeInclusive<u64> = 5..=86_400;
    /// Bytes of memory of a process: who evaluates rules of health has a stack of 128 MiB.
    pub const MEMORY: RangeInclusive<u64> = 256 << 20..=64 << 30;

    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The same with every value within its bounds.
    #[must_use]
    pub fn clamped(&self) -> Self {
        let within = |value: Option<u64>, bounds: RangeInclusive<u64>| {
            value.map(|value| value.clamp(*bounds.start(), *bounds.end()))
        };
        Self {
            in_flight: within(self.in_flight, Self::IN_FLIGHT),
            qps: within(self.qps, Self::QPS),
            sweep_seconds: within(self.sweep_seconds, Self::SWEEP),
            process_memory: within(self.process_memory, Self::MEMORY),
        }
    }
}

impl<'de> Deserialize<'de> for Footprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let said = Value::deserialize(deserializer)?;
        let number = |field| said.get(field).and_then(Value::as_u64);
        Ok(Self {
            in_flight: number("inFlight"),
            qps: number("qps"),
            sweep_seconds: number("sweepSeconds"),
            process_memory: number("processMemory"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(said: Value) -> Footprint {
        serde_json::from_value(said).expect("whatever it says is read")
    }

    #[test]
    fn what_is_no_whole_number_counts_as_not_said_and_the_rest_is_read() {
        let odd =
            json!({"inFlight": 8, "qps": "fast", "sweepSeconds": -1, "processMemory": 1.5, "newer": {}});
        assert_eq!(read(odd), Footprint { in_flight: Some(8), ..Footprint::default() });
        for odd in [json!(null), json!("little"), json!([1]), json!(7), json!({"qps": null})] {
            assert!(read(odd.clone()).is_empty(), "{odd}");
        }
    }

    #[test]
    fn every_value_is_brought_within_its_bounds() {
        let all = |n| Footprint {
            in_flight: Some(n),
            qps: Some(n),
            sweep_seconds: Some(n),
            process_memory: Some(n),
        };
        let least = read(serde_json::to_value(all(0)).expect("JSON")).clamped();
        assert_eq!(
            serde_json::to_value(least).expect("JSON"),
            json!({"inFlight": 2, "qps": 1, "sweepSeconds": 5, "processMemory": 256 << 20})
        );
        let most = all(u64::MAX).clamped();
        assert_eq!((most.in_flight, most.qps), (Some(1000), Some(100_000)));
        assert_eq!((most.sweep_seconds, most.process_memory), (Some(86_400), Some(64 << 30)));
        assert_eq!(Footprint::default().clamped(), Footprint::default(), "what is not said stays so");
    }
}
