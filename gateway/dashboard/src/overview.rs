//! A user's workspaces and those that others share with them, as rows of the first page and of its live updates.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use askama::Template;

use super::standing::{PlainState, Standing, place};
use super::words::capitalised;
use gateway_agents::registry::LiveSession;
use gateway_api::ApiParts;
use gateway_api::presence::ListPresence;
use gateway_store::{ListPage, ManagedWorkspace, SharedPort, StoreError, Workspace, WorkspaceId, wall_clock};
use gateway_types::principal::Principal;
use gateway_types::{ActualState, DesiredState, IdleStage, Lifecycle, Port, WorkspaceName};
use tunnel_proto::inspector::INSPECTOR_PORT;
use tunnel_proto::terminal::TERMINAL_PORT;

/// Most ports of one workspace that a row has links to.
const PORTS_MAX: usize = 12;

/// Everything on the first page.
pub(crate) struct Overview {
    /// The user's own, trouble first, then pinned ones, then those used last.
    pub(crate) own: Vec<OwnRow>,
    /// Those of others.
    pub(crate) shared: Vec<SharedRow>,
    /// The user's workspaces that the gateway runs.
    pub(crate) managed: HashMap<WorkspaceId, ManagedWorkspace>,
}

/// Link of a row.
pub(crate) struct Link {
    url: String,
    text: String,
}

/// Button of a row.
#[derive(Clone, Copy)]
pub(crate) struct Button {
    pub(crate) action: &'static str,
    pub(crate) label: &'static str,
}

/// Row of a workspace of the user's own.
#[derive(Template)]
#[template(path = "row.html")]
pub(crate) struct OwnRow {
    pub(crate) id: WorkspaceId,
    pub(crate) name: WorkspaceName,
    pub(crate) standing: Standing,
    /// The name that people read: the display name, or else the name.
    title: String,
    is_named: bool,
    is_pinned: bool,
    is_connected: bool,
    /// The place where it runs.
    place: String,
    used_at: i64,
    links: Vec<Link>,
    buttons: Vec<Button>,
    /// That it is about to be stopped.
    warning: Option<String>,
    /// The row, written.
    pub(crate) html: String,
}

/// Row of a workspace that another user shares.
#[derive(Template)]
#[template(path = "shared_row.html")]
pub(crate) struct SharedRow {
    pub(crate) name: WorkspaceName,
    owner: String,
    standing: Standing,
    links: Vec<Link>,
    /// The row, written.
    pub(crate) html: String,
}

impl Overview {
    /// Reads everything that the user sees.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) async fn read(parts: &ApiParts, principal: &Principal) -> Result<Self, StoreError> {
        let store = &parts.store;
        let workspaces = store.workspaces_of(&principal.user).await?;
        let managed = managed(parts, &workspaces, principal).await?;
        let pins = store.pins(&principal.user).await?;
        let ports = store.shared_with(&principal.user, &principal.groups, wall_clock()).await?;
        let names = workspaces.iter().map(|workspace| &workspace.name).chain(ports.iter().map(|port| &port.workspace));
        let presence = ListPresence::read(parts, names).await?;
        let row = |workspace: Workspace| {
            let facts = Facts {
                parts,
                managed: managed.get(&workspace.id),
                is_connected: presence.has(&workspace.name),
                is_pinned: pins.contains(&workspace.id),
            };
            facts.row(workspace)
        };
        let mut own: Vec<OwnRow> = workspaces.into_iter().map(row).collect();
        own.sort_by(|a, b| a.order().cmp(&b.order()));
        let of_each = ports.chunk_by(|a, b| a.workspace == b.workspace);
        let shared = of_each.filter_map(|ports| shared_row(parts, ports, &presence)).collect();
        Ok(Self { own, shared, managed })
    }

    /// Returns a hash of what there is, and in which order.
    pub(crate) fn order(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.own.iter().for_each(|row| row.name.as_str().hash(&mut hasher));
        "shared".hash(&mut hasher);
        self.shared.iter().for_each(|row| row.name.as_str().hash(&mut hasher));
        hasher.finish()
    }

    /// Names everything that is shown, for a page that tells what it has.
    pub(crate) fn tag(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.own.iter().for_each(|row| row.html.hash(&mut hasher));
        "shared".hash(&mut hasher);
        self.shared.iter().for_each(|row| row.html.hash(&mut hasher));
        format!("{:016x}", hasher.finish())
    }
}

