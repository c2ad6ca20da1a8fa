//! The chain of trust roots, as TUF 1.0, section 5.3 updates its root role.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::{Envelope, Signers};
use farshore_shared::wire::{ROOT_LIMIT, Role, Root};

use super::{Kind, Refusal, open};

/// The most keys, and the most hub addresses and pins, that a root may list.
const LIST_LIMIT: usize = 64;

/// Believes root 1 because the join token names its digest.
///
/// # Errors
/// [`Refusal::WrongRoot`] for other bytes; [`Refusal`] for a root that does not carry its own
/// signatures.
pub fn first_root(bytes: &[u8], expected: Digest) -> Result<Root, Refusal> {
    let got = Digest::of(bytes);
    if got != expected {
        return Err(Refusal::WrongRoot { expected, got });
    }
    let envelope = read(bytes)?;
    // The digest has vouched for these bytes: they may be parsed to learn which keys must have signed.
    let payload = STANDARD.decode(&envelope.payload).map_err(unreadable)?;
    let claimed: Root = serde_json::from_slice(&payload).map_err(unreadable)?;
    // TUF 1.0, section 4.3: a root is signed by a threshold of the keys that it names itself.
    let root: Root = open(Kind::Root, &envelope, &Signers::of(&claimed, &claimed.roles.root), ROOT_LIMIT)?;
    if root.version != 1 {
        return Err(Refusal::RootVersion { expected: 1, offered: root.version });
    }
    well_formed(root)
}

/// Believes the root that follows `current`.
///
/// Its expiry is no reason to refuse it: a site that was away walks over expired roots to the newest
/// (TUF 1.0, section 5.3.10 checks expiry of the last one only; [`super::desired()`] does that).
///
/// # Errors
/// [`Refusal`] when it is not the very next version, goes back in epoch, or is not signed by a
/// threshold of both roots.
pub fn next_root(current: &Root, bytes: &[u8]) -> Result<Root, Refusal> {
    let envelope = read(bytes)?;
    // TUF 1.0, section 5.3.4: first a threshold of the root that is trusted already, then a threshold
    // of the new one's own keys. Nothing of it is parsed before the first has been counted.
    let claimed: Root = open(Kind::Root, &envelope, &Signers::of(current, &current.roles.root), ROOT_LIMIT)?;
    let root: Root = open(Kind::Root, &envelope, &Signers::of(&claimed, &claimed.roles.root), ROOT_LIMIT)?;
    // TUF 1.0, section 5.3.5: no version is skipped and none is repeated.
    let expected = current.version.saturating_add(1);
    if root.version != expected {
        return Err(Refusal::RootVersion { expected, offered: root.version });
    }
    if root.epoch < current.epoch {
        return Err(Refusal::OldEpoch { kind: Kind::Root, offered: root.epoch, root: current.epoch });
    }
    well_formed(root)
}

fn read(bytes: &[u8]) -> Result<Envelope, Refusal> {
    // Base64 adds a third; the rest is room for signatures.
    let limit = ROOT_LIMIT * 2;
    if bytes.len() > limit {
        return Err(Refusal::TooLarge { kind: Kind::Root, size: bytes.len(), limit });
    }
    serde_json::from_slice(bytes).map_err(unreadable)
}

fn unreadable(source: impl std::error::Error + Send + Sync + 'static) -> Refusal {
    Refusal::Unreadable { kind: Kind::Root, source: source.into() }
}

fn well_formed(root: Root) -> Result<Root, Refusal> {
    let shape = |why: String| Err(Refusal::RootShape { why });
    for (what, count) in
        [("keys", root.keys.len()), ("hubs", root.hubs.len()), ("tlsPins", root.tls_pins.len())]
    {
        if count > LIST_LIMIT {
            return shape(format!("it lists too many {what} ({count}, at most {LIST_LIMIT})"));
        }
    }
    let roles: [(&str, &Role); 3] =
        [("root", &root.roles.root), ("director", &root.roles.director), ("operator", &root.roles.operator)];
    for (name, role) in roles {
        let known = root.keys.iter().filter(|key| role.keys.contains(&key.id())).count();
        // A fleet may have no operators; then nobody can approve, and everything else works.
        let unused = name == "operator" && role.keys.is_empty();
        if !unused && (role.threshold == 0 || role.threshold > known) {
            return shape(format!(
                "its role {name} can never be fulfilled (threshold {}, keys {known})",
                role.threshold
            ));
        }
    }
    Ok(root)
}

