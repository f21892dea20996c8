//! Pages of the public site for signed-in users. They work without JavaScript.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::response::IntoResponse;
use axum::routing::get;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use tokio::time::Instant;

use crate::api::ApiParts;
use crate::api::idle::notice;
use crate::api::ports::label;
use crate::api::presence::ListPresence;
use crate::public_host::layers::EdgeFailure;
use crate::public_host::{Arrival, Host};
use gateway_agents::registry::Registry;
use gateway_auth::shape::is_page_visit;
use gateway_auth::sign_in::PageVisit;
use gateway_auth::site::{Site, WORKSPACE_PAGES};
use gateway_http::host::HostRules;
use gateway_http::respond::Failure;
use gateway_store::{ListPage, ManagedWorkspace, Store, StoreError, Workspace, WorkspaceId, wall_clock};
use gateway_types::markup::escape;
use gateway_types::principal::Principal;
use gateway_types::{ActualState, DesiredState, Port, UserName};
use gateway_workspaces::service::Workspaces;

mod shared;
mod usage;

const STYLE: &str = include_str!("ui/style.css");

/// Keeps the list as it is at the gateway. The page works without it, and is loaded again now and then.
const SCRIPT: &str = include_str!("ui/home.js");

/// Most ports of one workspace that the list of workspaces has links to.
const PORTS_SHOWN_MAX: usize = 24;

/// Parts of the gateway that the pages are made from.
#[derive(Clone, Copy)]
pub(crate) struct Pages<'a> {
    pub(crate) parts: &'a ApiParts,
    pub(crate) store: &'a Store,
    pub(crate) registry: &'a Registry,
    pub(crate) site: &'a Site,
    pub(crate) rules: &'a HostRules,
    pub(crate) lifecycles: &'a Workspaces,
}

/// Visitor of a page, in the extensions of a request: a signed-in user, or none.
#[derive(Clone)]
pub(crate) struct Visitor(pub(crate) Option<Principal>);

/// User of a page that needs a sign-in. A visit without one is led to it.
struct SignedIn(Principal);

/// Answers a visitor who has to sign in first.
struct NotSignedIn(Response<Body>);

impl FromRequestParts<Arc<Host>> for SignedIn {
    type Rejection = NotSignedIn;

    async fn from_request_parts(parts: &mut Parts, host: &Arc<Host>) -> Result<Self, NotSignedIn> {
        if let Some(Visitor(Some(principal))) = parts.extensions.get() {
            return Ok(Self(principal.clone()));
        }
        let arrival = parts.extensions.get::<Arrival>();
        Err(NotSignedIn(match arrival.filter(|_| is_page_visit(&parts.method, &parts.headers)) {
            Some(arrival) => {
                let visit = PageVisit::new(parts, arrival.origin.peer);
                let answer = host.sign_in.ask(visit, Instant::now());
                host.sign_in.share_links().await;
                answer.map(Body::from)
            }
            None => EdgeFailure(Failure::SignInRequired).into_response(),
        }))
    }
}

impl IntoResponse for NotSignedIn {
    fn into_response(self) -> Response<Body> {
        self.0
    }
}

/// Makes the routes of the pages.
pub(crate) fn router(host: Arc<Host>) -> Router {
    Router::new()
        .route("/", get(home))
        .route("/workspaces", get(to_home))
        .route("/style.css", get(async || respond("text/css; charset=utf-8", STYLE.to_owned(), "public, max-age=300")))
        .route(
            "/home.js",
            get(async || respond("text/javascript; charset=utf-8", SCRIPT.to_owned(), "public, max-age=300")),
        )
        .fallback(async || EdgeFailure(Failure::NoSuchPage))
        .method_not_allowed_fallback(async || EdgeFailure(Failure::MethodNotAllowed))
        .with_state(host)
}

/// Answers the list of the user's workspaces.
async fn home(State(host): State<Arc<Host>>, SignedIn(principal): SignedIn) -> Result<Response<Body>, EdgeFailure> {
    let parts = host.api.parts();
    let ApiParts { store, registry, site, rules, lifecycles, .. } = parts;
    let pages = Pages { parts, store, registry, site, rules, lifecycles };
    Ok(list(pages, &principal).await?)
}

