//! `gateway token`: create, list, rotate and revoke, straight on the database or over a gateway's API.

mod out;
mod remote;
mod row;

use std::collections::BTreeMap;

pub use self::out::OutArgs;
use self::out::TokenFile;
use self::row::TokenItem;
use super::local::{Journal, operator};
use super::{Cli, Console, CreateTokenArgs, Exit, ListArgs, Output, RotateTokenArgs, TokenArgs, TokenCommand, place};
use gateway_config::{AuthMode, Config, StoreUrl};
use gateway_net::audit::{AuditEvent, Text};
use gateway_store::{NewToken, Store, StoreError, Terms, TokenId, TokenRotation};
use gateway_types::token::TokenKind;
use gateway_types::{UnixSeconds, UserName, WorkspaceName};

/// Runs `gateway token`.
pub async fn run_token(
    cli: &Cli,
    args: &TokenArgs,
    env: &BTreeMap<String, String>,
    console: &mut Console,
    now: UnixSeconds,
) -> Exit {
    let remote = match &args.command {
        TokenCommand::Create(CreateTokenArgs { remote, .. })
        | TokenCommand::List(ListArgs { remote, .. })
        | TokenCommand::Rotate(RotateTokenArgs { remote, .. }) => remote,
        TokenCommand::Revoke(revoke) => &revoke.remote,
    };
    match place::client(cli, remote, env, console) {
        Ok(Some(client)) => remote::run(&client, args, console).await,
        Ok(None) => run_here(cli, args, env, console, now).await.unwrap_or_else(|exit| exit),
        Err(exit) => exit,
    }
}

async fn run_here(
    cli: &Cli,
    args: &TokenArgs,
    env: &BTreeMap<String, String>,
    console: &mut Console,
    now: UnixSeconds,
) -> Result<Exit, Exit> {
    let purpose = match &args.command {
        TokenCommand::Create(_) => Use::New,
        TokenCommand::List(_) | TokenCommand::Rotate(_) | TokenCommand::Revoke(_) => Use::Present,
    };
    let (config, store) = open_store(cli, env, purpose, &mut *console).await?;
    let done = run_on(&store, &config, args, console, now).await;
    store.close().await;
    done
}

async fn run_on(
    store: &Store,
    config: &Config,
    args: &TokenArgs,
    console: &mut Console,
    now: UnixSeconds,
) -> Result<Exit, Exit> {
    if let TokenCommand::List(list) = &args.command {
        let tokens = store.list_tokens().await.map_err(|error| fail(console, &error))?;
        let rows: Vec<TokenItem> = tokens.iter().map(|token| TokenItem::of(token, now)).collect();
        return Ok(console.finish_with(row::show(&rows, list.output)));
    }
    let journal = Journal::open(config, now, console)?;
    match &args.command {
        TokenCommand::Create(create) => create_token(store, config, &journal, create, console, now).await,
        TokenCommand::Rotate(rotate) => rotate_token(store, &journal, rotate, console, now).await,
        TokenCommand::Revoke(revoke) => revoke_token(store, &journal, revoke.id, console, now).await,
        TokenCommand::List(_) => Ok(Exit::Success),
    }
}

/// Use of the database by a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Reads it, or changes its content.
    Present,
    /// May make it, if a configuration names it.
    New,
}

/// Opens the configured database for a command that works nowhere else; otherwise reports the reason and returns how the
/// command ends.
pub(super) async fn open_as_operator(
    cli: &Cli,
    env: &BTreeMap<String, String>,
    console: &mut Console,
) -> Result<(Config, Store), Exit> {
    place::for_operator(cli, env).map_err(|error| place::complain(&error, console))?;
    open_store(cli, env, Use::Present, console).await
}

