//! The way to an identity provider and back, with the provider's part made up.

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::browser::SignedIn;
use crate::jwt::Claims;
use crate::oidc::answer::RedirectOutcome;
use crate::oidc::logout::{BadNotice, Notice};
use crate::oidc::metadata::Metadata;
use crate::oidc::pending::PENDING_AGE_MAX;
use crate::oidc::{ClientRegistration, ProviderSession};
use crate::sign_in::provider::ReturnedBrowser;
use gateway_types::UnixSeconds;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const AT: UnixSeconds = UnixSeconds::new(1_800_000_000);
const CALLBACK: &str = "/.gateway/oidc/callback";

fn fixture() -> Fixture {
    let now = Instant::now();
    let sessions = Arc::new(BrowserSessions::new(now, Lifetimes::default()));
    let site = Site::new(&"https://gw.localhost".parse().unwrap()).unwrap();
    let is_workspace_host = Box::new(|host: &str| host.ends_with(".zone"));
    let client = ClientRegistration {
        id: "gateway".to_owned(),
        scopes: "openid".to_owned(),
        redirect_uri: site.public(CALLBACK),
        signed_out_uri: site.public("/.gateway/signed-out"),
    };
    let pages = SignIn::with_provider(site, sessions.clone(), client, is_workspace_host);
    Fixture { pages, sessions, printed: Arc::default(), now }
}

fn metadata() -> Metadata {
    let document = json!({
        "issuer": "https://id.example", "jwks_uri": "https://id.example/k",
        "authorization_endpoint": "https://id.example/auth", "end_session_endpoint": "https://id.example/end",
    });
    Metadata::parse(&document, &"https://id.example".parse().unwrap()).unwrap()
}

/// A browser on the public host: its two cookies.
#[derive(Clone, Default)]
struct Tab {
    pre: String,
    session: String,
}

impl Tab {
    fn request(&self, path: &str) -> Request<()> {
        let mut pairs = Vec::new();
        for (name, value) in [("__Host-gateway_pre", &self.pre), ("__Host-gateway_session", &self.session)] {
            if !value.is_empty() {
                pairs.push(format!("{name}={value}"));
            }
        }
        let mut request = get(path, &[("accept", "text/html")]);
        if !pairs.is_empty() {
            request.headers_mut().insert(COOKIE, pairs.join("; ").parse().unwrap());
        }
        request
    }

    fn step(&self, it: &Fixture, path: &str, now: Instant) -> SignInStep {
        it.pages.answer_public(PageVisit::from(&self.request(path)), now).unwrap()
    }

    fn keep(&mut self, response: &Response<Bytes>) {
        for set in response.headers().get_all(SET_COOKIE) {
            let line = set.to_str().unwrap();
            assert!(line.starts_with("__Host-") && line.ends_with("; HttpOnly; SameSite=Lax; Secure"), "{line}");
            let (name, value) = line.split(';').next().unwrap().split_once('=').unwrap();
            let slot = if name.ends_with("_pre") { &mut self.pre } else { &mut self.session };
            *slot = value.to_owned();
        }
    }

    /// Asks for a page that needs signing in; returns the `state` with which the browser is sent to the provider.
    fn begin(&mut self, it: &Fixture, path: &str) -> String {
        let SignInStep::ToProvider(destination) = self.step(it, path, it.now) else { panic!("not to the provider") };
        let request = self.request(path);
        let response = it.pages.to_provider(PageVisit::from(&request), destination, &metadata(), PEER, it.now);
        assert_eq!(response.status(), StatusCode::FOUND);
        self.keep(&response);
        let url = url::Url::parse(location(&response)).unwrap();
        assert!(url.as_str().starts_with("https://id.example/auth?response_type=code&client_id=gateway&"), "{url}");
        let (_, state) = url.query_pairs().find(|(name, _)| name == "state").unwrap();
        state.into_owned()
    }

    fn back(&self, it: &Fixture, state: &str) -> Result<ReturnedBrowser, Box<Response<Bytes>>> {
        match self.step(it, &format!("{CALLBACK}?code=c&state={state}"), it.now) {
            SignInStep::FromProvider(returned) => Ok(*returned),
            SignInStep::Answer(page) => Err(Box::new(page)),
            step @ (SignInStep::ToProvider(_) | SignInStep::SignOutAtProvider(..)) => panic!("unexpected: {step:?}"),
        }
    }

