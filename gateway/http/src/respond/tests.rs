use super::*;

/// The table of failures, row by row: failure, code, status, seconds to wait.
const TABLE: [(Failure, &str, u16, Option<&str>); 28] = [
    (Failure::NoSuchHost, "no_such_host", 404, None),
    (Failure::NoSuchPage, "no_such_host", 404, None),
    (Failure::SignInRequired, "sign_in_required", 401, None),
    (Failure::PortNotAllowed, "port_not_allowed", 403, None),
    (Failure::WorkspaceStopped, "workspace_stopped", 503, Some("10")),
    (Failure::AgentAbsent, "agent_absent", 503, Some("3")),
    (Failure::AgentUnreachable, "agent_absent", 503, Some("3")),
    (Failure::PortClosed, "port_closed", 502, None),
    (Failure::AppClosed, "port_closed", 502, None),
    (Failure::SshNotStarted, "port_closed", 502, None),
    (Failure::AppAnswerInvalid, "port_closed", 502, None),
    (Failure::AppSpeaksNoTls, "port_closed", 502, None),
    (Failure::AppSpeaksTls, "port_closed", 502, None),
    (Failure::AgentWithoutTls, "port_closed", 502, None),
    (Failure::OpenTimeout, "open_timeout", 504, None),
    (Failure::ResponseTimeout, "response_timeout", 504, None),
    (Failure::SessionLost, "session_lost", 502, None),
    (Failure::Overloaded { limit: "channels_per_session" }, "overloaded", 503, Some("1")),
    (Failure::Draining, "draining", 503, Some("1")),
    (Failure::BadRequest { reason: "host_duplicate" }, "bad_request", 400, None),
    (Failure::MethodNotAllowed, "bad_request", 405, None),
    (Failure::ExpectationFailed, "bad_request", 417, None),
    (Failure::BodyTimeout, "bad_request", 408, None),
    (Failure::Overloaded { limit: "limits.failed_sign_ins_per_minute" }, "overloaded", 503, Some("10")),
    (Failure::UriTooLong, "bad_request", 414, None),
    (Failure::HeaderTooLarge, "header_too_large", 431, None),
    (Failure::CookiesTooLarge, "header_too_large", 431, None),
    (Failure::Misdirected, "misdirected", 421, None),
];

/// The links of these tests.
fn links() -> PublicLinks {
    PublicLinks::new("https://gw.example/", "https://gw.example/help")
}

fn text(headers: &HeaderMap, name: impl http::header::AsHeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap())
}

#[test]
fn every_failure_answers_as_the_table_says() {
    for (failure, code, status, retry_after) in TABLE {
        for wants in [Wants::Html, Wants::Json] {
            let answer = response(failure, wants, &links(), "0af7651916cd43dd", false);
            assert_eq!(answer.status(), status, "{failure:?}");
            let headers = answer.headers();
            assert_eq!(text(headers, GATEWAY_ERROR), Some(code));
            assert_eq!(text(headers, GATEWAY_TRACE), Some("0af7651916cd43dd"));
            assert_eq!(text(headers, RETRY_AFTER), retry_after, "{failure:?}");
            assert_eq!(text(headers, CACHE_CONTROL), Some("no-store"));
            assert_eq!(headers.contains_key(WWW_AUTHENTICATE), status == 401);
            assert_eq!(headers.contains_key(ALLOW), status == 405);
            assert_eq!(headers.contains_key(CONTENT_SECURITY_POLICY), wants == Wants::Html);
            let head = response(failure, wants, &links(), "0af7651916cd43dd", true);
            assert!(head.body().is_empty());
            assert_eq!((head.status(), head.headers()), (answer.status(), headers));
        }
    }
}

#[test]
fn lists_of_codes_and_cases_are_the_table_s() {
    let codes: std::collections::BTreeSet<_> = TABLE.iter().map(|(_, code, ..)| *code).collect();
    assert!(Failure::CODES.into_iter().eq(codes));
    let has_parameter = |failure: &Failure| matches!(failure, Failure::Overloaded { .. } | Failure::BadRequest { .. });
    let cases = TABLE.iter().map(|(failure, ..)| *failure).filter(|failure| !has_parameter(failure));
    assert!(cases.clone().all(|failure| Failure::CASES.contains(&failure)));
    assert_eq!(cases.count() + 1, Failure::CASES.len(), "and the one without a port");
    let reasons: std::collections::BTreeSet<_> = Failure::CASES.iter().map(Failure::reason).collect();
    assert_eq!(reasons.len(), Failure::CASES.len(), "a reason for each");
}

