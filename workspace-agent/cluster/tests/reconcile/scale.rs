//! Many workspaces on one agent.

use std::sync::atomic::Ordering;

use tunnel_proto::reconcile::{Intent, ToCluster};

use crate::world::{Mode, World};

#[tokio::test]
async fn hundreds_of_workspaces_at_once_do_not_flood_the_api_server() {
    const WORKSPACES: usize = 400;
    let world = World::fake(Mode::Unique).await;
    let mut peer = world.agent().await;
    let subjects: Vec<_> = (0..WORKSPACES).map(|index| world.workspace(&format!("w{index}"))).collect();
    let mut applied = std::collections::BTreeSet::new();
    for chunk in subjects.chunks(100) {
        for subject in chunk {
            peer.intend(Intent { round: 1, ..subject.running(1) }).await;
        }
        // The gateway reads while it writes.
        peer.listen(std::time::Duration::from_millis(1)).await;
    }
    peer.send(&ToCluster::RoundEnd { round: 1, workspaces: 400 }).await;
    applied.extend(peer.reports.values().filter(|report| report.applied == 1).map(|report| report.workspace.clone()));
    while applied.len() < WORKSPACES {
        let report = peer.until("the next workspace", |report| report.applied == 1).await;
        applied.insert(report.workspace);
    }
    // Passes, and the few requests beside them: lists and orphans.
    let busiest = world.trouble.busiest.load(Ordering::Relaxed);
    assert!(busiest <= 16 + 8, "{busiest} requests at once");
}
