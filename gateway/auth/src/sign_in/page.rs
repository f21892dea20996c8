//! Pages of sign-in: fixed, without any text of the request, and the headers of all answers.

use std::sync::LazyLock;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION,
    REFERRER_POLICY, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};

use crate::oidc::identity::NotAdmitted;
use crate::shape;
use crate::sign_in::event::{FailedPage, SignInEvent};
use gateway_types::failed_request::Side;
use gateway_types::token::NoRandomness;
use page_look::{LonePage, STYLE};

const GATEWAY_ERROR: HeaderName = HeaderName::from_static("gateway-error");

/// Keeps the opener of a sign-in page from reading its address, which may contain a code (HTML Living Standard,
/// "Cross-origin opener policies"). On redirects too: they are part of the navigation.
pub const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
/// The one value of it.
pub const OPENER_POLICY_OWN: HeaderValue = HeaderValue::from_static("same-origin");

/// Nothing may be loaded, framed or submitted; the one style is named by its hash, computed so that it cannot drift.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hash = STANDARD.encode(digest::digest(&digest::SHA256, STYLE.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"))
});

/// A page of its own, shown instead of going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignInPage {
    /// A sign-in link that is used, expired or wrong; the page does not say which.
    LinkNotGood,
    /// The public host needs a session and there is none.
    SignInNeeded,
    /// The last step on the workspace host failed: another browser, too late, cookies off.
    TransferFailed,
    /// This browser has no session here.
    SignedOut,
    /// The page after signing out, opened in a browser that is still signed in.
    StillSignedIn,
    /// The identity provider cannot be reached, or its answers are unusable.
    ProviderUnavailable,
    /// The identity provider refused, or the user did there.
    ProviderDenied,
    /// The identity provider's answer is invalid.
    ProviderFailed,
    /// A browser came back from the identity provider with a sign-in that is not, or no longer, its own.
    NotPending,
    /// The user authenticated, and is not admitted.
    NotAdmitted(NotAdmitted),
    /// A prefetch, a frame or a script asks for a page that only a visit may have.
    NotAVisit,
    /// Malformed, or sent from a foreign page.
    BadRequest,
    /// The system gave no random bytes.
    Unable,
}

/// A failure that a page reports.
struct Case {
    /// Which case of its code.
    reason: &'static str,
    side: Side,
    /// Whether a user tried to sign in.
    is_attempt: bool,
}

