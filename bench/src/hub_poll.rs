//! `hub-poll`: how many polls that bring nothing new a CPU second of the server answers.
//!
//! Unit: requests per CPU second (user and kernel) of the server's processes. Yardstick: nginx, one worker,
//! `return 304`, asked by the same client over the same number of connections with the same headers.
//!
//! The hub has one thread that answers, as nginx has one worker (`--threads`), and knows `--clusters` clusters.
//! Of those, `--callers` poll, spread evenly over the fleet and in turn on every connection, as behind a load
//! balancer; each has called once before anything is counted, so that every pass has been verified, as in a hub
//! that runs. Every answer is checked: a 304 that names the tag that was sent. Rounds of hub and nginx alternate;
//! the figure is the median of each.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farshore_shared::clock;
use farshore_shared::pass;
use tokio::task::LocalSet;

use crate::cpu;
use crate::error::BenchError;
use crate::hub::{Certificate, Hub, Place};
use crate::load::poll::Caller;
use crate::load::{http1, http2, tls};
use crate::nginx::{self, Nginx, Prepared};
use crate::report::{Ratio, float, median};
use crate::seed::{Fleet, Recipe};

/// Polls without news per CPU second of the hub, beside nginx `return 304`
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Clusters that the hub knows
    #[arg(long, default_value_t = 1_000_000)]
    clusters: usize,
    /// Groups that they are in
    #[arg(long, default_value_t = 10)]
    groups: usize,
    /// Clusters that poll
    #[arg(long, default_value_t = 100_000)]
    callers: usize,
    /// Connections
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Seconds of one round
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Rounds of each server
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Threads of the hub that answer
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

/// How polls travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Road {
    Plain1,
    Plain2,
    Tls1,
    Tls2,
}

impl Road {
    fn name(self) -> &'static str {
        match self {
            Self::Plain1 => "HTTP/1.1, plain",
            Self::Tls1 => "HTTP/1.1, TLS 1.3",
            Self::Plain2 => "HTTP/2, plain",
            Self::Tls2 => "HTTP/2, TLS 1.3",
        }
    }
}

/// A server that is asked.
struct Asked {
    address: String,
    process: u32,
    /// Whether its answers name the tag.
    names_tag: bool,
}

/// What one round measured.
struct Round {
    answered: u64,
    seconds: f64,
    cpu: f64,
}

impl Round {
    fn per_cpu_second(&self) -> f64 {
        float(self.answered) / self.cpu.max(0.001)
    }
}

/// Measures.
///
/// # Errors
/// [`BenchError`].
pub(crate) async fn run(options: &Options) -> Result<Ratio, BenchError> {
    let Options { clusters, groups, callers, .. } = *options;
    let certificate = Certificate::new()?;
    let nginx = Prepared::with(&certificate)?;
    eprintln!("hub-poll: seeding {clusters} clusters in {groups} groups");
    let place = Place::disk()?;
    let stride = (clusters / callers.max(1)).max(1);
    let recipe = Recipe { clusters, groups, documented: &|_| false };
    let fleet = Fleet::seed(&place.objects().await?, &recipe).await?;
    let callers = Arc::new(sign(&fleet, stride, callers.min(clusters)));
    let nginx = nginx.start().await?;
    println!("{clusters} clusters in {groups} groups, {} of them poll; {}", callers.len(), nginx::version()?);
    let hub = || Ok::<_, BenchError>(Hub::serving(&place, "hub")?.without_limits().threads(options.threads));
    let (plain, secure) = (hub()?.plain(), hub()?.with(&certificate));
    let mut ratio = None;
    for (hub, roads) in [(&plain, [Road::Plain1, Road::Plain2]), (&secure, [Road::Tls1, Road::Tls2])] {
        // Two hubs cannot share a data folder.
        let began = Instant::now();
        let running = hub.start().await?;
        eprintln!("hub-poll: the hub listens after {:.2} s", began.elapsed().as_secs_f64());
        for road in roads {
            let hub = Asked { address: running.address().to_owned(), process: running.id(), names_tag: true };
            let measured = compare(options, road, (&hub, &theirs(&nginx, road)), &callers).await?;
            ratio.get_or_insert(measured);
        }
        let megabytes = cpu::memory(running.id())?.resident >> 20;
        println!("the hub has {megabytes} MiB resident");
    }
    let (ours, theirs) = ratio.expect("the first road was measured");
    Ok(Ratio { name: "hub-poll", ours, theirs })
}

