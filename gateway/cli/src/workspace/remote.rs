//! `gateway workspace` over a gateway's API.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::change::{self, DesiredChange};
use super::idle::{self, IdleChange, IdleLook};
use super::naming::{self, NameChange};
use super::row::{self, WorkspaceItem};
use super::template;
use super::{details, opened, present};
use crate::client::{ClientError, GatewayClient, shown};
use crate::place::complain;
use crate::{Console, Exit, Output, ShareArgs, ShowArgs, WorkspaceArgs, WorkspaceCommand, table};
use gateway_types::{Audience, Port, UnixSeconds, WorkspaceName};
use workspace_spec::frozen::LOGS_DIR;

/// Most pages of a list that are asked for: a gateway that never ends is not one.
const PAGES_MAX: usize = 1000;

/// Most attempts at a change when others change the same meanwhile.
const TRIES: usize = 5;

#[derive(Deserialize)]
struct WorkspaceList {
    workspaces: Vec<Value>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct WorkspaceDetail {
    #[serde(flatten)]
    row: WorkspaceItem,
    port_url: String,
    path_url: Option<String>,
    #[serde(default)]
    last_disconnect: Option<LastDisconnect>,
    agent: Option<Agent>,
    #[serde(default)]
    ports: Vec<NamedPortRow>,
    shared_with_you: Vec<ShareRow>,
    #[serde(default)]
    idle: Option<IdleLook>,
}

impl WorkspaceDetail {
    /// Returns the address of a port: by path where the gateway offers that. The agent's own pages have hosts of their own alone.
    fn address(&self, port: Port) -> String {
        let by_path = self.path_url.as_ref().filter(|_| !port.is_agents_page());
        by_path.unwrap_or(&self.port_url).replace("{port}", &port.to_string())
    }
}

#[derive(Deserialize)]
struct LastDisconnect {
    at: String,
    reason: String,
}

impl LastDisconnect {
    fn line(&self) -> String {
        format!("{}, {}", shown(&self.at), shown(&self.reason))
    }
}

#[derive(Deserialize)]
struct Agent {
    version: Option<String>,
    default_port: Option<u16>,
    ports: Vec<PortRow>,
    #[serde(default)]
    listening: Option<Vec<PortRow>>,
    #[serde(default)]
    commands: Vec<CommandRow>,
}

/// A command that began with the workspace.
#[derive(Deserialize)]
struct CommandRow {
    container: String,
    id: String,
    status: Option<u32>,
    #[serde(default)]
    last_line: String,
}

impl CommandRow {
    /// Writes the command for people: what became of it, and of a failure why and where its log is.
    fn line(&self) -> String {
        let (container, id) = (shown(&self.container), shown(&self.id));
        match self.status {
            None => format!("{id} in {container} runs"),
            Some(0) => format!("{id} in {container} ended well"),
            Some(status) => {
                let killed = if status == KILLED { ", killed: it may have used more memory than there is" } else { "" };
                let said =
                    if self.last_line.is_empty() { String::new() } else { format!(": {}", shown(&self.last_line)) };
                let log = format!("{LOGS_DIR}/{container}/command-{id}.log");
                format!("{id} in {container} failed with status {status}{killed}{said} (all of it in {log})")
            }
        }
    }
}

/// Exit status of a command that SIGKILL ended.
const KILLED: u32 = 128 + 9;

#[derive(Deserialize)]
struct PortRow {
    port: u16,
    #[serde(default)]
    url: String,
    #[serde(default)]
    label: Option<String>,
    #[serde(default)]
    protocol: String,
    #[serde(default)]
    open_to: Vec<String>,
}

/// A port that the devfile, or the request for the workspace, named.
#[derive(Deserialize)]
struct NamedPortRow {
    port: u16,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    proposed: Option<String>,
}

impl NamedPortRow {
    /// Writes for people what the devfile wants and the owner has not said.
    fn proposal(&self, workspace: &str) -> Option<String> {
        let audience = shown(self.proposed.as_deref()?);
        let name = self.name.as_deref().map(|name| format!(" ({})", shown(name))).unwrap_or_default();
        let port = self.port;
        Some(format!(
            "port {port}{name} wants to be open to {audience}: gateway workspace share {workspace} {port} --with {audience}"
        ))
    }
}

impl PortRow {
    /// Writes the port for people: its address and its label.
    fn line(&self) -> String {
        let label = self.label.as_deref().map(shown);
        // What most ports are is not worth a word.
        let protocol = Some(shown(&self.protocol)).filter(|protocol| !protocol.is_empty() && protocol != "http1");
        let open_to = Some(shown(&self.open_to.join(", "))).filter(|open_to| !open_to.is_empty());
        let words: Vec<String> =
            [label, protocol, open_to.map(|open_to| format!("open to {open_to}"))].into_iter().flatten().collect();
        let words = if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) };
        format!("{}{words}", shown(&self.url))
    }
}

