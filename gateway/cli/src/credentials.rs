//! Credentials that `gateway login` keeps, and the choice of gateway and token for a command.
//!
//! The file has one token per gateway, and only its user can read it. It is
//! `$XDG_CONFIG_HOME/gateway/credentials.json`, or the one that `GATEWAY_CREDENTIALS_FILE` names. The gateway is that
//! of `--gateway`, else `GATEWAY_URL`, else the one signed in to or named last. The token is that of `--token-file`,
//! else `GATEWAY_TOKEN_FILE`, else the file's for that gateway. No token is ever taken from the command line.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use gateway_types::PublicUrl;
use gateway_types::token::{BadToken, Token, TokenKind};

/// Names the file instead of its usual place.
pub const CREDENTIALS_VARIABLE: &str = "GATEWAY_CREDENTIALS_FILE";
/// Names the gateway.
pub const GATEWAY_VARIABLE: &str = "GATEWAY_URL";
/// Names a file with a token and nothing else: for programs.
pub const TOKEN_FILE_VARIABLE: &str = "GATEWAY_TOKEN_FILE";
/// Names a file with authorities to trust beside the system's.
pub const CA_FILE_VARIABLE: &str = "GATEWAY_CA_FILE";

/// Longest file that is read, in bytes: far above what thousands of gateways need.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Version of the file's shape.
const VERSION: u32 = 1;

/// Flags of every command that speaks with a gateway.
#[derive(Clone, Debug, Default, Args)]
pub struct Remote {
    /// Gateway to speak with, by its public URL [env: `GATEWAY_URL`] [default: the one signed in to or named last].
    #[arg(long, value_name = "URL", value_parser = parse_gateway)]
    pub gateway: Option<PublicUrl>,
    /// File with an API token, for programs [env: `GATEWAY_TOKEN_FILE`] [default: what `gateway login` got].
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// PEM file with authorities to trust beside the system's [env: `GATEWAY_CA_FILE`].
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
}

/// A gateway, and a token to speak with it.
#[derive(Clone, Debug)]
pub struct SignedIn {
    /// The gateway's public URL.
    pub gateway: PublicUrl,
    /// A user's token.
    pub token: Token,
    /// Authorities to trust beside the system's.
    pub ca_file: Option<PathBuf>,
}

/// Credentials for one gateway.
#[derive(Clone, Debug)]
pub struct StoredCredentials {
    /// The token.
    pub token: Token,
    /// Its id at the gateway, such as `t-12`.
    pub token_id: String,
    /// User of the token.
    pub user: String,
    /// Expiry, as the gateway sent it.
    pub expires_at: Option<String>,
    /// Authorities to trust beside the system's.
    pub ca_file: Option<PathBuf>,
}

/// Reason why no user is signed in, or the file cannot be used.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// No gateway was named, and none is remembered.
    #[error("no gateway is known: sign in with gateway login --gateway URL")]
    NoGateway,
    /// Nothing is kept for the gateway.
    #[error("you are not signed in to {0}: run gateway login --gateway {0}")]
    NotSignedIn(PublicUrl),
    /// A variable holds a text that is no gateway's URL.
    #[error("{GATEWAY_VARIABLE}: {0}")]
    BadGateway(String),
    /// There is neither `XDG_CONFIG_HOME` nor `HOME`.
    #[error("there is no home directory to keep credentials in; name a file with {CREDENTIALS_VARIABLE}")]
    NoHome,
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// Others than its user can read the file.
    #[error("others can read {}: chmod 600 it, and sign in again if it may have been read", .0.display())]
    NotPrivate(PathBuf),
    /// The file has another shape.
    #[error("{} is not what gateway login writes; remove it and sign in again", .0.display())]
    BadFile(PathBuf),
    /// The text in a file is not a token.
    #[error("{}: {source}", path.display())]
    BadToken {
        /// The file.
        path: PathBuf,
        /// Problem of the text.
        #[source]
        source: BadToken,
    },
    /// The token is an agent's, which may do nothing here.
    #[error("{} holds the token of an agent; these commands need one of a user", .0.display())]
    AgentToken(PathBuf),
}

