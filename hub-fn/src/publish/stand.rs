//! Between two steps: what makes a source due, and how all sources stand.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tracing::debug;

use super::{Packing, PublishError, Publisher};
use crate::record::{self, FLEET};

/// How many hooks one look takes from the record; the rest waits for the next.
const HOOKS_AT_ONCE: usize = 1_000;

/// How the sources stand that this publisher looks at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceStates {
    /// How many there are.
    pub looked: usize,
    /// Those that fail, with how often in a row.
    pub failing: BTreeMap<String, u32>,
    /// Those of which a change waits for an approval.
    pub held: usize,
}

impl Publisher {
    /// When the next source is due, where any has been looked at.
    #[must_use]
    pub fn next_look(&self) -> Option<Instant> {
        let counts = |source: &str| self.leases.holds(source) && !self.fetches.is_under_way(source);
        let next = self.agenda.next(counts, Instant::now());
        if self.fetches.has_arrived() { Some(Instant::now()) } else { next }
    }

    /// Whether this publisher looks at a source; `fleet` is the fleet repository.
    #[must_use]
    pub fn leads(&self, source: &str) -> bool {
        self.leases.holds(source)
    }

    /// How many publishers are alive that this one knows of, itself included.
    #[must_use]
    pub fn publishers(&self) -> usize {
        self.leases.crew()
    }

    /// Waits until something arrives that was too slow for the step that asked for it; for ever if
    /// nothing was. Cancel-safe.
    pub async fn arrival(&mut self) {
        self.fetches.next().await;
    }

    /// Somebody says that a source has something new, the fleet repository for `None`: it is due.
    pub fn push(&mut self, source: Option<&str>) {
        self.agenda.push(source.unwrap_or(FLEET));
    }

    /// Renews what makes sources this publisher's; true if it has won some, which may be due.
    pub async fn tend(&mut self) -> bool {
        let gained = self.leases.refresh(&self.declared, self.fetches.busy(), Instant::now()).await;
        for source in &gained {
            // Where nobody knows when it was looked at, it is due; else at its time.
            if let Some(ago) = self.leases.looked_ago(source).await {
                self.agenda.adopt(source, self.options.interval, ago, Instant::now());
            }
        }
        !gained.is_empty()
    }

    /// Takes from the record what Git servers have said there, and makes those sources due; true if
    /// there was anything for this publisher.
    ///
    /// # Errors
    /// [`PublishError`].
    pub async fn take_hooks(&mut self) -> Result<bool, PublishError> {
        let mut is_any = false;
        for listed in self.objects.list(record::HOOKS, None, HOOKS_AT_ONCE).await? {
            let Some(source) = listed.key.as_str().strip_prefix(record::HOOKS) else { continue };
            let is_ours = self.leases.holds(source);
            if is_ours || !self.declared.contains(source) {
                debug!(source, is_ours, "a Git server has said something");
                // First gone, then due: what is said from now on is heard again.
                self.objects.delete(&listed.key).await?;
                self.agenda.push(source);
                is_any |= is_ours;
            }
        }
        Ok(is_any)
    }

    /// Makes due what waits for an approval and has one; true if there is any.
    ///
    /// # Errors
    /// [`PublishError`].
    pub async fn take_approvals(&mut self) -> Result<bool, PublishError> {
        if self.agenda.held().next().is_none() {
            return Ok(false);
        }
        let approved = self.approved().await?;
        let held = self.agenda.held().filter(|held| approved.contains(&held.change));
        let scopes: Vec<String> = held.map(|held| held.scope.clone()).collect();
        scopes.iter().for_each(|scope| self.agenda.push(scope));
        Ok(!scopes.is_empty())
    }

    /// Whether this publisher knows what is declared: it has looked before.
    #[must_use]
    pub fn has_looked(&self) -> bool {
        !self.declared.is_empty()
    }

    /// How long the next step waits for what it begins to fetch and to pack, the fleet repository's own included.
    pub fn wait_for_looks(&mut self, grace: Duration) {
        (self.options.sync.grace, self.options.sync.packing) = (grace, Packing::WithinGrace);
    }

    /// Waits until the mirrors are stored that were used so far: for a process that may be frozen afterwards.
    pub async fn store_mirrors(&self) {
        self.keeper.settle().await;
    }

    /// Everything that this publisher looks at is due.
    pub fn push_all(&mut self) {
        self.agenda.push_all();
    }

    /// How the sources stand.
    #[must_use]
    pub fn source_states(&self) -> SourceStates {
        let failing = self.agenda.failing().map(|(source, times)| (source.to_owned(), times)).collect();
        SourceStates { looked: self.agenda.len(), failing, held: self.agenda.held().count() }
    }

    /// Ends: leases are given back, and what was fetched is stored.
    pub async fn finish(mut self) {
        self.leases.give_back().await;
        drop(self.fetches);
        self.keeper.finish().await;
    }
}
