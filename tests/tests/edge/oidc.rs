//! Signing in with an identity provider: real HTTP, real signatures, a browser that keeps cookies by host.

#[path = "oidc/hostile.rs"]
mod hostile;
#[path = "oidc/logout.rs"]
mod logout;
#[path = "oidc/users.rs"]
mod users;

use e2e::browser::Browser;
use e2e::provider::TestProvider;
use e2e::raw::Message;
use e2e::{TestAgent, TestGateway};
use gateway_config::Config;
use gateway_store::wall_clock;
use gateway_types::Share;

use super::support::{App, app, ok};

/// A gateway whose users sign in with a provider, the workspace `one` of `ann`, and an app in it.
pub(super) struct Site {
    pub(super) gateway: TestGateway,
    pub(super) provider: TestProvider,
    pub(super) app: App,
    _agent: TestAgent,
}

impl Site {
    pub(super) async fn start() -> Self {
        Self::configured(|_| {}).await
    }

    pub(super) async fn configured(change: impl FnOnce(&mut Config)) -> Self {
        let provider = TestProvider::start().await;
        let gateway = TestGateway::start_with(|config| {
            provider.configure(config);
            change(config);
        })
        .await;
        let token =
            gateway.store.create_agent_token(&"one".parse().unwrap(), &"ann".parse().unwrap(), wall_clock()).await;
        let agent = gateway.start_agent(token.unwrap().token.reveal(), Vec::new());
        gateway.until_connected("one").await;
        let app = app(|_, _, request| ok(&format!("{} {:?}", request.start, request.header("cookie")))).await;
        Self { gateway, provider, app, _agent: agent }
    }

    /// Returns an address of the public host.
    pub(super) fn public(&self, path: &str) -> String {
        format!("http://localhost:{}{path}", self.gateway.addresses.public.port())
    }

    /// Returns an address of the app in the workspace.
    pub(super) fn workspace(&self, path: &str) -> String {
        format!("http://{}{path}", self.gateway.authority("one", self.app.port))
    }

    /// Signs a new browser in on the public host.
    pub(super) async fn signed_in(&self) -> Browser {
        let mut browser = Browser::default();
        let (at, page) = browser.follow(&self.public("/")).await;
        assert_eq!((page.status(), at), (200, self.public("/")), "{page:?}");
        browser
    }

    /// Brings a browser as far as the address with which the provider sends it back, which an attacker could pass on.
    pub(super) async fn up_to_callback(&self, browser: &mut Browser) -> String {
        browser.follow_until(&self.public("/.gateway/sign-in"), "/.gateway/oidc/callback").await
    }

    /// Signs in with what the provider does now; returns how that ends.
    pub(super) async fn outcome(&self) -> (u16, String, Browser) {
        let mut browser = Browser::default();
        let (_, page) = browser.follow(&self.public("/.gateway/sign-in")).await;
        (page.status(), page.header("gateway-error").unwrap_or_default().to_owned(), browser)
    }

    pub(super) async fn share(&self, audience: &str) {
        let port = gateway_types::Port::new(self.app.port).unwrap();
        let share = Share { port, audience: audience.parse().unwrap(), expires_at: None };
        let (name, by) = ("one".parse().unwrap(), "ann".parse().unwrap());
        assert!(self.gateway.store.share(&name, &share, &by, wall_clock()).await.unwrap());
    }

    /// Asks the app as a program with a token of `user`.
    pub(super) async fn with_token(&self, token: &str) -> Message {
        let fields = format!("gateway-authorization: Bearer {token}\r\n");
        Browser::default().ask("GET", &self.workspace("/"), &fields, "").await
    }

    pub(super) async fn token_of(&self, user: &str) -> String {
        let user = user.parse().unwrap();
        self.gateway.store.create_user_token(&user, wall_clock()).await.unwrap().token.reveal().to_owned()
    }
}

/// Returns whether a browser is signed in on the public host.
pub(super) async fn is_signed_in(site: &Site, browser: &mut Browser) -> bool {
    browser.visit(&site.public("/")).await.status() == 200
}

