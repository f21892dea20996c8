//! The link over real sockets: faults and fidelity. Its timing is proved by `loadlab relay --check`.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::testing::closed;

const PATIENCE: Duration = Duration::from_secs(10);

async fn pair(spec: &str) -> (Handle, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let link = Relay::start(listener.local_addr().unwrap(), spec.parse().unwrap()).unwrap();
    let client = TcpStream::connect(link.address()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (link, client, server)
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("in time")
}

#[tokio::test]
async fn bytes_and_ends_pass_both_ways_unchanged() {
    let (_link, client, server) = pair("rate=100mbit,delay=1ms").await;
    let sent: Vec<u8> = (0..1_000_000_u32).map(|number| number.to_le_bytes()[1]).collect();
    let exchange = |mut stream: TcpStream, sent: Vec<u8>| async move {
        let (mut read, mut write) = stream.split();
        let mut received = Vec::new();
        let (written, got) = tokio::join!(
            async {
                write.write_all(&sent).await?;
                write.shutdown().await
            },
            read.read_to_end(&mut received)
        );
        written.unwrap();
        got.unwrap();
        received
    };
    let back: Vec<u8> = sent.iter().rev().copied().collect();
    let (down, up) =
        within(async { tokio::join!(exchange(client, sent.clone()), exchange(server, back.clone())) }).await;
    assert!(up == sent && down == back);
}

#[tokio::test]
async fn cut_resets_both_sides() {
    let (link, mut client, mut server) = pair("delay=1ms").await;
    client.write_all(b"x").await.unwrap();
    assert_eq!(within(server.read_u8()).await.unwrap(), b'x');
    link.cut();
    for stream in [&mut client, &mut server] {
        let error = within(stream.read_u8()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}

#[tokio::test]
async fn close_ends_both_sides_in_order() {
    let (link, mut client, mut server) = pair("delay=1ms").await;
    client.write_all(b"x").await.unwrap();
    assert_eq!(within(server.read_u8()).await.unwrap(), b'x');
    client.write_all(b"dropped").await.unwrap();
    link.close();
    for stream in [&mut client, &mut server] {
        let mut rest = Vec::new();
        within(stream.read_to_end(&mut rest)).await.unwrap();
    }
}

#[tokio::test]
async fn half_open_connection_swallows_while_new_ones_work() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let link = Relay::start(listener.local_addr().unwrap(), LinkSpec::default()).unwrap();
    let mut old = TcpStream::connect(link.address()).await.unwrap();
    let (mut old_server, _) = within(listener.accept()).await.unwrap();
    old.write_all(b"a").await.unwrap();
    assert_eq!(within(old_server.read_u8()).await.unwrap(), b'a');
    link.half_open();
    let mut new = TcpStream::connect(link.address()).await.unwrap();
    let (mut new_server, _) = within(listener.accept()).await.unwrap();
    old.write_all(&vec![0; 1 << 20]).await.unwrap();
    old.shutdown().await.unwrap();
    new.write_all(b"b").await.unwrap();
    assert_eq!(within(new_server.read_u8()).await.unwrap(), b'b');
    let mut one = [0];
    assert_eq!(old_server.try_read(&mut one).unwrap_err().kind(), io::ErrorKind::WouldBlock, "not even the end");
}

#[tokio::test]
async fn stall_holds_everything_and_loses_nothing() {
    let (link, mut client, mut server) = pair("rate=100mbit,delay=1ms").await;
    link.stall();
    client.write_all(b"held").await.unwrap();
    let mut bytes = [0; 4];
    assert!(tokio::time::timeout(Duration::from_millis(50), server.read_exact(&mut bytes)).await.is_err());
    link.resume();
    within(server.read_exact(&mut bytes)).await.unwrap();
    assert_eq!(&bytes, b"held");
}

#[tokio::test]
async fn stall_also_holds_what_is_on_the_wire() {
    let (link, mut client, mut server) = pair("delay=100ms").await;
    client.write_all(b"on its way").await.unwrap();
    let mut bytes = [0; 10];
    let first = tokio::time::timeout(PATIENCE, server.read_exact(&mut bytes)).await;
    first.expect("the handshake and the delay are over").unwrap();
    // So long that it is still on the wire when the link stands still, however late this test is.
    link.set("delay=2s".parse().unwrap());
    client.write_all(b"on its way").await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(40), server.read_exact(&mut bytes)).await.is_err());
    link.stall();
    assert!(tokio::time::timeout(Duration::from_millis(2200), server.read_exact(&mut bytes)).await.is_err());
    link.resume();
    within(server.read_exact(&mut bytes)).await.unwrap();
}

#[tokio::test]
async fn stalled_receiver_is_felt_by_the_sender() {
    let (_link, client, _server) = pair("rate=1gbit,delay=5ms").await;
    SockRef::from(&client).set_send_buffer_size(64 * 1024).unwrap();
    let sent = Arc::new(AtomicU64::new(0));
    let flood = async {
        loop {
            client.writable().await.unwrap();
            if let Ok(bytes) = client.try_write(&[0; 65536]) {
                sent.fetch_add(u64::try_from(bytes).unwrap(), Ordering::Relaxed);
            }
        }
    };
    drop(tokio::time::timeout(Duration::from_millis(1500), flood).await);
    // The server's kernel takes up to 32 MiB only when its program reads.
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent < 16 << 20, "{sent} bytes went into a link whose other end does not read");
}

#[tokio::test]
async fn unreachable_other_side_is_a_reset() {
    let (nowhere, _kept) = closed();
    let link = Relay::start(nowhere, LinkSpec::default()).unwrap();
    let mut client = TcpStream::connect(link.address()).await.unwrap();
    assert!(within(client.read_u8()).await.is_err());
    drop(link);
}
