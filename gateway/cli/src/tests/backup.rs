//! Backups and keys, as the operator types them.

use super::*;

fn json(done: &Done) -> serde_json::Value {
    assert_eq!(done.exit, Exit::Success, "{}", done.err);
    serde_json::from_str(&done.out).unwrap()
}

#[tokio::test]
async fn backup_is_made_checked_and_restored_where_it_is_said() {
    let site = Site::new("");
    let store = Store::open(&site.store_url()).await.unwrap();
    store.create_user_token(&"ann".parse().unwrap(), UnixSeconds::new(1)).await.unwrap();
    let file = site.0.path().join("one.backup").display().to_string();
    let made = json(&site.run(&["backup", "--to", &file, "-o", "json"], false).await);
    assert_eq!((&made["has_keys"], &made["program"]), (&true.into(), &VERSION.into()));
    let again = site.run(&["backup", "--to", &file], false).await;
    assert!(again.exit == Exit::Failed && again.err.contains("is there already"), "{}", again.err);
    assert_eq!(json(&site.run(&["backup", "--check", &file, "-o", "json"], false).await), made);
    let text = site.run(&["backup", "--check", &file], false).await.out;
    assert!(text.contains("and the keys of its secrets, made at 2027-01-15T08:00:00Z"), "{text}");
    store.close().await;

    let other = Site::new("");
    let restored = json(&other.run(&["restore", "--from", &file, "-o", "json"], false).await);
    assert_eq!(restored["backup"], made);
    let store = Store::open(&other.store_url()).await.unwrap();
    assert_eq!(store.list_tokens().await.unwrap().len(), 1);
    store.close().await;
    let refused = other.run(&["restore", "--from", &file], false).await;
    assert!(refused.exit == Exit::Failed && refused.err.contains("--replace"), "{}", refused.err);
    let replaced = other.run(&["restore", "--from", &file, "--replace"], false).await;
    assert!(replaced.exit == Exit::Success && replaced.err.contains("put aside"), "{}", replaced.err);
    std::fs::write(&file, "not one").unwrap();
    let bad = other.run(&["backup", "--check", &file], false).await;
    assert!(bad.exit == Exit::Failed && bad.err.contains("no backup of a gateway"), "{}", bad.err);
    let search = other.run(&["audit", "search", "backup_restored"], false).await.out;
    assert!(search.contains("backup_restored"), "{search}");
}

#[tokio::test]
async fn key_is_exchanged_in_four_commands_and_not_dropped_too_soon() {
    let site = Site::new("");
    Store::open(&site.store_url()).await.unwrap().close().await;
    let alone = site.run(&["key", "promote"], false).await;
    assert!(alone.exit == Exit::Failed && alone.err.contains("gateway key add"), "{}", alone.err);
    let store = Store::open(&site.store_url()).await.unwrap();
    let orderer = gateway_store::Orderer::random().unwrap();
    store.claim_certificate(orderer, std::time::Duration::from_secs(60)).await.unwrap();
    store.put_certificate(orderer, b"chain").await.unwrap();
    store.close().await;
    let added = json(&site.run(&["key", "add", "-o", "json"], false).await);
    let promoted = json(&site.run(&["key", "promote", "-o", "json"], false).await);
    assert_eq!((&added["keys"][0], &added["keys"][1]), (&promoted["keys"][1], &promoted["keys"][0]));
    let refused = site.run(&["key", "drop"], false).await;
    assert!(refused.exit == Exit::Failed && refused.err.contains("2 secrets are still sealed"), "{}", refused.err);
    let listed = json(&site.run(&["key", "list", "-o", "json"], false).await);
    assert_eq!((&listed["keys"][0]["secrets"], &listed["keys"][1]["secrets"]), (&0.into(), &2.into()), "{listed}");
    let resealed = json(&site.run(&["key", "reseal", "-o", "json"], false).await);
    assert_eq!(resealed, serde_json::json!({"seen": 1, "resealed": 1, "lost": 0}));
    let dropped = json(&site.run(&["key", "drop", "-o", "json"], false).await);
    assert_eq!(dropped["keys"], serde_json::json!([promoted["keys"][0]]));
    let text = site.run(&["key", "list"], false).await.out;
    assert!(text.lines().count() == 2 && text.contains("seals"), "{text}");
    let store = Store::open(&site.store_url()).await.unwrap();
    assert_eq!(store.shared_certificate().await.unwrap().as_deref(), Some(b"chain".as_slice()));
    store.close().await;
}
