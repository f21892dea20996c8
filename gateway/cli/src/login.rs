//! `gateway login`, `whoami` and `logout`: sign-in for commands, confirmed in a browser on any machine (RFC 8628).

mod browser;

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::client::{ClientError, GatewayClient, shown};
use super::credentials::{
    CA_FILE_VARIABLE, Credentials, Remote, StoredCredentials, credentials_path, named_gateway, signed_in,
};
use super::place::{Folder, Venue, choose, complain, connect};
use super::{Cli, Console, Exit, Output};
use gateway_types::PublicUrl;
use gateway_types::token::Token;

pub(super) use browser::open as open_browser;

const LOGIN_EXAMPLES: &str = "\
Examples:
  gateway login --gateway https://gateway.example.com
  gateway login                                 again, at the gateway used last
  gateway login --gateway https://gw.lan --ca-file authority.pem

The sign-in is confirmed in a browser, on this machine or any other: compare the code there with the one shown here. It gives a \
token that is good for 30 days, kept in $XDG_CONFIG_HOME/gateway/credentials.json, which only you can read. Programs without a \
person use --token-file or GATEWAY_TOKEN_FILE with a token of gateway token create.";

const WHOAMI_EXAMPLES: &str = "\
Examples:
  gateway whoami
  gateway whoami -o json

Says which identity the commands have here: a user, over the API of a gateway, or the gateway's operator, on its database.";

const LOGOUT_EXAMPLES: &str = "\
Examples:
  gateway logout
  gateway logout --local                        where the gateway cannot be reached any more";

/// Longest time between polls that a gateway may ask for.
const INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Longest time that a gateway may give a user.
const PATIENCE_MAX: Duration = Duration::from_secs(60 * 60);

/// Flags of `gateway login`.
#[derive(Clone, Debug, Args)]
#[command(after_help = LOGIN_EXAMPLES)]
pub struct LoginArgs {
    /// Gateway to sign in to, by its public URL [env: `GATEWAY_URL`] [default: the one signed in to or named last].
    #[arg(long, value_name = "URL", value_parser = super::credentials::parse_gateway)]
    pub gateway: Option<PublicUrl>,
    /// PEM file with authorities to trust beside the system's, now and later [env: `GATEWAY_CA_FILE`].
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<std::path::PathBuf>,
    /// Only print the address, also where a browser could be opened.
    #[arg(long)]
    pub no_browser: bool,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Flags of `gateway whoami`.
#[derive(Clone, Debug, Args)]
#[command(after_help = WHOAMI_EXAMPLES)]
pub struct WhoAmIArgs {
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}

/// Flags of `gateway logout`.
#[derive(Clone, Debug, Args)]
#[command(after_help = LOGOUT_EXAMPLES)]
pub struct LogoutArgs {
    /// Gateway to sign out of [env: `GATEWAY_URL`] [default: the one signed in to or named last].
    #[arg(long, value_name = "URL", value_parser = super::credentials::parse_gateway)]
    pub gateway: Option<PublicUrl>,
    /// Only forget the token here, without revoking it at the gateway: where that cannot be reached any more.
    #[arg(long)]
    pub local: bool,
}

#[derive(Debug, Deserialize)]
struct LoginCodes {
    device_code: String,
    user_code: String,
    verification_uri_complete: String,
    expires_in: u64,
    interval: u64,
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    expires_at: String,
    token_id: String,
    user: String,
}

#[derive(Debug, Deserialize)]
struct LoginWhoAmI {
    user: String,
    /// Missing in answers of older gateways.
    #[serde(default)]
    is_operator: bool,
    token: Option<OwnToken>,
}

#[derive(Debug, Deserialize)]
struct OwnToken {
    id: String,
    expires_at: Option<String>,
}

/// Reason why a sign-in failed.
#[derive(Debug, thiserror::Error)]
enum LoginError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the sign-in was refused in the browser")]
    Denied,
    #[error("the sign-in was not confirmed in time: run gateway login again")]
    Expired,
    #[error("the gateway's answer has no user token")]
    BadToken,
}

/// Runs `gateway login`.
pub async fn run_login(args: &LoginArgs, env: &BTreeMap<String, String>, console: &mut Console) -> Exit {
    match login(args, env, console).await {
        Ok(exit) | Err(exit) => exit,
    }
}

