//! Retention: what nobody needs any more is collected, by reachability and by age.
//!
//! ```text
//! survey (what is needed) -> list -> mark -> wait -> claim -> fence -> survey again -> delete -> release
//! ```
//!
//! [`needed`] and [`marks`] decide and touch nothing; [`Collector`] does what they say. Listings carry no
//! age that can be trusted, so that the age of a thing is counted from the round that first found it unneeded.
//!
//! # Why a publisher never names what is deleted
//! The age only keeps running downloads alive. Safety comes from three steps of the collector and one of the
//! publisher, whatever the time between any two of them:
//!
//! 1. The collector *claims*: it writes the keys that it is about to delete into `gc/claim`.
//! 2. It *fences*: it moves `fleet/head` (or `index/head`, or the heads of mirrors) by compare-and-swap to a head
//!    that says the same under the next sequence. Whoever read the head before loses its own compare-and-swap.
//! 3. It looks again what the fenced head needs, deletes the rest, and releases the claim.
//!
//! A publisher reads the claim after the head and before its first write ([`Guarded`]), and never writes a
//! claimed key. So either it read the head before the fence, and then its publication is refused or was
//! seen by the second look; or it read the head after the fence and therefore the claim after it was made:
//! then it meets the claim and comes back later, or the claim was released, and what was deleted is gone
//! and is written again.
//!
//! A collector that dies leaves its claim, and another takes it over after [`TAKEOVER`]. A collector that
//! was stopped looks at the clock before each deletion and gives up long before that.

mod claim;
mod collect;
mod guarded;
pub mod marks;
pub mod needed;
mod survey;

pub use claim::{Claim, TAKEOVER};
pub use collect::{Collector, Found, Round, give_turn_back};
pub use guarded::Guarded;
pub use needed::{Kind, Needed, Rules};
pub use survey::{RetentionError, Survey};
