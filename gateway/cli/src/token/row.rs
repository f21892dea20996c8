//! Tokens as they are listed, from the database or from a gateway.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::client::shown;
use crate::{Output, table};
use gateway_store::{TokenRecord, TokenSubject};
use gateway_types::UnixSeconds;

/// A token in a list: as a gateway's API has it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct TokenItem {
    id: String,
    kind: String,
    workspace: Option<String>,
    user: Option<String>,
    // A gateway's API, whose lists have one's own tokens only, does not name it.
    #[serde(default)]
    cluster: Option<String>,
    hint: String,
    state: String,
    created_at: String,
    expires_at: Option<String>,
    revoked_at: Option<String>,
    note: Option<String>,
    replaced_by: Option<String>,
}

impl TokenItem {
    pub(super) fn of(token: &TokenRecord, now: UnixSeconds) -> Self {
        let (workspace, cluster, user) = match &token.subject {
            TokenSubject::Agent { workspace, .. } => (Some(workspace.to_string()), None, None),
            TokenSubject::Cluster { cluster, .. } => (None, Some(cluster.to_string()), None),
            TokenSubject::User { user } => (None, None, Some(user.to_string())),
        };
        let time = |time: Option<UnixSeconds>| time.map(|time| time.to_string());
        Self {
            id: token.id.to_string(),
            kind: token.subject.kind().to_string(),
            workspace,
            user,
            cluster,
            hint: token.hint.clone(),
            state: match (token.is_live(now), token.revoked_at) {
                (true, _) => "live",
                (false, Some(_)) => "revoked",
                (false, None) => "expired",
            }
            .to_owned(),
            created_at: token.created_at.to_string(),
            expires_at: time(token.expires_at),
            revoked_at: time(token.revoked_at),
            note: token.note.as_ref().map(|note| note.as_str().to_owned()),
            replaced_by: token.replaced_by.map(|id| id.to_string()),
        }
    }
}

/// Lays tokens out.
pub(super) fn show(rows: &[TokenItem], output: Output) -> String {
    match output {
        Output::Json => format!("{:#}", json!(rows)),
        Output::Text => {
            let header = ["ID", "KIND", "FOR", "ENDS IN", "STATE", "CREATED", "EXPIRES", "NOTE"];
            let text = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), shown);
            let rows = rows.iter().map(|row| {
                let subject = [&row.workspace, &row.cluster, &row.user].into_iter().find(|name| name.is_some());
                [
                    shown(&row.id),
                    shown(&row.kind),
                    text(subject.unwrap_or(&None)),
                    shown(&row.hint),
                    shown(&row.state),
                    shown(&row.created_at),
                    text(&row.expires_at),
                    text(&row.note),
                ]
            });
            table::text(header, rows)
        }
    }
}

/// Shows, for programs, the token that is in a file.
pub(super) fn show_kept(id: &str, file: &Path, expires_at: Option<&str>) -> String {
    format!("{:#}", json!({"id": id, "file": file, "expires_at": expires_at}))
}

/// Shows a token that was just made: alone, so that it can go into a file as it is.
pub(super) fn show_made(id: &str, token: &str, expires_at: Option<&str>, output: Output) -> String {
    match output {
        Output::Text => token.to_owned(),
        Output::Json => format!("{:#}", json!({"id": id, "token": token, "expires_at": expires_at})),
    }
}
