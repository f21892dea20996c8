//! `gateway backup` and `gateway restore`: a copy of the database and the keys, on the gateway's own machine.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::local::{Journal, operator};
use super::{BackupArgs, Cli, Console, Exit, Output, RestoreArgs, VERSION, place};
use gateway_config::Config;
use gateway_net::audit::{AuditEvent, AuditRecord};
use gateway_store::backup::{BackupError, BackupHead, Replacing, WithKeys, backup, check, restore};
use gateway_store::{Store, inspect};
use gateway_types::UnixSeconds;

/// Runs `gateway backup`.
pub async fn run_backup(
    cli: &Cli,
    args: &BackupArgs,
    env: &BTreeMap<String, String>,
    console: &mut Console,
    now: UnixSeconds,
) -> Exit {
    if let Some(file) = &args.check {
        return match check(file) {
            Ok(head) => show(&head, file, args.output, console),
            Err(error) => failed(console, &error),
        };
    }
    let Some(to) = &args.to else { return Exit::Usage };
    let config = match configuration(cli, env, console) {
        Ok(config) => config,
        Err(exit) => return exit,
    };
    let journal = match Journal::open(&config, now, console) {
        Ok(journal) => journal,
        Err(exit) => return exit,
    };
    let with = if args.without_key { WithKeys::No } else { WithKeys::Yes };
    let head = match backup(&config.store, to, with, VERSION, now).await {
        Ok(head) => head,
        Err(error) => return failed(console, &error),
    };
    let event = AuditEvent::BackupMade { by: operator(), keys: with == WithKeys::Yes };
    note(&journal, &config, event, console).await;
    if head.schema.is_none() {
        console.complain(
            "the keys alone are in it: back the database up with pg_dump --format=custom --file=FILE DATABASE",
        );
    }
    show(&head, to, args.output, console)
}

/// Runs `gateway restore`.
pub async fn run_restore(
    cli: &Cli,
    args: &RestoreArgs,
    env: &BTreeMap<String, String>,
    console: &mut Console,
    now: UnixSeconds,
) -> Exit {
    let config = match configuration(cli, env, console) {
        Ok(config) => config,
        Err(exit) => return exit,
    };
    let journal = match Journal::open(&config, now, console) {
        Ok(journal) => journal,
        Err(exit) => return exit,
    };
    let replacing = if args.replace { Replacing::Allowed } else { Replacing::Refused };
    let restored = match restore(&config.store, &args.from, replacing).await {
        Ok(restored) => restored,
        Err(error) => return failed(console, &error),
    };
    let event = AuditEvent::BackupRestored { by: operator(), made_at: restored.head.made_at };
    note(&journal, &config, event, console).await;
    match args.output {
        Output::Json => {
            let shown = json!({
                "backup": json_of(&restored.head), "sign_ins_ended": restored.sign_ins,
                "aside": restored.aside, "database": config.store.url.to_string(),
            });
            console.finish_with(format_args!("{shown:#}"))
        }
        Output::Text => {
            for path in &restored.aside {
                console.complain(format_args!("put aside: {}", path.display()));
            }
            console.complain(format_args!(
                "{} is what it was at {}; {} sign-ins of browsers ended. Revoke again what was revoked since: tokens, \
                 shares, users (the audit log has it)",
                config.store.url,
                UnixSeconds::new(restored.head.made_at),
                restored.sign_ins
            ));
            Exit::Success
        }
    }
}

/// Reads the configuration of the gateway on this machine.
fn configuration(cli: &Cli, env: &BTreeMap<String, String>, console: &mut Console) -> Result<Config, Exit> {
    place::for_operator(cli, env).map_err(|error| place::complain(&error, console))?;
    let config = cli.load_config(env).map_err(|bad| {
        console.complain(bad);
        Exit::BadConfig
    })?;
    console.hint(format_args!("as the gateway's operator, on {}", config.store.url));
    Ok(config)
}

/// Writes down what was done, in the database too if that has the schema of this program: another one stays as it is, because a backup
/// is what is made before an upgrade.
async fn note(journal: &Journal, config: &Config, event: AuditEvent, console: &mut Console) {
    let is_current = inspect(&config.store).await.is_ok_and(|facts| facts.schema == Some(facts.known));
    if !is_current {
        console.complain("the database has another schema than this program: its audit records do not have this");
        return journal.append(AuditRecord::new(event), console);
    }
    match Store::open_with(&config.store).await {
        Ok(store) => {
            journal.write(&store, event, console).await;
            store.close().await;
        }
        Err(error) => {
            console.complain(format_args!("done, but the database cannot be opened for its audit record: {error}"));
            journal.append(AuditRecord::new(event), console);
        }
    }
}

fn failed(console: &mut Console, error: &BackupError) -> Exit {
    console.complain_of(error);
    Exit::Failed
}

fn json_of(head: &BackupHead) -> Value {
    json!({
        "program": head.program, "made_at": UnixSeconds::new(head.made_at).to_string(), "schema": head.schema,
        "database_bytes": head.database_bytes, "has_keys": head.keys_bytes > 0,
    })
}

fn show(head: &BackupHead, file: &Path, output: Output, console: &mut Console) -> Exit {
    match output {
        Output::Json => console.finish_with(format_args!("{:#}", json_of(head))),
        Output::Text => {
            let database = match head.schema {
                Some(schema) => format!("a database of {} bytes with schema {schema}", head.database_bytes),
                None => "no database".to_owned(),
            };
            let keys = if head.keys_bytes > 0 { "the keys of its secrets" } else { "no keys" };
            console.finish_with(format_args!(
                "{}: {database} and {keys}, made at {} by version {}",
                file.display(),
                UnixSeconds::new(head.made_at),
                head.program
            ))
        }
    }
}
