use std::collections::BTreeMap;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HeaderValue, LOCATION, REFERRER_POLICY};
use parking_lot::Mutex;

use super::*;
use crate::browser::Lifetimes;
use crate::sign_in::transfer::TRANSFER_AGE_MAX;
use http::Request;

mod link;
mod provider;
mod return_path;

const PUBLIC: &str = "gw.localhost";
const HOST: &str = "8080-app.zone";
const MOMENT: Duration = Duration::from_nanos(1);

/// The sign-in pages and everything around them that a test looks at.
struct Fixture {
    pages: SignIn,
    sessions: Arc<BrowserSessions>,
    printed: Arc<Mutex<Vec<String>>>,
    now: Instant,
}

fn fixture_at(public_url: &str) -> Fixture {
    let now = Instant::now();
    let sessions = Arc::new(BrowserSessions::new(now, Lifetimes::default()));
    let printed = Arc::new(Mutex::new(Vec::new()));
    let announce = {
        let printed = Arc::clone(&printed);
        Box::new(move |link: &SignInLink| printed.lock().push(link.to_string()))
    };
    let site = Site::new(&public_url.parse().unwrap()).unwrap();
    let is_workspace_host = Box::new(|host: &str| host.ends_with(".zone"));
    let pages = SignIn::new(site, Arc::clone(&sessions), "dev".parse().unwrap(), is_workspace_host, announce);
    Fixture { pages, sessions, printed, now }
}

fn fixture() -> Fixture {
    fixture_at("http://gw.localhost:8080")
}

/// A browser: follows no redirects on its own, keeps cookies per host.
#[derive(Clone, Default)]
struct Browser {
    jar: BTreeMap<(String, String), String>,
}

