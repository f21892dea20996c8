//! The load lab goes on, whatever becomes of the lines that it writes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a failed expectation is how a test fails, and other processes are waited for"
)]

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Only against hanging: a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A stream that takes nothing more, and its other end, which nobody reads.
fn filled() -> (OwnedFd, UnixStream) {
    let (mut stream, reader) = UnixStream::pair().unwrap();
    stream.set_nonblocking(true).unwrap();
    loop {
        match stream.write(&[b'.'; 1024]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    stream.set_nonblocking(false).unwrap();
    (stream.into(), reader)
}

#[test]
fn relay_carries_bytes_whatever_becomes_of_its_lines() {
    let (stopped, _reader) = filled();
    let full: Stdio = File::options().write(true).open("/dev/full").unwrap().into();
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    for err in [stopped.into(), full, closed.into()] {
        let app = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = app.local_addr().unwrap().to_string();
        let mut child = Command::new(env!("CARGO_BIN_EXE_loadlab"))
            .args(["relay", "--to", &to])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(err)
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let mut client = TcpStream::connect(address.trim()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let echo = std::thread::spawn(move || {
            let (mut served, _) = app.accept().unwrap();
            let mut bytes = [0; 4];
            served.read_exact(&mut bytes).unwrap();
            served.write_all(&bytes).unwrap();
        });
        client.write_all(b"ping").unwrap();
        let mut bytes = [0; 4];
        let answer = client.read_exact(&mut bytes);
        child.kill().unwrap();
        child.wait().unwrap();
        answer.unwrap();
        assert_eq!(&bytes, b"ping");
        echo.join().unwrap();
    }
}
