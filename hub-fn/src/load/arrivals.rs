//! The bodies of strangers that arrive in this moment: so many at once. One more takes the place of the one that has
//! been arriving longest, so that whoever sends slowly, however many they are, stands in nobody's way: a body that
//! arrives as fast as its network allows is there before so many others have begun.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The bodies that arrive.
#[derive(Debug)]
pub struct Arrivals {
    under_way: Mutex<UnderWay>,
    most: usize,
}

#[derive(Debug, Default)]
struct UnderWay {
    next: u64,
    /// By number: the lowest has been arriving longest. One that is dropped here is given up.
    places: BTreeMap<u64, oneshot::Sender<()>>,
}

/// The place of one body, until it is dropped.
#[derive(Debug)]
struct Place {
    arrivals: Arc<Arrivals>,
    number: u64,
}

/// It had been arriving longest, and others came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenUp;

impl Arrivals {
    /// So many at once.
    #[must_use]
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { under_way: Mutex::default(), most: most.max(1) })
    }

    /// What this body brings, unless it is given up for others. It always finds a place.
    ///
    /// # Errors
    /// [`GivenUp`].
    pub async fn take<T>(self: &Arc<Self>, body: impl Future<Output = T>) -> Result<T, GivenUp> {
        let (place, given_up) = self.enter();
        // One that is there is not given up for those that are not.
        let taken = tokio::select! {
            biased;
            taken = body => Ok(taken),
            _ = given_up => Err(GivenUp),
        };
        drop(place);
        taken
    }

    fn enter(self: &Arc<Self>) -> (Place, oneshot::Receiver<()>) {
        let (held, given_up) = oneshot::channel();
        let mut under_way = self.under_way();
        let number = under_way.next;
        under_way.next += 1;
        under_way.places.insert(number, held);
        if under_way.places.len() > self.most {
            under_way.places.pop_first();
        }
        (Place { arrivals: Arc::clone(self), number }, given_up)
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.arrivals.under_way().places.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn the_body_that_has_been_arriving_longest_is_given_up_for_a_new_one() {
        let arrivals = Arrivals::new(2);
        let mut slow = [0, 1, 2].map(|_| Box::pin(arrivals.take(pending::<()>())));
        for body in &mut slow {
            assert_eq!(body.as_mut().now_or_never(), None, "it finds a place");
        }
        let [first, second, third] = slow;
        assert_eq!(first.await, Err(GivenUp));
        assert_eq!(
            arrivals.take(ready(7)).await,
            Ok(7),
            "a body that is there is taken whatever else arrives"
        );
        assert_eq!(second.await, Err(GivenUp));
        drop(third);
        assert!(arrivals.under_way().places.is_empty(), "nothing is left of who is gone");
    }
}
