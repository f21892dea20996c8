//! Users behind a load balancer: it is believed for whom it connects if it is trusted, and only then.

use std::time::Instant;

use e2e::raw::{Message, Raw, RawApp};
use e2e::{PATIENCE, TestGateway};

use crate::support::fields;

struct Behind {
    gateway: TestGateway,
    app: RawApp,
    agent: e2e::TestAgent,
}

impl Behind {
    async fn new(trusted: &str, per_second: u32) -> Self {
        let trusted = trusted.parse().expect("a network");
        let gateway = TestGateway::start_tidy(|config| {
            config.listen.trusted_proxies = vec![trusted];
            config.limits.requests_per_second_per_address = per_second;
        })
        .await;
        // Agents come directly here: from an address that is not trusted.
        let app = RawApp::mirror().await;
        let token = gateway.agent_token("one").await;
        let agent = gateway.start_agent(&token, Vec::new());
        gateway.until_connected("one").await;
        Self { gateway, app, agent }
    }

    async fn ask(&self, host: u8, header: &[u8], token: bool) -> Option<Message> {
        let mut raw = Raw::connect_from([127, 0, 0, host], self.gateway.addresses.public).await;
        let authority = self.gateway.authority("one", self.app.port);
        let fields = if token { fields(&self.gateway, self.app.port) } else { format!("host: {authority}\r\n") };
        // In pieces, as the network may cut it, and with the request right behind it.
        let (first, second) = header.split_at(header.len() / 2);
        raw.send(first).await;
        tokio::task::yield_now().await;
        raw.try_send([second, format!("GET / HTTP/1.1\r\n{fields}\r\n").as_bytes()].concat()).await.ok();
        raw.message().await
    }

    async fn finish(self) {
        self.gateway.assert_empty().await;
        self.agent.stop().await;
    }
}

fn version_2(source: [u8; 4]) -> Vec<u8> {
    let addresses = [&source[..], &[10, 0, 0, 1, 0x30, 0x39, 0x1f, 0x90]].concat();
    [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c", &addresses[..]].concat()
}

#[tokio::test]
async fn client_that_a_trusted_balancer_names_is_who_the_app_and_the_limits_see() {
    let behind = Behind::new("127.0.0.7", 1).await;
    let version_1 = b"PROXY TCP4 203.0.113.9 10.0.0.1 12345 8080\r\n";
    let version_6 = b"PROXY TCP6 2001:db8::9 2001:db8::1 12345 8080\r\n";
    for (header, client) in
        [(&version_1[..], "203.0.113.9"), (&version_2([203, 0, 113, 9]), "203.0.113.9"), (version_6, "2001:db8::9")]
    {
        let answer = behind.ask(7, header, true).await.expect("an answer");
        assert_eq!(answer.status(), 200);
        assert!(answer.text().contains(&format!("\nx-forwarded-for: {client}\n")), "{}", answer.text());
    }
    // Limits count the clients, each by itself, although one balancer brings them all.
    assert_eq!(behind.ask(7, &version_2([198, 51, 100, 1]), false).await.expect("an answer").status(), 401);
    let (began, mut status) = (Instant::now(), 401);
    while status == 401 {
        assert!(began.elapsed() < PATIENCE, "never above the rate");
        status = behind.ask(7, &version_2([198, 51, 100, 1]), false).await.expect("an answer").status();
    }
    assert_eq!(status, 503);
    assert_eq!(behind.ask(7, &version_2([198, 51, 100, 2]), false).await.expect("an answer").status(), 401);
    // Its own health checks.
    assert_eq!(behind.ask(7, b"PROXY UNKNOWN\r\n", false).await.expect("an answer").status(), 401);
    behind.finish().await;
}

#[tokio::test]
async fn trusted_balancer_that_does_not_say_for_whom_is_cut() {
    let behind = Behind::new("127.0.0.7", 1_000).await;
    for header in [&b""[..], b"PROXY TCP4 203.0.113.9\r\n", b"PROXY TCP4 nonsense", &[0; 40]] {
        assert!(behind.ask(7, header, true).await.is_none(), "{header:?}");
    }
    behind.finish().await;
}

#[tokio::test]
async fn nobody_else_can_name_a_client() {
    let behind = Behind::new("127.0.0.7", 1_000).await;
    for header in [&b"PROXY TCP4 203.0.113.9 10.0.0.1 12345 8080\r\n"[..], &version_2([203, 0, 113, 9])] {
        let answer = behind.ask(8, header, true).await.expect("an answer");
        assert_eq!((answer.status(), answer.header("gateway-error")), (400, Some("bad_request")));
    }
    let answer = behind.ask(8, b"", true).await.expect("an answer");
    assert!(answer.text().contains("\nx-forwarded-for: 127.0.0.8\n"), "{}", answer.text());
    behind.finish().await;
}