#[derive(Deserialize)]
struct Shares {
    shares: Vec<ShareRow>,
}

#[derive(Clone, Deserialize, Serialize)]
struct ShareRow {
    port: u16,
    audience: String,
    expires_at: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unknown_user: bool,
}

/// Runs `gateway workspace` at a gateway.
pub(super) async fn run(client: &GatewayClient, args: &WorkspaceArgs, console: &mut Console, now: UnixSeconds) -> Exit {
    if let Some(wanted) = DesiredChange::of(&args.command) {
        return change::change(client, wanted, console).await.unwrap_or_else(|error| complain(&error, console));
    }
    if let Some(wanted) = IdleChange::of(&args.command) {
        return idle::change(client, wanted, console).await.unwrap_or_else(|error| complain(&error, console));
    }
    if let Some(wanted) = NameChange::of(&args.command) {
        return naming::change(client, wanted, console).await.unwrap_or_else(|error| complain(&error, console));
    }
    let done = match &args.command {
        WorkspaceCommand::Create(args) => change::create(client, args, console).await,
        // Changes were requested above.
        WorkspaceCommand::Start(_)
        | WorkspaceCommand::Stop(_)
        | WorkspaceCommand::Restart(_)
        | WorkspaceCommand::Keep(_)
        | WorkspaceCommand::Idle(_)
        | WorkspaceCommand::Rename(_)
        | WorkspaceCommand::HandOver(_)
        | WorkspaceCommand::Terminate(_) => Ok(Exit::Usage),
        WorkspaceCommand::List(args) => list(client, args.output, console).await,
        WorkspaceCommand::Templates(args) => template::list(client, args, console).await,
        WorkspaceCommand::Show(args) => show(client, args, console).await,
        WorkspaceCommand::Open(args) => {
            match client.get::<WorkspaceDetail>(&format!("/workspaces/{}", args.workspace)).await {
                Ok(detail) => {
                    let url = match args.port {
                        Some(port) => detail.address(port),
                        None => detail.row.url,
                    };
                    Ok(present(&shown(&url), args, console))
                }
                Err(error) => Err(error),
            }
        }
        WorkspaceCommand::Share(args) => share(client, args, console, now).await,
    };
    done.unwrap_or_else(|error| complain(&error, console))
}

async fn list(client: &GatewayClient, output: Output, console: &mut Console) -> Result<Exit, ClientError> {
    let (mut rows, mut path) = (Vec::new(), "/workspaces?limit=200".to_owned());
    for _ in 0..PAGES_MAX {
        let page: WorkspaceList = client.get(&path).await?;
        rows.extend(page.workspaces);
        let Some(cursor) = page.next_cursor else { break };
        let cursor: String = form_urlencoded::byte_serialize(cursor.as_bytes()).collect();
        path = format!("/workspaces?limit=200&cursor={cursor}");
    }
    Ok(console.finish_with(match output {
        // As the gateway sends it: a newer one may send more.
        Output::Json => format!("{:#}", json!(rows)),
        Output::Text => {
            let rows: Vec<WorkspaceItem> =
                rows.into_iter().filter_map(|row| serde_json::from_value(row).ok()).collect();
            row::show(&rows, output)
        }
    }))
}

