//! Creates workspaces and changes their desired state: validated, frozen, stored, announced.
//!
//! Callers have authenticated and authorised the user. The store is the truth: an announcement afterwards only says
//! that there is something to read.

mod ci;
mod error;
mod places;
mod ports;
mod quotas;
mod template;
mod variables;

use std::sync::Arc;

use bytes::Bytes;

use super::addresses::Addresses;
use super::changes::{ChangeNotice, Changes, Subscriber};
use super::ci::CiTargets;
use super::cluster_configs::StoredConfig;
use super::workspace_templates::WorkspaceTemplates;
use gateway_store::{Cluster, ConfigVersion, CreateError, ManagedWorkspace, NewManaged, Store, UsedTemplate, Variable};
use gateway_types::quota::{Needs, Quotas};
use gateway_types::token::{Token, TokenKind};
use gateway_types::{ClusterName, DesiredState, IdleLimit, Lifecycle, NamedPort, UnixSeconds, UserName, WorkspaceName};
use workspace_spec::cluster_config::ClusterConfig;
use workspace_spec::devfile;
use workspace_spec::editor;
use workspace_spec::frozen::{Facts, freeze};
use workspace_spec::project::Project;
use workspace_spec::workspace_template::{ParameterValues, TemplateName};

pub use ci::NewOnCi;
pub use error::WorkspaceError;
pub use places::{ClusterPlace, Places};
pub use ports::check as check_ports;
pub use quotas::QuotaReport;
use quotas::Written;
pub use variables::{BadVariable, VARIABLES_BYTES_MAX, VARIABLES_MAX, check as check_variables};

/// Longest name of a namespace (RFC 1123 label), in bytes.
const NAMESPACE_BYTES_MAX: usize = 63;

/// Most attempts at a change of the desired state when something else was written meanwhile. Reports of a cluster come
/// a few times a second for one workspace at most.
const TRIES: usize = 16;

/// Attempts at creating a workspace before giving up when the cluster's configuration changes meanwhile. Operators edit
/// it by hand, so this is rare.
const CONFIGS_MAX: usize = 4;

/// Request for a new workspace.
#[derive(Debug)]
pub struct NewWorkspace {
    /// Its name.
    pub name: WorkspaceName,
    /// Executor that is to run it.
    pub on: NewOn,
    /// Devfile to run; `None` for [`devfile::DEFAULT_DEVFILE`].
    pub devfile: Option<Bytes>,
    /// Variables and files for its containers.
    pub variables: Vec<Variable>,
    /// Time after which it is stopped without use, as its owner wants it.
    pub idle: IdleLimit,
    /// Ports to name beside those of the devfile.
    pub ports: Vec<NamedPort>,
}

/// Executor that is to run a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewOn {
    /// A Kubernetes cluster.
    Kubernetes(NewInCluster),
    /// A CI system.
    Ci(NewOnCi),
}

/// What is said of a new workspace in a Kubernetes cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewInCluster {
    /// The cluster.
    pub cluster: ClusterName,
    /// Projects to clone; none for those of the template.
    pub projects: Vec<Project>,
    /// Its editor, by name; `None` for the template's, or else the cluster's default.
    pub editor: Option<String>,
    /// Template that it is made from, instead of a devfile.
    pub template: Option<TemplateRequest>,
}

/// Request for a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateRequest {
    /// Its name.
    pub name: TemplateName,
    /// Values of its parameters.
    pub parameters: ParameterValues,
}

/// Creates workspaces and changes their desired state. Clones share everything.
#[derive(Clone, Debug)]
pub struct Workspaces {
    store: Store,
    changes: Changes,
    addresses: Arc<Addresses>,
    /// The CI systems; `None` while workspaces are not made there.
    ci: Option<Arc<CiTargets>>,
    templates: Arc<WorkspaceTemplates>,
}

