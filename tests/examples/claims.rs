//! Claims of sessions in batches, by many replicas, against a real PostgreSQL.
//!
//! ```text
//! cargo run --release -p e2e --example claims -- postgres://USER@HOST/DATABASE
//! ```
//!
//! The database has to be empty, and `psql` has to be there, which makes the workspaces. Prints the claims of a second for new places,
//! for places that change hands, and for those of replicas that are lost; beside these, how long look-ups take.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a measurement"
)]

use std::time::{Duration, Instant};

use gateway_config::StoreConfig;
use gateway_store::{CLAIMS_MAX, Incarnation, NewReplica, SessionClaim, SessionKey, Store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const REPLICAS: usize = 40;
const SESSIONS: usize = 1_000_000;
/// Batches on the way at the same time: about the connections that replicas have for this.
const AT_ONCE: usize = 8;
/// Look-ups on the way at the same time, beside the claims.
const LOOK_UPS_AT_ONCE: usize = 4;

async fn replica(store: &Store) -> Incarnation {
    let lease = Duration::from_secs(3_600);
    let new = NewReplica { peer_url: "https://a:1", version: "1", zone: "z", public_url: "https://z", lease };
    store.add_replica(&new).await.unwrap().unwrap()
}

/// Claims places, each for the replica that its number leads to.
async fn claim(store: &Store, what: &str, numbers: &[usize], owner: impl Fn(usize) -> Incarnation) {
    let mut of_owner = std::collections::BTreeMap::<Incarnation, Vec<SessionClaim>>::new();
    for number in numbers {
        let key = SessionKey::Workspace(format!("w-{}", number + 1).parse().unwrap());
        of_owner.entry(owner(*number)).or_default().push(SessionClaim {
            key,
            instance: 1,
            known: None,
            is_late: false,
        });
    }
    let (began, mut batches, mut slowest) = (Instant::now(), JoinSet::new(), Duration::ZERO);
    let pieces = of_owner
        .into_iter()
        .flat_map(|(owner, claims)| claims.chunks(CLAIMS_MAX).map(|batch| (owner, batch.to_vec())).collect::<Vec<_>>());
    for (owner, batch) in pieces {
        if batches.len() == AT_ONCE {
            slowest = slowest.max(batches.join_next().await.unwrap().unwrap());
        }
        let store = store.clone();
        batches.spawn(async move {
            let began = Instant::now();
            store.claim_sessions(owner, &batch).await.unwrap().expect("its lease lives");
            began.elapsed()
        });
    }
    while let Some(took) = batches.join_next().await {
        slowest = slowest.max(took.unwrap());
    }
    let rate = numbers.len() as f64 / began.elapsed().as_secs_f64();
    println!("{what}: {} claims, {rate:.0} a second, slowest batch {slowest:?}", numbers.len());
}

/// Looks workspaces up, one after the other, until it is stopped. Returns how long each look-up took.
async fn look_up(store: Store, first: usize, stop: CancellationToken) -> Vec<Duration> {
    let (mut times, mut number) = (Vec::new(), first);
    while !stop.is_cancelled() {
        number = (number + 7_919) % SESSIONS;
        let name = format!("w-{}", number + 1).parse().unwrap();
        let began = Instant::now();
        store.workspace_session(&name).await.unwrap();
        times.push(began.elapsed());
    }
    times
}

fn make_workspaces(url: &str) {
    let insert = format!(
        "INSERT INTO workspaces (name, owner, executor, created_at) SELECT 'w-' || n, 'o', 'token', 0 FROM \
         generate_series(1, {SESSIONS}) AS n; ANALYZE workspaces"
    );
    let status = std::process::Command::new("psql").args([url, "-q", "-c", &insert]).status().expect("psql is there");
    assert!(status.success());
}

#[tokio::main]
async fn main() {
    let url = std::env::args().nth(1).expect("the URL of an empty database");
    let folder = tempfile::tempdir().unwrap();
    let key_file = Some(folder.path().join("gateway.key"));
    let store = Store::open_with(&StoreConfig { key_file, ..StoreConfig::at(url.parse().unwrap()) }).await.unwrap();
    make_workspaces(&url);
    let mut replicas = Vec::new();
    for _ in 0..REPLICAS {
        replicas.push(replica(&store).await);
    }
    let all: Vec<usize> = (0..SESSIONS).collect();
    let of = |shift: usize| {
        let replicas = replicas.clone();
        move |number: usize| replicas[(number + shift) % REPLICAS]
    };
    claim(&store, "new", &all, of(0)).await;
    claim(&store, "moved", &all[..SESSIONS / 4], of(1)).await;
    for lost in &replicas[..3] {
        store.end_replica(*lost).await.unwrap();
    }
    let lost: Vec<usize> = all[SESSIONS / 4..].iter().copied().filter(|number| number % REPLICAS < 3).collect();
    let stop = CancellationToken::new();
    let mut looking = JoinSet::new();
    for at in 0..LOOK_UPS_AT_ONCE {
        looking.spawn(look_up(store.clone(), at * SESSIONS / LOOK_UPS_AT_ONCE, stop.clone()));
    }
    claim(&store, "of lost replicas", &lost, of(3)).await;
    stop.cancel();
    let mut times = looking.join_all().await.concat();
    times.sort_unstable();
    let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!("meanwhile {} look-ups: p50 {p50:?}, p99 {p99:?}, slowest {:?}", times.len(), times[times.len() - 1]);
}
