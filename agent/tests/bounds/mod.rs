//! What the agent may do to a cluster, and what it asks before it does: conflicts, rights, removal.

mod adopting;
mod conflicts;
mod looking;
mod prune;
mod refusals;
mod rights;
mod told;
