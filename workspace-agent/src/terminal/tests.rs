//! Terminals with real shells, over the channels that the tunnel would open.

mod page;

use std::time::Duration;

use bytes::Bytes;
use futures_util::SinkExt;
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Message;

use self::page::{Page, ask, made};
use super::job::{Choice, JobState, NotHeld, Phase, TerminalJob};
use super::*;

/// The longest that anything here may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);
const HOST: &str = "60002-one.localhost";
const OWNER: &str = "gateway-user: ann\r\ngateway-access: owner\r\n";

fn terminals() -> Terminals {
    with(TerminalOptions::default())
}

/// Makes terminals with the smallest shell there is, and no file that changes its prompt.
fn with(options: TerminalOptions) -> Terminals {
    let environment = [("PS1", "$ "), ("ENV", ""), ("ADDED", "yes")];
    Terminals::new(TerminalOptions {
        shell: Some("/bin/sh".into()),
        environment: environment.map(|(name, value)| (name.into(), value.into())).into(),
        ..options
    })
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("in time")
}

#[tokio::test]
async fn what_is_typed_runs_and_a_page_that_comes_back_misses_nothing() {
    let terminals = terminals();
    let id = made(&terminals).await;
    let mut page = Page::owner(&terminals, &id, 1).await;
    assert!(page.fresh);
    page.run("echo $((6*7)) $TERM $ADDED; read word; echo got:$word\n").await;
    page.shows("42 xterm-256color yes").await;
    let (at, typed) = (page.at, page.taken);
    // It types and is cut before it can hear that this was taken.
    page.type_at(typed, "late\n").await;
    drop(page);
    // Typed again, as it must: it counts once.
    let mut page = Page::join(&terminals, &id, &format!("page={:032x}&from={at}", 1), "owner").await;
    assert!(!page.fresh && page.at == at, "it goes on");
    let again = page.taken;
    assert!(again == typed || again == typed + 5, "all of it or nothing was taken: {again}");
    page.type_at(typed, "late\n").await;
    page.shows("got:late").await;
    page.run("echo once:$word\n").await;
    page.shows("once:late").await;
    // Somebody who comes new sees all of it.
    let mut other = Page::owner(&terminals, &id, 2).await;
    assert!(other.fresh);
    other.shows("42 xterm-256color yes").await;
    other.shows("once:late").await;
    assert_eq!(other.text().matches("got:late").count(), 1, "{:?}", other.text());
    terminals.close().await;
}

