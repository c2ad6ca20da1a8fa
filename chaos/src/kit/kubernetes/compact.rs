//! What the store forgets, asked for through the gateway of etcd (`etcdserverpb.KV`, as JSON).

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{KitError, Kubernetes};

impl Kubernetes {
    /// Lets the store forget how everything was before now, as it does by itself every few minutes: a watch that would
    /// go on from an older version is answered that this is gone.
    ///
    /// # Errors
    /// When the store does not do it.
    pub async fn compact(&self) -> Result<(), KitError> {
        // Any key: the answer says at which revision the store is.
        let now = self.etcd("/v3/kv/range", &json!({ "key": "AA==" })).await?;
        let revision = &now["header"]["revision"];
        self.etcd("/v3/kv/compaction", &json!({ "revision": revision, "physical": true }))
            .await
            .map(|_done| ())
    }

    async fn etcd(&self, path: &str, question: &Value) -> Result<Value, KitError> {
        let (address, question) = (self.etcd_port.address(), question.to_string());
        let ask = async || {
            let mut stream = TcpStream::connect(&address).await?;
            // Of HTTP/1.0, so that the answer ends with the connection and comes in one piece.
            let request =
                format!("POST {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{question}", question.len());
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        let answer = ask().await.map_err(KitError::io("asking etcd", &address))?;
        let body = answer.split_once("\r\n\r\n").filter(|_| answer.lines().next().is_some_and(is_ok));
        let said = body.and_then(|(_head, body)| serde_json::from_str(body).ok());
        said.ok_or_else(|| KitError::Answer { what: format!("etcd for {path}"), answer })
    }
}

fn is_ok(status: &str) -> bool {
    status.split(' ').nth(1) == Some("200")
}
