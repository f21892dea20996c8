//! The edge over real sockets, in one process.

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
