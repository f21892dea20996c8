//! Memory of idle WebSockets, for any subject.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::float;
use crate::fleet::sockets::Sockets;
use crate::peer::meter::Trees;
use crate::peer::subject::StartedSubject;

/// Time for memory to settle before it is read.
const SETTLE: Duration = Duration::from_secs(2);

/// Opened and closed first, so that what a program allocates once is not counted.
const FIRST: usize = 20;

/// Opens WebSockets, keeps them, and returns what each adds to the memory of both halves, in KiB.
///
/// # Errors
/// Fails if one of them cannot be opened or ends by itself.
pub async fn websockets(started: &StartedSubject, count: usize) -> anyhow::Result<BTreeMap<String, f64>> {
    let target = started.target();
    let trees = started.trees();
    drop(Sockets::open(&target, FIRST.min(count)).await);
    tokio::time::sleep(SETTLE).await;
    let before = resident(&trees);
    let mut held = Sockets::open(&target, count).await;
    tokio::time::sleep(SETTLE).await;
    let after = resident(&trees);
    let ended = held.drop_ended();
    anyhow::ensure!(held.len() == count, "{} of {count} are open, {ended} ended: {:?}", held.len(), held.failed);
    let each = |half: fn(&[f64; 2]) -> f64| (half(&after) - half(&before)) / 1024.0 / float(count.max(1) as u64);
    Ok(BTreeMap::from([
        ("gateway_kib_each".to_owned(), each(|[server, _]| *server)),
        ("agent_kib_each".to_owned(), each(|[_, agent]| *agent)),
    ]))
}

fn resident(trees: &Trees) -> [f64; 2] {
    let usage = trees.since(trees.begin());
    [float(usage.gateway_rss_bytes), float(usage.agent_rss_bytes)]
}