async fn show(client: &GatewayClient, args: &ShowArgs, console: &mut Console) -> Result<Exit, ClientError> {
    let path = format!("/workspaces/{}", args.workspace);
    if args.output == Output::Json {
        let detail: Value = client.get(&path).await?;
        return Ok(console.finish_with(format_args!("{detail:#}")));
    }
    let WorkspaceDetail { row, port_url, path_url, last_disconnect, agent, ports, shared_with_you, idle } =
        client.get(&path).await?;
    let listening = agent.as_ref().and_then(|agent| agent.listening.as_deref());
    let listening: Option<Vec<String>> = listening.map(|ports| ports.iter().map(PortRow::line).collect());
    let commands: Vec<_> = agent.iter().flat_map(|agent| &agent.commands).map(CommandRow::line).collect();
    let agent = agent.map_or_else(
        || "absent".to_owned(),
        |agent| {
            let ports: Vec<String> = agent.ports.iter().map(|port| port.port.to_string()).collect();
            let ports = if ports.is_empty() { String::new() } else { format!(", ports {}", ports.join(" ")) };
            let default = agent.default_port.map(|port| format!(", default port {port}")).unwrap_or_default();
            let version = agent.version.map(|version| format!(", version {}", shown(&version))).unwrap_or_default();
            format!("connected{ports}{default}{version}")
        },
    );
    let mut rows = vec![
        ("name", shown(&row.name)),
        ("owner", shown(&row.owner)),
        ("access", shown(&row.access)),
        ("created", shown(&row.created_at)),
        ("agent", agent),
        ("address", shown(&row.url)),
        ("ports", shown(path_url.as_ref().unwrap_or(&port_url))),
    ];
    rows.extend(last_disconnect.map(|last| ("disconnected", last.line())));
    match &listening {
        Some(ports) if ports.is_empty() => rows.push(("listening", "nothing".to_owned())),
        Some(ports) => rows.extend(ports.iter().map(|port| ("listening", port.clone()))),
        None => {}
    }
    let proposals = ports.iter().filter_map(|port| port.proposal(args.workspace.as_str()));
    rows.extend(proposals.map(|proposal| ("proposed", proposal)));
    rows.extend(commands.into_iter().map(|command| ("command", command)));
    if let Some(look) = &row.state {
        match &row.provider {
            Some(provider) => rows.push(("provider", shown(provider))),
            None => rows.push(("cluster", row.cluster.as_deref().map(shown).unwrap_or_default())),
        }
        if let Some(template) = &row.template {
            rows.push(("template", template::words(template, row.template_parameters.as_ref())));
        }
        if let Some(url) = &row.run_url {
            rows.push(("job", shown(url)));
        }
        rows.push(("state", shown(&look.told())));
        rows.push(("wanted", shown(&look.desired)));
    }
    if let Some(told) = idle.as_ref().and_then(|idle| idle.told(&row.owner)) {
        rows.push(("idle stop", told));
    }
    if !shared_with_you.is_empty() {
        let shares: Vec<String> =
            shared_with_you.iter().map(|share| format!("{} ({})", share.port, shown(&share.audience))).collect();
        rows.push(("shared with you", shares.join(", ")));
    }
    Ok(console.finish_with(details(&rows)))
}

async fn share(
    client: &GatewayClient,
    args: &ShareArgs,
    console: &mut Console,
    now: UnixSeconds,
) -> Result<Exit, ClientError> {
    let path = format!("/workspaces/{}/shares", args.workspace);
    let (Some(port), Some(audience)) = (args.port, &args.with) else {
        let Shares { shares } = client.get(&path).await?;
        return Ok(console.finish_with(show_shares(&shares, args.output)));
    };
    for left in (0..TRIES).rev() {
        let (Shares { shares }, tag) = client.get_tagged(&path).await?;
        let Some(wanted) = changed(shares, args, port, audience, now) else {
            console.complain(format_args!("port {port} of {} is not shared with {audience}", args.workspace));
            return Ok(Exit::Failed);
        };
        match client.put(&path, tag.as_deref(), &json!({"shares": wanted})).await {
            Err(error) if error.is_changed_meanwhile() && left > 0 => {}
            Err(error) => return Err(error),
            Ok(()) => break,
        }
    }
    console.hint(done(&args.workspace, port, audience, args, now));
    if args.revoke {
        return Ok(Exit::Success);
    }
    let WorkspaceDetail { port_url, .. } = client.get(&format!("/workspaces/{}", args.workspace)).await?;
    let url = shown(&port_url.replace("{port}", &port.to_string()));
    let expires_at = args.lasting.map(|time| now.later(time).to_string());
    let share = json!(ShareRow { port: port.get(), audience: audience.to_string(), expires_at, unknown_user: false });
    Ok(console.finish_with(opened(&share, &url, args.output)))
}

