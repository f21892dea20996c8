use std::net::Ipv4Addr;

use socket2::SockRef;

use super::*;
use gateway_config::Config;

fn options(kind: ClientKind) -> ListenerOptions {
    let now = tokio::time::Instant::now().into_std();
    ListenerOptions {
        what: "tests",
        named: ("--listen", "listen.public"),
        tls: None,
        connections_max: 4,
        handshakes_max: 4,
        handshake_timeout: Duration::from_secs(1),
        stalled_timeout: Duration::from_secs(100),
        policy: AcceptPolicy {
            kind,
            limits: UsageLimits::new(&Config::default().limits, now),
            trusted: Arc::default(),
        },
    }
}

#[tokio::test]
async fn user_whose_machine_is_gone_without_a_word_is_asked_for() {
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), options(ClientKind::User)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (_client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    let (stream, ..) = accepted.expect("accepted");
    let socket = SockRef::from(&stream);
    assert!(socket.keepalive().expect("an option"), "a quiet connection would live for ever");
    let silence = socket.tcp_keepalive_time().expect("an option")
        + socket.tcp_keepalive_interval().expect("an option") * socket.tcp_keepalive_retries().expect("an option");
    assert!(silence <= Duration::from_secs(120), "noticed after {silence:?}");
}

#[test]
fn only_errors_that_the_next_accept_would_meet_again_make_a_pause() {
    for kind in [io::ErrorKind::ConnectionAborted, io::ErrorKind::ConnectionReset, io::ErrorKind::Interrupted] {
        assert!(concerns_one_connection(&kind.into()), "{kind:?}");
    }
    // No free file descriptor, in the process and in the system (EMFILE, ENFILE).
    for code in [24, 23] {
        assert!(!concerns_one_connection(&io::Error::from_raw_os_error(code)), "{code}");
    }
}
