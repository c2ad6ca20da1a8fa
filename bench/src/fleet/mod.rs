//! `hub-fleet`: whether a hub holds a fleet at its poll interval.
//!
//! Unit: clusters. Ours: the clusters that were held, which is all of them if p99 is below 50 ms, no poll was late
//! (answered more than a second after it was due, or not at all) and no answer was wrong; else none. Theirs: the
//! clusters asked for.
//!
//! Every cluster polls by the agent's own schedule, over a few hundred connections as behind a load balancer; its
//! pass is renewed after half of its life; about every two hours it fetches its documents in full and reports, as an
//! agent does; and what a commit changes it fetches and reports. Hub, Redis and an S3 API are processes of their own on
//! this machine, and so is this program, which runs on one thread. Times count from when something was due, so that
//! a hub that stands still is not spared. Every answer is checked: a 304 names the tag that was sent; documents are
//! signed, the cluster's own and never older; content has its digest; and at the end every report that was
//! acknowledged is in the record.
//!
//! - [`schedule`]: when every cluster says what (pure); [`sites`]: what it says and whether it hears right.
//! - [`traffic`]: from what is due to connections; [`tally`]: what was answered when.
//! - [`outages`]: what goes wrong, when (pure). [`record`]: whether reports arrived.

mod outages;
mod record;
mod schedule;
mod sites;
mod tally;
mod traffic;

use std::rc::Rc;
use std::time::Duration;

use farshore_chaos::kit::Process;
use farshore_shared::clock::since_epoch;
use tokio::task::LocalSet;

use self::outages::{Event, Trouble, events};
use self::schedule::{Schedule, speaks_within};
use self::sites::Sites;
use self::tally::{LATE, Tally};
use self::traffic::Traffic;
use crate::cpu;
use crate::error::BenchError;
use crate::hub::{self, Hub, Place, Running};
use crate::report::{Ratio, float};
use crate::seed::{Fleet, Recipe};

/// Clusters held at their poll interval, with real Redis and S3 API
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Clusters
    #[arg(long, default_value_t = 1_000_000)]
    clusters: u32,
    /// Groups that they are in
    #[arg(long, default_value_t = 10)]
    groups: usize,
    /// Seconds between two polls of one cluster
    #[arg(long, default_value_t = 60)]
    interval: u64,
    /// Connections, over all replicas
    #[arg(long, default_value_t = 256)]
    connections: usize,
    /// Seconds before anything counts: a hub that has just started verifies every pass once
    #[arg(long, default_value_t = 90)]
    warm_up: u64,
    /// Seconds that count
    #[arg(long, default_value_t = 180)]
    seconds: u64,
    /// Hubs that serve
    #[arg(long, default_value_t = 1)]
    replicas: usize,
    /// Kill one replica each so many seconds, and start it again
    #[arg(long)]
    kill_every: Option<u64>,
    /// Flush Redis, and later kill and restart it
    #[arg(long)]
    flush_redis: bool,
    /// Take the bucket away for a while
    #[arg(long)]
    bucket_errors: bool,
    /// Commit a change of all clusters on the way, with a publisher beside
    #[arg(long)]
    commit: bool,
}

/// How long what was due at the end may still take.
const GRACE: Duration = Duration::from_secs(15);
/// How often a publisher fetches its repository.
const INTERVAL: &str = "10s";
/// The slowest p99 at which a fleet is held, in milliseconds.
const HELD: f64 = 50.0;

/// The hub's side.
struct Side {
    place: Place,
    hubs: Vec<Hub>,
    running: Vec<Option<Running>>,
    publisher: Option<Process>,
    /// CPU seconds of replicas that were killed.
    gone: f64,
    committed: Option<Duration>,
    /// How often the fleet repository had been asked for when the publisher listened.
    fetches: u64,
}

/// CPU seconds by who used them.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    hubs: f64,
    publisher: f64,
    redis: f64,
    s3: f64,
    generator: f64,
}

/// Measures.
///
/// # Errors
/// [`BenchError`].
pub(crate) async fn run(options: Options) -> Result<Ratio, BenchError> {
    let length = Duration::from_secs(options.warm_up + options.seconds) + GRACE;
    let place = Place::bucket().await?;
    eprintln!("hub-fleet: seeding {} clusters in {} groups", options.clusters, options.groups);
    let recipe = Recipe {
        clusters: options.clusters as usize,
        groups: options.groups,
        documented: &|n| speaks_within(n, length),
    };
    let fleet = Fleet::seed(&place.objects().await?, &recipe).await?;
    eprintln!("hub-fleet: making passes");
    let sites = Sites::of(&fleet);
    let mut side = Side::start(place, &fleet, &options).await?;
    let interval = Duration::from_secs(options.interval);
    let start = since_epoch();
    let schedule = Schedule::of(options.clusters, interval, start, length);
    let addresses = side.hubs.iter().map(Hub::address).collect();
    let traffic = Traffic::new(fleet, sites, schedule, addresses);
    let local = LocalSet::new();
    let (used, unanswered) = local.run_until(drive(&options, &traffic, &mut side)).await?;
    side.up().await?;
    let lost = record::lost(&side.place.objects().await?, &traffic).await?;
    let held = tell(&options, &traffic, &side, used, unanswered, &lost);
    let clusters = f64::from(options.clusters);
    Ok(Ratio { name: "hub-fleet", ours: if held { clusters } else { 0.0 }, theirs: clusters })
}

