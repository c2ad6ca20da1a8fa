//! What a fleet costs on AWS in a day, by how often its sites poll: a table made from prices and from what the hub
//! does, each of which is a named constant here.
//!
//! A pure computation: no price is asked for anywhere.

/// Print what a million clusters cost a day on AWS, by poll interval.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many clusters
    #[arg(long, default_value_t = 1_000_000)]
    clusters: u32,
    /// How many commits a day reach every cluster
    #[arg(long, default_value_t = 1)]
    commits: u32,
}

/// List prices in US dollars: us-east-1, Linux on Arm, on demand, as AWS published them in 2025.
/// <https://aws.amazon.com/pricing/> has those of today.
mod price {
    /// S3 Standard, a GET.
    pub(super) const S3_GET: f64 = 0.4e-6;
    /// S3 Standard, a PUT or LIST.
    pub(super) const S3_PUT: f64 = 5.0e-6;
    /// Fargate, a vCPU for an hour.
    pub(super) const VCPU_HOUR: f64 = 0.03238;
    /// Fargate, a GB of memory for an hour.
    pub(super) const MEMORY_HOUR: f64 = 0.00356;
    /// ElastiCache, a cache.m7g.large for an hour.
    pub(super) const REDIS_HOUR: f64 = 0.158;
    /// Network Load Balancer, an hour.
    pub(super) const BALANCER_HOUR: f64 = 0.0225;
    /// Network Load Balancer, a capacity unit for an hour.
    pub(super) const CAPACITY_HOUR: f64 = 0.006;
    /// Lambda, an invocation.
    pub(super) const INVOCATION: f64 = 0.2e-6;
    /// Lambda, a GB of memory for a second.
    pub(super) const MEMORY_SECOND: f64 = 1.33334e-5;
    /// A GB to the internet.
    pub(super) const TRAFFIC: f64 = 0.09;
}

/// What the hub does; the names say where a figure comes from.
mod hub {
    /// CPU seconds of a steady poll on an open connection, with all that a fleet does beside it: new passes,
    /// full fetches, reports, last-seen times (`hub-fleet`), and TLS (`hub-poll`).
    pub(super) const POLL_CPU: f64 = 28e-6;
    /// CPU seconds of a TLS handshake.
    pub(super) const HANDSHAKE_CPU: f64 = 400e-6;
    /// Billed seconds of a function for one poll, on an instance that is warm.
    pub(super) const FUNCTION_SECONDS: f64 = 0.002;
    /// Memory of a function, in GB.
    pub(super) const FUNCTION_MEMORY: f64 = 0.5;
    /// Memory of a serving replica, in GB: the view of a million clusters, and as many connections.
    pub(super) const REPLICA_MEMORY: f64 = 8.0;
    /// The share of its CPU that a replica uses.
    pub(super) const BUSY: f64 = 0.5;
    /// Replicas, so that one may die.
    pub(super) const REPLICAS: f64 = 2.0;
    /// GETs a second of a replica that is a server: twice `fleet/head` and the next part of the directory's log;
    /// every 30 s the directory's head, log and last part; every 10 s the trust root and the one that may come next.
    pub(super) const REPLICA_GETS: f64 = 2.0 * 2.0 + 3.0 / 30.0 + 2.0 / 10.0;
    /// GETs a second of an instance of a function: once, when its view is older than its bound, `fleet/head`, the
    /// directory's head and last part, and its log before and behind them; and the trust root.
    pub(super) const INSTANCE_GETS: f64 = 5.0 + 2.0 / 10.0;
    /// LISTs a second of a publisher that stays: requests to enrol, removals and webhooks, every 2 s.
    pub(super) const PUBLISHER_LISTS: f64 = 3.0 / 2.0;
    /// The same of a publisher that is a function, each minute: those, requests and webhooks once more, approvals,
    /// and the log of reports.
    pub(super) const STEP_LISTS: f64 = 7.0 / 60.0;
    /// GETs a second of a publisher: 500 rosters are compared in each interval of sources.
    pub(super) const PUBLISHER_GETS: f64 = 500.0 / 120.0;
    /// Seconds between two full reports of a site.
    pub(super) const FULL_REPORT: f64 = 7200.0;
    /// PUTs of reports a second of a replica, at the most, where they come as in a calm fleet.
    pub(super) const REPORT_PUTS: f64 = 2.0;
    /// Seconds between two foldings of a large fleet. Each lists the log of reports, reads the objects of statuses
    /// and of last-seen times to count the fleet, and writes those again that reports came for, and all times.
    pub(super) const FOLD: f64 = 60.0;
    /// Objects of last-seen times.
    pub(super) const SEEN: f64 = 16.0;
    /// Objects of statuses of a fleet whose leaves were split, and of one below [`SPLIT`] clusters.
    pub(super) const STATUSES: f64 = 1024.0;
    pub(super) const LEAVES: f64 = 16.0;
    pub(super) const SPLIT: f64 = 16_000.0;
    /// LISTs and GETs of an hour's round of the collector, about.
    pub(super) const COLLECTING: f64 = 100.0;
    /// Functions that run at once for so many polls a second: each has a view of its own.
    pub(super) const POLLS_OF_AN_INSTANCE: f64 = 250.0;
    /// Bytes to a site for a steady poll: half of `poll-bytes`, and the headers of TCP and IP.
    pub(super) const POLL_BYTES: f64 = 75.0 + 2.0 * 40.0;
    /// Bytes to a site for a TLS 1.3 handshake with a certificate of one's own.
    pub(super) const HANDSHAKE_BYTES: f64 = 1500.0;
    /// Bytes to a site for a commit: documents, and the content of one service.
    pub(super) const COMMIT_BYTES: f64 = 4096.0 + 16384.0;
    /// Reports of a site for a commit.
    pub(super) const REPORTS: f64 = 2.0;
    /// Reports in one PUT, where they come as fast as after a commit.
    pub(super) const REPORTS_OF_A_PUT: f64 = 1000.0;
    /// Days after which a roster is signed again.
    pub(super) const ROSTER_DAYS: f64 = 30.0;
    /// PUTs for that, and as many GETs: the roster, a part of the directory's log, a shard of its next snapshot.
    pub(super) const ROSTER_PUTS: f64 = 3.0;
    /// Seconds that a silent connection is kept.
    pub(super) const QUIET: f64 = 300.0;
}

