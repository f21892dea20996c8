//! The page on which a user lets a program on another machine act for them, or refuses.
//!
//! The danger is not that an attacker guesses a code, but that an attacker sends their own to a user who is in a hurry
//! (RFC 8628, section 5.4). So the page shows the asking program, its address, the access it would get, and when to
//! refuse; it never goes on by itself, not even when the address has the code in it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::Response;
use http::{StatusCode, Uri};
use tokio::time::Instant;

use super::page::{browser, check_form, only, plain};
use super::problem::{ApiProblem, ProblemRow};
use super::{ApiShared, CODE_ATTEMPTS_MAX, Caller, body};
use gateway_auth::device::{RequestingMachine, UserCode};
use gateway_auth::fair::network;
use gateway_auth::policy::RequestSource;
use gateway_net::audit::{AuditEvent, Text};
use gateway_types::markup::escape;
use gateway_types::principal::Principal;

/// Path of the page on the public host.
pub const DEVICE_PATH: &str = "/.gateway/device";

/// Content of the page.
#[derive(Debug)]
enum ConfirmPage<'a> {
    /// A place to type the code, after a wrong one or for the first time; or with the one that a foreign page brought.
    Enter { wrong: bool, code: Option<UserCode> },
    /// The asking program, and both answers.
    Confirm {
        code: UserCode,
        asking: &'a RequestingMachine,
        ago: Duration,
        principal: &'a Principal,
        same_network: bool,
    },
    /// It is done.
    Allowed,
    /// It is refused.
    Denied,
    /// Too many wrong codes.
    TooMany,
}

/// Answers a visit: with a code in the address, the request behind it; without, a place to type it.
pub(super) async fn show(State(api): State<Arc<ApiShared>>, caller: Caller, uri: Uri) -> Result<Response, ProblemRow> {
    let principal = browser(&caller)?;
    let query = uri.query().unwrap_or_default();
    Ok(match only(query.as_bytes(), "user_code") {
        None => page(&ConfirmPage::Enter { wrong: false, code: None }),
        // A foreign page can open this one as often as it likes, with any code. Nothing is looked up, and so nothing
        // counted, before the user goes on by themselves.
        Some(typed) if caller.source == RequestSource::Foreign => {
            page(&ConfirmPage::Enter { wrong: false, code: typed.parse().ok() })
        }
        Some(typed) => match look_up(&api, &caller, principal, &typed).await? {
            Ok((code, asking, ago)) => {
                let same_network = network(asking.peer) == network(caller.peer);
                page(&ConfirmPage::Confirm { code, asking: &asking, ago, principal, same_network })
            }
            Err(wrong) => page(&wrong),
        },
    })
}

/// Takes the decision. Only the page itself can send it: the edge lets no cookie speak for another origin's form.
pub(super) async fn decide(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    request: Request,
) -> Result<Response, ProblemRow> {
    let principal = browser(&caller)?;
    check_form(request.headers())?;
    let form = body::read(request.into_body()).await?;
    let is_yes = match only(&form, "decision").as_deref() {
        Some("allow") => true,
        Some("refuse") => false,
        Some(_) | None => return Err(ApiProblem::BadRequest { reason: "no_decision" }.into()),
    };
    let typed = only(&form, "user_code").unwrap_or_default();
    let slot = api.audit.slot().await?;
    let code = match look_up(&api, &caller, principal, &typed).await? {
        Ok((code, ..)) => code,
        Err(wrong) => return Ok(page(&wrong)),
    };
    let Some(asking) = api.devices.answer(code, &principal.user, is_yes, Instant::now()).await? else {
        return Ok(page(&ConfirmPage::Enter { wrong: true, code: None }));
    };
    let (user, machine, asked_from) = (Text::of(&principal.user), Text::of(&asking.machine), Text::of(asking.peer));
    slot.record(caller.did(if is_yes {
        AuditEvent::DeviceApproved { user, machine, asked_from }
    } else {
        AuditEvent::DeviceDenied { user, machine, asked_from }
    }));
    Ok(page(if is_yes { &ConfirmPage::Allowed } else { &ConfirmPage::Denied }))
}

/// A request that was found by its code, and the time since it was made.
type FoundRequest = (UserCode, RequestingMachine, Duration);

/// Finds the request behind a code, as often as its user and their address may try at all replicas together.
///
/// # Errors
/// Outer: the store does not answer. Inner: the page to show instead.
async fn look_up(
    api: &ApiShared,
    caller: &Caller,
    principal: &Principal,
    typed: &str,
) -> Result<Result<FoundRequest, ConfirmPage<'static>>, ProblemRow> {
    let (now, address) = (Instant::now(), network(caller.peer));
    if !api.codes_by_address.allows(&address, now) || !api.codes_by_user.allows(&principal.user, now) {
        return Ok(Err(ConfirmPage::TooMany));
    }
    let keys = [format!("address {address}"), format!("user {}", principal.user)];
    // Over plain HTTP browsers do not name the page that made them ask.
    let counted = if caller.source == RequestSource::Unstated { &keys[..1] } else { &keys[..] };
    if !api.devices.count_guess(counted, CODE_ATTEMPTS_MAX).await? {
        return Ok(Err(ConfirmPage::TooMany));
    }
    let code: Option<UserCode> = typed.parse().ok();
    if let Some(code) = code
        && let Some((asking, ago)) = api.devices.find(code, now).await?
    {
        api.devices.uncount_guess(counted).await;
        return Ok(Ok((code, asking, ago)));
    }
    api.codes_by_address.failed(address, now);
    if caller.source != RequestSource::Unstated {
        api.codes_by_user.failed(principal.user.clone(), now);
    }
    api.audit.record(caller.did(AuditEvent::SignInFailed { how: "device", reason: "code_unknown", user: None }));
    Ok(Err(ConfirmPage::Enter { wrong: true, code: None }))
}

