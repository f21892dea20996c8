//! What becomes of records: lines, files, losses.

use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::line::{line, words};
use super::*;

const NOW_MS: u64 = 1_800_000_000_123;

fn clock() -> u64 {
    NOW_MS
}

/// A folder of its own, gone at the end.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn config(&self, rotate_bytes: u64, keep: u32) -> AuditLog {
        AuditLog { path: Some(self.0.path().join("audit.log")), rotate_bytes, keep, keep_days: 0, keep_access_days: 0 }
    }

    fn lines(&self, name: &str) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.0.path().join(name)).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn token_ids() -> TokenIds {
    Box::new(|hash| Box::pin(async move { (hash[0] == 1).then(|| "t-1".to_owned()) }))
}

fn revoked(token: &str) -> AuditRecord {
    AuditRecord::new(AuditEvent::TokenRevoked { by: Actor::User(Text::new("ann")), token: Text::new(token) })
}

fn refused(reason: &str) -> AuditRecord {
    AuditRecord::new(AuditEvent::AgentRefused { workspace: None, cluster: None, reason: Text::new(reason) })
}

async fn written(config: &AuditLog, fill: impl AsyncFnOnce(&Audit)) -> Counter {
    let lost = Counter::default();
    let (audit, writer) = Audit::open(config, clock, token_ids(), lost.clone()).unwrap();
    fill(&audit).await;
    let stop = CancellationToken::new();
    stop.cancel();
    writer.run(stop).await;
    lost
}

#[test]
fn line_says_what_when_from_where_and_with_what() {
    let event = AuditEvent::AccessOpened {
        access: 7,
        user: Some(Text::new("ann")),
        workspace: Text::new("app"),
        port: 80,
        because: Text::new("owner"),
    };
    let record = AuditRecord::new(event)
        .at_peer([192, 0, 2, 1].into())
        .with(Credential::Token { id: Some(Text::new("t-1")) })
        .traced("00ff");
    insta::assert_snapshot!(
        line(NOW_MS, &record),
        @r#"{"v":1,"time":"2027-01-15T08:00:00.123Z","event":"access_opened","access":7,"user":"ann","workspace":"app","port":80,"because":"owner","peer":"192.0.2.1","credential":{"kind":"token","id":"t-1"},"trace":"00ff"}"#
    );
}

#[test]
fn text_from_outside_is_cut_and_cannot_leave_its_line() {
    let hostile = format!("a\"}}\n{{\u{1b}[2J\u{202e}\u{9b}\u{7f}ä😀{}", "x".repeat(10_000));
    let line = line(0, &refused(&hostile));
    assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{line}");
    assert!(line.len() < 2_000, "{}", line.len());
    let read: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert!(read["reason"].as_str().unwrap().starts_with("a\"}\n{\u{1b}[2J\u{202e}\u{9b}\u{7f}ä😀"));
}

#[test]
fn list_is_cut_and_says_so() {
    let items: Items = (0..1000).collect();
    let json = serde_json::to_value(items).unwrap();
    assert_eq!((json["items"].as_array().unwrap().len(), json["more"].as_u64()), (64, Some(936)));
}