/// Capacity of one unit of a Network Load Balancer, for TCP.
mod unit {
    pub(super) const NEW_A_SECOND: f64 = 800.0;
    pub(super) const OPEN: f64 = 100_000.0;
    pub(super) const GB_AN_HOUR: f64 = 1.0;
}

const DAY: f64 = 86_400.0;
const HOURS: f64 = 24.0;
/// In seconds.
const INTERVALS: [f64; 5] = [30.0, 60.0, 120.0, 300.0, 1200.0];

/// A fleet and how it polls.
#[derive(Clone, Copy)]
struct Fleet {
    clusters: f64,
    commits: f64,
    interval: f64,
}

/// Dollars a day.
struct Cost {
    compute: f64,
    balancer: f64,
    storage: f64,
    traffic: f64,
}

impl Cost {
    fn total(&self) -> f64 {
        self.compute + self.balancer + REDIS + self.storage + self.traffic
    }
}

const REDIS: f64 = price::REDIS_HOUR * HOURS;

impl Fleet {
    fn polls_a_second(self) -> f64 {
        self.clusters / self.interval
    }

    /// A connection is kept for the next poll, unless that comes too late.
    fn handshakes_a_second(self) -> f64 {
        if self.interval < hub::QUIET { 0.0 } else { self.polls_a_second() }
    }

    /// GB to sites in a day.
    fn gigabytes(self) -> f64 {
        let polls = self.polls_a_second() * hub::POLL_BYTES;
        let handshakes = self.handshakes_a_second() * hub::HANDSHAKE_BYTES;
        let commits = self.commits * self.clusters * hub::COMMIT_BYTES;
        ((polls + handshakes) * DAY + commits) / 1e9
    }

    /// Reports a second while nothing happens.
    fn full_reports(self) -> f64 {
        self.clusters / hub::FULL_REPORT
    }

    /// What is asked of S3 whoever serves: content, rosters, folding, collecting. GETs, and PUTs with LISTs, a day.
    fn asked(self) -> (f64, f64) {
        let content = self.commits * self.clusters;
        let rosters = self.clusters / hub::ROSTER_DAYS * hub::ROSTER_PUTS;
        let statuses = if self.clusters > hub::SPLIT { hub::STATUSES } else { hub::LEAVES };
        let written = statuses.min(self.full_reports() * hub::FOLD);
        let folds = DAY / hub::FOLD;
        let collecting = HOURS * hub::COLLECTING;
        let gets = content + rosters + folds * (written + statuses + hub::SEEN) + collecting;
        (gets + hub::PUBLISHER_GETS * DAY, rosters + folds * (written + hub::SEEN + 1.0) + collecting)
    }

    /// S3 behind servers: their reports share PUTs.
    fn storage(self) -> f64 {
        let (gets, puts) = self.asked();
        let gets = gets + hub::REPLICAS * hub::REPLICA_GETS * DAY;
        let commits = self.commits * self.clusters * hub::REPORTS / hub::REPORTS_OF_A_PUT;
        let reports = self.full_reports().min(hub::REPLICAS * hub::REPORT_PUTS) * DAY;
        let puts = puts + commits + reports + hub::PUBLISHER_LISTS * DAY;
        gets * price::S3_GET + puts * price::S3_PUT
    }