/// What a workspace in a cluster is made of.
#[derive(Clone, Debug)]
struct Contents {
    devfile: Option<Bytes>,
    projects: Vec<Project>,
    editor: Option<String>,
    ports: Vec<NamedPort>,
    idle: IdleLimit,
    /// The template that the others come from, as far as the request does not name them.
    template: Option<UsedTemplate>,
}

/// A workspace's objects and their namespace, before anything is stored.
struct Prepared {
    devfile: String,
    frozen: String,
    namespace: String,
    config_version: ConfigVersion,
    needs: Needs,
    quotas: Quotas,
    ports: Vec<NamedPort>,
}

impl Workspaces {
    /// Makes one that announces on `changes` what it stores.
    #[must_use]
    pub fn new(store: Store, changes: Changes, addresses: Addresses) -> Self {
        let templates = WorkspaceTemplates::new(None);
        Self { store, changes, addresses: Arc::new(addresses), ci: None, templates }
    }

    /// Lets workspaces be made from templates.
    #[must_use]
    pub fn with_templates(mut self, templates: Arc<WorkspaceTemplates>) -> Self {
        self.templates = templates;
        self
    }

    /// Returns the templates that workspaces can be made from.
    #[must_use]
    pub fn templates(&self) -> &WorkspaceTemplates {
        &self.templates
    }

    /// Lets workspaces be made in CI systems.
    #[must_use]
    pub fn with_ci(mut self, targets: Arc<CiTargets>) -> Self {
        self.ci = Some(targets);
        self
    }

    /// Hears of every change from now on.
    #[must_use]
    pub fn listen(&self) -> Subscriber {
        self.changes.listen()
    }

