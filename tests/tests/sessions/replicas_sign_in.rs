//! Sign-ins at several replicas, to which a balancer leads one request after the other.

use std::time::Duration;

use e2e::browser::Browser;
use e2e::fleet::Fleet;
use e2e::provider::TestProvider;
use e2e::raw::{Message, RawApp};
use e2e::{TestAgent, TestGateway};
use gateway_config::Config;
use gateway_store::wall_clock;
use serde_json::{Value, json};
use tokio::time::timeout;

/// Port of the balancer in all addresses.
const PORT: u16 = 1;

/// Time within which an end at one replica is an end at all.
const ENDED_WITHIN: Duration = Duration::from_secs(3);

const SAME_ORIGIN: &str = "sec-fetch-site: same-origin\r\naccept: text/html\r\n";

/// Three replicas, and a workspace `one` of one user, whose agent dialed the first.
struct Site {
    replicas: [TestGateway; 3],
    app: RawApp,
    _agent: TestAgent,
    _fleet: Fleet,
}

impl Site {
    async fn of(owner: &str, change: impl Fn(&mut Config)) -> Self {
        let fleet = Fleet::default();
        let replica = async || {
            let changed = |config: &mut Config| {
                change(config);
                fleet.join(config);
            };
            TestGateway::start_with(changed).await
        };
        let replicas = [replica().await, replica().await, replica().await];
        let (name, owner) = ("one".parse().unwrap(), owner.parse().unwrap());
        let token = replicas[0].store.create_agent_token(&name, &owner, wall_clock()).await.unwrap();
        let agent = replicas[0].start_agent(token.token.reveal(), Vec::new());
        replicas[0].until_connected("one").await;
        let app = RawApp::start(|mut raw| async move {
            while let Some(request) = raw.message().await {
                if request.start.contains("/stream") {
                    raw.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
                    std::future::pending::<()>().await;
                }
                raw.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            }
        })
        .await;
        Self { replicas, app, _agent: agent, _fleet: fleet }
    }

    /// Makes a browser whose requests arrive at one replica after the other, from one of them on.
    fn browser(&self, first: usize) -> Browser {
        let mut replicas: Vec<_> = self.replicas.iter().map(|replica| replica.addresses.public).collect();
        replicas.rotate_left(first);
        Browser::balanced(PORT, replicas)
    }

    /// Leads all requests of a browser to one replica from now on.
    fn lead(&self, browser: &mut Browser, to: usize) {
        browser.replicas = vec![self.replicas[to].addresses.public];
    }

    fn workspace(&self, path: &str) -> String {
        format!("http://{}-one.localhost:{PORT}{path}", self.app.port)
    }
}

fn public(path: &str) -> String {
    format!("http://localhost:{PORT}{path}")
}

async fn is_signed_in(browser: &mut Browser) -> bool {
    browser.visit(&public("/")).await.status() == 200
}

