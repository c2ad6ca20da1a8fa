//! `spec.footprint` of a cluster, or of the fleet: how much agents may ask of clusters and machines.

use std::fmt;
use std::time::Duration;

use farshore_shared::size::HumanSize;
use farshore_shared::wire::Footprint;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::fields::{Fields, Scribe, below, bounded, exact};
use super::text::{BadText, Interval};
use super::yaml::Node;

const MEMORY: &str = "an amount of memory from 256Mi to 64Gi, such as 512Mi or 2Gi";

/// How much an agent may ask of its cluster and of its machine. Options that are given at a site win.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FootprintSpec {
    /// The most requests to the Kubernetes API at once; 32 where nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 1000))]
    pub in_flight: Option<u16>,
    /// The most requests to the Kubernetes API a second; as many as it takes where nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub qps: Option<u32>,
    /// How often everything is looked at and repaired; 10m where every change is told of, else 1m, where nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Interval>,
    /// How much memory each process has which the agent starts; 1Gi where nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_memory: Option<Memory>,
}

impl From<FootprintSpec> for Footprint {
    fn from(spec: FootprintSpec) -> Self {
        Self {
            in_flight: spec.in_flight.map(u64::from),
            qps: spec.qps.map(u64::from),
            sweep_seconds: spec.sweep.map(Interval::duration).map(|sweep: Duration| sweep.as_secs()),
            process_memory: spec.process_memory.map(|memory| memory.0),
        }
    }
}

/// An amount of memory, in bytes; it is written as `512Mi`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Memory(u64);

impl TryFrom<String> for Memory {
    type Error = BadText;

    fn try_from(text: String) -> Result<Self, BadText> {
        let refuse = |why: String| Err(BadText { message: why, expected: MEMORY });
        match text.parse() {
            Ok(HumanSize(bytes)) if Footprint::MEMORY.contains(&bytes) => Ok(Self(bytes)),
            Ok(size) => refuse(format!("the amount is too small or too large ({size})")),
            Err(why) => refuse(why.to_string()),
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        HumanSize(self.0).fmt(f)
    }
}

impl From<Memory> for String {
    fn from(memory: Memory) -> Self {
        memory.to_string()
    }
}

impl JsonSchema for Memory {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Memory".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]{1,8}(Ki|Mi|Gi)$", "description": MEMORY })
    }
}

/// Reads `spec` of a declaration that has nothing but a footprint.
pub(super) fn spec(node: &Node, scribe: &mut Scribe<'_>) -> Option<FootprintSpec> {
    let mut fields = Fields::open(node, "spec", scribe)?;
    let path = fields.path("footprint");
    let footprint = fields.take("footprint").map(|node| read(node, &path, scribe));
    fields.close(scribe);
    footprint.unwrap_or_else(|| Some(FootprintSpec::default()))
}

fn read(node: &Node, path: &str, scribe: &mut Scribe<'_>) -> Option<FootprintSpec> {
    let mut fields = Fields::open(node, path, scribe)?;
    let mut number = |field: &'static str, bounds, scribe: &mut Scribe<'_>| {
        fields.take(field).and_then(|node| bounded(node, &below(path, field), &bounds, scribe))
    };
    let in_flight = number("inFlight", Footprint::IN_FLIGHT, scribe).and_then(|n| u16::try_from(n).ok());
    let qps = number("qps", Footprint::QPS, scribe).and_then(|n| u32::try_from(n).ok());
    let sweep = fields.take("sweep").and_then(|node| exact(node, &below(path, "sweep"), scribe));
    let at = below(path, "processMemory");
    let process_memory = fields.take("processMemory").and_then(|node| exact(node, &at, scribe));
    fields.close(scribe);
    Some(FootprintSpec { in_flight, qps, sweep, process_memory })
}
