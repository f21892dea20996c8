//! `gateway token`: create, list and revoke, straight on the database. A running gateway sees the change.

use std::collections::BTreeMap;

use serde_json::json;

use super::{Cli, Console, CreateTokenArgs, Exit, Output, TokenArgs, TokenCommand};
use crate::config::{AuthMode, Config, StoreUrl};
use crate::model::{UnixSeconds, UserName, WorkspaceName};
use crate::store::{NewToken, Store, StoreError, TokenRecord, TokenSubject};

/// Runs `gateway token`.
pub async fn run_token(
    cli: &Cli,
    args: &TokenArgs,
    env: &BTreeMap<String, String>,
    console: &mut Console,
    now: UnixSeconds,
) -> Exit {
    let (config, store) = match open_store(cli, env, console).await {
        Ok(opened) => opened,
        Err(exit) => return exit,
    };
    let exit = match &args.command {
        TokenCommand::Create(create) => create_token(&store, &config, create, console, now).await,
        TokenCommand::List { output } => match store.list_tokens().await {
            Ok(tokens) => console.finish_with(show(&tokens, *output, now)),
            Err(error) => fail(console, &error),
        },
        TokenCommand::Revoke { id } => match store.revoke_token(*id, now).await {
            Ok(true) => {
                console.hint(format_args!("{id} is revoked"));
                Exit::Success
            }
            Ok(false) => {
                console.complain(format_args!("there is no token {id}"));
                Exit::Failed
            }
            Err(error) => fail(console, &error),
        },
    };
    store.close().await;
    exit
}

/// Opens the configured database, or says why not and returns how the command ends.
pub(super) async fn open_store(
    cli: &Cli,
    env: &BTreeMap<String, String>,
    console: &mut Console,
) -> Result<(Config, Store), Exit> {
    let config = cli.load_config(env).map_err(|bad| {
        console.complain(bad);
        Exit::BadConfig
    })?;
    if config.store.url == StoreUrl::SqliteMemory {
        console.complain("store.url is sqlite::memory:, which ends with this command; name a file");
        return Err(Exit::BadConfig);
    }
    let store = Store::open(&config.store.url.to_string()).await.map_err(|error| fail(console, &error))?;
    Ok((config, store))
}

pub(super) fn fail(console: &mut Console, error: &StoreError) -> Exit {
    console.complain_of(error);
    Exit::Failed
}

async fn create_token(
    store: &Store,
    config: &Config,
    args: &CreateTokenArgs,
    console: &mut Console,
    now: UnixSeconds,
) -> Exit {
    let made = match (&args.workspace, &args.user) {
        (Some(workspace), None) => match owner(store, config, workspace, args.owner.as_ref()).await {
            Ok(Some(owner)) => store.create_agent_token(workspace, &owner, now).await,
            Ok(None) => {
                console.complain(format_args!("{workspace} is new: name its owner with --owner"));
                return Exit::Usage;
            }
            Err(error) => Err(error),
        },
        (None, Some(user)) => store.create_user_token(user, now).await,
        (Some(_), Some(_)) | (None, None) => {
            console.complain("give either --workspace or --user");
            return Exit::Usage;
        }
    };
    let NewToken { id, token } = match made {
        Ok(made) => made,
        Err(error) => return fail(console, &error),
    };
    if let Err(error) = console.data(token.reveal()) {
        console.complain(format_args!("cannot write the token: {error}"));
        // Nobody has seen it, so nobody would ever revoke it.
        if let Err(error) = store.revoke_token(id, now).await {
            console.complain_of(&error);
        }
        return Exit::Failed;
    }
    console.hint(format_args!("{id} is shown this once; keep it in a file that only its user can read"));
    Exit::Success
}

/// Returns whose a workspace is or will be; `None` for a new one when nobody is named and there is no default.
async fn owner(
    store: &Store,
    config: &Config,
    workspace: &WorkspaceName,
    named: Option<&UserName>,
) -> Result<Option<UserName>, StoreError> {
    if let Some(named) = named {
        return Ok(Some(named.clone()));
    }
    let present = store.workspace(workspace).await?;
    Ok(present.map(|present| present.owner).or_else(|| default_owner(config.auth.mode)))
}

/// Returns who owns a new workspace when nobody is named.
fn default_owner(mode: AuthMode) -> Option<UserName> {
    match mode {
        #[expect(clippy::expect_used, reason = "the text is a constant, and a test makes a workspace with it")]
        AuthMode::Dev => Some("dev".parse().expect("`dev` is a user name")),
        AuthMode::Oidc => None,
    }
}

/// Returns the state as one word.
fn state(token: &TokenRecord, now: UnixSeconds) -> &'static str {
    match (token.is_live(now), token.revoked_at) {
        (true, _) => "live",
        (false, Some(_)) => "revoked",
        (false, None) => "expired",
    }
}

fn subject(token: &TokenRecord) -> &str {
    match &token.subject {
        TokenSubject::Agent { workspace, .. } => workspace.as_str(),
        TokenSubject::User { user } => user.as_str(),
    }
}

fn show(tokens: &[TokenRecord], output: Output, now: UnixSeconds) -> String {
    match output {
        Output::Text => show_text(tokens, now),
        Output::Json => show_json(tokens, now),
    }
}

fn show_text(tokens: &[TokenRecord], now: UnixSeconds) -> String {
    let header = ["ID", "KIND", "FOR", "ENDS IN", "STATE", "CREATED"];
    let rows = tokens.iter().map(|token| {
        [
            token.id.to_string(),
            token.subject.kind().to_string(),
            subject(token).to_owned(),
            token.hint.clone(),
            state(token, now).to_owned(),
            token.created_at.to_string(),
        ]
    });
    super::table::text(header, rows)
}

fn show_json(tokens: &[TokenRecord], now: UnixSeconds) -> String {
    let time = |time: Option<UnixSeconds>| time.map(|time| time.to_string());
    let rows: Vec<_> = tokens
        .iter()
        .map(|token| {
            let (workspace, user) = match &token.subject {
                TokenSubject::Agent { workspace, .. } => (Some(workspace.as_str()), None),
                TokenSubject::User { user } => (None, Some(user.as_str())),
            };
            json!({
                "id": token.id.to_string(),
                "kind": token.subject.kind().as_str(),
                "workspace": workspace,
                "user": user,
                "hint": token.hint,
                "state": state(token, now),
                "created_at": token.created_at.to_string(),
                "expires_at": time(token.expires_at),
                "revoked_at": time(token.revoked_at),
            })
        })
        .collect();
    format!("{:#}", json!(rows))
}
