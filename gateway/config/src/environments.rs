//! `environments`: environments of CI jobs, whose Kubernetes objects the gateway manages.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::keys::section;
use super::reader::Reader;
use super::value::{DURATION, ENDPOINT, FILE_PATH, TEXT, ValueKind};
use gateway_types::{Endpoint, PublicUrl, UserName};

/// Bounds of the time for preparing an environment: not below the time in which a cluster's agent refuses a call, nor
/// beyond the patience of a job.
const COMPLETE_TIMES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(1);

section! {
    /// A CI system whose jobs' tokens count.
    pub struct JobIssuer, JOB_ISSUER: JobIssuerKeys below "environments." {
        /// Issuer of the jobs' `id_token`s that are accepted, character by character; without it, only operators may
        /// ask for environments.
        issuer: Endpoint = ENDPOINT, open;
        /// Audience of those tokens, their `aud`; `public_url` unless set.
        audience: Box<str> = TEXT, follows;
        /// URL of the issuer's published keys, if not the one that the issuer names itself.
        jwks_url: Endpoint = ENDPOINT, optional;
        /// Authority of the issuer's servers, beside the system's.
        ca_file: PathBuf = FILE_PATH, optional;
    } also {}
}

section! {
    /// Environments of CI jobs.
    pub struct Environments, ENVIRONMENTS: EnvironmentKeys below "environments." {
        /// Users who may do anything with every environment.
        operators: Vec<UserName> = USERS, or Vec::new();
        /// File with the secret that GitLab's system hook shows when it reports a deleted project.
        hook_token_file: PathBuf = FILE_PATH, optional;
        /// Longest time for preparing an environment.
        complete_max: Duration = DURATION, or Duration::from_mins(10), in COMPLETE_TIMES;
    } also {
        /// CI system whose jobs may ask for environments with a token of their own; `None` where no job may.
        jobs: Option<JobIssuer>,
    }
}

impl Default for Environments {
    fn default() -> Self {
        Self {
            jobs: None,
            operators: Vec::new(),
            hook_token_file: None,
            complete_max: ENVIRONMENTS.complete_max.default(),
        }
    }
}

/// Names of users.
pub(super) const USERS: ValueKind<Vec<UserName>> = ValueKind::new(
    "names of users with commas between them",
    |text| {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(|name| name.parse().map_err(|error: gateway_types::BadUserName| error.to_string())).collect()
    },
    |users| users.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
);

/// Reads `environments`.
pub(super) fn read(reader: &mut Reader, public_url: &PublicUrl) -> Environments {
    let issuer = reader.take(&JOB_ISSUER.issuer);
    let audience = reader.take_or(&JOB_ISSUER.audience, public_url.to_string().into());
    let jwks_url = reader.take(&JOB_ISSUER.jwks_url);
    let ca_file = reader.take(&JOB_ISSUER.ca_file);
    if issuer.is_none() && reader.is_sound(&[&JOB_ISSUER.issuer.name]) {
        let others = [&JOB_ISSUER.jwks_url.name, &JOB_ISSUER.ca_file.name];
        reader.object_to_set(&others, &format!("has no effect: {} is not set", JOB_ISSUER.issuer));
    }
    Environments {
        jobs: issuer.map(|issuer| JobIssuer { issuer, audience, jwks_url, ca_file }),
        operators: reader.take(&ENVIRONMENTS.operators),
        hook_token_file: reader.take(&ENVIRONMENTS.hook_token_file),
        complete_max: reader.take(&ENVIRONMENTS.complete_max),
    }
}
