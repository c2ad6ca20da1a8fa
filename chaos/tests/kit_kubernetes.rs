//! The kit's Kubernetes API: it starts, answers, tells who wrote, keeps its store, and is gone afterwards.

use std::net::TcpStream;
use std::time::Duration;

use farshore_chaos::kit::{KitError, Kubernetes, wait_for};

#[tokio::test]
async fn the_api_keeps_objects_over_a_restart_and_tells_who_wrote_them() -> Result<(), KitError> {
    let mut kubernetes = Kubernetes::start().await?;
    let mark = kubernetes.audit_mark()?;
    kubernetes.kubectl(&["get", "configmaps", "--all-namespaces"])?;
    kubernetes.kubectl(&["auth", "can-i", "create", "pods"])?;
    assert_eq!(kubernetes.audit_writes_since(mark)?, []);

    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: a }\ndata: { b: c }\n";
    kubernetes.kubectl_with_input(&["apply", "--server-side", "-f", "-"], manifest)?;
    let writes = kubernetes.audit_writes_since(mark)?;
    let [write] = writes.as_slice() else { panic!("not one write: {writes:?}") };
    assert_eq!((write.verb.as_str(), write.user.as_str()), ("patch", "admin"));
    assert!(write.uri.starts_with("/api/v1/namespaces/default/configmaps/a?"), "{write:?}");
    assert!(write.user_agent.starts_with("kubectl/"), "{write:?}");

    let address = kubernetes.url().replace("https://", "");
    kubernetes.stop_api();
    assert!(TcpStream::connect(&address).is_err(), "it still listens");
    kubernetes.start_api().await?;
    assert_eq!(kubernetes.kubectl(&["get", "configmap", "a", "--output=jsonpath={.data.b}"])?, "c");
    drop(kubernetes);
    assert!(TcpStream::connect(&address).is_err(), "it still listens");
    Ok(())
}

#[tokio::test]
async fn with_controllers_a_deleted_namespace_goes_away() -> Result<(), KitError> {
    let kubernetes = Kubernetes::start_with_controllers().await?;
    kubernetes.kubectl(&["create", "namespace", "short-lived"])?;
    kubernetes.kubectl(&["delete", "namespace", "short-lived", "--wait=false"])?;
    wait_for("the namespace to go", Duration::from_secs(60), async || {
        match kubernetes.kubectl(&["get", "namespaces", "--output=name"]) {
            Ok(names) if names.contains("short-lived") => Err(names),
            Ok(_names) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await
}
