use farshore_shared::digest::Digest;
use farshore_shared::wire::Artifact;

use super::*;
use crate::record::{Made, Published};

const FILE: &str = "apiVersion: farshore.dev/v1alpha1\n";

fn service(name: &str, tier: &str) -> String {
    let clusters =
        if tier.is_empty() { "{}".into() } else { format!("{{ matchLabels: {{ tier: {tier} }} }}") };
    format!(
        "{FILE}kind: Service\nmetadata: {{ name: {name} }}\nspec: {{ source: fleet, path: {name}, clusters: {clusters} }}\n"
    )
}

fn cluster(name: &str, tier: &str) -> String {
    format!("{FILE}kind: Cluster\nmetadata: {{ name: {name}, labels: {{ tier: {tier} }} }}\n")
}

fn labels(tier: &str) -> Labels {
    [farshore_shared::names::label_pair(&format!("tier={tier}")).expect("a label")].into()
}

fn members(count: usize) -> BTreeMap<Name, Labels> {
    (0..count).map(|n| (format!("c{n}").parse().expect("a name"), labels("edge"))).collect()
}

/// What a commit comes to.
fn step(
    previous: &Intent,
    commit: &str,
    files: &[(&str, &str)],
    descent: Descent,
    members: &BTreeMap<Name, Labels>,
    approved: &[&HeldChange],
) -> Intended {
    let reading = declare::read(files.iter().map(|(path, text)| (*path, *text)));
    let paths = files.iter().map(|(path, _)| (*path).to_owned()).collect();
    let seen = FleetSeen::Read { commit, descent, reading: &reading, files: &paths };
    let members = Population::by_name(members);
    intend(previous, &seen, &members, &|held| approved.iter().any(|approved| approved.change == held.change))
}

/// An intent whose services all have content.
fn published(mut intent: Intent) -> Intent {
    for (n, service) in (1..).zip(intent.services.values_mut()) {
        let digest = Digest::of(b"content");
        let artifact = Artifact { digest, size: 1, tar_digest: digest, tar_size: 1 };
        let made = Made::of(&service.spec);
        let first = Published { incarnation: n, commit: "a".into(), key: digest, artifact, made };
        service.published.get_or_insert(first);
    }
    intent
}

fn fleet(files: &[(&str, &str)], members: &BTreeMap<Name, Labels>) -> Intent {
    let first = step(&Intent::default(), "aaaa", files, Descent::Forward, members, &[]);
    assert_eq!((first.state, first.held), (SourceState::Ready, None), "{:?}", first.messages);
    published(first.intent)
}

fn names<T>(of: &BTreeMap<Name, T>) -> Vec<&str> {
    of.keys().map(Name::as_str).collect()
}

#[test]
fn a_first_publication_is_taken_whatever_it_says_and_needs_no_descent() {
    let web = service("web", "edge");
    let members = members(1);
    let intended = step(&Intent::default(), "aaaa", &[("a.yaml", &web)], Descent::Unknown, &members, &[]);
    assert_eq!((intended.state, intended.held), (SourceState::Ready, None));
    assert_eq!(intended.intent.fleet.as_deref(), Some("aaaa"));
    assert_eq!(names(&intended.intent.services), ["web"]);
}

#[test]
fn a_fleet_that_cannot_be_seen_is_kept_as_it_is() {
    let members = members(3);
    let before = fleet(&[("a.yaml", &service("web", "edge"))], &members);
    for seen in [FleetSeen::Unconfigured, FleetSeen::Failed("no route".into())] {
        let intended = intend(&before, &seen, &Population::by_name(&members), &|_| true);
        assert_eq!((intended.state, &intended.intent), (SourceState::Failed, &before));
        assert_eq!(intended.messages.len(), 1);
    }
}

