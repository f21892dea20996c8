//! The home page: what is one's own, and what others share.

use e2e::raw::{Message, Raw};
use gateway_store::wall_clock;
use gateway_types::Share;

use super::support::World;

/// Opens a page of the public host as a user with a token.
async fn open(world: &World, path: &str, token: &str) -> Message {
    let port = world.gateway.addresses.public.port();
    let mut client = Raw::connect(world.gateway.addresses.public).await;
    let token = format!("authorization: Bearer {token}");
    client.send(format!("GET {path} HTTP/1.1\r\nhost: localhost:{port}\r\n{token}\r\naccept: text/html\r\n\r\n")).await;
    client.message().await.expect("an answer")
}

#[tokio::test]
async fn ports_that_others_share_are_in_a_list_of_their_own() {
    let world = World::start().await;
    let bob = "bob".parse().unwrap();
    let token = world.gateway.store.create_user_token(&bob, wall_clock()).await.unwrap().token.reveal().to_owned();
    let before = open(&world, "/", &token).await;
    assert_eq!(before.status(), 200, "{before:?}");
    assert!(!before.text().contains("Shared with you"), "{}", before.text());
    assert!(
        before.text().contains("No workspaces yet.") && before.text().contains("href=\"/create\""),
        "{}",
        before.text()
    );
    let share = Share { port: "3000".parse().unwrap(), audience: "user:bob".parse().unwrap(), expires_at: None };
    let (one, dev) = ("one".parse().unwrap(), "dev".parse().unwrap());
    assert!(world.gateway.store.share(&one, &share, &dev, wall_clock()).await.unwrap());
    let page = open(&world, "/", &token).await.text();
    let link = format!("<a href=\"http://{}/\">port 3000</a>", world.authority(3000));
    assert!(page.contains("Shared with you") && page.contains(&link) && page.contains("of dev"), "{page}");
    assert!(page.contains("No workspaces of your own yet."), "{page}");
    let own = open(&world, "/", &world.gateway.user_token).await.text();
    assert!(own.contains("data-name=\"one\"") && !own.contains("Shared with you"), "{own}");
}

#[tokio::test]
async fn visit_without_a_sign_in_gets_the_page_about_the_link_and_a_program_the_failure() {
    let world = World::start().await;
    let visited = open(&world, "/", "").await;
    assert_eq!((visited.status(), visited.header("gateway-error")), (401, Some("sign_in_required")), "{visited:?}");
    assert!(visited.text().contains("link") && !visited.text().contains("Open it in a browser"), "{}", visited.text());
    let mut client = world.client().await;
    client.send(format!("GET / HTTP/1.1\r\nhost: localhost:{}\r\n\r\n", world.gateway.addresses.public.port())).await;
    let answer = client.message().await.expect("an answer");
    assert_eq!((answer.status(), answer.header("content-type")), (401, Some("application/problem+json")), "{answer:?}");
}

#[tokio::test]
async fn address_of_the_public_host_that_has_no_page_says_so_and_that_of_the_list_leads_to_it() {
    let world = World::start().await;
    for path in ["/favicon.ico", "/.gateway/foo", "/any"] {
        let answer = open(&world, path, &world.gateway.user_token).await;
        assert_eq!((answer.status(), answer.header("gateway-error")), (404, Some("no_such_host")), "{path}");
        assert!(answer.text().contains("No such page") && !answer.text().contains("workspace at this"), "{path}");
    }
    let list = open(&world, "/workspaces", &world.gateway.user_token).await;
    assert_eq!((list.status(), list.header("location")), (303, Some("/")), "{list:?}");
}

#[tokio::test]
async fn page_follows_what_happens_by_a_script_of_its_own() {
    let world = World::start().await;
    let page = open(&world, "/", &world.gateway.user_token).await;
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.contains("script-src 'self'") && policy.contains("connect-src 'self'"), "{policy}");
    let text = page.text();
    let script = text.split("<script src=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a script");
    let script = open(&world, script, "").await;
    assert_eq!(script.header("content-type"), Some("text/javascript; charset=utf-8"));
    assert!(script.header("cache-control").is_some_and(|cache| cache.contains("immutable")));
    assert!(script.text().contains("EventSource") && page.text().contains("data-live=\"/live?seen="));
}
