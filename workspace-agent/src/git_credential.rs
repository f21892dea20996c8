//! A credential helper for git (gitcredentials(7)): asks the gateway for the credential of the workspace's owner, with the workspace's
//! own credential, in a call of its own. So it works before the agent does, as for the clone of the projects.

mod fields;

use std::io::{Read, Write};

use thiserror::Error;
use tokio::time::{Duration, timeout};
use tunnel_link::causes;
use tunnel_link::git::{AskError, ask};
use tunnel_link::grpc::{Code, ConnectError, Via};
use tunnel_proto::git::{GitCredential, GitCredentialRequest};

pub use self::fields::{BadFields, Fields};

use crate::TokenSource;
use crate::dial::{DialEnded, DialFailure, DialHistory, Gateway, Offer, Transport, cannot_pass, read_token};

/// Longest wait for the gateway, which may have to ask the git server.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// What git asks of a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelperAction {
    /// A credential.
    Get,
    /// To keep one that a person has typed, which is not done: it is stored at the gateway by its owner.
    Store,
    /// To forget one that the server refused.
    Erase,
}

/// Way to the gateway.
#[derive(Clone, Debug)]
pub struct HelperOptions {
    /// The gateway.
    pub gateway: Gateway,
    /// Transports that may be used.
    pub transport: Transport,
    /// The workspace's token.
    pub token: TokenSource,
}

/// Reason why there is no credential. For the terminal, or the log of a clone.
#[derive(Debug, Error)]
pub enum HelperError {
    /// Git's words cannot be read.
    #[error("git said something that is no request for a credential: {0}")]
    Fields(#[from] BadFields),
    /// Standard input or output is broken.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The token cannot be read.
    #[error(transparent)]
    Token(DialEnded),
    /// The gateway cannot be reached, or refused.
    #[error("{0}")]
    Ask(String),
}

/// Serves one request of git: reads `input`, and writes a credential to `output` if there is one. Returns words for a person, who may
/// have to store a credential.
///
/// # Errors
/// [`HelperError`]. Git then goes on without a credential.
pub async fn help(
    action: HelperAction,
    options: &HelperOptions,
    input: impl Read,
    mut output: impl Write,
) -> Result<Option<String>, HelperError> {
    let fields = Fields::read(input)?;
    if action == HelperAction::Store {
        return Ok(None);
    }
    let Some((protocol, host)) = fields.server() else { return Ok(None) };
    let is_refused = action == HelperAction::Erase;
    let asked = GitCredentialRequest { protocol, host: host.to_owned(), is_refused };
    let answered = timeout(ANSWER_TIME, asked_gateway(options, &asked)).await;
    match answered.map_err(|_elapsed| HelperError::Ask("the gateway did not answer in time".to_owned()))? {
        Ok(_) if is_refused => {
            Ok(Some(format!("{host} refused the credential that is stored at the gateway.\n{}", hint(host))))
        }
        Ok(credential) => {
            // A name in the URL means another account than the stored one.
            if fields.user().is_some_and(|user| user != credential.user) {
                let stored = &credential.user;
                return Ok(Some(format!("the credential that is stored for {host} is of the user {stored}")));
            }
            output.write_all(written(&credential).as_bytes())?;
            Ok(None)
        }
        Err(HelperFailure::Refused { code: Code::NotFound, .. }) => {
            Ok((!is_refused).then(|| format!("no credential for {host} is stored at the gateway.\n{}", hint(host))))
        }
        Err(HelperFailure::Refused { code: Code::FailedPrecondition, message }) => {
            Ok(Some(format!("{host}: {message}.\n{}", hint(host))))
        }
        Err(HelperFailure::Refused { message, .. }) => Err(HelperError::Ask(format!("{host}: {message}"))),
        Err(HelperFailure::Token(error)) => Err(HelperError::Token(error)),
        Err(HelperFailure::Other(words)) => Err(HelperError::Ask(words)),
    }
}

fn hint(host: &str) -> String {
    // The host is git's, and git has let no control characters through; a shell's own are not in a host either.
    let plain = |one: &char| one.is_ascii_alphanumeric() || matches!(one, '.' | '-' | '_' | ':' | '[' | ']');
    let host: String = host.chars().filter(plain).collect();
    format!("Store one where you are signed in, and try again: gateway git-credential set {host}")
}

fn written(credential: &GitCredential) -> String {
    let GitCredential { user, password, expires_at } = credential;
    let mut text = format!("username={user}\npassword={password}\n");
    if let Some(time) = expires_at {
        // Git before 2.40 skips it.
        text.push_str(&format!("password_expiry_utc={time}\n"));
    }
    text
}

/// Failure of a question.
enum HelperFailure {
    Refused { code: Code, message: String },
    Token(DialEnded),
    Other(String),
}

async fn asked_gateway(options: &HelperOptions, asked: &GitCredentialRequest) -> Result<GitCredential, HelperFailure> {
    let token = read_token(&options.token).await.map_err(HelperFailure::Token)?;
    let plan = DialHistory::default().plan(options.transport);
    let failure = match over(options, plan.first, plan.then, token.as_deref(), asked).await {
        Ok(credential) => return Ok(credential),
        Err(failure) => failure,
    };
    let passes = |failure: &DialFailure| !cannot_pass(failure);
    match (failure, plan.then) {
        (OverFailure::Dial(failure), Some(then)) if !passes(&failure) => {
            over(options, then, None, token.as_deref(), asked).await.map_err(told)
        }
        (failure, _) => Err(told(failure)),
    }
}

/// Failure of a question over one transport.
enum OverFailure {
    Dial(DialFailure),
    Ask(AskError),
}

fn told(failure: OverFailure) -> HelperFailure {
    match failure {
        OverFailure::Dial(DialFailure::Rpc(ConnectError::Refused(refused))) => {
            HelperFailure::Refused { code: refused.code, message: refused.message }
        }
        OverFailure::Dial(failure) => HelperFailure::Other(causes::one_line(&failure)),
        OverFailure::Ask(error) => HelperFailure::Other(causes::one_line(&error)),
    }
}

async fn over(
    options: &HelperOptions,
    via: Via,
    or: Option<Via>,
    token: Option<&str>,
    asked: &GitCredentialRequest,
) -> Result<GitCredential, OverFailure> {
    let offer = match (via, or) {
        (Via::Http2, None | Some(Via::Http2)) => Offer::Http2,
        (Via::Http2, Some(Via::WebSocket)) => Offer::Either,
        (Via::WebSocket, _) => Offer::Http1,
    };
    let connected = options.gateway.connect(offer).await.map_err(OverFailure::Dial)?;
    let (authority, scheme) = options.gateway.origin();
    let is_http1 = via == Via::WebSocket || connected.is_http1();
    ask(connected.into_stream(), is_http1, authority, scheme, token, asked).await.map_err(|error| match error {
        AskError::Connect(error) => OverFailure::Dial(DialFailure::Rpc(error)),
        error @ (AskError::TooOld | AskError::Answer) => OverFailure::Ask(error),
    })
}

impl HelperAction {
    /// Reads git's word; `None` for one of a later git, which helpers are to ignore.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "get" => Some(Self::Get),
            "store" => Some(Self::Store),
            "erase" => Some(Self::Erase),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_what_git_reads() {
        let credential =
            GitCredential { user: "ann".to_owned(), password: "p=w d".to_owned(), expires_at: Some(1_900_000_000) };
        assert_eq!(written(&credential), "username=ann\npassword=p=w d\npassword_expiry_utc=1900000000\n");
        let credential = GitCredential { expires_at: None, ..credential };
        assert_eq!(written(&credential), "username=ann\npassword=p=w d\n");
    }