/// Finds the gateway and the token that a command speaks with.
///
/// # Errors
/// [`CredentialsError`] says what to do.
pub fn signed_in(remote: &Remote, env: &BTreeMap<String, String>) -> Result<SignedIn, CredentialsError> {
    let named = named_gateway(remote, env)?;
    let ca_file = remote.ca_file.clone().or_else(|| env.get(CA_FILE_VARIABLE).map(PathBuf::from));
    let token_file = remote.token_file.clone().or_else(|| env.get(TOKEN_FILE_VARIABLE).map(PathBuf::from));
    if let (Some(gateway), Some(file)) = (&named, &token_file) {
        return Ok(SignedIn { gateway: gateway.clone(), token: read_token(file)?, ca_file });
    }
    let path = credentials_path(env)?;
    let credentials = Credentials::load(&path)?;
    let gateway = named.or_else(|| credentials.last_used()).ok_or(CredentialsError::NoGateway)?;
    if let Some(file) = token_file {
        return Ok(SignedIn { gateway, token: read_token(&file)?, ca_file });
    }
    let kept = credentials.get(&gateway).ok_or_else(|| CredentialsError::NotSignedIn(gateway.clone()))?;
    let ca_file = ca_file.or_else(|| kept.ca_file.clone());
    if remote.gateway.is_some() && credentials.last_used().as_ref() != Some(&gateway) {
        // A failure only costs the next command its default gateway.
        drop(Credentials::update(&path, |credentials| credentials.use_last(&gateway)));
    }
    Ok(SignedIn { gateway, token: kept.token.clone(), ca_file })
}

/// Returns the gateway that a flag or variable names.
///
/// # Errors
/// [`CredentialsError::BadGateway`].
pub fn named_gateway(remote: &Remote, env: &BTreeMap<String, String>) -> Result<Option<PublicUrl>, CredentialsError> {
    if let Some(gateway) = &remote.gateway {
        return Ok(Some(gateway.clone()));
    }
    env.get(GATEWAY_VARIABLE).map(|text| parse_gateway(text).map_err(CredentialsError::BadGateway)).transpose()
}

/// Reads a gateway's public URL.
///
/// # Errors
/// The problem of the text.
pub fn parse_gateway(text: &str) -> Result<PublicUrl, String> {
    text.parse().map_err(|error: gateway_types::BadOrigin| error.to_string())
}

/// Returns the path of the file with credentials.
///
/// # Errors
/// [`CredentialsError::NoHome`].
pub fn credentials_path(env: &BTreeMap<String, String>) -> Result<PathBuf, CredentialsError> {
    if let Some(path) = env.get(CREDENTIALS_VARIABLE) {
        return Ok(PathBuf::from(path));
    }
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
    Ok(folder.ok_or(CredentialsError::NoHome)?.join("gateway").join("credentials.json"))
}

/// Content of the file.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    last_used: Option<PublicUrl>,
    gateways: BTreeMap<String, StoredCredentials>,
}

/// The file as it is written.
#[derive(Debug, Deserialize, Serialize)]
struct Written {
    version: u32,
    last_used: Option<String>,
    gateways: BTreeMap<String, WrittenEntry>,
}

#[derive(Debug, Deserialize, Serialize)]
struct WrittenEntry {
    token: Plain,
    token_id: String,
    user: String,
    expires_at: Option<String>,
    ca_file: Option<PathBuf>,
}

/// The text of a token on its way to or from the file; never printed.
#[derive(Deserialize, Serialize)]
#[serde(transparent)]
struct Plain(String);

impl std::fmt::Debug for Plain {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Plain(..)")
    }
}

