//! What a cluster is told about its services, and what is taken away again.

use farshore_agent::announce::Board as _;
use farshore_shared::names::Name;
use serde_json::json;

use crate::cluster::{Place, target};

const DEFINITION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/kubernetes/farshoreservices.yaml");

#[tokio::test]
async fn what_an_agent_before_this_one_showed_is_taken_down_and_what_another_site_shows_is_not() {
    let place = Place::named("told").await;
    place.server.kubectl(&["apply", "--filename", DEFINITION]).expect("a good definition");
    let established = ["wait", "--for=condition=Established", "crd/farshoreservices.farshore.dev"];
    place.server.kubectl(&established).expect("it is served");
    let name = |text: &str| -> Name { text.parse().expect("a name") };
    let (ours, theirs) = (name("told-ours"), name("told-theirs"));
    let before = place.target.announcements();
    let (here, there) = (&place.owner.cluster, &name("shop-8"));
    before.show(here, &ours, &json!({"health": "healthy"})).await.expect("shown");
    before.show(there, &theirs, &json!({"health": "healthy"})).await.expect("shown");

    // A process that has shown nothing itself.
    let after = target(&place.server.kubeconfig()).await.announcements();
    for service in [&ours, &theirs, &name("told-nobody")] {
        after.take_down(here, service).await.expect("it is gone, or not ours");
    }
    let listed = ["get", "farshoreservices", "--output=name"];
    let listed = place.server.kubectl(&listed).expect("a list");
    assert!(!listed.contains("told-ours") && listed.contains("told-theirs"), "{listed}");
}
