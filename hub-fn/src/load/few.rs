//! How many requests of one cluster are worked on at once: those whose bodies take their time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farshore_shared::names::Name;

/// The requests of each cluster that are under way. It holds no more names than there are such requests.
#[derive(Debug)]
pub struct Few {
    held: Mutex<HashMap<Name, usize>>,
    most: usize,
}

/// One request of a cluster that is under way, until it is dropped.
#[derive(Debug)]
pub struct OneOfFew {
    few: Arc<Few>,
    cluster: Name,
}

impl Few {
    /// So many of each cluster.
    #[must_use]
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { held: Mutex::default(), most })
    }

    /// One more of this cluster; none if it has as many as it may.
    pub fn enter(self: &Arc<Self>, cluster: &Name) -> Option<OneOfFew> {
        let mut held = self.held();
        match held.get_mut(cluster) {
            Some(count) if *count >= self.most => return None,
            Some(count) => *count += 1,
            None => drop(held.insert(cluster.clone(), 1)),
        }
        drop(held);
        Some(OneOfFew { few: Arc::clone(self), cluster: cluster.clone() })
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Name, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OneOfFew {
    fn drop(&mut self) {
        let mut held = self.few.held();
        match held.get_mut(&self.cluster) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(held.remove(&self.cluster)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cluster_has_as_many_as_it_may_and_takes_none_from_another() {
        let few = Few::new(2);
        let [loud, calm] = ["loud", "calm"].map(|name| name.parse::<Name>().expect("a name"));
        let first = few.enter(&loud).expect("a place");
        let second = few.enter(&loud).expect("a place");
        assert!(few.enter(&loud).is_none() && few.enter(&calm).is_some());
        drop(first);
        assert!(few.enter(&loud).is_some(), "its place is free again");
        drop(second);
        assert!(few.held().is_empty(), "nothing is left of who is gone");
    }
}