#[tokio::test]
async fn provider_leads_to_the_page_that_was_asked_for_and_the_app_sees_nothing_of_it() {
    let site = Site::start().await;
    let target = "/a//b?x=1&y=%2f%26&&z=&code=own&state=own";
    let mut browser = Browser::default();
    let (at, page) = browser.follow(&site.workspace(target)).await;
    assert_eq!(at, site.workspace(target), "{:?}", browser.visited);
    assert_eq!(page.text(), format!("GET {target} HTTP/1.1 None"));
    // The whole way: workspace, authorize, provider, callback, authorize again, the workspace's callback, the page.
    assert_eq!(browser.visited.len(), 7, "{:#?}", browser.visited);
    let seen = site.app.seen.requests();
    assert_eq!(seen.len(), 1, "nothing but the page reached the app");
    let sent = format!("{seen:?}");
    for secret in ["gateway_", "code-", "sec-fetch-site: cross-site, "] {
        assert!(!sent.contains(secret), "{secret} in {sent}");
    }
    // Another host of the same browser needs no second sign-in at the provider.
    let before = site.provider.seen().len();
    let other = format!(
        "http://{}/",
        site.gateway.authority("one", site.app.port).replacen(&site.app.port.to_string(), "1", 1)
    );
    browser.follow(&other).await;
    assert_eq!(site.provider.seen().len(), before);
}

#[tokio::test]
async fn program_is_answered_and_never_sent_to_the_provider() {
    let site = Site::start().await;
    for (method, fields) in [
        ("GET", "accept: */*\r\n"),
        ("GET", "accept: text/html\r\nsec-fetch-mode: cors\r\nsec-fetch-dest: empty\r\n"),
        ("POST", "accept: text/html\r\n"),
        ("GET", super::upgrade::HANDSHAKE),
    ] {
        for address in [site.workspace("/"), site.public("/")] {
            let answer = Browser::default().ask(method, &address, fields, "").await;
            assert!(matches!(answer.status(), 401 | 405), "{method} {address} {fields}: {answer:?}");
            assert_eq!(answer.header("location"), None);
        }
    }
    assert_eq!(site.app.seen.connections(), 0);
}

#[tokio::test]
async fn provider_that_cannot_be_reached_is_named_and_sign_in_works_once_it_is_back() {
    let provider = TestProvider::start().await;
    provider.set_down(true);
    let gateway = TestGateway::start_with(|config| provider.configure(config)).await;
    let address = format!("http://localhost:{}/.gateway/sign-in", gateway.addresses.public.port());
    let mut browser = Browser::default();
    let page = browser.visit(&address).await;
    assert_eq!((page.status(), page.header("gateway-error")), (503, Some("provider_unavailable")), "{page:?}");
    assert!(page.text().contains("The identity provider cannot be reached"), "{page:?}");
    assert!(page.header("retry-after").is_some());
    provider.set_down(false);
    let since = std::time::Instant::now();
    loop {
        let (_, page) = browser.follow(&address).await;
        if page.status() == 200 {
            break;
        }
        assert!(since.elapsed() < e2e::PATIENCE, "it does not recover: {page:?}");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn sessions_outlive_a_provider_that_goes_away() {
    let site = Site::start().await;
    let mut browser = site.signed_in().await;
    site.provider.set_down(true);
    assert!(is_signed_in(&site, &mut browser).await);
    let (_, page) = browser.follow(&site.workspace("/x")).await;
    assert_eq!(page.text(), "GET /x HTTP/1.1 None");
}

#[tokio::test]
async fn session_ends_at_its_absolute_age_however_much_it_is_used() {
    let site = Site::configured(|config| {
        config.auth.session_idle = std::time::Duration::from_secs(2);
        config.auth.session_max = std::time::Duration::from_secs(2);
    })
    .await;
    let since = std::time::Instant::now();
    let mut browser = site.signed_in().await;
    while is_signed_in(&site, &mut browser).await {
        assert!(since.elapsed() < e2e::PATIENCE, "it lives on");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(since.elapsed() >= std::time::Duration::from_secs(2), "it ended early");
}