/// Status, `gateway-error` code, title and text.
type PageParts = (StatusCode, Option<&'static str>, &'static str, &'static str);

const PROVIDER_UNAVAILABLE: PageParts = (
    StatusCode::SERVICE_UNAVAILABLE,
    Some("provider_unavailable"),
    "The identity provider cannot be reached",
    "No user can sign in until it answers; users who are signed in can go on. Please try again soon. The gateway's log says \
     why.",
);

const PROVIDER_DENIED: PageParts = (
    StatusCode::UNAUTHORIZED,
    Some("sign_in_required"),
    "The identity provider did not sign you in",
    "The sign-in was cancelled there, or you may not use this gateway. Open the address that you want to go to again to \
     begin anew.",
);

const PROVIDER_FAILED: PageParts = (
    StatusCode::UNAUTHORIZED,
    Some("sign_in_failed"),
    "This sign-in could not be verified",
    "What the identity provider answered cannot be trusted. Open the address that you want to go to again; if that does \
     not help, the gateway's log tells its operator why.",
);

const NOT_PENDING: PageParts = (
    StatusCode::UNAUTHORIZED,
    Some("sign_in_required"),
    "This sign-in could not be finished",
    "It was begun in another browser, was finished already, took too long, or cookies are turned off. Open the address \
     that you want to go to again.",
);

impl From<NoRandomness> for SignInPage {
    fn from(_: NoRandomness) -> Self {
        tracing::error!("the system gave no random bytes: no user can sign in");
        Self::Unable
    }
}

impl SignInPage {
    /// Returns status, `gateway-error` code, title and text.
    fn parts(self) -> PageParts {
        match self {
            Self::LinkNotGood => (
                StatusCode::UNAUTHORIZED,
                Some("sign_in_required"),
                "This sign-in link is not good any more",
                "This link was used, has expired, or was not copied whole: each works once, for 15 minutes. The newest one \
                 is on the gateway's terminal or in its log. If that one does not work either, reload this page after a \
                 minute and a fresh one is printed there.",
            ),
            Self::SignInNeeded => (
                StatusCode::UNAUTHORIZED,
                Some("sign_in_required"),
                "Please sign in first",
                "Open the sign-in link that the gateway printed on its terminal or in its log. Then come back and reload \
                 this page.",
            ),
            Self::TransferFailed => (
                StatusCode::UNAUTHORIZED,
                Some("sign_in_required"),
                "This sign-in could not be finished",
                "It was begun in another browser, took too long, or cookies are turned off. Open the workspace's address \
                 again.",
            ),
            Self::SignedOut => (
                StatusCode::OK,
                None,
                "You are signed out",
                "This browser is signed in neither here nor at any workspace. Ports that are open to everybody stay so.",
            ),
            Self::StillSignedIn => (
                StatusCode::OK,
                None,
                "You are signed in",
                "This browser has a session here, and nothing has ended it. To end it, choose Sign out on the first page.",
            ),
            Self::ProviderUnavailable => PROVIDER_UNAVAILABLE,
            Self::ProviderDenied => PROVIDER_DENIED,
            Self::ProviderFailed => PROVIDER_FAILED,
            Self::NotPending => NOT_PENDING,
            Self::NotAdmitted(why) => {
                let (title, text) = not_admitted(why);
                (StatusCode::FORBIDDEN, Some("sign_in_refused"), title, text)
            }
            Self::NotAVisit => (
                StatusCode::BAD_REQUEST,
                Some("bad_request"),
                "Open this address in a browser tab",
                "It cannot be fetched ahead, embedded or called by a script.",
            ),
            Self::BadRequest => (
                StatusCode::BAD_REQUEST,
                Some("bad_request"),
                "The gateway does not understand this request",
                "The address may have been cut. Open the workspace's address again.",
            ),
            Self::Unable => (
                StatusCode::SERVICE_UNAVAILABLE,
                Some("overloaded"),
                "Sign-in is not possible at the moment",
                "Please try again soon.",
            ),
        }
    }

    /// Returns the failure that this page reports, if it reports one.
    fn case(self) -> Option<Case> {
        let attempt = |reason, side| Some(Case { reason, side, is_attempt: true });
        let other = |reason, side| Some(Case { reason, side, is_attempt: false });
        match self {
            Self::LinkNotGood => attempt("link_not_good", Side::Client),
            Self::TransferFailed => attempt("transfer_failed", Side::Client),
            Self::ProviderUnavailable => attempt("provider_unavailable", Side::Replica),
            Self::ProviderDenied => attempt("provider_denied", Side::Policy),
            Self::ProviderFailed => attempt("provider_failed", Side::Replica),
            Self::NotPending => attempt("not_pending", Side::Client),
            Self::NotAdmitted(_) => attempt("not_admitted", Side::Policy),
            Self::SignInNeeded => other("sign_in_required", Side::Policy),
            Self::NotAVisit => other("not_a_visit", Side::Client),
            Self::BadRequest => other("bad_request", Side::Client),
            Self::Unable => other("randomness", Side::Replica),
            Self::SignedOut | Self::StillSignedIn => None,
        }
    }

    /// Returns the reason of a failed sign-in, if this page reports one.
    fn failed_sign_in(self) -> Option<&'static str> {
        self.case().filter(|case| case.is_attempt).map(|case| case.reason)
    }

    /// Renders the page: HTML for browsers, a problem document (RFC 9457) for programs.
    pub(super) fn response(self, request: &HeaderMap) -> Response<Bytes> {
        let (status, code, title, text) = self.parts();
        let (media, body) = if shape::accepts_html(request) || code.is_none() {
            let body = page(title, "", &format!("<p>{text}</p>\n"));
            ("text/html; charset=utf-8", body)
        } else {
            let problem = serde_json::json!({
                "title": title, "status": status.as_u16(), "detail": text, "code": code,
            });
            ("application/problem+json", problem.to_string())
        };
        let mut response = plain(status, Bytes::from(body));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        if let Some(code) = code {
            headers.insert(GATEWAY_ERROR, HeaderValue::from_static(code));
        }
        if let (Some(code), Some(Case { reason, side, .. })) = (code, self.case()) {
            response.extensions_mut().insert(FailedPage { code, reason, side, text });
        }
        if let Some(reason) = self.failed_sign_in() {
            let event = SignInEvent::Failed { how: "browser", reason, user: None };
            response.extensions_mut().insert(event);
        }
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"gateway\""));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
        }
        response
    }
}

/// Returns title and text for a user who is not admitted.
fn not_admitted(why: NotAdmitted) -> (&'static str, &'static str) {
    match why {
        NotAdmitted::Subject | NotAdmitted::NoName => (
            "The identity provider does not say who you are",
            "Its answer has no user name, or not in the claim that this gateway is configured for. Its operator can choose another \
             claim with auth.oidc.username_claim.",
        ),
        NotAdmitted::UnusableName => (
            "Your user name cannot be used here",
            "A name has up to 128 letters, digits, dots, dashes, underscores, plus and at signs, begins with a letter or \
             digit, and is not reserved. The gateway's operator can choose another claim with auth.oidc.username_claim.",
        ),
        NotAdmitted::UnverifiedEmail => (
            "Your email address is not verified",
            "It is your name here, so the identity provider has to know that it is yours. Verify it there, then come \
             back.",
        ),
        NotAdmitted::GroupsType | NotAdmitted::TooManyGroups => (
            "Your groups cannot be read",
            "The identity provider has to send them as a list of at most 256 names. The gateway's operator can choose \
             the claim with auth.oidc.groups_claim.",
        ),
        NotAdmitted::NotMember => (
            "You are not in the group that may use this gateway",
            "Ask its operator to add you to the group, then sign in again.",
        ),
        NotAdmitted::NameTaken => (
            "Your user name belongs to another person here",
            "They signed in with it through the identity provider before. Names are not handed on: ask the \
             gateway's operator.",
        ),
        NotAdmitted::Disabled => (
            "Your account is disabled on this gateway",
            "You are authenticated, but not admitted. Ask the gateway's operator.",
        ),
    }
}

