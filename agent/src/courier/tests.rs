use super::*;
use crate::verify::Kind;

/// A TLS key that the root does not pin, and a root that is over: both are mended by the next root.
#[test]
fn a_newer_root_is_looked_for_when_the_old_one_explains_the_failure() {
    let stranger = HubError::NotOurHub { hub: "https://hub".into(), why: "another key".into() };
    assert!(wants_newer_root(&stranger.into()));
    let over = |kind| PollError::from(Refusal::Expired { kind, expired: 1, now: 2 });
    assert!(wants_newer_root(&over(Kind::Root)));
    assert!(!wants_newer_root(&over(Kind::Group)));
    let away = HubError::Unreachable { hub: "https://hub".into(), source: "away".into() };
    assert!(!wants_newer_root(&away.into()), "a hub that is away is not asked twice");
}
