//! `workspace-agent doctor`: looks from the agent's place at what it needs, and reports what is wrong. It begins no session, so that
//! an agent that runs keeps its own.

#[cfg(feature = "cluster")]
mod cluster;
mod gateway;
mod local;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::doctor::run::{Group, all};
use ::doctor::{Check, Finding, FindingId, Outcome, Report};

use crate::dial::{DialEnded, Gateway, read_token};
use crate::ports::{OwnPorts, Ports};
use crate::{TokenSource, Transport};

#[cfg(feature = "cluster")]
pub use self::cluster::ClusterPlace;

/// Longest time of a group of checks.
const GROUP_TIME: Duration = Duration::from_secs(13);

/// What an agent's arguments say, as far as it can be used.
#[derive(Debug)]
pub struct DoctorOptions {
    /// The gateway, or what is wrong with its URL.
    pub gateway: Result<Gateway, String>,
    /// Transports that links may use.
    pub transport: Transport,
    /// Credential.
    pub token: TokenSource,
    /// Ports, or what is wrong with them.
    pub ports: Result<(Arc<Ports>, OwnPorts), String>,
    /// Files that are named and cannot be opened.
    pub missing: Vec<(&'static str, PathBuf, String)>,
    /// The cluster that is to be looked at, if one is.
    #[cfg(feature = "cluster")]
    pub cluster: Option<ClusterPlace>,
}

/// Looks at everything.
///
/// Cancel safety: safe; it changes nothing.
pub async fn look(options: DoctorOptions) -> Report {
    let DoctorOptions { gateway, transport, token, ports, missing, .. } = &options;
    let wrong = [gateway.as_ref().err(), ports.as_ref().err()].into_iter().flatten();
    let wrong: Vec<_> = wrong.map(|why| Finding::new(FindingId::ConfigInvalid, why.clone())).collect();
    let mut checks = vec![Check::new("arguments", Outcome::of(wrong, "they make sense"))];
    let (credential, token) = credential(token, missing).await;
    checks.push(credential);
    let mut groups = vec![match gateway {
        Ok(gateway) => Group::new("gateway", GROUP_TIME, gateway::look(gateway.clone(), *transport, token)),
        Err(_) => Group::new("gateway", GROUP_TIME, async { gateway::left_out("the gateway's URL cannot be used") }),
    }];
    let ports = ports.as_ref().ok().cloned();
    groups.push(Group::new("this machine", GROUP_TIME, local::look(ports)));
    #[cfg(feature = "cluster")]
    if let Some(place) = options.cluster {
        groups.push(Group::new("cluster", GROUP_TIME, cluster::look(place)));
    }
    checks.extend(all(groups).await.checks);
    Report { checks }
}

/// Reads the token as a dial does, and looks at its shape.
async fn credential(source: &TokenSource, missing: &[(&'static str, PathBuf, String)]) -> (Check, Option<String>) {
    const NAME: &str = "credential";
    let found: Vec<_> = missing
        .iter()
        .map(|(flag, path, why)| Finding::new(FindingId::TokenUnusable, format!("{flag} {}: {why}", path.display())))
        .collect();
    if !found.is_empty() {
        return (Check::new(NAME, Outcome::Found(found)), None);
    }
    match read_token(source).await {
        Ok(None) => (Check::new(NAME, Outcome::Passed("a client certificate".to_owned())), None),
        Ok(Some(token)) => match shape(&token) {
            Ok(kind) => (Check::new(NAME, Outcome::Passed(kind.to_owned())), Some(token)),
            Err(why) => (Check::new(NAME, Finding::new(FindingId::TokenUnusable, why)), None),
        },
        Err(error) => {
            let what = match &error {
                DialEnded::Token { path, error } => format!("{path}: {error}"),
                DialEnded::Refused { .. }
                | DialEnded::Displaced
                | DialEnded::Revoked { .. }
                | DialEnded::WorkspaceStopped { .. } => error.to_string(),
            };
            (Check::new(NAME, Finding::new(FindingId::TokenUnusable, what)), None)
        }
    }
}

/// Names the kind of a token by its shape; the text says what is wrong, and repeats nothing of it.
fn shape(token: &str) -> Result<&'static str, &'static str> {
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the file holds more than one word: a token is one line without spaces");
    }
    if token.starts_with("gwu_") {
        return Err("the file holds a user's token, which is none for agents");
    }
    if token.starts_with("gwa_") {
        return Ok("a token of the gateway for one workspace");
    }
    if token.starts_with("gwc_") {
        return Ok("a token of the gateway for one cluster");
    }
    if token.split('.').count() == 3 {
        return Ok("a signed token, of a cluster or a CI system");
    }
    Err("the file holds no token: one begins with gwa_ or gwc_, or is a signed one of three parts")
}

/// Returns this machine's clock, in milliseconds since 1970.
fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_of_a_token_is_judged_without_repeating_it() {
        assert!(shape("gwa_BwcHBwcHBwcHBwcHBwcH").is_ok() && shape("gwc_x").is_ok() && shape("eyJ.eyJ.x").is_ok());
        for token in ["gwu_secret", "two words", "secret", "gwa_\u{7f}x", ""] {
            let why = shape(token).expect_err(token);
            assert!(!why.contains("secret"), "{why}");
        }
    }

    #[tokio::test]
    async fn file_that_cannot_be_read_is_a_finding_and_not_an_end() {
        let options = DoctorOptions {
            gateway: Err("--gateway: `x` is not a URL".to_owned()),
            transport: Transport::Auto,
            token: TokenSource::File("/no/such/file".into()),
            ports: Err("twice".to_owned()),
            missing: Vec::new(),
            #[cfg(feature = "cluster")]
            cluster: None,
        };
        let report = look(options).await;
        let ids = report.checks.iter().filter_map(|check| match &check.outcome {
            Outcome::Found(found) => Some(found.iter().map(|found| found.id)),
            Outcome::Passed(_) | Outcome::Skipped(_) => None,
        });
        let ids: Vec<_> = ids.flatten().collect();
        assert_eq!(ids, [FindingId::ConfigInvalid, FindingId::ConfigInvalid, FindingId::TokenUnusable]);
    }
}
