//! `environments`: environments of CI jobs, whose Kubernetes objects the gateway manages.

use std::path::PathBuf;
use std::time::Duration;

use super::reader::Reader;
use super::value::{DURATION, ENDPOINT, TEXT, ValueKind};
use gateway_types::PublicUrl;
use gateway_types::{Endpoint, UserName};

const ISSUER: &str = "environments.issuer";
const AUDIENCE: &str = "environments.audience";
const JWKS_URL: &str = "environments.jwks_url";
const CA_FILE: &str = "environments.ca_file";
const OPERATORS: &str = "environments.operators";
const HOOK_TOKEN_FILE: &str = "environments.hook_token_file";
const COMPLETE_MAX: &str = "environments.complete_max";

/// Default of the longest time for preparing an environment.
const COMPLETE_DEFAULT: Duration = Duration::from_secs(10 * 60);

/// Bounds of that: not below what one call of a cluster's agent may take to be refused, nor beyond what a job would
/// wait.
const COMPLETE_TIMES: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60 * 60);

/// Environments of CI jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environments {
    /// CI system whose jobs may ask for environments with a token of their own; `None` where no job may.
    pub jobs: Option<JobIssuer>,
    /// Users who may do anything with every environment (`environments.operators`).
    pub operators: Vec<UserName>,
    /// File with the secret that GitLab's system hook shows when it reports a deleted project
    /// (`environments.hook_token_file`).
    pub hook_token_file: Option<PathBuf>,
    /// Longest time for preparing an environment (`environments.complete_max`).
    pub complete_max: Duration,
}

/// A CI system whose jobs' tokens count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobIssuer {
    /// `iss` of the tokens, character by character (`environments.issuer`).
    pub issuer: Endpoint,
    /// `aud` of the tokens (`environments.audience`).
    pub audience: Box<str>,
    /// URL of its published keys, if not the one that the issuer names (`environments.jwks_url`).
    pub jwks_url: Option<Endpoint>,
    /// The authority of its servers, besides the system's (`environments.ca_file`).
    pub ca_file: Option<PathBuf>,
}

impl Default for Environments {
    fn default() -> Self {
        Self { jobs: None, operators: Vec::new(), hook_token_file: None, complete_max: COMPLETE_DEFAULT }
    }
}

const USERS: ValueKind<Vec<UserName>> = ValueKind {
    accepted: "names of users with commas between them",
    parse: |text| {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(|name| name.parse().map_err(|error: gateway_types::BadUserName| error.to_string())).collect()
    },
    show: |users| users.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    secret: false,
};

/// Reads `environments`.
pub(super) fn read(reader: &mut Reader, public_url: &PublicUrl) -> Environments {
    let issuer = reader.take_optional(ISSUER, &ENDPOINT);
    let audience = reader.take(AUDIENCE, public_url.to_string().into(), &TEXT);
    let jwks_url = reader.take_optional(JWKS_URL, &ENDPOINT);
    let ca_file = reader.take_path(CA_FILE);
    if issuer.is_none() && reader.is_sound(&[ISSUER]) {
        for (key, is_set) in [(JWKS_URL, jwks_url.is_some()), (CA_FILE, ca_file.is_some())] {
            if is_set {
                reader.object(key, format!("has no effect: {ISSUER} is not set"));
            }
        }
    }
    let operators = reader.take(OPERATORS, Vec::new(), &USERS);
    let hook_token_file = reader.take_path(HOOK_TOKEN_FILE);
    let complete_max = reader.take_within(COMPLETE_MAX, COMPLETE_DEFAULT, COMPLETE_TIMES, &DURATION);
    let jobs = issuer.map(|issuer| JobIssuer { issuer, audience, jwks_url, ca_file });
    Environments { jobs, operators, hook_token_file, complete_max }
}
