//! A target as one service sees it: what its policy lets be looks untouched, and what others may change
//! is left to them.
//!
//! Whoever plans and applies through it need not know of drift: an object that was changed and is to be
//! put back looks changed, one that is to be let be looks as it was applied.

mod port;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use farshore_shared::clock;
use farshore_shared::names::Name;
use farshore_shared::wire::{DriftAction, DriftPolicy, ObjectDrift};
use futures::{StreamExt as _, stream};
use tracing::{info, warn};

use super::era::Era;
use super::examine::{Found, examine, leave_to_others};
use super::fight::Turn;
use super::journal::FIELDS_TOLD;
use super::memory::Until;
use super::{Said, Shared};
use crate::object::{Manifest, ObjectKey, Owner};
use crate::plan::Item;
use crate::store::{Found as Stored, Store};
use crate::target::{Applied, Live, ObjectError, Sighting, Target, Whole};
use crate::terms::Owned;
use crate::waves::annotations::is_made_once;

/// The most characters of a field that is told of.
const FIELD_LIMIT: usize = 200;
/// How many objects are looked at at a time.
const CONCURRENT_LOOKS: usize = 8;
/// The most objects that are looked at to say what was changed in them. When more are changed at once,
/// as when a store was restored, the rest is put back without asking.
const LOOKS_LIMIT: usize = 256;

/// What was looked at, and what was seen of each.
type Observed = (Vec<ObjectKey>, Vec<Result<Live, ObjectError>>);

/// A target as one service sees it.
pub struct Guarded<T> {
    target: Arc<T>,
    store: Arc<Store>,
    shared: Arc<Shared>,
    service: Name,
    said: Arc<Said>,
    /// Whether the target tells of every change.
    hears: bool,
    /// Whether what is done is out of date.
    pub(crate) era: Era,
    /// What was observed a moment ago, for whoever observes next.
    observed: Mutex<Option<Observed>>,
    /// What is about to be put back.
    suspects: Mutex<BTreeMap<ObjectKey, ObjectDrift>>,
}

/// What is to be done about an object that looks changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// Put it back.
    PutBack,
    /// Let it be; as it is now, if it is there.
    LetBe(Option<Sighting>),
    /// It is as it was applied, as far as it is ours.
    AsApplied(Sighting),
}

impl<T: Target> Guarded<T> {
    /// The target as a service sees it that says this.
    #[must_use]
    pub fn new(target: Arc<T>, store: Arc<Store>, shared: Arc<Shared>, service: &Name, said: &Said) -> Self {
        let said = shared.state().say(service, said);
        let era = shared.of_era(shared.era());
        let (observed, suspects) = (Mutex::default(), Mutex::default());
        Self { target, store, shared, service: service.clone(), said, hears: false, era, observed, suspects }
    }

    /// The same for work that belongs to an era.
    #[must_use]
    pub fn of_era(mut self, era: u64) -> Self {
        self.era = self.shared.of_era(era);
        self
    }

    /// The same where the target tells of every change: what was applied, and of which nothing was told, is not asked
    /// about. What is told in this moment is the mender's.
    #[must_use]
    pub fn hearing(mut self, hears: bool) -> Self {
        self.hears = hears && !self.shared.state().journal.is_standing(&self.service);
        self
    }

    /// Observes, for itself and for whoever observes the same items next.
    pub async fn look(&self, owner: &Owner, items: &[Item]) -> Vec<Result<Live, ObjectError>> {
        let live = self.judged(owner, items).await;
        let keys = items.iter().map(|item| item.key.clone()).collect();
        *self.observed.lock().unwrap_or_else(PoisonError::into_inner) = Some((keys, live.clone()));
        live
    }

    /// Reads an object that looks changed, and says what to do about it. Without the manifest that was
    /// applied nothing can be compared, and the policy decides alone.
    ///
    /// # Errors
    /// What the target says.
    pub async fn judge(
        &self,
        owner: &Owner,
        item: &Item,
        manifest: Option<&Manifest>,
    ) -> Result<Judged, ObjectError> {
        let Some(whole) = self.target.read(owner, item).await? else {
            return Ok(self.answer(&item.key, None, String::new(), vec![]));
        };
        let Whole { sighting, body } = whole;
        let key = &item.key;
        // Nobody can say what changed.
        let Some(manifest) = manifest else {
            return Ok(self.answer(key, Some(sighting), String::new(), vec![]));
        };
        // It is there, and that is all that was asked for.
        if is_made_once(&manifest.body) {
            return Ok(Judged::LetBe(Some(sighting)));
        }
        let exceptions = self.said.drift.exceptions(&key.group, &key.kind, &key.name);
        let examined = examine(&manifest.body, &body, &exceptions);
        Ok(match examined.found {
            Found::AsApplied => {
                self.shared.state().journal.is_well(&self.service, &key.to_string());
                Judged::AsApplied(sighting)
            }
            Found::Disowned(_) if self.said.drift.policy != DriftPolicy::Correct => {
                // Whoever put it back keeps it: the values are those that were applied.
                self.shared.state().journal.is_well(&self.service, &item.key.to_string());
                Judged::LetBe(Some(sighting))
            }
            Found::Disowned(fields) | Found::Changed(fields) => {
                self.answer(key, Some(sighting), examined.manager, fields)
            }
            Found::Going => self.answer(key, Some(sighting), String::new(), vec![]),
        })
    }