/// Returns the list after the change; `None` if there is nothing to revoke.
fn changed(
    mut shares: Vec<ShareRow>,
    args: &ShareArgs,
    port: Port,
    audience: &Audience,
    now: UnixSeconds,
) -> Option<Vec<ShareRow>> {
    let audience = audience.to_string();
    let before = shares.len();
    shares.retain(|share| share.port != port.get() || share.audience != audience);
    if args.revoke {
        return (shares.len() < before).then_some(shares);
    }
    let expires_at = args.lasting.map(|time| now.later(time).to_string());
    shares.push(ShareRow { port: port.get(), audience, expires_at, unknown_user: args.unknown_user });
    Some(shares)
}

fn done(workspace: &WorkspaceName, port: Port, audience: &Audience, args: &ShareArgs, now: UnixSeconds) -> String {
    if args.revoke {
        return format!("port {port} of {workspace} is no longer open to {audience}");
    }
    let until = args.lasting.map(|time| format!(" until {}", now.later(time))).unwrap_or_default();
    format!("port {port} of {workspace} is open to {audience}{until}")
}

fn show_shares(shares: &[ShareRow], output: Output) -> String {
    match output {
        Output::Json => format!("{:#}", json!(shares)),
        Output::Text => {
            let rows = shares.iter().map(|share| {
                let until = share.expires_at.as_deref().map_or_else(|| "-".to_owned(), shown);
                [share.port.to_string(), shown(&share.audience), until]
            });
            table::text(["PORT", "AUDIENCE", "UNTIL"], rows)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Cli, GatewayCommand};

    fn args(words: &str) -> ShareArgs {
        let words = format!("gateway workspace share app {words}");
        let command = Cli::try_parse_from(words.split(' ')).unwrap().command;
        let GatewayCommand::Workspace(WorkspaceArgs { command: WorkspaceCommand::Share(args) }) = command else {
            panic!("{command:?}")
        };
        args
    }

    fn rows(shares: &[(u16, &str)]) -> Vec<ShareRow> {
        let row = |(port, audience): &(u16, &str)| ShareRow {
            port: *port,
            audience: (*audience).to_owned(),
            expires_at: None,
            unknown_user: false,
        };
        shares.iter().map(row).collect()
    }

    #[test]
    fn change_touches_one_share_and_keeps_the_others() {
        let now = UnixSeconds::new(1_800_000_000);
        let apply = |words: &str, shares: &[(u16, &str)]| {
            let args = args(words);
            let (port, audience) = (args.port.unwrap(), args.with.clone().unwrap());
            let changed = changed(rows(shares), &args, port, &audience, now)?;
            Some(
                changed
                    .iter()
                    .map(|share| format!("{} {} {:?}", share.port, share.audience, share.expires_at))
                    .collect(),
            )
        };
        let shares = [(80, "public"), (81, "user:ann")];
        let added: Option<Vec<String>> = apply("80 --with user:bob --for 8h", &shares);
        assert_eq!(added.unwrap()[2], "80 user:bob Some(\"2027-01-15T16:00:00Z\")");
        let renewed: Option<Vec<String>> = apply("80 --with public", &shares);
        assert_eq!(renewed.unwrap().len(), 2);
        let removed: Option<Vec<String>> = apply("80 --with public --revoke", &shares);
        assert_eq!(removed.unwrap(), ["81 user:ann None"]);
        assert_eq!(apply("82 --with public --revoke", &shares), None);
    }
}
