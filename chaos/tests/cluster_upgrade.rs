//! The agent as a service of itself, against a real Kubernetes API: controllers roll out the Deployment that is
//! shipped, and the test is the kubelet of its Pods. It runs their containers as processes.

use std::collections::BTreeMap;
use std::time::Duration;

use farshore_chaos::kit::{Finished, KitError, Kubernetes, Port, Process, wait_for};
use farshore_chaos::world::declare::config_map;
use farshore_chaos::world::{Place, SharedCluster};
use farshore_shared::wire::{ServiceState, ServiceStatus};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const SOON: Duration = Duration::from_secs(120);
const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/kubernetes/agent.yaml");
/// The namespace of what is shipped.
const NAMESPACE: &str = "--namespace=farshore";

static CLUSTER: SharedCluster = SharedCluster::with_controllers();

/// The kubelet of the node that has the state folder.
struct Node<'a> {
    kubernetes: &'a Kubernetes,
    /// What Pods find on this node in place of files and addresses of their own.
    given: BTreeMap<String, String>,
    pods: BTreeMap<String, Pod>,
    /// The images of Pods whose init container failed, and how it did.
    failed: Vec<(String, Finished)>,
    /// The exit codes of containers that were told to end.
    ended: Vec<Option<i32>>,
}

struct Pod {
    image: String,
    page: Port,
    agent: Process,
    is_ready: bool,
}

impl<'a> Node<'a> {
    fn new(kubernetes: &'a Kubernetes, given: &[(&str, String)]) -> Self {
        let given = given.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Self { kubernetes, given, pods: BTreeMap::new(), failed: Vec::new(), ended: Vec::new() }
    }

    /// Brings the node to what the API has: ends the containers of Pods that are gone, starts those of new ones, and
    /// tells of those that are ready.
    async fn look(&mut self) -> Result<(), KitError> {
        let pods = self.get(&["pods", "--selector=app=farshore-agent"])?;
        let pods: BTreeMap<String, Value> = pods["items"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|pod| (text(&pod["metadata"]["name"]), pod["spec"].clone()))
            .collect();
        let gone: Vec<String> = self.pods.keys().filter(|name| !pods.contains_key(*name)).cloned().collect();
        for name in gone {
            let mut pod = self.pods.remove(&name).expect("it was just there");
            pod.agent.terminate()?;
            self.ended.push(pod.agent.wait_with_deadline(Duration::from_secs(10)).await?.code());
        }
        for (name, spec) in &pods {
            if !self.pods.contains_key(name) {
                self.begin(name, spec).await?;
            }
        }
        for (name, pod) in &mut self.pods {
            if !pod.is_ready && is_ready(&pod.page).await {
                report(self.kubernetes, name)?;
                pod.is_ready = true;
            }
        }
        Ok(())
    }

    async fn begin(&mut self, name: &str, spec: &Value) -> Result<(), KitError> {
        let (init, container) = (&spec["initContainers"][0], &spec["containers"][0]);
        let page = Port::take()?;
        let proof = self.start(init, &page)?.output(SOON).await?;
        if proof.status.code() != Some(0) {
            self.failed.push((text(&container["image"]), proof));
            return Ok(());
        }
        let agent = self.start(container, &page)?;
        self.pods
            .insert(name.to_owned(), Pod { image: text(&container["image"]), page, agent, is_ready: false });
        Ok(())
    }

    fn start(&self, container: &Value, page: &Port) -> Result<Process, KitError> {
        let mut variables = BTreeMap::new();
        for from in container["envFrom"].as_array().into_iter().flatten() {
            let (kind, reference) = match &from["configMapRef"] {
                Value::Null => ("secret", &from["secretRef"]),
                map => ("configmap", map),
            };
            let object = self.get(&[kind, &text(&reference["name"])])?;
            for (name, value) in object["data"].as_object().into_iter().flatten() {
                // The Secret's value is given by the node: it would have to be decoded, and is the same.
                variables.insert(name.clone(), text(value));
            }
        }
        variables.extend(self.given.clone());
        for variable in container["env"].as_array().into_iter().flatten() {
            variables.insert(text(&variable["name"]), text(&variable["value"]));
        }
        // A Pod has an address of its own.
        variables.insert("FARSHORE_STATUS_ADDRESS".to_owned(), page.address());
        let arguments = container["args"].as_array().into_iter().flatten().map(text);
        let variables = variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        Process::start_with("farshore-agent", arguments, variables)
    }

