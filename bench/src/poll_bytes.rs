//! `poll-bytes`: what a steady poll costs on the wire.
//!
//! Unit: bytes of the TCP payload, both ways, TLS records and HTTP/2 frames and all, for one poll that brings
//! nothing new. It is the mean over a connection of `--polls` polls in which the pass is renewed as often as
//! at a site: a pass is used for half of its life of 3,600 s, and a site polls every 120 s, so that each 15th poll
//! carries a new one. Polls are a second apart, so that each answer has a date of its own. Reported apart: the handshake with the first poll, and the poll that carries a new pass.
//!
//! Ours: the agent's own client against a hub over TLS 1.3 and HTTP/2. Yardstick: the same polls by
//! `curl --http2` on one connection, with the standard headers (`authorization`, `if-none-match`), to the
//! same hub, with as many passes. Both pass a proxy that counts.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use farshore_agent::hub::{Caller, DesiredAnswer, HubClient, HubUrl, PATIENCE, Trust};
use farshore_agent::store::{Keys, SealingKey};
use farshore_chaos::kit::{TcpProxy, wait_for};
use farshore_shared::clock;
use farshore_shared::keys::{Secret, SigningKey};
use farshore_shared::pass;

use crate::error::BenchError;
use crate::hub::{Certificate, Hub, Place};
use crate::report::{Ratio, float};
use crate::seed::{Fleet, Recipe};

/// Bytes of a poll without news, beside curl over HTTP/2
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Polls that are counted, after the first
    #[arg(long, default_value_t = 60)]
    polls: u32,
    /// Each so many polls the pass is a new one
    #[arg(long, default_value_t = 15)]
    renew: u32,
}

/// Which cluster polls.
const CLUSTER: usize = 1;

/// What a connection cost.
struct Cost {
    first: u64,
    steady: Vec<u64>,
    renewals: Vec<u64>,
}

/// Measures.
///
/// # Errors
/// [`BenchError`].
pub(crate) async fn run(options: &Options) -> Result<Ratio, BenchError> {
    let place = Place::disk()?;
    let recipe = Recipe { clusters: 10, groups: 1, documented: &|_| true };
    let fleet = Fleet::seed(&place.objects().await?, &recipe).await?;
    let certificate = Certificate::new()?;
    let hub = Hub::serving(&place, "hub")?.with(&certificate).without_limits().start().await?;
    let proxy = TcpProxy::start(hub.address()).await?;
    let client = client(&fleet, &certificate, &proxy)?;
    let ours = by_agent(client, &fleet, &proxy, options).await?;
    let (all, count) = (ours.steady.iter().chain(&ours.renewals), ours.steady.len() + ours.renewals.len());
    let mean = float(all.sum()) / float(count as u64);
    println!("agent: handshake and first poll {} bytes", ours.first);
    println!("agent: {} polls, of them {} with a new pass", count, ours.renewals.len());
    println!("agent: {} without a new pass, {} with one", spread(&ours.steady), spread(&ours.renewals));
    let theirs = by_curl(&fleet, &proxy, options).await?;
    Ok(Ratio { name: "poll-bytes", ours: mean, theirs })
}

fn spread(bytes: &[u64]) -> String {
    match (bytes.iter().min(), bytes.iter().max()) {
        (Some(least), Some(most)) if least == most => format!("{least} bytes"),
        (Some(least), Some(most)) => format!("{least} to {most} bytes"),
        _ => "none".to_owned(),
    }
}

fn client(fleet: &Fleet, certificate: &Certificate, proxy: &TcpProxy) -> Result<HubClient, BenchError> {
    let file = fleet.key(CLUSTER).to_file();
    let signing = SigningKey::from_file(&file).map_err(BenchError::ours("copying a key"))?;
    let sealing = SealingKey::from_secret(Secret::random());
    let keys = Arc::new(Keys { cluster: fleet.name(CLUSTER), signing, sealing });
    let url: HubUrl =
        format!("https://{}", proxy.address()).parse().map_err(BenchError::ours("naming the hub"))?;
    let trust = Trust::Pinned(vec![certificate.pin()?]);
    let caller = Caller { keys, fleet: fleet.id };
    HubClient::new(url, &trust, Some(caller), PATIENCE)
        .map_err(BenchError::ours("preparing the agent's client"))
}