async fn login(args: &LoginArgs, env: &BTreeMap<String, String>, console: &mut Console) -> Result<Exit, Exit> {
    let path = credentials_path(env).map_err(|error| complain(&error, console))?;
    let before = Credentials::load(&path).map_err(|error| complain(&error, console))?;
    let remote = Remote { gateway: args.gateway.clone(), ..Remote::default() };
    let named = named_gateway(&remote, env).map_err(|error| complain(&error, console))?;
    let Some(gateway) = named.or_else(|| before.last_used()) else {
        console.complain("name the gateway: gateway login --gateway URL");
        return Err(Exit::Usage);
    };
    let old = before.get(&gateway);
    let ca_file = args.ca_file.clone().or_else(|| env.get(CA_FILE_VARIABLE).map(Into::into));
    let ca_file = ca_file.or_else(|| old.and_then(|kept| kept.ca_file.clone()));
    // Later commands run in other folders.
    let ca_file = ca_file.map(|path| std::path::absolute(&path).unwrap_or(path));
    let client = GatewayClient::new(&gateway, None, ca_file.as_deref()).map_err(|error| complain(&error, console))?;
    let granted = ask(&client, args, console).await.map_err(|error| complain(&error, console))?;
    let token = Token::parse(&granted.access_token).map_err(|_| complain(&LoginError::BadToken, console))?;
    let Granted { expires_at, token_id, user, .. } = granted;
    let (user, expires_at) = (shown(&user), shown(&expires_at));
    let kept = StoredCredentials {
        token,
        token_id,
        user: user.clone(),
        expires_at: Some(expires_at.clone()),
        ca_file: ca_file.clone(),
    };
    let with_new = GatewayClient::new(&gateway, Some(&kept.token), ca_file.as_deref());
    let kept_now = Credentials::update(&path, |credentials| credentials.keep(&gateway, kept));
    kept_now.map_err(|error| complain(&error, console))?;
    if let (Some(old), Ok(client)) = (old, with_new) {
        // The old token has no holder any more. It ends by itself if this fails.
        drop(client.delete(&format!("/tokens/{}", old.token_id)).await);
    }
    Ok(match args.output {
        Output::Text => {
            console.complain(format_args!("signed in to {gateway} as {user} until {expires_at}"));
            Exit::Success
        }
        Output::Json => {
            let told = json!({"gateway": gateway.to_string(), "user": user, "expires_at": expires_at});
            console.finish_with(told)
        }
    })
}

/// Asks for a sign-in, shows the code, and waits for the user.
async fn ask(client: &GatewayClient, args: &LoginArgs, console: &mut Console) -> Result<Granted, LoginError> {
    let codes: LoginCodes = client.post("/device", &json!({"machine": browser::machine()})).await?;
    let (uri, code) = (shown(&codes.verification_uri_complete), shown(&codes.user_code));
    match args.output {
        Output::Text => {
            console.complain(format_args!("Open this address in a browser, on any machine:\n\n    {uri}\n"));
            console.complain(format_args!("Go on there only if it shows this code:\n\n    {code}\n"));
        }
        Output::Json => {
            let asked = json!({"verification_uri": uri, "user_code": code, "expires_in": codes.expires_in});
            // A reader that is gone will not see the outcome either.
            console.data(asked).unwrap_or_default();
        }
    }
    if !args.no_browser && console.is_attended() {
        browser::open(&uri);
    }
    let deadline = Instant::now() + Duration::from_secs(codes.expires_in).min(PATIENCE_MAX);
    let mut interval = Duration::from_secs(codes.interval.max(1)).min(INTERVAL_MAX);
    loop {
        tokio::time::sleep(interval).await;
        if Instant::now() >= deadline {
            return Err(LoginError::Expired);
        }
        let error = match client.post("/device/token", &json!({"device_code": codes.device_code})).await {
            Ok(granted) => return Ok(granted),
            Err(error) => error,
        };
        match error.code() {
            Some("authorization_pending") => {}
            Some("slow_down") => interval = slower(&error, interval),
            Some("access_denied") => return Err(LoginError::Denied),
            Some("expired_token") => return Err(LoginError::Expired),
            // A gateway that restarts, or a network that is gone for a moment (RFC 8628, section 3.5).
            Some(_) | None if error.is_passing() => interval = (interval * 2).min(INTERVAL_MAX),
            Some(_) | None => return Err(error.into()),
        }
    }
}

/// Returns how long to wait from now on: as the gateway says, but never less than five seconds more (RFC 8628, section 3.5).
fn slower(error: &ClientError, interval: Duration) -> Duration {
    let more = interval + Duration::from_secs(5);
    let told = match error {
        ClientError::Refused(refusal) => refusal.interval.map(Duration::from_secs),
        ClientError::Url(..) | ClientError::Setup(_) | ClientError::Fetch(_) => None,
    };
    told.unwrap_or(more).max(more).min(INTERVAL_MAX)
}

