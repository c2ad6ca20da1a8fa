//! The pass with which this site calls, dated by the hub's clock.

use std::sync::Arc;

use farshore_shared::clock;
use farshore_shared::digest::Digest;
use farshore_shared::pass;
use farshore_shared::wire::UnixSeconds;
use http::HeaderMap;

use crate::date;
use crate::store::Keys;

/// How far a pass may be dated off before it is made anew, in seconds.
const TOLERANCE: u64 = 30;

/// Who calls.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The site's keys and name.
    pub keys: Arc<Keys>,
    /// The fleet: SHA-256 of root 1.
    pub fleet: Digest,
}

/// Makes passes, and remembers the last one.
#[derive(Debug, Clone)]
pub(super) struct Passes {
    caller: Caller,
    /// The hub's clock less ours, in seconds.
    offset: i64,
    last: Option<(UnixSeconds, String)>,
}

impl Passes {
    pub(super) fn new(caller: Caller) -> Self {
        Self { caller, offset: 0, last: None }
    }

    /// A pass with at least half of its life before it.
    pub(super) fn current(&mut self) -> String {
        let now = self.hub_time(clock::now());
        if let Some((issued, pass)) = &self.last
            && now.abs_diff(*issued) < pass::LIFETIME / 2
        {
            return pass.clone();
        }
        let Caller { keys, fleet } = &self.caller;
        let pass = pass::issue(&keys.signing, &keys.cluster, *fleet, now);
        self.last = Some((now, pass.clone()));
        pass
    }

    /// Makes the next pass a new one.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    fn hub_time(&self, here: UnixSeconds) -> UnixSeconds {
        here.saturating_add_signed(self.offset)
    }

    /// Learns the hub's clock from an answer. Tells whether the last pass was dated wrongly.
    pub(super) fn learn(&mut self, headers: &HeaderMap) -> Dated {
        let Some(there) = date::of(headers) else { return Dated::Well };
        let here = clock::now();
        let far = self.hub_time(here).abs_diff(there) > TOLERANCE;
        if far {
            self.offset = i64::try_from(there).unwrap_or(i64::MAX) - i64::try_from(here).unwrap_or(0);
            self.last = None;
        }
        if far { Dated::Wrongly } else { Dated::Well }
    }
}

/// Whether a pass had the hub's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dated {
    Well,
    Wrongly,
}

#[cfg(test)]
mod tests {
    use super::*;
    use farshore_shared::keys::{Secret, SigningKey};

    use crate::store::SealingKey;

    fn passes() -> Passes {
        let keys = Keys {
            cluster: "shop-7".parse().expect("a name"),
            signing: SigningKey::generate(),
            sealing: SealingKey::from_secret(Secret::random()),
        };
        Passes::new(Caller { keys: Arc::new(keys), fleet: Digest::of(b"root") })
    }

    fn dated(text: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::DATE, text.parse().expect("a header"));
        headers
    }

    #[test]
    fn a_pass_is_kept_and_dated_by_the_hub() {
        let mut passes = passes();
        let first = passes.current();
        assert_eq!(passes.current(), first, "kept");
        assert_eq!(passes.learn(&dated("Sun, 06 Nov 1994 08:49:37 GMT")), Dated::Wrongly);
        let second = passes.current();
        let key = passes.caller.keys.signing.public().clone();
        assert!(pass::verify(&second, &key, passes.caller.fleet, 784_111_777).is_ok());
        assert_eq!(passes.learn(&dated("Sun, 06 Nov 1994 08:49:38 GMT")), Dated::Well);
    }
}