fn page(page: &ConfirmPage<'_>) -> Response {
    let (status, code, title, text) = match page {
        ConfirmPage::Enter { wrong, code } => {
            let notice = if *wrong {
                "<p class=\"warn\">That code is unknown, used or too old. A code is good for ten minutes.</p>"
            } else {
                ""
            };
            // Letters and a dash.
            let value = code.map(|code| format!(" value=\"{code}\"")).unwrap_or_default();
            let text = format!(
                "{notice}<p>Type the code that <code>gateway login</code> shows on your own screen. If another person \
                 sent you a code, close this page: it would let them act as you.</p>\
                 <form method=\"get\" action=\"{DEVICE_PATH}\"><input type=\"text\" name=\"user_code\"{value} aria-label=\"Code\" \
                 autocomplete=\"off\" autocapitalize=\"characters\" spellcheck=\"false\" maxlength=\"12\" required \
                 autofocus><button>Go on</button></form>"
            );
            let (status, code) =
                if *wrong { (StatusCode::NOT_FOUND, Some("not_found")) } else { (StatusCode::OK, None) };
            (status, code, "Sign in a program", text)
        }
        ConfirmPage::Confirm { code, asking, ago, principal, same_network } => {
            let text = question(*code, asking, *ago, principal, *same_network);
            (StatusCode::OK, None, "Let this machine act as you?", text)
        }
        ConfirmPage::Allowed => {
            let text = "<p>The program on that machine is signed in. You may close this page. To take it back, run \
                        <code>gateway logout</code> there, or revoke its token.</p>";
            (StatusCode::OK, None, "Allowed", text.to_owned())
        }
        ConfirmPage::Denied => {
            let text = "<p>The program was not signed in. If you did not start this, another person may be trying to act \
                        as you.</p>";
            (StatusCode::OK, None, "Refused", text.to_owned())
        }
        ConfirmPage::TooMany => {
            let text = "<p>Too many wrong codes. Try again in ten minutes.</p>".to_owned();
            (StatusCode::TOO_MANY_REQUESTS, Some("too_many_requests"), "Wait a little", text)
        }
    };
    plain(status, code, title, &text)
}

fn question(
    code: UserCode,
    asking: &RequestingMachine,
    ago: Duration,
    principal: &Principal,
    same_network: bool,
) -> String {
    let elsewhere = if same_network {
        ""
    } else {
        "<p class=\"warn\">The request comes from another network than your browser. That is normal for a remote machine of \
         yours, and a warning sign otherwise.</p>"
    };
    format!(
        "<p>Go on only if you have <strong>just run <code>gateway login</code> yourself</strong> and it shows exactly this \
         code:</p><p class=\"code\">{code}</p>\
         <dl><dt>Calls itself</dt><dd>{machine}</dd><dt>Address</dt><dd>{peer}</dd><dt>Asked</dt><dd>{ago} s ago</dd>\
         <dt>Would act as</dt><dd>{user}</dd></dl>\
         <p>It could do all that you can: open your workspaces, share their ports, make tokens. That ends after 30 days, or \
         when you revoke its token.</p>{elsewhere}\
         <p class=\"warn\">If another person sent you this link or code, choose Refuse.</p>\
         <form method=\"post\" action=\"{DEVICE_PATH}\"><input type=\"hidden\" name=\"user_code\" value=\"{code}\">\
         <button name=\"decision\" value=\"refuse\">Refuse</button>\
         <button name=\"decision\" value=\"allow\">Allow this machine</button></form>",
        machine = escape(&asking.machine.to_string()),
        peer = asking.peer.to_canonical(),
        ago = ago.as_secs(),
        user = escape(principal.user.as_str()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway_auth::device::MachineName;
    use gateway_types::principal::Via;

    #[test]
    fn question_says_who_asks_and_escapes_them() {
        let asking = RequestingMachine { machine: MachineName::of("ann@laptop"), peer: [192, 0, 2, 1].into() };
        let principal = Principal { user: "<b>&\"'".parse().unwrap(), groups: Arc::default(), via: Via::Browser };
        let code: UserCode = "BCDF-GHJK".parse().unwrap();
        let text = question(code, &asking, Duration::from_secs(7), &principal, false);
        for part in ["BCDF-GHJK", "ann@laptop", "192.0.2.1", "7 s ago", "&lt;b&gt;&amp;&quot;&#39;", "another network"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("<b>"));
    }
}
