//! What an agent does about changes that it is told of, in a real Kubernetes API: nothing here is seen by a sweep,
//! because there is none for an hour.

use std::borrow::Borrow;
use std::time::Duration;

use farshore_chaos::kit::{ApiRequest, AuditMark, KitError, Kubernetes, wait_for};
use farshore_chaos::world::declare::{config_map, service, source};
use farshore_chaos::world::{Place, SharedCluster};
use farshore_shared::wire::{DriftAction, ServiceState, ServiceStatus};

const SOON: Duration = Duration::from_secs(60);

/// For the tests that do not stop theirs; each has a namespace, a fleet and a site of its own.
static CLUSTER: SharedCluster = SharedCluster::new();

/// A site with these manifests, whose service says this about drift. It returns when they are applied, and watched.
async fn watched<K: Borrow<Kubernetes>>(
    kubernetes: K,
    name: &'static str,
    drift: &str,
    manifests: &[(&str, &str)],
) -> Result<Place<K>, KitError> {
    let spec = if drift.is_empty() { String::new() } else { format!("  drift: {drift}\n") };
    let place = Place::of(kubernetes, name, &spec, manifests).await?;
    let place = place.option("--sweep=1h").patience(SOON).started().await?;
    place.until_state(ServiceState::Applied).await?;
    Ok(place)
}

/// The same, in the cluster of many.
async fn shared(name: &'static str, drift: &str, manifests: &[(&str, &str)]) -> Result<Place, KitError> {
    watched(CLUSTER.get().await?, name, drift, manifests).await
}

/// Returns when the agent has heard of everything that was written before: it has put back the `ConfigMap` `probe`,
/// and once more.
async fn heard<K: Borrow<Kubernetes>>(place: &Place<K>) -> Result<(), KitError> {
    for _ in 0..2 {
        place.kubectl(&["delete", "configmap", "probe"])?;
        place.until("configmap", "probe", "{.data.value}", Some("1")).await?;
    }
    Ok(())
}

/// What the agent wrote to one object.
fn writes_to(place: &Place, path: &str, since: AuditMark) -> Result<Vec<ApiRequest>, KitError> {
    let path = format!("/namespaces/{}/{path}?", place.name);
    let mut writes = place.writes(since)?;
    writes.retain(|write| write.uri.contains(&path));
    Ok(writes)
}

#[tokio::test]
async fn whatever_is_done_to_an_owned_field_is_put_back_without_a_sweep() -> Result<(), KitError> {
    let place = shared("events", "", &[("a.yaml", &config_map("a", "ours"))]).await?;
    let whole = place.look("configmap", "a", "{.metadata.uid}");
    for merge in [
        r#"{"data":{"value":"theirs"}}"#,
        r#"{"data":null}"#,
        r#"{"metadata":{"labels":{"farshore.dev/service":null}},"data":{"value":"theirs"}}"#,
        r#"{"metadata":{"labels":{"farshore.dev/service":"another"}},"data":{"value":"theirs"}}"#,
        r#"{"metadata":{"managedFields":[{}]},"data":{"value":"theirs"}}"#,
    ] {
        place.patch("configmap", "a", merge)?;
        place.until("configmap", "a", "{.data.value}", Some("ours")).await?;
        place.until("configmap", "a", "{.metadata.labels.farshore\\.dev/service}", Some("events")).await?;
    }
    assert_eq!(place.look("configmap", "a", "{.metadata.uid}"), whole, "it was not made anew");
    // By somebody who takes the field over with server-side apply, which is the strongest claim there is.
    let theirs = config_map("a", "theirs");
    let force = ["--namespace=events", "apply", "--server-side", "--force-conflicts", "-f", "-"];
    place.kubernetes.kubectl_with_input(&force, &theirs)?;
    place.until("configmap", "a", "{.data.value}", Some("ours")).await?;
    // Under our own name: our entry then says that the field is ours.
    let ours = [&force[..], &["--field-manager=farshore"]].concat();
    place.kubernetes.kubectl_with_input(&ours, &theirs)?;
    place.until("configmap", "a", "{.data.value}", Some("ours")).await?;
    place.kubectl(&["delete", "configmap", "a"])?;
    place.until("configmap", "a", "{.data.value}", Some("ours")).await?;
    let service = place.until_service("told of", |service| service.repairs >= 8).await?;
    assert!(service.drift.iter().any(|drift| drift.action == DriftAction::Corrected), "{service:?}");
    Ok(())
}

