//! The first sign-in at a port of a workspace signs the browser in at the others that listen: their pages can talk to each other.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use e2e::raw::{Message, Raw};
use e2e::scripted::{ScriptedAgent, hello};
use e2e::stopwatch::Stopwatch;
use e2e::{PATIENCE, TestGateway};
use gateway_config::PublicUrl;
use gateway_store::wall_clock;
use gateway_types::{Port, Share};
use tokio::task::JoinSet;
use tunnel_proto::listening::{LISTENING_PORT, Listening};

use super::address::{answering, attach};
use super::support::VISIT;

/// Redirects that a browser follows (Fetch, section 4.4).
const REDIRECTS_MAX: usize = 20;

/// A browser as far as these tests need one: it keeps cookies by host and follows redirects.
#[derive(Default)]
struct Browser {
    cookies: HashMap<String, HashMap<String, String>>,
    visited: Vec<String>,
}

impl Browser {
    async fn ask(&self, gateway: &TestGateway, url: &str, fields: &str) -> Message {
        let rest = url.strip_prefix("http://").expect("plain HTTP");
        let (host, target) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let target = if target.is_empty() { "/" } else { target };
        let own = self.cookies.get(host).into_iter().flatten();
        let cookies: Vec<String> = own.map(|(name, value)| format!("{name}={value}")).collect();
        let cookies = if cookies.is_empty() { String::new() } else { format!("cookie: {}\r\n", cookies.join("; ")) };
        let mut client = Raw::connect(gateway.addresses.public).await;
        client.send(format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n{cookies}{fields}\r\n")).await;
        client.message().await.expect("an answer")
    }

    /// Opens an address in a tab; returns where the browser ends up, and what is there.
    async fn open(&mut self, gateway: &TestGateway, url: &str) -> (String, Message) {
        let mut url = url.to_owned();
        self.visited.clear();
        for _ in 0..=REDIRECTS_MAX {
            let answer = self.ask(gateway, &url, VISIT).await;
            let origin: String = url.split('/').take(3).collect::<Vec<_>>().join("/");
            for (_, line) in answer.headers.iter().filter(|(name, _)| name == "set-cookie") {
                let (name, value) = line.split(';').next().unwrap().split_once('=').expect("a cookie");
                let host = origin.trim_start_matches("http://").to_owned();
                self.cookies.entry(host).or_default().insert(name.to_owned(), value.to_owned());
            }
            self.visited.push(url.clone());
            match answer.header("location").filter(|_| matches!(answer.status(), 302 | 303)) {
                Some(location) if location.starts_with('/') => url = format!("{origin}{location}"),
                Some(location) => url = location.to_owned(),
                None => return (url, answer),
            }
        }
        panic!("too many redirects: {:#?}", self.visited);
    }
}

async fn gateway_of(zone: &'static str) -> TestGateway {
    TestGateway::start_with(|config| {
        config.zone = zone.parse().unwrap();
        config.public_url = "http://gw.example".parse::<PublicUrl>().unwrap().with_port(0);
    })
    .await
}

fn url(gateway: &TestGateway, port: u16, zone: &str, path: &str) -> String {
    format!("http://{port}-one.{zone}:{}{path}", gateway.addresses.public.port())
}

/// Signs in at the public host.
async fn signed_in(gateway: &TestGateway) -> Browser {
    let mut browser = Browser::default();
    let (_, home) = browser.open(gateway, &gateway.sign_in_link).await;
    assert_eq!(home.status(), 200, "{home:?}");
    browser
}

/// What a page on one port gets when it fetches from another with its cookies: an answer of the gateway that has found nothing
/// to speak to, or the refusal of a browser that it does not know.
async fn fetched(browser: &Browser, gateway: &TestGateway, from: u16, to: u16) -> String {
    let origin = url(gateway, from, "ws.test", "");
    let fields =
        format!("origin: {origin}\r\nsec-fetch-mode: cors\r\nsec-fetch-dest: empty\r\nsec-fetch-site: same-site\r\n");
    let answer = browser.ask(gateway, &url(gateway, to, "ws.test", "/api"), &fields).await;
    answer.header("gateway-error").unwrap_or("none").to_owned()
}

fn led_over(browser: &Browser) -> Vec<&str> {
    let stops = browser.visited.iter().filter(|url| url.contains("/.gateway/neighbours"));
    stops.map(|url| url.split("//").nth(1).unwrap().split('-').next().unwrap()).collect()
}

#[tokio::test]
async fn browser_is_signed_in_at_ports_that_listen_by_the_first_visit_to_one() {
    let gateway = gateway_of("ws.test").await;
    let (agent, _) = answering(
        attach(&gateway, "one").await,
        Listening::of_ports([22, 5001, 5002, 5173, 60_001, 60_002]).encode().to_vec(),
    );
    let mut browser = signed_in(&gateway).await;
    assert_eq!(fetched(&browser, &gateway, 5173, 5001).await, "sign_in_required");
    let (last, _) = browser.open(&gateway, &url(&gateway, 5173, "ws.test", "/a//b?x=%2f&token=mine")).await;
    assert_eq!(last, url(&gateway, 5173, "ws.test", "/a//b?x=%2f&token=mine"));
    assert_eq!(led_over(&browser), ["5002", "5001"]);
    let at_others = browser.visited.iter().filter(|url| url.contains("//500"));
    assert!(
        at_others.clone().count() == 4 && at_others.clone().all(|url| !url.contains("mine")),
        "{:#?}",
        browser.visited
    );
    drop(agent);
    gateway.until_gone("one").await;
    for port in [5001, 5002] {
        assert_eq!(fetched(&browser, &gateway, 5173, port).await, "agent_absent", "{port}");
    }
    for port in [22, 60_001, 60_002] {
        assert_eq!(fetched(&browser, &gateway, 5173, port).await, "sign_in_required", "{port}");
    }
}

#[tokio::test]
async fn port_that_knows_the_browser_is_not_visited_again() {
    let gateway = gateway_of("ws.test").await;
    let (_agent, _) = answering(attach(&gateway, "one").await, Listening::of_ports(8000..8100).encode().to_vec());
    let mut browser = signed_in(&gateway).await;
    browser.open(&gateway, &url(&gateway, 8000, "ws.test", "/")).await;
    assert_eq!(led_over(&browser), ["8001", "8002"]);
    // The way of one that comes from an identity provider and back has six redirects more than this, less the one of the link.
    assert!(browser.visited.len() + 5 <= 16, "more than every browser follows: {:#?}", browser.visited);
    browser.open(&gateway, &url(&gateway, 8000, "ws.test", "/")).await;
    assert_eq!(browser.visited.len(), 1, "nothing but the page: {:#?}", browser.visited);
    browser.open(&gateway, &url(&gateway, 8003, "ws.test", "/")).await;
    assert_eq!(led_over(&browser), ["8004", "8005"]);
}

#[tokio::test]
async fn guest_is_led_over_no_port_that_is_not_theirs_and_a_stranger_over_none() {
    let gateway = gateway_of("ws.test").await;
    let token = gateway.store.create_agent_token(&"one".parse().unwrap(), &"ann".parse().unwrap(), wall_clock()).await;
    let mut hello = hello();
    hello.features.push("listening".to_owned());
    let agent = ScriptedAgent::dial(&gateway, token.unwrap().token.reveal(), hello).await.expect("a welcome");
    gateway.until_connected("one").await;
    let (_agent, asked) = answering(agent, Listening::of_ports([5000, 5001, 5002, 5003]).encode().to_vec());
    let share = async |port: u16, audience: &str| {
        let share = Share { port: Port::new(port).unwrap(), audience: audience.parse().unwrap(), expires_at: None };
        let (name, by) = ("one".parse().unwrap(), "ann".parse().unwrap());
        assert!(gateway.store.share(&name, &share, &by, wall_clock()).await.unwrap());
    };
    for (port, audience) in [(5000, "signed-in"), (5003, "signed-in"), (5002, "public")] {
        share(port, audience).await;
    }
    // What everybody may open tells nobody of the workspace: its agent is not even asked.
    let mut stranger = signed_in(&gateway).await;
    let (last, _) = stranger.open(&gateway, &url(&gateway, 5000, "ws.test", "/")).await;
    assert_eq!((last, led_over(&stranger).len()), (url(&gateway, 5000, "ws.test", "/"), 0));
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    for port in [5000, 5002] {
        share(port, "user:dev").await;
    }
    let mut guest = Browser { cookies: stranger.cookies.clone(), visited: Vec::new() };
    let own = url(&gateway, 5000, "ws.test", "");
    // The share counts within a second or so.
    let led = tokio::time::timeout(PATIENCE, async {
        while led_over(&guest) != ["5002", "5003"] {
            guest.cookies.remove(own.trim_start_matches("http://"));
            guest.open(&gateway, &url(&gateway, 5000, "ws.test", "/")).await;
        }
    });
    led.await.expect("the guest is led over what is shared with them");
}

#[tokio::test]
async fn no_port_is_led_over_in_a_zone_of_one_label_nor_where_that_is_turned_off() {
    for (zone, ports) in [("localhost", 2), ("ws.test", 0)] {
        let gateway = TestGateway::start_with(|config| {
            config.zone = zone.parse().unwrap();
            config.public_url = "http://gw.example".parse::<PublicUrl>().unwrap().with_port(0);
            config.auth.neighbour_ports = ports;
        })
        .await;
        let (_agent, asked) =
            answering(attach(&gateway, "one").await, Listening::of_ports([5000, 5001]).encode().to_vec());
        let mut browser = signed_in(&gateway).await;
        // The list of workspaces asks too.
        let before = asked.load(Ordering::SeqCst);
        let (last, _) = browser.open(&gateway, &url(&gateway, 5000, zone, "/")).await;
        assert_eq!((last, led_over(&browser).len()), (url(&gateway, 5000, zone, "/"), 0));
        assert_eq!(asked.load(Ordering::SeqCst), before);
    }
}

#[tokio::test]
async fn agent_that_does_not_say_what_listens_keeps_no_browser_waiting() {
    let gateway = gateway_of("ws.test").await;
    let agent = attach(&gateway, "one").await;
    let mut mute = JoinSet::new();
    mute.spawn(async move {
        let mut asked = Vec::new();
        // It takes the question and never answers; it opens no other port.
        while let Some(incoming) = agent.session.accept().await {
            if incoming.port == LISTENING_PORT {
                asked.push(incoming.accept());
            }
        }
    });
    let mut browser = signed_in(&gateway).await;
    let watch = Stopwatch::start();
    let opened = browser.open(&gateway, &url(&gateway, 5000, "ws.test", "/.well-known/x")).await.0;
    assert_eq!(opened, url(&gateway, 5000, "ws.test", "/.well-known/x"));
    assert!(watch.elapsed().as_secs() < 5, "{:?}", watch.elapsed());
}

// A link of a foreign page cannot name a tour, and one that is known leads over its own hosts only.
#[tokio::test]
async fn made_up_tour_leads_nowhere_and_without_a_visit_none_does() {
    let gateway = gateway_of("ws.test").await;
    let (_agent, _) = answering(attach(&gateway, "one").await, Listening::of_ports([5000, 5001]).encode().to_vec());
    let mut browser = signed_in(&gateway).await;
    browser.open(&gateway, &url(&gateway, 5000, "ws.test", "/")).await;
    let stop =
        browser.visited.iter().find(|url| url.contains("//5001-") && url.contains("/.gateway/neighbours")).unwrap();
    let (stop, id) = (stop.clone(), stop.split_once('?').unwrap().1.to_owned());
    let made_up = format!("tour={}", "A".repeat(43));
    for (port, query) in
        [(5001, ""), (5001, "tour="), (5001, made_up.as_str()), (5002, id.as_str()), (5000, id.as_str())]
    {
        let address = url(&gateway, port, "ws.test", &format!("/.gateway/neighbours?{query}"));
        let (_, answer) = browser.open(&gateway, &address).await;
        assert_eq!(
            (answer.status(), answer.header("gateway-error")),
            (404, Some("no_such_host")),
            "{address}: {answer:?}"
        );
    }
    for (dest, cookies) in [("image", true), ("empty", true), ("iframe", true), ("image", false)] {
        let fields = format!(
            "accept: text/html\r\nsec-fetch-mode: no-cors\r\nsec-fetch-dest: {dest}\r\nsec-fetch-site: same-site\r\n"
        );
        let other = Browser::default();
        let from = if cookies { &browser } else { &other };
        let answer = from.ask(&gateway, &stop, &fields).await;
        assert!(answer.status() >= 400 && answer.header("set-cookie").is_none(), "{dest}: {answer:?}");
        assert!(answer.header("location").is_none(), "{dest}: {answer:?}");
    }
    let (last, _) = browser.open(&gateway, &stop).await;
    assert_eq!(last, url(&gateway, 5000, "ws.test", "/"));
}