    fn admit(&mut self, it: &Fixture, returned: &ReturnedBrowser) -> Response<Bytes> {
        let request = self.request(CALLBACK);
        let destination = &returned.pending.destination;
        let response = it.pages.admit(PageVisit::from(&request), ann("s-1"), AT, destination, it.now);
        self.keep(&response);
        response
    }

    fn user(&self, it: &Fixture) -> Option<String> {
        let id = Opaque::parse(&self.session)?;
        it.sessions.public(&id.digest(), it.now).map(|user| user.to_string())
    }
}

fn ann(session: &str) -> SignedIn {
    let provider = Some(Arc::new(ProviderSession::new("u-1", Some(session), "h.c.s")));
    SignedIn { user: "ann".parse().unwrap(), provider }
}

fn notice(id: &str, subject: Option<&str>, session: Option<&str>) -> Notice {
    let rest = json!({"events": {"http://schemas.openid.net/event/backchannel-logout": {}}});
    let claims = Claims {
        id: Some(id.to_owned()),
        subject: subject.map(str::to_owned),
        session: session.map(str::to_owned),
        issued_at: Some(AT),
        rest: rest.as_object().unwrap().clone(),
        ..Claims::default()
    };
    Notice::read(claims, AT).unwrap()
}

#[test]
fn provider_leads_back_to_the_page_that_was_asked_for_and_sees_nothing_of_it() {
    let it = fixture();
    let visit = get("/a//b?x=1&y=%2f%26&&z=", &[("accept", "text/html")]);
    let begun = it.pages.begin(PageVisit::from(&visit), HOST, it.now);
    let authorize = location(&begun).strip_prefix("https://gw.localhost").unwrap().to_owned();
    assert!(authorize.starts_with(AUTHORIZE_PATH));
    let mut tab = Tab::default();
    let state = tab.begin(&it, &authorize);
    let returned = tab.back(&it, &state).unwrap();
    assert!(matches!(&returned.answer.outcome, RedirectOutcome::Code(code) if code == "c"));
    let response = tab.admit(&it, &returned);
    assert_eq!(
        (response.status(), location(&response)),
        (StatusCode::SEE_OTHER, &*format!("https://gw.localhost{authorize}"))
    );
    assert_eq!(tab.user(&it).as_deref(), Some("ann"));
    let SignInStep::Answer(vouched) = tab.step(&it, &authorize, it.now) else { panic!("an answer") };
    assert!(location(&vouched).starts_with("https://8080-app.zone/.gateway/callback?code="));
}

#[test]
fn other_destinations_are_paths_of_our_own_hosts_and_nothing_else() {
    let it = fixture();
    let go = |query: &str| {
        let mut tab = Tab::default();
        let state = tab.begin(&it, &format!("{SIGN_IN_PATH}{query}"));
        let returned = tab.back(&it, &state).unwrap();
        location(&tab.admit(&it, &returned)).to_owned()
    };
    assert_eq!(go(""), "/");
    assert_eq!(go("?return=/w%3Fa"), "/w?a");
    assert_eq!(go(&format!("?host={HOST}&return=/x")), "https://8080-app.zone/x");
    for evil in ["//evil.example", "https://evil.example", "/%5Cevil.example", "%09//evil", "javascript:1", "/%0d%0aa"]
    {
        assert_eq!(go(&format!("?return={evil}")), "/", "{evil}");
    }
    for evil in ["evil.example", "evil.example%2F.zone", "u@a.zone", "a.zone:80", "evil%23.zone"] {
        assert_eq!(go(&format!("?host={evil}&return=/x")), "/x", "{evil}");
    }
}

// Row 8: nobody can be made to finish a sign-in that another browser began.
#[test]
fn answer_in_another_browser_is_refused() {
    let it = fixture();
    let mut attacker = Tab::default();
    let state = attacker.begin(&it, SIGN_IN_PATH);
    let without_nonce = Tab::default().back(&it, &state).unwrap_err();
    assert_eq!((without_nonce.status(), error(&without_nonce)), (StatusCode::UNAUTHORIZED, "sign_in_required"));
    let mut victim = Tab::default();
    victim.begin(&it, SIGN_IN_PATH);
    assert_eq!(victim.back(&it, &state).unwrap_err().status(), StatusCode::UNAUTHORIZED);
    assert_eq!(attacker.back(&it, &state).unwrap_err().status(), StatusCode::UNAUTHORIZED, "it is used up");
}

