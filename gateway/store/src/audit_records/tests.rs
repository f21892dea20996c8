use super::super::each::each;
use super::*;
use crate::{Duty, Fence, NewReplica, ReplicaState};
use gateway_net::audit::as_in_lines;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

fn record(number: u64, event: &str, actor: &str, workspace: &str) -> StoredRecord {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let line = json!({"event": event, "user": actor, "note": format!("Note {number}"), "odd": "%_'\\\"{}\u{1}"});
    StoredRecord {
        number,
        at_ms: number * 1000,
        event: event.to_owned(),
        actor: some(actor),
        workspace: some(workspace),
        peer: some("192.0.2.1"),
        trace: some(&format!("trace-{number}")),
        line: line.to_string(),
    }
}

async fn search(store: &Store, filter: AuditFilter<'_>) -> Vec<u64> {
    let page = store.audit_records(&AuditFilter { limit: 100, ..filter }).await.unwrap();
    assert_eq!(page.before, None);
    page.records.iter().map(|found| found.record.number).collect()
}

#[tokio::test]
async fn records_are_found_by_each_of_their_parts_the_newest_first() {
    each(async |store| {
        let source = AuditSource::random().unwrap();
        assert_ne!(source, AuditSource::random().unwrap());
        let all = [
            record(1, "signed_in", "ann", ""),
            record(2, "shares_changed", "ann", "app"),
            record(3, "shares_changed", "bob", "app"),
            record(4, "user_changed", "operator/0", ""),
        ];
        store.add_audit_records(source, None, &all[..2]).await.unwrap();
        store.add_audit_records(source, Some(Incarnation(7)), &all).await.unwrap();
        assert_eq!(search(store, AuditFilter::default()).await, [4, 3, 2, 1], "and none twice");
        let found = store.audit_records(&AuditFilter { limit: 9, ..AuditFilter::default() }).await.unwrap().records;
        assert_eq!(found.iter().map(|one| one.replica).collect::<Vec<_>>(), [Some(7), Some(7), None, None]);
        let records: Vec<_> = found.into_iter().rev().map(|one| one.record).collect();
        assert_eq!(records, all, "as they were stored");
        let actor = AuditFilter { actor: "ann", ..AuditFilter::default() };
        let workspace = AuditFilter { workspace: "app", ..AuditFilter::default() };
        assert_eq!(search(store, actor).await, [2, 1]);
        assert_eq!(search(store, workspace).await, [3, 2]);
        assert_eq!(search(store, AuditFilter { actor: "bob", ..workspace }).await, [3]);
        assert_eq!(search(store, AuditFilter { event: "signed_in", ..AuditFilter::default() }).await, [1]);
        assert_eq!(search(store, AuditFilter { event: "signed_in", ..workspace }).await, [0; 0]);
        let times = AuditFilter { since: Some(UnixSeconds::new(2)), until: Some(UnixSeconds::new(4)), ..actor };
        assert_eq!(search(store, times).await, [2]);
        assert_eq!(search(store, AuditFilter { actor: "", ..times }).await, [3, 2]);
        for (part, expected) in [("note 3", vec![3]), ("operator/0", vec![4]), ("nothing", vec![])] {
            assert_eq!(search(store, AuditFilter { part, ..AuditFilter::default() }).await, expected, "{part}");
        }
        for part in ["%_'", "\\", "\"{}", "\u{1}"] {
            let part = as_in_lines(part);
            let found = search(store, AuditFilter { part: &part, ..AuditFilter::default() }).await;
            assert_eq!(found, [4, 3, 2, 1], "{part}");
        }
        for part in ["_", "%", "' OR 1=1 --", "note _", "note%"] {
            let expected = if part.len() == 1 { 4 } else { 0 };
            assert_eq!(search(store, AuditFilter { part, ..AuditFilter::default() }).await.len(), expected, "{part}");
        }
        for hostile in ["' OR '1'='1", "%", "*"] {
            let filter = AuditFilter { actor: hostile, workspace: hostile, event: hostile, ..AuditFilter::default() };
            assert_eq!(search(store, filter).await, [0; 0], "{hostile}");
        }
    })
    .await;
}

