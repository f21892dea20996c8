//! `gateway key`: the keys that seal secrets in the database, and their exchange.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::local::{Journal, operator};
use super::token::{fail, open_as_operator};
use super::{Cli, Console, Exit, KeyArgs, KeyCommand, KeyOutput, Output, table};
use gateway_config::Config;
use gateway_net::audit::{AuditEvent, Text};
use gateway_store::{KeyFileChange, KeyId, SealedCounts, Store, StoreError, change_key_file};
use gateway_types::UnixSeconds;

/// Runs `gateway key`.
pub async fn run_key(
    cli: &Cli,
    args: &KeyArgs,
    env: &BTreeMap<String, String>,
    console: &mut Console,
    now: UnixSeconds,
) -> Exit {
    let (config, store) = match open_as_operator(cli, env, console).await {
        Ok(opened) => opened,
        Err(exit) => return exit,
    };
    let done = match config.store.key_file() {
        Some(path) => {
            let keys = KeyWork { config: &config, store: &store, path, now };
            keys.run(args.command, console).await
        }
        None => Ok(Exit::BadConfig),
    };
    store.close().await;
    done.unwrap_or_else(|error| fail(console, &error))
}

/// A command's view of the keys.
struct KeyWork<'a> {
    config: &'a Config,
    store: &'a Store,
    path: PathBuf,
    now: UnixSeconds,
}

impl KeyWork<'_> {
    async fn run(&self, command: KeyCommand, console: &mut Console) -> Result<Exit, StoreError> {
        match command {
            KeyCommand::List(KeyOutput { output }) => {
                let (ids, counts) = (self.store.key_ids(), self.store.sealed_counts().await?);
                Ok(list(&ids, &counts, output, console))
            }
            KeyCommand::Add(KeyOutput { output }) => {
                let next = "send SIGHUP to all replicas, which have to have the same file, then: gateway key promote";
                self.change(KeyFileChange::Add, next, output, console).await
            }
            KeyCommand::Promote(KeyOutput { output }) => {
                if self.store.key_ids().len() < 2 {
                    console.complain("the file has one key, which is the first: gateway key add makes another");
                    return Ok(Exit::Failed);
                }
                let next = "send SIGHUP to all replicas, which have to have the same file, then: gateway key reseal";
                self.change(KeyFileChange::Promote, next, output, console).await
            }
            KeyCommand::Reseal(KeyOutput { output }) => self.reseal(output, console).await,
            KeyCommand::Drop(KeyOutput { output }) => self.drop_others(output, console).await,
        }
    }

    async fn change(
        &self,
        change: KeyFileChange,
        next: &str,
        output: Output,
        console: &mut Console,
    ) -> Result<Exit, StoreError> {
        let Ok(journal) = Journal::open(self.config, self.now, console) else { return Ok(Exit::Failed) };
        let ids = change_key_file(&self.path, change)?;
        let how = match change {
            KeyFileChange::Add => "add",
            KeyFileChange::Promote => "promote",
            KeyFileChange::DropOthers => "drop",
        };
        self.note(&journal, how, &ids, console).await;
        console.hint(next);
        Ok(show(&self.path, &ids, output, console))
    }

    async fn note(&self, journal: &Journal, how: &'static str, ids: &[KeyId], console: &mut Console) {
        let key = ids.first().map(ToString::to_string).unwrap_or_default();
        let event = AuditEvent::KeysChanged { by: operator(), how, first: Text::new(&key) };
        journal.write(self.store, event, console).await;
    }

    async fn reseal(&self, output: Output, console: &mut Console) -> Result<Exit, StoreError> {
        let Ok(journal) = Journal::open(self.config, self.now, console) else { return Ok(Exit::Failed) };
        let done = {
            let report = |progress: gateway_store::ResealProgress| {
                console.status(format_args!("{} secrets seen, {} sealed anew", progress.seen, progress.resealed));
            };
            self.store.reseal(report).await?
        };
        self.note(&journal, "reseal", &self.store.key_ids(), console).await;
        if done.lost > 0 {
            console.complain(format_args!(
                "{} secrets open with none of the keys, and stay as they are: gateway key list names their tables",
                done.lost
            ));
        }
        Ok(match output {
            Output::Text => console.finish_with(format_args!(
                "{} secrets were sealed anew, of {}: gateway key drop removes the old keys",
                done.resealed, done.seen
            )),
            Output::Json => console.finish_with(format_args!(
                "{:#}",
                json!({"seen": done.seen, "resealed": done.resealed, "lost": done.lost})
            )),
        })
    }

    async fn drop_others(&self, output: Output, console: &mut Console) -> Result<Exit, StoreError> {
        let (ids, counts) = (self.store.key_ids(), self.store.sealed_counts().await?);
        let kept: u64 = ids.iter().skip(1).map(|id| counts.of(*id)).sum();
        if kept > 0 {
            console.complain(format_args!(
                "{kept} secrets are still sealed with the keys that would go: send SIGHUP to all replicas, then gateway key \
                 reseal"
            ));
            return Ok(Exit::Failed);
        }
        let next =
            "give all replicas the same file, and send them SIGHUP; those that had not read the first key refuse it";
        self.change(KeyFileChange::DropOthers, next, output, console).await
    }
}

fn show(path: &Path, ids: &[KeyId], output: Output, console: &mut Console) -> Exit {
    let names: Vec<String> = ids.iter().map(ToString::to_string).collect();
    match output {
        Output::Text => console.finish_with(format_args!(
            "{}: {} seals{}",
            path.display(),
            names.first().map(String::as_str).unwrap_or_default(),
            match names.get(1..).unwrap_or_default() {
                [] => String::new(),
                others => format!(", {} open", others.join(", ")),
            }
        )),
        Output::Json => console.finish_with(format_args!("{:#}", json!({"file": path, "keys": names}))),
    }
}

fn list(ids: &[KeyId], counts: &SealedCounts, output: Output, console: &mut Console) -> Exit {
    let role = |place: usize| if place == 0 { "seals" } else { "opens" };
    if let Output::Json = output {
        let row = |(place, id): (usize, &KeyId)| json!({"key": id.to_string(), "use": role(place), "secrets": counts.of(*id)});
        let keys: Vec<_> = ids.iter().enumerate().map(row).collect();
        let lost: BTreeMap<_, _> = counts.by_none.iter().copied().collect();
        return console.finish_with(format_args!("{:#}", json!({"keys": keys, "sealed_with_none": lost})));
    }
    for (table, count) in &counts.by_none {
        console.complain(format_args!("{count} secrets in {table} open with none of the keys"));
    }
    let rows = ids.iter().enumerate();
    let rows = rows.map(|(place, id)| [id.to_string(), role(place).to_owned(), counts.of(*id).to_string()]);
    console.finish_with(table::text(["KEY", "USE", "SECRETS"], rows))
}
