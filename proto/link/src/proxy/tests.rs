use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

/// What the other end of a handshake does.
#[derive(Clone, Copy)]
enum Step {
    /// Reads exactly these bytes.
    Reads(&'static [u8]),
    /// Reads to the end of a head and checks that it has these lines.
    ReadsHead(&'static [&'static str]),
    Writes(&'static [u8]),
    WritesMuch,
    Closes,
}

use Step::{Closes, Reads, ReadsHead, Writes, WritesMuch};

/// Goes through a proxy that does these steps, and then sends back what it gets.
async fn through(url: &str, target: (&str, u16), steps: &'static [Step]) -> Result<Box<dyn DialedStream>, ProxyError> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = url.replace("PROXY", &listener.local_addr().expect("bound").to_string());
    let gateway = "https://gateway.example.com".parse().expect("a URL");
    let proxy =
        choose(&gateway, |name| (name == "HTTPS_PROXY").then(|| url.clone())).expect("usable").expect("a proxy");
    let mut server = JoinSet::new();
    server.spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        for step in steps {
            match step {
                Reads(expected) => {
                    let mut read = vec![0; expected.len()];
                    stream.read_exact(&mut read).await.expect("readable");
                    assert_eq!(&read, expected);
                }
                ReadsHead(lines) => {
                    let mut read = Vec::new();
                    while !read.ends_with(b"\r\n\r\n") {
                        read.push(stream.read_u8().await.expect("readable"));
                    }
                    let read = String::from_utf8(read).expect("text").to_lowercase();
                    for line in *lines {
                        assert!(read.split("\r\n").any(|there| there == line.to_lowercase()), "{line} in {read}");
                    }
                }
                Writes(bytes) => stream.write_all(bytes).await.expect("written"),
                // It may have heard enough.
                WritesMuch => while stream.write_all(&[b'a'; 1024]).await.is_ok() {},
                Closes => return,
            }
        }
        let (mut reader, mut writer) = stream.split();
        tokio::io::copy(&mut reader, &mut writer).await.ok();
    });
    let connected = proxy.connect(target.0, target.1, None, crate::socket::tune).await;
    server.detach_all();
    connected
}

/// The stream leads to the other end, and what that said first is not lost.
async fn check_leads(url: &str, target: (&str, u16), steps: &'static [Step], first: &[u8]) {
    let mut stream = through(url, target, steps).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    stream.write_all(b"preface").await.expect("written");
    let mut read = vec![0; first.len() + 7];
    stream.read_exact(&mut read).await.expect("readable");
    assert_eq!(read, [first, b"preface"].concat());
}

async fn check_fails(url: &str, steps: &'static [Step], text: &str) {
    let Err(error) = through(url, ("gateway.example.com", 443), steps).await else { panic!("{text}") };
    let said = with_all(&error);
    assert!(said.contains(text), "{said}, expected {text}");
    assert!(!said.contains("secret") && !said.contains("c2Vjc"), "{said}");
}

fn with_all(error: &ProxyError) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.fold(error.to_string(), |said, cause| format!("{said}: {cause}"))
}

const GATEWAY: (&str, u16) = ("gateway.example.com", 443);

