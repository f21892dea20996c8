//! `gateway token` over a gateway's API.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::out::TokenFile;
use super::row::{self, TokenItem};
use super::{Handed, prepare};
use crate::client::{ClientError, GatewayClient, shown};
use crate::place::complain;
use crate::{Console, CreateTokenArgs, Exit, Output, TokenArgs, TokenCommand};
use gateway_store::TokenId;

/// Most pages of a list that are asked for: a gateway that never ends is not one.
const PAGES_MAX: usize = 1000;

#[derive(Deserialize)]
struct PrintedToken {
    id: String,
    token: String,
    expires_at: Option<String>,
    old_expires_at: Option<String>,
}

#[derive(Deserialize)]
struct TokenList {
    tokens: Vec<TokenItem>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct TokenWhoAmI {
    user: String,
}

/// Runs `gateway token` at a gateway.
pub(super) async fn run(client: &GatewayClient, args: &TokenArgs, console: &mut Console) -> Exit {
    let done = match &args.command {
        TokenCommand::Create(create) => create_token(client, create, console).await,
        TokenCommand::List(list) => all(client).await.map(|rows| console.finish_with(row::show(&rows, list.output))),
        TokenCommand::Rotate(rotate) => {
            let file = match prepare(&rotate.out, console) {
                Ok(file) => file,
                Err(exit) => return exit,
            };
            let mut body = json!({"overlap": rotate.overlap.as_secs()});
            add_life(&mut body, rotate.expires);
            let made: Result<PrintedToken, _> = client.post(&format!("/tokens/{}/rotate", rotate.id), &body).await;
            match made {
                Ok(made) => Ok(hand_over(client, &made, file, rotate.output, console).await),
                Err(error) => Err(error),
            }
        }
        TokenCommand::Revoke(revoke) => client.delete(&format!("/tokens/{}", revoke.id)).await.map(|()| {
            console.hint(format_args!("{} is revoked", revoke.id));
            Exit::Success
        }),
    };
    done.unwrap_or_else(|error| {
        let not_found = error.code() == Some("not_found");
        let exit = complain(&error, console);
        if let (true, TokenCommand::Create(CreateTokenArgs { workspace: Some(workspace), .. })) =
            (not_found, &args.command)
        {
            console.complain(format_args!(
                "a workspace {workspace} of yours is not there, and another user has the name: take another name"
            ));
        }
        exit
    })
}

async fn create_token(
    client: &GatewayClient,
    args: &CreateTokenArgs,
    console: &mut Console,
) -> Result<Exit, ClientError> {
    if args.owner.is_some() {
        console.complain("--owner is for the gateway's own machine; over the API, workspaces are yours");
        return Ok(Exit::Usage);
    }
    if args.cluster.is_some() {
        console.complain(
            "--cluster is for the gateway's own machine: the holder of such a token sees all that is sent there",
        );
        return Ok(Exit::Usage);
    }
    let mut body = match (&args.workspace, &args.user) {
        (Some(workspace), _) => json!({"kind": "agent", "workspace": workspace.as_str()}),
        (None, user) => {
            let who: TokenWhoAmI = client.get("/whoami").await?;
            if user.as_ref().is_some_and(|user| user.as_str() != who.user) {
                console.complain(format_args!(
                    "you are {}: tokens of others are made on the gateway's own machine",
                    shown(&who.user)
                ));
                return Ok(Exit::Usage);
            }
            json!({"kind": "user"})
        }
    };
    add_life(&mut body, args.expires);
    if let (Some(note), Some(members)) = (&args.note, body.as_object_mut()) {
        members.insert("note".to_owned(), note.as_str().into());
    }
    let file = match prepare(&args.out, console) {
        Ok(file) => file,
        Err(exit) => return Ok(exit),
    };
    let made: PrintedToken = client.post("/tokens", &body).await?;
    Ok(hand_over(client, &made, file, args.output, console).await)
}

fn add_life(body: &mut Value, lasting: Option<Duration>) {
    if let (Some(lasting), Some(members)) = (lasting, body.as_object_mut()) {
        members.insert("expires_in".to_owned(), lasting.as_secs().into());
    }
}

/// Prints a token that was just made, this once.
async fn hand_over(
    client: &GatewayClient,
    made: &PrintedToken,
    file: Option<TokenFile>,
    output: Output,
    console: &mut Console,
) -> Exit {
    let handed =
        Handed { id: shown(&made.id), token: &shown(&made.token), expires_at: made.expires_at.as_deref(), file };
    if let Err(error) = handed.give(output, console) {
        console.complain(format_args!("cannot write the token: {error}"));
        // The token was never shown, so no user would ever revoke it.
        if let Ok(id) = made.id.parse::<TokenId>()
            && let Err(error) = client.delete(&format!("/tokens/{id}")).await
        {
            console.complain_of(&error);
        }
        return Exit::Failed;
    }
    if let Some(until) = &made.old_expires_at {
        console.hint(format_args!("the old one stays good until {}", shown(until)));
    }
    Exit::Success
}

async fn all(client: &GatewayClient) -> Result<Vec<TokenItem>, ClientError> {
    let (mut rows, mut path) = (Vec::new(), "/tokens?limit=200".to_owned());
    for _ in 0..PAGES_MAX {
        let page: TokenList = client.get(&path).await?;
        rows.extend(page.tokens);
        let Some(cursor) = page.next_cursor else { break };
        let cursor: String = form_urlencoded::byte_serialize(cursor.as_bytes()).collect();
        path = format!("/tokens?limit=200&cursor={cursor}");
    }
    Ok(rows)
}
