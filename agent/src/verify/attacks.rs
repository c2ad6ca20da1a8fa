//! The update attacks of TUF 1.0, section 1.5.2, and a clock that is wrong, against [`desired`].

use farshore_shared::digest::Digest;
use farshore_shared::dsse::Envelope;
use farshore_shared::keys::SigningKey;
use farshore_shared::wire::{Desired, Group, Roster};
use proptest::prelude::*;
use serde_json::json;

use super::clock::{EARLIEST, STEP};
use super::kit::{Fleet, NOW};
use super::*;

fn holding(fleet: &Fleet, sequence: u64) -> Held {
    let offer = fleet.offer(Some(&fleet.roster(sequence)), Some(&fleet.group(sequence)));
    let accepted = judge(fleet, &Held::default(), &offer).expect("good documents");
    Held { documents: Some(accepted.documents), marks: accepted.marks }
}

fn judge(fleet: &Fleet, held: &Held, offer: &Desired) -> Result<Accepted, Refusal> {
    judge_at(fleet, held, offer, NOW)
}

fn judge_at(fleet: &Fleet, held: &Held, offer: &Desired, now: u64) -> Result<Accepted, Refusal> {
    desired(held, offer, &fleet.identity(), &fleet.root, Clock { now })
}

fn roster_offer(fleet: &Fleet, sequence: u64, change: impl FnOnce(&mut Roster)) -> Desired {
    let mut roster = fleet.roster(sequence);
    change(&mut roster);
    fleet.offer(Some(&roster), None)
}

fn group_offer(fleet: &Fleet, sequence: u64, change: impl FnOnce(&mut Group)) -> Desired {
    let mut group = fleet.group(sequence);
    change(&mut group);
    fleet.offer(None, Some(&group))
}

#[test]
fn newer_documents_are_accepted_alone_or_together() {
    let fleet = Fleet::new();
    let held = holding(&fleet, 5);
    let accepted = judge(&fleet, &held, &group_offer(&fleet, 6, |_| ())).expect("newer");
    assert_eq!((accepted.documents.roster.sequence, accepted.documents.group.sequence), (5, 6));
    assert_eq!(accepted.change, Change::New);
    let accepted = judge(&fleet, &held, &roster_offer(&fleet, 7, |_| ())).expect("newer");
    assert_eq!((accepted.documents.roster.sequence, accepted.documents.group.sequence), (7, 5));
    assert!(accepted.alarms.is_empty(), "{:?}", accepted.alarms);
}

#[test]
fn the_tag_names_both_documents() {
    let held = holding(&Fleet::new(), 5);
    let documents = held.documents.expect("held");
    let short = documents.envelopes.roster.digest().short();
    assert!(documents.tag().to_string().starts_with(&format!("\"1.5-{short}.5-")));
    let read = Documents::read_accepted(documents.envelopes.clone()).expect("whole");
    assert_eq!(read, documents);
}

#[test]
fn a_replay_of_the_same_documents_changes_nothing_even_after_they_expired() {
    let fleet = Fleet::new();
    let held = holding(&fleet, 5);
    let same = fleet.offer(Some(&fleet.roster(5)), Some(&fleet.group(5)));
    let accepted = judge_at(&fleet, &held, &same, NOW + 5000).expect("accepted before");
    assert_eq!((accepted.change, &accepted.marks), (Change::Same, &held.marks));
    assert!(accepted.alarms[0].contains("nothing newer"), "{:?}", accepted.alarms);
}

#[test]
fn a_rollback_is_refused_even_when_the_documents_themselves_were_lost() {
    let fleet = Fleet::new();
    let lost = Held { documents: None, ..holding(&fleet, 5) };
    for held in [holding(&fleet, 5), lost] {
        let refused = judge(&fleet, &held, &fleet.offer(Some(&fleet.roster(4)), Some(&fleet.group(5))));
        assert!(matches!(refused, Err(Refusal::RolledBack { kind: Kind::Roster, held: 5, offered: 4 })));
        let refused = judge(&fleet, &held, &fleet.offer(Some(&fleet.roster(5)), Some(&fleet.group(4))));
        assert!(matches!(refused, Err(Refusal::RolledBack { kind: Kind::Group, held: 5, offered: 4 })));
    }
}