#[test]
fn state_is_good_once_and_for_ten_minutes_and_malformed_answers_spend_nothing() {
    let it = fixture();
    let mut tab = Tab::default();
    let state = tab.begin(&it, SIGN_IN_PATH);
    for query in
        ["", "?code=c", "?code=c&state=x", &format!("?state={state}"), &format!("?code=c&state={state}&state={state}")]
    {
        let SignInStep::Answer(page) = tab.step(&it, &format!("{CALLBACK}{query}"), it.now) else { panic!("{query}") };
        assert_eq!(page.status(), StatusCode::BAD_REQUEST, "{query}");
    }
    assert!(tab.back(&it, &state).is_ok());
    assert_eq!(tab.back(&it, &state).unwrap_err().status(), StatusCode::UNAUTHORIZED);
    let state = tab.begin(&it, SIGN_IN_PATH);
    let late = it.now + PENDING_AGE_MAX;
    let SignInStep::Answer(page) = tab.step(&it, &format!("{CALLBACK}?code=c&state={state}"), late) else {
        panic!("late")
    };
    assert_eq!(page.status(), StatusCode::UNAUTHORIZED);
}

#[test]
fn answer_is_taken_from_a_visit_and_from_nothing_else() {
    let it = fixture();
    let mut tab = Tab::default();
    let state = tab.begin(&it, SIGN_IN_PATH);
    let path = format!("{CALLBACK}?code=c&state={state}");
    for (name, value) in [("sec-fetch-dest", "iframe"), ("sec-fetch-mode", "no-cors"), ("sec-purpose", "prefetch")] {
        let mut request = tab.request(&path);
        request.headers_mut().insert("sec-fetch-site", "cross-site".parse().unwrap());
        request.headers_mut().insert("sec-fetch-mode", "navigate".parse().unwrap());
        request.headers_mut().insert(name, value.parse().unwrap());
        let Some(SignInStep::Answer(page)) = it.pages.answer_public(PageVisit::from(&request), it.now) else {
            panic!("{name}")
        };
        assert_eq!(page.status(), StatusCode::BAD_REQUEST, "{name}");
    }
    assert!(tab.back(&it, &state).is_ok(), "none of these used it up");
}

#[test]
fn signing_in_again_ends_the_session_that_the_browser_had() {
    let it = fixture();
    let mut tab = Tab::default();
    let state = tab.begin(&it, SIGN_IN_PATH);
    let other_tab = tab.clone().begin(&it, SIGN_IN_PATH);
    let returned = tab.back(&it, &state).unwrap();
    tab.admit(&it, &returned);
    let first = tab.clone();
    let returned = tab.back(&it, &other_tab).unwrap();
    tab.admit(&it, &returned);
    assert_eq!((first.user(&it), tab.user(&it).as_deref()), (None, Some("ann")));
    let SignInStep::Answer(on) = tab.step(&it, &format!("{SIGN_IN_PATH}?return=/x"), it.now) else {
        panic!("signed in")
    };
    assert_eq!(location(&on), "/x", "who is signed in just goes on");
}

#[test]
fn signing_out_goes_on_to_the_provider() {
    let it = fixture();
    let mut tab = Tab::default();
    let state = tab.begin(&it, SIGN_IN_PATH);
    let returned = tab.back(&it, &state).unwrap();
    tab.admit(&it, &returned);
    let mut request = tab.request(SIGN_OUT_PATH);
    *request.method_mut() = Method::POST;
    request.headers_mut().insert("sec-fetch-site", "same-origin".parse().unwrap());
    let Some(SignInStep::SignOutAtProvider(session, _)) = it.pages.answer_public(PageVisit::from(&request), it.now)
    else {
        panic!("not to the provider");
    };
    assert_eq!(tab.user(&it), None, "here it has ended at once");
    let page = it.pages.sign_out_at_provider(PageVisit::from(&request), &session, Some(&metadata()));
    let body = str::from_utf8(page.body()).unwrap();
    assert!(body.contains("0;url=https://id.example/end?id_token_hint=h.c.s&amp;client_id=gateway"), "{body}");
    assert!(page.headers()[SET_COOKIE].to_str().unwrap().contains("Max-Age=0"));
    let page = it.pages.sign_out_at_provider(PageVisit::from(&request), &session, None);
    assert!(str::from_utf8(page.body()).unwrap().contains("You are signed out"));
}

