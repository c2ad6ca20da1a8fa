//! A site at which somebody has stopped something.

use farshore_shared::clock;
use farshore_shared::wire::Tombstone;
use serde_json::json;

use super::*;
use crate::controls::files::{Control, clear, set};
use crate::controls::window::Windows;
use crate::reconcile::rhythm::Urgency;
use crate::verify::Marks;

impl Case {
    fn stop(&self, control: &Control) {
        set(self.temp.path(), control, Some(clock::now() + 3600), "tills are counted").expect("written");
    }

    fn go_on(&self, control: &Control) {
        assert!(clear(self.temp.path(), control).expect("removed").is_some());
    }
}

fn web() -> Name {
    "web".parse().expect("a name")
}

#[tokio::test]
async fn a_held_site_begins_no_revision_and_repairs_what_is_in_place_also_after_a_reboot() {
    let case = Case::new();
    pass(&mut case.reconciler(), &case.orders(&case.entry("1", &config_map("a")))).await;
    case.stop(&Control::Hold);
    let newer = case.orders(&case.entry("2", &(config_map("a") + &config_map("b"))));
    for mut reconciler in [case.reconciler(), case.reconciler()] {
        case.target.meddle("a", "as changed");
        let found = reconciler.pass(&newer).await.expect("the state folder is whole");
        let status = &found.services[0];
        assert_eq!((status.state, status.commit.as_str()), (ServiceState::Held, "1"));
        assert!(
            status.message.starts_with("commit 2 waits: held at the site until ")
                && status.message.ends_with("(tills are counted); commit 1 is kept"),
            "{}",
            status.message
        );
        assert_eq!(Urgency::of(&found), Urgency::Calm, "a site that is held costs nothing");
        assert!(found.controls.is_some_and(|controls| controls.hold.is_some()));
        assert_eq!(case.target.value("a").as_deref(), Some("as signed"));
        assert_eq!(case.target.names(), ["a"]);
    }
    case.go_on(&Control::Hold);
    let status = pass(&mut case.reconciler(), &newer).await;
    assert_eq!((status.state, status.commit.as_str()), (ServiceState::Applied, "2"));
    assert_eq!(case.target.names(), ["a", "b"]);
}

#[tokio::test]
async fn outside_of_its_windows_a_site_is_held() {
    let case = Case::new();
    let orders = case.orders(&case.entry("1", &config_map("a")));
    // A window of which the time never comes: it is open on one day of the week, and not on this one.
    let weekday = (clock::now() / 86_400 + 4) % 7;
    let day = ["Wed", "Thu", "Fri", "Sat", "Sun", "Mon", "Tue"][usize::try_from(weekday).expect("small")];
    let closed = Windows(vec![format!("{day} 00:00-24:00").parse().expect("a window")]);
    let status = pass(&mut case.reconciler().within(closed), &orders).await;
    assert_eq!(status.state, ServiceState::Held);
    assert!(
        status.message.contains("outside of the site's maintenance windows until "),
        "{}",
        status.message
    );
    assert!(case.target.names().is_empty());
    let open = Windows(vec!["daily 00:00-24:00".parse().expect("a window")]);
    let status = pass(&mut case.reconciler().within(open), &orders).await;
    assert_eq!(status.state, ServiceState::Applied);
}

#[tokio::test]
async fn a_revision_that_has_begun_goes_on_while_its_site_is_held() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    pass(&mut reconciler, &case.orders(&case.entry("1", &config_map("a")))).await;
    let newer = case.orders(&case.entry("2", &(config_map("b") + &config_map("c"))));
    case.target.inner().refused.insert("c".into());
    pass(&mut reconciler, &newer).await;
    case.stop(&Control::Hold);
    case.target.inner().refused.clear();
    let status = pass(&mut case.reconciler(), &newer).await;
    assert_eq!((status.state, status.commit.as_str()), (ServiceState::Applied, "2"));
    assert_eq!(case.target.names(), ["b", "c"]);
}

#[tokio::test]
async fn where_half_of_a_revision_is_in_place_a_held_site_stays_as_it_is() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    pass(&mut reconciler, &case.orders(&case.entry("1", &config_map("a")))).await;
    case.target.inner().refused.insert("c".into());
    let half = case.entry("2", &(config_map("a") + &config_map("b") + &config_map("c")));
    pass(&mut reconciler, &case.orders(&half)).await;
    case.stop(&Control::Hold);
    case.target.inner().refused.clear();
    case.target.inner().log.clear();
    let status = pass(&mut case.reconciler(), &case.orders(&case.entry("3", &config_map("d")))).await;
    assert_eq!(status.state, ServiceState::Held);
    assert!(status.message.starts_with("commit 3 waits: held at the site"), "{}", status.message);
    assert!(case.target.inner().log.is_empty(), "neither forward nor back");
    assert_eq!(case.target.names(), ["a", "b"]);
}

#[tokio::test]
async fn a_paused_site_writes_nothing_until_it_is_resumed_and_then_puts_back_what_was_changed() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    let orders = case.orders(&case.entry("1", &config_map("a")));
    pass(&mut reconciler, &orders).await;
    for control in [Control::Pause, Control::PauseService(web())] {
        case.stop(&control);
        case.target.meddle("a", "by hand");
        for reconciler in [&mut reconciler, &mut case.reconciler()] {
            let status = pass(reconciler, &orders).await;
            assert_eq!((status.state, status.commit.as_str(), status.objects), (ServiceState::Held, "1", 1));
            assert!(status.message.starts_with("paused at the site until "), "{}", status.message);
            assert_eq!(case.target.value("a").as_deref(), Some("by hand"));
            assert!(
                reconciler.shared().state().leave_alone.covers(&web()),
                "the mender leaves it alone as well"
            );
        }
        case.go_on(&control);
        let status = pass(&mut reconciler, &orders).await;
        assert_eq!((status.state, status.repairs > 0), (ServiceState::Applied, true));
        assert_eq!(case.target.value("a").as_deref(), Some("as signed"));
        assert!(!reconciler.shared().state().leave_alone.covers(&web()));
    }
}