#[tokio::test]
async fn who_may_only_look_sees_everything_and_changes_nothing() {
    let terminals = terminals();
    let id = made(&terminals).await;
    let mut owner = Page::owner(&terminals, &id, 1).await;
    let query = format!("page={:032x}&columns=20&rows=5", 2);
    let mut reader = Page::join(&terminals, &id, &query, "shared").await;
    owner.run("echo hello $((1+1))\n").await;
    reader.shows("hello 2").await;
    owner.until(|page| page.viewers == 2).await;
    assert_eq!((reader.size, owner.size), ((80, 24, false), (80, 24, true)));
    reader.say(1, &[0, 10, 0, 10]).await;
    reader.type_at(0, "echo intruder\n").await;
    assert_eq!(reader.code().await, Some(4003));
    for fields in ["", "gateway-access: shared\r\n", "gateway-user: eve\r\n"] {
        for (start, body) in [
            ("POST /terminals", r#"{"columns":80,"rows":24}"#),
            (&format!("DELETE /terminals/{id}"), ""),
            ("POST /job", r#"{"choice":"fail"}"#),
        ] {
            assert_eq!(ask(&terminals, start, fields, body).await, (403, r#"{"error":"read_only"}"#.into()), "{start}");
        }
        let (status, state) = ask(&terminals, "GET /state", fields, "").await;
        assert!(status == 200 && state.contains(r#""may_type":false"#), "{state}");
    }
    // The size is still the owner's, and nothing was typed.
    owner.run("stty size; echo end\n").await;
    owner.shows("24 80").await;
    owner.shows("\r\nend").await;
    assert!(!owner.text().contains("intruder"), "{:?}", owner.text());
    terminals.close().await;
}

#[tokio::test]
async fn size_reaches_the_shell_and_everybody() {
    let terminals = terminals();
    let id = made(&terminals).await;
    let mut first = Page::join(&terminals, &id, &format!("page={:032x}&columns=100&rows=30", 1), "owner").await;
    let mut second = Page::join(&terminals, &id, &format!("page={:032x}&columns=60&rows=20", 2), "owner").await;
    second.until(|page| page.size == (100, 30, false)).await;
    second.run("stty size\n").await;
    second.shows("20 60").await;
    first.until(|page| page.size == (60, 20, false)).await;
    second.say(1, &[0, 61, 0, 21]).await;
    first.until(|page| page.size == (61, 21, false)).await;
    assert_eq!(second.code_after_leaving().await, None);
    first.until(|page| page.size == (100, 30, true)).await;
    terminals.close().await;
}

#[tokio::test]
async fn shell_that_ends_says_its_last_word_and_its_status() {
    let terminals = terminals();
    let id = made(&terminals).await;
    let mut page = Page::owner(&terminals, &id, 1).await;
    page.run("trap 'echo bye' EXIT; exit 7\n").await;
    page.until(|page| page.ended == Some(7)).await;
    assert!(page.text().contains("bye\r\n"), "{:?}", page.text());
    // Whoever was cut off at that moment still learns of it.
    let mut late = Page::owner(&terminals, &id, 2).await;
    late.until(|page| page.ended == Some(7)).await;
    let (_, state) = ask(&terminals, "GET /state", OWNER, "").await;
    assert!(state.contains(r#""ended":true"#), "{state}");
    terminals.close().await;
}

#[tokio::test]
async fn long_output_arrives_whole_at_a_page_that_reads() {
    let terminals = terminals();
    let id = made(&terminals).await;
    let mut page = Page::owner(&terminals, &id, 1).await;
    page.run("i=0; while [ $i -lt 60000 ]; do echo line-$i-of-a-long-output; i=$((i+1)); done; exit\n").await;
    page.until(|page| page.ended.is_some()).await;
    let text = page.text();
    // More than a terminal keeps: the shell was made to wait, and nothing was skipped.
    assert!(text.len() > state::RING_BYTES_MAX, "{}", text.len());
    let mut at = 0;
    for number in 0..60_000 {
        let line = format!("line-{number}-of-a-long-output\r\n");
        at += text[at..].find(&line).unwrap_or_else(|| panic!("{line:?} is missing")) + line.len();
    }
    terminals.close().await;
}

#[tokio::test]
async fn page_whose_typing_waits_for_a_program_still_sees_what_that_program_says() {
    let terminals = terminals();
    let id = made(&terminals).await;
    let mut page = Page::owner(&terminals, &id, 1).await;
    let folder = tempfile::tempdir().expect("a folder");
    let go = folder.path().join("go");
    page.run(&format!(
        "stty raw -echo; echo rea''dy; while [ ! -e {} ]; do sleep 0.05; done; \
         i=0; while [ $i -lt 20000 ]; do echo line-$i-of-a-long-output; i=$((i+1)); done; sleep 1000\n",
        go.display()
    ))
    .await;
    page.shows("ready").await;
    // Nobody reads it. More than waits for a shell, and no more than a page types ahead.
    let typed = page.taken;
    for number in 0..64 {
        page.type_at(typed + number * 1024, &"x".repeat(1024)).await;
    }
    std::fs::write(&go, "").expect("written");
    // While the program still runs, which would be the end of the waiting.
    page.shows("line-19999-of-a-long-output").await;
    assert!(!page.skipped);
    terminals.close().await;
}

#[tokio::test]
async fn page_that_reads_nothing_holds_no_shell_up() {
    let terminals = terminals();
    let id = made(&terminals).await;
    let mut stalled = Page::owner(&terminals, &id, 1).await;
    let done = tempfile::NamedTempFile::new().expect("a file");
    let path = done.path().display().to_string();
    stalled.run(&format!("yes | head -c 4000000; echo written > {path}\n")).await;
    let written = async {
        while !std::fs::read_to_string(&path).is_ok_and(|text| text.contains("written")) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(written).await;
    // It is told what it missed, and goes on from there.
    stalled.run("echo caught-$((1+1))\n").await;
    stalled.shows("caught-2").await;
    assert!(stalled.skipped);
    terminals.close().await;
}

#[tokio::test]
async fn terminals_are_bounded_and_those_that_ended_make_room() {
    let terminals = terminals();
    let first = made(&terminals).await;
    for _ in 1..TERMINALS_MAX {
        made(&terminals).await;
    }
    let body = r#"{"columns":80,"rows":24}"#;
    let refused = ask(&terminals, "POST /terminals", OWNER, body).await;
    assert_eq!(refused, (409, r#"{"error":"too_many_terminals"}"#.into()));
    let mut page = Page::owner(&terminals, &first, 1).await;
    assert_eq!(ask(&terminals, &format!("DELETE /terminals/{first}"), OWNER, "").await.0, 204);
    assert_eq!(page.code().await, Some(4000));
    let ended =
        async { while ask(&terminals, "GET /state", OWNER, "").await.1.matches(r#""ended":true"#).count() == 0 {} };
    soon(ended).await;
    made(&terminals).await;
    let (status, _) = ask(&terminals, &format!("DELETE /terminals/{first}"), OWNER, "").await;
    assert_eq!(status, 404, "it made room");
    soon(terminals.close()).await;
    assert_eq!(terminals.open().err(), Some(Reason::PortClosed));
}

/// Finds the number that a shell wrote as `pid:NUMBER:`.
fn pid_in(text: &str) -> Option<u32> {
    text.split("pid:").find_map(|rest| rest.split_once(':')?.0.parse().ok())
}

#[tokio::test]
async fn end_of_the_agent_ends_its_shells() {
    let terminals = terminals();
    let id = made(&terminals).await;
    let mut page = Page::owner(&terminals, &id, 1).await;
    page.run("echo pid:$$:\n").await;
    // What was typed is shown too, once or twice, and a prompt may come in front of the answer.
    page.until(|page| pid_in(&page.text()).is_some()).await;
    let number = pid_in(&page.text()).expect("it was there");
    let alive =
        || std::fs::read_to_string(format!("/proc/{number}/cmdline")).is_ok_and(|line| line.starts_with("/bin/sh"));
    assert!(alive());
    let (code, ()) = tokio::join!(page.code(), terminals.close());
    assert_eq!(code, Some(4000));
    soon(async {
        while alive() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused_by_name() {
    let terminals = terminals();
    let id = made(&terminals).await;
    let stream = format!("GET /terminals/{id}/stream");
    let shake = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: eA==\r\n";
    let ours = format!("{OWNER}{shake}sec-websocket-protocol: {}\r\n", message::SUBPROTOCOL);
    let page = format!("?page={:032x}", 1);
    let long = format!(r#"{{"columns":80,"rows":24{}}}"#, " ".repeat(2000));
    for (start, fields, body, expected) in [
        ("GET /nothing", OWNER, "", (404, "not_found")),
        ("GET /assets/../state", OWNER, "", (404, "not_found")),
        ("PUT /state", OWNER, "", (405, "method_not_allowed")),
        ("GET /terminals", OWNER, "", (405, "method_not_allowed")),
        ("POST /terminals", OWNER, "{}", (400, "bad_request")),
        ("POST /terminals", OWNER, r#"{"columns":80,"rows":70000}"#, (400, "bad_request")),
        ("POST /terminals", OWNER, &long, (400, "bad_request")),
        ("POST /job", OWNER, r#"{"choice":"fail","instance":"x"}"#, (404, "not_found")),
        ("DELETE /terminals/x", OWNER, "", (404, "terminal_gone")),
        (&format!("GET /terminals/x/stream{page}"), &ours, "", (404, "terminal_gone")),
        (&format!("{stream}{page}"), OWNER, "", (400, "bad_request")),
        (&format!("{stream}{page}"), &format!("{OWNER}{shake}"), "", (400, "bad_request")),
        (&stream, &ours, "", (400, "bad_request")),
        (&format!("{stream}{page}&from=x"), &ours, "", (400, "bad_request")),
        (
            &format!("{stream}{page}"),
            &format!("{ours}origin: http://3000-one.localhost\r\n"),
            "",
            (403, "foreign_page"),
        ),
        ("POST /terminals", &format!("{OWNER}sec-fetch-site: same-site\r\n"), "{}", (403, "foreign_page")),
    ] {
        let (status, told) = ask(&terminals, start, fields, body).await;
        assert_eq!((status, told), (expected.0, format!(r#"{{"error":"{}"}}"#, expected.1)), "{start} {fields:?}");
    }
    terminals.close().await;
}

#[tokio::test]
async fn bad_messages_end_the_connection_and_not_the_terminal() {
    let terminals = terminals();
    let id = made(&terminals).await;
    for message in [
        Message::Text("ls".into()),
        Message::Binary(Bytes::new()),
        Message::Binary(Bytes::from_static(b"\x09")),
        Message::Binary(Bytes::from_static(b"\0\0\0\0\0\0\0\0\x09gap")),
        Message::Binary(Bytes::from_static(b"\x02\0\0\0\0\0\xff\xff\xff")),
        Message::Binary(vec![0; message::MESSAGE_BYTES_MAX + 1].into()),
    ] {
        let mut page = Page::owner(&terminals, &id, 1).await;
        page.socket.send(message.clone()).await.expect("sent");
        assert_eq!(page.code().await, Some(4002), "{:?}", message.len());
    }
    let mut page = Page::owner(&terminals, &id, 1).await;
    page.run("echo alive-$((1+1))\n").await;
    page.shows("alive-2").await;
    let mut newer = Page::owner(&terminals, &id, 1).await;
    assert_eq!(page.code().await, Some(4001));
    newer.shows("alive-2").await;
    terminals.close().await;
}

/// A job that is held, and remembers who decided.
struct Held {
    state: watch::Sender<JobState>,
    chosen: Mutex<Vec<(Choice, Option<String>)>>,
}

impl TerminalJob for Held {
    fn state(&self) -> JobState {
        self.state.borrow().clone()
    }

    fn changed(&self) -> watch::Receiver<JobState> {
        self.state.subscribe()
    }

    fn choose(&self, choice: Choice, who: Option<&str>) -> Result<(), NotHeld> {
        let held = matches!(self.state.borrow().phase, Phase::Held { .. });
        if !held {
            return Err(NotHeld);
        }
        self.chosen.lock().push((choice, who.map(str::to_owned)));
        self.state.send_modify(|state| state.phase = Phase::Ended);
        Ok(())
    }
}

#[tokio::test]
async fn job_is_shown_and_the_choice_of_the_owner_reaches_it() {
    let state = JobState { command: "make test".into(), phase: Phase::Running };
    let job = Arc::new(Held { state: watch::Sender::new(state), chosen: Mutex::default() });
    let terminals = with(TerminalOptions { job: Some(job.clone()), ..TerminalOptions::default() });
    let id = made(&terminals).await;
    let mut page = Page::owner(&terminals, &id, 1).await;
    page.until(|page| page.job.as_deref().is_some_and(|job| job.first() == Some(&0) && job.ends_with(b"make test")))
        .await;
    let instance = terminals.inner.instance.clone();
    let choose_for = async |instance: &str, fields, choice: &str| {
        let body = format!(r#"{{"choice":"{choice}","instance":"{instance}"}}"#);
        ask(&terminals, "POST /job", fields, &body).await
    };
    let choose = async |fields, choice: &str| choose_for(&instance, fields, choice).await;
    assert_eq!(choose(OWNER, "continue").await, (409, r#"{"error":"job_not_held"}"#.into()));
    job.state.send_modify(|state| state.phase = Phase::Held { exit_status: 2, until_unix: 1_800_000_000 });
    page.until(|page| page.job.as_deref().is_some_and(|job| job.starts_with(b"\x01\0\0\0\x02"))).await;
    let (_, state) = ask(&terminals, "GET /state", "", "").await;
    assert!(
        state.contains(r#""job":{"command":"make test","phase":"held","exit_status":2,"until":1800000000}"#),
        "{state}"
    );
    assert_eq!(choose("gateway-access: shared\r\n", "fail").await.0, 403);
    assert_eq!(choose(OWNER, "maybe").await.0, 400);
    assert!(state.contains(&format!(r#""instance":"{instance}""#)), "{state}");
    let late = choose_for(&random_name(), OWNER, "continue").await;
    assert_eq!(late, (409, r#"{"error":"another_job"}"#.into()), "a page of the command before this one");
    assert_eq!(ask(&terminals, "POST /job", OWNER, r#"{"choice":"continue"}"#).await.0, 400);
    assert!(job.chosen.lock().is_empty());
    assert_eq!(choose(OWNER, "continue").await.0, 204);
    assert_eq!(*job.chosen.lock(), [(Choice::Continue, Some("ann".to_owned()))]);
    page.until(|page| page.job.as_deref().is_some_and(|job| job.first() == Some(&2))).await;
    assert_eq!(choose(OWNER, "fail").await.0, 409);
    terminals.close().await;
}