/// Makes a page that goes on to `address` by itself. No redirect: the page with the button that leads here allows its form
/// to end up on this host alone.
pub(super) fn go_on(address: &str) -> Response<Bytes> {
    let address = address.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;");
    let refresh = format!("<meta http-equiv=\"refresh\" content=\"0;url={address}\">\n");
    let link = format!("<p><a href=\"{address}\">Sign out at the identity provider too</a></p>\n");
    let body = page("You are signed out here", &refresh, &link);
    let mut response = plain(StatusCode::OK, Bytes::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

/// Redirects to `location`, setting cookies on the way. 303 after a completed action, 302 to a sign-in.
pub(super) fn redirect(
    status: StatusCode,
    location: &str,
    cookie: Option<HeaderValue>,
) -> Result<Response<Bytes>, SignInPage> {
    let mut response = plain(status, Bytes::new());
    let headers = response.headers_mut();
    headers.insert(LOCATION, HeaderValue::try_from(location).map_err(|_| SignInPage::BadRequest)?);
    if let Some(cookie) = cookie {
        headers.insert(SET_COOKIE, cookie);
    }
    if status == StatusCode::FOUND {
        headers.insert(GATEWAY_ERROR, HeaderValue::from_static("sign_in_required"));
    }
    Ok(response)
}

/// Writes a page; the first page of the public host, where all but one of them are, is a link away.
fn page(title: &str, head: &str, body: &str) -> String {
    LonePage { title, head, body, home: Some("/") }.to_html()
}

/// Makes a response with the headers that all of them carry: nothing is kept, nothing leaks through a referrer.
fn plain(status: StatusCode, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, POLICY.clone());
    headers.insert(OPENER_POLICY, OPENER_POLICY_OWN);
    response
}

#[cfg(test)]
mod tests {
    use http::header::ACCEPT;

    use super::*;

    const ALL: [SignInPage; 21] = [
        SignInPage::StillSignedIn,
        SignInPage::LinkNotGood,
        SignInPage::SignInNeeded,
        SignInPage::TransferFailed,
        SignInPage::SignedOut,
        SignInPage::NotAVisit,
        SignInPage::BadRequest,
        SignInPage::Unable,
        SignInPage::ProviderUnavailable,
        SignInPage::ProviderDenied,
        SignInPage::ProviderFailed,
        SignInPage::NotPending,
        SignInPage::NotAdmitted(NotAdmitted::Subject),
        SignInPage::NotAdmitted(NotAdmitted::NoName),
        SignInPage::NotAdmitted(NotAdmitted::UnusableName),
        SignInPage::NotAdmitted(NotAdmitted::UnverifiedEmail),
        SignInPage::NotAdmitted(NotAdmitted::GroupsType),
        SignInPage::NotAdmitted(NotAdmitted::TooManyGroups),
        SignInPage::NotAdmitted(NotAdmitted::NotMember),
        SignInPage::NotAdmitted(NotAdmitted::NameTaken),
        SignInPage::NotAdmitted(NotAdmitted::Disabled),
    ];

    #[test]
    fn pages_are_plain_words_that_need_no_escaping() {
        for page in ALL {
            let (_, _, title, text) = page.parts();
            assert!(!format!("{title}{text}").contains(['<', '>', '&', '"', '{', '\n']), "{page:?}");
            assert!(!text.contains("  "), "{page:?}");
        }
    }

    #[test]
    fn failures_are_named_for_browsers_and_for_programs() {
        let browser: HeaderMap = [(ACCEPT, HeaderValue::from_static("text/html"))].into_iter().collect();
        for page in ALL {
            for (request, media) in
                [(&browser, "text/html; charset=utf-8"), (&HeaderMap::new(), "application/problem+json")]
            {
                let response = page.response(request);
                let failed = !response.status().is_success();
                assert_eq!(response.headers().contains_key(GATEWAY_ERROR), failed, "{page:?}");
                if failed {
                    assert_eq!(response.headers()[CONTENT_TYPE], media, "{page:?}");
                }
                assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
                assert_eq!(response.headers()[REFERRER_POLICY], "no-referrer");
            }
        }
    }

    #[test]
    fn address_that_a_page_goes_on_to_cannot_break_out_of_it() {
        let response = go_on("https://id.example/end?a=b&c=\"><script>alert(1)</script>");
        let body = str::from_utf8(response.body()).unwrap();
        assert!(!body.contains("<script") && body.contains("end?a=b&amp;c=&quot;&gt;&lt;script"), "{body}");
    }

    #[test]
    fn the_policy_names_the_style_and_forbids_the_rest() {
        let policy = POLICY.to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"));
        assert!(policy.contains("frame-ancestors 'none'"));
        assert!(!policy.contains("unsafe"));
    }
}
