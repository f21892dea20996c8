//! What the program writes down about whoever comes, at its most talkative level.

#![allow(clippy::expect_used, clippy::panic, reason = "a failed expectation is how a test fails")]

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// In everything that a stranger sends.
const MARKER: &str = "from-a-stranger";

/// A name that a stranger asks for. It can be told, as every name that a workspace could have: it says where the trouble was.
const NAME: &str = "asked-for-by-one";

/// Longest line that a log may have, in bytes.
const LINE_BYTES_MAX: usize = 600;

struct Gateway {
    child: Child,
    folder: PathBuf,
    users: String,
    agents: String,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
    command
        .env("GATEWAY_LISTEN__PUBLIC", "127.0.0.1:0")
        .env("GATEWAY_LISTEN__AGENTS", "127.0.0.1:0")
        .env("GATEWAY_LISTEN__ADMIN", "off")
        .env("GATEWAY_STORE__URL", format!("sqlite://{}", folder.join("gateway.db").display()))
        // Some requests never end.
        .env("GATEWAY_TIMEOUTS__REQUEST_HEADER", "300ms")
        .env("GATEWAY_TIMEOUTS__AGENT_HELLO", "300ms")
        .env("GATEWAY_LOG", "debug,h2=off,hyper=off,sqlx=off")
        .current_dir(folder)
        .stdin(Stdio::null());
    command
}

impl Gateway {
    fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("gateway-log-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let log = File::create(folder.join("log")).expect("a file");
        let child = command(&folder).arg("serve").stdout(Stdio::null()).stderr(log).spawn().expect("the program");
        let mut gateway = Self { child, folder, users: String::new(), agents: String::new() };
        let up = gateway.until_logged("gateway is up");
        let after = |key: &str| up.split(key).nth(1).and_then(|rest| rest.split_whitespace().next()).map(str::to_owned);
        gateway.users = after("users=").expect("an address");
        gateway.agents = after("agents=").expect("an address");
        gateway
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).expect("a log")
    }

    fn until_logged(&self, words: &str) -> String {
        #[expect(clippy::disallowed_methods, reason = "another process is waited for")]
        let began = Instant::now();
        loop {
            let log = self.log();
            if log.contains(words) {
                return log;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "it never said `{words}`: {log}");
            #[expect(clippy::disallowed_methods, reason = "another process is waited for")]
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Makes a token with the command line.
    fn token(&self, arguments: &[&str]) -> String {
        let made = command(&self.folder).args(["token", "create"]).args(arguments).output().expect("the program");
        assert!(made.status.success(), "{made:?}");
        String::from_utf8(made.stdout).expect("text").trim().to_owned()
    }
}

/// Sends bytes and reads what comes until the end.
fn say(address: &str, bytes: &[u8]) -> String {
    let mut client = TcpStream::connect(address).expect("it listens");
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    client.write_all(bytes).ok();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).ok();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Requests in all of whose parts there is the marker, some with a line end or a terminal code, some very long.
fn strangers_requests() -> Vec<Vec<u8>> {
    let long = MARKER.repeat(4096);
    let get = |target: &str, host: &str, fields: &str| {
        format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n{fields}connection: close\r\n\r\n").into_bytes()
    };
    let fields = format!(
        "user-agent: {MARKER}\x1b[31m\r\nreferer: http://{MARKER}/\r\ncookie: gateway_session={MARKER}; {MARKER}={MARKER}\r\n\
         authorization: Bearer gwu_{MARKER}\r\nx-forwarded-for: {MARKER}\r\n"
    );
    vec![
        get(&format!("/{MARKER}?{MARKER}"), "localhost", &fields),
        get(&format!("/{MARKER}"), &format!("80-{NAME}.localhost"), &fields),
        get("/", &format!("{MARKER}.example"), &fields),
        get(&format!("/.gateway/sign-in?code={MARKER}&host={MARKER}&return=/{MARKER}"), "localhost", ""),
        get(&format!("/.gateway/authorize?host=80-{MARKER}.localhost&pre={MARKER}"), "localhost", ""),
        get(&format!("/.gateway/callback?code={MARKER}"), &format!("80-{NAME}.localhost"), &fields),
        get("/", "localhost", &format!("x: {long}\r\n")),
        get(&format!("/{long}"), "localhost", ""),
        get("/", "localhost", &format!("gateway-authorization: {long}\r\n")),
        format!("{MARKER} {MARKER} {MARKER}\r\n\r\n").into_bytes(),
        format!("GET / HTTP/1.1\r\nhost: localhost\r\n{MARKER}\0: {MARKER}\r\n\r\n").into_bytes(),
        format!("GET / HTTP/1.1\r\nhost: localhost\r\n {MARKER}\r\n\r\n").into_bytes(),
        [b"\x16\x03\x01\x02\x00\x01\x00", MARKER.as_bytes()].concat(),
    ]
}

#[test]
fn log_repeats_nothing_that_strangers_send_and_no_secret() {
    let gateway = Gateway::start();
    let (user, agent) = (gateway.token(&["--user", "dev"]), gateway.token(&["--workspace", "one"]));
    for request in strangers_requests() {
        say(&gateway.users, &request);
        say(&gateway.agents, &request);
    }
    // Those who may come in: their words may be told, their secrets not.
    for credential in [format!("gateway-authorization: Bearer {user}"), format!("authorization: Bearer {user}")] {
        for host in ["localhost", "80-one.localhost"] {
            let answer = say(
                &gateway.users,
                format!("GET /?token={user} HTTP/1.1\r\nhost: {host}\r\n{credential}\r\nconnection: close\r\n\r\n")
                    .as_bytes(),
            );
            assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
        }
    }
    // An agent's token at the users' listener, and a user's at the agents'.
    say(
        &gateway.users,
        format!("GET / HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {agent}\r\n\r\n").as_bytes(),
    );
    let websocket = "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n\
                     sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for token in [&user, &agent] {
        let target = format!("GET /{MARKER} HTTP/1.1\r\nhost: localhost\r\n");
        say(&gateway.agents, format!("{target}{websocket}authorization: Bearer {token}\r\n\r\n").as_bytes());
    }
    say(&gateway.users, b"GET /last HTTP/1.1\r\nhost: a_b\r\nconnection: close\r\n\r\n");
    let log = gateway.until_logged("no_such_host");
    assert!(log.contains("request failed") && log.contains("bad_request"), "{log}");
    for word in [MARKER, user.as_str(), agent.as_str(), "gwu_", "gwa_", "\u{1b}"] {
        assert!(!log.contains(word), "{word}: {log}");
    }
    // Who had what trouble: one line has it all.
    let trouble = log.lines().find(|line| line.contains("agent_absent")).expect("a line");
    for field in [
        "request failed",
        "code=\"agent_absent\"",
        "status=503",
        "host=\"80-one.localhost\"",
        "workspace=one",
        "port=80",
        "user=\"dev\"",
        "took_ms=",
        "peer=127.0.0.1",
    ] {
        assert!(trouble.contains(field), "{field}: {trouble}");
    }
    let longest = log.lines().map(str::len).max().unwrap_or_default();
    assert!(longest <= LINE_BYTES_MAX, "{longest} bytes in a line: {log}");
    assert!(log.lines().count() < 300, "{log}");
}
