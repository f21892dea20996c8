//! Page of one workspace, for its owner in a browser: its state, and buttons to start, stop and restart it. A visitor
//! who comes from a host of a stopped workspace gets back there as soon as its agent can be reached.
//!
//! It changes nothing by being opened, whatever its address says: another site's page can have a browser open it. The buttons
//! are forms, for which the edge lets no cookie speak but from this very origin. Without JavaScript the page loads itself again
//! while something is under way; with it, a small script follows the events.

mod external;
mod proposals;
mod words;

use std::sync::{Arc, LazyLock};

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::header::{LOCATION, REFERER};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};

use super::etag::Condition;
use super::external::delete;
use super::idle::{keep_for, notice};
use super::lifecycle::{managed_of, request};
use super::page::{PageContent, browser, hash_of, html, is_form, only, plain, policy};
use super::presence::session;
use super::problem::{ApiProblem, ProblemRow};
use super::{ApiShared, Caller, body, shares};
use gateway_agents::registry::LiveSession;
use gateway_auth::sign_in::path::ReturnPath;
use gateway_auth::site::WORKSPACE_PAGES;
use gateway_http::host::HostTarget;
use gateway_store::{ManagedWorkspace, Workspace, wall_clock};
use gateway_types::{ActualState, DesiredState, KEEP_TIME, WorkspaceName};

const SCRIPT: &str = include_str!("workspace_page.js");

/// The page may also run its own script, and that may listen to the API.
static POLICY: LazyLock<HeaderValue> =
    LazyLock::new(|| policy(&format!("script-src {}; connect-src 'self'; ", hash_of(SCRIPT))));

/// Place that a visitor came from, and wants to get back to.
struct Back {
    /// A host of this workspace.
    host: String,
    path: ReturnPath,
}

/// Query of the page's address.
struct WorkspacePageQuery {
    back: Option<Back>,
    /// The visitor has pressed the button, and waits for the workspace.
    follows: bool,
}

impl WorkspacePageQuery {
    /// Reads a query or a form. Invalid values are left out: they only say where to go afterwards.
    fn read(api: &ApiShared, name: &WorkspaceName, form: &[u8]) -> Self {
        let host = only(form, "host").filter(|host| match api.rules.parse(host) {
            // Only in its one spelling, so that it cannot have anything else in it.
            Ok(HostTarget::Workspace { name: of, port }) => of == *name && api.rules.format(&of, port) == *host,
            Ok(HostTarget::Public) | Err(_) => false,
        });
        let path = ReturnPath::parse_or_root(&only(form, "return").unwrap_or_default());
        Self { back: host.map(|host| Back { host, path }), follows: only(form, "follow").as_deref() == Some("1") }
    }

    /// Adds the page that the link was on, as the browser names it, if it belongs to the host that the visitor came
    /// from: the failure page repeats nothing of a request, so it cannot name it.
    fn or_from(mut self, api: &ApiShared, headers: &HeaderMap) -> Self {
        let referrer = headers.get(REFERER).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let Some((authority, path)) = authority_and_path(referrer) else { return self };
        if let Some(back) = self.back.as_mut().filter(|back| back.path.as_str() == "/") {
            let is_there = match api.rules.parse(authority) {
                Ok(HostTarget::Workspace { name, port }) => api.rules.format(&name, port) == back.host,
                Ok(HostTarget::Public) | Err(_) => false,
            };
            if is_there {
                back.path = ReturnPath::parse_or_root(path);
            }
        }
        self
    }

    /// Writes the address of the page with its query.
    fn address(&self, name: &WorkspaceName, follows: bool) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if let Some(Back { host, path }) = &self.back {
            query.append_pair("host", host).append_pair("return", path.as_str());
        }
        if follows {
            query.append_pair("follow", "1");
        }
        format!("{WORKSPACE_PAGES}{name}?{}", query.finish())
    }
}

/// Splits an address into its authority and the rest, which begins with a slash.
fn authority_and_path(address: &str) -> Option<(&str, &str)> {
    let (_, rest) = address.split_once("://")?;
    rest.split_at_checked(rest.find('/')?)
}