#[test]
fn a_site_that_lost_its_newer_documents_does_not_forget_that_it_had_them() {
    let fleet = Fleet::new();
    let held = Held { documents: holding(&fleet, 3).documents, marks: holding(&fleet, 5).marks };
    let refused = judge(&fleet, &held, &group_offer(&fleet, 6, |_| ()));
    assert!(matches!(refused, Err(Refusal::RolledBack { kind: Kind::Roster, held: 5, offered: 3 })));
    let refused = judge(&fleet, &held, &roster_offer(&fleet, 6, |_| ()));
    assert!(matches!(refused, Err(Refusal::RolledBack { kind: Kind::Group, held: 5, offered: 3 })));
    let whole = fleet.offer(Some(&fleet.roster(6)), Some(&fleet.group(6)));
    assert!(judge(&fleet, &held, &whole).is_ok());
}

#[test]
fn a_frozen_hub_cannot_bring_what_has_expired() {
    let fleet = Fleet::new();
    let held = holding(&fleet, 5);
    let old = group_offer(&fleet, 6, |_| ());
    assert!(matches!(
        judge_at(&fleet, &held, &old, NOW + 1000),
        Err(Refusal::Expired { kind: Kind::Group, .. })
    ));
    assert!(judge_at(&fleet, &held, &old, NOW + 999).is_ok());
    let late = group_offer(&fleet, 6, |g| g.expires = u64::MAX);
    assert!(matches!(
        judge_at(&fleet, &held, &late, NOW + 1_000_000),
        Err(Refusal::Expired { kind: Kind::Root, .. })
    ));
}

#[test]
fn documents_are_not_mixed_between_groups_or_epochs() {
    let mut fleet = Fleet::new();
    let held = holding(&fleet, 5);
    let other = Digest::of(b"other");
    let refused = judge(&fleet, &held, &group_offer(&fleet, 6, |g| g.group = other));
    assert!(matches!(refused, Err(Refusal::WrongGroup { .. })));
    let refused = judge(&fleet, &held, &roster_offer(&fleet, 6, |r| r.group = other));
    assert!(matches!(refused, Err(Refusal::WrongGroup { .. })));
    fleet.root.epoch = 2;
    let refused = judge(&fleet, &held, &roster_offer(&fleet, 6, |_| ()));
    assert!(matches!(refused, Err(Refusal::Mixed { roster: 2, group: 1 })));
}

#[test]
fn a_group_document_below_the_roster_s_floor_is_refused() {
    let fleet = Fleet::new();
    let held = holding(&fleet, 5);
    let refused = judge(&fleet, &held, &roster_offer(&fleet, 6, |r| r.floor = 6));
    assert!(matches!(refused, Err(Refusal::BelowFloor { floor: 6, offered: 5 })));
}

#[test]
fn a_move_to_another_group_counts_from_the_roster_s_floor() {
    let fleet = Fleet::new();
    let held = holding(&fleet, 100);
    let other = Digest::of(b"other");
    let offer = |sequence, floor| {
        let roster = Roster { group: other, floor, ..fleet.roster(101) };
        fleet.offer(Some(&roster), Some(&Group { group: other, ..fleet.group(sequence) }))
    };
    assert!(matches!(judge(&fleet, &held, &offer(49, 50)), Err(Refusal::BelowFloor { .. })));
    let moved = judge(&fleet, &held, &offer(50, 50)).expect("at the floor");
    let held = Held { documents: Some(moved.documents), marks: moved.marks };
    let back = fleet.offer(Some(&fleet.roster(102)), Some(&fleet.group(99)));
    assert!(
        matches!(judge(&fleet, &held, &back), Err(Refusal::RolledBack { held: 100, offered: 99, .. })),
        "the old group's mark is remembered"
    );
}

#[test]
fn two_documents_with_one_number_are_refused() {
    let fleet = Fleet::new();
    let held = holding(&fleet, 5);
    let refused = judge(&fleet, &held, &group_offer(&fleet, 5, |g| g.poll_seconds = 1));
    assert!(matches!(refused, Err(Refusal::Equivocation { kind: Kind::Group, sequence: 5 })));
    let refused = judge(&fleet, &held, &roster_offer(&fleet, 5, |r| r.floor = 1));
    assert!(matches!(refused, Err(Refusal::Equivocation { kind: Kind::Roster, sequence: 5 })));
}

