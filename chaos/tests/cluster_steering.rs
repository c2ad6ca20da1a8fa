//! How much an agent asks of its cluster is steered from the fleet repository, while it runs and with its hub gone; what
//! its site says wins.

use std::time::{Duration, Instant};

use farshore_chaos::kit::{AuditMark, KitError, Process, wait_for};
use farshore_chaos::world::declare::config_map;
use farshore_chaos::world::{Place, SharedCluster};
use farshore_shared::wire::ServiceState;
use serde_json::{Value, json};

static CLUSTER: SharedCluster = SharedCluster::new();

/// Longer, and it does not happen.
const SOON: Duration = Duration::from_secs(90);
/// Objects of the service.
const COUNT: usize = 24;

fn declared(kind: &str, name: &str, footprint: &str) -> String {
    format!(
        "apiVersion: farshore.dev/v1alpha1\nkind: {kind}\nmetadata: {{ name: {name} }}\nspec: {{ footprint: {footprint} }}\n"
    )
}

fn manifests(value: &str) -> Vec<(String, String)> {
    let manifest = |n| (format!("manifests/{n}.yaml"), config_map(&format!("c{n}"), value));
    (0..COUNT).map(manifest).collect()
}

/// Returns when the site shows this of its footprint, by a program that has nothing but the state folder.
async fn until_shown(place: &Place, wanted: Value) -> Result<(), KitError> {
    let state = format!("--state={}", place.site.state().display());
    wait_for(&format!("the site to show {wanted}"), SOON, async || {
        let asked = Process::run("farshore-agent", ["status", "--output=json", &state], SOON).await;
        let asked = asked.map_err(|error| error.to_string())?;
        let shown: Value = serde_json::from_str(&asked.stdout).map_err(|error| error.to_string())?;
        let shown = &shown["footprint"];
        let fields = wanted.as_object().expect("it is written so above");
        let is_so = fields.iter().all(|(field, wanted)| shown[field] == *wanted);
        if is_so { Ok(()) } else { Err(shown.to_string()) }
    })
    .await
}

/// How long the agent took from its first write since then to its last one.
async fn took(place: &Place, since: AuditMark) -> Result<Duration, KitError> {
    let until = async |count: usize| {
        wait_for(&format!("{count} writes"), SOON, async || {
            let writes = place.writes(since).map_err(|error| error.to_string())?.len();
            if writes >= count { Ok(Instant::now()) } else { Err(format!("there are {writes}")) }
        })
        .await
    };
    let first = until(1).await?;
    Ok(until(COUNT).await? - first)
}

/// Returns when the agent has looked at everything so often since then.
async fn until_swept(place: &Place, since: AuditMark, times: usize) -> Result<(), KitError> {
    wait_for(&format!("{times} looks at everything"), SOON, async || {
        let mut reads = place.kubernetes.audit_reads_since(since).map_err(|error| error.to_string())?;
        reads.retain(|read| read.user_agent.starts_with("farshore-agent/") && read.uri == "/readyz");
        if reads.len() >= times { Ok(()) } else { Err(format!("there were {}", reads.len())) }
    })
    .await
}

/// What holds for all is said, and an agent that runs asks for no more from then on.
async fn the_fleet_speaks(place: &mut Place) -> Result<String, KitError> {
    let of_all = declared("Fleet", "shops", "{ inFlight: 3, qps: 2, processMemory: 512Mi }");
    place.declare("", &of_all)?;
    let shown = json!({
        "inFlight": {"value": 3, "from": "fleet"}, "qps": {"value": 2, "from": "fleet"},
        "processMemory": {"value": 512 << 20, "from": "fleet"},
    });
    until_shown(place, shown).await?;
    let mark = place.kubernetes.audit_mark()?;
    let files = manifests("2");
    let files: Vec<(&str, &str)> = files.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
    let commit = place.world.app.commit(&files)?;
    let took = took(place, mark).await?;
    // What was not used for a second may go at once: the rest takes half a second each.
    assert!(took > Duration::from_secs(7), "{COUNT} writes took {took:?} at two a second");
    place.until_commit(&commit).await?;
    Ok(of_all)
}

/// What is said of the one cluster counts before what is said of all, value by value.
async fn the_fleet_speaks_of_this_cluster(place: &mut Place, of_all: &str) -> Result<Value, KitError> {
    let of_one = declared("Cluster", "steered", "{ qps: 500, sweep: 5s }");
    place.declare("", &format!("{of_all}---\n{of_one}"))?;
    let shown = json!({
        "inFlight": {"value": 3, "from": "fleet"}, "qps": {"value": 500, "from": "cluster"},
        "sweepSeconds": {"value": 5, "from": "cluster"},
        "processMemory": {"value": 512 << 20, "from": "fleet"},
    });
    until_shown(place, shown.clone()).await?;
    // By the default there would be none for ten minutes.
    until_swept(place, place.kubernetes.audit_mark()?, 3).await?;
    Ok(shown)
}

/// As after a power cut; what was shown before it is gone.
async fn restarted(place: &mut Place) -> Result<(), KitError> {
    place.site.kill()?;
    let told = place.site.state().join("local/status.json");
    std::fs::remove_file(&told).expect("the agent has told");
    place.site.start().await
}

#[tokio::test]
async fn a_commit_steers_an_agent_that_runs_also_after_its_hub_is_gone_and_its_site_wins()
-> Result<(), KitError> {
    let files = manifests("1");
    let files: Vec<(&str, &str)> =
        files.iter().map(|(file, text)| (file.trim_start_matches("manifests/"), text.as_str())).collect();
    let mut place = Place::of(CLUSTER.get().await?, "steered", "", &files).await?;
    place.site = place.site.without("--sweep");
    let mut place = place.started().await?;
    place.until_state(ServiceState::Applied).await?;
    let nobody = json!({
        "inFlight": {"value": 32, "from": "default"}, "qps": {"value": null, "from": "default"},
        "processMemory": {"value": 1 << 30, "from": "default"},
    });
    until_shown(&place, nobody).await?;
    let process = place.site.process().id();
    let of_all = the_fleet_speaks(&mut place).await?;
    let mut shown = the_fleet_speaks_of_this_cluster(&mut place, &of_all).await?;
    assert_eq!(place.site.process().id(), process, "it was steered without a restart");
    place.world.hub.kill()?;
    restarted(&mut place).await?;
    until_shown(&place, shown.clone()).await?;
    until_swept(&place, place.kubernetes.audit_mark()?, 2).await?;
    let mut place = place.option("--qps=7").option("--sweep=1h");
    restarted(&mut place).await?;
    shown["qps"] = json!({"value": 7, "from": "site"});
    shown["sweepSeconds"] = json!({"value": 3600, "from": "site"});
    until_shown(&place, shown).await
}