/// Runs `gateway whoami`.
pub async fn run_whoami(cli: &Cli, args: &WhoAmIArgs, env: &BTreeMap<String, String>, console: &mut Console) -> Exit {
    match choose(cli, &args.remote, env, Folder::working()) {
        Ok(Venue::Gateway) => {}
        Ok(Venue::Here) => return say_operator(cli, args.output, env, console),
        Err(error) => return complain(&error, console),
    }
    let (client, signed_in) = match connect(&args.remote, env, console) {
        Ok(connected) => connected,
        Err(exit) => return exit,
    };
    let told: Value = match client.get("/whoami").await {
        Ok(told) => told,
        Err(error) => return complain(&error, console),
    };
    match args.output {
        Output::Json => {
            let mut told = told;
            if let Some(members) = told.as_object_mut() {
                members.insert("gateway".to_owned(), signed_in.gateway.to_string().into());
            }
            console.finish_with(format_args!("{told:#}"))
        }
        Output::Text => {
            let who: LoginWhoAmI = match serde_json::from_value(told) {
                Ok(who) => who,
                Err(error) => return complain(&error, console),
            };
            let token = who.token.map_or_else(String::new, |token| {
                let until = token.expires_at.map(|time| format!(" until {}", shown(&time))).unwrap_or_default();
                format!(", token {}{until}", shown(&token.id))
            });
            let operator = if who.is_operator { ", operator" } else { "" };
            console.finish_with(format_args!("{} at {}{token}{operator}", shown(&who.user), signed_in.gateway))
        }
    }
}

/// Reports that commands work on the database of this machine.
fn say_operator(cli: &Cli, output: Output, env: &BTreeMap<String, String>, console: &mut Console) -> Exit {
    let config = match cli.load_config(env) {
        Ok(config) => config,
        Err(bad) => {
            console.complain(bad);
            return Exit::BadConfig;
        }
    };
    let (database, file) = (&config.store.url, config.file());
    console.finish_with(match output {
        Output::Json => {
            format!("{:#}", json!({"operator": true, "database": database.to_string(), "configuration": file}))
        }
        Output::Text => {
            let by = file.map_or_else(|| "no configuration file".to_owned(), |file| file.display().to_string());
            format!("the gateway's operator, on {database} ({by}); signed in nowhere")
        }
    })
}

/// Runs `gateway logout`.
pub async fn run_logout(args: &LogoutArgs, env: &BTreeMap<String, String>, console: &mut Console) -> Exit {
    match logout(args, env, console).await {
        Ok(exit) | Err(exit) => exit,
    }
}

async fn logout(args: &LogoutArgs, env: &BTreeMap<String, String>, console: &mut Console) -> Result<Exit, Exit> {
    let path = credentials_path(env).map_err(|error| complain(&error, console))?;
    let credentials = Credentials::load(&path).map_err(|error| complain(&error, console))?;
    let remote = Remote { gateway: args.gateway.clone(), ..Remote::default() };
    let named = named_gateway(&remote, env).map_err(|error| complain(&error, console))?;
    let kept =
        named.or_else(|| credentials.last_used()).and_then(|gateway| Some((credentials.get(&gateway)?, gateway)));
    let Some((kept, gateway)) = kept else {
        // Says which of the two it is.
        return Err(match signed_in(&remote, env) {
            Err(error) => complain(&error, console),
            Ok(_) => Exit::Failed,
        });
    };
    if !args.local {
        revoke(&gateway, kept, console).await?;
    }
    Credentials::update(&path, |credentials| credentials.forget(&gateway).map(drop))
        .map_err(|error| complain(&error, console))?;
    console.hint(format_args!("signed out of {gateway}"));
    Ok(Exit::Success)
}

/// Revokes the token at the gateway. A token that is invalid there already needs no revocation.
async fn revoke(gateway: &PublicUrl, kept: &StoredCredentials, console: &mut Console) -> Result<(), Exit> {
    let client = GatewayClient::new(gateway, Some(&kept.token), kept.ca_file.as_deref());
    let client = client.map_err(|error| complain(&error, console))?;
    match client.delete(&format!("/tokens/{}", kept.token_id)).await {
        Ok(()) => Ok(()),
        Err(error) if matches!(error.code(), Some("sign_in_required" | "not_found")) => Ok(()),
        Err(error) => {
            console.complain_of(&error);
            let until = kept.expires_at.as_deref().map(|time| format!(" until {time}")).unwrap_or_default();
            console.complain(format_args!(
                "the token was not revoked and stays good{until}: try again, or forget it with --local"
            ));
            Err(Exit::Failed)
        }
    }
}
