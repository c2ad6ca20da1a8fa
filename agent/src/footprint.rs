//! How much this agent may ask of its cluster and of its machine, and who said so. Pure.
//!
//! What is given at the site itself wins, for the site is its owner's; then counts what the fleet says of this
//! cluster (its roster), then what it says of all (the group document), and where nobody says anything, the default.
//! Both documents are held on disk, so it is the same after a reboot without a hub.

use std::fmt;
use std::time::Duration;

use farshore_shared::duration::HumanDuration;
use farshore_shared::size::HumanSize;
use farshore_shared::wire::Footprint;
use serde::{Deserialize, Serialize};

/// Requests to the API at once where nobody says.
pub const IN_FLIGHT: u16 = 32;
/// Bytes of memory of each process that the agent starts where nobody says.
pub const PROCESS_MEMORY: u64 = 1 << 30;

/// Whose word counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Voice {
    /// An option or a variable of the agent.
    Site,
    /// What the fleet says of this cluster.
    Cluster,
    /// What the fleet says of all clusters.
    Fleet,
    /// Nobody's.
    Default,
}

impl Voice {
    fn word(self) -> &'static str {
        match self {
            Self::Site => "site",
            Self::Cluster => "cluster",
            Self::Fleet => "fleet",
            Self::Default => "default",
        }
    }
}

/// A value, and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub from: Voice,
}

/// What is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InForce {
    /// The most requests to the API at once.
    pub in_flight: Setting<u16>,
    /// The most requests to the API a second; none: as many as it takes.
    pub qps: Setting<Option<u32>>,
    /// How often everything is looked at, in seconds.
    pub sweep_seconds: Setting<u64>,
    /// Bytes of memory of each process that the agent starts.
    pub process_memory: Setting<u64>,
}

/// What the documents say that this site holds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Said {
    /// Of this cluster.
    pub cluster: Footprint,
    /// Of all.
    pub fleet: Footprint,
}

impl Said {
    /// The same, with everything looked at as often as this at the least.
    #[must_use]
    pub fn swept_within(self, rarest: Duration) -> Self {
        let bounded = |footprint: Footprint| Footprint {
            sweep_seconds: footprint.sweep_seconds.map(|said| said.min(rarest.as_secs())),
            ..footprint
        };
        Self { cluster: bounded(self.cluster), fleet: bounded(self.fleet) }
    }
}

impl InForce {
    /// What is in force where the site itself, which is taken at its word, and the fleet say this. `sweep` is how
    /// often everything is looked at where nobody says.
    #[must_use]
    pub fn of(site: &Footprint, said: Said, sweep: Duration) -> Self {
        // Whoever signed it may know other bounds than this agent.
        let voices = [
            (Voice::Site, *site),
            (Voice::Cluster, said.cluster.clamped()),
            (Voice::Fleet, said.fleet.clamped()),
        ];
        let first = |of: fn(&Footprint) -> Option<u64>| {
            voices.iter().find_map(|(from, footprint)| Some((of(footprint)?, *from)))
        };
        let or = |found: Option<(u64, Voice)>, default| {
            found.map_or(Setting { value: default, from: Voice::Default }, |(value, from)| Setting {
                value,
                from,
            })
        };
        let in_flight = or(first(|f| f.in_flight), u64::from(IN_FLIGHT));
        let qps = first(|f| f.qps);
        Self {
            in_flight: Setting {
                value: u16::try_from(in_flight.value).unwrap_or(u16::MAX),
                from: in_flight.from,
            },
            qps: Setting {
                value: qps.map(|(value, _)| u32::try_from(value).unwrap_or(u32::MAX)),
                from: qps.map_or(Voice::Default, |(_, from)| from),
            },
            sweep_seconds: or(first(|f| f.sweep_seconds), sweep.as_secs()),
            process_memory: or(first(|f| f.process_memory), PROCESS_MEMORY),
        }
    }

    /// How often everything is looked at.
    #[must_use]
    pub fn sweep(&self) -> Duration {
        Duration::from_secs(self.sweep_seconds.value)
    }
}