#[test]
fn a_file_that_cannot_be_read_keeps_what_it_declared_and_nothing_shrinks_meanwhile() {
    let members = members(2);
    let (web, db, c0) = (service("web", "edge"), service("db", "edge"), cluster("c0", "edge"));
    let before = fleet(&[("web.yaml", &web), ("db.yaml", &db), ("c0.yaml", &c0)], &members);
    let broken = "apiVersion: farshore.dev/v1alpha1\nkind: Service\nmetadata: {";
    let (narrow, moved, taken) = (service("db", "core"), cluster("c0", "core"), cluster("c1", "core"));
    for files in [
        vec![("web.yaml", broken), ("db.yaml", &db), ("c0.yaml", &c0)],
        vec![("web.yaml", broken), ("c0.yaml", &c0)],
        vec![("web.yaml", broken), ("db.yaml", &narrow), ("c0.yaml", &c0)],
        vec![("web.yaml", broken), ("db.yaml", &db), ("c0.yaml", &moved)],
        vec![("web.yaml", broken), ("db.yaml", &db), ("c0.yaml", &c0), ("c1.yaml", &taken)],
        vec![("web.yaml", broken)],
    ] {
        let after = step(&before, "bbbb", &files, Descent::Forward, &members, &[]);
        assert_eq!(after.state, SourceState::Degraded);
        assert_eq!(after.intent.fleet.as_deref(), Some("bbbb"));
        assert_eq!(
            removed_pairs(&before, &after.intent, &Population::by_name(&members)),
            (0, 4),
            "{files:?}"
        );
        assert_eq!(names(&after.intent.services), ["db", "web"]);
    }
}

#[test]
fn beside_a_file_that_cannot_be_read_what_grows_goes_on() {
    let members = members(2);
    let (web, db) = (service("web", "edge"), service("db", "edge"));
    let before = fleet(&[("web.yaml", &web), ("db.yaml", &db)], &members);
    let (wide, new) = (service("db", ""), service("new", ""));
    let files = [("web.yaml", "a: [\nfarshore.dev/v1"), ("db.yaml", &wide), ("new.yaml", &new)];
    let after = step(&before, "bbbb", &files, Descent::Forward, &members, &[]).intent;
    assert_eq!(names(&after.services), ["db", "new", "web"]);
    assert!(after.services["db".parse::<Name>().as_ref().expect("a name")].spec.clusters.keys().is_empty());
}

#[test]
fn a_file_that_fell_silent_is_a_mistake_until_it_is_removed() {
    let members = members(2);
    let (web, db) = (service("web", ""), service("db", ""));
    let before = fleet(&[("web.yaml", &web), ("db.yaml", &db)], &members);
    for silent in ["", "\n", "# gone\n", "a: 1\n", "apiVersion: farshore.dev", "apiVer"] {
        let files = [("web.yaml", silent), ("db.yaml", db.as_str())];
        let after = step(&before, "bbbb", &files, Descent::Forward, &members, &[]);
        assert_eq!((after.state, names(&after.intent.services)), (SourceState::Degraded, vec!["db", "web"]));
        assert_eq!(
            after.messages[0],
            "web.yaml: the file declares nothing any more (expected: the file removed, if its declarations shall go)"
        );
        let again = step(&after.intent, "cccc", &files, Descent::Forward, &members, &[]);
        assert_eq!(again.state, SourceState::Degraded, "it is told until it is mended");
    }
    let removed = step(&before, "bbbb", &[("db.yaml", &db)], Descent::Forward, &members, &[]);
    assert_eq!((removed.state, names(&removed.intent.services)), (SourceState::Ready, vec!["db"]));
}

#[test]
fn what_holds_for_all_stays_until_it_is_said_otherwise_or_removed() {
    let members = members(2);
    let web = service("web", "");
    let of_all = |qps| {
        format!("{FILE}kind: Fleet\nmetadata: {{ name: all }}\nspec: {{ footprint: {{ qps: {qps} }} }}\n")
    };
    let qps = |intended: &Intended| intended.intent.footprint().qps;
    let (good, bad, broken) = (of_all(50), of_all(0), format!("{FILE}kind: Servce\n"));
    let before = fleet(&[("web.yaml", &web), ("all.yaml", &good)], &members);
    assert_eq!(before.footprint().qps, Some(50));
    let held_up = |files: &[(&str, &str)]| {
        let after = step(&before, "bbbb", files, Descent::Forward, &members, &[]);
        assert_eq!((after.state, qps(&after)), (SourceState::Degraded, Some(50)), "{files:?}");
    };
    held_up(&[("web.yaml", &web), ("all.yaml", &bad)]);
    held_up(&[("web.yaml", &web), ("all.yaml", "")]);
    held_up(&[("web.yaml", &broken)]);
    let other = of_all(60);
    let files = [("web.yaml", &*web), ("all.yaml", &other)];
    let after = step(&before, "bbbb", &files, Descent::Forward, &members, &[]);
    assert_eq!((after.state, qps(&after)), (SourceState::Ready, Some(60)));
    let removed = step(&before, "bbbb", &[("web.yaml", &web)], Descent::Forward, &members, &[]);
    assert_eq!((removed.state, qps(&removed), removed.held), (SourceState::Ready, None, None));
}