    /// Makes a workspace that is to run. In a cluster, its objects are generated here, once, and never again.
    ///
    /// # Errors
    /// [`WorkspaceError`] names the problem, of a devfile all problems at once; then nothing is stored.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it stores everything or nothing.
    pub async fn create(
        &self,
        owner: &UserName,
        new: NewWorkspace,
        now: UnixSeconds,
    ) -> Result<ManagedWorkspace, WorkspaceError> {
        let on = match &new.on {
            NewOn::Kubernetes(on) => on.clone(),
            NewOn::Ci(on) => {
                let on = on.clone();
                return self.create_on_ci(owner, new, on, now).await;
            }
        };
        let wrong = variables::check(&new.variables);
        if !wrong.is_empty() {
            return Err(WorkspaceError::Variables(wrong));
        }
        let cluster = self.store.cluster(&on.cluster).await?.ok_or(WorkspaceError::NoSuchCluster)?;
        let contents = self.contents(&new, &on)?;
        let NewWorkspace { name, variables, .. } = new;
        let agent_token = Token::generate(TokenKind::Agent)?;
        let mut tries = 0;
        loop {
            tries += 1;
            let prepared = self.prepare(&name, owner, &cluster, contents.clone()).await?;
            let new = NewManaged {
                name: &name,
                owner,
                cluster: cluster.id,
                config_version: prepared.config_version,
                namespace: &prepared.namespace,
                template: contents.template.as_ref(),
                devfile: &prepared.devfile,
                frozen: &prepared.frozen,
                variables: &variables,
                ports: &prepared.ports,
                agent_token: &agent_token,
                needs: prepared.needs,
                quotas: prepared.quotas,
            };
            if new.quotas.counts_needs() {
                self.measure_all(cluster.id).await?;
            }
            match self.store.create_managed(&new, now).await {
                Ok(managed) => return self.made(managed, contents.idle).await,
                Err(CreateError::ConfigChanged) if tries < CONFIGS_MAX => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Makes a workspace's objects as its cluster is configured now.
    async fn prepare(
        &self,
        name: &WorkspaceName,
        owner: &UserName,
        cluster: &Cluster,
        contents: Contents,
    ) -> Result<Prepared, WorkspaceError> {
        let stored = StoredConfig::read(&self.store, cluster.id, None).await?;
        let StoredConfig { version, config } = stored.ok_or(WorkspaceError::NoSuchCluster)?;
        let config = config.map_err(|_| WorkspaceError::ClusterUnreadable)?;
        if !config.enabled {
            return Err(WorkspaceError::ClusterDisabled);
        }
        let (addresses, name, owner, cluster) =
            (self.addresses.clone(), name.clone(), owner.clone(), cluster.name.clone());
        let is_rendered = contents.template.is_some();
        // A large devfile takes long enough to keep others on this thread waiting.
        let work = move || {
            let names = Names { workspace: &name, owner: &owner, cluster: &cluster };
            prepare(&addresses, names, version, &config, &contents)
        };
        let made = tokio::task::spawn_blocking(work).await.map_err(|_| WorkspaceError::Interrupted)?;
        made.map_err(|error| if is_rendered { error.of_template() } else { error })
    }

    /// Changes the desired state of a workspace.
    ///
    /// # Errors
    /// [`WorkspaceError::NoSuchWorkspace`] also for one that no executor runs for its owner; else as
    /// [`Workspaces::change`].
    pub async fn request(
        &self,
        name: &WorkspaceName,
        desired: DesiredState,
        now: UnixSeconds,
    ) -> Result<ManagedWorkspace, WorkspaceError> {
        let found = self.store.managed(name).await?.ok_or(WorkspaceError::NoSuchWorkspace)?;
        self.change(found, desired, |_| true, now).await
    }

    /// Changes the desired state of a workspace that was `found`, if `may_change` agrees to its lifecycle at the time
    /// of the write. It is this workspace that changes, and not another that has taken its name meanwhile.
    ///
    /// # Errors
    /// [`WorkspaceError::Refused`] if the lifecycle does not allow it, [`WorkspaceError::Changed`] if `may_change` does
    /// not agree, [`WorkspaceError::OverQuota`] if it would begin to run and the cluster's quotas do not allow that.
    ///
    /// # Cancel safety
    /// Dropped before it returns, the change is stored or not, as a whole.
    pub async fn change(
        &self,
        found: ManagedWorkspace,
        desired: DesiredState,
        may_change: impl Fn(&Lifecycle) -> bool + Send,
        now: UnixSeconds,
    ) -> Result<ManagedWorkspace, WorkspaceError> {
        let (id, mut found) = (found.workspace.id, found);
        for _ in 0..TRIES {
            if !may_change(&found.lifecycle) {
                return Err(WorkspaceError::Changed);
            }
            let next = found.lifecycle.request(desired, now)?;
            if next == found.lifecycle {
                // Nothing to write; but only if the workspace is still as it was found.
                let present = self.store.managed_by_id(id).await?.ok_or(WorkspaceError::NoSuchWorkspace)?;
                if present.lifecycle.revision == found.lifecycle.revision {
                    return Ok(present);
                }
                found = present;
                continue;
            }
            let is_written = match self.write(&found, &next).await? {
                Written::Yes => true,
                Written::No => false,
            };
            if is_written {
                self.say(&found);
            }
            found = self.store.managed_by_id(id).await?.ok_or(WorkspaceError::NoSuchWorkspace)?;
            if is_written {
                return Ok(found);
            }
        }
        Err(WorkspaceError::Busy)
    }

    /// Keeps a workspace from being stopped for idleness until a time.
    ///
    /// # Errors
    /// [`WorkspaceError::Store`]; [`WorkspaceError::NoSuchWorkspace`] if it is gone by now.
    pub async fn keep(&self, found: &ManagedWorkspace, until: UnixSeconds) -> Result<ManagedWorkspace, WorkspaceError> {
        self.store.keep_awake(found.workspace.id, until).await?;
        self.anew(found).await
    }

    /// Sets the time after which a workspace is stopped without use, as its owner wants it; the operator's bounds apply.
    ///
    /// # Errors
    /// As [`Workspaces::keep`].
    pub async fn limit_idle(
        &self,
        found: &ManagedWorkspace,
        wanted: IdleLimit,
    ) -> Result<ManagedWorkspace, WorkspaceError> {
        self.store.want_idle_limit(found.workspace.id, wanted).await?;
        self.anew(found).await
    }

    /// Stores what the owner of a new workspace wants beside its definition, and announces the workspace.
    async fn made(&self, managed: ManagedWorkspace, idle: IdleLimit) -> Result<ManagedWorkspace, WorkspaceError> {
        if idle == IdleLimit::Inherited {
            self.say(&managed);
            return Ok(managed);
        }
        // Were this not to come about, the workspace would have the operator's limit.
        self.limit_idle(&managed, idle).await
    }

    /// Announces a change of a workspace, and reads it.
    async fn anew(&self, found: &ManagedWorkspace) -> Result<ManagedWorkspace, WorkspaceError> {
        self.say(found);
        self.store.managed_by_id(found.workspace.id).await?.ok_or(WorkspaceError::NoSuchWorkspace)
    }

    /// Forgets a workspace of which nothing is left, and frees its name: at once for its owner, for others after
    /// `store.name_hold`.
    ///
    /// # Errors
    /// [`WorkspaceError::NotOver`] while something is left.
    pub async fn forget(&self, found: &ManagedWorkspace, now: UnixSeconds) -> Result<(), WorkspaceError> {
        if !self.store.forget(found.workspace.id, now).await? {
            return Err(WorkspaceError::NotOver);
        }
        self.say(found);
        Ok(())
    }

    fn say(&self, managed: &ManagedWorkspace) {
        self.changes.publish(ChangeNotice { workspace: managed.workspace.id, cluster: managed.cluster() });
    }
}

/// Names of a new workspace, of its owner and its cluster.
#[derive(Clone, Copy)]
struct Names<'a> {
    workspace: &'a WorkspaceName,
    owner: &'a UserName,
    cluster: &'a ClusterName,
}

/// Makes a workspace's objects from the request.
fn prepare(
    addresses: &Addresses,
    names: Names<'_>,
    config_version: ConfigVersion,
    config: &ClusterConfig,
    contents: &Contents,
) -> Result<Prepared, WorkspaceError> {
    let text = contents.devfile.as_deref().unwrap_or(devfile::DEFAULT_DEVFILE.as_bytes());
    let devfile = devfile::parse(text)?;
    let ports = ports::name(&devfile, &contents.ports)?;
    let editor = editor::choose(&config.editors, contents.editor.as_deref())?;
    let Names { workspace, owner, cluster } = names;
    let namespace = namespace(workspace, config)?;
    let facts = Facts {
        workspace,
        cluster,
        namespace: &namespace,
        owner,
        zone: &addresses.zone,
        public_url: &addresses.public_url,
        agents_url: config.gateway_url.as_deref().unwrap_or(&addresses.agents_url),
        projects: &contents.projects,
        editor,
    };
    let frozen = freeze(&devfile, config, &facts)
        .map_err(|problems| WorkspaceError::Frozen(problems.iter().map(ToString::to_string).collect()))?;
    let (needs, quotas) = (frozen.needs(), config.quotas());
    let devfile = String::from_utf8_lossy(text).into_owned();
    Ok(Prepared { devfile, frozen: frozen.to_json(), namespace, config_version, needs, quotas, ports })
}

/// Returns the namespace that a workspace's objects go to.
fn namespace(name: &WorkspaceName, config: &ClusterConfig) -> Result<String, WorkspaceError> {
    if let Some(shared) = &config.shared_namespace {
        return Ok(shared.clone());
    }
    let namespace = format!("{}{name}", config.namespace_prefix);
    if namespace.len() > NAMESPACE_BYTES_MAX {
        return Err(WorkspaceError::NameTooLong { bytes_max: NAMESPACE_BYTES_MAX - config.namespace_prefix.len() });
    }
    Ok(namespace)
}

#[cfg(test)]
mod tests;