impl Browser {
    fn send(&mut self, it: &Fixture, mut request: Request<()>, host: &str, now: Instant) -> Response<Bytes> {
        let own = self.jar.iter().filter(|((of, _), _)| of == host);
        let line = own.map(|((_, name), value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ");
        if !line.is_empty() {
            request.headers_mut().insert(COOKIE, line.parse().unwrap());
        }
        let visit = PageVisit::from(&request);
        let answer = if host == PUBLIC {
            it.pages.answer_public(visit, now).map(answered)
        } else {
            it.pages.answer_workspace(visit, host, now)
        };
        let response = answer.unwrap_or_else(|| it.pages.begin(visit, host, now));
        for set in response.headers().get_all(SET_COOKIE) {
            let pair = set.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            self.jar.insert((host.to_owned(), name.to_owned()), value.to_owned());
        }
        assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
        assert_eq!(response.headers()[REFERRER_POLICY], "no-referrer");
        assert!(response.headers().contains_key(CONTENT_SECURITY_POLICY));
        assert_eq!(response.headers()[OPENER_POLICY], "same-origin");
        response
    }

    /// Visits an absolute URL, or a path of `host`.
    fn visit(&mut self, it: &Fixture, host: &str, target: &str, now: Instant) -> Response<Bytes> {
        let uri: Uri = target.parse().unwrap();
        let host = uri.host().unwrap_or(host).to_owned();
        let path = uri.path_and_query().unwrap().as_str();
        self.send(it, get(path, &[("accept", "text/html")]), &host, now)
    }

    fn sign_in(&mut self, it: &Fixture) {
        let link = it.issue_link().to_string();
        let response = self.visit(it, PUBLIC, &link, it.now);
        assert_eq!(response.status(), StatusCode::SEE_OTHER);
    }

    /// Goes as far as the callback's address, which is what an attacker could pass on.
    fn up_to_callback(&mut self, it: &Fixture, host: &str, target: &str) -> String {
        let authorize = location(&self.visit(it, host, target, it.now)).to_owned();
        location(&self.visit(it, PUBLIC, &authorize, it.now)).to_owned()
    }

    fn user_at(&self, it: &Fixture, host: &str, now: Instant) -> Option<UserName> {
        let name = it.pages.site.cookies().session.to_owned();
        let id = Opaque::parse(self.jar.get(&(host.to_owned(), name))?)?;
        it.sessions.host(&id.digest(), host, now)
    }
}

fn answered(step: SignInStep) -> Response<Bytes> {
    match step {
        SignInStep::Answer(answer) => answer,
        step @ (SignInStep::ToProvider(_) | SignInStep::FromProvider(_) | SignInStep::SignOutAtProvider(..)) => {
            panic!("there is no provider here: {step:?}")
        }
    }
}

impl Fixture {
    fn issue_link(&self) -> SignInLink {
        self.pages.issue_link(self.now).unwrap().expect("dev mode has links")
    }
}

fn get(path: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut builder = Request::get(path);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(()).unwrap()
}

fn location(response: &Response<Bytes>) -> &str {
    response.headers()[LOCATION].to_str().unwrap()
}

fn error(response: &Response<Bytes>) -> &str {
    response.headers().get("gateway-error").map_or("", |code| code.to_str().unwrap())
}

#[test]
fn signing_in_leads_back_to_the_very_address_that_was_asked_for() {
    let it = fixture();
    let mut browser = Browser::default();
    browser.sign_in(&it);
    let wanted = "/a//b/..;c?q=%2f%2F+ü=&&x?y".replace('ü', "%c3%bc");
    let first = browser.visit(&it, HOST, &wanted, it.now);
    assert_eq!((first.status(), error(&first)), (StatusCode::FOUND, "sign_in_required"));
    assert!(location(&first).starts_with("http://gw.localhost:8080/.gateway/authorize?host=8080-app.zone&return="));
    let second = browser.visit(&it, PUBLIC, location(&first), it.now);
    assert!(location(&second).starts_with("http://8080-app.zone:8080/.gateway/callback?code="));
    let third = browser.visit(&it, HOST, location(&second), it.now);
    assert_eq!(third.status(), StatusCode::SEE_OTHER);
    assert_eq!(location(&third), wanted);
    assert_eq!(browser.user_at(&it, HOST, it.now).unwrap().as_str(), "dev");
    // The same id is worth nothing at any other host, and dies with its age.
    for other in ["8081-app.zone", "8080-other.zone", "app.zone"] {
        let mut thief = browser.clone();
        let stolen = thief.jar[&(HOST.to_owned(), "gateway_session".to_owned())].clone();
        thief.jar.insert((other.to_owned(), "gateway_session".to_owned()), stolen);
        assert_eq!(thief.user_at(&it, other, it.now), None, "{other}");
    }
    assert_eq!(browser.user_at(&it, HOST, it.now + Lifetimes::default().age_max), None);
}

#[test]
fn callback_in_another_browser_fails_even_if_that_one_is_in_a_sign_in_too() {
    let it = fixture();
    let mut attacker = Browser::default();
    attacker.sign_in(&it);
    let callback = attacker.up_to_callback(&it, HOST, "/");
    let mut without_nonce = Browser::default();
    let response = without_nonce.visit(&it, HOST, &callback, it.now);
    assert_eq!((response.status(), error(&response)), (StatusCode::UNAUTHORIZED, "sign_in_required"));
    assert!(without_nonce.jar.is_empty());
    let mut with_nonce = Browser::default();
    with_nonce.visit(&it, HOST, "/", it.now);
    let response = with_nonce.visit(&it, HOST, &callback, it.now);
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(with_nonce.user_at(&it, HOST, it.now), None);
}

#[test]
fn code_is_spent_by_its_first_presentation_with_or_without_the_nonce() {
    let it = fixture();
    let mut browser = Browser::default();
    browser.sign_in(&it);
    let callback = browser.up_to_callback(&it, HOST, "/");
    assert_eq!(Browser::default().visit(&it, HOST, &callback, it.now).status(), StatusCode::UNAUTHORIZED);
    assert_eq!(browser.visit(&it, HOST, &callback, it.now).status(), StatusCode::UNAUTHORIZED);
    assert_eq!(browser.user_at(&it, HOST, it.now), None);
}

#[test]
fn nonce_that_a_script_made_up_gets_no_code() {
    let it = fixture();
    let mut victim = Browser::default();
    victim.sign_in(&it);
    let own = Opaque::random().unwrap();
    let authorize = |pre: &Digest| format!("{AUTHORIZE_PATH}?host={HOST}&return=/app&pre={}", pre.encoded());
    let answer = victim.visit(&it, PUBLIC, &authorize(&own.digest()), it.now);
    assert_eq!(location(&answer), "http://8080-app.zone:8080/app", "the host begins by itself");
    // Neither does a cookie that the script has set: the host gives out another one.
    let planted = ((HOST.to_owned(), "gateway_pre".to_owned()), own.reveal());
    victim.jar.extend([planted]);
    let begun = victim.visit(&it, HOST, "/", it.now);
    assert!(!location(&begun).contains(&own.digest().encoded()));
    let answer = victim.visit(&it, PUBLIC, &authorize(&own.digest()), it.now);
    assert!(!location(&answer).contains("code="), "{answer:?}");
}

#[test]
fn sign_in_that_was_begun_is_vouched_for_once_at_its_host_and_in_time() {
    let it = fixture();
    let mut browser = Browser::default();
    browser.sign_in(&it);
    let authorize = location(&browser.visit(&it, HOST, "/a", it.now)).to_owned();
    let has_code = |response: &Response<Bytes>| location(response).contains("/.gateway/callback?code=");
    let elsewhere = authorize.replace(HOST, "8081-app.zone");
    assert!(!has_code(&browser.visit(&it, PUBLIC, &elsewhere, it.now)));
    assert!(has_code(&browser.visit(&it, PUBLIC, &authorize, it.now)));
    let again = browser.visit(&it, PUBLIC, &authorize, it.now);
    assert_eq!((again.status(), location(&again)), (StatusCode::SEE_OTHER, "http://8080-app.zone:8080/a"));
    let mut slow = Browser::default();
    slow.jar.clone_from(&browser.jar);
    let authorize = location(&slow.visit(&it, HOST, "/b", it.now)).to_owned();
    assert!(!has_code(&slow.visit(&it, PUBLIC, &authorize, it.now + BEGUN_AGE_MAX)));
    let authorize = location(&slow.visit(&it, HOST, "/b", it.now)).to_owned();
    assert!(has_code(&slow.visit(&it, PUBLIC, &authorize, it.now + BEGUN_AGE_MAX - MOMENT)));
}

#[test]
fn page_behind_sign_out_says_what_is_so() {
    let it = fixture();
    let mut browser = Browser::default();
    let text = |page: Response<Bytes>| String::from_utf8(page.body().to_vec()).unwrap();
    let shown = text(browser.visit(&it, PUBLIC, oidc::SIGNED_OUT_PATH, it.now));
    assert!(shown.contains("You are signed out"), "{shown}");
    browser.sign_in(&it);
    let shown = text(browser.visit(&it, PUBLIC, oidc::SIGNED_OUT_PATH, it.now));
    assert!(shown.contains("You are signed in") && !shown.contains("signed out"), "{shown}");
}

#[test]
fn callback_works_once_at_its_own_host_and_in_time() {
    let it = fixture();
    let mut browser = Browser::default();
    browser.sign_in(&it);
    let callback = browser.up_to_callback(&it, HOST, "/");
    assert_eq!(browser.visit(&it, HOST, &callback, it.now).status(), StatusCode::SEE_OTHER);
    assert_eq!(browser.visit(&it, HOST, &callback, it.now).status(), StatusCode::UNAUTHORIZED);

    let elsewhere = browser.up_to_callback(&it, HOST, "/").replace(HOST, "8081-app.zone");
    let nonce = browser.jar[&(HOST.to_owned(), "gateway_pre".to_owned())].clone();
    browser.jar.insert(("8081-app.zone".to_owned(), "gateway_pre".to_owned()), nonce);
    assert_eq!(browser.visit(&it, HOST, &elsewhere, it.now).status(), StatusCode::UNAUTHORIZED);

    let late = browser.up_to_callback(&it, HOST, "/");
    assert_eq!(browser.visit(&it, HOST, &late, it.now + TRANSFER_AGE_MAX).status(), StatusCode::UNAUTHORIZED);
    let just = browser.up_to_callback(&it, HOST, "/");
    let last = it.now + TRANSFER_AGE_MAX - MOMENT;
    assert_eq!(browser.visit(&it, HOST, &just, last).status(), StatusCode::SEE_OTHER);
}

#[test]
fn callback_after_sign_out_opens_nothing() {
    let it = fixture();
    let mut browser = Browser::default();
    browser.sign_in(&it);
    let callback = browser.up_to_callback(&it, HOST, "/");
    let post = Request::post(SIGN_OUT_PATH).header("sec-fetch-site", "same-origin").body(()).unwrap();
    let response = browser.send(&it, post, PUBLIC, it.now);
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(browser.visit(&it, HOST, &callback, it.now).status(), StatusCode::UNAUTHORIZED);
}

#[test]
fn tabs_that_begin_together_share_one_nonce_and_all_arrive() {
    let it = fixture();
    let mut browser = Browser::default();
    browser.sign_in(&it);
    let callbacks = ["/1", "/2", "/3"].map(|path| browser.up_to_callback(&it, HOST, path));
    let arrived = callbacks.map(|callback| location(&browser.visit(&it, HOST, &callback, it.now)).to_owned());
    assert_eq!(arrived, ["/1", "/2", "/3"]);
}

#[test]
fn nonce_that_occurs_twice_is_refused() {
    let it = fixture();
    let mut browser = Browser::default();
    browser.sign_in(&it);
    let callback = browser.up_to_callback(&it, HOST, "/");
    let nonce = &browser.jar[&(HOST.to_owned(), "gateway_pre".to_owned())];
    let path = callback.strip_prefix("http://8080-app.zone:8080").unwrap();
    let request = get(path, &[("cookie", &format!("gateway_pre={nonce}; gateway_pre={nonce}"))]);
    let response = it.pages.answer_workspace(PageVisit::from(&request), HOST, it.now).unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
}

#[test]
fn behind_tls_all_cookies_are_host_only_and_secure() {
    let it = fixture_at("https://gw.localhost");
    let mut browser = Browser::default();
    browser.sign_in(&it);
    let callback = browser.up_to_callback(&it, HOST, "/x");
    assert!(callback.starts_with("https://8080-app.zone/.gateway/callback"));
    let response = browser.visit(&it, HOST, &callback, it.now);
    let line = response.headers()[SET_COOKIE].to_str().unwrap();
    assert!(line.starts_with("__Host-gateway_session=") && line.ends_with("; Secure"), "{line}");
    assert!(browser.jar.keys().all(|(_, name)| name.starts_with("__Host-")));
}

#[test]
fn authorize_serves_workspace_hosts_only_and_says_so_before_anything_else() {
    let it = fixture();
    let mut browser = Browser::default();
    browser.sign_in(&it);
    let pre = Opaque::random().unwrap().digest().encoded();
    for host in [
        "evil.example",
        "app.zone.evil.example",
        "APP.zone",
        "x@app.zone",
        "evil.example%2f.zone",
        "evil.example/.zone",
        "",
        "app.zone:80",
        "evil.example%23.zone",
        "evil.example%5c.zone",
        "a.zone&host=a.zone",
    ] {
        let response = browser.visit(&it, PUBLIC, &format!("{AUTHORIZE_PATH}?host={host}&return=/&pre={pre}"), it.now);
        assert_eq!((response.status(), error(&response)), (StatusCode::BAD_REQUEST, "bad_request"), "{host}");
    }
    for query in [format!("host={HOST}&return=/"), format!("host={HOST}&pre=x"), format!("pre={pre}"), String::new()] {
        let response = browser.visit(&it, PUBLIC, &format!("{AUTHORIZE_PATH}?{query}"), it.now);
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{query}");
    }
}

#[test]
fn other_paths_are_left_to_the_caller() {
    let it = fixture();
    for path in ["/", "/.gateway", "/.gateway/", "/.gateway/callback/", "/.gateway/authorize"] {
        let request = get(path, &[]);
        assert!(it.pages.answer_workspace(PageVisit::from(&request), HOST, it.now).is_none(), "{path}");
    }
    for path in ["/", "/.gateway/callback", "/.gateway/sign-in/", "/%2egateway/sign-in"] {
        let request = get(path, &[]);
        assert!(it.pages.answer_public(PageVisit::from(&request), it.now).is_none(), "{path}");
    }
}
