//! Restarts of the program on a socket that outlives it, as a service manager keeps one: no connection is refused.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a failed expectation is how a test fails"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Restarts under load.
const RESTARTS: usize = 20;

/// One new connection in this time.
const CONNECTION_INTERVAL: Duration = Duration::from_millis(10);

/// A gateway that is killed in the end, whatever happens.
struct Gateway(Child);

impl Drop for Gateway {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Starts the program with a listening socket as its descriptor 3, as sd_listen_fds(3) has it, and waits until it is up.
fn start(socket: &TcpListener, public: SocketAddr) -> Gateway {
    let socket: OwnedFd = socket.try_clone().expect("a descriptor").into();
    let mut child = Command::new("sh")
        .args([
            "-c",
            "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" serve",
            env!("CARGO_BIN_EXE_gateway"),
        ])
        .env("GATEWAY_LISTEN__PUBLIC", public.to_string())
        .env("GATEWAY_LISTEN__AGENTS", "127.0.0.1:0")
        .env("GATEWAY_LISTEN__ADMIN", "off")
        .env("GATEWAY_STORE__URL", "sqlite::memory:")
        .env("NO_COLOR", "1")
        .current_dir(std::env::temp_dir())
        .stdin(socket)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut log = BufReader::new(child.stderr.take().expect("piped"));
    let mut gateway = Gateway(child);
    let mut line = String::new();
    while !line.contains("gateway is up") {
        line.clear();
        assert_ne!(log.read_line(&mut line).expect("text"), 0, "it ended: {:?}", gateway.0.wait());
    }
    // A pipe without a reader would end the program's log.
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    gateway
}

/// Asks once on a new connection; the status of the answer.
fn ask(public: SocketAddr) -> Result<u16, String> {
    let mut stream = TcpStream::connect(public).map_err(|error| format!("connect: {error}"))?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).map_err(|error| error.to_string())?;
    let request =
        format!("GET /api/v1/openapi.json HTTP/1.1\r\nhost: localhost:{}\r\nconnection: close\r\n\r\n", public.port());
    stream.write_all(request.as_bytes()).map_err(|error| format!("write: {error}"))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(|error| format!("read: {error}"))?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.ok_or_else(|| format!("no answer: {answer:?}"))
}

#[test]
fn restarts_on_an_inherited_socket_refuse_no_connection() {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let public = socket.local_addr().expect("bound");
    let mut gateway = start(&socket, public);
    let (over, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let (is_over, count) = (over.clone(), asked.clone());
    // Each new connection in a thread of its own: while no gateway runs, its connection waits.
    let load = std::thread::spawn(move || {
        let mut asking = Vec::new();
        let mut due = Instant::now();
        while !is_over.load(Ordering::Relaxed) {
            let count = count.clone();
            asking.push(std::thread::spawn(move || {
                let answer = ask(public);
                count.fetch_add(1, Ordering::Relaxed);
                answer
            }));
            due += CONNECTION_INTERVAL;
            std::thread::park_timeout(due.saturating_duration_since(Instant::now()));
        }
        asking.into_iter().map(|asking| asking.join().expect("no panic")).collect::<Vec<_>>()
    });
    for _ in 0..RESTARTS {
        // Some are answered by each process.
        let before = asked.load(Ordering::Relaxed);
        while asked.load(Ordering::Relaxed) < before + 20 {
            std::thread::park_timeout(CONNECTION_INTERVAL);
        }
        let pid = Pid::from_raw(gateway.0.id().try_into().expect("a pid")).expect("a pid");
        kill_process(pid, Signal::TERM).expect("it runs");
        assert!(gateway.0.wait().expect("it ends").success(), "it ends in good order");
        gateway = start(&socket, public);
    }
    over.store(true, Ordering::Relaxed);
    let answers = load.join().expect("no panic");
    let wrong: Vec<_> = answers.iter().filter(|answer| !matches!(answer, Ok(200 | 503))).collect();
    assert!(wrong.is_empty(), "{} of {}: {wrong:?}", wrong.len(), answers.len());
    assert!(answers.iter().filter(|answer| matches!(answer, Ok(200))).count() > 20 * RESTARTS, "most are served");
}

#[test]
fn inherited_socket_that_no_listener_has_is_named() {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = socket.local_addr().expect("bound");
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound");
    let output = Command::new("sh")
        .args([
            "-c",
            "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" serve",
            env!("CARGO_BIN_EXE_gateway"),
        ])
        .env("GATEWAY_LISTEN__PUBLIC", other.to_string())
        .env("GATEWAY_LISTEN__AGENTS", "127.0.0.1:0")
        .env("GATEWAY_LISTEN__ADMIN", "off")
        .env("GATEWAY_STORE__URL", "sqlite::memory:")
        .current_dir(std::env::temp_dir())
        .stdin(OwnedFd::from(socket))
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(&address.to_string()), "{said}");
}