/// A workspace of the visitor's.
enum WorkspacePage {
    /// It is run for them.
    Managed(Box<ManagedWorkspace>),
    /// It runs elsewhere.
    External(Workspace),
}

async fn whose(
    api: &ApiShared,
    caller: &Caller,
    name: Result<Path<String>, PathRejection>,
) -> Result<WorkspacePage, ProblemRow> {
    let workspace = shares::owned(api, caller, name, wall_clock()).await?;
    if !workspace.executor.is_managed() {
        return Ok(WorkspacePage::External(workspace));
    }
    Ok(WorkspacePage::Managed(Box::new(managed_of(api, workspace).await?)))
}

/// Shows the page, or sends a visitor who waited back to where they came from.
pub(super) async fn show(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ProblemRow> {
    browser(&caller)?;
    let managed = match whose(&api, &caller, name).await {
        Ok(WorkspacePage::Managed(managed)) => *managed,
        Ok(WorkspacePage::External(workspace)) => return Ok(external::page(&api, &workspace).await),
        Err(problem) => return refused(problem),
    };
    let name = managed.workspace.name.clone();
    let asked =
        WorkspacePageQuery::read(&api, &name, uri.query().unwrap_or_default().as_bytes()).or_from(&api, &headers);
    let session = session(&api, &name).await.filter(|session| !session.tunnel.is_detached());
    let connected = session.is_some();
    let back = asked.back.as_ref().map(|back| api.site.workspace(&back.host, back.path.as_str()));
    if let (Some(place), Some(back), Some(session), true) = (&asked.back, &back, &session, asked.follows)
        && (words::is_usable(&managed, connected) || serves(&api, &managed, session, place).await)
    {
        return Ok(see_other(back));
    }
    let idle = notice(&managed, &caller.user()?.user, wall_clock());
    Ok(page(&api, &managed, &asked, connected, &Extras { back: back.as_deref(), idle }))
}

/// Returns whether the place that a visitor waits for answers already, although the cluster does not count the workspace as running
/// yet: the agent of this start is there, and an app listens.
async fn serves(api: &ApiShared, managed: &ManagedWorkspace, session: &LiveSession, place: &Back) -> bool {
    let life = &managed.lifecycle;
    let is_of_this_start = || {
        let wanted_for = wall_clock().get().saturating_sub(life.desired_at.get());
        u64::try_from(wanted_for).is_ok_and(|seconds| session.since.elapsed().as_secs() <= seconds)
    };
    let starts = life.desired == DesiredState::Running && life.actual == ActualState::Starting && is_of_this_start();
    let port = match api.rules.parse(&place.host) {
        Ok(HostTarget::Workspace { port, .. }) => port.or(session.default_port()),
        Ok(HostTarget::Public) | Err(_) => None,
    };
    match port.filter(|_| starts) {
        Some(port) => session.listening().await.is_some_and(|ports| ports.contains(&port)),
        None => false,
    }
}

/// Carries out the action of a button.
pub(super) async fn act(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
    request_in: Request,
) -> Result<Response, ProblemRow> {
    browser(&caller)?;
    if !is_form(request_in.headers()) {
        return Err(ApiProblem::BadRequest { reason: "not_a_form" }.into());
    }
    let page = match whose(&api, &caller, name).await {
        Ok(page) => page,
        Err(problem) => return refused(problem),
    };
    let form = body::read(request_in.into_body()).await?;
    if let Some(port) = only(&form, "share") {
        let workspace = match &page {
            WorkspacePage::Managed(managed) => &managed.workspace,
            WorkspacePage::External(workspace) => workspace,
        };
        let port = port.parse().map_err(|_| ApiProblem::BadRequest { reason: "no_action" })?;
        return match shares::open_proposed(&api, &caller, workspace, port).await {
            Ok(()) => Ok(see_other(&format!("{WORKSPACE_PAGES}{}", workspace.name))),
            Err(problem) => refused(problem),
        };
    }
    let managed = match page {
        WorkspacePage::Managed(managed) => *managed,
        WorkspacePage::External(workspace) => {
            if only(&form, "action").as_deref() != Some("delete") {
                return Err(ApiProblem::BadRequest { reason: "no_action" }.into());
            }
            return match delete(&api, &caller, &workspace.name).await {
                Ok(()) => Ok(see_other("/")),
                Err(problem) => refused(problem),
            };
        }
    };
    let asked = WorkspacePageQuery::read(&api, &managed.workspace.name, &form);
    let desired = match only(&form, "action").as_deref() {
        Some("keep") => {
            return match keep_for(&api, &caller, &managed, KEEP_TIME, wall_clock()).await {
                Ok(kept) => Ok(see_other(&asked.address(&kept.workspace.name, false))),
                Err(problem) => refused(problem),
            };
        }
        Some("start") => DesiredState::Running,
        Some("stop") => DesiredState::Stopped,
        Some("restart") => DesiredState::RestartRequested,
        Some(_) | None => return Err(ApiProblem::BadRequest { reason: "no_action" }.into()),
    };
    let changed = match request(&api, &caller, managed, desired, &Condition::Absent).await {
        Ok(changed) => changed,
        Err(problem) => return refused(problem),
    };
    let follows = match desired {
        DesiredState::Running | DesiredState::RestartRequested => true,
        DesiredState::Stopped | DesiredState::Terminated => false,
    };
    // A page that is loaded again must not press the button again.
    Ok(see_other(&asked.address(&changed.workspace.name, follows)))
}

/// Tells a person what the API would tell a program.
fn refused(problem: ProblemRow) -> Result<Response, ProblemRow> {
    let Some((code, status, title, text)) = problem.for_people() else { return Err(problem) };
    let text = format!("<p>{text}</p><p><a href=\"/\">All workspaces</a></p>");
    Ok(plain(status, Some(code), title, &text))
}

/// What the page has beside the state.
struct Extras<'a> {
    /// The address that the visitor came from.
    back: Option<&'a str>,
    /// Words about an idle stop, and the button that delays it.
    idle: (String, &'static str),
}

fn page(
    api: &ApiShared,
    managed: &ManagedWorkspace,
    asked: &WorkspacePageQuery,
    connected: bool,
    extras: &Extras<'_>,
) -> Response {
    let name = &managed.workspace.name;
    let open = api.site.workspace(&api.rules.format(name, None), "/");
    let hidden = asked.back.as_ref().map(|back| (back.host.as_str(), back.path.as_str()));
    let text = words::text(
        managed,
        connected,
        &words::Ways { open: &open, back: extras.back, hidden, follows: asked.follows, idle: &extras.idle },
    );
    let head = if words::is_under_way(managed, connected) {
        "<noscript><meta http-equiv=\"refresh\" content=\"2\"></noscript>"
    } else {
        ""
    };
    let proposals = proposals::text(&managed.workspace, wall_clock());
    let text = format!("{text}{proposals}<script>{SCRIPT}</script>");
    html(PageContent {
        status: StatusCode::OK,
        code: None,
        title: name.as_str(),
        text: &text,
        head,
        policy: POLICY.clone(),
    })
}

fn see_other(address: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    match HeaderValue::try_from(address) {
        Ok(address) => response.headers_mut().insert(LOCATION, address),
        Err(_) => response.headers_mut().insert(LOCATION, HeaderValue::from_static("/")),
    };
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_runs_its_own_script_and_no_other() {
        let policy = POLICY.to_str().unwrap();
        assert!(policy.contains(&format!("script-src {};", hash_of(SCRIPT))), "{policy}");
        assert!(!policy.contains("unsafe") && policy.contains("connect-src 'self';"), "{policy}");
        assert!(policy.contains("form-action 'self'") && policy.contains("frame-ancestors 'none'"));
        assert!(!SCRIPT.contains("</") && !SCRIPT.contains("innerHTML"), "what it is told is text");
    }
}