#[tokio::test]
async fn a_service_that_is_paused_stops_no_other() {
    let case = Case::new();
    let db = ServiceEntry { name: "db".parse().expect("a name"), ..case.entry("1", &config_map("b")) };
    case.stop(&Control::PauseService(web()));
    let orders = case.orders_of(&[&case.entry("1", &config_map("a")), &db]);
    let found = case.reconciler().pass(&orders).await.expect("the state folder is whole");
    let states: Vec<_> = found.services.iter().map(|status| (status.name.as_str(), status.state)).collect();
    assert_eq!(states, [("db", ServiceState::Applied), ("web", ServiceState::Held)]);
    assert_eq!(case.target.names(), ["b"]);
}

#[tokio::test]
async fn the_removal_of_a_service_waits_at_a_held_site() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    pass(&mut reconciler, &case.orders(&case.entry("1", &config_map("a")))).await;
    let mut gone = case.orders_of(&[]);
    let mut documents = Documents::clone(gone.documents.as_deref().expect("there are some"));
    documents.group.tombstones = vec![Tombstone { service: web(), incarnation: 1 }];
    gone.documents = Some(Arc::new(documents));
    for control in [Control::Hold, Control::Pause] {
        case.stop(&control);
        let status = pass(&mut reconciler, &gone).await;
        assert_eq!(status.state, ServiceState::Held, "{status:?}");
        assert_eq!(case.target.names(), ["a"]);
        case.go_on(&control);
    }
    let status = pass(&mut reconciler, &gone).await;
    assert_eq!((status.state, status.message.as_str()), (ServiceState::Applied, "removed"));
    assert!(case.target.names().is_empty());
}

#[tokio::test]
async fn while_a_service_is_paused_no_time_to_become_healthy_passes() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    let starting = json!({"replicas": 1, "updatedReplicas": 1, "availableReplicas": 0});
    case.target.inner().statuses.insert("a".to_owned(), starting);
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: 1}\n";
    let orders = case.orders(&case.entry("1", deployment));
    assert_eq!(pass(&mut reconciler, &orders).await.state, ServiceState::Waiting);
    case.stop(&Control::Pause);
    let paused = pass(&mut reconciler, &orders).await;
    assert_eq!((paused.state, paused.progress), (ServiceState::Held, None));
    case.go_on(&Control::Pause);
    let status = pass(&mut reconciler, &orders).await;
    assert_eq!(status.state, ServiceState::Waiting, "it goes on where it was");
}

#[tokio::test]
async fn a_hold_from_a_clock_that_was_in_2038_lasts_for_its_hours_and_says_so() {
    let case = Case::new();
    case.stop(&Control::Hold);
    let file = crate::controls::files::folder(case.temp.path()).join("hold");
    fs::write(&file, "4h tills are counted").expect("written");
    let in_2038 = std::time::UNIX_EPOCH + Duration::from_secs(2_147_483_647);
    fs::File::open(&file).and_then(|file| file.set_modified(in_2038)).expect("its time is set");
    let mut reconciler = case.reconciler();
    let orders = case.orders(&case.entry("1", &config_map("a")));
    let found = reconciler.pass(&orders).await.expect("the state folder is whole");
    assert_eq!(found.services[0].state, ServiceState::Held);
    let hold = found.controls.clone().and_then(|controls| controls.hold).expect("it is told");
    let lasts = hold.until.expect("it ends").abs_diff(clock::now());
    assert!(lasts.abs_diff(4 * 3600) < 60, "{lasts}");
    let alarm = "the clock of this site cannot tell when the hold ends (set 2038-01-19T03:14:07Z,";
    assert!(found.alarms[0].starts_with(alarm), "{:?}", found.alarms);
    let again = reconciler.pass(&orders).await.expect("the state folder is whole");
    let until = again.controls.and_then(|controls| controls.hold).and_then(|hold| hold.until);
    assert_eq!((until, again.alarms), (hold.until, found.alarms), "nothing new is reported");
    // Its end is written down: an agent that starts anew counts no second time.
    let (written, _) = crate::controls::files::load(case.temp.path()).expect("the folder is whole");
    assert_eq!(written.hold.and_then(|hold| hold.until), hold.until);
    case.go_on(&Control::Hold);
    let status = pass(&mut reconciler, &orders).await;
    assert_eq!(status.state, ServiceState::Applied);
}

#[tokio::test]
async fn a_site_without_a_hub_says_that_its_clock_is_wrong_and_goes_on() {
    let case = Case::new();
    let orders = case.orders(&case.entry("1", &config_map("a")));
    let marks = Marks { lower_time: clock::now() + 2 * 86_400, ..Marks::default() };
    let documents = orders.documents.clone().expect("there are some");
    case.store.accept(&documents, &marks).expect("written");
    let found = case.reconciler().pass(&orders).await.expect("the state folder is whole");
    assert!(
        found.alarms[0].starts_with("the clock of this site is behind the signed documents ("),
        "{:?}",
        found.alarms
    );
    assert_eq!(found.services[0].state, ServiceState::Applied);
}