    #[test]
    fn hint_can_be_pasted_into_a_shell() {
        assert!(hint("git.example.com:8443").ends_with("gateway git-credential set git.example.com:8443"));
        assert!(hint("a;$(id)`x` y").ends_with("gateway git-credential set aidxy"));
    }

    #[tokio::test]
    async fn what_a_person_types_is_not_kept_and_unknown_servers_are_not_asked_about() {
        let options = HelperOptions {
            // Nothing listens there: a question would fail.
            gateway: Gateway::parse("http://127.0.0.1:1", None).unwrap(),
            transport: Transport::Auto,
            token: TokenSource::None,
        };
        let store = "protocol=https\nhost=git.example.com\nusername=ann\npassword=hunter2\n\n";
        let mut output = Vec::new();
        assert_eq!(help(HelperAction::Store, &options, store.as_bytes(), &mut output).await.unwrap(), None);
        for other in ["protocol=ssh\nhost=git.example.com\n", "protocol=cert\npath=/x\n", "host=git.example.com\n"] {
            assert_eq!(
                help(HelperAction::Get, &options, other.as_bytes(), &mut output).await.unwrap(),
                None,
                "{other}"
            );
        }
        assert_eq!(output, b"");
        let failed = help(HelperAction::Get, &options, store.as_bytes(), &mut output).await.unwrap_err().to_string();
        assert!(failed.contains("cannot connect") && !failed.contains("hunter2"), "{failed}");
    }
}
