//! What both sides of Farshore say, and nothing that only one side does.
//!
//! - [`names`]: the names of clusters, services, sources and label keys, parsed once.
//! - [`digest`]: SHA-256 digests as types.
//! - [`wire`]: the documents and requests of wire version 1 (`docs/wire.md`).
//! - [`policy`]: what a service says of how its objects are applied and removed.
//! - [`dsse`]: the envelope that carries every signed document.
//! - [`keys`]: Ed25519 keys, key ids, and the key file's format.
//! - [`token`]: join tokens.
//! - [`operator`]: the header with which an operator signs a request.
//! - [`pass`]: the short-lived JWT with which an agent calls the hub.
//! - [`etag`]: the `ETag` of `GET /v1/desired`.
//! - [`clock`]: this machine's clock.
//! - [`compress`]: bounded zstd for documents.
//! - [`retry`]: how a failed call is repeated, and hashed jitter.
//! - [`logs`], [`exit`]: how every program logs and ends.
//! - [`duration`], [`size`]: durations and amounts of memory as people write them.

pub mod clock;
pub mod compress;
pub mod digest;
pub mod dsse;
pub mod duration;
pub mod etag;
pub mod exit;
pub mod keys;
pub mod logs;
pub mod names;
pub mod operator;
pub mod pass;
pub mod policy;
pub mod retry;
pub mod size;
pub mod token;
pub mod wire;