    /// What the service's policy says about an object that was changed.
    fn answer(
        &self,
        key: &ObjectKey,
        sighting: Option<Sighting>,
        manager: String,
        mut fields: Vec<String>,
    ) -> Judged {
        fields.truncate(FIELDS_TOLD);
        fields.iter_mut().for_each(|field| *field = shortened(field));
        let (object, at) = (key.to_string(), clock::now());
        let mut drift = ObjectDrift { object, manager, at, fields, action: DriftAction::Corrected };
        let (mut state, now) = (self.shared.state(), self.shared.now());
        match self.said.drift.policy {
            DriftPolicy::Ignore => return Judged::LetBe(sighting),
            DriftPolicy::Alert => drift.action = DriftAction::Reported,
            DriftPolicy::Correct => match state.fights.turn(key, &drift.manager, now) {
                Turn::Repair => {
                    let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
                    suspects.insert(key.clone(), drift);
                    return Judged::PutBack;
                }
                Turn::Wait(until) => {
                    let (times, pause) = (state.fights.repairs(key), until.saturating_sub(now).as_secs());
                    warn!(
                        service = %self.service, object = %key, manager = drift.manager,
                        "changed again after {times} repairs: it is left so for {pause} s"
                    );
                    drift.action = DriftAction::Damped;
                }
            },
        }
        state.journal.found(&self.service, drift);
        Judged::LetBe(sighting)
    }

    /// What lives under the items' keys, with what is let be as if it were untouched.
    async fn judged(&self, owner: &Owner, items: &[Item]) -> Vec<Result<Live, ObjectError>> {
        let mut live = self.seen(owner, items).await;
        let mut suspects = self.suspects_among(items, &live);
        suspects.retain(|place| {
            let is_let_be = self.is_let_be(&items[*place], &live[*place]);
            if is_let_be {
                let_be(&mut live, items, *place);
            }
            !is_let_be
        });
        let (looked_at, rest) = suspects.split_at(suspects.len().min(LOOKS_LIMIT));
        if !suspects.is_empty() {
            let keys = looked_at.iter().map(|place| items[*place].key.clone()).collect();
            let applied = self.applied(keys, items).await;
            let judging = looked_at.iter().map(|place| {
                let item = &items[*place];
                let manifest = applied.get(&item.key);
                async move { (*place, self.judge(owner, item, manifest).await) }
            });
            let judging: Vec<_> = judging.collect();
            let judged: Vec<_> = stream::iter(judging).buffer_unordered(CONCURRENT_LOOKS).collect().await;
            for (place, judged) in judged {
                match judged {
                    Ok(Judged::PutBack) => {}
                    Ok(Judged::AsApplied(sighting)) => {
                        let (key, mut state) = (&items[place].key, self.shared.state());
                        state.memory.let_be(key, &sighting, Until::OwnersChange);
                        drop(state);
                        let_be(&mut live, items, place);
                    }
                    Ok(Judged::LetBe(sighting)) => {
                        self.lets_be(&items[place].key, sighting.as_ref());
                        let_be(&mut live, items, place);
                    }
                    Err(error) => live[place] = Err(error),
                }
            }
        }
        if self.said.drift.policy != DriftPolicy::Correct {
            for place in rest {
                let_be(&mut live, items, *place);
            }
        }
        live
    }

    /// What lives under the items' keys, asked or heard.
    async fn seen(&self, owner: &Owner, items: &[Item]) -> Vec<Result<Live, ObjectError>> {
        if !self.hears {
            return self.target.observe(owner, items).await;
        }
        let heard = |item: &Item| item.applied.and_then(|_| as_recorded(item));
        let asked: Vec<Item> = items.iter().filter(|item| heard(item).is_none()).cloned().collect();
        let mut answers = match asked.is_empty() {
            true => vec![],
            false => self.target.observe(owner, &asked).await,
        }
        .into_iter();
        let live = items.iter().filter_map(|item| heard(item).map(Ok).or_else(|| answers.next()));
        live.collect()
    }

    /// The places of items that were applied and do not look so any more.
    fn suspects_among(&self, items: &[Item], live: &[Result<Live, ObjectError>]) -> Vec<usize> {
        let mut suspects = vec![];
        let standing = self.shared.state().journal.is_standing(&self.service);
        for (place, (item, live)) in items.iter().zip(live).enumerate() {
            let (Ok(live), Some(_)) = (live, &item.applied) else { continue };
            if Some(live) != as_recorded(item).as_ref() {
                suspects.push(place);
            } else if standing {
                self.shared.state().journal.is_well(&self.service, &item.key.to_string());
            }
        }
        suspects
    }

