//! Records conversations between the programs of version N, to be played by `recorded.rs`:
//!
//! ```text
//! RECORD_GATEWAY=… RECORD_AGENT=… cargo test -p e2e --test sessions recorder
//! ```
//!
//! `tests/real/suites/versions.sh` builds the programs; `tests/recorded/N/commit` says of which commit.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use e2e::raw::RawApp;
use e2e::{PATIENCE, until};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tunnel_proto::frame::Frame;

use crate::raw_agent::{RawAgent, WINDOW, prefixed};
use crate::raw_gateway::{RawGateway, RawLink};
use crate::recorded::{BULK, DRAINED, REFUSED, REQUEST, RESUMED, STREAM, User, WORKSPACE, answering_app, bulk, words};
use crate::recorded_lines::{Line, Speaker, write};

/// Variables that name the programs.
const GATEWAY: &str = "RECORD_GATEWAY";
const AGENT: &str = "RECORD_AGENT";

/// Longer than messages take that are under way.
const QUIET: Duration = Duration::from_millis(500);

/// Longest comment above a message.
const COMMENT_MAX: usize = 120;

/// Lines of a recording, and the messages that are still to be lost: by their side and a word in them.
#[derive(Debug, Default)]
struct Tape {
    lines: Vec<(Line, String)>,
    losses: VecDeque<(Speaker, &'static str)>,
}

/// The programs of version N, and between them a relay that records.
struct Recorder {
    folder: TempDir,
    addresses: [SocketAddr; 3],
    gateway: Child,
    user: User,
    tape: Arc<Mutex<Tape>>,
    relayed_at: SocketAddr,
    _relay: JoinSet<()>,
}

impl Recorder {
    /// Starts the gateway and the relay.
    async fn start(port: u16, losses: &[(Speaker, &'static str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut addresses = [SocketAddr::from(([127, 0, 0, 1], 0)); 3];
        for address in &mut addresses {
            *address = TcpListener::bind(*address).await.expect("a free port").local_addr().unwrap();
        }
        let gateway = serve(&folder, &addresses).await;
        let token = said(program(&folder, &addresses).args(["token", "create", "--user", "dev"])).await;
        let user = User { public: addresses[0], token, port };
        let tape = Arc::new(Mutex::new(Tape { lines: Vec::new(), losses: losses.iter().copied().collect() }));
        let door = RawGateway::start().await;
        let (relayed_at, mut relay) = (door.address, JoinSet::new());
        relay.spawn(carry_all(door, addresses[1], tape.clone()));
        Self { folder, addresses, gateway, user, tape, relayed_at, _relay: relay }
    }

    /// Starts the agent, with the workspace's token if no other is given.
    async fn agent(&self, token: Option<&str>) -> Child {
        let mut create = program(&self.folder, &self.addresses);
        let own = said(create.args(["token", "create", "--workspace", WORKSPACE])).await;
        let file = self.folder.path().join("token");
        std::fs::write(&file, token.unwrap_or(&own)).expect("a file");
        let mut agent = Command::new(std::env::var(AGENT).expect("a program"));
        agent.args(["run", "--lanes", "1", "--gateway", &format!("http://{}", self.relayed_at), "--token-file"]);
        agent.arg(file).kill_on_drop(true).spawn().expect("the agent starts")
    }

    /// Stops the agent, and writes the recording.
    async fn write(self, name: &str, what: &str, agent: Child) {
        tokio::time::sleep(QUIET).await;
        stop(agent).await;
        tokio::time::sleep(QUIET).await;
        let tape = self.tape.lock().unwrap();
        assert_eq!(tape.losses, [], "not lost");
        write(name, what, &tape.lines);
    }
}

/// Returns the gateway's program with the settings of a recording.
fn program(folder: &TempDir, addresses: &[SocketAddr; 3]) -> Command {
    let mut command = Command::new(std::env::var(GATEWAY).expect("a program"));
    for (listener, address) in ["PUBLIC", "AGENTS", "ADMIN"].iter().zip(addresses) {
        command.env(format!("GATEWAY_LISTEN__{listener}"), address.to_string());
    }
    command.env("GATEWAY_PUBLIC_URL", format!("http://localhost:{}", addresses[0].port()));
    command.env("GATEWAY_STORE__URL", format!("sqlite://{}", folder.path().join("gateway.db").display()));
    command.current_dir(folder.path()).kill_on_drop(true);
    command
}

/// Starts the gateway, and waits until it listens.
async fn serve(folder: &TempDir, addresses: &[SocketAddr; 3]) -> Child {
    let gateway = program(folder, addresses).arg("serve").spawn().expect("the gateway starts");
    until("the gateway listens", || addresses.iter().all(|address| std::net::TcpStream::connect(address).is_ok()))
        .await;
    gateway
}

/// Returns what a command prints.
async fn said(command: &mut Command) -> String {
    let output = command.stderr(Stdio::inherit()).output().await.expect("it runs");
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Asks a program to end.
async fn ask_to_end(child: &Child) {
    let id = child.id().expect("it runs").to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().await.expect("kill").success());
}

async fn stop(mut child: Child) {
    ask_to_end(&child).await;
    tokio::time::timeout(PATIENCE, child.wait()).await.expect("it ends").expect("a status");
}

/// Carries one link after the other.
async fn carry_all(door: RawGateway, gateway: SocketAddr, tape: Arc<Mutex<Tape>>) {
    loop {
        let near = door.accept().await;
        let Ok(stream) = TcpStream::connect(gateway).await else { continue };
        let Some(far) = RawAgent::open_over(stream, &[&near.authorization], WINDOW).await else { continue };
        tape.lock().unwrap().lines.push((Line::Link, String::new()));
        carry(near, far, &tape).await;
    }
}

async fn carry(mut near: RawLink, mut far: RawAgent, tape: &Mutex<Tape>) {
    loop {
        let (side, message) = tokio::select! {
            message = near.arrived() => (Speaker::Agent, message),
            message = far.arrived() => (Speaker::Gateway, message),
        };
        let Some(message) = message else { break };
        let is_lost = record(&mut tape.lock().unwrap(), side, &message);
        if is_lost {
            // What was said before gets there.
            tokio::time::sleep(QUIET).await;
            return;
        }
        match side {
            Speaker::Agent => far.send(prefixed(&message)).await,
            Speaker::Gateway => near.send(prefixed(&message)).await,
        }
        if let Some((status, words)) = far.refused().await {
            tape.lock().unwrap().lines.push((Line::Refused(status, words.clone()), String::new()));
            return near.refuse(status, &words).await;
        }
    }
    far.finish();
    near.finish().await;
}

/// Records a message. Returns whether it is lost.
fn record(tape: &mut Tape, side: Speaker, message: &Bytes) -> bool {
    let frame = Frame::decode(message.clone()).expect("a frame");
    let comment: String = format!("{} {frame:?}", side.word()).chars().take(COMMENT_MAX).collect();
    let has = |word: &str| message.windows(word.len()).any(|part| part == word.as_bytes());
    let is_lost = tape.losses.pop_front_if(|(other, word)| *other == side && has(word)).is_some();
    let line = if is_lost { Line::Lost(side, message.clone()) } else { Line::Said(side, message.clone()) };
    tape.lines.push((line, comment));
    is_lost
}

/// Records what a user does with an app.
async fn record_user(
    name: &str,
    what: &str,
    app: RawApp,
    losses: &[(Speaker, &'static str)],
    user: impl AsyncFnOnce(&User),
) {
    let recorder = Recorder::start(app.port, losses).await;
    let agent = recorder.agent(None).await;
    user(&recorder.user).await;
    recorder.write(name, what, agent).await;
}

async fn record_drain() {
    let app = RawApp::echo().await;
    let mut recorder = Recorder::start(app.port, &[]).await;
    let agent = recorder.agent(None).await;
    let mut stream = recorder.user.stream().await;
    stream.say("first").await;
    ask_to_end(&recorder.gateway).await;
    tokio::time::sleep(QUIET).await;
    stream.say("second").await;
    drop(stream);
    tokio::time::timeout(PATIENCE, recorder.gateway.wait()).await.expect("it ends").expect("a status");
    recorder.gateway = serve(&recorder.folder, &recorder.addresses).await;
    recorder.user.stream().await.say("third").await;
    recorder
        .write(DRAINED, "A gateway drains with a stream under way, and the agent comes to the next one.", agent)
        .await;
}

async fn record_refusal() {
    let recorder = Recorder::start(0, &[]).await;
    let mut agent = recorder.agent(Some("wrong")).await;
    tokio::time::timeout(PATIENCE, agent.wait()).await.expect("it ends").expect("a status");
    write(REFUSED, "An agent whose token is wrong.", &recorder.tape.lock().unwrap().lines);
}

#[tokio::test]
async fn recorder_records_programs_that_are_named() {
    if std::env::var_os(GATEWAY).is_none() {
        return;
    }
    record_user(REQUEST, "A request is answered.", answering_app().await, &[], async |user| user.request().await).await;
    record_user(STREAM, "A stream of words, each of which comes back.", RawApp::echo().await, &[], words).await;
    let what = "A stream of more bytes than fit into a window, all of which come back.";
    record_user(BULK, what, RawApp::echo().await, &[], bulk).await;
    let what = "A stream of words with a link that breaks twice, once for each side.";
    let losses = [(Speaker::Agent, "second"), (Speaker::Gateway, "fourth")];
    record_user(RESUMED, what, RawApp::echo().await, &losses, words).await;
    record_drain().await;
    record_refusal().await;
}