async fn by_agent(
    mut client: HubClient,
    fleet: &Fleet,
    proxy: &TcpProxy,
    options: &Options,
) -> Result<Cost, BenchError> {
    let tag = fleet.tag(CLUSTER).to_string();
    let mut cost = Cost { first: 0, steady: Vec::new(), renewals: Vec::new() };
    for number in 0..=options.polls {
        let is_renewal = number > 0 && number % options.renew == 0;
        next_second().await?;
        if is_renewal {
            client.renew_pass();
        }
        let before = passed(proxy).await?;
        let heard = client.desired(Some(&tag)).await.map_err(BenchError::ours("polling"))?;
        if !matches!(heard.answer, DesiredAnswer::NotModified { behind: false }) {
            return Err(BenchError::Wrong(format!("the hub answered {:?}", heard.answer)));
        }
        let bytes = passed(proxy).await? - before;
        match number {
            0 => cost.first = bytes,
            _ if is_renewal => cost.renewals.push(bytes),
            _ => cost.steady.push(bytes),
        }
    }
    if proxy.connections() != 1 {
        return Err(BenchError::Wrong(format!("{} connections instead of one", proxy.connections())));
    }
    Ok(cost)
}

/// A site's polls are two minutes apart: each answer has another `Date`, and no pass is as old as another.
async fn next_second() -> Result<(), BenchError> {
    let now = clock::now();
    let waited = wait_for("the next second", Duration::from_secs(3), async || match clock::now() {
        later if later > now => Ok(()),
        _ => Err("it is the same second".to_owned()),
    });
    Ok(waited.await?)
}

/// Bytes both ways, once nothing has moved for a while: settings and window updates come behind an answer.
async fn passed(proxy: &TcpProxy) -> Result<u64, BenchError> {
    let mut last = u64::MAX;
    let mut same = 0;
    Ok(wait_for("the connection to be quiet", Duration::from_secs(10), async || {
        let now = proxy.bytes_to_server() + proxy.bytes_to_client();
        same = if now == last { same + 1 } else { 0 };
        last = now;
        if same >= 4 { Ok(now) } else { Err(format!("{now} bytes, and counting")) }
    })
    .await?)
}

/// The same number of polls in one process of curl, less one that polls once.
async fn by_curl(fleet: &Fleet, proxy: &TcpProxy, options: &Options) -> Result<f64, BenchError> {
    let first = curl(fleet, proxy, 1, options.renew).await?;
    let all = curl(fleet, proxy, options.polls + 1, options.renew).await?;
    println!("curl:  handshake and first poll {first} bytes");
    Ok(float(all - first) / f64::from(options.polls))
}

async fn curl(fleet: &Fleet, proxy: &TcpProxy, polls: u32, renew: u32) -> Result<u64, BenchError> {
    let folder = tempfile::TempDir::new().map_err(BenchError::io("making a folder"))?;
    let config: PathBuf = folder.path().join("curl.config");
    std::fs::write(&config, script(fleet, proxy, polls, renew))
        .map_err(BenchError::io("writing curl's config"))?;
    let (before, connections) = (passed(proxy).await?, proxy.connections());
    let mut command = Command::new("curl");
    command.arg("--config").arg(&config);
    let ran =
        tokio::task::spawn_blocking(move || command.output()).await.expect("running curl does not panic");
    let output = ran.map_err(BenchError::io("starting curl (is it installed?)"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let good = said.lines().filter(|line| *line == "304 2").count();
    if !output.status.success() || good != polls as usize || proxy.connections() != connections + 1 {
        let said = format!("{good} of {polls} answers are 304 over HTTP/2 on one connection: {said}");
        return Err(BenchError::Failed { program: "curl".to_owned(), said });
    }
    Ok(passed(proxy).await? - before)
}

/// One block for each poll. curl keeps its connection from block to block.
fn script(fleet: &Fleet, proxy: &TcpProxy, polls: u32, renew: u32) -> String {
    let tag = fleet.tag(CLUSTER).to_string().replace('"', "\\\"");
    let now = clock::now();
    let block = |number: u32| {
        let issued = now - 60 + u64::from(number / renew);
        let pass = pass::issue(fleet.key(CLUSTER), &fleet.name(CLUSTER), fleet.id, issued);
        format!(
            "http2\ninsecure\nsilent\nwrite-out = \"%{{http_code}} %{{http_version}}\\n\"\n\
             header = \"authorization: Bearer {pass}\"\nheader = \"if-none-match: {tag}\"\n\
             header = \"accept-encoding: zstd\"\nurl = \"https://{}/v1/desired\"\n",
            proxy.address()
        )
    };
    // Of the whole run, wherever it stands.
    let pace = "rate = \"1/s\"\n".to_owned();
    pace + &(0..polls).map(block).collect::<Vec<_>>().join("next\n")
}
