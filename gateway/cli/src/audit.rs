//! `gateway audit`: search the audit log of all replicas, over a gateway's API as one of its operators, or straight on the
//! database.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::args::{AuditArgs, AuditCommand, AuditTime, SearchAuditArgs};
use super::client::{ClientError, GatewayClient, shown};
use super::place::{complain, operators_client};
use super::token::{fail, open_as_operator};
use super::{Cli, Console, Exit, Output, table};
use gateway_net::audit::as_in_lines;
use gateway_store::{AuditFilter, FoundRecord, Store, StoreError};
use gateway_types::UnixSeconds;

/// Most records of one page.
const PAGE_MAX: u32 = 200;

/// Most pages that are asked for: a gateway that never ends is not one.
const PAGES_MAX: usize = 10_000;

/// Names of fields of a line that have a column of their own, or say nothing to people.
const IN_COLUMNS: [&str; 6] = ["v", "time", "event", "by", "workspace", "trace"];

#[derive(Deserialize)]
struct RecordPage {
    records: Vec<Value>,
    next_cursor: Option<String>,
}

/// Runs `gateway audit`.
pub async fn run_audit(
    cli: &Cli,
    args: &AuditArgs,
    env: &BTreeMap<String, String>,
    console: &mut Console,
    now: UnixSeconds,
) -> Exit {
    let AuditCommand::Search(args) = &args.command;
    let found = match operators_client(cli, &args.remote, env, console) {
        Ok(Some(client)) => search_there(&client, args, now).await.map_err(|error| complain(&error, console)),
        Ok(None) => match open_as_operator(cli, env, console).await {
            Ok((_, store)) => {
                let found = search_here(&store, args, now).await;
                store.close().await;
                found.map_err(|error| fail(console, &error))
            }
            Err(exit) => Err(exit),
        },
        Err(exit) => Err(exit),
    };
    match found {
        Ok(records) => present(&records, args.output, console),
        Err(exit) => exit,
    }
}

async fn search_there(
    client: &GatewayClient,
    args: &SearchAuditArgs,
    now: UnixSeconds,
) -> Result<Vec<Value>, ClientError> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    let time = |time: Option<AuditTime>| time.map(|time| time.at(now).to_string());
    let (since, until) = (time(args.since), time(args.until));
    let parts = [
        ("q", args.text.as_deref()),
        ("actor", args.actor.as_deref()),
        ("workspace", args.workspace.as_deref()),
        ("event", args.event.as_deref()),
        ("since", since.as_deref()),
        ("until", until.as_deref()),
    ];
    for (name, value) in parts {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    let (query, mut records, mut cursor) = (query.finish(), Vec::new(), String::new());
    for _ in 0..PAGES_MAX {
        let limit = left(args, &records).min(PAGE_MAX);
        let page: RecordPage = client.get(&format!("/admin/audit?{query}&limit={limit}{cursor}")).await?;
        records.extend(page.records);
        match page.next_cursor {
            Some(next) if left(args, &records) > 0 => cursor = format!("&cursor={}", shown(&next)),
            Some(_) | None => break,
        }
    }
    Ok(records)
}

async fn search_here(store: &Store, args: &SearchAuditArgs, now: UnixSeconds) -> Result<Vec<Value>, StoreError> {
    let part = as_in_lines(&args.text.as_deref().unwrap_or_default().to_lowercase()).to_lowercase();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (actor, workspace, event) = (text(&args.actor), text(&args.workspace), text(&args.event));
    let (mut records, mut before) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let filter = AuditFilter {
            part: &part,
            actor: &actor,
            workspace: &workspace,
            event: &event,
            since: args.since.map(|time| time.at(now)),
            until: args.until.map(|time| time.at(now)),
            before,
            limit: left(args, &records).min(PAGE_MAX),
        };
        let page = store.audit_records(&filter).await?;
        records.extend(page.records.iter().map(row));
        before = page.before;
        if before.is_none() || left(args, &records) == 0 {
            break;
        }
    }
    Ok(records)
}

/// Returns how many more records are wanted.
fn left(args: &SearchAuditArgs, records: &[Value]) -> u32 {
    args.limit.saturating_sub(u32::try_from(records.len()).unwrap_or(u32::MAX))
}

/// Writes a record as the API does.
fn row(found: &FoundRecord) -> Value {
    let FoundRecord { replica, record, .. } = found;
    let at = UnixSeconds::of_milliseconds(record.at_ms);
    json!({
        "at": at.to_string(),
        "event": record.event,
        "actor": record.actor,
        "workspace": record.workspace,
        "address": record.peer,
        "trace_id": record.trace,
        "replica": replica,
        "record": serde_json::from_str::<Value>(&record.line).unwrap_or_default(),
    })
}

fn present(records: &[Value], output: Output, console: &mut Console) -> Exit {
    match output {
        Output::Json => console.finish_with(format_args!("{:#}", json!(records))),
        Output::Text if records.is_empty() => {
            console.hint("nothing was found");
            Exit::Success
        }
        Output::Text => {
            let cell = |row: &Value, name: &str| row[name].as_str().map_or_else(|| "-".to_owned(), shown);
            let rows = records.iter().map(|row| {
                [
                    cell(row, "at"),
                    cell(row, "actor"),
                    cell(row, "event"),
                    cell(row, "workspace"),
                    details(&row["record"]),
                ]
            });
            console.finish_with(table::text(["TIME", "ACTOR", "EVENT", "WORKSPACE", "DETAILS"], rows))
        }
    }
}

/// Writes the rest of a line as words.
fn details(record: &Value) -> String {
    let fields = record.as_object().into_iter().flatten().filter(|(name, _)| !IN_COLUMNS.contains(&name.as_str()));
    let words = fields.filter(|(_, value)| !value.is_null()).map(|(name, value)| match value.as_str() {
        Some(text) => format!("{name}={text}"),
        None => format!("{name}={value}"),
    });
    shown(&words.collect::<Vec<_>>().join(" "))
}