#[test]
fn page_lists_earlier_failures_as_plain_words() {
    let mut answer = response(Failure::PortClosed, Wants::Html, &links(), "0af7", false);
    let before = answer.body().clone();
    list_earlier(&mut answer, &[]);
    assert_eq!(*answer.body(), before, "nothing to list");
    let earlier = EarlierFailure {
        seconds_ago: 7199,
        status: 502,
        reason: "<script>",
        side: Side::App,
        port: Some(3000),
        trace: "\"><b>",
    };
    list_earlier(&mut answer, &[earlier]);
    let page = std::str::from_utf8(answer.body()).unwrap();
    assert!(
        page.contains("<li>119 min ago, port 3000: 502, app, &lt;script&gt;, trace <code>unknown</code></li>"),
        "{page}"
    );
    assert!(!page.contains("<script") && !page.contains("<b>"), "{page}");
    let mut problem = response(Failure::PortClosed, Wants::Json, &links(), "0af7", false);
    let before = problem.body().clone();
    list_earlier(&mut problem, &[earlier]);
    assert_eq!(*problem.body(), before, "a page alone");
}

#[test]
fn problem_document_has_the_members_of_the_contract() {
    for (failure, code, status, _) in TABLE {
        let answer = response(failure, Wants::Json, &links(), "0af7", false);
        assert_eq!(text(answer.headers(), CONTENT_TYPE), Some("application/problem+json"));
        let problem: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
        assert_eq!(problem["type"], "about:blank");
        assert_eq!(problem["title"], failure.title());
        assert_eq!(problem["status"], status);
        assert_eq!(problem["detail"], failure.public_text());
        assert_eq!(problem["code"], code);
        assert_eq!(problem["trace_id"], "0af7");
    }
    let overloaded = response(Failure::Overloaded { limit: "handshakes" }, Wants::Json, &links(), "0af7", false);
    let problem: serde_json::Value = serde_json::from_slice(overloaded.body()).unwrap();
    assert_eq!(problem["limit"], "handshakes");
}

#[test]
fn page_is_complete_and_self_contained() {
    for (failure, code, ..) in TABLE {
        let answer = response(failure, Wants::Html, &links(), "0af7", false);
        assert_eq!(text(answer.headers(), CONTENT_TYPE), Some("text/html; charset=utf-8"));
        let page = std::str::from_utf8(answer.body()).unwrap();
        let facts =
            format!("<dt>Reason</dt><dd>{}</dd>\n<dt>Side</dt><dd>{}</dd>", failure.reason(), failure.side().as_str());
        assert!(page.contains(&facts), "{failure:?}");
        for part in [failure.title(), failure.public_text(), failure.hint(), code, "0af7", "prefers-color-scheme:dark"]
        {
            assert!(page.contains(part), "{failure:?} lacks {part}");
            assert!(!part.contains(['<', '>', '&', '"']), "the words of {failure:?} need escaping");
        }
        let own = ["<a class=\"brand\" href=\"https://gw.example/\">", "<a href=\"https://gw.example/\">"];
        let help = "<a href=\"https://gw.example/help\">Help</a>";
        // The icon is in the page, and says what language it is written in.
        let mut rest = page.replace(page_look::ICON_LINK, "");
        for link in own.into_iter().chain([help]) {
            assert_eq!(rest.matches(link).count(), 1, "{failure:?} lacks {link}");
            rest = rest.replace(link, "");
        }
        for forbidden in ["<script", "http:", "https:", "url(", "@import", " style=", "href=", "src="] {
            assert!(!rest.contains(forbidden), "{failure:?} has {forbidden}");
        }
    }
}

#[test]
fn address_of_the_public_host_cannot_break_out_of_its_link() {
    let hostile = PublicLinks::new("https://gw.example/?a&b", "\"><script>");
    let answer = response(Failure::NoSuchHost, Wants::Html, &hostile, "0af7", false);
    let page = std::str::from_utf8(answer.body()).unwrap();
    assert!(page.contains("href=\"https://gw.example/?a&amp;b\"") && !page.contains("<script"), "{page}");
}

