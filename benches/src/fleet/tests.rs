use std::net::SocketAddr;

use gateway::app::{Addresses, App};
use gateway_config::{Config, StoreUrl};
use gateway_store::{Store, wall_clock};
use tokio::task::JoinSet;

use super::*;

/// The longest that anything may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(20);

async fn bind(agents: SocketAddr, store: StoreUrl) -> (App, Addresses) {
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    let mut config = Config::default();
    (config.listen.public, config.listen.agents, config.listen.admin) = (any, agents, None);
    config.public_url = config.public_url.with_port(0);
    config.store.url = store;
    config.timeouts.drain = Duration::from_millis(200);
    let app = App::bind(config).await.expect("the gateway starts");
    let addresses = app.addresses().expect("bound");
    (app, addresses)
}

/// An address that a program can have again after it has ended: below the range from which the kernel gives ports to whoever
/// asks for any, so that nobody gets it meanwhile.
fn lasting() -> SocketAddr {
    loop {
        let address = SocketAddr::from(([127, 0, 0, 1], rand::random_range(10_000..20_000)));
        if std::net::TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

async fn tokens(store: &Store, count: usize) -> Vec<String> {
    let mut tokens = Vec::new();
    for number in 0..count {
        let (name, owner) = (format!("w{number}").parse().unwrap(), "dev".parse().unwrap());
        let made = store.create_agent_token(&name, &owner, wall_clock()).await.expect("a token");
        tokens.push(made.token.reveal().to_owned());
    }
    tokens
}

#[tokio::test]
async fn fleet_comes_up_loses_its_gateway_and_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = StoreUrl::SqliteFile(folder.path().join("gateway.db"));
    let (app, addresses) = bind(lasting(), store.clone()).await;
    let tokens = tokens(app.store(), 5).await;
    let (mut gateway, stop) = (JoinSet::new(), CancellationToken::new());
    gateway.spawn(app.run(stop.clone()));
    let fleet = Fleet::start(&format!("http://{}", addresses.agents), tokens, &FleetOptions::default()).expect("good");
    assert!(fleet.wait_up(5, PATIENCE).await, "{:?}", fleet.counts());
    assert_eq!(fleet.counts(), Counts { agents: 5, up: 5, connects: 5, ..Counts::default() });
    assert!(fleet.is_up(4) && !fleet.is_up(5));

    let stopped = Instant::now();
    stop.cancel();
    while gateway.join_next().await.is_some() {}
    assert!(fleet.wait(PATIENCE, |up| *up == 0).await, "{:?}", fleet.counts());
    assert!(fleet.counts().redials >= 5);
    assert!(fleet.ups_since(stopped).is_empty());

    let (app, _) = bind(addresses.agents, store).await;
    gateway.spawn(app.run(CancellationToken::new()));
    assert!(fleet.wait_up(5, PATIENCE).await, "{:?}", fleet.counts());
    assert_eq!((fleet.ups_since(stopped).len(), fleet.counts().connects), (5, 10));
    assert_eq!(fleet.stop(PATIENCE).await, 0);
}

#[tokio::test]
async fn agent_that_is_refused_is_counted_by_its_reason() {
    let (app, addresses) = bind(([127, 0, 0, 1], 0).into(), StoreUrl::SqliteMemory).await;
    let mut tokens = tokens(app.store(), 1).await;
    tokens.push("nonsense".to_owned());
    let mut gateway = JoinSet::new();
    gateway.spawn(app.run(CancellationToken::new()));
    let fleet = Fleet::start(&format!("http://{}", addresses.agents), tokens, &FleetOptions::default()).expect("good");
    let ended = async {
        while fleet.counts().ended.is_empty() || fleet.up() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("one comes up and one is refused");
    let counts = fleet.counts();
    assert_eq!((counts.up, counts.ended.values().sum::<u64>()), (1, 1), "{counts:?}");
    assert!(counts.ended.keys().all(|reason| reason.contains("refused")), "{counts:?}");
}

#[test]
fn curve_counts_each_second() {
    let at = |millis: &[u64]| millis.iter().map(|millis| Duration::from_millis(*millis)).collect::<Vec<_>>();
    assert_eq!(per_second(&at(&[])), [0_u64; 0]);
    assert_eq!(per_second(&at(&[0, 999, 1000, 3500])), [2, 1, 0, 1]);
}