#[tokio::test]
async fn pages_together_are_what_is_there() {
    each(async |store| {
        let source = AuditSource::random().unwrap();
        let all: Vec<_> = (1..=25).map(|number| record(number, "user_changed", "ann", "")).collect();
        store.add_audit_records(source, None, &all).await.unwrap();
        let (mut seen, mut before) = (Vec::new(), None);
        for _ in 0..4 {
            let page = store.audit_records(&AuditFilter { before, limit: 10, ..AuditFilter::default() }).await.unwrap();
            seen.extend(page.records.iter().map(|found| found.record.number));
            before = page.before;
            // New ones do not move the old ones.
            let number = 100 + u64::try_from(seen.len()).unwrap();
            store.add_audit_records(source, None, &[record(number, "signed_in", "bob", "")]).await.unwrap();
            if before.is_none() {
                break;
            }
        }
        assert_eq!(seen, (1..=25).rev().collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test]
async fn search_looks_at_a_bounded_number_and_goes_on_below() {
    each(async |store| {
        let source = AuditSource::random().unwrap();
        store.add_audit_records(source, None, &[record(1, "signed_in", "ann", "")]).await.unwrap();
        let gap = sql("UPDATE audit_records SET id = id - $1").bind(2 * SCANNED_MAX);
        gap.execute(&store.writer).await.unwrap();
        store.add_audit_records(source, None, &[record(9_000_000, "signed_in", "bob", "")]).await.unwrap();
        let rare = AuditFilter { part: "ann", limit: 5, ..AuditFilter::default() };
        let first = store.audit_records(&rare).await.unwrap();
        assert_eq!(first.records, [], "not looked at yet");
        let second = store.audit_records(&AuditFilter { before: first.before, ..rare }).await.unwrap();
        assert_eq!(second.records.len(), 1);
        assert_eq!(second.before, None);
        let late = AuditFilter { since: Some(UnixSeconds::new(8_000_000)), ..rare };
        assert_eq!(store.audit_records(&late).await.unwrap().before, None, "nothing older can fit");
    })
    .await;
}

#[tokio::test]
async fn old_records_are_removed_and_accesses_have_a_time_of_their_own() {
    each(async |store| {
        let source = AuditSource::random().unwrap();
        let kinds = ["user_changed", "access_opened", "access_ended"];
        let all: Vec<_> =
            (0..30).map(|number| record(number, kinds[usize::try_from(number % 3).unwrap()], "ann", "")).collect();
        store.add_audit_records(source, None, &all).await.unwrap();
        let cutoffs = AuditCutoffs { accesses: UnixSeconds::new(20), others: UnixSeconds::new(10) };
        assert_eq!(store.remove_audit_records(cutoffs, 3).await.unwrap(), 3 + 3, "at most so many of each");
        let mut removed = 6;
        loop {
            match store.remove_audit_records(cutoffs, 3).await.unwrap() {
                0 => break,
                more => removed += more,
            }
        }
        let expected = |number: &u64| if number.is_multiple_of(3) { *number >= 10 } else { *number >= 20 };
        let left: Vec<u64> = (0..30).rev().filter(expected).collect();
        assert_eq!((search(store, AuditFilter::default()).await, removed), (left.clone(), 30 - left.len() as u64));
        let everything = AuditCutoffs { accesses: UnixSeconds::new(99), others: UnixSeconds::new(99) };
        store.remove_audit_records(everything, 1_000).await.unwrap();
        assert_eq!(search(store, AuditFilter::default()).await, [0; 0]);
    })
    .await;
}

#[tokio::test]
async fn only_the_owner_of_the_duty_removes() {
    each(async |store| {
        let lease = Duration::from_secs(60);
        let new = NewReplica { peer_url: "https://a:1", version: "1", zone: "z", public_url: "https://z", lease };
        let (first, second) =
            (store.add_replica(&new).await.unwrap().unwrap(), store.add_replica(&new).await.unwrap().unwrap());
        assert!(store.take_duty(Duty::Audit, first).await.unwrap());
        assert!(!store.take_duty(Duty::Audit, second).await.unwrap());
        let source = AuditSource::random().unwrap();
        store.add_audit_records(source, None, &[record(1, "signed_in", "ann", "")]).await.unwrap();
        let cutoffs = AuditCutoffs { accesses: UnixSeconds::new(99), others: UnixSeconds::new(99) };
        let fenced = |replica| store.fenced(Fence::of_duty(Duty::Audit, replica, CancellationToken::new()));
        assert!(matches!(fenced(second).remove_audit_records(cutoffs, 9).await, Err(StoreError::Fenced)));
        assert_eq!(search(store, AuditFilter::default()).await, [1]);
        assert_eq!(fenced(first).remove_audit_records(cutoffs, 9).await.unwrap(), 1);
        store.renew_replica(first, ReplicaState::Serving, Duration::ZERO).await.unwrap();
    })
    .await;
}