    /// S3 behind functions: each instance has one request at a time, so that each report is a PUT.
    fn storage_of_functions(self, instances: f64) -> f64 {
        let (gets, puts) = self.asked();
        let gets = gets + instances * hub::INSTANCE_GETS * DAY;
        let reports = self.commits * self.clusters * hub::REPORTS + self.full_reports() * DAY;
        let puts = puts + reports + hub::STEP_LISTS * DAY;
        gets * price::S3_GET + puts * price::S3_PUT
    }

    fn server(self) -> Cost {
        let cpu = self.polls_a_second() * hub::POLL_CPU + self.handshakes_a_second() * hub::HANDSHAKE_CPU;
        let vcpus = (cpu / hub::BUSY / hub::REPLICAS).ceil().max(1.0) * hub::REPLICAS;
        let memory = hub::REPLICAS * hub::REPLICA_MEMORY;
        let open = if self.interval < hub::QUIET { self.clusters } else { 0.0 };
        let units = (self.handshakes_a_second() / unit::NEW_A_SECOND)
            .max(open / unit::OPEN)
            .max(self.gigabytes() / HOURS / unit::GB_AN_HOUR);
        Cost {
            compute: (vcpus * price::VCPU_HOUR + memory * price::MEMORY_HOUR) * HOURS,
            balancer: (price::BALANCER_HOUR + units * price::CAPACITY_HOUR) * HOURS,
            storage: self.storage(),
            traffic: self.gigabytes() * price::TRAFFIC,
        }
    }

    /// A function URL costs nothing by itself.
    fn function(self) -> Cost {
        let polls = self.polls_a_second() * DAY;
        let instances = (self.polls_a_second() / hub::POLLS_OF_AN_INSTANCE).ceil();
        let seconds = polls * hub::FUNCTION_SECONDS * hub::FUNCTION_MEMORY;
        Cost {
            compute: polls * price::INVOCATION + seconds * price::MEMORY_SECOND,
            balancer: 0.0,
            storage: self.storage_of_functions(instances),
            traffic: self.gigabytes() * price::TRAFFIC,
        }
    }
}

/// The table, as Markdown.
fn table(clusters: f64, commits: f64) -> String {
    let mut lines = vec![
        "| poll | polls/s | servers | balancer | Redis | S3 | traffic | **servers, all** | functions | S3 | **functions, all** |".to_owned(),
        "|---|---|---|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    for interval in INTERVALS {
        let fleet = Fleet { clusters, commits, interval };
        let (server, function) = (fleet.server(), fleet.function());
        let name = if interval < 60.0 { format!("{interval} s") } else { format!("{} min", interval / 60.0) };
        lines.push(format!(
            "| {name} | {:.0} | {:.2} | {:.2} | {REDIS:.2} | {:.2} | {:.2} | **{:.2}** | {:.2} | {:.2} | **{:.2}** |",
            fleet.polls_a_second(),
            server.compute,
            server.balancer,
            server.storage,
            server.traffic,
            server.total(),
            function.compute,
            function.storage,
            function.total(),
        ));
    }
    lines.join("\n")
}

pub(crate) fn run(options: &Options) {
    println!("{}", table(f64::from(options.clusters), f64::from(options.commits)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(interval: f64) -> Fleet {
        Fleet { clusters: 1e6, commits: 1.0, interval }
    }

    #[test]
    fn a_poll_costs_a_server_no_call_to_storage() {
        let (often, seldom) = (fleet(30.0).server().storage, fleet(1200.0).server().storage);
        assert!((often - seldom).abs() < 1e-9, "{often} {seldom}");
    }

    #[test]
    fn polling_half_as_often_halves_what_a_function_costs() {
        let (often, seldom) = (fleet(60.0).function().compute, fleet(120.0).function().compute);
        assert!((often / seldom - 2.0).abs() < 1e-9, "{often} {seldom}");
    }

    #[test]
    fn a_connection_that_is_not_kept_costs_a_handshake_for_each_poll() {
        assert!(fleet(120.0).handshakes_a_second() < 1e-9);
        assert!((fleet(300.0).handshakes_a_second() - fleet(300.0).polls_a_second()).abs() < 1e-9);
    }

    #[test]
    fn what_is_looked_at_whether_or_not_anything_happens_is_counted() {
        let still = Fleet { clusters: 1.0, commits: 0.0, interval: 60.0 };
        let looks = hub::REPLICAS * hub::REPLICA_GETS * DAY * price::S3_GET;
        let lists = hub::PUBLISHER_LISTS * DAY * price::S3_PUT;
        assert!(still.storage() > looks + lists, "{}", still.storage());
        let reports = 1e6 / hub::FULL_REPORT * DAY * price::S3_PUT;
        assert!(fleet(60.0).function().storage > reports, "each report of a function is a PUT");
    }

    #[test]
    fn the_table_has_a_row_for_each_interval() {
        assert_eq!(table(1e6, 1.0).lines().count(), 2 + INTERVALS.len());
    }
}