/// Warms up, measures, and lets what is open end. Returns what was used, and how many polls had no answer.
async fn drive(
    options: &Options,
    traffic: &Rc<Traffic>,
    side: &mut Side,
) -> Result<(Used, usize), BenchError> {
    let connections: Vec<_> = (0..options.connections)
        .map(|number| tokio::task::spawn_local(Rc::clone(traffic).carry(number)))
        .collect();
    let clock = tokio::task::spawn_local(Rc::clone(traffic).keep_time());
    let start = tokio::time::Instant::now();
    let (warm_up, seconds) = (Duration::from_secs(options.warm_up), Duration::from_secs(options.seconds));
    eprintln!("hub-fleet: warming up for {warm_up:?}");
    tokio::time::sleep_until(start + warm_up).await;
    traffic.count_from(since_epoch());
    let before = side.used()?;
    eprintln!("hub-fleet: measuring for {seconds:?}");
    for (at, event) in events(&options.trouble(), warm_up, seconds) {
        tokio::time::sleep_until(start + at).await;
        eprintln!("hub-fleet: {event:?} after {:.1} s", (start.elapsed() - warm_up).as_secs_f64());
        side.meet(event, traffic).await?;
    }
    tokio::time::sleep_until(start + warm_up + seconds).await;
    let after = side.used()?;
    traffic.stop();
    side.up().await?;
    let end = tokio::time::Instant::now() + GRACE;
    while traffic.unanswered() > 0 && tokio::time::Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let unanswered = traffic.unanswered();
    clock.abort();
    connections.iter().for_each(tokio::task::JoinHandle::abort);
    Ok((after.less(before), unanswered))
}

impl Options {
    fn trouble(&self) -> Trouble {
        Trouble {
            replicas: self.replicas,
            kill_every: self.kill_every.map(Duration::from_secs),
            flush_redis: self.flush_redis,
            bucket_errors: self.bucket_errors,
            commit: self.commit,
        }
    }
}

impl Side {
    async fn start(place: Place, fleet: &Fleet, options: &Options) -> Result<Self, BenchError> {
        // Half as many again as there will be, so that nobody is asked to poll less often.
        let rate = u64::from(options.clusters) * 3 / 2 / options.interval.max(1);
        let rate = u32::try_from(rate).unwrap_or(u32::MAX).clamp(100, 1_000_000);
        let hub =
            |number| Ok::<_, BenchError>(Hub::serving(&place, &format!("hub-{number}"))?.plain().bears(rate));
        let hubs = (0..options.replicas).map(hub).collect::<Result<Vec<_>, _>>()?;
        let mut running = Vec::new();
        for hub in &hubs {
            running.push(Some(hub.start().await?));
        }
        let publisher = if options.commit {
            Some(hub::publisher(&place, &fleet.keys_folder(), &fleet.url(), INTERVAL).await?)
        } else {
            None
        };
        Ok(Self { place, hubs, running, publisher, gone: 0.0, committed: None, fetches: fleet.fetches() })
    }

    /// Everything that was taken away is back.
    async fn up(&mut self) -> Result<(), BenchError> {
        for (hub, running) in self.hubs.iter().zip(&mut self.running) {
            if running.is_none() {
                *running = Some(hub.start().await?);
            }
        }
        let Place::Bucket(bucket) = &mut self.place else { return Ok(()) };
        if bucket.redis.id().is_none() {
            bucket.redis.restart().await?;
        }
        if bucket.s3.id().is_none() {
            bucket.s3.restart().await?;
        }
        Ok(())
    }

    async fn meet(&mut self, event: Event, traffic: &Traffic) -> Result<(), BenchError> {
        match event {
            Event::Kill(replica) => {
                if let Some(running) = self.running[replica].take() {
                    self.gone += cpu::seconds(running.id())?;
                }
                return Ok(());
            }
            Event::Start(replica) => {
                self.running[replica] = Some(self.hubs[replica].start().await?);
                return Ok(());
            }
            Event::Commit => {
                traffic.fleet.borrow_mut().commit("changed on the way")?;
                self.committed = Some(since_epoch());
                // What was published before is not it.
                traffic.sites.borrow_mut().seen_commit = None;
                return Ok(());
            }
            Event::Flush | Event::RedisDown | Event::RedisUp | Event::BucketDown | Event::BucketUp => {}
        }
        let Place::Bucket(bucket) = &mut self.place else { return Ok(()) };
        match event {
            Event::Flush => bucket.redis.flush_all().await?,
            Event::RedisDown => bucket.redis.stop(),
            Event::RedisUp => bucket.redis.restart().await?,
            Event::BucketDown => bucket.s3.stop(),
            Event::BucketUp => bucket.s3.restart().await?,
            Event::Kill(_) | Event::Start(_) | Event::Commit => {}
        }
        Ok(())
    }

