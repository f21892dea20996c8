//! Reads what the operator configured: raw text from four layers, validated once into typed values.
//!
//! Layers, the later wins: defaults, the TOML file, `GATEWAY_…` environment variables, command-line flags. Reading
//! never stops at the first mistake: [`BadConfig`] lists all of them with place, value and what would be accepted.
//! Unknown keys are mistakes too, because a misspelt limit is a missing limit.
//!
//! * `source` merges the layers into one map of keys; it knows no meaning of a key.
//! * `reader` hands values out one by one, with the parsers of `value`, and collects their problems.
//! * `keys` declares keys: each stands in the sources once, with its kind, default, bounds and meaning.
//! * `sections`, `tls`, `acme`, `store`, `auth`, `agents`, `ci`, `environments`, `git`, `idle`: the declarations, and the reading of
//!   those sections whose struct is not the plain list of its keys.
//! * `check`: rules between keys. `advice`: configurations that work and could be better.
//! * `problem`: a mistake as text. `reload`: what a running gateway takes over of a changed configuration.
//!
//! `docs/reference/configuration.md` is generated from the declarations by a test of this crate.

mod acme;
mod advice;
mod agents;
mod auth;
mod check;
mod ci;
mod directory;
mod environments;
mod git;
mod idle;
mod keys;
mod problem;
mod reader;
mod reload;
mod sections;
mod source;
mod store;
mod tls;
mod value;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

pub use gateway_types::{PublicUrl, Zone};

pub use acme::Acme;
pub use advice::advice;
pub use agents::{AgentAuth, CiIssuer, CiRule, KubernetesIssuer, KubernetesRule, NamespacePattern};
pub use auth::{Auth, AuthMode, ClientSecret, Oidc};
pub use ci::{Ci, CiEditor, CiProvider, CiSystem, CommandCi, GitlabCi, GitlabToken};
pub use directory::{Directory, HostConfig, PeersConfig};
pub use environments::{Environments, JobIssuer};
pub use git::{GitOauth, GitServer};
pub use idle::Idle;
pub use problem::{BadConfig, ConfigProblem, ValueOrigin};
pub use reload::{RELOADED, RefusedChange, changes};
pub use sections::{AuditLog, Limits, Listen, Log, LogFormat, Timeouts, Traces, Tunnel};
pub use source::{Flag, process_environment};
pub use store::StoreConfig;
pub use tls::{ClientCa, Tls, TlsFiles};
pub use value::{BadStoreUrl, IpNetwork, PostgresUrl, StoreUrl, parse_duration};

/// The file that is read when no other is named and it exists.
pub const DEFAULT_FILE: &str = "gateway.toml";

/// The database that is used when no other is named.
pub const DEFAULT_DATABASE: &str = "gateway.db";

/// Everything that can be configured, validated.
///
/// Invariants: the checks of the private `check` module hold for every value that [`Config::load`] returns.
#[derive(Clone, Debug)]
pub struct Config {
    /// The zone of the workspaces (`zone`).
    pub zone: Zone,
    /// The public host's URL (`public_url`).
    pub public_url: PublicUrl,
    /// URL of workspaces by path (`paths_url`).
    pub paths_url: Option<PublicUrl>,
    /// Addresses to listen on (`listen.*`).
    pub listen: Listen,
    /// Certificates (`tls.*`).
    pub tls: Tls,
    /// The database (`store.*`).
    pub store: StoreConfig,
    /// Where the sessions of all replicas are known (`directory`).
    pub directory: Directory,
    /// Sign-in of users and agents (`auth.*`).
    pub auth: Auth,
    /// Log output (`log.*`).
    pub log: Log,
    /// The audit log (`audit.*`).
    pub audit: AuditLog,
    /// Traces of requests (`traces.*`).
    pub traces: Traces,
    /// Folder of cluster agents (`agents_dir`).
    pub agents_dir: Option<PathBuf>,
    /// Workspaces in jobs of CI systems (`ci.*`).
    pub ci: Ci,
    /// Environments of CI jobs (`environments.*`).
    pub environments: Environments,
    /// Git servers (`git.NAME.*`).
    pub git: Vec<GitServer>,
    /// Use of workspaces (`idle.*`).
    pub idle: Idle,
    /// Deadlines and idle timeouts (`timeouts.*`).
    pub timeouts: Timeouts,
    /// Bounds beyond which the gateway refuses (`limits.*`).
    pub limits: Limits,
    /// The agents' tunnel (`tunnel.*`).
    pub tunnel: Tunnel,
    rows: Vec<EffectiveRow>,
    file: Option<PathBuf>,
}

