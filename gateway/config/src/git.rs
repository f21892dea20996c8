//! `git`: git servers whose credentials are more than a password.

use std::path::PathBuf;

use super::keys::{Keys, last, section};
use super::reader::Reader;
use super::value::{ENDPOINT, FILE_PATH, TEXT, ValueKind, YES_OR_NO};
use gateway_types::{Endpoint, GitHost, ProviderName};

section! {
    /// A git server that the operator has named. Users have passwords and tokens of others too, without a word here.
    pub struct GitServer, SERVER: GitServerKeys below "git.NAME." {
        /// Host of the git server, with its port if that is not 443.
        host: GitHost = HOST, required;
        /// Gives workspaces credentials for `http` URLs of this host too, which anyone on the way can read.
        plain_http: bool = YES_OR_NO, or false;
        /// File of authorities that sign the certificate of `token_url`, in PEM, beside the system's.
        ca_file: PathBuf = FILE_PATH, optional;
    } also {
        /// Its name.
        name: ProviderName,
        /// How refresh tokens of this server are exchanged; `None` where there are none.
        oauth: Option<GitOauth>,
    }
}

section! {
    /// A git server's OAuth: refresh tokens that users store are exchanged for short-lived access tokens (RFC 6749, section 6).
    pub struct GitOauth, OAUTH: GitOauthKeys below "git.NAME." {
        /// Token endpoint, where refresh tokens are exchanged.
        token_url: Endpoint = ENDPOINT, required;
        /// This gateway's id as a client of that server.
        client_id: Box<str> = TEXT, required;
        /// File with the client's secret, read for each exchange; none for a public client.
        client_secret_file: PathBuf = FILE_PATH, optional;
        /// Name of the user that git sends beside an access token.
        user: Box<str> = TEXT, or "oauth2".into();
    } also {}
}

const HOST: ValueKind<GitHost> = ValueKind::of_text("a host such as git.example.com, with its port if that is not 443");

/// The section.
const LIST: &str = "git";

/// Reads `git`.
pub(super) fn read(reader: &mut Reader) -> Vec<GitServer> {
    let mut servers: Vec<GitServer> = Vec::new();
    for name in reader.sections(LIST) {
        let keys = SERVER.at(&format!("{LIST}.{name}"));
        let Some(server) = read_server(reader, &name, &keys) else { continue };
        if servers.iter().any(|before| before.host == server.host) {
            reader.object(&keys.host, "is in another section of git too");
        }
        servers.push(server);
    }
    servers
}

fn read_server(reader: &mut Reader, name: &str, keys: &GitServerKeys) -> Option<GitServer> {
    let host = reader.take(&keys.host);
    let plain_http = reader.take(&keys.plain_http);
    let ca_file = reader.take(&keys.ca_file);
    let of_name: Option<ProviderName> = name.parse().ok();
    if of_name.is_none() {
        reader.object(&keys.host, gateway_types::BadProviderName.to_string());
    }
    let entry = format!("{LIST}.{name}");
    let oauth = OAUTH.at(&entry);
    let is_given = [&oauth.token_url.name, &oauth.client_id.name, &oauth.client_secret_file.name, &oauth.user.name]
        .into_iter()
        .any(|key| reader.is_given(key));
    if ca_file.is_some() && !is_given {
        reader.object(&keys.ca_file, format!("has no effect without {}", last(&oauth.token_url.name)));
    }
    // All keys are read, so that the problems of all of them are noted.
    let oauth = is_given.then(|| read_oauth(reader, &oauth));
    let oauth = match oauth {
        Some(None) => return None,
        Some(oauth) => oauth,
        None => None,
    };
    Some(GitServer { host: host?, plain_http, ca_file, name: of_name?, oauth })
}

fn read_oauth(reader: &mut Reader, keys: &GitOauthKeys) -> Option<GitOauth> {
    let token_url = reader.take(&keys.token_url);
    let client_id = reader.take(&keys.client_id);
    let client_secret_file = reader.take(&keys.client_secret_file);
    let user = reader.take(&keys.user);
    Some(GitOauth { token_url: token_url?, client_id: client_id?, client_secret_file, user })
}