/// Opens the configured database; otherwise reports the reason and returns how the command ends.
pub(super) async fn open_store(
    cli: &Cli,
    env: &BTreeMap<String, String>,
    purpose: Use,
    console: &mut Console,
) -> Result<(Config, Store), Exit> {
    let config = cli.load_config(env).map_err(|bad| {
        console.complain(bad);
        Exit::BadConfig
    })?;
    if let StoreUrl::SqliteFile(path) = &config.store.url {
        if let Some(stray) = config.stray_database() {
            console.complain(stray);
            return Err(Exit::BadConfig);
        }
        let is_made = purpose == Use::New && place::is_configured(cli, env);
        if !is_made && !path.exists() {
            console.complain(format_args!(
                "there is no database {}: gateway serve makes it at its first start; is this the gateway's machine, and \
                 its configuration?",
                path.display()
            ));
            return Err(Exit::Failed);
        }
    }
    if config.store.url == StoreUrl::SqliteMemory {
        console.complain("store.url is sqlite::memory:, which ends with this command; name a file");
        return Err(Exit::BadConfig);
    }
    console.hint(format_args!("as the gateway's operator, on {}", config.store.url));
    let store = Store::open_with(&config.store).await.map_err(|error| fail(console, &error))?;
    Ok((config, store))
}

pub(super) fn fail(console: &mut Console, error: &StoreError) -> Exit {
    console.complain_of(error);
    Exit::Failed
}

async fn create_token(
    store: &Store,
    config: &Config,
    journal: &Journal,
    args: &CreateTokenArgs,
    console: &mut Console,
    now: UnixSeconds,
) -> Result<Exit, Exit> {
    let file = prepare(&args.out, console)?;
    let terms = Terms { note: args.note.clone(), expires_at: args.expires.map(|time| now.later(time)) };
    let made = match (&args.workspace, &args.cluster, &args.user) {
        (Some(workspace), None, None) => match owner(store, config, workspace, args.owner.as_ref()).await {
            Ok(Some(owner)) => store.create_agent_token_with(workspace, &owner, &terms, now).await,
            Ok(None) => {
                console.complain(format_args!("{workspace} is new: name its owner with --owner"));
                return Err(Exit::Usage);
            }
            Err(error) => Err(error),
        },
        (None, Some(cluster), None) => store.create_cluster_token_with(cluster, &terms, now).await,
        (None, None, Some(user)) => store.create_user_token_with(user, &terms, now).await,
        (None, None, None) | (Some(_), Some(_), _) | (Some(_), _, Some(_)) | (_, Some(_), Some(_)) => {
            console.complain("give one of --workspace, --cluster and --user");
            return Err(Exit::Usage);
        }
    };
    let made = made.map_err(|error| fail(console, &error))?;
    let (kind, subject) = speaks_for(args);
    let event = AuditEvent::TokenCreated {
        by: operator(),
        token: Text::of(made.id),
        subject_kind: kind.as_str(),
        subject,
        expires_at: terms.expires_at.map(Text::of),
        note: terms.note.as_ref().map(|note| Text::new(note.as_str())),
    };
    journal.write(store, event, console).await;
    let expires_at = terms.expires_at.map(|time| time.to_string());
    let shown = Handed { id: made.id.to_string(), token: made.token.reveal(), expires_at: expires_at.as_deref(), file };
    hand_over(store, journal, &made, shown, args.output, console, now).await
}

/// Makes the file of `--out`, or reports the reason why not.
fn prepare(args: &OutArgs, console: &mut Console) -> Result<Option<TokenFile>, Exit> {
    TokenFile::prepare(args).map_err(|error| {
        console.complain(error);
        Exit::Failed
    })
}

/// A token on its way to the caller.
struct Handed<'a> {
    id: String,
    token: &'a str,
    expires_at: Option<&'a str>,
    file: Option<TokenFile>,
}

impl Handed<'_> {
    /// Writes it to its destination, and reports what its user has to know.
    fn give(self, output: Output, console: &mut Console) -> std::io::Result<()> {
        let Self { id, token, expires_at, file } = self;
        let Some(file) = file else {
            console.data(row::show_made(&id, token, expires_at, output))?;
            console
                .hint(format_args!("{id} is shown this once; keep it in a file that only its user can read (--out)"));
            return Ok(());
        };
        let path = file.path().to_owned();
        file.keep(token)?;
        match output {
            Output::Text => console.complain(format_args!("{id} is in {}", path.display())),
            // The token is written, whether or not its id can be.
            Output::Json => console.data(row::show_kept(&id, &path, expires_at)).unwrap_or_default(),
        }
        Ok(())
    }
}

