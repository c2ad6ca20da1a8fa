//! What runs once in every revision: hooks and tests. No hook is waited for: each pass takes it one step
//! further.

use farshore_shared::exit::chain;
use farshore_shared::wire::CheckOutcome;
use serde_json::Value;

use super::looks::unseen;
use super::namespaces;
use super::stages::{Course, Hands};
use crate::health::{Health, judge_run, progress};
use crate::object::{Manifest, ObjectKey};
use crate::plan::{Cause, Item};
use crate::rollout::record::{LOG_LIMIT, tail};
use crate::rollout::{Look, Looked, Run, Sight};
use crate::target::{Deleted, ObjectError, Target};
use crate::waves::{Hook, Phase, Place};

/// The annotation that says in which revision and phase an object runs.
const RUN_ANNOTATION: &str = "farshore.dev/run";

impl Course<'_> {
    /// Takes the hooks of a place one step further; gives those that have not succeeded.
    pub(super) async fn run_hooks<T: Target>(&mut self, hands: &mut Hands<'_, T>, place: Place) -> Vec<Look> {
        let due: Vec<Hook> = self.hooks.iter().filter(|hook| hook.place == place).cloned().collect();
        let mut looks = vec![];
        for hook in due {
            match self.record.run(&hook.manifest.key, place.phase) {
                Some(Run { outcome: CheckOutcome::Passed, .. }) => {}
                Some(run) => {
                    let failed = Health::Failed(run.message.clone());
                    looks.push(Look::judged(run.key.clone(), failed, None));
                }
                None => looks.extend(self.step(hands, &hook).await),
            }
        }
        looks
    }

    /// One step of a hook that has not ended; none once it has succeeded.
    async fn step<T: Target>(&mut self, hands: &mut Hands<'_, T>, hook: &Hook) -> Option<Look> {
        let Manifest { key, version, .. } = &hook.manifest;
        let seen = match hands.target.inspect(hands.owner, key, version).await {
            Ok(seen) => seen,
            Err(error) => return Some(unseen(&error)),
        };
        let run = self.run_name(hook.place.phase);
        match seen {
            Some(object) if run_of(&object) == Some(&run) => match judge_run(&object) {
                Health::Progressing(why) => {
                    let state = Some(progress::signature(&object));
                    Some(Look::judged(key.clone(), Health::Progressing(why), state))
                }
                Health::Current => self.end(hands, hook, CheckOutcome::Passed, String::new()).await,
                Health::Failed(why) => self.end(hands, hook, CheckOutcome::Failed, why).await,
            },
            None if self.watch.has_begun(key, hook.place.phase) => {
                let why =
                    "it was gone before its end was seen: it must stay a minute after its end".to_owned();
                self.end(hands, hook, CheckOutcome::Failed, why).await
            }
            None => self.begin(hands, hook, run).await,
            Some(_) if runs_to_an_end(key) => self.clear(hands, hook, run).await,
            Some(_) => self.begin(hands, hook, run).await,
        }
    }

    /// Removes what is left of an earlier run, and begins where nothing is left.
    async fn clear<T: Target>(&mut self, hands: &mut Hands<'_, T>, hook: &Hook, run: String) -> Option<Look> {
        let key = &hook.manifest.key;
        let Some(item) = hands.inventory.items.iter().find(|item| item.key == *key).cloned() else {
            return Some(other(key, "it is not listed"));
        };
        match hands.target.delete(hands.owner, &item).await {
            Err(error) => Some(unseen(&error)),
            Ok(Deleted::NotOurs) => {
                let why = "something of that name is there that Farshore did not make: remove it".to_owned();
                Some(Look::judged(key.clone(), Health::Failed(why), None))
            }
            Ok(Deleted::Kept) => {
                let why = "an annotation keeps its earlier run: give the hook another name".to_owned();
                Some(Look::judged(key.clone(), Health::Failed(why), None))
            }
            Ok(Deleted::Gone | Deleted::Going) => {
                match hands.target.inspect(hands.owner, key, &hook.manifest.version).await {
                    Ok(None) => self.begin(hands, hook, run).await,
                    Ok(Some(_)) => Some(other(key, "its earlier run is being removed")),
                    Err(error) => Some(unseen(&error)),
                }
            }
        }
    }

    async fn begin<T: Target>(&mut self, hands: &mut Hands<'_, T>, hook: &Hook, run: String) -> Option<Look> {
        let mut manifest = hook.manifest.clone();
        manifest.annotate(RUN_ANNOTATION, &run);
        let key = manifest.key.clone();
        match apply(hands, manifest).await {
            Err(error) => {
                let look = Look::judged(key, Health::Progressing(error.message.clone()), None);
                hands.outcome.failures.push(error);
                Some(look)
            }
            Ok(()) => {
                self.watch.begun(&key, hook.place.phase);
                // What does not run is done when it is there.
                match runs_to_an_end(&key) {
                    true => Some(other(&key, "it has begun")),
                    false => self.settle(hands, hook).await,
                }
            }
        }
    }

    /// Looks at once at something that may be what it should be as soon as it is written.
    async fn settle<T: Target>(&mut self, hands: &mut Hands<'_, T>, hook: &Hook) -> Option<Look> {
        let Manifest { key, version, .. } = &hook.manifest;
        match hands.target.inspect(hands.owner, key, version).await {
            Err(error) => Some(unseen(&error)),
            Ok(None) => Some(other(key, "it is not there")),
            Ok(Some(object)) => match judge_run(&object) {
                Health::Current => self.end(hands, hook, CheckOutcome::Passed, String::new()).await,
                health => Some(Look::judged(key.clone(), health, Some(progress::signature(&object)))),
            },
        }
    }

    /// Writes down how a hook ended, before anything is done about it.
    async fn end<T: Target>(
        &mut self,
        hands: &mut Hands<'_, T>,
        hook: &Hook,
        outcome: CheckOutcome,
        message: String,
    ) -> Option<Look> {
        let Hook { manifest, place, deletion } = hook;
        let key = &manifest.key;
        let is_told = outcome == CheckOutcome::Failed || place.phase == Phase::Test;
        let log = if is_told && runs_to_an_end(key) { printed(hands, key).await } else { String::new() };
        let run = Run { key: key.clone(), phase: place.phase, outcome, message: message.clone(), log };
        self.record.runs.push(run);
        if let Err(error) = self.logbook.save(self.record) {
            self.record.runs.pop();
            return Some(Look { at: Looked::Object(key.clone()), sight: Sight::Hidden(chain(&error)) });
        }
        let is_over = match outcome {
            CheckOutcome::Passed => deletion.after_success,
            CheckOutcome::Failed => deletion.after_failure,
        };
        if is_over {
            remove(hands, key).await;
        }
        (outcome == CheckOutcome::Failed).then(|| Look::judged(key.clone(), Health::Failed(message), None))
    }

    /// What the annotation of a run says in this revision and phase.
    fn run_name(&self, phase: Phase) -> String {
        format!("{}-{phase:?}", self.record.revision)
    }
}

