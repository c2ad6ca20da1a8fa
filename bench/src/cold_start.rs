//! `cold-start`: how long a hub takes from the start of its process to the first correct answer.
//!
//! Unit: milliseconds, until a cluster that polls for the first time is told 304 with its tag: the pass is
//! verified, trust root, registration, roster, table and group are read from the record. (a) the record on disk,
//! the index in memory; (b) the record in a bucket of a real S3 API, the index in a real Redis. Yardstick: nginx
//! `return 304`. All answer plain HTTP/1.1; the client tries to connect every millisecond. Runs alternate; the figure is
//! the median, and the last line is about (a).

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use farshore_shared::clock;
use farshore_shared::pass;
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpStream;

use crate::error::BenchError;
use crate::hub::{Certificate, Hub, Place};
use crate::load::http1::Line;
use crate::load::poll::Caller;
use crate::nginx::Prepared;
use crate::report::{Ratio, median};
use crate::seed::{Fleet, Recipe};

/// Milliseconds from the hub's start to its first correct answer, beside nginx
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Clusters in the record
    #[arg(long, default_value_t = 1000)]
    clusters: usize,
    /// Starts of each
    #[arg(long, default_value_t = 21)]
    runs: usize,
}

/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(1);
/// After which a start has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that ends with its value.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        // nginx's worker ends with its master only if that is asked to end. One that has ended is as good.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        drop(self.0.wait());
    }
}

/// What is started, and who asks it.
struct Contender {
    name: &'static str,
    address: String,
    command: Command,
    caller: Caller,
    names_tag: bool,
    times: Vec<f64>,
}

/// Measures.
///
/// # Errors
/// [`BenchError`].
pub(crate) async fn run(options: &Options) -> Result<Ratio, BenchError> {
    let recipe = Recipe { clusters: options.clusters, groups: 1, documented: &|n| n == 1 };
    let (disk, bucket) = (Place::disk()?, Place::bucket().await?);
    let on_disk = Fleet::seed(&disk.objects().await?, &recipe).await?;
    let in_bucket = Fleet::seed(&bucket.objects().await?, &recipe).await?;
    let certificate = Certificate::new()?;
    let nginx = Prepared::with(&certificate)?;
    let hub = |name, place: &Place, fleet: &Fleet| {
        let hub = Hub::serving(place, "hub")?.plain();
        let (address, command) = (hub.address(), hub.command()?);
        // The hub holds its port for as long as it is measured.
        Ok::<_, BenchError>((
            Contender { name, address, command, caller: caller(fleet), names_tag: true, times: vec![] },
            hub,
        ))
    };
    let (first, _port_of_first) = hub("hub, disk", &disk, &on_disk)?;
    let (second, _port_of_second) = hub("hub, Redis and S3", &bucket, &in_bucket)?;
    let theirs = Contender {
        name: "nginx",
        address: nginx.plain(),
        command: nginx.command(),
        caller: caller(&on_disk),
        names_tag: false,
        times: vec![],
    };
    let mut all = [first, second, theirs];
    for number in 1..=options.runs {
        for contender in &mut all {
            let time = contender.start().await?;
            contender.times.push(time);
        }
        eprintln!("cold-start: {number} of {}", options.runs);
    }
    for Contender { name, times, .. } in &all {
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        let most = times.iter().copied().fold(0.0, f64::max);
        println!("{name:18} median {:.2} ms, {least:.2} to {most:.2}", median(times));
    }
    Ok(Ratio { name: "cold-start", ours: median(&all[0].times), theirs: median(&all[2].times) })
}

fn caller(fleet: &Fleet) -> Caller {
    let pass = pass::issue(fleet.key(1), &fleet.name(1), fleet.id, clock::now());
    Caller { pass, holds: fleet.tag(1).to_string() }
}

impl Contender {
    /// Milliseconds from the start to the first correct answer.
    async fn start(&mut self) -> Result<f64, BenchError> {
        self.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let began = Instant::now();
        let child = self.command.spawn().map_err(BenchError::io(format!("starting {}", self.name)))?;
        let mut started = Started(child);
        let mut last = "nobody listens".to_owned();
        while began.elapsed() < PATIENCE {
            if let Ok(stream) = TcpStream::connect(&self.address).await {
                match Line::new(stream).ask(&self.caller.http1("localhost")).await {
                    Ok(answer) if answer.status == 304 => {
                        let took = began.elapsed().as_secs_f64() * 1000.0;
                        let tag = answer.header(farshore_shared::wire::TAG_HEADER);
                        if self.names_tag && tag != Some(self.caller.holds.as_str()) {
                            return Err(BenchError::Wrong(format!("304 with tag {tag:?}")));
                        }
                        return Ok(took);
                    }
                    Ok(answer) => last = format!("status {}", answer.status),
                    Err(error) => last = error.to_string(),
                }
            }
            if let Some(status) = started.0.try_wait().map_err(BenchError::io("watching a process"))? {
                return Err(BenchError::Failed { program: self.name.to_owned(), said: status.to_string() });
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(BenchError::Failed { program: self.name.to_owned(), said: format!("no answer in time: {last}") })
    }
}
