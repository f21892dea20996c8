//! `gateway cluster`: what workspaces take in a cluster, and orphans there. Everything is asked of a gateway, over its API.

use std::collections::BTreeMap;
use std::time::Duration;

use gateway_types::quota::QuotaItem;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::args::{ClusterArgs, ClusterCommand, OrphansArgs, ShowClusterArgs};
use super::client::{ClientError, GatewayClient, shown};
use super::place::{complain, connect};
use super::{Console, Exit, Output, table};

/// Pause between two requests for an orphan that is still there.
const AGAIN: Duration = Duration::from_millis(500);

#[derive(Deserialize)]
struct ClusterUsage {
    cluster: Vec<UsageRow>,
    user: Vec<UsageRow>,
}

#[derive(Deserialize)]
struct UsageRow {
    item: String,
    used: u64,
    allowed: Option<u64>,
}

#[derive(Deserialize)]
struct OrphanList {
    orphans: Vec<Orphan>,
    #[serde(default)]
    others: usize,
}

#[derive(Clone, Deserialize)]
struct Orphan {
    id: String,
    name: String,
    namespace: String,
    objects: u32,
    #[serde(default)]
    claims: Vec<String>,
    created_at: Option<String>,
    changed_at: Option<String>,
}

#[derive(Deserialize)]
struct Removal {
    gone: bool,
    #[serde(default)]
    left: Vec<LeftObject>,
}

#[derive(Deserialize)]
struct LeftObject {
    object: String,
    #[serde(default)]
    finalizers: Vec<String>,
}

/// Runs `gateway cluster`.
pub async fn run_cluster(args: &ClusterArgs, env: &BTreeMap<String, String>, console: &mut Console) -> Exit {
    let done = match &args.command {
        ClusterCommand::Show(args) => match connect(&args.remote, env, console) {
            Ok((client, _)) => show(&client, args, console).await,
            Err(exit) => return exit,
        },
        ClusterCommand::Orphans(args) => match connect(&args.remote, env, console) {
            Ok((client, _)) => orphans(&client, args, console).await,
            Err(exit) => return exit,
        },
    };
    done.unwrap_or_else(|error| complain(&error, console))
}

async fn show(client: &GatewayClient, args: &ShowClusterArgs, console: &mut Console) -> Result<Exit, ClientError> {
    let whole: Value = client.get(&format!("/agents/{}/usage", args.cluster)).await?;
    if args.output == Output::Json {
        return Ok(console.finish_with(format_args!("{whole:#}")));
    }
    let usage = ClusterUsage::deserialize(&whole).unwrap_or(ClusterUsage { cluster: Vec::new(), user: Vec::new() });
    let rows = usage.cluster.iter().map(|all| {
        let own = usage.user.iter().find(|own| own.item == all.item);
        let amounts = |row: Option<&UsageRow>| row.map_or_else(|| ["-".to_owned(), "-".to_owned()], UsageRow::told);
        let ([own, own_most], [used, most]) = (amounts(own), amounts(Some(all)));
        [name(&all.item), own, own_most, used, most]
    });
    Ok(console.finish_with(table::text(["", "YOURS", "OF AT MOST", "ALL USERS", "OF AT MOST"], rows)))
}

fn name(item: &str) -> String {
    match QuotaItem::named(item) {
        Some(QuotaItem::Workspaces) => "workspaces".to_owned(),
        Some(QuotaItem::Running) => "running".to_owned(),
        Some(QuotaItem::Cpu) => "CPU requested".to_owned(),
        Some(QuotaItem::Memory) => "memory requested".to_owned(),
        Some(QuotaItem::Storage) => "storage".to_owned(),
        None => shown(item),
    }
}

impl UsageRow {
    fn told(&self) -> [String; 2] {
        let amount = |amount: u64| match QuotaItem::named(&self.item) {
            // The row says of what.
            Some(item) => item.told(amount).split(' ').next().unwrap_or_default().to_owned(),
            None => amount.to_string(),
        };
        [amount(self.used), self.allowed.map_or_else(|| "any".to_owned(), amount)]
    }
}

async fn orphans(client: &GatewayClient, args: &OrphansArgs, console: &mut Console) -> Result<Exit, ClientError> {
    let path = format!("/agents/{}/orphans", args.cluster);
    let whole: Value = client.get(&path).await?;
    let list = OrphanList::deserialize(&whole).unwrap_or(OrphanList { orphans: Vec::new(), others: 0 });
    if args.delete.is_empty() && !args.delete_all {
        return Ok(listed(&whole, &list, args, console));
    }
    let chosen = match choose(&list.orphans, args) {
        Ok(chosen) => chosen,
        Err(words) => {
            console.complain(words);
            return Ok(Exit::Failed);
        }
    };
    if chosen.is_empty() {
        console.hint(format_args!("{} has no orphans", args.cluster));
        return Ok(Exit::Success);
    }
    if !is_sure(&chosen, args, console) {
        return Ok(Exit::Failed);
    }
    let (deadline, mut gone, mut left) = (Instant::now() + args.timeout, Vec::new(), Vec::new());
    for orphan in &chosen {
        match delete(client, &format!("{path}/{}", orphan.id), orphan, deadline, console).await {
            Ok(None) => gone.push(orphan.id.clone()),
            Ok(Some(still)) => left.push(format!("{}: {still}", shown(&orphan.id))),
            // The others are tried all the same.
            Err(error) => left.push(format!("{}: {error}", shown(&orphan.id))),
        }
    }
    if args.output == Output::Json && left.is_empty() {
        return Ok(console.finish_with(format_args!("{:#}", json!({"deleted": gone}))));
    }
    for line in &left {
        console.complain(line);
    }
    if !gone.is_empty() {
        console.hint(format_args!("{} deleted: {}", gone.len(), shown(&gone.join(", "))));
    }
    Ok(if left.is_empty() { Exit::Success } else { Exit::Failed })
}