/// Layer that a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The built-in default: no layer set it.
    Default,
    /// The TOML file.
    File,
    /// A `GATEWAY_…` variable.
    Environment,
    /// A command-line flag.
    Flag,
}

impl Origin {
    /// Returns the origin as one lower-case word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Environment => "environment",
            Self::Flag => "flag",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// One line of `gateway config show`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveRow {
    /// The dotted key.
    pub key: Cow<'static, str>,
    /// The value as the file would spell it; a mask for secrets; `None` when the key has no value.
    pub value: Option<String>,
    /// Layer that the value came from.
    pub origin: Origin,
    /// Place of the value.
    pub place: ValueOrigin,
    /// Accepted values, for people.
    pub accepted: &'static str,
}

impl Config {
    /// Reads and validates the layers without flags.
    ///
    /// # Errors
    /// All mistakes of the file and the environment together.
    pub fn load(file: Option<&Path>, env: &BTreeMap<String, String>) -> Result<Self, BadConfig> {
        Self::load_with_flags(file, env, &[])
    }

    /// Reads and validates all layers.
    ///
    /// # Errors
    /// All mistakes of all layers together.
    pub fn load_with_flags(
        file: Option<&Path>,
        env: &BTreeMap<String, String>,
        flags: &[Flag],
    ) -> Result<Self, BadConfig> {
        let mut reader = reader::Reader::new(source::collect(file, env, flags));
        let mut config = sections::read(&mut reader);
        config.file = file.map(Path::to_owned);
        check::across_keys(&config, &mut reader);
        config.rows = reader.finish()?;
        Ok(config)
    }

    /// Returns every key with its value and origin, single keys before sections; secrets are masked.
    #[must_use]
    pub fn effective(&self) -> &[EffectiveRow] {
        &self.rows
    }

    /// Returns the file that was read.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Makes a problem of a key, at the place of its value.
    #[must_use]
    pub fn problem(&self, key: &str, wrong: impl Into<String>) -> ConfigProblem {
        let row = self.rows.iter().find(|row| row.key == key);
        let place = row.map_or(ValueOrigin::Default, |row| row.place.clone());
        ConfigProblem::of_key(place, key.to_owned(), wrong)
    }

    /// Finds a database in the working directory that an earlier version would have used. Relative paths of a file
    /// started there, and a new database beside the file would hide it.
    #[must_use]
    pub fn stray_database(&self) -> Option<ConfigProblem> {
        let StoreUrl::SqliteFile(path) = &self.store.url else { return None };
        let folder = self.file.as_deref()?.parent().filter(|folder| !folder.as_os_str().is_empty())?;
        let stray = path.strip_prefix(folder).ok()?;
        let is_stray =
            self.origin(&store::STORE.url.name) != Some(Origin::Environment) && !path.exists() && stray.exists();
        is_stray.then(|| {
            let wrong = format!(
                "is {}, which is not there, while {} is in the working directory: relative paths start at the file's folder; \
                 name the database by its whole path",
                path.display(),
                stray.display()
            );
            self.problem(&store::STORE.url.name, wrong)
        })
    }

    /// Returns the layer that the value of `key` came from; `None` for a key that does not exist.
    #[must_use]
    pub fn origin(&self, key: &str) -> Option<Origin> {
        self.rows.iter().find(|row| row.key == key).map(|row| row.origin)
    }
}

impl Default for Config {
    /// A working single node on loopback.
    fn default() -> Self {
        let mut reader = reader::Reader::new(source::Layers::default());
        let mut config = sections::read(&mut reader);
        // The defaults have no problems (a test holds that), so the empty list is never used.
        config.rows = reader.finish().unwrap_or_default();
        config
    }
}

#[cfg(test)]
mod tests;
