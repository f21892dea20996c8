//! SIGHUP and a changed file: what the running program takes over, and what it refuses.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a failed expectation is how a test fails, and other processes are waited for"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Only against hanging: a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A gateway that is killed in the end, whatever happens.
struct Gateway {
    child: Child,
    users: SocketAddr,
    admin: SocketAddr,
    log: Receiver<String>,
    folder: TempDir,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Addresses that no other program or test uses.
fn addresses() -> [SocketAddr; 3] {
    static PROGRAMS: AtomicU32 = AtomicU32::new(1);
    let number = PROGRAMS.fetch_add(1, Ordering::Relaxed);
    let host = Ipv4Addr::from_bits(0x7f00_0000 | (std::process::id() << 4) & 0x00ff_fff0 | number);
    let listeners = [(); 3].map(|()| TcpListener::bind((host, 0)).expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("bound"))
}

impl Gateway {
    fn start(more: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let [users, agents, admin] = addresses();
        let listen = format!("[listen]\npublic = '{users}'\nagents = '{agents}'\nadmin = '{admin}'\n");
        std::fs::write(folder.path().join("listen"), listen).expect("written");
        let mut gateway = Self { child: Self::spawn(&folder, more), users, admin, log: channel().1, folder };
        let mut log = BufReader::new(gateway.child.stderr.take().expect("piped"));
        let (lines, read) = channel();
        gateway.log = read;
        std::thread::spawn(move || {
            let mut line = String::new();
            while log.read_line(&mut line).is_ok_and(|count| count > 0) {
                // The test may be over.
                lines.send(std::mem::take(&mut line)).unwrap_or_default();
            }
        });
        gateway.wait_for("gateway is up");
        gateway
    }

    fn spawn(folder: &TempDir, more: &str) -> Child {
        write(folder, more);
        Command::new(env!("CARGO_BIN_EXE_gateway"))
            .args(["serve", "--config", "gateway.toml"])
            .env("NO_COLOR", "1")
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program")
    }

    /// Reads the log until a line has `part`; returns all that was read.
    fn wait_for(&self, part: &str) -> String {
        let mut all = String::new();
        while !all.contains(part) {
            let line = self.log.recv_timeout(PATIENCE);
            all.push_str(&line.unwrap_or_else(|_| panic!("no {part:?} in the log: {all}")));
        }
        all
    }

    /// Has the program reload a file with this at its end, and returns what it logs until `part`.
    fn reload(&self, more: &str, part: &str) -> String {
        write(&self.folder, more);
        let pid = Pid::from_raw(self.child.id().try_into().expect("a pid")).expect("a pid");
        kill_process(pid, Signal::HUP).expect("it runs");
        self.wait_for(part)
    }

    /// Returns whether a second connection of an address is served while a first one is open.
    fn serves_two(&self) -> bool {
        let mut first = TcpStream::connect(self.users).expect("it listens");
        first.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let head = format!("GET {PAGE} HTTP/1.1\r\nhost: localhost:{}\r\n\r\n", self.users.port());
        first.write_all(head.as_bytes()).expect("written");
        // Once it is answered, it counts.
        let read = first.read(&mut [0; 12]).unwrap_or_default();
        assert!(read > 0, "the first one was not served");
        ask(self.users, &format!("GET {PAGE} HTTP/1.1\r\n")).starts_with("HTTP/1.1 200")
    }

    fn metric(&self, name: &str) -> String {
        let metrics = ask(self.admin, "GET /metrics HTTP/1.1\r\n");
        let line =
            metrics.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}: {metrics}"));
        line.rsplit(' ').next().unwrap_or_default().to_owned()
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("gateway.toml")
    }
}

/// Writes the configuration, with this at its end.
fn write(folder: &TempDir, more: &str) {
    let listen = std::fs::read_to_string(folder.path().join("listen")).expect("written before");
    let text = format!("store.url = 'sqlite://gateway.db'\naudit.path = 'audit.log'\n{listen}{more}");
    std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
}

fn ask(address: SocketAddr, head: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let request = format!("{head}host: localhost:{}\r\nconnection: close\r\n\r\n", address.port());
    let mut answer = String::new();
    // A refused connection is closed.
    let asked = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
    asked.map(|_| answer).unwrap_or_default()
}

const PAGE: &str = "/api/v1/openapi.json";
const GENEROUS: &str = "[limits]\nconnections_per_address = 100\n";
const STRICT: &str = "[limits]\nconnections_per_address = 1\n";

#[test]
fn changed_limit_holds_after_the_signal_and_a_wrong_or_forbidden_change_takes_nothing_over() {
    let gateway = Gateway::start(GENEROUS);
    assert!(gateway.serves_two());
    let started: u64 = gateway.metric("gateway_configured_timestamp_seconds").parse().expect("a time");
    assert!(started > 1_700_000_000);

    // A value that cannot be, beside one that could: neither counts.
    let log = gateway.reload(&format!("{STRICT}requests_per_user = 'many'\n"), "was not reloaded");
    assert!(log.contains("requests_per_user") && log.contains("the new configuration is wrong"), "{log}");
    // A key that needs a restart.
    let log = gateway.reload(&format!("{STRICT}sessions = 7\n[tunnel]\nlanes_max = 3\n"), "was not reloaded");
    assert!(log.contains("limits.sessions") && log.contains("tunnel.lanes_max"), "{log}");
    assert!(log.contains("needs a restart") && !log.contains("taken over key"), "{log}");
    assert!(gateway.serves_two(), "a refused file changed a limit");
    assert_eq!(gateway.metric("gateway_reloads_total{outcome=\"refused\"}"), "2");

    let log = gateway.reload(STRICT, "was reloaded");
    assert!(log.contains("limits.connections_per_address"), "{log}");
    assert!(!gateway.serves_two(), "the limit does not hold");
    let log = gateway.reload(GENEROUS, "was reloaded");
    assert!(log.contains("limits.connections_per_address") && gateway.serves_two(), "{log}");
    gateway.reload(GENEROUS, "was reloaded");
    for (outcome, count) in [("applied", "2"), ("unchanged", "1"), ("refused", "2")] {
        assert_eq!(gateway.metric(&format!("gateway_reloads_total{{outcome=\"{outcome}\"}}")), count, "{outcome}");
    }
}