#[tokio::test]
async fn records_are_written_in_order_and_tokens_by_id() {
    let folder = Folder::new();
    written(&folder.config(1 << 20, 2), async |audit| {
        audit.slot().await.unwrap().record(revoked("t-9"));
        for first in [1, 2] {
            audit.record(refused("no").with(Credential::TokenHash([first; 32])));
        }
    })
    .await;
    let lines = folder.lines("audit.log");
    assert_eq!(
        lines.iter().map(|line| line["event"].as_str().unwrap()).collect::<Vec<_>>(),
        ["token_revoked", "agent_refused", "agent_refused"]
    );
    assert_eq!(lines[0]["by"], serde_json::json!({"user": "ann"}));
    assert_eq!(lines[1]["credential"], serde_json::json!({"kind": "token", "id": "t-1"}));
    assert_eq!(lines[2]["credential"], serde_json::json!({"kind": "token", "id": null}));
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(folder.0.path().join("audit.log")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn full_queue_loses_what_happens_and_says_how_much() {
    let folder = Folder::new();
    let lost = written(&folder.config(1 << 30, 2), async |audit| {
        for number in 0..QUEUE_MAX + 3 {
            audit.record(revoked(&format!("t-{number}")));
        }
    })
    .await;
    assert_eq!(lost.get(), 3);
    let lines = folder.lines("audit.log");
    assert_eq!(lines.len(), QUEUE_MAX + 1);
    let told = lines.iter().find(|line| line["event"] == "records_lost").unwrap();
    assert_eq!((&told["queue_full"], &told["strangers"]), (&3.into(), &0.into()));
}

#[tokio::test(start_paused = true)]
async fn change_waits_for_room_and_is_refused_without_any() {
    let folder = Folder::new();
    let lost = Counter::default();
    let (audit, writer) = Audit::open(&folder.config(1 << 30, 2), clock, token_ids(), lost).unwrap();
    for _ in 0..QUEUE_MAX {
        audit.record(revoked("t-1"));
    }
    assert_eq!(audit.slot().await.err(), Some(Unrecordable), "nobody writes");
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(writer.run(stop.clone()));
    let slot = audit.slot().await.expect("room, once somebody writes");
    slot.record(revoked("t-2"));
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();
    assert_eq!(folder.lines("audit.log").last().unwrap()["token"], "t-2");
    assert_eq!(audit.slot().await.err(), Some(Unrecordable), "nobody writes any more");
}

#[tokio::test]
async fn strangers_cannot_fill_the_log() {
    let folder = Folder::new();
    let lost = written(&folder.config(1 << 30, 2), async |audit| {
        for _ in 0..1_000 {
            audit.record(refused("no bearer token was sent"));
        }
        audit.record(revoked("t-1"));
    })
    .await;
    assert_eq!(lost.get(), 1_000 - u64::from(STRANGERS_PER_SECOND));
    let lines = folder.lines("audit.log");
    assert_eq!(lines.iter().filter(|line| line["event"] == "token_revoked").count(), 1);
    let told = lines.iter().find(|line| line["event"] == "records_lost").unwrap();
    assert_eq!(told["strangers"], 950);
}

#[tokio::test]
async fn full_file_is_put_aside_and_the_oldest_goes() {
    let folder = Folder::new();
    let config = folder.config(1, 2);
    for number in 1..=5 {
        written(&config, async |audit| audit.record(revoked(&format!("t-{number}")))).await;
    }
    let token = |name| folder.lines(name)[0]["token"].clone();
    assert_eq!([token("audit.log"), token("audit.log.1"), token("audit.log.2")], ["t-5", "t-4", "t-3"]);
    assert_eq!(std::fs::read_dir(folder.0.path()).unwrap().count(), 3);
}

#[tokio::test]
async fn file_that_was_renamed_is_left_alone() {
    let folder = Folder::new();
    let config = folder.config(1 << 20, 2);
    let mut file = file::LogFile::open(config.path.as_deref().unwrap(), &config).unwrap();
    file.append("{\"token\":1}\n").unwrap();
    std::fs::rename(folder.0.path().join("audit.log"), folder.0.path().join("old")).unwrap();
    file.append("{\"token\":2}\n").unwrap();
    std::fs::remove_file(folder.0.path().join("audit.log")).unwrap();
    append(config.path.as_deref().unwrap(), NOW_MS, revoked("t-1")).unwrap();
    file.append("{\"token\":3}\n").unwrap();
    assert_eq!(folder.lines("old"), [serde_json::json!({"token": 1})]);
    let lines = folder.lines("audit.log");
    assert_eq!((&lines[0]["token"], &lines[1]["token"]), (&"t-1".into(), &3.into()));
}

#[tokio::test]
async fn file_that_cannot_be_written_is_told_of_once_it_can() {
    let folder = Folder::new();
    let config = folder.config(1 << 20, 1);
    let lost = Counter::default();
    let (audit, writer) = Audit::open(&config, clock, token_ids(), lost.clone()).unwrap();
    // A folder where the file should be: it can neither be opened nor replaced.
    std::fs::remove_file(folder.0.path().join("audit.log")).unwrap();
    std::fs::create_dir(folder.0.path().join("audit.log")).unwrap();
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(writer.run(stop.clone()));
    audit.record(revoked("t-1"));
    while lost.get() == 0 {
        tokio::task::yield_now().await;
    }
    std::fs::remove_dir(folder.0.path().join("audit.log")).unwrap();
    audit.record(revoked("t-2"));
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();
    let lines = folder.lines("audit.log");
    assert_eq!((&lines[0]["token"], &lines[1]["unwritten"]), (&"t-2".into(), &1.into()));
}

#[tokio::test]
async fn losses_of_a_full_disk_are_counted_to_the_last_and_told_of_once_it_has_room() {
    let folder = Folder::new();
    let config = folder.config(1 << 20, 1);
    let path = folder.0.path().join("audit.log");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let lost = Counter::default();
    let (audit, writer) = Audit::open(&config, clock, token_ids(), lost.clone()).unwrap();
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(writer.run(stop.clone()));
    // One batch after the other: the record of what was lost is lost with the second and the third.
    for number in 1..=3 {
        audit.record(revoked(&format!("t-{number}")));
        while lost.get() < number {
            tokio::task::yield_now().await;
        }
    }
    std::fs::remove_file(&path).unwrap();
    audit.record(revoked("t-4"));
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();
    let lines = folder.lines("audit.log");
    assert_eq!((&lines[0]["token"], &lines[1]["unwritten"]), (&"t-4".into(), &3.into()));
    assert_eq!(lost.get(), 3);
}

#[tokio::test]
async fn all_records_of_one_change_have_one_place() {
    let folder = Folder::new();
    let lost = written(&folder.config(1 << 30, 2), async |audit| {
        let slot = audit.slot().await.unwrap();
        for _ in 0..QUEUE_MAX {
            audit.record(refused("no"));
        }
        slot.record_all(vec![revoked("t-1"), revoked("t-2"), revoked("t-3")]);
    })
    .await;
    assert!(lost.get() > 0);
    let lines = folder.lines("audit.log");
    assert_eq!(lines.iter().filter(|line| line["event"] == "token_revoked").count(), 3);
}

#[test]
fn line_for_people_has_the_same_in_words() {
    let event =
        AuditEvent::SignInFailed { how: "browser", reason: "not_admitted", user: Some(Text::new("ann \u{1b}[2J")) };
    let record = AuditRecord::new(event).at_peer([192, 0, 2, 1].into()).with(Credential::None);
    let expected = r#"sign_in_failed credential={"kind":"none"} how="browser" peer="192.0.2.1" reason="not_admitted" user="ann \u001b[2J""#;
    assert_eq!(words(&record), expected);
}