/// Returns the hash of a row: the same at every replica of this version.
pub(crate) fn hash_of(html: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    html.hash(&mut hasher);
    hasher.finish()
}

/// Facts about one workspace beside its record.
struct Facts<'a> {
    parts: &'a ApiParts,
    managed: Option<&'a ManagedWorkspace>,
    is_connected: bool,
    is_pinned: bool,
}

impl Facts<'_> {
    fn row(&self, workspace: Workspace) -> OwnRow {
        let (title, is_named) = (workspace.title().to_owned(), workspace.display_name.is_some());
        let Workspace { id, name, .. } = workspace;
        let standing = match self.managed {
            Some(managed) => Standing::of_managed(managed, self.is_connected, wall_clock()),
            None => Standing::of_external(self.is_connected),
        };
        let session = self.parts.registry.current(&name);
        let links = if self.is_connected { links(self.parts, &name, session.as_deref()) } else { Vec::new() };
        let mut row = OwnRow {
            id,
            standing,
            title,
            is_named,
            is_pinned: self.is_pinned,
            is_connected: self.is_connected,
            place: self.managed.map_or_else(|| "your machine".to_owned(), place),
            used_at: self.managed.and_then(|managed| managed.idle.last.as_ref()).map_or(0, |last| last.at.get()),
            links,
            buttons: self.managed.map(buttons).unwrap_or_default(),
            warning: self.managed.and_then(warning),
            html: String::new(),
            name,
        };
        row.html = row.render().unwrap_or_default();
        row
    }
}

impl OwnRow {
    /// Returns what the list is sorted by.
    fn order(&self) -> impl Ord + '_ {
        (self.standing.state != PlainState::Trouble, !self.is_pinned, Reverse(self.used_at), &self.title, &self.name)
    }

    /// Returns whether a search finds it.
    pub(crate) fn matches(&self, lower_case: &str) -> bool {
        let has = |text: &str| text.to_lowercase().contains(lower_case);
        has(&self.title) || has(self.name.as_str()) || has(&self.place) || has(&self.standing.sentence)
    }
}

/// Returns whether a workspace is in a state that only its owner's word, or luck, gets it out of.
pub(crate) fn went_wrong(life: &Lifecycle) -> bool {
    matches!(life.actual, ActualState::Failed | ActualState::Error | ActualState::Unknown)
}

/// Returns the buttons that change the state of a workspace.
pub(crate) fn buttons(managed: &ManagedWorkspace) -> Vec<Button> {
    let button = |action, label| Button { action, label };
    let life = &managed.lifecycle;
    let mut buttons = match life.desired {
        DesiredState::Terminated => Vec::new(),
        DesiredState::Stopped => vec![button("start", "Start")],
        DesiredState::Running if went_wrong(life) => vec![button("start", "Start again"), button("stop", "Stop")],
        DesiredState::Running | DesiredState::RestartRequested => vec![button("stop", "Stop")],
    };
    if managed.idle.stops_at(life).is_some() {
        buttons.push(button("keep", "Keep for an hour"));
    }
    buttons
}

/// Says that a workspace is about to be stopped, because it is not used.
fn warning(managed: &ManagedWorkspace) -> Option<String> {
    let (idle, life) = (&managed.idle, &managed.lifecycle);
    match idle.stage(life, wall_clock()) {
        IdleStage::Off | IdleStage::Awake => None,
        IdleStage::Announced | IdleStage::Near | IdleStage::Due => {
            let told = idle.told(life, &managed.workspace.owner).unwrap_or_default();
            Some(format!("It is about to be stopped, because it is not used: {told}"))
        }
    }
}

/// Returns links to the ports of a connected workspace: its default port and those that its agent names.
fn links(parts: &ApiParts, name: &WorkspaceName, session: Option<&LiveSession>) -> Vec<Link> {
    let link = |port: Option<Port>, text: String| Link { url: parts.address(name, port), text };
    let Some(session) = session else { return vec![link(None, "Open".to_owned())] };
    let mut links: Vec<Link> = session.default_port().map(|_| link(None, "Open".to_owned())).into_iter().collect();
    let named = session.ports().iter().filter_map(|port| Port::new(port.number)).filter(|port| !port.is_ssh());
    for port in named.take(PORTS_MAX) {
        let text = port.label().map_or_else(|| format!("port {port}"), capitalised);
        links.push(link(Some(port), text));
    }
    if links.is_empty() {
        links.push(link(None, "Open".to_owned()));
    }
    links
}