#[test]
fn sign_out_everywhere_ends_the_other_browsers_too() {
    let it = fixture();
    let mut tabs = [Tab::default(), Tab::default()];
    for tab in &mut tabs {
        let state = tab.begin(&it, SIGN_IN_PATH);
        let returned = tab.back(&it, &state).unwrap();
        tab.admit(&it, &returned);
    }
    let mut request = tabs[0].request(&format!("{SIGN_OUT_PATH}?everywhere"));
    *request.method_mut() = Method::POST;
    request.headers_mut().insert("origin", "https://gw.localhost".parse().unwrap());
    assert!(it.pages.answer_public(PageVisit::from(&request), it.now).is_some());
    assert_eq!(tabs.map(|tab| tab.user(&it)), [None, None]);
}

#[test]
fn providers_word_ends_a_session_and_one_that_was_about_to_open() {
    let it = fixture();
    let mut tab = Tab::default();
    let state = tab.begin(&it, SIGN_IN_PATH);
    let returned = tab.back(&it, &state).unwrap();
    tab.admit(&it, &returned);
    let ended = end(&it, &notice("n-1", None, Some("s-1"))).unwrap();
    assert_eq!((ended.len(), tab.user(&it)), (1, None));
    assert!(end(&it, &notice("n-1", None, Some("s-1"))).is_err(), "once");
    // The same session of the provider's was just being taken up in another tab.
    let state = tab.begin(&it, SIGN_IN_PATH);
    let returned = tab.back(&it, &state).unwrap();
    let late = tab.admit(&it, &returned);
    assert_eq!((late.status(), tab.user(&it)), (StatusCode::UNAUTHORIZED, None));
}

#[test]
fn dev_mode_has_no_page_of_a_provider_and_a_provider_has_no_link() {
    let dev = super::fixture();
    let request = get(CALLBACK, &[]);
    assert!(dev.pages.answer_public(PageVisit::from(&request), dev.now).is_none());
    assert!(dev.pages.begin_public(PageVisit::from(&get("/", &[("accept", "text/html")]))).is_none());
    let it = fixture();
    assert!(it.pages.issue_link(it.now).unwrap().is_none());
    let visit = get("/a?b", &[("accept", "text/html")]);
    let response = it.pages.begin_public(PageVisit::from(&visit)).unwrap();
    assert_eq!(location(&response), "/.gateway/sign-in?return=%2Fa%3Fb");
    assert!(it.pages.begin_public(PageVisit::from(&get("/", &[]))).is_none(), "a program is answered");
}

proptest! {
    #[test]
    fn any_wish_ends_on_a_host_of_ours(host in wishes(), path in wishes()) {
        let it = fixture();
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("host", &host)
            .append_pair("return", &path)
            .finish();
        let mut tab = Tab::default();
        let state = tab.begin(&it, &format!("{SIGN_IN_PATH}?{query}"));
        let returned = tab.back(&it, &state).unwrap();
        let response = tab.admit(&it, &returned);
        // As a browser would read it.
        let to = url::Url::parse("https://gw.localhost/").unwrap().join(location(&response)).unwrap();
        let at = to.host_str().unwrap_or_default();
        prop_assert_eq!(to.scheme(), "https");
        prop_assert!(at == "gw.localhost" || (at.ends_with(".zone") && to.port().is_none()), "{}", to);
        prop_assert!(to.username().is_empty() && to.password().is_none());
    }
}

/// Anything, and what is near to leading astray.
fn wishes() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "/",
        "//",
        "\\",
        "evil.example",
        ".zone",
        "8080-app.zone",
        "@",
        ":",
        "http:",
        "https://",
        "?",
        "#",
        "%2f",
        "\t",
        "\r\n",
        ".",
        "..",
        "a",
        " ",
    ]);
    prop_oneof!["\\PC{0,40}", prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())]
}

/// Follows a message of the provider.
fn end(it: &Fixture, notice: &Notice) -> Result<Vec<SignedIn>, BadNotice> {
    it.pages.remember_notice(notice, it.now)?;
    let is_about = |who: &SignedIn| who.provider.as_ref().is_some_and(|session| notice.is_about(session));
    Ok(it.sessions.end_where(is_about))
}
