//! Page of one workspace, for its owner in a browser: its state, its ports with those who may reach them, the ways into it, and
//! what its owner may do with it. A visitor who comes from a host of a stopped workspace gets back there as soon as its agent can
//! be reached.
//!
//! It changes nothing by being opened, whatever its address says: another site's page can have a browser open it. Without JavaScript the
//! page loads itself again while something is under way; with it, a small script follows the events.

mod act;
mod agent;
mod history;
mod open;
mod ports;
mod progress;
mod way_back;

use std::sync::Arc;

use askama::Template;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode, Uri};

use self::agent::AgentFacts;
use self::history::HistoryLine;
use self::open::{OpenLine, TrafficDrawing};
use self::ports::{PortLine, ProposalLine};
use self::way_back::WayBack;
use super::frame::{Frame, Section, page};
use super::overview::{Button, buttons, inspector, terminal, went_wrong};
use super::standing::{Standing, place};
use super::{see_other, words};
use gateway_agents::registry::{AgentReport, LiveSession};
use gateway_api::lifecycle::managed_of;
use gateway_api::page::browser;
use gateway_api::presence::last_disconnect;
use gateway_api::presence::session;
use gateway_api::problem::{Fault, ProblemRow};
use gateway_api::{ApiShared, Caller, shares};
use gateway_store::{ManagedWorkspace, UsedTemplate, Workspace, wall_clock};
use gateway_types::blockers;
use gateway_types::{DISPLAY_NAME_CHARS_MAX, DesiredState, IdleLimit, IdleStage, UserName};
use gateway_workspaces::starts::{StartRow, steps};
use tunnel_proto::listening::StartCommand;

pub(super) use self::act::act;

/// A workspace of the visitor's.
struct Shown {
    workspace: Workspace,
    /// Its state, if the gateway runs it.
    managed: Option<Box<ManagedWorkspace>>,
}

#[derive(Template)]
#[template(path = "workspace.html")]
struct WorkspacePage {
    frame: Frame,
    name: String,
    title: String,
    display_name: String,
    display_name_max: usize,
    place: String,
    created: String,
    template: Option<UsedTemplate>,
    standing: Standing,
    /// Its state, as the cluster or CI system says it.
    actual: &'static str,
    /// Desired and actual state and presence, with which the script compares the events.
    shown: String,
    steps: Vec<StartRow>,
    blockers: Vec<String>,
    commands: Vec<StartCommand>,
    job: Option<String>,
    idle: Option<IdleFacts>,
    buttons: Vec<Button>,
    is_under_way: bool,
    is_usable: bool,
    is_managed: bool,
    is_over: bool,
    is_ending: bool,
    ports: Vec<PortLine>,
    proposals: Vec<ProposalLine>,
    agent: Option<AgentFacts>,
    accesses: Vec<OpenLine>,
    traffic: Option<TrafficDrawing>,
    history: Vec<HistoryLine>,
    last_disconnect: Option<String>,
    open: String,
    terminal: String,
    /// Address of the request inspector, where the agent has one.
    inspector: Option<String>,
    /// Address of this page with the visitor's way back, which the browser named only once.
    here: String,
    /// Address that the visitor came from and waits for.
    back: Option<String>,
    /// Host and path of that, for the forms.
    hidden: Option<(String, String)>,
    faults: Vec<Fault>,
}

/// Words about an idle stop.
struct IdleFacts {
    told: Option<String>,
    is_near: bool,
    /// Minutes that the owner wants; empty for what the operator says.
    minutes: String,
}

async fn owned(
    api: &ApiShared,
    caller: &Caller,
    name: Result<Path<String>, PathRejection>,
) -> Result<Shown, ProblemRow> {
    let workspace = shares::owned(api, caller, name, wall_clock()).await?;
    if !workspace.executor.is_managed() {
        return Ok(Shown { workspace, managed: None });
    }
    let managed = managed_of(api, workspace).await?;
    Ok(Shown { workspace: managed.workspace.clone(), managed: Some(Box::new(managed)) })
}

/// Shows the page, or sends a visitor who waited back to where they came from.
///
/// Cancel safety: safe. Waits for the workspace's agent, for a second at most.
pub(super) async fn show(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ProblemRow> {
    browser(&caller)?;
    let shown = owned(&api, &caller, name).await?;
    let name = &shown.workspace.name;
    let way = WayBack::read(&api, name, uri.query().unwrap_or_default().as_bytes()).or_from(&api, &headers);
    let session = session(&api, name).await.filter(|session| !session.tunnel.is_detached());
    if let (Some(managed), Some(place), Some(session), true) = (&shown.managed, &way.back, &session, way.follows)
        && (progress::is_usable(managed, true) || way_back::serves(&api, managed, session, place).await)
    {
        return Ok(see_other(&api.site.workspace(&place.host, place.path.as_str())));
    }
    let visit = Visit { api: &api, caller: &caller, shown: &shown, way: &way, session: session.as_deref() };
    visit.answer(StatusCode::OK, Vec::new()).await
}

/// Shows the page again, with what is wrong in a form.
async fn again(api: &ApiShared, caller: &Caller, shown: &Shown, problem: &ProblemRow) -> Result<Response, ProblemRow> {
    let name = &shown.workspace.name;
    let session = session(api, name).await.filter(|session| !session.tunnel.is_detached());
    let way = WayBack::read(api, name, b"");
    let visit = Visit { api, caller, shown, way: &way, session: session.as_deref() };
    visit.answer(problem.status(), problem.faults()).await
}

/// One visit of the page, with what is known for it.
struct Visit<'a> {
    api: &'a ApiShared,
    caller: &'a Caller,
    shown: &'a Shown,
    way: &'a WayBack,
    session: Option<&'a LiveSession>,
}