async fn rotate_token(
    store: &Store,
    journal: &Journal,
    args: &RotateTokenArgs,
    console: &mut Console,
    now: UnixSeconds,
) -> Result<Exit, Exit> {
    let file = prepare(&args.out, console)?;
    let rotated = store.rotate_token(None, args.id, args.overlap, args.expires, now).await;
    let (made, expires_at, until) = match rotated.map_err(|error| fail(console, &error))? {
        TokenRotation::Done { successor, expires_at, until, .. } => (successor, expires_at, until),
        TokenRotation::NoSuchToken => return Err(no_such(args.id, console)),
        TokenRotation::NotLive => {
            console.complain(format_args!("{} was revoked, has expired, or has a successor already", args.id));
            return Err(Exit::Failed);
        }
    };
    let (token, successor) = (Text::of(args.id), Text::of(made.id));
    journal
        .write(store, AuditEvent::TokenRotated { by: operator(), token, successor, until: Text::of(until) }, console)
        .await;
    let expires_at = expires_at.map(|time| time.to_string());
    let shown = Handed { id: made.id.to_string(), token: made.token.reveal(), expires_at: expires_at.as_deref(), file };
    let exit = hand_over(store, journal, &made, shown, args.output, console, now).await?;
    console.hint(format_args!("{} stays good until {until}", args.id));
    Ok(exit)
}

/// Returns the kind of the requested token, and the name that it speaks for.
fn speaks_for(args: &CreateTokenArgs) -> (TokenKind, Text) {
    match (&args.workspace, &args.cluster, &args.user) {
        (Some(workspace), _, _) => (TokenKind::Agent, Text::of(workspace)),
        (None, Some(cluster), _) => (TokenKind::Cluster, Text::of(cluster)),
        (None, None, user) => (TokenKind::User, user.as_ref().map_or_else(|| Text::new(""), Text::of)),
    }
}

/// Prints a token that was just made, this once.
async fn hand_over(
    store: &Store,
    journal: &Journal,
    made: &NewToken,
    shown: Handed<'_>,
    output: Output,
    console: &mut Console,
    now: UnixSeconds,
) -> Result<Exit, Exit> {
    if let Err(error) = shown.give(output, console) {
        console.complain(format_args!("cannot write the token: {error}"));
        // The token was never shown, so no user would ever revoke it.
        revoke_token(store, journal, made.id, console, now).await?;
        return Err(Exit::Failed);
    }
    Ok(Exit::Success)
}

async fn revoke_token(
    store: &Store,
    journal: &Journal,
    id: TokenId,
    console: &mut Console,
    now: UnixSeconds,
) -> Result<Exit, Exit> {
    match store.revoke_token(id, now).await {
        Ok(true) => {
            journal.write(store, AuditEvent::TokenRevoked { by: operator(), token: Text::of(id) }, console).await;
            console.hint(format_args!("{id} is revoked"));
            Ok(Exit::Success)
        }
        Ok(false) => Err(no_such(id, console)),
        Err(error) => Err(fail(console, &error)),
    }
}

fn no_such(id: TokenId, console: &mut Console) -> Exit {
    console.complain(format_args!("there is no token {id}"));
    Exit::Failed
}

/// Returns the present or future owner of a workspace; `None` for a new one without a named or a default owner.
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

/// Returns the owner of a new workspace when none is named.
pub(super) fn default_owner(mode: AuthMode) -> Option<UserName> {
    match mode {
        #[expect(clippy::expect_used, reason = "the text is a constant, and a test makes a workspace with it")]
        AuthMode::Dev => Some("dev".parse().expect("`dev` is a user name")),
        AuthMode::Oidc => None,
    }
}
