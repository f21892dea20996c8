//! A job asks one replica, and the cluster's agent has dialed another.

use e2e::fleet::Fleet;
use gateway_agents::registry::Subject;
use serde_json::json;
use tunnel_proto::environments::Call;

use super::support::{CLUSTER, World, asked};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_is_prepared_at_a_replica_that_the_clusters_agent_has_not_dialed() {
    let fleet = Fleet::default();
    let world = World::start_with(|config| fleet.join(config)).await;
    let dialed = fleet.replica().await;
    let agent = world.agent_at(&dialed).await;
    assert!(world.gateway.cluster_session(CLUSTER).is_none());
    let token = world.job(1, &json!({}));
    let events = world.events("POST", "/environments/complete", &token, &asked(&json!({}))).await;
    let done = &events.last().expect("an event").1;
    assert_eq!(done["outcome"], "completed", "{events:?}");
    assert!(matches!(agent.calls().first(), Some(Call::Apply(_))));
    // It went over a lane, which is no session of the cluster: its conversation stays where its agent is.
    assert!(world.gateway.cluster_session(CLUSTER).is_none());
    let lane = world.gateway.registry.relay(&Subject::Cluster(CLUSTER.parse().unwrap())).expect("a lane");
    assert!(lane.is_hop() && !lane.tunnel.is_ended());
    let bytes = lane.stats();
    assert!(bytes.bytes_sent > 0 && bytes.bytes_received > 0, "{bytes:?}");
}
