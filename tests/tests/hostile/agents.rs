//! Strangers at the agents' door: they are not read for long, nor asked often.

use std::time::Duration;

use e2e::raw::Raw;
use e2e::{PATIENCE, TestGateway};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;

use crate::support::{DATA, END_HEADERS, HEADERS, SETTINGS, block, frame};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const KIB: usize = 1024;

fn call(path: &str, token: &str) -> Vec<u8> {
    let authorization = format!("Bearer {token}");
    block(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "gateway"),
        (":path", path),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("authorization", &authorization),
    ])
}

async fn connect(gateway: &TestGateway) -> Raw {
    let socket = TcpSocket::new_v4().unwrap();
    // So that what is written is what was read, but for little.
    socket.set_send_buffer_size(16 * 1024).unwrap();
    let stream = socket.connect(gateway.addresses.agents).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let mut raw = Raw::new(stream);
    raw.send([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await;
    // The gateway's windows hold once they are acknowledged.
    raw.exactly(9).await;
    raw.send(frame(SETTINGS, 1, 0, &[])).await;
    raw
}

#[tokio::test]
async fn stranger_is_read_no_further_than_an_agent_needs_to_come_in() {
    let gateway = TestGateway::start().await;
    let mut raw = connect(&gateway).await;
    // A call that waits for the whole of a message, the largest that there may be.
    let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    raw.send(frame(HEADERS, END_HEADERS, 1, &call(path, "none"))).await;
    let message = [&[0, 0, 0x3f, 0, 0][..], &vec![0; 0x3f_0000 - 1]].concat();
    let bytes: Vec<u8> = message.chunks(16 * KIB).flat_map(|part| frame(DATA, 0, 1, part)).collect();
    let mut written = 0;
    for part in bytes.chunks(4 * KIB) {
        match tokio::time::timeout(Duration::from_millis(300), raw.socket().write_all(part)).await {
            Ok(Ok(())) => written += part.len(),
            Ok(Err(_)) | Err(_) => break,
        }
    }
    assert!(written < 1024 * KIB, "{} KiB were taken of a stranger", written / KIB);
    // An agent with more to say than that comes in as ever.
    let agent = gateway.agent("one").await;
    agent.stop().await;
    drop(raw);
    gateway.stop().await;
}

#[tokio::test]
async fn connection_on_which_one_bad_token_follows_the_other_is_closed() {
    let gateway = TestGateway::start().await;
    let mut raw = connect(&gateway).await;
    let mut refused = 0;
    for stream in (1..200).step_by(2) {
        let head = frame(HEADERS, END_HEADERS | 1, stream, &call(tunnel_link::grpc::PATH, "wrong"));
        if raw.try_send(head).await.is_err() {
            break;
        }
        refused += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(refused < 50, "{refused} bad tokens were looked at on one connection");
    tokio::time::timeout(PATIENCE, raw.read_rest()).await.expect("closed");
    gateway.stop().await;
}