/// Returns the address of a workspace's terminal.
pub(crate) fn terminal(parts: &ApiParts, name: &WorkspaceName) -> String {
    parts.address(name, Port::new(TERMINAL_PORT))
}

/// Returns the address of a workspace's request inspector.
pub(crate) fn inspector(parts: &ApiParts, name: &WorkspaceName) -> String {
    parts.address(name, Port::new(INSPECTOR_PORT))
}

fn shared_row(parts: &ApiParts, ports: &[SharedPort], presence: &ListPresence<'_>) -> Option<SharedRow> {
    let SharedPort { workspace, owner, .. } = ports.first()?;
    let link = |port: Port| Link { url: parts.address_on_host(workspace, Some(port)), text: format!("port {port}") };
    let standing = match presence.has(workspace) {
        true => Standing { state: PlainState::Ready, sentence: String::new() },
        false => Standing { state: PlainState::Stopped, sentence: "It is not connected.".to_owned() },
    };
    let links = ports.iter().map(|shared| link(shared.port)).collect();
    let (name, owner) = (workspace.clone(), owner.to_string());
    let mut row = SharedRow { name, owner, standing, links, html: String::new() };
    row.html = row.render().unwrap_or_default();
    Some(row)
}

/// Loads the state of workspaces that are run for their owner.
async fn managed(
    parts: &ApiParts,
    workspaces: &[Workspace],
    principal: &Principal,
) -> Result<HashMap<WorkspaceId, ManagedWorkspace>, StoreError> {
    if !workspaces.iter().any(|workspace| workspace.executor.is_managed()) {
        return Ok(HashMap::new());
    }
    let all = ListPage { after: None, limit: u32::try_from(workspaces.len()).unwrap_or(u32::MAX) };
    let found = parts.store.managed_of_owner(&principal.user, all).await?;
    Ok(found.into_iter().map(|managed| (managed.workspace.id, managed)).collect())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Makes the lists of a user who has these workspaces, each a name and what its row says.
    pub(in super::super) fn overview(rows: &[(&str, &str)]) -> Overview {
        let row = |(name, html): &(&str, &str)| {
            let mut row = own(name, PlainState::Ready);
            row.id = format!("w-{}", name.len() * 100 + usize::from(name.as_bytes()[0])).parse().unwrap();
            row.html = (*html).to_owned();
            row
        };
        Overview { own: rows.iter().map(row).collect(), shared: Vec::new(), managed: HashMap::new() }
    }

    fn own(name: &str, state: PlainState) -> OwnRow {
        OwnRow {
            id: "w-1".parse().unwrap(),
            name: name.parse().unwrap(),
            standing: Standing { state, sentence: String::new() },
            title: name.to_owned(),
            is_named: false,
            is_pinned: false,
            is_connected: true,
            place: "your machine".to_owned(),
            used_at: 0,
            links: Vec::new(),
            buttons: Vec::new(),
            warning: None,
            html: String::new(),
        }
    }

    #[test]
    fn trouble_comes_first_then_pins_then_what_was_used_last() {
        let states = [PlainState::Ready, PlainState::Ready, PlainState::Stopped, PlainState::Trouble];
        let mut rows: Vec<_> =
            ["a", "b", "c", "d"].into_iter().zip(states).map(|(name, state)| own(name, state)).collect();
        rows[1].used_at = 5;
        rows[2].is_pinned = true;
        rows.sort_by(|a, b| a.order().cmp(&b.order()));
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["d", "c", "b", "a"]);
    }

    #[test]
    fn what_others_write_is_text() {
        let mut row = own("a", PlainState::Trouble);
        row.standing.sentence = "<script>alert(1)</script>".to_owned();
        row.title = "\"><img src=x onerror=alert(1)>".to_owned();
        let html = row.render().unwrap();
        assert!(!html.contains("<script") && !html.contains("<img"), "{html}");
    }
}