#[tokio::test]
async fn what_others_own_is_left_alone() -> Result<(), KitError> {
    let files = [("web.yaml", &*config_map("web", "ours")), ("probe.yaml", &config_map("probe", "1"))];
    let place = shared("foreign-fields", "", &files).await?;
    // The first look after the watches began is behind it.
    heard(&place).await?;
    let mark = place.kubernetes.audit_mark()?;
    place.patch("configmap", "web", r#"{"data":{"theirs":"7"}}"#)?;
    place.kubectl(&["annotate", "configmap", "web", "who=somebody-else"])?;
    place.kubectl(&["label", "configmap", "web", "who=somebody-else"])?;
    heard(&place).await?;
    assert_eq!(place.look("configmap", "web", "{.data.theirs}"), Ok(Some("7".to_owned())));
    let on_web = |requests: Vec<ApiRequest>| -> Vec<ApiRequest> {
        let ours = requests.into_iter().filter(|request| request.user_agent.starts_with("farshore-agent/"));
        ours.filter(|request| request.uri.contains("/namespaces/foreign-fields/configmaps/web")).collect()
    };
    assert_eq!(on_web(place.kubernetes.audit_writes_since(mark)?), []);
    Ok(())
}

#[tokio::test]
async fn a_repair_of_one_object_asks_for_no_other() -> Result<(), KitError> {
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: { name: r }\nrules: []\n";
    let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: { name: s }\n";
    let files = ["a", "b", "c", "probe"].map(|name| (format!("{name}.yaml"), config_map(name, "1")));
    let mut files: Vec<(&str, &str)> =
        files.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
    files.extend([("role.yaml", role), ("account.yaml", account)]);
    let kubernetes = CLUSTER.get().await?;
    let begun = kubernetes.audit_mark()?;
    let place = watched(kubernetes, "alone", "", &files).await?;
    let of_ours = |reads: Vec<ApiRequest>| -> Vec<ApiRequest> {
        let ours = reads.into_iter().filter(|read| read.user_agent.starts_with("farshore-agent/"));
        ours.filter(|read| read.uri.contains("/alone/")).collect()
    };
    // Everything is looked at once, because nobody knows what happened before the watches began.
    wait_for("the first look", SOON, async || {
        let reads = place.kubernetes.audit_reads_since(begun).map_err(|error| error.to_string())?;
        let reads = of_ours(reads);
        if reads.iter().any(|read| read.verb == "list") { Ok(()) } else { Err(format!("{reads:?}")) }
    })
    .await?;
    heard(&place).await?;
    let mark = place.kubernetes.audit_mark()?;
    for _ in 0..3 {
        place.patch("configmap", "a", r#"{"data":{"value":"theirs"}}"#)?;
        place.until("configmap", "a", "{.data.value}", Some("1")).await?;
    }
    place.until_service("told of", |service| service.repairs >= 5).await?;
    let reads = of_ours(place.kubernetes.audit_reads_since(mark)?);
    let others: Vec<_> = reads.iter().filter(|read| !read.uri.contains("/configmaps/a")).collect();
    assert!(others.is_empty(), "{others:#?}");
    assert_eq!(reads.len(), 3, "one look for each change: {reads:#?}");
    Ok(())
}

#[tokio::test]
async fn a_service_that_wants_to_be_told_is_told_who_changed_what() -> Result<(), KitError> {
    let files = [("a.yaml", config_map("a", "ours")), ("b.yaml", config_map("b", "ours"))];
    let files = [("a.yaml", &*files[0].1), ("b.yaml", &*files[1].1)];
    let place = shared("alerting", "alert", &files).await?;
    let mark = place.kubernetes.audit_mark()?;
    let by = ["patch", "configmap", "a", "--type=merge", "--field-manager=night-shift", "--patch"];
    place.kubectl(&[&by[..], &[r#"{"data":{"value":"theirs","more":"1"}}"#]].concat())?;
    place.kubectl(&["delete", "configmap", "b"])?;
    let service = place.until_service("told of", |service| service.drift.len() == 2).await?;
    let found = |name: &str| {
        let object = format!("ConfigMap alerting/{name}");
        service.drift.iter().find(|drift| drift.object == object).expect("it is told of")
    };
    assert_eq!((found("a").manager.as_str(), found("a").action), ("night-shift", DriftAction::Reported));
    assert_eq!(found("a").fields, ["/data/value"]);
    assert_eq!((found("b").manager.as_str(), found("b").fields.len()), ("", 0));
    assert_eq!((service.state, service.repairs), (ServiceState::Applied, 0));
    let status = place.world.fleet.status("alerting")?.expect("it was read just now");
    assert!(status.alarms.iter().any(|alarm| alarm.contains("2 objects differ")), "{:?}", status.alarms);
    assert_eq!(writes_to(&place, "configmaps/a", mark)?, []);
    Ok(())
}

#[tokio::test]
async fn what_was_put_back_by_hand_is_told_of_no_more() -> Result<(), KitError> {
    let policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: { name: net }\n\
        spec: { podSelector: {}, policyTypes: [Ingress] }\n";
    let files = [("a.yaml", &*config_map("a", "ours")), ("net.yaml", policy)];
    let place = shared("by-hand", "alert", &files).await?;
    let types = |types: &str| format!(r#"{{"spec":{{"policyTypes":[{types}]}}}}"#);
    // One of them counts its generations, the other does not. Whoever has put a field back once keeps it: the next
    // change of it moves no owner either.
    for _ in 0..2 {
        place.patch("configmap", "a", r#"{"data":{"value":"theirs"}}"#)?;
        place.patch("networkpolicy", "net", &types(r#""Ingress","Egress""#))?;
        place.until_service("told of", |service| service.drift.len() == 2).await?;
        place.patch("configmap", "a", r#"{"data":{"value":"ours"}}"#)?;
        place.patch("networkpolicy", "net", &types(r#""Ingress""#))?;
        let service = place.until_service("well", |service| service.drift.is_empty()).await?;
        assert_eq!((service.state, service.repairs), (ServiceState::Applied, 0));
    }
    Ok(())
}

#[tokio::test]
async fn a_service_that_does_not_care_about_drift_is_left_alone_until_a_new_commit() -> Result<(), KitError> {
    let mut place = shared("ignoring", "ignore", &[("a.yaml", &config_map("a", "ours"))]).await?;
    place.patch("configmap", "a", r#"{"data":{"value":"theirs"}}"#)?;
    place.world.commit(&[("b.yaml", &config_map("b", "ours"))])?;
    place.until("configmap", "b", "{.data.value}", Some("ours")).await?;
    assert_eq!(place.look("configmap", "a", "{.data.value}"), Ok(Some("theirs".to_owned())));
    place.world.commit(&[("a.yaml", &config_map("a", "ours next"))])?;
    place.until("configmap", "a", "{.data.value}", Some("ours next")).await?;
    let service = place.until_service("told of", |_service| true).await?;
    assert_eq!(service.drift, []);
    Ok(())
}

#[tokio::test]
async fn a_field_that_others_may_change_is_theirs_from_then_on() -> Result<(), KitError> {
    let scaler = |least: u32, most: u32| {
        format!(
            "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {{ name: web }}\nspec:\n  \
             scaleTargetRef: {{ apiVersion: apps/v1, kind: Deployment, name: web }}\n  minReplicas: {least}\n  \
             maxReplicas: {most}\n"
        )
    };
    let rule = "{ except: [{ kind: HorizontalPodAutoscaler, name: \"w*\", pointers: [/spec/minReplicas] }] }";
    let (first, probe) = (scaler(2, 10), config_map("probe", "1"));
    let mut place = shared("excepted", rule, &[("web.yaml", &first), ("probe.yaml", &probe)]).await?;
    let least = "{.spec.minReplicas}";
    assert_eq!(place.look("hpa", "web", least), Ok(Some("2".to_owned())));
    // Nobody has changed it yet: a new commit changes it.
    place.world.commit(&[("web.yaml", &scaler(3, 10))])?;
    place.until("hpa", "web", least, Some("3")).await?;
    place.patch("hpa", "web", r#"{"spec":{"minReplicas":7}}"#)?;
    heard(&place).await?;
    assert_eq!(place.look("hpa", "web", least), Ok(Some("7".to_owned())));
    // What else is changed is put back, and what others have set is kept meanwhile.
    place.patch("hpa", "web", r#"{"spec":{"maxReplicas":20}}"#)?;
    let most = "{.spec.maxReplicas}";
    place.until("hpa", "web", most, Some("10")).await?;
    place.world.commit(&[("web.yaml", &scaler(4, 12))])?;
    place.until("hpa", "web", most, Some("12")).await?;
    assert_eq!(place.look("hpa", "web", least), Ok(Some("7".to_owned())));
    Ok(())
}

#[tokio::test]
async fn a_fight_with_another_controller_is_damped_and_its_name_is_told() -> Result<(), KitError> {
    let place = shared("fighting", "", &[("a.yaml", &config_map("a", "ours"))]).await?;
    let mark = place.kubernetes.audit_mark()?;
    let by = ["patch", "configmap", "a", "--type=merge", "--field-manager=other-controller", "--patch"];
    let theirs = [&by[..], &[r#"{"data":{"value":"theirs"}}"#]].concat();
    for _ in 0..5 {
        place.kubectl(&theirs)?;
        place.until("configmap", "a", "{.data.value}", Some("ours")).await?;
    }
    place.kubectl(&theirs)?;
    let damped =
        |service: &ServiceStatus| service.drift.iter().any(|drift| drift.action == DriftAction::Damped);
    let service = place.until_service("in a fight", damped).await?;
    assert_eq!(service.drift[0].manager, "other-controller");
    let status = place.world.fleet.status("fighting")?.expect("it was read just now");
    assert!(
        status.alarms.iter().any(|alarm| alarm.contains("other-controller changes ConfigMap fighting/a"))
    );
    assert_eq!(place.look("configmap", "a", "{.data.value}"), Ok(Some("theirs".to_owned())));
    assert_eq!(
        writes_to(&place, "configmaps/a", mark)?.len(),
        5,
        "one write for each of the first five changes"
    );
    Ok(())
}

#[tokio::test]
async fn a_secret_s_texts_are_owned_as_its_data_is() -> Result<(), KitError> {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: { name: s }\nstringData: { password: ours }\n";
    let place = shared("secrets", "", &[("s.yaml", secret)]).await?;
    let ours = "b3Vycw==";
    assert_eq!(place.look("secret", "s", "{.data.password}"), Ok(Some(ours.to_owned())));
    place.patch("secret", "s", r#"{"data":{"password":"dGhlaXJz"}}"#)?;
    place.until("secret", "s", "{.data.password}", Some(ours)).await
}

#[tokio::test]
async fn two_services_that_declare_one_object_do_not_fight_over_it() -> Result<(), KitError> {
    let files = [("a.yaml", &*config_map("a", "first")), ("probe.yaml", &config_map("probe", "1"))];
    let mut place = shared("twice", "", &files).await?;
    let mark = place.kubernetes.audit_mark()?;
    let second =
        service("twice-too", "app", "second", "raw").replace("namespace: twice-too", "namespace: twice");
    let text = service("twice", "app", "manifests", "raw");
    let text = format!("{}---\n{text}---\n{second}", source("app", &place.world.app.url()));
    let (a, b) = (config_map("a", "second"), config_map("b", "second"));
    place.world.app.commit(&[("second/a.yaml", &a), ("second/b.yaml", &b)])?;
    place.world.declared.commit(&[("fleet.yaml", &text)])?;
    place.until("configmap", "b", "{.data.value}", Some("second")).await?;
    let is_it = |service: &&ServiceStatus| {
        service.name.as_str() == "twice-too" && service.state == ServiceState::Failed
    };
    let status = place.until_status("told of the second", |status| status.services.iter().any(|s| is_it(&s)));
    let status = status.await?;
    let second = status.services.iter().find(is_it).expect("it was just there");
    assert!(second.failures[0].message.contains("service twice declares it as well"), "{second:?}");
    heard(&place).await?;
    assert_eq!(place.look("configmap", "a", "{.data.value}"), Ok(Some("first".to_owned())));
    assert_eq!(writes_to(&place, "configmaps/a", mark)?, []);
    Ok(())
}

#[tokio::test]
async fn a_revision_that_changes_nothing_asks_the_api_for_nothing() -> Result<(), KitError> {
    // One of its own, so that every agent's request is this one's.
    let kubernetes = Kubernetes::start().await?;
    let manifests = [("a.yaml", &*config_map("a", "1")), ("probe.yaml", &config_map("probe", "1"))];
    let mut place = watched(kubernetes, "nothing", "", &manifests).await?;
    heard(&place).await?;
    let mut asked = vec![];
    // The look at everything that follows the beginning of the watches may fall into the first of them.
    for round in 0..5 {
        let mark = place.kubernetes.audit_mark()?;
        let text = format!("# comment {round}\n{}", config_map("a", "1"));
        let commit = place.world.commit(&[("a.yaml", &text)])?;
        place.until_service("at the commit", |service| service.commit == commit).await?;
        asked = place.kubernetes.audit_reads_since(mark)?;
        asked.extend(place.kubernetes.audit_writes_since(mark)?);
        // That the revision is applied is told as an Event.
        asked.retain(|request| {
            request.user_agent.starts_with("farshore-agent/") && !request.uri.contains("/events.k8s.io/")
        });
        if asked.is_empty() {
            return Ok(());
        }
    }
    panic!("requests at every revision: {asked:?}")
}

#[tokio::test]
async fn an_api_and_its_store_that_die_in_the_middle_of_a_thousand_applies_end_up_with_all_of_them()
-> Result<(), KitError> {
    let all: String = (0..1000).map(|n| config_map(&format!("c{n:04}"), "1") + "---\n").collect();
    let place = Place::of(Kubernetes::start().await?, "thousand", "", &[("all.yaml", &all)]).await?;
    let place = place.option("--sweep=1h").option("--qps=200").patience(SOON);
    let mut place = place.started().await?;
    let count = |place: &Place<Kubernetes>| {
        let get = ["get", "configmaps", "--selector=farshore.dev/service=thousand", "-o=name"];
        place.kubectl(&get).map(|names| names.lines().count()).map_err(|error| error.to_string())
    };
    for some in [100, 500] {
        wait_for("some objects", SOON, async || match count(&place)? {
            there if there >= some => Ok(()),
            there => Err(format!("there are {there}")),
        })
        .await?;
        place.kubernetes.stop_all();
        place.kubernetes.start_all().await?;
    }
    wait_for("all objects", SOON * 3, async || match count(&place)? {
        1000 => Ok(()),
        there => Err(format!("there are {there}")),
    })
    .await?;
    let service = place.until_state(ServiceState::Applied).await?;
    assert_eq!((service.objects, service.failures.len()), (1000, 0));
    // From then on nothing is written any more, and a change is put back as ever.
    let mark = place.kubernetes.audit_mark()?;
    place.patch("configmap", "c0500", r#"{"data":{"value":"theirs"}}"#)?;
    place.until("configmap", "c0500", "{.data.value}", Some("1")).await?;
    let writes = place.kubernetes.audit_writes_since(mark)?;
    let ours = writes.iter().filter(|write| write.user_agent.starts_with("farshore-agent/")).count();
    assert_eq!(ours, 1, "{writes:?}");
    Ok(())
}

#[tokio::test]
async fn an_agent_that_is_told_to_end_does_so_in_the_middle_of_an_apply() -> Result<(), KitError> {
    let all: String = (0..1000).map(|n| config_map(&format!("c{n:04}"), "1") + "---\n").collect();
    let place = Place::of(CLUSTER.get().await?, "ending", "", &[("all.yaml", &all)]).await?;
    let mut place = place.option("--qps=100").started().await?;
    wait_for("some objects", SOON, async || {
        match place
            .kubectl(&["get", "configmaps", "-o=name"])
            .map_err(|error| error.to_string())?
            .lines()
            .count()
        {
            there if there >= 50 => Ok(()),
            there => Err(format!("there are {there}")),
        }
    })
    .await?;
    place.site.process().terminate()?;
    let ended = place.site.process().wait_with_deadline(Duration::from_secs(2)).await?;
    assert!(ended.success(), "{ended:?}");
    Ok(())
}
