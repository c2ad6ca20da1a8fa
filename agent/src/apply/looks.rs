//! Looks at the objects of one place: whole, once each, and only while their service is under way.

use std::collections::BTreeMap;

use futures::{StreamExt as _, stream};
use serde_json::Value;

use super::Outcome;
use super::stages::{Course, Hands, Scope, Seat};
use crate::health::{self, Health, progress, rules};
use crate::object::ObjectKey;
use crate::rollout::{Look, Looked, Sight};
use crate::target::{ObjectError, Retry, Target};
use crate::waves::Place;

/// How many objects are looked at at once.
const LOOKS: usize = 8;

impl Course<'_> {
    /// Everything of a place that is not known to be healthy.
    pub(super) async fn look<T: Target>(
        &self,
        hands: &Hands<'_, T>,
        place: Place,
        scope: Scope,
    ) -> Vec<Look> {
        let failed: BTreeMap<&ObjectKey, &ObjectError> =
            hands.outcome.failures.iter().map(|error| (&error.key, error)).collect();
        let (mut looks, mut unseen) = (vec![], vec![]);
        for seat in self.seats.iter().filter(|seat| counts(seat, place, scope)) {
            match failed.get(&seat.key) {
                // What lies there is its old form, whose health says nothing of the new one.
                Some(error) => looks.push(Look::judged(seat.key.clone(), not_applied(error), None)),
                None if seat.is_judged && !self.watch.is_current(&seat.key) => unseen.push(seat.clone()),
                None => {}
            }
        }
        looks.extend(self.judge(hands, unseen).await);
        if scope == Scope::Service {
            let rest = self.rest(hands.outcome, &looks);
            looks.extend(rest);
        }
        looks
    }

    async fn judge<T: Target>(&self, hands: &Hands<'_, T>, seats: Vec<Seat>) -> Vec<Look> {
        let mut looks = vec![];
        let mut by_rule = vec![];
        let mut seen = stream::iter(seats)
            .map(|seat| async move {
                let object = hands.target.inspect(hands.owner, &seat.key, &seat.version).await;
                (seat, object)
            })
            .buffer_unordered(LOOKS);
        while let Some((seat, object)) = seen.next().await {
            match object {
                Err(error) => looks.push(unseen(&error)),
                Ok(None) => {
                    let gone = Health::Progressing("it is not there".to_owned());
                    looks.push(Look::judged(seat.key, gone, None));
                }
                Ok(Some(object)) => match rules::rule_for_object(self.policy.rules, &object) {
                    Some(rule) => by_rule.push((seat, rule, object)),
                    None => looks.push(Look::judged(seat.key, health::judge(&object), state(&object))),
                },
            }
        }
        drop(seen);
        let states: Vec<_> =
            by_rule.iter().map(|(seat, _, object)| (seat.key.clone(), state(object))).collect();
        let cases = by_rule.into_iter().map(|(_, rule, object)| (rule, object)).collect();
        let judged = self.policy.judges.judge(cases).await;
        looks.extend(
            states.into_iter().zip(judged).map(|((key, state), health)| Look::judged(key, health, state)),
        );
        looks
    }

    /// What holds up no wave and is no part of a healthy service all the same.
    fn rest(&self, outcome: &Outcome, told: &[Look]) -> Vec<Look> {
        let failures =
            outcome.failures.iter().map(|error| Look::judged(error.key.clone(), not_applied(error), None));
        let blemishes = self.blemishes.iter().map(|(at, why)| Look {
            at: Looked::Other(at.clone()),
            sight: Sight::Judged(Health::Progressing(why.clone()), None),
        });
        let is_new = |look: &Look| !told.iter().any(|other| other.at == look.at);
        failures.chain(blemishes).filter(is_new).collect()
    }
}

/// Claims count at the end only: who binds one may be a Pod of a later wave.
fn counts(seat: &Seat, place: Place, scope: Scope) -> bool {
    match seat.is_claim() {
        true => scope == Scope::Service,
        false => seat.place == place,
    }
}

fn not_applied(error: &ObjectError) -> Health {
    Health::Progressing(error.message.clone())
}

fn state(object: &Value) -> Option<u64> {
    Some(progress::signature(object))
}

/// An object that the API did not show.
pub(super) fn unseen(error: &ObjectError) -> Look {
    let sight = match error.retry {
        Retry::Worthwhile => Sight::Hidden(error.message.clone()),
        Retry::Pointless => Sight::Judged(Health::Progressing(error.message.clone()), None),
    };
    Look { at: Looked::Object(error.key.clone()), sight }
}