#[test]
fn another_cluster_s_or_key_s_roster_is_refused() {
    let fleet = Fleet::new();
    let held = holding(&fleet, 5);
    let refused =
        judge(&fleet, &held, &roster_offer(&fleet, 6, |r| r.cluster = "other".parse().expect("a name")));
    assert!(matches!(refused, Err(Refusal::WrongCluster { .. })));
    let key = SigningKey::generate().public().id();
    let refused = judge(&fleet, &held, &roster_offer(&fleet, 6, |r| r.key = key));
    assert!(matches!(refused, Err(Refusal::WrongKey { .. })));
}

#[test]
fn a_forged_or_mistaken_envelope_is_refused() {
    let fleet = Fleet::new();
    let held = holding(&fleet, 5);
    let forged = Envelope::seal(&fleet.group(6), &[&SigningKey::generate()]);
    let refused = judge(&fleet, &held, &Desired { roster: None, group: Some(forged) });
    assert!(matches!(refused, Err(Refusal::Signature { kind: Kind::Group, .. })));
    let swapped = Envelope::seal(&fleet.roster(6), &[&fleet.director]);
    let refused = judge(&fleet, &held, &Desired { roster: None, group: Some(swapped) });
    assert!(matches!(refused, Err(Refusal::WrongType { kind: Kind::Group, .. })));
    let refused = judge(&fleet, &held, &group_offer(&fleet, 6, |g| g.critical = vec!["waves".into()]));
    assert!(matches!(refused, Err(Refusal::Critical { .. })));
    assert!(matches!(judge(&fleet, &held, &Desired::default()), Err(Refusal::NothingOffered)));
}

#[test]
fn a_first_answer_must_have_both_documents() {
    let fleet = Fleet::new();
    let refused = judge(&fleet, &Held::default(), &roster_offer(&fleet, 1, |_| ()));
    assert!(matches!(refused, Err(Refusal::Incomplete { kind: Kind::Group })));
    let refused = judge(&fleet, &Held::default(), &group_offer(&fleet, 1, |_| ()));
    assert!(matches!(refused, Err(Refusal::Incomplete { kind: Kind::Roster })));
}

#[test]
fn a_group_document_names_each_service_once() {
    let fleet = Fleet::new();
    let twice = group_offer(&fleet, 6, |g| g.services = vec![json!({"name": "a"}), json!({"name": "a"})]);
    let refused = judge(&fleet, &holding(&fleet, 5), &twice);
    assert!(matches!(refused, Err(Refusal::DuplicateService { service }) if service == "a"));
}

#[test]
fn what_a_thief_pushed_forward_is_reset_by_a_new_epoch() {
    let mut fleet = Fleet::new();
    let held = holding(&fleet, u64::MAX);
    let next = |fleet: &Fleet| fleet.offer(Some(&fleet.roster(7)), Some(&fleet.group(7)));
    assert!(matches!(judge(&fleet, &held, &next(&fleet)), Err(Refusal::RolledBack { .. })));
    let mut ahead = Fleet { root: fleet.root.clone(), ..Fleet::new() };
    ahead.root.epoch = 2;
    let early = roster_offer(&fleet, 7, |r| r.epoch = 2);
    assert!(matches!(judge(&fleet, &held, &early), Err(Refusal::NewEpoch { offered: 2, root: 1, .. })));
    fleet.root.epoch = 2;
    let accepted = judge(&fleet, &held, &next(&fleet)).expect("a new epoch");
    assert_eq!((accepted.marks.epoch, accepted.marks.groups.len()), (2, 1));
    let held = Held { documents: Some(accepted.documents), marks: accepted.marks };
    let old = roster_offer(&fleet, u64::MAX, |r| r.epoch = 1);
    assert!(matches!(judge(&fleet, &held, &old), Err(Refusal::OldEpoch { .. })));
}

#[test]
fn a_wrong_clock_costs_an_alarm_and_not_availability() {
    let fleet = Fleet::new();
    let held = holding(&fleet, 5);
    for now in [0, 2_147_483_647] {
        let newer = group_offer(&fleet, 6, |_| ());
        let accepted = judge_at(&fleet, &held, &newer, now).expect("a higher sequence");
        let alarm = Clock { now }.alarm(held.marks.lower_time);
        assert!(alarm.is_some_and(|alarm| alarm.contains("the clock of this site")));
        assert_eq!(accepted.alarms, [""; 0], "a clock that is distrusted expires nothing");
        let older = judge_at(&fleet, &held, &group_offer(&fleet, 4, |_| ()), now);
        assert!(matches!(older, Err(Refusal::RolledBack { .. })));
    }
}

