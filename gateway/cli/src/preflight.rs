//! Opens the files that a configuration names, before a gateway is built of it: so every problem is reported at once,
//! and nothing is changed.

mod files;
mod tls;

use std::fmt;
use std::path::Path;

use gateway_ci::downloads::Downloads;
use gateway_config::{CiSystem, ClientSecret, Config, ConfigProblem, StoreUrl};
use gateway_net::fetch::{Fetch, Trust};

/// Findings about a configuration.
#[derive(Debug, Default)]
pub struct PreflightFindings {
    /// Problems with which a gateway cannot start.
    pub problems: Vec<ConfigProblem>,
    /// Files that are read when they are needed, and could not be now. A gateway starts without them.
    pub later: Vec<ConfigProblem>,
    /// Likely mistakes, which need not be any.
    pub warnings: Vec<ConfigProblem>,
    /// Number of files and folders that were checked.
    pub opened: usize,
}

/// Opens everything. Reads files and folders, and makes nothing.
#[must_use]
pub fn look(config: &Config) -> PreflightFindings {
    let mut look = ConfigCheck { config, found: PreflightFindings::default() };
    tls::look(&mut look);
    look.store();
    look.sign_in();
    look.agents();
    look.ci();
    look.environments();
    if let Some(path) = &config.audit.path {
        look.note("audit.path", files::appendable(path));
    }
    if let Some(folder) = &config.agents_dir {
        look.note_later("agents_dir", files::folder(folder));
    }
    look.found
}

/// A look at one configuration.
struct ConfigCheck<'a> {
    config: &'a Config,
    found: PreflightFindings,
}

impl ConfigCheck<'_> {
    /// Notes the problem with the value of a key, if there is one.
    fn note<E: fmt::Display>(&mut self, key: &str, opened: Result<(), E>) {
        self.found.opened += 1;
        if let Err(wrong) = opened {
            self.found.problems.push(self.config.problem(key, wrong.to_string()));
        }
    }

    /// Notes the problem with a file that is read again whenever it is needed, if there is one.
    fn note_later<E: fmt::Display>(&mut self, key: &str, opened: Result<(), E>) {
        self.found.opened += 1;
        if let Err(wrong) = opened {
            self.found.later.push(self.config.problem(key, wrong.to_string()));
        }
    }

    fn warn(&mut self, key: &str, wrong: String) {
        self.found.warnings.push(self.config.problem(key, wrong));
    }

    /// Notes whether a file holds authorities to trust.
    fn authorities(&mut self, key: &str, path: Option<&Path>) {
        let Some(path) = path else { return };
        // The same way in which it is used, so that both agree.
        self.note(key, Fetch::new(&Trust::Only(path.to_owned())).map(drop));
    }

    fn store(&mut self) {
        let store = &self.config.store;
        if let Some(stray) = self.config.stray_database() {
            self.found.problems.push(stray);
        }
        match &store.url {
            StoreUrl::SqliteFile(path) => self.note("store.url", files::database(path)),
            StoreUrl::SqliteMemory => {}
            StoreUrl::Postgres(url) => {
                for parameter in ["sslrootcert", "sslcert", "sslkey"] {
                    if let Some(path) = url.file(parameter) {
                        self.note("store.url", files::readable(&path).map_err(|wrong| format!("{parameter}: {wrong}")));
                    }
                }
            }
        }
        if let Some(path) = &store.password_file {
            self.note("store.password_file", files::secret(path));
        }
        if let Some(path) = &store.key_file {
            self.note("store.key_file", files::made_or_readable(path));
        }
    }

    fn sign_in(&mut self) {
        let Some(oidc) = &self.config.auth.oidc else { return };
        if let Some(ClientSecret::File(path)) = &oidc.client_secret {
            self.note("auth.oidc.client_secret_file", files::secret(path));
        }
        self.authorities("auth.oidc.ca_file", oidc.ca_file.as_deref());
    }

    fn agents(&mut self) {
        for (index, issuer) in self.config.auth.agents.kubernetes.iter().enumerate() {
            let key = |name: &str| format!("auth.agents.kubernetes[{index}].{name}");
            self.authorities(&key("ca_file"), issuer.ca_file.as_deref());
            if let Some(path) = &issuer.token_file {
                self.note_later(&key("token_file"), files::secret(path));
            }
        }
        for (index, issuer) in self.config.auth.agents.ci.iter().enumerate() {
            self.authorities(&format!("auth.agents.ci[{index}].ca_file"), issuer.ca_file.as_deref());
        }
    }

    fn ci(&mut self) {
        let ci = &self.config.ci;
        for path in &ci.agent_files {
            let opened = Downloads::open(std::slice::from_ref(path)).map(drop);
            // The error names the key, which is in the problem anyway.
            self.note("ci.agent_files", opened.map_err(|error| error.to_string().replace("ci.agent_files: ", "")));
        }
        if !ci.enabled {
            return;
        }
        self.authorities("ci.ca_file", ci.ca_file.as_deref());
        for provider in &ci.providers {
            let key = |name: &str| format!("ci.providers.{}.{name}", provider.name);
            match &provider.system {
                CiSystem::Gitlab(gitlab) => {
                    self.note_later(&key("token_file"), files::secret(&gitlab.token_file));
                    self.authorities(&key("ca_file"), gitlab.ca_file.as_deref());
                }
                CiSystem::Command(command) => {
                    self.note_later(&key("dir"), files::makeable(&command.dir));
                    if let Some(program) = command.program.first() {
                        self.note_later(&key("program"), files::program(Path::new(program)));
                    }
                }
            }
        }
    }

    fn environments(&mut self) {
        let environments = &self.config.environments;
        if let Some(path) = &environments.hook_token_file {
            self.note("environments.hook_token_file", files::secret(path));
        }
        let authorities = environments.jobs.as_ref().and_then(|jobs| jobs.ca_file.as_deref());
        self.authorities("environments.ca_file", authorities);
    }
}

#[cfg(test)]
mod tests;
