//! Replicas, as the operator sees them.

use std::time::Duration;

use super::*;
use gateway_store::{DrainRequest, NewReplica, ReplicaReport};

#[tokio::test]
async fn replicas_are_listed_and_one_is_asked_to_drain() {
    let site = Site::new("");
    let store = Store::open(&site.store_url()).await.unwrap();
    let none = site.run(&["replicas", "list"], true).await;
    assert_eq!((none.exit, none.out.as_str()), (Exit::Success, ""));
    assert!(none.err.contains("no replica lives"), "{}", none.err);
    let lease = Duration::from_secs(60);
    let new = NewReplica { peer_url: "https://a:1", version: "1.2.3", zone: "z", public_url: "https://z", lease };
    let replica = store.add_replica(&new).await.unwrap().unwrap();
    let report = ReplicaReport { agents: 7, lanes_ended: 2, lanes_carried: 1 };
    store.report_replica(replica, &report).await.unwrap();
    let listed = site.run(&["replicas", "list", "-o", "json"], false).await.out;
    let rows: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&rows[0]["agents"], &rows[0]["version"]), (&7.into(), &"1.2.3".into()), "{rows}");
    let id = replica.to_string();
    assert_eq!(site.run(&["replicas", "drain", &id], false).await.exit, Exit::Success);
    assert_eq!(store.replicas().await.unwrap()[0].drain, Some(DrainRequest::Finish));
    assert_eq!(site.run(&["replicas", "drain", &id, "--now"], false).await.exit, Exit::Success);
    assert_eq!(store.replicas().await.unwrap()[0].drain, Some(DrainRequest::Now));
    let text = site.run(&["replicas", "list"], false).await.out;
    assert!(text.contains("drain asked"), "{text}");
    let unknown = site.run(&["replicas", "drain", "99"], false).await;
    assert_eq!(unknown.exit, Exit::Failed);
    assert!(unknown.err.contains("no replica 99"), "{}", unknown.err);
    // Asked from elsewhere, it ends meanwhile.
    store.end_replica(replica).await.unwrap();
    assert_eq!(site.run(&["replicas", "drain", &id, "--wait"], false).await.exit, Exit::Failed);
    store.close().await;
}
