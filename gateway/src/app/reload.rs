//! Reload of the configuration: on SIGHUP it is read whole and checked whole, and then all of its changes are taken over, or none.

use std::fmt;
use std::sync::Arc;

use gateway_api::EffectiveSetting;
use gateway_auth::oidc::provider::ProviderSettings;
use gateway_config::{Config, EffectiveRow, RefusedChange, TlsFiles, changes};
use gateway_net::audit::{Audit, AuditEvent, AuditRecord, Items};
use gateway_net::limits::UsageLimits;
use gateway_net::telemetry::{Metrics, ReloadOutcome};
use gateway_net::tls::{NewTls, Tls, TlsError};
use gateway_site::public_host::PublicHost;
use gateway_store::{KeyChange, NewKeys, Store, StoreError, wall_clock};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::sign_in::{self, SignInSetupError};

/// Source of a changed configuration.
pub struct ConfigSource(Box<dyn Fn() -> Result<Config, Vec<String>> + Send + Sync>);

impl fmt::Debug for ConfigSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ConfigSource(..)")
    }
}

impl ConfigSource {
    /// Creates a source of a function that reads the configuration anew from where it came from, and opens what it names; otherwise
    /// it returns all that is wrong.
    #[must_use]
    pub fn new(read: impl Fn() -> Result<Config, Vec<String>> + Send + Sync + 'static) -> Self {
        Self(Box::new(read))
    }
}

/// Certificates of the listeners that speak TLS.
#[derive(Debug, Default)]
pub(super) struct ReloadedTls {
    pub(super) public: Option<Arc<Tls>>,
    pub(super) agents: Option<Arc<Tls>>,
    /// Source of a changed configuration.
    pub(super) source: Option<ConfigSource>,
}

impl ReloadedTls {
    /// Returns all of them.
    pub(super) fn all(&self) -> Vec<Arc<Tls>> {
        self.public.iter().chain(&self.agents).cloned().collect()
    }
}

/// Parts of a running gateway that take changes over.
pub(super) struct Reload {
    pub(super) source: ConfigSource,
    pub(super) present: Config,
    pub(super) tls: ReloadedTls,
    pub(super) limits: Arc<UsageLimits>,
    pub(super) public: Arc<PublicHost>,
    pub(super) store: Store,
    pub(super) metrics: Metrics,
    pub(super) audit: Audit,
}

impl fmt::Debug for Reload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Reload").finish_non_exhaustive()
    }
}

/// Reason why nothing of a new configuration is taken over.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("{}", .0.join("; "))]
    Bad(Vec<String>),
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Restart(Vec<RefusedChange>),
    #[error("{key}: {error}")]
    Tls { key: &'static str, error: TlsError },
    #[error(transparent)]
    SignIn(#[from] SignInSetupError),
    #[error(transparent)]
    Keys(#[from] StoreError),
}

/// A configuration that is good, with everything that it names opened.
struct Prepared {
    config: Config,
    changed: Vec<String>,
    public: Option<NewTls>,
    agents: Option<NewTls>,
    provider: Option<ProviderSettings>,
    keys: NewKeys,
}

impl Reload {
    /// Reloads on each SIGHUP until `stop`.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut hangup = match signal(SignalKind::hangup()) {
            Ok(hangup) => hangup,
            Err(error) => return error!(%error, "the configuration cannot be reloaded: the signal cannot be received"),
        };
        while let Some(Some(())) = stop.run_until_cancelled(hangup.recv()).await {
            self.reload().await;
        }
    }

    async fn reload(&mut self) {
        let outcome = match Box::pin(self.prepare()).await {
            Ok(prepared) => self.take_over(prepared),
            Err(refused) => {
                self.tell(&refused);
                ReloadOutcome::Refused
            }
        };
        self.metrics.reloaded(outcome, u64::try_from(wall_clock().get()).unwrap_or_default());
    }

    /// Logs what was refused: a line for each key.
    fn tell(&self, refused: &Refused) {
        match refused {
            Refused::Bad(lines) => lines.iter().for_each(|why| warn!(why, "the new configuration is wrong")),
            Refused::Restart(keys) => {
                keys.iter().for_each(|one| warn!(key = one.key, why = one.why, "a change was refused"));
            }
            Refused::Tls { .. } | Refused::SignIn(_) | Refused::Keys(_) => {
                warn!(why = %refused, "the new configuration cannot be used");
            }
        }
        error!("the configuration was not reloaded: nothing of it was taken over, and the one before stays in force");
    }

    /// Reads, compares and opens everything, and changes nothing.
    async fn prepare(&self) -> Result<Prepared, Refused> {
        let config = (self.source.0)().map_err(Refused::Bad)?;
        let changed = changes(&self.present, &config).map_err(Refused::Restart)?;
        let read = |tls: &Option<Arc<Tls>>, files: &Option<TlsFiles>, key| match (tls, files) {
            (Some(tls), Some(files)) => tls.prepare(files).map(Some).map_err(|error| Refused::Tls { key, error }),
            (None, _) | (_, None) => Ok(None),
        };
        let public = read(&self.tls.public, &config.tls.public, "tls.public")?;
        let agents = read(&self.tls.agents, &config.tls.agents, "tls.agents")?;
        let provider = config.auth.oidc.as_ref().map(sign_in::provider_settings).transpose()?;
        let keys = self.store.read_keys().await?;
        Ok(Prepared { config, changed, public, agents, provider, keys })
    }

    /// Takes everything over. Cannot fail.
    fn take_over(&mut self, prepared: Prepared) -> ReloadOutcome {
        let Prepared { config, changed, public, agents, provider, keys } = prepared;
        for (tls, new) in [(&self.tls.public, public), (&self.tls.agents, agents)] {
            if let (Some(tls), Some(new)) = (tls, new) {
                tls.take_over(new);
            }
        }
        self.limits.change(&config.limits);
        if let (Some(provider), Some(settings)) = (self.public.provider(), provider) {
            provider.change(settings);
        }
        let admin = self.public.admin();
        admin.operators.store(Arc::new(sign_in::operators(&config)));
        admin.settings.store(Arc::new(effective(&config)));
        let has_keys = keys.are_other();
        let KeyChange { keys, added, removed } = self.store.exchange_keys(keys);
        if has_keys {
            let first = keys.first().map(ToString::to_string).unwrap_or_default();
            info!(first, added, removed, "the keys of store.key_file were read again");
        }
        self.present = config;
        for key in &changed {
            info!(key, "a change was taken over");
        }
        info!(changed = changed.len(), "the configuration was reloaded");
        let is_changed = has_keys || !changed.is_empty();
        if is_changed {
            let keys: Items = changed.iter().collect();
            self.audit.record(AuditRecord::new(AuditEvent::ConfigurationReloaded { keys }));
        }
        if is_changed { ReloadOutcome::Applied } else { ReloadOutcome::Unchanged }
    }
}

/// Returns the rows that operators see.
pub(super) fn effective(config: &Config) -> Vec<EffectiveSetting> {
    let setting = |row: &EffectiveRow| EffectiveSetting {
        key: row.key.to_string(),
        value: row.value.clone(),
        origin: row.origin.as_str(),
    };
    config.effective().iter().map(setting).collect()
}