impl Credentials {
    /// Reads the file; one that is not there is empty.
    ///
    /// # Errors
    /// [`CredentialsError::File`], [`CredentialsError::NotPrivate`], [`CredentialsError::BadFile`] or a bad token.
    pub fn load(path: &Path) -> Result<Self, CredentialsError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(failed(path, source)),
        };
        require_private(path, &file)?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|source| failed(path, source))?;
        let bad = || CredentialsError::BadFile(path.to_owned());
        let written: Written = serde_json::from_str(&text).map_err(|_| bad())?;
        if written.version != VERSION {
            return Err(bad());
        }
        let last_used = written.last_used.map(|text| parse_gateway(&text)).transpose().map_err(|_| bad())?;
        let read = |(gateway, entry): (String, WrittenEntry)| {
            let WrittenEntry { token, token_id, user, expires_at, ca_file } = entry;
            let token = user_token(path, &token.0)?;
            Ok((gateway, StoredCredentials { token, token_id, user, expires_at, ca_file }))
        };
        Ok(Self { last_used, gateways: written.gateways.into_iter().map(read).collect::<Result<_, _>>()? })
    }

    /// Changes the file: reads it, lets `change` work on it, and replaces it as a whole. Two programs that do so at once
    /// wait for each other.
    ///
    /// # Errors
    /// As [`Credentials::load`], or a file that cannot be written; then nothing is changed.
    pub fn update<R>(path: &Path, change: impl FnOnce(&mut Self) -> R) -> Result<R, CredentialsError> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        private_folder(folder).map_err(|source| failed(folder, source))?;
        let lock_path = beside(path, ".lock");
        let lock =
            private().create(true).truncate(false).open(&lock_path).map_err(|error| failed(&lock_path, error))?;
        // Ends with the file that is dropped at the end.
        lock.lock().map_err(|error| failed(&lock_path, error))?;
        let mut credentials = Self::load(path)?;
        let result = change(&mut credentials);
        credentials.store(path)?;
        Ok(result)
    }

    /// Returns the credentials for a gateway.
    #[must_use]
    pub fn get(&self, gateway: &PublicUrl) -> Option<&StoredCredentials> {
        self.gateways.get(&gateway.to_string())
    }

    /// Returns the gateway that was signed in to or named last.
    #[must_use]
    pub fn last_used(&self) -> Option<PublicUrl> {
        self.last_used.clone()
    }

    /// Keeps the credentials of a sign-in, and makes its gateway the one used last.
    pub fn keep(&mut self, gateway: &PublicUrl, kept: StoredCredentials) {
        self.gateways.insert(gateway.to_string(), kept);
        self.last_used = Some(gateway.clone());
    }

    /// Makes a gateway the one used last.
    pub fn use_last(&mut self, gateway: &PublicUrl) {
        self.last_used = Some(gateway.clone());
    }

    /// Forgets a gateway, and returns its credentials.
    pub fn forget(&mut self, gateway: &PublicUrl) -> Option<StoredCredentials> {
        if self.last_used.as_ref() == Some(gateway) {
            self.last_used = None;
        }
        self.gateways.remove(&gateway.to_string())
    }

    /// Writes a new file beside the old one and puts it in its place, so that no reader ever sees half of one.
    fn store(&self, path: &Path) -> Result<(), CredentialsError> {
        let entry = |(gateway, kept): (&String, &StoredCredentials)| {
            let StoredCredentials { token, token_id, user, expires_at, ca_file } = kept.clone();
            let token = Plain(token.reveal().to_owned());
            (gateway.clone(), WrittenEntry { token, token_id, user, expires_at, ca_file })
        };
        let written = Written {
            version: VERSION,
            last_used: self.last_used.as_ref().map(ToString::to_string),
            gateways: self.gateways.iter().map(entry).collect(),
        };
        let new = beside(path, ".new");
        let write = || {
            // A file that a killed program left behind may have other rights.
            match fs::remove_file(&new) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            let mut file = private().create_new(true).open(&new)?;
            file.write_all(&serde_json::to_vec_pretty(&written)?)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&new, path)
        };
        write().map_err(|source| failed(path, source))
    }
}

/// Reads a file that holds a user's token and nothing else.
fn read_token(path: &Path) -> Result<Token, CredentialsError> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|source| failed(path, source))?;
    user_token(path, text.trim())
}

fn user_token(path: &Path, text: &str) -> Result<Token, CredentialsError> {
    let bad = |source| CredentialsError::BadToken { path: path.to_owned(), source };
    let token = Token::parse(text).map_err(bad)?;
    match token.kind() {
        TokenKind::User => Ok(token),
        TokenKind::Agent | TokenKind::Cluster => Err(CredentialsError::AgentToken(path.to_owned())),
    }
}

fn failed(path: &Path, source: io::Error) -> CredentialsError {
    CredentialsError::File { path: path.to_owned(), source }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

/// Returns options that make a file which only its user can read.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

fn require_private(path: &Path, file: &File) -> Result<(), CredentialsError> {
    #[cfg(unix)]
    {
        let metadata = file.metadata().map_err(|source| failed(path, source))?;
        if std::os::unix::fs::MetadataExt::mode(&metadata) & 0o077 != 0 {
            return Err(CredentialsError::NotPrivate(path.to_owned()));
        }
    }
    #[cfg(not(unix))]
    let _ = (path, file);
    Ok(())
}

#[cfg(test)]
mod tests;