#[test]
fn signal_opens_the_audit_log_anew_and_reads_the_keys_again() {
    let gateway = Gateway::start("");
    let run = |words: &[&str]| {
        let done =
            Command::new(env!("CARGO_BIN_EXE_gateway")).args(words).arg("--config").arg(gateway.config()).output();
        let done = done.expect("the program");
        (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (is_done, told) = run(&["key", "add"]);
    assert!(is_done, "{told}");
    let mut log = gateway.reload("", "was reloaded");
    // In either order.
    if !log.contains("the audit log was opened anew") {
        log += &gateway.wait_for("the audit log was opened anew");
    }
    assert!(log.contains("added=1"), "{log}");
    // A file without the key in use is refused, and the gateway goes on with what it has.
    let keys = gateway.folder.path().join("gateway.key");
    let before = std::fs::read(&keys).expect("keys");
    std::fs::write(&keys, "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n").expect("written");
    let log = gateway.reload("", "was not reloaded");
    assert!(log.contains("holds another key"), "{log}");
    std::fs::write(&keys, before).expect("written");
    gateway.reload("", "was reloaded");
}

/// An identity provider that refuses each code, and hands on the requests that it got for that.
fn provider() -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (asked, requests) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let request = whole_request(&mut stream);
            let is_metadata = request.starts_with("GET /.well-known/openid-configuration");
            let url = format!("http://{address}");
            let (status, body) = if is_metadata {
                let metadata = format!(
                    "{{\"issuer\":\"{url}\",\"jwks_uri\":\"{url}/keys\",\"authorization_endpoint\":\"{url}/authorize\",\
                     \"token_endpoint\":\"{url}/token\",\"token_endpoint_auth_methods_supported\":[\"client_secret_post\"]}}"
                );
                ("200 OK", metadata)
            } else if request.starts_with("GET ") {
                ("200 OK", "{\"keys\":[]}".to_owned())
            } else {
                // The test may be over.
                asked.send(request).unwrap_or_default();
                ("400 Bad Request", "{\"error\":\"invalid_grant\"}".to_owned())
            };
            let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n");
            let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).unwrap_or_default();
        }
    });
    (address, requests)
}

/// Reads a request with its body.
fn whole_request(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).unwrap_or_default();
        text.push_str(&String::from_utf8_lossy(buffer.get(..count).unwrap_or_default()));
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text.as_str(), ""));
        let length = head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let is_whole = text.contains("\r\n\r\n") && body.len() >= length.unwrap_or(0_usize);
        if count == 0 || is_whole {
            return text;
        }
    }
}

fn header<'a>(answer: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    answer
        .lines()
        .filter_map(move |line| line.split_once(": "))
        .filter(move |(of, _)| *of == name)
        .map(|(_, value)| value)
}

/// Begins a sign-in, comes back from the provider with a code, and returns how the gateway showed it there.
fn exchange(gateway: &Gateway, requests: &Receiver<String>) -> String {
    let begun = ask(gateway.users, "GET /.gateway/sign-in HTTP/1.1\r\n");
    let location = header(&begun, "location").next().unwrap_or_else(|| panic!("no redirect: {begun}"));
    let state = location.split(['?', '&']).find_map(|part| part.strip_prefix("state=")).expect("a state");
    let cookies: Vec<_> = header(&begun, "set-cookie").filter_map(|cookie| cookie.split(';').next()).collect();
    let back =
        format!("GET /.gateway/oidc/callback?code=abc&state={state} HTTP/1.1\r\ncookie: {}\r\n", cookies.join("; "));
    let answer = ask(gateway.users, &back);
    requests.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no code was exchanged: {answer}"))
}

#[test]
fn client_secret_of_the_provider_is_exchanged() {
    let (address, requests) = provider();
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "first-secret\n").expect("written");
    let more = format!(
        "[auth]\nmode = 'oidc'\n[auth.oidc]\nissuer = 'http://{address}'\nclient_id = 'gateway'\nclient_secret_file = '{}'\n",
        secret.display()
    );
    let gateway = Gateway::start(&more);
    let shown = exchange(&gateway, &requests);
    assert!(shown.contains("client_secret=first-secret"), "{shown}");
    std::fs::write(&secret, "second-secret\n").expect("written");
    let shown = exchange(&gateway, &requests);
    assert!(shown.contains("client_secret=first-secret"), "nothing was asked to read it again: {shown}");
    let log = gateway.reload(&more, "was reloaded");
    assert!(!log.contains("second-secret"), "{log}");
    let shown = exchange(&gateway, &requests);
    assert!(shown.contains("client_secret=second-secret"), "{shown}");
    // A file without a secret is refused, and the one before stays in force.
    std::fs::write(&secret, "").expect("written");
    let log = gateway.reload(&more, "was not reloaded");
    assert!(log.contains("client_secret_file"), "{log}");
    let shown = exchange(&gateway, &requests);
    assert!(shown.contains("client_secret=second-secret"), "{shown}");
}
