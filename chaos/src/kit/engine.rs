//! A runtime on a thread of its own, for the servers that live inside the test process.
//!
//! A test that blocks its only thread (on `git clone`, say) would otherwise wait for a server that waits for it.

use tokio::runtime::{Builder, Handle, Runtime};

use super::KitError;

/// Runs tasks until it is dropped, which ends them at their next await.
pub(crate) struct Engine(Option<Runtime>);

impl Engine {
    pub(crate) fn start() -> Result<Self, KitError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("farshore-kit")
            .enable_all()
            .build()
            .map_err(KitError::io("starting a runtime", ""))?;
        Ok(Self(Some(runtime)))
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.0.as_ref().expect("the runtime is there until drop").handle()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Waiting for it, as a plain drop does, is forbidden inside the test's own runtime.
            runtime.shutdown_background();
        }
    }
}