async fn list(pages: Pages<'_>, principal: &Principal) -> Result<Response<Body>, Failure> {
    let workspaces = pages.store.workspaces_of(&principal.user).await;
    let workspaces = workspaces.map_err(|error| unavailable(&error))?;
    let managed = managed(pages, &workspaces, principal).await?;
    // All are asked at once: none waits for another's agent.
    let names = workspaces.iter().map(|workspace| &workspace.name);
    let presence = ListPresence::read(pages.parts, names).await.map_err(|error| unavailable(&error))?;
    let rows = workspaces.iter().map(|workspace| row(pages, workspace, managed.get(&workspace.id), &presence));
    let rows = futures_util::future::join_all(rows).await.concat();
    let usage = usage::lines(pages.lifecycles, managed.values(), &principal.user).await;
    let shared = shared::list(pages, principal).await?;
    let list = match (rows.is_empty(), shared.is_empty()) {
        (false, _) => format!("{usage}<ul class=\"workspaces\">{rows}</ul>"),
        (true, true) => empty(pages.site, "No workspaces yet."),
        (true, false) => empty(pages.site, "No workspaces of your own yet."),
    };
    let user = escape(principal.user.as_str());
    let page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <noscript><meta http-equiv=\"refresh\" content=\"30\"></noscript>\
         <title>Workspaces</title><link rel=\"stylesheet\" href=\"/style.css\">\
         <script src=\"/home.js\" defer></script></head><body>\
         <header><h1>Workspaces</h1><form method=\"post\" action=\"/.gateway/sign-out\"><span>{user}</span>\
         <button>Sign out</button>\
         <button formaction=\"/.gateway/sign-out?everywhere\">Sign out everywhere</button></form></header><main>{list}{shared}</main></body></html>"
    );
    Ok(respond("text/html; charset=utf-8", page, "no-store"))
}

/// Redirects to the list of workspaces, from the path at which the addresses of their own pages suggest it.
async fn to_home() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
    response
}

/// Explains how to make a first workspace, in commands that any signed-in user may run.
fn empty(site: &Site, text: &str) -> String {
    format!(
        "<p>{text} Three commands make one; the first two on any machine, the last where your code is:</p>\
         <ol><li><code>gateway login --gateway {}</code></li>\
         <li><code>gateway token create --workspace my-app --out agent.token</code></li>\
         <li><code>workspace-agent run --gateway URL --token-file agent.token</code>, with the URL at which this gateway takes \
         agents (its operator knows it).</li></ol>",
        escape(&site.public(""))
    )
}

fn unavailable(error: &StoreError) -> Failure {
    if !error.is_unanswered() {
        tracing::warn!(%error, "the store did not answer");
    }
    Failure::Overloaded { limit: "store" }
}

/// Loads the state of workspaces that are run for their owner.
async fn managed(
    pages: Pages<'_>,
    workspaces: &[Workspace],
    principal: &Principal,
) -> Result<HashMap<WorkspaceId, ManagedWorkspace>, Failure> {
    let is_managed = |workspace: &Workspace| workspace.executor.is_managed();
    if !workspaces.iter().any(is_managed) {
        return Ok(HashMap::new());
    }
    let all = ListPage { after: None, limit: u32::try_from(workspaces.len()).unwrap_or(u32::MAX) };
    let found = pages.store.managed_of_owner(&principal.user, all).await.map_err(|error| unavailable(&error))?;
    Ok(found.into_iter().map(|managed| (managed.workspace.id, managed)).collect())
}