fn other(key: &ObjectKey, why: &str) -> Look {
    Look::judged(key.clone(), Health::Progressing(why.to_owned()), None)
}

fn run_of(object: &Value) -> Option<&String> {
    match object.pointer("/metadata/annotations")?.get(RUN_ANNOTATION)? {
        Value::String(run) => Some(run),
        _ => None,
    }
}

/// Whether it is made to end: then it cannot run again under the same name.
fn runs_to_an_end(key: &ObjectKey) -> bool {
    matches!((key.group.as_str(), key.kind.as_str()), ("batch", "Job") | ("", "Pod"))
}

/// Applies the object of a hook and lists it. It is listed already, without a life.
async fn apply<T: Target>(hands: &mut Hands<'_, T>, mut manifest: Manifest) -> Result<(), ObjectError> {
    let item = hands.inventory.items.iter().find(|item| item.key == manifest.key);
    manifest.terms.listed = item.and_then(|item| item.uid.clone());
    let applies = [(manifest, Cause::Changed)];
    let usable = namespaces(hands.target, hands.owner, &applies).await;
    let [(manifest, _)] = applies;
    let applied = super::apply_one(hands.target, hands.owner, &manifest, &usable).await?;
    hands.outcome.changed += 1;
    if let Some(item) = hands.inventory.items.iter_mut().find(|item| item.key == manifest.key) {
        item.version = manifest.version;
        item.uid = Some(applied.uid);
    }
    Ok(())
}

/// Removes what has run. What cannot be removed stays listed, and goes before the next run.
async fn remove<T: Target>(hands: &mut Hands<'_, T>, key: &ObjectKey) {
    let Some(item) = hands.inventory.items.iter().find(|item| item.key == *key).cloned() else { return };
    match hands.target.delete(hands.owner, &item).await {
        Ok(_) => forget(&mut hands.inventory.items, key),
        Err(error) => hands.outcome.failures.push(error),
    }
}

/// A name that has no life any more stays listed: its next one is ours as well.
fn forget(items: &mut [Item], key: &ObjectKey) {
    if let Some(item) = items.iter_mut().find(|item| item.key == *key) {
        item.uid = None;
    }
}

/// The end of what a Job or a Pod printed, or why nobody can tell.
async fn printed<T: Target>(hands: &Hands<'_, T>, key: &ObjectKey) -> String {
    match hands.target.log_tail(hands.owner, key, LOG_LIMIT).await {
        Ok(text) => tail(&text, LOG_LIMIT).to_owned(),
        Err(error) => tail(&format!("(its log cannot be read: {})", error.message), LOG_LIMIT).to_owned(),
    }
}