#[test]
fn a_file_whose_declarations_moved_to_another_has_lost_nothing() {
    let members = members(2);
    let (web, db) = (service("web", ""), service("db", ""));
    let before = fleet(&[("web.yaml", &web), ("db.yaml", &db)], &members);
    let both = format!("{web}---\n{db}");
    let files = [("web.yaml", "# see all.yaml\n"), ("db.yaml", ""), ("all.yaml", &both)];
    let after = step(&before, "bbbb", &files, Descent::Forward, &members, &[]);
    assert_eq!((after.state, names(&after.intent.services)), (SourceState::Ready, vec!["db", "web"]));
}

#[test]
fn a_commit_that_does_not_descend_waits_for_the_approval_of_that_very_change() {
    let members = members(2);
    let (web, db) = (service("web", ""), service("db", ""));
    let before = fleet(&[("web.yaml", &web), ("db.yaml", &db)], &members);
    let files = [("web.yaml", web.as_str())];
    for descent in [Descent::Backward, Descent::Diverged, Descent::Unknown] {
        let waits = step(&before, "bbbb", &files, descent, &members, &[]);
        assert_eq!((waits.state, &waits.intent), (SourceState::Held, &before));
        let held = waits.held.expect("it waits");
        assert_eq!((held.why, held.removes, held.of), (HoldCause::NotDescending, 2, 4));
        assert!(waits.messages[0].ends_with(&format!("farshore approve {}", held.change)));
        let other = step(&before, "cccc", &files, descent, &members, &[&held]);
        assert_eq!((other.state, &other.intent), (SourceState::Held, &before), "another commit");
        let more = step(&before, "bbbb", &files, descent, &self::members(3), &[&held]);
        assert_eq!((more.state, &more.intent), (SourceState::Held, &before), "another count");
        let through = step(&before, "bbbb", &files, descent, &members, &[&held]);
        assert_eq!((through.state, names(&through.intent.services)), (SourceState::Ready, vec!["web"]));
    }
    for descent in [Descent::Same, Descent::Forward] {
        assert_eq!(step(&before, "bbbb", &files, descent, &members, &[]).held, None);
    }
}

#[test]
fn a_removal_waits_only_beyond_ten_pairs_and_a_tenth() {
    let texts: Vec<(String, String)> =
        (0..20).map(|n| (format!("s{n}.yaml"), service(&format!("s{n}"), ""))).collect();
    let files: Vec<(&str, &str)> = texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let held = |count: usize, gone: usize| {
        let members = members(count);
        let before = fleet(&files, &members);
        let after = step(&before, "bbbb", &files[gone..], Descent::Forward, &members, &[]);
        after.held.map(|held| (held.why, held.removes, held.of))
    };
    assert_eq!(held(1, 10), None, "ten pairs");
    assert_eq!(held(1, 11), Some((HoldCause::MassRemoval, 11, 20)));
    assert_eq!(held(30, 2), None, "sixty pairs, but a tenth");
    assert_eq!(held(30, 3), Some((HoldCause::MassRemoval, 90, 600)));
}

#[test]
fn leaving_nothing_waits_however_little_there_is() {
    let web = service("web", "");
    let (narrow, renamed) = (service("web", "core"), service("site", ""));
    for (count, files) in [
        (0, vec![]),
        (1, vec![]),
        (3, vec![]),
        (2, vec![("web.yaml", narrow.as_str())]),
        (2, vec![("site.yaml", renamed.as_str())]),
    ] {
        let members = members(count);
        let before = fleet(&[("web.yaml", &web)], &members);
        let waits = step(&before, "bbbb", &files, Descent::Forward, &members, &[]);
        assert_eq!((waits.state, &waits.intent), (SourceState::Held, &before), "{files:?}");
        let held = waits.held.expect("it waits");
        assert_eq!(held.why, HoldCause::NothingLeft);
        let through = step(&before, "bbbb", &files, Descent::Forward, &members, &[&held]);
        assert_eq!(through.intent.fleet.as_deref(), Some("bbbb"));
    }
}