/// Writes the state of a workspace with its reason, and the buttons that change it; a page of its own follows their
/// effect.
fn state(managed: &ManagedWorkspace, reader: &UserName) -> String {
    let (life, name) = (&managed.lifecycle, &managed.workspace.name);
    let stopped = managed.idle.stop_reason(life);
    let reason =
        life.reason.as_deref().or(stopped.as_deref()).map(|reason| format!("<p class=\"why\">{}</p>", escape(reason)));
    let went_wrong = matches!(life.actual, ActualState::Failed | ActualState::Error | ActualState::Unknown);
    let button = |action: &str, label: &str| format!("<button name=\"action\" value=\"{action}\">{label}</button>");
    let buttons = match life.desired {
        DesiredState::Terminated => String::new(),
        DesiredState::Stopped => button("start", "Start"),
        DesiredState::Running if went_wrong => button("start", "Start again") + &button("stop", "Stop"),
        DesiredState::Running | DesiredState::RestartRequested => button("stop", "Stop"),
    };
    let (idle, keep) = notice(managed, reader, wall_clock());
    let page = WORKSPACE_PAGES;
    let form = format!(
        "<form method=\"post\" action=\"{page}{name}\">{buttons}{keep}<a href=\"{page}{name}\">Details</a></form>"
    );
    format!("<p class=\"state\">{}</p>{}{idle}{form}", life.actual, reason.unwrap_or_default())
}

async fn row(
    pages: Pages<'_>,
    workspace: &Workspace,
    managed: Option<&ManagedWorkspace>,
    presence: &ListPresence<'_>,
) -> String {
    // Names are [a-z0-9-] by their type; nothing to escape.
    let name = &workspace.name;
    let link = |port: Option<Port>, text: &str| {
        let address = pages.site.workspace(&pages.rules.format(name, port), "/");
        format!("<a href=\"{address}\">{text}</a>")
    };
    let details = || format!("<p><a href=\"{WORKSPACE_PAGES}{name}\">Details</a></p>");
    let state = managed.map_or_else(details, |managed| state(managed, &workspace.owner));
    let every = || {
        let example = pages.site.workspace(&format!("PORT-{}", pages.rules.format(name, None)), "/");
        format!("<p>Every port is at <code>{example}</code></p>")
    };
    let Some(session) = pages.registry.current(name) else {
        // The list asks no agent of another replica what listens.
        let (class, words, ports) = match presence.has(name) {
            true => ("present", "Connected", every()),
            false => ("absent", "Not connected", String::new()),
        };
        return format!("<li data-name=\"{name}\"><h2>{name}</h2><p class=\"{class}\">{words}</p>{ports}{state}</li>");
    };
    let mut known: BTreeSet<Port> = session.ports().iter().filter_map(|port| Port::new(port.number)).collect();
    let report = session.report().await;
    known.extend(report.iter().flat_map(|report| report.listening.iter()));
    let named: String = known
        .into_iter()
        // No link leads there.
        .filter(|port| !port.is_ssh())
        .take(PORTS_SHOWN_MAX)
        .map(|port| match label(workspace, port, report.as_ref()) {
            Some(label) => link(Some(port), &format!("{} (port {port})", escape(&label))),
            None => link(Some(port), &format!("port {port}")),
        })
        .collect();
    let default = session.default_port().map(|_| link(None, "open")).unwrap_or_default();
    let links = match named.is_empty() && default.is_empty() {
        true => String::new(),
        false => format!("<p class=\"links\">{default}{named}</p>"),
    };
    let every = if session.ports().is_empty() { every() } else { String::new() };
    let ports = links + &every;
    let stats = session.stats();
    let round_trip = stats.round_trip.map(|time| format!(", round trip {time:.1?}")).unwrap_or_default();
    format!(
        "<li data-name=\"{name}\"><h2>{name}</h2><p class=\"present\">Connected for {}{round_trip}</p>{ports}{state}</li>",
        minutes(session.since.elapsed())
    )
}

fn minutes(time: std::time::Duration) -> String {
    match time.as_secs() {
        0..60 => "less than a minute".to_owned(),
        seconds @ 60..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

fn respond(content_type: &'static str, body: String, cache: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; \
             frame-ancestors 'none'; base-uri 'none'",
        ),
    );
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_runs_no_script_but_its_own_and_is_framed_by_nobody() {
        let response = respond("text/html", String::new(), "no-store");
        let policy = response.headers().get(CONTENT_SECURITY_POLICY).and_then(|value| value.to_str().ok());
        assert!(policy.is_some_and(|policy| policy.starts_with("default-src 'none'")));
        assert!(policy.is_some_and(|policy| policy.contains("script-src 'self';")));
        // No other page may frame this one and have the user click on it.
        assert!(policy.is_some_and(|policy| policy.contains("frame-ancestors 'none'")));
    }
}
