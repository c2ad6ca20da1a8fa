//! Real servers for one test each, and nothing left running afterwards.
//!
//! - [`Redis`], [`S3`], [`Kubernetes`]: programs of the testbed, each in a temporary folder of its own.
//! - [`GitRepo`]: a Git repository that a test writes; [`GitHttp`]: the same repository over smart HTTP.
//! - [`Webhook`]: an admission webhook, which refuses what a test says.
//! - [`Lambda`]: AWS Lambda for one program of this workspace, with a function URL.
//! - [`TcpProxy`]: the cable between a client and a server, which a test may cut.
//! - [`Process`]: a program of this workspace, to be killed at any moment.
//! - [`Search`]: whether bytes are anywhere in the memory of a process, or in its files.
//! - [`wait_for`]: the only way in which a test waits.
//!
//! Every `start` returns when the server answers, or fails with the end of the server's log. Every server listens on
//! 127.0.0.1, on a [`Port`] that no other test holds, and ends with its value: by `Drop` when the test returns or
//! panics, and by its leash (the `leash` module) when the test process itself is killed.
//!
//! Programs are looked up in the folder that `FARSHORE_TESTBED` names, else in `testbed` beside the build
//! (`target/testbed`); `cargo xtask testbed` fills it.
//!
//! The tasks of this module: `GitHttp`, `TcpProxy`, `Webhook` and `Lambda` (two) each run one accept loop on an engine (a
//! runtime on a thread of its own), so that a test may block its own thread while it talks to them; the loop ends with its value.

mod engine;
mod error;
mod git_http;
mod git_repo;
mod kubernetes;
mod lambda;
mod leash;
mod place;
mod port;
mod process;
mod redis;
mod s3;
mod search;
mod tcp_proxy;
mod wait;
mod webhook;

pub use error::KitError;
pub use git_http::{GitHttp, GitMode};
pub use git_repo::GitRepo;
pub(crate) use git_repo::copy;
pub use kubernetes::{ApiRequest, AuditMark, Kubernetes};
pub use lambda::Lambda;
pub use place::{binary, program};
pub use port::Port;
pub use process::{Finished, Process};
pub use redis::Redis;
pub use s3::S3;
pub use search::{Search, Searched};
pub use tcp_proxy::{ProxyMode, TcpProxy};
pub use wait::wait_for;
pub use webhook::Webhook;
