//! `gateway replicas`: list the gateways that share a database, and drain one. Straight on the database, which each of them
//! reads every few seconds.

mod certificate;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::local::{Journal, operator};
use super::token::{fail, open_as_operator};
use super::{Cli, Console, DrainArgs, Exit, Output, ReplicasArgs, ReplicasCommand, table};
use gateway_net::audit::{AuditEvent, Text};
use gateway_store::{DrainRequest, ReplicaState, Store, StoreError, StoredReplica};
use gateway_types::UnixSeconds;

/// Interval at which a drain that is waited for is read.
const WAIT_INTERVAL: Duration = Duration::from_secs(1);

/// Runs `gateway replicas`.
pub async fn run_replicas(
    cli: &Cli,
    args: &ReplicasArgs,
    env: &BTreeMap<String, String>,
    console: &mut Console,
    now: UnixSeconds,
) -> Exit {
    if let ReplicasCommand::Certificate(args) = &args.command {
        return certificate::make(cli, args, env, console);
    }
    let (config, store) = match open_as_operator(cli, env, console).await {
        Ok(opened) => opened,
        Err(exit) => return exit,
    };
    let done = match &args.command {
        ReplicasCommand::List { output } => list(&store, *output, console).await,
        ReplicasCommand::Drain(args) => match Journal::open(&config, now, console) {
            Ok(journal) => drain(&store, args, &journal, console).await,
            Err(exit) => Ok(exit),
        },
        ReplicasCommand::Certificate(_) => Ok(Exit::Success),
    };
    store.close().await;
    done.unwrap_or_else(|error| fail(console, &error))
}

async fn list(store: &Store, output: Output, console: &mut Console) -> Result<Exit, StoreError> {
    let replicas = store.replicas().await?;
    Ok(match output {
        Output::Text if replicas.is_empty() => {
            console.hint("no replica lives: gateways with `directory = \"memory\"` are not listed");
            Exit::Success
        }
        Output::Text => {
            let rows = replicas.iter().map(|replica| {
                [
                    replica.incarnation.to_string(),
                    state(replica).to_owned(),
                    replica.version.clone(),
                    replica.report.agents.to_string(),
                    replica.report.lanes_ended.to_string(),
                    replica.report.lanes_carried.to_string(),
                    seconds(replica.age),
                    seconds(replica.lives_for),
                    replica.peer_url.clone(),
                ]
            });
            let head = ["ID", "STATE", "VERSION", "AGENTS", "LANES HERE", "CARRIED", "UP", "LEASE", "PEERS URL"];
            console.finish_with(table::text(head, rows))
        }
        Output::Json => {
            let rows: Vec<Value> = replicas.iter().map(show).collect();
            console.finish_with(format_args!("{:#}", json!(rows)))
        }
    })
}

fn show(replica: &StoredReplica) -> Value {
    json!({
        "id": replica.incarnation.get(),
        "state": state(replica),
        "version": replica.version,
        "agents": replica.report.agents,
        "lanes_ended": replica.report.lanes_ended,
        "lanes_carried": replica.report.lanes_carried,
        "up_seconds": replica.age.as_secs(),
        "lease_seconds": replica.lives_for.as_secs(),
        "peer_url": replica.peer_url,
    })
}

fn state(replica: &StoredReplica) -> &'static str {
    match (replica.state, replica.drain) {
        (ReplicaState::Serving, Some(_)) => "drain asked",
        (state, _) => state.as_str(),
    }
}

fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs())
}

async fn drain(store: &Store, args: &DrainArgs, journal: &Journal, console: &mut Console) -> Result<Exit, StoreError> {
    let DrainArgs { id, now, wait, output } = args;
    let request = if *now { DrainRequest::Now } else { DrainRequest::Finish };
    if !store.ask_to_drain(*id, request).await? {
        console.complain(format_args!("there is no replica {id} that lives; gateway replicas list shows them"));
        return Ok(Exit::Failed);
    }
    let how = if *now { "drain now" } else { "drain" };
    journal.write(store, AuditEvent::ReplicaDrained { by: operator(), replica: Text::of(id), how }, console).await;
    if *wait {
        wait_for_end(store, *id, console).await?;
    }
    let state = if *wait { "ended" } else { "asked to drain" };
    Ok(match output {
        Output::Text if *wait => {
            console.hint(format_args!("replica {id} has ended"));
            Exit::Success
        }
        Output::Text => {
            console.hint(format_args!("replica {id} is asked to drain: it begins within seconds"));
            Exit::Success
        }
        Output::Json => console.finish_with(format_args!("{:#}", json!({"id": id, "state": state}))),
    })
}

/// Shows what is left at a replica whenever that changes, until it does not live any more.
async fn wait_for_end(store: &Store, id: u64, console: &mut Console) -> Result<(), StoreError> {
    let mut shown = None;
    loop {
        let replicas = store.replicas().await?;
        let Some(replica) = replicas.into_iter().find(|replica| replica.incarnation.get() == id) else {
            return Ok(());
        };
        let left = (state(&replica), replica.report.agents, replica.report.lanes_ended);
        if shown != Some(left) {
            let (state, agents, lanes) = left;
            console.report(format_args!("replica {id}: {state}, {agents} agents and {lanes} lanes left"));
            shown = Some(left);
        }
        tokio::time::sleep(WAIT_INTERVAL).await;
    }
}