    fn used(&self) -> Result<Used, BenchError> {
        let of = |id: Option<u32>| id.map_or(Ok(0.0), cpu::seconds);
        let mut hubs = self.gone;
        for running in self.running.iter().flatten() {
            hubs += cpu::seconds(running.id())?;
        }
        let (redis, s3) = match &self.place {
            Place::Bucket(bucket) => (of(bucket.redis.id())?, of(bucket.s3.id())?),
            Place::Disk(_) => (0.0, 0.0),
        };
        let publisher = of(self.publisher.as_ref().map(Process::id))?;
        Ok(Used { hubs, publisher, redis, s3, generator: cpu::own()? })
    }
}

impl Used {
    fn less(self, before: Self) -> Self {
        // A server that was started anew begins to count again.
        let less = |now: f64, before: f64| if now < before { now } else { now - before };
        Self {
            hubs: less(self.hubs, before.hubs),
            publisher: less(self.publisher, before.publisher),
            redis: less(self.redis, before.redis),
            s3: less(self.s3, before.s3),
            generator: less(self.generator, before.generator),
        }
    }
}

/// Says what happened, and whether the fleet was held.
fn tell(
    options: &Options,
    traffic: &Traffic,
    side: &Side,
    used: Used,
    unanswered: usize,
    lost: &[String],
) -> bool {
    let (tally, sites) = (traffic.tally.borrow(), traffic.sites.borrow());
    let seconds = float(options.seconds);
    println!(
        "{} clusters at {} s over {} connections and {} replicas, {} s",
        options.clusters, options.interval, options.connections, options.replicas, options.seconds
    );
    tell_traffic(&tally, seconds);
    let Used { hubs, publisher, redis, s3, generator } = used;
    println!(
        "CPU seconds: hub {hubs:.1} ({:.3} cores), publisher {publisher:.1}, Redis {redis:.1}, S3 {s3:.1}; load generator {generator:.1}",
        hubs / seconds
    );
    for (number, running) in side.running.iter().enumerate() {
        let memory = running.as_ref().and_then(|running| cpu::memory(running.id()).ok());
        println!("replica {number}: {} MiB resident", memory.map_or(0, |memory| memory.resident) >> 20);
    }
    println!(
        "late polls (over {} ms): {}; without an answer: {unanswered}; connections that broke: {}",
        LATE.as_millis(),
        tally.late,
        tally.broken
    );
    if let (Some(committed), Some(seen)) = (side.committed, sites.seen_commit) {
        println!("the commit was first seen after {:.2} s", seen.saturating_sub(committed).as_secs_f64());
    }
    if side.publisher.is_some() {
        let asked = traffic.fleet.borrow().fetches() - side.fetches;
        let lasted = options.warm_up + options.seconds;
        println!("the fleet repository was fetched {asked} times in {lasted} s; the interval is {INTERVAL}");
    }
    println!("reports acknowledged and not in the record: {}", lost.len());
    println!("wrong answers: {}", tally.wrong.len());
    lost.iter().chain(&tally.wrong).take(10).for_each(|what| println!("  {what}"));
    let is_right = tally.wrong.is_empty() && lost.is_empty() && unanswered == 0;
    is_right && tally.late == 0 && tally.polls() > 0 && tally.within(0.99) < HELD
}

fn tell_traffic(tally: &Tally, seconds: f64) {
    let per_second = |count: u64| float(count) / seconds;
    println!(
        "a second: {:.0} polls, {:.1} full fetches, {:.1} reports, {:.1} artifacts, {:.1} new passes, {:.1} told to come back",
        per_second(tally.polls()),
        per_second(tally.full),
        per_second(tally.statuses),
        per_second(tally.artifacts),
        per_second(tally.passes),
        per_second(tally.busy)
    );
    println!(
        "of the polls, {} brought documents, {} were asked to come less often",
        tally.changed, tally.stretched
    );
    println!(
        "polls: p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, max {:.2} ms; all else: p50 {:.2} ms, p99 {:.2} ms",
        tally.within(0.5),
        tally.within(0.99),
        tally.within(0.999),
        tally.within(1.0),
        tally.others_within(0.5),
        tally.others_within(0.99)
    );
}