    /// Whether nothing is asked of an object that looks changed: nobody cares, or it was looked at before and
    /// nobody is told of it. What is told of may have been put back meanwhile.
    fn is_let_be(&self, item: &Item, live: &Result<Live, ObjectError>) -> bool {
        let policy = self.said.drift.policy;
        let known = match live {
            Ok(Live::Present { fingerprint, .. }) => {
                let state = self.shared.state();
                let is_told = || state.journal.is_told(&self.service, &item.key.to_string());
                state.memory.is_let_be(&item.key, fingerprint) && !(policy == DriftPolicy::Alert && is_told())
            }
            Ok(Live::Absent) | Err(_) => false,
        };
        known || policy == DriftPolicy::Ignore
    }

    /// Whether an object is this service's: another may have taken it over.
    pub(super) fn has(&self, key: &ObjectKey) -> bool {
        self.shared.state().memory.owner(key).is_none_or(|owner| *owner == self.service)
    }

    /// Remembers an object that the policy lets be, if it is there.
    pub(super) fn lets_be(&self, key: &ObjectKey, sighting: Option<&Sighting>) {
        let Some(sighting) = sighting else { return };
        let until = match self.said.drift.policy {
            DriftPolicy::Alert => Until::AnythingChanges,
            DriftPolicy::Correct | DriftPolicy::Ignore => Until::OwnersChange,
        };
        self.shared.state().memory.let_be(key, sighting, until);
    }

    /// What was applied of these objects, where it is still here.
    pub(super) async fn applied(
        &self,
        keys: BTreeSet<ObjectKey>,
        items: &[Item],
    ) -> BTreeMap<ObjectKey, Manifest> {
        let applied: BTreeMap<ObjectKey, _> =
            items.iter().filter_map(|item| Some((item.key.clone(), (item.applied?, &item.uid)))).collect();
        let (renders, service) = (self.store.renders(), self.service.clone());
        let picked = tokio::task::spawn_blocking(move || renders.pick(&service, Some(&keys))).await;
        let manifests = match picked {
            Ok(Ok(Stored::Good(manifests))) => manifests,
            // Whatever is wrong with it, the next pass makes it again.
            Ok(Ok(Stored::Absent | Stored::Corrupt(_)) | Err(_)) | Err(_) => vec![],
        };
        let are = manifests.into_iter().filter_map(|manifest| match applied.get(&manifest.key) {
            Some((digest, uid)) if *digest == manifest.digest() => Some((manifest, *uid)),
            Some(_) | None => None,
        });
        let on_their_terms = are.map(|(mut manifest, uid)| {
            manifest.terms = self.said.terms(&manifest);
            manifest.terms.listed.clone_from(uid);
            // It is what was applied: whoever has taken a field of it since has drifted it.
            manifest.terms.owned = Owned::Everything;
            (manifest.key.clone(), manifest)
        });
        on_their_terms.collect()
    }

    /// Applies an object, with what others may change of it left to them.
    async fn put(&self, owner: &Owner, manifest: &Manifest) -> Result<Applied, ObjectError> {
        let key = &manifest.key;
        let exceptions = self.said.drift.exceptions(&key.group, &key.kind, &key.name);
        let mut said = Cow::Borrowed(manifest);
        if !exceptions.is_empty()
            && let Some(whole) = self.target.read(owner, &Item::new(manifest)).await?
        {
            let said = said.to_mut();
            leave_to_others(&mut said.body, &whole.body, &exceptions);
            // Whatever may be changed, the marks are not left to others.
            said.mark(owner);
        }
        let applied = self.target.apply(owner, &said).await?;
        self.note(manifest, &applied);
        Ok(applied)
    }

    /// Keeps what an apply left behind, and tells of it if it was a repair.
    fn note(&self, manifest: &Manifest, applied: &Applied) {
        let Applied { uid, fingerprint, stamp, .. } = applied.clone();
        let (mut state, now) = (self.shared.state(), self.shared.now());
        state.memory.wrote(&self.service, &manifest.key, &Sighting { uid, fingerprint, stamp }, now);
        let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(drift) = suspects.remove(&manifest.key) {
            info!(
                service = %self.service, object = %manifest.key, manager = drift.manager,
                fields = drift.fields.join(" "), "put back what somebody changed"
            );
            state.fights.repaired(&self.service, &manifest.key, &drift.manager, now);
            state.journal.found(&self.service, drift);
        }
    }
}

/// Makes an object look as it was applied.
fn let_be(live: &mut [Result<Live, ObjectError>], items: &[Item], place: usize) {
    if let Some(recorded) = as_recorded(&items[place]) {
        live[place] = Ok(recorded);
    }
}

/// The beginning of a long pointer.
fn shortened(field: &str) -> String {
    match field.char_indices().nth(FIELD_LIMIT) {
        None => field.to_owned(),
        Some((end, _)) => format!("{}...", &field[..end]),
    }
}

/// What the target showed after the item was applied.
fn as_recorded(item: &Item) -> Option<Live> {
    Some(Live::Present { uid: item.uid.clone()?, fingerprint: item.fingerprint? })
}