impl Visit<'_> {
    async fn answer(&self, status: StatusCode, faults: Vec<Fault>) -> Result<Response, ProblemRow> {
        let report = match self.session {
            Some(session) => session.report().await,
            None => None,
        };
        let principal = self.caller.user()?;
        let history = history::lines(&self.api.store, &self.shown.workspace).await?;
        let mut content = self.content(
            Frame::new(self.api, principal, Section::Workspaces),
            &principal.user,
            report.as_ref(),
            faults,
        );
        content.history = history;
        let last = last_disconnect(self.api, &self.shown.workspace).await?;
        content.last_disconnect = last.map(|last| agent::last_disconnect(&last, wall_clock()));
        Ok(page(status, &content))
    }

    fn content(
        &self,
        frame: Frame,
        reader: &UserName,
        report: Option<&AgentReport>,
        faults: Vec<Fault>,
    ) -> WorkspacePage {
        let Self { api, shown: Shown { workspace, managed }, way, session, .. } = self;
        let (name, now, is_connected) = (&workspace.name, wall_clock(), session.is_some());
        let managed = managed.as_deref();
        let life = managed.map(|managed| &managed.lifecycle);
        let standing = match managed {
            Some(managed) => Standing::of_managed(managed, is_connected, now),
            None => Standing::of_external(is_connected),
        };
        let ports = ports::lines(api, workspace, *session, report, now);
        let inspects = is_connected && ports.iter().any(|line| line.port.is_inspector());
        let back = way.back.as_ref().filter(|_| way.follows);
        WorkspacePage {
            frame,
            name: name.to_string(),
            title: workspace.title().to_owned(),
            display_name: workspace.display_name.as_ref().map(ToString::to_string).unwrap_or_default(),
            display_name_max: DISPLAY_NAME_CHARS_MAX,
            place: managed.map_or_else(|| "your machine".to_owned(), place),
            created: words::ago(workspace.created_at, now),
            template: managed.and_then(ManagedWorkspace::kubernetes).and_then(|state| state.template.clone()),
            actual: life.map_or("", |life| life.actual.as_str()),
            shown: life.map(|life| format!("{} {} {is_connected}", life.desired, life.actual)).unwrap_or_default(),
            steps: managed.map(steps).unwrap_or_default(),
            blockers: managed.map(held_by).unwrap_or_default(),
            commands: report.map(|report| report.commands.to_vec()).unwrap_or_default(),
            job: managed.and_then(ManagedWorkspace::run_url).map(str::to_owned),
            idle: managed.map(|managed| IdleFacts::new(managed, reader)),
            buttons: managed.map(all_buttons).unwrap_or_default(),
            is_under_way: managed.is_some_and(|managed| progress::is_under_way(managed, is_connected)),
            is_usable: managed.map_or(is_connected, |managed| progress::is_usable(managed, is_connected)),
            is_managed: managed.is_some(),
            is_over: life.is_some_and(gateway_types::Lifecycle::is_over),
            is_ending: life.is_some_and(|life| life.desired == DesiredState::Terminated),
            ports,
            proposals: ports::proposals(workspace, now),
            agent: session.map(AgentFacts::new),
            accesses: open::lines(api.accesses.open_at(name)),
            traffic: session.and_then(|session| TrafficDrawing::new(&api.traffic.of(session.id))),
            history: Vec::new(),
            last_disconnect: None,
            open: api.address(name, None),
            terminal: terminal(api, name),
            inspector: inspects.then(|| inspector(api, name)),
            here: way.address(name, way.follows),
            back: back.map(|back| api.site.workspace(&back.host, back.path.as_str())),
            hidden: way.back.as_ref().map(|back| (back.host.clone(), back.path.as_str().to_owned())),
            standing,
            faults,
        }
    }
}

impl IdleFacts {
    fn new(managed: &ManagedWorkspace, reader: &UserName) -> Self {
        let (idle, life) = (&managed.idle, &managed.lifecycle);
        Self {
            told: idle.told(life, reader),
            is_near: match idle.stage(life, wall_clock()) {
                IdleStage::Off | IdleStage::Awake => false,
                IdleStage::Announced | IdleStage::Near | IdleStage::Due => true,
            },
            minutes: match idle.wanted {
                IdleLimit::Inherited => String::new(),
                IdleLimit::Off => "0".to_owned(),
                IdleLimit::After(limit) => (limit.as_secs() / 60).to_string(),
            },
        }
    }
}

/// Returns the buttons of the list, and those that only this page has.
fn all_buttons(managed: &ManagedWorkspace) -> Vec<Button> {
    let mut buttons = buttons(managed);
    if managed.lifecycle.desired == DesiredState::Running && !went_wrong(&managed.lifecycle) {
        buttons.insert(1, Button { action: "restart", label: "Restart" });
    }
    buttons
}

/// Says what holds a termination up.
fn held_by(managed: &ManagedWorkspace) -> Vec<String> {
    let left = managed.termination().map(blockers::from_json).unwrap_or_default();
    let line = |blocker: &tunnel_proto::reconcile::Blocker| {
        let parts = [blocker.object.as_str(), &blocker.finalizers.join(", "), &blocker.message];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
    };
    left.iter().map(line).collect()
}