fn listed(whole: &Value, list: &OrphanList, args: &OrphansArgs, console: &mut Console) -> Exit {
    if args.output == Output::Json {
        return console.finish_with(format_args!("{whole:#}"));
    }
    if list.others > 0 {
        let others = list.others;
        console
            .hint(format_args!("{others} more were made by another gateway, or in another zone, and are left alone"));
    }
    if list.orphans.is_empty() {
        console.hint(format_args!("{} has no orphans", args.cluster));
        return Exit::Success;
    }
    let dash = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), shown);
    let rows = list.orphans.iter().map(|orphan| {
        let claims = if orphan.claims.is_empty() { "-".to_owned() } else { shown(&orphan.claims.join(" ")) };
        [
            shown(&orphan.name),
            shown(&orphan.namespace),
            orphan.objects.to_string(),
            claims,
            dash(&orphan.created_at),
            dash(&orphan.changed_at),
            shown(&orphan.id),
        ]
    });
    let head = ["NAME", "NAMESPACE", "OBJECTS", "STORAGE CLAIMS", "CREATED", "LAST CHANGED", "ID"];
    console.finish_with(table::text(head, rows))
}

/// Finds the orphans that are named.
fn choose(orphans: &[Orphan], args: &OrphansArgs) -> Result<Vec<Orphan>, String> {
    if args.delete_all {
        return Ok(orphans.to_vec());
    }
    let mut chosen: Vec<Orphan> = Vec::new();
    for name in &args.delete {
        let found: Vec<&Orphan> = orphans.iter().filter(|one| one.id == *name || one.name == *name).collect();
        match found.as_slice() {
            [] => return Err(format!("{name} is no orphan of {}: nothing was deleted", args.cluster)),
            [one] if chosen.iter().all(|other| other.id != one.id) => chosen.push((*one).clone()),
            [_] => {}
            several => {
                let ids: Vec<String> = several.iter().map(|one| shown(&one.id)).collect();
                return Err(format!("there are {} orphans {name}: name one of {}", ids.len(), ids.join(", ")));
            }
        }
    }
    Ok(chosen)
}

/// Asks the user to confirm. Without a person at the terminal, `--yes` has to be given.
fn is_sure(chosen: &[Orphan], args: &OrphansArgs, console: &mut Console) -> bool {
    if args.yes {
        return true;
    }
    if !console.is_attended() {
        console.complain("give --yes to delete without being asked");
        return false;
    }
    let names: Vec<String> = chosen.iter().map(|one| shown(&one.id)).collect();
    let (count, names) = (chosen.len(), names.join(", "));
    let question = format!(
        "Delete {count} of {} in {}: {names}? Their storage is deleted, which cannot be taken back.",
        if count == 1 { "the orphans" } else { "its orphans" },
        args.cluster
    );
    let is_sure = console.confirm(question);
    if !is_sure {
        console.complain("nothing was deleted");
    }
    is_sure
}

/// Asks until an orphan is gone. Returns what is left of it at the deadline.
async fn delete(
    client: &GatewayClient,
    path: &str,
    orphan: &Orphan,
    deadline: Instant,
    console: &mut Console,
) -> Result<Option<String>, ClientError> {
    let mut is_first = true;
    loop {
        let removal: Removal = match client.delete_told(path).await {
            Ok(removal) => removal,
            // It went between two requests.
            Err(error) if !is_first && error.code() == Some("not_found") => return Ok(None),
            Err(error) => return Err(error),
        };
        if removal.gone {
            return Ok(None);
        }
        is_first = false;
        let left: Vec<String> = removal.left.iter().map(LeftObject::told).collect();
        let left = if left.is_empty() { "it is still being deleted".to_owned() } else { left.join("; ") };
        console.status(format_args!("{}: {left}", shown(&orphan.id)));
        if Instant::now() >= deadline {
            return Ok(Some(format!("still there: {left}")));
        }
        tokio::time::sleep(AGAIN).await;
    }
}

impl LeftObject {
    fn told(&self) -> String {
        let finalizers = self.finalizers.join(", ");
        match finalizers.is_empty() {
            true => shown(&self.object),
            false => format!("{} (held by {})", shown(&self.object), shown(&finalizers)),
        }
    }
}
