//! The edge over real sockets, in one process: what a user sends against what an app gets, byte for byte, and back.
//!
//! Each test names what it guards. "trap N" and "row N" are the traps and the holes of `docs/defences.md`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a failed expectation is how a test fails"
)]

#[path = "edge/address.rs"]
mod address;
#[path = "edge/by_path.rs"]
mod by_path;
#[path = "edge/credentials.rs"]
mod credentials;
#[path = "edge/decided.rs"]
mod decided;
#[path = "edge/drain.rs"]
mod drain;
#[path = "edge/expect.rs"]
mod expect;
#[path = "edge/gone.rs"]
mod gone;
#[path = "edge/home.rs"]
mod home;
#[path = "edge/http2_app.rs"]
mod http2_app;
#[path = "edge/https_app.rs"]
mod https_app;
#[path = "edge/idle.rs"]
mod idle;
#[path = "edge/inspector.rs"]
mod inspector;
#[path = "edge/last_word.rs"]
mod last_word;
#[path = "edge/metrics.rs"]
mod metrics;
#[path = "edge/neighbours.rs"]
mod neighbours;
#[path = "edge/oidc.rs"]
mod oidc;
#[path = "edge/own_words.rs"]
mod own_words;
#[path = "edge/owners.rs"]
mod owners;
#[path = "edge/pool.rs"]
mod pool;
#[path = "edge/preflight.rs"]
mod preflight;
#[path = "edge/race.rs"]
mod race;
#[path = "edge/request.rs"]
mod request;
#[path = "edge/response.rs"]
mod response;
#[path = "edge/restarted.rs"]
mod restarted;
#[path = "edge/revocation.rs"]
mod revocation;
#[path = "edge/rewrite.rs"]
mod rewrite;
#[path = "edge/sign_in.rs"]
mod sign_in;
#[path = "edge/stream.rs"]
mod stream;
#[path = "edge/support.rs"]
mod support;
#[path = "edge/terminal.rs"]
mod terminal;
#[path = "edge/tls.rs"]
mod tls;
#[path = "edge/traces.rs"]
mod traces;
#[path = "edge/upgrade.rs"]
mod upgrade;
#[path = "edge/upstream_bytes.rs"]
mod upstream_bytes;
#[path = "edge/websocket_http2.rs"]
mod websocket_http2;

use e2e::TestGateway;
use e2e::raw::{Raw, RawApp};

#[tokio::test]
async fn request_reaches_the_app_and_its_answer_comes_back() {
    let gateway = TestGateway::start().await;
    let _agent = gateway.agent("one").await;
    let app = RawApp::mirror().await;
    let mut client = Raw::connect(gateway.addresses.public).await;
    let authority = gateway.authority("one", app.port);
    client
        .send(format!(
            "POST /a/../b%2F?x=1&y HTTP/1.1\r\nhost: {authority}\r\ngateway-authorization: Bearer {}\r\ncontent-length: 2\r\n\r\nhi",
            gateway.user_token
        ))
        .await;
    let answer = client.message().await.expect("an answer");
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert!(answer.text().starts_with("POST /a/../b%2F?x=1&y HTTP/1.1\n"), "{answer:?}");
    assert!(answer.text().ends_with("\n\nhi"));
    gateway.assert_quiet().await;
}
