//! A hub inside another program: no listener, no task, no process of its own. Requests may come from
//! anywhere; here they are made on the spot.
//!
//! `cargo run -p farshore-hub-fn --example embedded`

use std::sync::Arc;

use bytes::Bytes;
use farshore_hub_fn::handlers::{Hub, Settings};
use farshore_hub_fn::index::Index;
use farshore_hub_fn::index::memory::Memory;
use farshore_hub_fn::routes::{self, Door};
use farshore_hub_fn::stores::open_disk;
use farshore_hub_fn::view::View;
use http::Request;
use http_body_util::{BodyExt as _, Full};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let index: Arc<dyn Index> = Arc::new(Memory::new());
    let view = View::new(open_disk(folder.path())?, Arc::clone(&index));
    let hub = Hub::new(view, index, Settings::default());
    for path in ["/healthz", "/v1/desired"] {
        let request = Request::get(path).body(Full::new(Bytes::new()))?;
        let response = routes::answer(&hub, Door::Public, request).await;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        println!("{path}: {status}: {}", String::from_utf8_lossy(&body));
    }
    Ok(())
}