#[tokio::test]
async fn connect_leads_to_the_gateway_and_keeps_what_it_says_first() {
    const HEAD: Step = ReadsHead(&["CONNECT gateway.example.com:443 HTTP/1.1", "host: gateway.example.com:443"]);
    check_leads("http://PROXY", GATEWAY, &[HEAD, Writes(b"HTTP/1.1 200 OK\r\n\r\n")], b"").await;
    check_leads("http://PROXY", GATEWAY, &[HEAD, Writes(b"HTTP/1.0 200 Connection established\r\n\r\n")], b"").await;
    check_leads("http://PROXY", GATEWAY, &[HEAD, Writes(b"HTTP/1.1 201 Fine\r\nvia: x\r\n\r\n")], b"").await;
    // A length means nothing here (RFC 9110, section 9.3.6), and the gateway's first bytes may come along.
    let steps = &[HEAD, Writes(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nSETTINGS")];
    check_leads("http://PROXY", GATEWAY, steps, b"SETTINGS").await;
    let six = &[ReadsHead(&["CONNECT [fd00::7]:8081 HTTP/1.1"]), Writes(b"HTTP/1.1 200 OK\r\n\r\n")];
    check_leads("http://PROXY", ("fd00::7", 8081), six, b"").await;
    let authorized = &[ReadsHead(&["proxy-authorization: Basic dXNlcjpzZWNyZXQ="]), Writes(b"HTTP/1.1 200 OK\r\n\r\n")];
    check_leads("http://user:secret@PROXY", GATEWAY, authorized, b"").await;
}

#[tokio::test]
async fn what_connect_fails_with_is_named_with_what_to_do() {
    const HEAD: Step = ReadsHead(&[]);
    let basic =
        &[HEAD, Writes(b"HTTP/1.1 407 No\r\nproxy-authenticate: Basic realm=\"x\"\r\ncontent-length: 0\r\n\r\n")];
    check_fails(
        "http://PROXY",
        basic,
        "requires authentication (407): put USER:PASSWORD@ before the host in HTTPS_PROXY",
    )
    .await;
    check_fails("http://user:secret@PROXY", basic, "does not accept the user and password in HTTPS_PROXY (407)").await;
    let silent = &[HEAD, Writes(b"HTTP/1.1 407 No\r\n\r\n"), Closes];
    check_fails("http://PROXY", silent, "put USER:PASSWORD@").await;
    let ntlm = &[HEAD, Writes(b"HTTP/1.1 407 No\r\nproxy-authenticate: Negotiate\r\nproxy-authenticate: NTLM\r\n\r\n")];
    check_fails("http://user:secret@PROXY", ntlm, "another kind than Basic (407, Negotiate, NTLM)").await;
    let forbidden = &[HEAD, Writes(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno")];
    check_fails("http://PROXY", forbidden, "does not allow connections to gateway.example.com:443 (403)").await;
    let bad = &[HEAD, Writes(b"HTTP/1.1 502 Bad\r\n\r\n")];
    check_fails("http://PROXY", bad, "cannot reach gateway.example.com:443 (HTTP 502)").await;
    check_fails("http://PROXY", &[HEAD, Writes(b"HTTP/1.1 204 Fine\r\n\r\n")], "does not speak HTTP").await;
    check_fails("http://PROXY", &[HEAD, Closes], "does not speak HTTP: check scheme and port").await;
    check_fails("http://PROXY", &[HEAD, Writes(b"220 mail ESMTP\r\n")], "does not speak HTTP").await;
    check_fails("http://PROXY", &[HEAD, Writes(b"HTTP/1.1 200 OK\r\nx: "), WritesMuch], "does not speak HTTP").await;
    check_fails("http://PROXY", &[Writes(&[5, 0xff])], "does not speak HTTP").await;
}

#[tokio::test]
async fn socks_leads_to_the_gateway_and_keeps_what_it_says_first() {
    const NAME: Step = Reads(b"\x05\x01\x00\x03\x13gateway.example.com\x01\xbb");
    const OPEN: &[u8] = b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00";
    check_leads("socks5h://PROXY", GATEWAY, &[Reads(&[5, 1, 0]), Writes(&[5, 0]), NAME, Writes(OPEN)], b"").await;
    const SPOKEN: &[u8] = b"\x05\x00\x00\x03\x01x\x00\x01SETTINGS";
    let steps = &[Reads(&[5, 1, 0]), Writes(&[5, 0]), NAME, Writes(SPOKEN)];
    check_leads("socks5h://PROXY", GATEWAY, steps, b"SETTINGS").await;
    let six = &[
        Reads(&[5, 1, 0]),
        Writes(&[5, 0]),
        Reads(b"\x05\x01\x00\x04\xfd\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07\x1f\x91"),
        Writes(OPEN),
    ];
    check_leads("socks5://PROXY", ("fd00::7", 8081), six, b"").await;
    let here = &[
        Reads(&[5, 1, 0]),
        Writes(&[5, 0]),
        // The name is looked up at this end; either family may be first.
        Reads(b"\x05\x01\x00"),
    ];
    // A label is 63 letters at most (RFC 1035, section 2.3.4): no server is asked, since there may be none that answers.
    let name = format!("{}.invalid", "a".repeat(64));
    let Err(error) = through("socks5://PROXY", (&name, 443), here).await else { panic!("no such host") };
    assert!(error.to_string().contains(&format!("{name} is not known here: use socks5h")), "{error}");
    let authorized =
        &[Reads(&[5, 2, 0, 2]), Writes(&[5, 2]), Reads(b"\x01\x04user\x06secret"), Writes(&[1, 0]), NAME, Writes(OPEN)];
    check_leads("socks5h://user:secret@PROXY", GATEWAY, authorized, b"").await;
}

#[tokio::test]
async fn what_socks_fails_with_is_named_with_what_to_do() {
    const ANY: Step = Reads(&[5, 1, 0]);
    const NAME: Step = Reads(b"\x05\x01\x00\x03\x13gateway.example.com\x01\xbb");
    check_fails("socks5h://PROXY", &[ANY, Writes(&[5, 0xff])], "put USER:PASSWORD@ before the host in HTTPS_PROXY")
        .await;
    let refused = &[Reads(&[5, 2, 0, 2]), Writes(&[5, 2]), Reads(b"\x01\x04user\x06secret"), Writes(&[1, 1])];
    check_fails("socks5h://user:secret@PROXY", refused, "does not accept the user and password in HTTPS_PROXY").await;
    for (step, text) in [
        (&[ANY, Writes(&[5, 0]), NAME, Writes(b"\x05\x02\x00\x01\0\0\0\0\0\0")] as &'static [Step], "does not allow"),
        (
            &[ANY, Writes(&[5, 0]), NAME, Writes(b"\x05\x04\x00\x01\0\0\0\0\0\0")],
            "cannot reach gateway.example.com:443",
        ),
        (&[ANY, Writes(&[5, 0]), NAME, Writes(b"\x05\x05\x00\x01\0\0\0\0\0\0")], "(Connection refused)"),
        (&[ANY, Writes(b"HTTP/1.1 400 Bad\r\n\r\n")], "does not speak SOCKS5"),
        (&[ANY, Closes], "does not speak SOCKS5"),
    ] {
        check_fails("socks5h://PROXY", step, text).await;
    }
}

#[tokio::test]
async fn proxy_that_is_not_there_is_named() {
    // Nothing listens on port 1 of this machine; were it otherwise, it would not be a proxy.
    let gateway = "https://gateway.example.com".parse().expect("a URL");
    let proxy = choose(&gateway, |name| (name == "ALL_PROXY").then(|| "http://127.0.0.1:1".to_owned()));
    let proxy = proxy.expect("usable").expect("a proxy");
    let Err(error) = proxy.connect("gateway.example.com", 443, None, crate::socket::tune).await else {
        panic!("nothing listens")
    };
    assert!(matches!(error, ProxyError::Connect(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn proxy_that_says_nothing_is_given_up() {
    let Err(error) = through("http://PROXY", GATEWAY, &[ReadsHead(&[]), Reads(b"never")]).await else {
        panic!("silent")
    };
    assert!(matches!(error, ProxyError::TimedOut), "{error}");
}