impl fmt::Display for InForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { in_flight, qps, sweep_seconds, process_memory } = self;
        write!(f, "{} requests at once ({}), ", in_flight.value, in_flight.from.word())?;
        match qps.value {
            Some(value) => write!(f, "{value} a second ({}), ", qps.from.word())?,
            None => write!(f, "as many a second as the API takes ({}), ", qps.from.word())?,
        }
        write!(f, "a sweep every {} ({}), ", HumanDuration(self.sweep()), sweep_seconds.from.word())?;
        write!(f, "{} for each process ({})", HumanSize(process_memory.value), process_memory.from.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWEEP: Duration = Duration::from_secs(600);

    fn all(n: u64) -> Footprint {
        Footprint { in_flight: Some(n), qps: Some(n), sweep_seconds: Some(n), process_memory: Some(n << 20) }
    }

    #[test]
    fn where_the_sweep_is_what_puts_things_back_the_fleet_makes_it_no_rarer() {
        let minute = Duration::from_secs(60);
        let said = Said { cluster: Footprint::default(), fleet: all(86_400) }.swept_within(minute);
        let in_force = InForce::of(&Footprint::default(), said, minute);
        assert_eq!((in_force.sweep_seconds.value, in_force.sweep_seconds.from), (60, Voice::Fleet));
        let own = Footprint { sweep_seconds: Some(7200), ..Footprint::default() };
        assert_eq!(
            InForce::of(&own, said, minute).sweep_seconds.value,
            7200,
            "the site's own word is its own"
        );
        let often = Said { cluster: all(30), ..said }.swept_within(minute);
        assert_eq!(InForce::of(&Footprint::default(), often, minute).sweep_seconds.value, 30);
    }

    /// Each value with its origin, in the order of the fields.
    fn told(in_force: &InForce) -> [(Option<u64>, Voice); 4] {
        let InForce { in_flight, qps, sweep_seconds, process_memory } = in_force;
        [
            (Some(u64::from(in_flight.value)), in_flight.from),
            (qps.value.map(u64::from), qps.from),
            (Some(sweep_seconds.value), sweep_seconds.from),
            (Some(process_memory.value >> 20), process_memory.from),
        ]
    }

    #[test]
    fn the_site_wins_over_the_cluster_the_cluster_over_the_fleet_and_the_fleet_over_the_default() {
        let none = Footprint::default();
        let of = |site, cluster, fleet| told(&InForce::of(&site, Said { cluster, fleet }, SWEEP));
        let same = |n, from| [(Some(n), from); 4];
        let defaults = [(Some(32), Voice::Default), (None, Voice::Default), (Some(600), Voice::Default)];
        assert_eq!(of(none, none, none)[..3], defaults);
        assert_eq!(of(none, none, none)[3], (Some(1024), Voice::Default));
        assert_eq!(of(none, none, all(500)), same(500, Voice::Fleet));
        assert_eq!(of(none, all(400), all(500)), same(400, Voice::Cluster));
        assert_eq!(of(all(300), all(400), all(500)), same(300, Voice::Site));
        assert_eq!(of(all(300), none, none), same(300, Voice::Site));
    }

    #[test]
    fn each_value_has_its_own_origin() {
        let site = Footprint { qps: Some(7), ..Footprint::default() };
        let cluster = Footprint { in_flight: Some(4), qps: Some(9), ..Footprint::default() };
        let fleet = Footprint { in_flight: Some(8), sweep_seconds: Some(1800), ..Footprint::default() };
        let in_force = InForce::of(&site, Said { cluster, fleet }, SWEEP);
        assert_eq!(
            in_force.to_string(),
            "4 requests at once (cluster), 7 a second (site), a sweep every 30m (fleet), 1Gi for each process (default)"
        );
        let written = serde_json::to_value(in_force).expect("JSON");
        assert_eq!(
            written,
            serde_json::json!({
                "inFlight": {"value": 4, "from": "cluster"}, "qps": {"value": 7, "from": "site"},
                "sweepSeconds": {"value": 1800, "from": "fleet"},
                "processMemory": {"value": 1 << 30, "from": "default"},
            })
        );
        assert_eq!(serde_json::from_value::<InForce>(written).expect("it is read"), in_force);
        let unbounded = InForce::of(&Footprint::default(), Said::default(), SWEEP);
        assert!(unbounded.to_string().contains("as many a second as the API takes (default)"));
    }

    #[test]
    fn what_documents_say_is_brought_within_bounds_and_the_site_is_taken_at_its_word() {
        let odd = |n| Footprint {
            in_flight: Some(n),
            qps: Some(n),
            sweep_seconds: Some(n),
            process_memory: Some(n),
        };
        let of = |said| told(&InForce::of(&Footprint::default(), said, SWEEP)).map(|(value, _)| value);
        let most = [Some(1000), Some(100_000), Some(86_400), Some(64 << 10)];
        assert_eq!(of(Said { cluster: odd(u64::MAX), ..Said::default() }), most);
        assert_eq!(of(Said { fleet: odd(0), ..Said::default() }), [Some(2), Some(1), Some(5), Some(256)]);
        let site = Footprint { sweep_seconds: Some(1), ..Footprint::default() };
        let in_force = InForce::of(&site, Said { cluster: odd(0), ..Said::default() }, SWEEP);
        assert_eq!((in_force.sweep(), in_force.in_flight.value), (Duration::from_secs(1), 2));
    }
}