#[test]
fn a_hostile_date_moves_the_lower_bound_by_one_step_only() {
    let fleet = Fleet::new();
    let held = holding(&fleet, 5);
    let accepted = judge(&fleet, &held, &group_offer(&fleet, 6, |g| g.issued = u64::MAX)).expect("newer");
    assert_eq!(accepted.marks.lower_time, NOW + STEP);
}

#[test]
fn marks_from_several_files_are_joined_to_the_highest() {
    let mark = |sequence| Mark { sequence, payload: Digest::of(&[]) };
    let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
    let marks = |roster, groups: &[(Digest, u64)], lower_time| Marks {
        epoch: 1,
        roster: Some(mark(roster)),
        groups: groups.iter().map(|(id, sequence)| (*id, mark(*sequence))).collect(),
        lower_time,
    };
    let (one, two) = (marks(5, &[(a, 7)], 9), marks(6, &[(a, 3), (b, 1)], 2));
    let joined = marks(6, &[(a, 7), (b, 1)], 9);
    assert_eq!((one.join(&two), two.join(&one)), (joined.clone(), joined.clone()));
    let next = Marks { epoch: 2, roster: Some(mark(1)), ..Marks::default() };
    assert_eq!(joined.join(&next), Marks { lower_time: 9, ..next.clone() });
    assert_eq!(next.join(&joined), joined.join(&next));
}

#[test]
fn a_cluster_that_wandered_through_many_groups_forgets_the_oldest_marks_only() {
    let fleet = Fleet::new();
    let mut held = Held::default();
    for sequence in 1..=40u64 {
        let group = Digest::of(&sequence.to_be_bytes());
        let roster = Roster { group, floor: sequence, ..fleet.roster(sequence) };
        let offer = fleet.offer(Some(&roster), Some(&Group { group, ..fleet.group(sequence) }));
        let accepted = judge(&fleet, &held, &offer).expect("newer");
        assert!(accepted.marks.join(&held.marks).are_reached_by(&accepted.documents));
        held = Held { documents: Some(accepted.documents), marks: accepted.marks };
    }
    assert_eq!(held.marks.groups.values().map(|mark| mark.sequence).min(), Some(9));
}

/// Whether every mark is as high as before.
fn as_high(now: &Marks, before: &Marks) -> bool {
    let sequence = |mark: Option<&Mark>| mark.map_or(0, |mark| mark.sequence);
    now.epoch > before.epoch
        || (now.epoch == before.epoch
            && sequence(now.roster.as_ref()) >= sequence(before.roster.as_ref())
            && before.groups.iter().all(|(id, mark)| sequence(now.groups.get(id)) >= mark.sequence))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_offer_ever_lowers_the_marks(
        offers in proptest::collection::vec((0u64..3, 0u64..6, 0u64..6, 0usize..3, 0usize..3, 0u64..6, 0u8..4, any::<u32>()), 1..24)
    ) {
        let mut fleet = Fleet::new();
        let mut held = Held::default();
        let groups = [Digest::of(b"a"), Digest::of(b"b"), Digest::of(b"c")];
        for (epoch, r, g, of_roster, of_group, floor, which, time) in offers {
            // A root's epoch only rises: the chain of roots sees to that.
            fleet.root.epoch = fleet.root.epoch.max(epoch);
            let now = u64::from(time);
            let roster = Roster { epoch, floor, group: groups[of_roster], issued: now, expires: u64::MAX, ..fleet.roster(r) };
            let group = Group { epoch, group: groups[of_group], issued: now, expires: u64::MAX, ..fleet.group(g) };
            let offer = fleet.offer((which != 1).then_some(&roster), (which != 2).then_some(&group));
            if let Ok(accepted) = judge_at(&fleet, &held, &offer, now) {
                prop_assert!(as_high(&accepted.marks, &held.marks), "{:?} after {:?}", accepted.marks, held.marks);
                prop_assert!(accepted.marks.lower_time >= held.marks.lower_time);
                prop_assert!(accepted.marks.lower_time <= now.max(EARLIEST).max(held.marks.lower_time) + 2 * STEP);
                held = Held { documents: Some(accepted.documents), marks: accepted.marks };
            }
        }
    }
}