/// Waits until a browser is signed out at each of the replicas.
async fn until_signed_out(site: &Site, browser: &Browser) {
    let ended = async {
        for replica in 0..3 {
            let mut browser = browser.clone();
            site.lead(&mut browser, replica);
            while is_signed_in(&mut browser).await || browser.visit(&site.workspace("/")).await.status() == 200 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    timeout(ENDED_WITHIN, ended).await.expect("it ends at all replicas");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sign_in_at_one_replica_is_one_at_all_and_so_is_a_sign_out() {
    let site = Site::of("dev", |_| {}).await;
    let mut browser = site.browser(1);
    // The link of the first, opened at the second.
    let (_, page) = browser.follow(&site.replicas[0].sign_in_link).await;
    assert_eq!(page.status(), 200, "{page:?}");
    for _ in 0..3 {
        assert!(is_signed_in(&mut browser).await, "at once and everywhere");
    }
    let (_, page) = browser.follow(&site.workspace("/")).await;
    assert_eq!((page.status(), page.text()), (200, "ok".to_owned()), "{:?}", browser.visited);
    for _ in 0..3 {
        assert_eq!(browser.visit(&site.workspace("/")).await.status(), 200);
    }
    // Each of them serves a stream of it.
    let mut streams = Vec::new();
    for replica in 0..3 {
        let mut browser = browser.clone();
        site.lead(&mut browser, replica);
        let mut raw = browser.send("GET", &site.workspace("/stream"), "accept: */*\r\n", "").await;
        assert_eq!(raw.head().await.expect("an answer").status(), 200);
        streams.push(raw);
    }
    let stolen = browser.clone();
    site.lead(&mut browser, 2);
    let page = browser.ask("POST", &public("/.gateway/sign-out"), SAME_ORIGIN, "").await;
    assert_eq!(page.status(), 200, "{page:?}");
    let cut = async {
        for raw in &mut streams {
            raw.read_rest().await;
        }
    };
    timeout(ENDED_WITHIN, cut).await.expect("open streams are cut");
    until_signed_out(&site, &stolen).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sign_out_everywhere_ends_sessions_that_its_replica_never_saw() {
    let site = Site::of("dev", |_| {}).await;
    let mut browsers = Vec::new();
    for replica in 0..2 {
        let mut browser = site.browser(0);
        site.lead(&mut browser, replica);
        let (_, page) = browser.follow(&site.replicas[replica].sign_in_link).await;
        assert_eq!(page.status(), 200, "{page:?}");
        browsers.push(browser);
    }
    let other = browsers.pop().unwrap();
    let mut own = browsers.pop().unwrap();
    site.lead(&mut own, 2);
    let sessions = own.ask("GET", &public("/api/v1/sessions"), SAME_ORIGIN, "").await;
    let sessions: Value = serde_json::from_slice(&sessions.body).unwrap();
    assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(2), "{sessions}");
    let page = own.ask("POST", &public("/.gateway/sign-out?everywhere"), SAME_ORIGIN, "").await;
    assert_eq!(page.status(), 200, "{page:?}");
    until_signed_out(&site, &other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn provider_leads_a_browser_back_to_any_replica_and_ends_its_session_at_any() {
    let provider = TestProvider::start().await;
    let site = Site::of("ann", |config| provider.configure(config)).await;
    provider.claim("sid", json!("s-1"));
    for first in 0..3 {
        let mut browser = site.browser(first);
        let (at, page) = browser.follow(&site.workspace("/a?b")).await;
        assert_eq!((page.status(), at), (200, site.workspace("/a?b")), "{:#?}", browser.visited);
    }
    let mut browser = site.browser(0);
    let callback = browser.follow_until(&public("/.gateway/sign-in"), "/.gateway/oidc/callback").await;
    let mut again = browser.clone();
    assert_eq!(browser.visit(&callback).await.status(), 303);
    assert!(is_signed_in(&mut browser).await);
    for _ in 0..3 {
        let page = again.visit(&callback).await;
        assert!((400..500).contains(&page.status()), "a state counts once: {page:?}");
    }
    // A replica that never saw the browser gets the provider's message.
    site.lead(&mut browser, 0);
    assert!(is_signed_in(&mut browser).await);
    let mut messenger = site.browser(2);
    let form = format!("logout_token={}", provider.logout_token(None, Some("s-1"), |_| {}));
    let fields = "content-type: application/x-www-form-urlencoded\r\n";
    let answer = messenger.ask("POST", &public("/.gateway/oidc/backchannel-logout"), fields, &form).await;
    assert_eq!(answer.status(), 200, "{answer:?}");
    until_signed_out(&site, &browser).await;
}

async fn json(browser: &mut Browser, path: &str, body: &Value) -> (u16, Value) {
    let answer: Message =
        browser.ask("POST", &public(path), "content-type: application/json\r\n", &body.to_string()).await;
    (answer.status(), serde_json::from_slice(&answer.body).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn program_asks_at_one_replica_is_confirmed_at_another_and_polls_at_a_third() {
    let site = Site::of("dev", |_| {}).await;
    let mut browser = site.browser(1);
    browser.follow(&site.replicas[0].sign_in_link).await;
    let mut program = site.browser(0);
    let (status, codes) = json(&mut program, "/api/v1/device", &json!({"machine": "laptop"})).await;
    assert_eq!(status, 200, "{codes}");
    let poll = json!({"device_code": codes["device_code"]});
    site.lead(&mut browser, 1);
    let form = format!("user_code={}&decision=allow", codes["user_code"].as_str().unwrap());
    let fields = format!("{SAME_ORIGIN}content-type: application/x-www-form-urlencoded\r\n");
    let page = browser.ask("POST", &public("/.gateway/device"), &fields, &form).await;
    assert_eq!(page.status(), 200, "{page:?}");
    site.lead(&mut program, 2);
    let (status, granted) = json(&mut program, "/api/v1/device/token", &poll).await;
    assert_eq!((status, &granted["user"]), (200, &json!("dev")), "{granted}");
    for replica in 0..2 {
        site.lead(&mut program, replica);
        let (status, again) = json(&mut program, "/api/v1/device/token", &poll).await;
        assert_eq!((status, &again["error"]), (400, &json!("expired_token")), "{again}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_idle_at_one_replica_and_used_at_another_goes_on() {
    let idle_max = Duration::from_secs(6);
    let site = Site::of("dev", |config| config.auth.session_idle = idle_max).await;
    let mut browser = site.browser(0);
    browser.follow(&site.replicas[0].sign_in_link).await;
    let mut idle = browser.clone();
    site.lead(&mut idle, 1);
    assert!(is_signed_in(&mut idle).await);
    site.lead(&mut browser, 0);
    let since = std::time::Instant::now();
    while since.elapsed() < idle_max + Duration::from_secs(1) {
        assert!(is_signed_in(&mut browser).await);
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    assert!(is_signed_in(&mut idle).await, "its row says when it was used last");
    assert!(is_signed_in(&mut browser).await);
}
