//! Texts of the page, as a function of the workspace's state.

use gateway_store::ManagedWorkspace;
use gateway_types::blockers;
use gateway_types::markup::escape;
use gateway_types::{ActualState, DesiredState};
use gateway_workspaces::starts::{StartRow, steps};

/// Ways for the visitor to go on.
pub(super) struct Ways<'a> {
    /// The address of the workspace.
    pub(super) open: &'a str,
    /// The address that the visitor came from.
    pub(super) back: Option<&'a str>,
    /// Host and path of that, for the forms.
    pub(super) hidden: Option<(&'a str, &'a str)>,
    /// The visitor waits to get there.
    pub(super) follows: bool,
    /// Words about an idle stop, and the button that delays it.
    pub(super) idle: &'a (String, &'static str),
}

/// Returns whether a request to the workspace would reach it.
pub(super) fn is_usable(managed: &ManagedWorkspace, connected: bool) -> bool {
    let life = &managed.lifecycle;
    life.desired == DesiredState::Running && life.actual == ActualState::Running && connected
}

/// Returns whether its state is about to change.
pub(super) fn is_under_way(managed: &ManagedWorkspace, connected: bool) -> bool {
    let life = &managed.lifecycle;
    let went_wrong = match life.actual {
        ActualState::Failed | ActualState::Error => true,
        ActualState::CreationRequested
        | ActualState::Starting
        | ActualState::Running
        | ActualState::Stopping
        | ActualState::Stopped
        | ActualState::Terminating
        | ActualState::Terminated
        | ActualState::Unknown => false,
    };
    let waits_for_agent = life.desired == DesiredState::Running && !connected;
    !went_wrong && (!life.is_settled() || waits_for_agent)
}

/// Writes the page's body. Names and states are plain by their types; everything else is escaped.
pub(super) fn text(managed: &ManagedWorkspace, connected: bool, ways: &Ways<'_>) -> String {
    let (life, name) = (&managed.lifecycle, &managed.workspace.name);
    let back = ways.back.filter(|_| ways.follows).map(|back| format!(" data-back=\"{}\"", escape(back)));
    let shown = format!("{} {} {connected}", life.desired, life.actual);
    let stopped = managed.idle.stop_reason(life);
    let reason = life.reason.as_deref().or(stopped.as_deref());
    let hidden = if reason.is_some() { "" } else { " hidden" };
    let reason = escape(reason.unwrap_or_default());
    let left: String = managed
        .termination()
        .map(blockers::from_json)
        .unwrap_or_default()
        .iter()
        .map(|blocker| {
            let parts = [blocker.object.as_str(), &blocker.finalizers.join(", "), &blocker.message].map(escape);
            let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            format!("<li>{}</li>", parts.join(": "))
        })
        .collect();
    let job = managed.run_url().map(|url| format!("<p><a href=\"{}\">Its job in the CI system</a></p>", escape(url)));
    format!(
        "<div id=\"workspace\" data-name=\"{name}\" data-shown=\"{shown}\"{}>\
         <p class=\"state\" id=\"state\" role=\"status\">{}</p>\
         <p class=\"warn\" id=\"reason\"{hidden}>{reason}</p><ol class=\"steps\" id=\"start\">{}</ol>\
         <ul id=\"left\">{left}</ul><p>{}</p></div>{}{}{}{}\
         <p><a href=\"/\">All workspaces</a></p>",
        back.unwrap_or_default(),
        life.actual,
        steps(managed).iter().map(step).collect::<String>(),
        advice(managed, connected),
        if is_usable(managed, connected) {
            format!("<p><a href=\"{}\">Open it</a></p>", escape(ways.back.unwrap_or(ways.open)))
        } else {
            String::new()
        },
        job.unwrap_or_default(),
        ways.idle.0,
        buttons(managed, ways),
    )
}

/// Writes a step of the start.
fn step(row: &StartRow) -> String {
    let StartRow { status, text, .. } = row;
    let now = if *status == "now" { " aria-current=\"step\"" } else { "" };
    format!("<li class=\"{status}\"{now}>{text}</li>")
}

/// Describes what is going on, and what to expect.
fn advice(managed: &ManagedWorkspace, connected: bool) -> &'static str {
    let life = &managed.lifecycle;
    match (life.desired, life.actual) {
        (DesiredState::Terminated, ActualState::Terminated) => "It is gone, with its storage.",
        (DesiredState::Terminated, _) => "It is being deleted with its storage, which cannot be taken back.",
        (DesiredState::Running, ActualState::Failed) if managed.ci().is_some() => {
            "Its job ended, and another is tried by itself. Start it again to try it at once."
        }
        (DesiredState::Running | DesiredState::RestartRequested, ActualState::Failed) => {
            "It was set up, but does not come up. Change what is wrong and start it again."
        }
        (_, ActualState::Error) => "The cluster did not take it. It is tried again when you start or stop it.",
        (DesiredState::Running, ActualState::Running) if connected => "It runs.",
        (DesiredState::Running, ActualState::Running) => "It runs. Its agent is about to connect.",
        (DesiredState::Running, _) => "It is starting. This page follows it.",
        (DesiredState::RestartRequested, _) => "It is restarting. This page follows it.",
        (DesiredState::Stopped, ActualState::Stopped) => "It is stopped. Its storage is kept.",
        (DesiredState::Stopped, _) => "It is stopping. Its storage is kept.",
    }
}

fn buttons(managed: &ManagedWorkspace, ways: &Ways<'_>) -> String {
    let life = &managed.lifecycle;
    let went_wrong = matches!(life.actual, ActualState::Failed | ActualState::Error | ActualState::Unknown);
    let actions: &[(&str, &str)] = match life.desired {
        DesiredState::Terminated => return String::new(),
        DesiredState::Stopped => &[("start", "Start")],
        DesiredState::Running if went_wrong => &[("start", "Start again"), ("stop", "Stop")],
        DesiredState::Running => &[("stop", "Stop"), ("restart", "Restart")],
        DesiredState::RestartRequested => &[("stop", "Stop")],
    };
    let actions: String = actions
        .iter()
        .map(|(action, label)| format!("<button name=\"action\" value=\"{action}\">{label}</button>"))
        .collect();
    let hidden = ways.hidden.map(|(host, path)| {
        let (host, path) = (escape(host), escape(path));
        format!("<input type=\"hidden\" name=\"host\" value=\"{host}\"><input type=\"hidden\" name=\"return\" value=\"{path}\">")
    });
    let name = &managed.workspace.name;
    format!(
        "<form method=\"post\" action=\"/workspaces/{name}\">{}{actions}{}</form>",
        hidden.unwrap_or_default(),
        ways.idle.1
    )
}