fn theirs(nginx: &Nginx, road: Road) -> Asked {
    let address = match road {
        Road::Plain1 => nginx.plain1(),
        Road::Plain2 => nginx.plain2(),
        Road::Tls1 | Road::Tls2 => nginx.tls(),
    };
    Asked { address, process: nginx.id(), names_tag: false }
}

/// Passes of clusters at even distances, on all cores.
fn sign(fleet: &Fleet, stride: usize, count: usize) -> Vec<Caller> {
    let now = clock::now();
    let one = |n: usize| Caller {
        pass: pass::issue(fleet.key(n), &fleet.name(n), fleet.id, now),
        holds: fleet.tag(n).to_string(),
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let share = count.div_ceil(workers).max(1);
    std::thread::scope(|scope| {
        let numbers: Vec<usize> = (0..count).map(|n| n * stride).collect();
        let parts: Vec<_> = numbers
            .chunks(share)
            .map(|part| part.to_vec())
            .map(|part| scope.spawn(move || part.into_iter().map(one).collect::<Vec<_>>()))
            .collect();
        parts.into_iter().flat_map(|part| part.join().expect("signing does not panic")).collect()
    })
}

async fn compare(
    options: &Options,
    road: Road,
    (hub, nginx): (&Asked, &Asked),
    callers: &Arc<Vec<Caller>>,
) -> Result<(f64, f64), BenchError> {
    // Everybody once: a pass is verified when it is seen first.
    let everybody = Until::Asked(callers.len() as u64);
    let warm = round(options, road, hub, callers, everybody).await?;
    eprintln!(
        "hub-poll: {}: {} first calls took {:.1} CPU s of the hub",
        road.name(),
        warm.answered,
        warm.cpu
    );
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let until = Until::Passed(Duration::from_secs(options.seconds));
    for number in 1..=options.runs {
        for (asked, all) in [(hub, &mut ours), (nginx, &mut theirs)] {
            let round = round(options, road, asked, callers, until).await?;
            eprintln!(
                "hub-poll: {}, round {number}, {}: {:.0} requests a second, {:.2} cores, {:.0} per CPU second",
                road.name(),
                if asked.names_tag { "hub" } else { "nginx" },
                float(round.answered) / round.seconds,
                round.cpu / round.seconds,
                round.per_cpu_second()
            );
            all.push(round.per_cpu_second());
        }
    }
    let (ours, theirs) = (median(&ours), median(&theirs));
    println!(
        "{:18} hub {ours:.0}, nginx {theirs:.0} requests per CPU second: {:.3}",
        road.name(),
        ours / theirs
    );
    Ok((ours, theirs))
}

#[derive(Debug, Clone, Copy)]
enum Until {
    Asked(u64),
    Passed(Duration),
}

/// What the connections of one round share.
struct Shared {
    callers: Arc<Vec<Caller>>,
    next: Cell<usize>,
    answered: Cell<u64>,
    most: u64,
    is_over: Cell<bool>,
    wrong: Cell<Option<String>>,
}

async fn round(
    options: &Options,
    road: Road,
    asked: &Asked,
    callers: &Arc<Vec<Caller>>,
    until: Until,
) -> Result<Round, BenchError> {
    let shared = Rc::new(Shared {
        callers: Arc::clone(callers),
        next: Cell::new(0),
        answered: Cell::new(0),
        most: if let Until::Asked(most) = until { most } else { u64::MAX },
        is_over: Cell::new(false),
        wrong: Cell::new(None),
    });
    let local = LocalSet::new();
    let measured = local.run_until(async {
        let first = Reading::of(asked, &shared)?;
        let mut connections = Vec::new();
        for _ in 0..options.connections {
            let connection = Connection::open(road, &asked.address).await?;
            let (shared, names_tag) = (Rc::clone(&shared), asked.names_tag);
            connections.push(tokio::task::spawn_local(connection.go_on(shared, names_tag)));
        }
        let counted = match until {
            Until::Asked(_) => None,
            Until::Passed(time) => {
                // Until all connections are busy.
                tokio::time::sleep(Duration::from_millis(500)).await;
                let begun = Reading::of(asked, &shared)?;
                tokio::time::sleep(time).await;
                let counted = begun.until(Reading::of(asked, &shared)?);
                shared.is_over.set(true);
                Some(counted)
            }
        };
        for connection in connections {
            connection.await.expect("a connection does not panic");
        }
        let all = first.until(Reading::of(asked, &shared)?);
        Ok::<_, BenchError>(counted.unwrap_or(all))
    });
    let measured = measured.await?;
    match shared.wrong.take() {
        None => Ok(measured),
        Some(wrong) => Err(BenchError::Wrong(wrong)),
    }
}

/// How far a round is.
struct Reading {
    at: Instant,
    cpu: f64,
    answered: u64,
}

impl Reading {
    fn of(asked: &Asked, shared: &Shared) -> Result<Self, BenchError> {
        Ok(Self { at: Instant::now(), cpu: cpu::seconds(asked.process)?, answered: shared.answered.get() })
    }

    fn until(&self, later: Self) -> Round {
        Round {
            answered: later.answered - self.answered,
            seconds: (later.at - self.at).as_secs_f64(),
            cpu: later.cpu - self.cpu,
        }
    }
}

enum Connection {
    Plain1(http1::Line<tokio::net::TcpStream>),
    Tls1(Box<http1::Line<tokio_rustls::client::TlsStream<tokio::net::TcpStream>>>),
    Two(http2::Line),
}

impl Connection {
    async fn open(road: Road, address: &str) -> Result<Self, BenchError> {
        Ok(match road {
            Road::Plain1 => Self::Plain1(http1::Line::new(http1::tcp(address).await?)),
            Road::Tls1 => Self::Tls1(Box::new(http1::Line::new(tls::connect(address, b"http/1.1").await?))),
            Road::Plain2 => Self::Two(http2::Line::new(http1::tcp(address).await?).await?),
            Road::Tls2 => Self::Two(http2::Line::new(tls::connect(address, b"h2").await?).await?),
        })
    }

    /// Polls for one cluster after the other until the round is over.
    async fn go_on(mut self, shared: Rc<Shared>, names_tag: bool) {
        while !shared.is_over.get() {
            let number = shared.next.get();
            if number as u64 >= shared.most {
                return;
            }
            shared.next.set(number + 1);
            let caller = &shared.callers[number % shared.callers.len()];
            let said = match self.poll(caller).await {
                Ok((304, tag)) if !names_tag || tag.as_deref() == Some(caller.holds.as_str()) => None,
                Ok((status, tag)) => Some(format!("status {status}, tag {tag:?} to {}", caller.holds)),
                Err(error) => Some(farshore_shared::exit::chain(&error)),
            };
            if said.is_some() {
                shared.wrong.set(said);
                shared.is_over.set(true);
                return;
            }
            shared.answered.set(shared.answered.get() + 1);
        }
    }

    async fn poll(&mut self, caller: &Caller) -> Result<(u16, Option<String>), BenchError> {
        let answer = match self {
            Self::Plain1(line) => line.ask(&caller.http1("localhost")).await,
            Self::Tls1(line) => line.ask(&caller.http1("localhost")).await,
            Self::Two(line) => return line.poll(caller).await,
        };
        let answer = answer.map_err(BenchError::io("polling"))?;
        let tag = answer.header(farshore_shared::wire::TAG_HEADER).map(str::to_owned);
        Ok((answer.status, tag))
    }
}
