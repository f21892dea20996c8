//! Agents and users who mistook one listener for the other, or plain text for TLS, are told which is right.

use e2e::buffer::Buffer;
use e2e::raw::Raw;
use e2e::{TestAgent, TestGateway};
use gateway_config::TlsFiles;
use workspace_agent::{DialEnded, Gateway, Transport};

use super::cli::Desk;
use super::support::World;

/// Returns with which words an agent gave up.
async fn refused(url: &str, transport: Transport) -> String {
    let mut agent = TestAgent::start(Gateway::parse(url, None).unwrap(), transport, "gwa_none", Vec::new());
    match agent.ended().await.unwrap_err() {
        DialEnded::Refused { message } => message,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn agent_at_the_users_listener_is_told_the_port_for_agents() {
    let gateway = TestGateway::start().await;
    let (public, agents) = (gateway.addresses.public, gateway.addresses.agents.port());
    for host in [format!("localhost:{}", public.port()), public.to_string()] {
        for transport in [Transport::Auto, Transport::Http2, Transport::Websocket] {
            let message = refused(&format!("http://{host}"), transport).await;
            let expected =
                format!("this is the gateway's listener for users; agents dial listen.agents, here port {agents}");
            assert_eq!(message, expected, "{host} {transport:?}");
        }
    }
    let told = gateway.metrics().await;
    let refused = told.iter().filter(|(name, _)| name.contains("wrong_listener")).map(|(_, count)| count).sum::<f64>();
    assert!(refused >= 6.0, "{told:?}");
}

#[tokio::test]
async fn user_at_the_agents_listener_is_told_the_public_url() {
    let world = World::start().await;
    let desk = Desk::new();
    let agents = world.gateway.addresses.agents.port();
    let (_, _, err) = desk.run(&format!("login --no-browser --gateway http://localhost:{agents}")).await;
    let public = format!("http://{}", world.public());
    assert!(err.contains("listener for agents") && err.contains(&public), "{err}");
    assert!(err.contains("(wrong_listener, status 404)"), "{err}");
}

#[tokio::test]
async fn plain_text_at_a_listener_with_tls_is_told_to_say_https() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let files = TlsFiles {
        cert: folder.path().join("cert.pem"),
        key: folder.path().join("key.pem"),
        certs_dir: None,
        client_ca: None,
    };
    std::fs::write(&files.cert, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let gateway = TestGateway::start_with(|config| {
        config.tls.public = Some(files.clone());
        config.tls.agents = Some(files.clone());
        config.public_url = "https://localhost".parse::<gateway_config::PublicUrl>().unwrap().with_port(0);
    })
    .await;
    let words = "this listener has TLS: begin the URL with https://";
    for transport in [Transport::Auto, Transport::Websocket] {
        let message = refused(&format!("http://{}", gateway.addresses.agents), transport).await;
        assert_eq!(message, words, "{transport:?}");
    }
    let mut browser = Raw::connect(gateway.addresses.public).await;
    browser.send("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let answer = browser.message().await.expect("an answer");
    assert_eq!((answer.status(), answer.header("gateway-error")), (400, Some("tls_required")));
    assert!(answer.text().contains(words), "{}", answer.text());
}

#[tokio::test]
async fn https_to_a_plain_port_is_told_to_say_http() {
    let world = World::start().await;
    let desk = Desk::new();
    let port = world.gateway.addresses.public.port();
    let (_, _, err) = desk.run(&format!("login --no-browser --gateway https://localhost:{port}")).await;
    assert!(err.contains("answers without TLS: begin the URL with http://"), "{err}");
    assert_eq!(err.matches("InvalidContentType").count(), 1, "each reason once: {err}");
}

#[tokio::test]
async fn forward_to_a_workspace_that_is_not_there_fails_at_once() {
    let world = World::start().await;
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, &world.gateway.user_token).unwrap();
    let words = format!("forward nope 0:5000 --gateway http://{} --token-file {}", world.public(), token.display());
    let (out, err) = (Buffer::default(), Buffer::default());
    Desk::new().run_into(&words, &out, &err).await;
    assert_eq!(
        (out.text().as_str(), err.text().as_str()),
        ("", "there is no workspace nope, or it is not yours (no_such_host)\n")
    );
}
