//! The audit log in the database: what happened is found there, also after the store was away, and not for ever.

use std::time::Duration;

use e2e::{PATIENCE, TestGateway};
use gateway_config::StoreUrl;
use gateway_net::audit::StoredRecord;
use gateway_store::{AuditFilter, AuditSource, Store, wall_clock, wall_clock_ms};
use serde_json::Value;

use super::support::{As, World, records};

/// Searches until so many records are found; they are stored within a second.
async fn found(world: &World, query: &str, count: usize) -> Vec<Value> {
    let asked = async {
        loop {
            let answer = world.call("GET", &format!("/admin/audit?{query}"), &world.dev(), "").await;
            // The store may be on its way back.
            if answer.status() != 503 {
                assert_eq!(answer.status(), 200, "{query}: {}", answer.text());
                let page: Value = serde_json::from_slice(&answer.body).unwrap();
                let records = page["records"].as_array().unwrap().clone();
                if records.len() >= count {
                    return records;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let records = tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| panic!("{query}: in vain"));
    assert_eq!(records.len(), count, "{query}: {records:?}");
    records
}

async fn stored(store: &Store) -> usize {
    store.audit_records(&AuditFilter { limit: 1_000, ..AuditFilter::default() }).await.unwrap().records.len()
}

#[tokio::test]
async fn what_just_happened_is_found_by_who_did_what_and_where() {
    let world = World::start().await;
    let (ann, began) = (world.user("ann").await, wall_clock());
    for name in ["app", "other"] {
        world.workspace(name, "ann").await;
        let body = r#"{"shares":[{"port":80,"audience":"user:bob"}]}"#;
        world.json("PUT", &format!("/workspaces/{name}/shares"), &ann, body, 200).await;
    }
    world.json("POST", "/admin/users/ann/disable", &world.dev(), "", 200).await;
    let shares = found(&world, "event=shares_changed", 2).await;
    assert_eq!(
        (&shares[0]["workspace"], &shares[1]["workspace"]),
        (&"other".into(), &"app".into()),
        "the newest first"
    );
    assert_eq!((&shares[0]["actor"], &shares[0]["address"]), (&"ann".into(), &"127.0.0.1".into()));
    assert_eq!((&shares[0]["replica"], &shares[0]["record"]["event"]), (&Value::Null, &"shares_changed".into()));
    found(&world, "workspace=app&event=shares_changed", 1).await;
    found(&world, "actor=dev&event=user_changed", 1).await;
    found(&world, "actor=ann", 2).await;
    let trace = shares[1]["trace_id"].as_str().unwrap();
    let one = found(&world, &format!("q={}", trace.to_uppercase()), 1).await;
    assert_eq!(one[0]["workspace"], "app", "what a failure page quotes leads to the record");
    found(&world, &format!("actor=ann&since={began}"), 2).await;
    found(&world, &format!("actor=ann&until={began}"), 0).await;
    // Line by line, what the file has.
    let all = world.call("GET", "/admin/audit?format=jsonl", &world.dev(), "").await;
    assert_eq!((all.status(), all.header("content-type")), (200, Some("application/jsonl")));
    assert_eq!(all.header("gateway-next-cursor"), None);
    let (mut exported, file) = (records(&all.text()), world.audit());
    exported.reverse();
    assert_eq!(exported, file[..exported.len()], "in the order of the file");
    assert!(exported.len() >= 4);
    // And page by page.
    let (mut paged, mut path) = (Vec::new(), "/admin/audit?limit=1".to_owned());
    loop {
        let page = world.json("GET", &path, &world.dev(), "", 200).await;
        paged.extend(page["records"].as_array().unwrap().iter().map(|row| row["record"].clone()));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/admin/audit?limit=1&cursor={cursor}");
    }
    paged.reverse();
    assert_eq!(paged[..exported.len()], exported);
}

#[tokio::test]
async fn hostile_search_finds_nothing_and_is_no_pattern() {
    let world = World::start().await;
    world.json("POST", "/tokens", &world.dev(), r#"{"kind":"user","note":"50%_\"'\\[31m é"}"#, 201).await;
    found(&world, "event=token_created", 1).await;
    for exact in ["50%25_", "%25_%22%27%5C", "%C3%A9", "%5B31M"] {
        found(&world, &format!("event=token_created&q={exact}"), 1).await;
    }
    for text in ["50_%25", "5%25%25", "%27%20OR%201=1%20--", "%5Cu0000", "%F0%9F%A6%80", "*", "%3Cscript%3E"] {
        found(&world, &format!("q={text}"), 0).await;
    }
    for name in ["actor", "workspace", "event"] {
        found(&world, &format!("{name}=%27%20OR%20%271%27=%271"), 0).await;
    }
    for query in [
        "q=%00",
        "actor=%1B",
        "since=yesterday",
        "until=x",
        "format=csv",
        "cursor=x",
        "limit=201",
        "before=1",
        "q=a&q=b",
    ] {
        world.json("GET", &format!("/admin/audit?{query}"), &world.dev(), "", 422).await;
    }
}

#[tokio::test]
async fn only_operators_search() {
    let world = World::start().await;
    world.json("GET", "/admin/audit", &world.user("ann").await, "", 403).await;
    world.json("GET", "/admin/audit?format=jsonl", &world.user("ann").await, "", 403).await;
    world.json("GET", "/admin/audit", &As::Nobody, "", 401).await;
}

#[tokio::test]
async fn accesses_are_stored_if_it_is_said() {
    for days in [0, 1] {
        let world = World::configured(|config| config.audit.keep_access_days = days).await;
        let _agent = world.gateway.agent("mine").await;
        let host = world.gateway.authority("mine", 3000);
        let As::Token(token) = world.dev() else { panic!() };
        let mut client = e2e::raw::Raw::connect(world.gateway.addresses.public).await;
        client.send(format!("GET / HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\r\n")).await;
        client.message().await.expect("an answer");
        world.audited("access_opened", 1).await;
        let count = usize::try_from(days).unwrap();
        // A record that is made later is there: the one before would be too.
        world.json("POST", "/tokens", &world.dev(), r#"{"kind":"user"}"#, 201).await;
        found(&world, "event=token_created", 1).await;
        found(&world, "event=access_opened", count).await;
    }
}

#[tokio::test]
async fn store_that_is_away_stops_no_line_of_the_file_and_gets_the_records_later() {
    let world = World::start().await;
    let agent = world.gateway.agent("mine").await;
    found(&world, "event=agent_connected", 1).await;
    let before = stored(&world.gateway.store).await;
    world.gateway.store.availability().hold(true, tokio::time::Instant::now());
    agent.stop().await;
    world.audited("agent_ended", 1).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    world.gateway.store.availability().hold(false, tokio::time::Instant::now());
    found(&world, "event=agent_ended", 1).await;
    assert_eq!(stored(&world.gateway.store).await, before + 1, "once");
    assert!(world.gateway.metrics().await["gateway_audit_unstored_total"] < 1.0);
}

#[tokio::test]
async fn gateway_ends_in_time_while_its_store_is_away() {
    let world = World::start().await;
    let agent = world.gateway.agent("mine").await;
    found(&world, "event=agent_connected", 1).await;
    world.gateway.store.availability().hold(true, tokio::time::Instant::now());
    agent.stop().await;
    let began = tokio::time::Instant::now();
    let log = world.stopped().await;
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    let last: Vec<_> = records(&log).into_iter().map(|record| record["event"].clone()).collect();
    assert_eq!(last[last.len() - 2..], ["agent_ended", "gateway_stopped"]);
}

/// A record of a user, so many days old.
fn old(number: u64, days: u64) -> StoredRecord {
    StoredRecord {
        number,
        at_ms: wall_clock_ms() - days * 24 * 60 * 60 * 1000,
        event: "user_changed".to_owned(),
        actor: Some("ann".to_owned()),
        workspace: None,
        peer: None,
        trace: None,
        line: "{}".to_owned(),
    }
}

#[tokio::test]
async fn records_go_when_they_are_old_or_none_is_to_be_kept() {
    for (keep_days, left) in [(90, vec![2]), (0, vec![])] {
        let folder = tempfile::tempdir().unwrap();
        let url = StoreUrl::SqliteFile(folder.path().join("gateway.db"));
        let store = Store::open(&url.to_string()).await.unwrap();
        let rows = [old(1, 91), old(2, 89)];
        store.add_audit_records(AuditSource::random().unwrap(), None, &rows).await.unwrap();
        store.close().await;
        let gateway = TestGateway::start_with(|config| {
            config.store.url = url;
            config.audit.keep_days = keep_days;
        })
        .await;
        let swept = async {
            loop {
                let filter = AuditFilter { actor: "ann", limit: 9, ..AuditFilter::default() };
                let found = gateway.store.audit_records(&filter).await.unwrap().records;
                let numbers: Vec<_> = found.iter().map(|found| found.record.number).collect();
                if numbers == left {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, swept).await.is_ok(), "{keep_days}");
        if keep_days == 0 {
            let _agent = gateway.agent("mine").await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(stored(&gateway.store).await, 0, "nothing is kept in the database");
        }
        gateway.stop().await;
    }
}

#[tokio::test]
async fn last_records_of_a_gateway_are_stored_before_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let url = StoreUrl::SqliteFile(folder.path().join("gateway.db"));
    let gateway = TestGateway::start_with(|config| config.store.url = url.clone()).await;
    gateway.stop().await;
    let store = Store::open(&url.to_string()).await.unwrap();
    let page = store.audit_records(&AuditFilter { limit: 9, ..AuditFilter::default() }).await.unwrap();
    let events: Vec<_> = page.records.iter().map(|found| found.record.event.as_str()).collect();
    assert_eq!(events, ["gateway_stopped", "gateway_started"]);
    store.close().await;
}
