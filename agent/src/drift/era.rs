//! When what is going on is out of date: new orders have come, or somebody at the site has stopped something.
//!
//! An admission webhook holds a write for up to half a minute, and a service may have thousands of objects: who works
//! on one asks before each object whether its era is over, and leaves the rest to the pass that follows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::object::ObjectKey;
use crate::target::{ObjectError, Retry};

/// How long what is under way may go on after its era: what the target answers at all, it answers sooner.
const GRACE: Duration = Duration::from_secs(3);

/// The eras of one site: each ends with what makes the work in it out of date.
#[derive(Debug)]
pub struct Eras(watch::Sender<u64>);

impl Default for Eras {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Eras {
    /// The present one.
    #[must_use]
    pub fn now(&self) -> u64 {
        *self.0.borrow()
    }

    /// It ends, and another begins.
    pub fn turn(&self) {
        self.0.send_modify(|era| *era += 1);
    }

    /// What belongs to an era.
    #[must_use]
    pub fn of(&self, era: u64) -> Era {
        Era { era, now: self.0.subscribe(), cut: AtomicBool::new(false) }
    }
}

/// What somebody does in one era.
#[derive(Debug)]
pub struct Era {
    era: u64,
    now: watch::Receiver<u64>,
    cut: AtomicBool,
}

impl Era {
    /// Whether it is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        *self.now.borrow() != self.era
    }

    /// Whether anything was left undone because it was over.
    #[must_use]
    pub fn was_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// Returns some time after its end, once there is one.
    pub async fn ended(&self) {
        let mut now = self.now.clone();
        if now.wait_for(|now| *now != self.era).await.is_err() {
            // Nobody is left who could end it.
            std::future::pending::<()>().await;
        }
        sleep(GRACE).await;
    }

    /// Does something about an object, unless the era is over. What is under way then is given up a little later, as
    /// by a power cut.
    ///
    /// # Errors
    /// What the deed says, or that it was left undone.
    pub async fn within<R>(
        &self,
        key: &ObjectKey,
        deed: impl Future<Output = Result<R, ObjectError>>,
    ) -> Result<R, ObjectError> {
        if !self.is_over() {
            // Cancel-safe: a deed may be cut anywhere, for what may be there of it is listed.
            tokio::select! {
                done = deed => return done,
                () = self.ended() => {}
            }
        }
        self.cut.store(true, Ordering::Relaxed);
        let message = "left to the next pass, which has other orders".to_owned();
        Err(ObjectError { key: key.clone(), message, retry: Retry::Worthwhile })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ObjectKey {
        ObjectKey { group: String::new(), kind: "ConfigMap".into(), namespace: None, name: "a".into() }
    }

    #[tokio::test]
    async fn nothing_begins_when_its_era_is_over_and_what_hangs_is_given_up() {
        let eras = Eras::default();
        let (key, over, present) = (key(), eras.of(eras.now()), eras.of(eras.now()));
        assert!(present.within(&key, async { Ok(()) }).await.is_ok() && !present.was_cut());
        let hanging = over.within(&key, std::future::pending::<Result<(), _>>());
        let (hung, ()) = tokio::join!(hanging, async { eras.turn() });
        assert!(hung.is_err() && over.is_over() && over.was_cut());
        let mut begun = false;
        let late = present.within(&key, async {
            begun = true;
            Ok(())
        });
        assert!(late.await.is_err() && !begun);
        assert!(!eras.of(eras.now()).is_over());
    }
}