    fn get(&self, what: &[&str]) -> Result<Value, KitError> {
        let arguments = [&["get", NAMESPACE, "--output=json"], what].concat();
        Ok(serde_json::from_str(&self.kubernetes.kubectl(&arguments)?).expect("kubectl prints JSON"))
    }

    /// Looks again and again until it is so.
    async fn until(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), KitError> {
        let mut looked = Ok(());
        wait_for(what, SOON, async || {
            looked = self.look().await;
            match &looked {
                Ok(()) => is_so(self),
                Err(error) => Err(error.to_string()),
            }
        })
        .await
    }

    /// Of the Pods, once all of them are ready.
    fn images(&self) -> Vec<&str> {
        if self.pods.values().any(|pod| !pod.is_ready) {
            return Vec::new();
        }
        self.pods.values().map(|pod| pod.image.as_str()).collect()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What the readiness probe of the container asks.
async fn is_ready(page: &Port) -> bool {
    let asked = async {
        let mut stream = TcpStream::connect(page.address()).await?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.map(|_length| answer)
    };
    asked.await.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

fn report(kubernetes: &Kubernetes, pod: &str) -> Result<(), KitError> {
    let conditions = ["Ready", "ContainersReady", "PodScheduled", "Initialized"]
        .map(|kind| json!({"type": kind, "status": "True"}));
    let ready = json!({"status": {"phase": "Running", "startTime": "2026-11-21T09:00:00Z",
        "conditions": conditions,
        "containerStatuses": [{"name": "agent", "image": "a", "imageID": "a", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": "2026-11-21T09:00:00Z"}}}]}});
    let patch = ready.to_string();
    kubernetes.kubectl(&[
        "patch",
        "pod",
        pod,
        NAMESPACE,
        "--subresource=status",
        "--type=merge",
        "--patch",
        &patch,
    ])?;
    Ok(())
}

/// What is shipped, without what an operator puts in once and Git shall not have.
fn shipped(site: &Place, image: &str, variables: &str) -> String {
    let hub = format!("https://{}", site.world.hub.address());
    let state = site.site.state().display().to_string();
    let text = std::fs::read_to_string(SHIPPED).expect("it is shipped");
    let text = text
        .replace("https://hub.example:8443", &hub)
        .replace("shop-7", site.name)
        .replace("/var/lib/farshore/state", &state)
        .replace("farshore-agent:0.1.0", image)
        .replace("          envFrom:", &format!("          env: [{variables}]\n          envFrom:"));
    let documents: Vec<&str> = text.split("\n---\n").filter(|text| !text.contains("kind: Secret")).collect();
    documents.join("\n---\n")
}

/// Joins the Deployment to the site's state folder, as an operator does it once by hand.
fn ship(site: &Place) -> Result<(), KitError> {
    let kubernetes = &site.kubernetes;
    kubernetes.kubectl_with_input(&["apply", "--filename=-"], &shipped(site, "farshore-agent:0.1.0", ""))?;
    kubernetes.kubectl(&["create", "secret", "generic", "farshore-join", NAMESPACE])?;
    // What its services need comes on top: here they are whatever the test commits.
    let to = "--serviceaccount=farshore:agent";
    let all = "--clusterrole=cluster-admin";
    kubernetes.kubectl(&["create", "clusterrolebinding", "farshore-agent-services", all, to])?;
    Ok(())
}

/// Returns when the Pods of this image are ready, and no others are there.
async fn until_alone(node: &mut Node<'_>, image: &str) -> Result<(), KitError> {
    node.until(&format!("{image} alone"), |node| match node.images() == [image] {
        true => Ok(()),
        false => Err(format!("{:?}", node.images())),
    })
    .await
}

/// Its own Deployment comes from Git from now on, and nothing is restarted for that.
async fn adopt(site: &mut Place, node: &mut Node<'_>) -> Result<(), KitError> {
    let adopted = site.world.commit(&[("agent.yaml", &shipped(site, "farshore-agent:0.1.0", ""))])?;
    let adopted = site.until_commit(&adopted).await?;
    assert!(adopted.objects > 2 && adopted.failures.is_empty(), "{adopted:?}");
    node.look().await?;
    assert_eq!((node.images(), node.ended.len()), (vec!["farshore-agent:0.1.0"], 0), "nothing was restarted");
    Ok(())
}

/// A version that would not reach its hub. The old one goes on, and takes the revision back.
async fn break_and_take_back(site: &mut Place, node: &mut Node<'_>) -> Result<(), KitError> {
    let first = node.pods.values().next().map(|pod| pod.agent.id());
    let deaf = "{ name: FARSHORE_HUB, value: \"https://127.0.0.1:1\" }";
    let broken = site.world.commit(&[("agent.yaml", &shipped(site, "farshore-agent:0.2.0", deaf))])?;
    node.until("the proof to fail", |node| match node.failed.is_empty() {
        true => Err("not yet".to_owned()),
        false => Ok(()),
    })
    .await?;
    let (image, proof) = node.failed[0].clone();
    assert_eq!((image.as_str(), proof.status.code()), ("farshore-agent:0.2.0", Some(5)), "{proof:?}");
    assert!(proof.stdout.contains("failed  hub: "), "{proof:?}");
    let is_given_up = |status: &ServiceStatus| {
        status.failed_revision.as_ref().is_some_and(|failed| failed.commit == broken)
    };
    assert_eq!(site.until_service("given up", is_given_up).await?.state, ServiceState::Failed);
    node.until("the Deployment to be as before", |node| {
        let deployment = node.get(&["deployment", "farshore-agent"]).map_err(|error| error.to_string())?;
        let image = text(&deployment["spec"]["template"]["spec"]["containers"][0]["image"]);
        if image == "farshore-agent:0.1.0" && node.images() == [image.as_str()] {
            return Ok(());
        }
        Err(format!("it is {image}: {:?}", site.world.fleet.status("shipped")))
    })
    .await?;
    assert_eq!(node.pods.values().next().map(|pod| pod.agent.id()), first, "the old one went on");
    assert_eq!(node.ended, []);
    Ok(())
}

#[tokio::test]
async fn a_new_agent_takes_over_only_after_it_has_proven_itself_and_else_the_old_one_takes_it_back()
-> Result<(), KitError> {
    let policy = "  onFailure: revert\n  timeout: 10s\n";
    let first = config_map("a", "1");
    let mut site = Place::of(CLUSTER.get().await?, "shipped", policy, &[("a.yaml", &first)]).await?;
    ship(&site)?;
    let kubernetes = site.kubernetes.clone();
    let given = [
        ("FARSHORE_JOIN", site.world.fleet.token(1, 4_000_000_000)?),
        ("FARSHORE_KUBECONFIG", kubernetes.kubeconfig_of("farshore", "agent")?.display().to_string()),
        ("FARSHORE_POLL", "1s".to_owned()),
    ];
    let mut node = Node::new(&kubernetes, &given);
    until_alone(&mut node, "farshore-agent:0.1.0").await?;
    site.until_state(ServiceState::Applied).await?;
    adopt(&mut site, &mut node).await?;
    break_and_take_back(&mut site, &mut node).await?;

    // One that works takes over, with what the old one knew.
    let good = site.world.commit(&[("agent.yaml", &shipped(&site, "farshore-agent:0.3.0", ""))])?;
    until_alone(&mut node, "farshore-agent:0.3.0").await?;
    assert_eq!(node.ended, [Some(0)], "the old one ended when it was told to");
    site.until_commit(&good).await?;
    site.patch("configmap", "a", r#"{"data": {"value": "other"}}"#)?;
    site.until("configmap", "a", "{.data.value}", Some("1")).await?;
    let pod = node.pods.values().next().expect("it runs");
    let said = pod.agent.stderr();
    assert_eq!(said.matches("this agent leads").count(), 1, "{said}");
    assert!(!said.contains("joined"), "it is the same site: {said}");
    Ok(())
}
