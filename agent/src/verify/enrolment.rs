//! The answer to an enrolment: a registration and the first roster, both for this very site.

use farshore_shared::wire::{self, Registration, Root, Roster, SMALL_LIMIT};

use super::{Identity, Kind, Refusal, director, open};

/// What an enrolment has given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolment {
    /// That the key made here is this cluster's.
    pub registration: Registration,
    /// The first roster: not accepted by that alone, it only shows that the fleet knows this site.
    pub roster: Roster,
}

/// Believes the answer to an enrolment.
///
/// # Errors
/// [`Refusal`] when a document is not signed by the director, or is for another cluster or key.
pub fn enrolled(
    answer: &wire::Enrolled,
    identity: &Identity,
    sealing_key: &str,
    root: &Root,
) -> Result<Enrolment, Refusal> {
    let kind = Kind::Registration;
    let registration: Registration = open(kind, &answer.registration, &director(root), SMALL_LIMIT)?;
    if registration.cluster != identity.cluster {
        let (ours, offered) = (identity.cluster.clone(), registration.cluster);
        return Err(Refusal::WrongCluster { kind, ours, offered });
    }
    if registration.key.id() != identity.key {
        let (ours, offered) = (identity.key.short(), registration.key.id().short());
        return Err(Refusal::WrongKey { kind, ours, offered });
    }
    if registration.sealing_key != sealing_key {
        let (ours, offered) = (sealing_key.to_owned(), registration.sealing_key);
        return Err(Refusal::WrongKey { kind, ours, offered });
    }
    let roster: Roster = open(Kind::Roster, &answer.roster, &director(root), SMALL_LIMIT)?;
    addressed(&roster, identity)?;
    Ok(Enrolment { registration, roster })
}

/// Whether a roster is this site's.
pub(super) fn addressed(roster: &Roster, identity: &Identity) -> Result<(), Refusal> {
    let kind = Kind::Roster;
    if roster.cluster != identity.cluster {
        let (ours, offered) = (identity.cluster.clone(), roster.cluster.clone());
        return Err(Refusal::WrongCluster { kind, ours, offered });
    }
    if roster.key != identity.key {
        let (ours, offered) = (identity.key.short(), roster.key.short());
        return Err(Refusal::WrongKey { kind, ours, offered });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::kit::{Fleet, NOW};
    use super::*;
    use farshore_shared::dsse::Envelope;
    use farshore_shared::keys::SigningKey;

    fn answer(fleet: &Fleet) -> wire::Enrolled {
        wire::Enrolled {
            registration: Envelope::seal(&fleet.registration("sealing"), &[&fleet.director]),
            roster: Envelope::seal(&fleet.roster(NOW), &[&fleet.director]),
        }
    }

    #[test]
    fn an_answer_for_this_site_is_believed() {
        let fleet = Fleet::new();
        let enrolment = enrolled(&answer(&fleet), &fleet.identity(), "sealing", &fleet.root).expect("ours");
        assert_eq!(enrolment.registration.cluster, fleet.cluster);
    }

    #[test]
    fn an_answer_for_another_cluster_or_key_is_refused() {
        let fleet = Fleet::new();
        let other = Identity { cluster: "other".parse().expect("a name"), ..fleet.identity() };
        let refused = |identity: &Identity, sealing: &str| {
            enrolled(&answer(&fleet), identity, sealing, &fleet.root).expect_err("refused")
        };
        assert!(matches!(refused(&other, "sealing"), Refusal::WrongCluster { .. }));
        let other = Identity { key: SigningKey::generate().public().id(), ..fleet.identity() };
        assert!(matches!(refused(&other, "sealing"), Refusal::WrongKey { .. }));
        assert!(matches!(refused(&fleet.identity(), "another"), Refusal::WrongKey { .. }));
        let forged = wire::Enrolled {
            registration: Envelope::seal(&fleet.registration("sealing"), &[&SigningKey::generate()]),
            ..answer(&fleet)
        };
        assert!(matches!(
            enrolled(&forged, &fleet.identity(), "sealing", &fleet.root),
            Err(Refusal::Signature { .. })
        ));
    }
}