#[test]
fn programs_get_no_links() {
    for (failure, ..) in TABLE {
        let answer = response(failure, Wants::Json, &links(), "0af7", false);
        assert!(!std::str::from_utf8(answer.body()).unwrap().contains("gw.example"), "{failure:?}");
    }
}

#[test]
fn page_of_a_stopped_workspace_offers_its_owner_a_link_and_no_markup() {
    let stopped = || response(Failure::WorkspaceStopped, Wants::Html, &links(), "0af7", false);
    let mut offered = stopped();
    offer_start(&mut offered, "https://gw.example/workspaces/app?host=app.zone&a=%3Cb%3E", false);
    let page = std::str::from_utf8(offered.body()).unwrap();
    let link = "href=\"https://gw.example/workspaces/app?host=app.zone&amp;a=%3Cb%3E\">Start it</a>";
    assert!(page.contains(link) && page.contains("workspace_stopped"), "{page}");
    for hostile in ["https://gw.example/\"><script>", "https://gw.example/ä", "a b"] {
        let mut refused = stopped();
        offer_start(&mut refused, hostile, false);
        assert_eq!(refused.body(), stopped().body(), "{hostile}");
    }
    let mut head = response(Failure::WorkspaceStopped, Wants::Html, &links(), "0af7", true);
    offer_start(&mut head, "https://gw.example/", true);
    assert!(head.body().is_empty());
}

#[test]
fn policy_of_the_page_allows_its_style_and_nothing_else() {
    let answer = response(Failure::NoSuchHost, Wants::Html, &links(), "0af7", false);
    let page = std::str::from_utf8(answer.body()).unwrap();
    let style = page.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
    let hash = BASE64.encode(digest::digest(&digest::SHA256, style.as_bytes()));
    let policy = text(answer.headers(), CONTENT_SECURITY_POLICY).unwrap();
    assert!(policy.starts_with("default-src 'none'; "));
    assert!(policy.contains(&format!("style-src 'sha256-{hash}';")));
    assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"));
}

#[test]
fn trace_id_that_is_not_plain_is_not_shown() {
    for hostile in ["<script>alert(1)</script>", "a\r\nset-cookie: x", "ä", &"a".repeat(65)] {
        for wants in [Wants::Html, Wants::Json] {
            let answer = response(Failure::PortClosed, wants, &links(), hostile, false);
            assert_eq!(text(answer.headers(), GATEWAY_TRACE), Some("unknown"));
            assert!(!std::str::from_utf8(answer.body()).unwrap().contains(hostile));
        }
    }
}

fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    fields.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
}

#[test]
fn browsers_want_pages_and_programs_want_json() {
    let check = |fields: &[(&'static str, &'static str)], expected| {
        assert_eq!(wants(&map(fields), &Method::GET), expected, "{fields:?}")
    };
    check(&[], Wants::Json);
    check(&[("accept", "*/*")], Wants::Json);
    check(&[("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")], Wants::Html);
    check(&[("accept", "text/html;q=0.5, application/json")], Wants::Json);
    check(&[("accept", "TEXT/HTML; level=1; q=0.9, application/json;q=0.899")], Wants::Html);
    check(&[("accept", "text/html;q=0")], Wants::Json);
    check(&[("accept", "text/html;q=x;q=1")], Wants::Json);
    check(&[("accept", "text/*")], Wants::Json);
    check(&[("accept", "*/*"), ("sec-fetch-mode", "navigate")], Wants::Html);
    check(&[("accept", "text/html"), ("sec-fetch-mode", "cors")], Wants::Json);
    check(&[("accept", "text/html"), ("sec-fetch-mode", "websocket")], Wants::Json);
}

#[test]
fn reference_has_each_code_with_its_statuses() {
    let page = include_str!("../../../../docs/reference/errors.md");
    for (failure, code, status, _) in TABLE {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{code}` |")));
        let statuses = row.and_then(|row| row.split('|').nth(2)).unwrap_or_default();
        assert!(
            statuses.contains(&status.to_string()),
            "{failure:?}: docs/reference/errors.md has no row of {code} with {status}"
        );
        let sides = row.and_then(|row| row.split('|').nth(3)).unwrap_or_default();
        assert!(sides.contains(failure.side().as_str()), "{failure:?}: its row has not the side {:?}", failure.side());
    }
    for code in Failure::CODES {
        assert!(page.contains(&format!("`{code}`")), "{code} is not in docs/reference/errors.md");
    }
}