#[cfg(test)]
mod tests {
    use super::super::kit::{Fleet, NOW};
    use super::*;
    use farshore_shared::keys::SigningKey;

    #[test]
    fn the_first_root_is_the_one_that_the_token_names() {
        let fleet = Fleet::new();
        let bytes = fleet.root_bytes();
        assert_eq!(first_root(&bytes, Digest::of(&bytes)).expect("named by the token"), fleet.root);
        assert!(matches!(first_root(&bytes, Digest::of(b"other")), Err(Refusal::WrongRoot { .. })));
        let unsigned = Envelope::seal(&fleet.root, &[&SigningKey::generate()]).to_bytes();
        assert!(matches!(first_root(&unsigned, Digest::of(&unsigned)), Err(Refusal::Signature { .. })));
    }

    #[test]
    fn a_site_that_missed_three_roots_walks_the_chain() {
        let fleet = Fleet::new();
        let (mut signer, mut current) =
            (SigningKey::from_file(&fleet.root_key.to_file()).expect("a key"), fleet.root.clone());
        for version in 2..=4 {
            let next_key = SigningKey::generate();
            let mut next = Fleet::root_of(&next_key, &fleet.director);
            next.version = version;
            // Two of the three are expired long ago: what counts is the last.
            next.expires = if version == 4 { NOW + 100 } else { 10 };
            let old_only = Envelope::seal(&next, &[&signer]).to_bytes();
            let new_only = Envelope::seal(&next, &[&next_key]).to_bytes();
            assert!(matches!(next_root(&current, &old_only), Err(Refusal::Signature { .. })));
            assert!(matches!(next_root(&current, &new_only), Err(Refusal::Signature { .. })));
            let both = Envelope::seal(&next, &[&signer, &next_key]).to_bytes();
            current = next_root(&current, &both).expect("signed by both");
            assert!(
                matches!(
                    next_root(&current, &both),
                    Err(Refusal::RootVersion { .. } | Refusal::Signature { .. })
                ),
                "no root is believed twice"
            );
            signer = next_key;
        }
        assert_eq!(current.version, 4);
    }

    #[test]
    fn a_root_that_skips_a_version_or_goes_back_in_epoch_is_refused() {
        let fleet = Fleet::new();
        let sealed = |change: fn(&mut Root)| {
            let mut next = fleet.root.clone();
            next.version = 2;
            change(&mut next);
            Envelope::seal(&next, &[&fleet.root_key]).to_bytes()
        };
        let refused = |bytes: Vec<u8>| next_root(&fleet.root, &bytes).expect_err("refused");
        assert!(next_root(&fleet.root, &sealed(|_| ())).is_ok());
        assert!(matches!(
            refused(sealed(|r| r.version = 3)),
            Refusal::RootVersion { expected: 2, offered: 3 }
        ));
        assert!(matches!(
            refused(sealed(|r| r.version = 1)),
            Refusal::RootVersion { expected: 2, offered: 1 }
        ));
        assert!(matches!(refused(sealed(|r| r.epoch = 0)), Refusal::OldEpoch { .. }));
        assert!(matches!(refused(sealed(|r| r.roles.director.threshold = 2)), Refusal::RootShape { .. }));
        assert!(matches!(refused(sealed(|r| r.critical = vec!["x".into()])), Refusal::Critical { .. }));
        assert!(matches!(refused(vec![b' '; ROOT_LIMIT * 3]), Refusal::TooLarge { .. }));
        assert!(matches!(refused(b"<html>".to_vec()), Refusal::Unreadable { .. }));
    }
}
