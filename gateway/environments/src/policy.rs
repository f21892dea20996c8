//! Copy in memory of which jobs may have environments on which cluster, by the agents' configurations, and of which
//! jobs were prepared. Questions to it are answered at once, even while the store or an agent does not answer.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tunnel_proto::environments::KEPT_NAMESPACES_MAX;

use super::refusal::RefusalCode;
use super::request::{JobRequest, Met, Unmet};
use gateway_store::{ClusterId, Preparation, Store, StoreError, StoredEnvironment};
use gateway_types::{ClusterName, UnixSeconds};
use gateway_workspaces::cluster_configs::StoredConfig;
use workspace_spec::cluster_config::{ACCESS_ENTRIES_MAX, AccessAs, AccessEntry, CiAccess};
use workspace_spec::environment::manifest::{self, Border};

/// Prepared jobs that are remembered. A forgotten job is looked up in the store if it asks again.
const PREPARED_MAX: usize = 65_536;

/// Overlap with which stops are read again: clocks differ, and a stop is stored a while after the time that it bears.
const STOPS_AGAIN: Duration = Duration::from_secs(60);

// Of projects and of groups; an agent takes all the namespaces that they can name.
const _: () = assert!(2 * ACCESS_ENTRIES_MAX <= KEPT_NAMESPACES_MAX);

/// Cached configuration of a cluster.
#[derive(Clone, Debug)]
struct CachedCluster {
    id: ClusterId,
    access: CiAccess,
    /// Time since which this configuration is in force. Earlier requests were judged by another one.
    since: UnixSeconds,
}

/// Cached configurations of all clusters.
#[derive(Debug, Default)]
struct Clusters {
    by_name: HashMap<ClusterName, CachedCluster>,
    names: HashMap<ClusterId, ClusterName>,
}

/// Cached configurations and prepared jobs.
#[derive(Debug, Default)]
pub(super) struct AccessPolicy {
    clusters: ArcSwap<Clusters>,
    prepared: RwLock<Prepared>,
    /// Time up to which stops of environments were read.
    stops_read: Mutex<Option<UnixSeconds>>,
}

/// Recently prepared jobs.
///
/// Invariants: both fields hold the same jobs.
#[derive(Debug, Default)]
struct Prepared {
    known: HashSet<(ClusterId, u64)>,
    order: VecDeque<(ClusterId, u64)>,
}

/// A job that is remembered as prepared, and not yet stored as such. Forgotten again when dropped, so that the store is
/// asked whether it was stored.
#[derive(Debug)]
pub(super) struct PreparedGuard<'a> {
    access: &'a AccessPolicy,
    job: (ClusterId, u64),
    is_stored: bool,
}

impl PreparedGuard<'_> {
    /// Marks the job as stored. If a stop has forgotten it meanwhile, it stays forgotten.
    pub(super) fn keep(mut self) {
        self.is_stored = true;
    }
}

impl Drop for PreparedGuard<'_> {
    fn drop(&mut self) {
        if !self.is_stored {
            self.access.forget_prepared(&[self.job]);
        }
    }
}

/// Decision about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AccessVerdict {
    /// There is nothing to do.
    Met(Met),
    /// The request is refused.
    Refused(RefusalCode),
    /// The request is allowed on this cluster by this access entry; it may have been carried out before.
    AllowedCluster(AllowedCluster),
}

/// Grounds on which a request is allowed, all read at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AllowedCluster {
    pub(super) cluster: ClusterId,
    /// Access entry of the project.
    pub(super) entry: AccessEntry,
    /// Namespaces on the cluster that are the default of some project.
    pub(super) default_namespaces: Vec<String>,
}

/// Decision about a request, borrowed from one snapshot.
enum Judged<'a> {
    Met(Met),
    Refused(RefusalCode),
    AllowedCluster(ClusterId, &'a CiAccess, &'a AccessEntry),
}

impl Clusters {
    fn known(&self, cluster: ClusterId) -> Option<&CachedCluster> {
        self.by_name.get(self.names.get(&cluster)?)
    }

    fn judge(&self, request: &JobRequest) -> Judged<'_> {
        let job = &request.job;
        if request.is_disabled {
            return Judged::Met(Met::Disabled);
        }
        let Some(environment) = job.environment.as_deref().filter(|name| !name.is_empty()) else {
            return Judged::Met(Met::NoEnvironment);
        };
        if !job.is_start() {
            return Judged::Met(Met::NotAStart);
        }
        let Some(CachedCluster { id: cluster, access, .. }) = self.by_name.get(&request.agent) else {
            return Judged::Refused(RefusalCode::NoSuchAgent);
        };
        match allowed(access, &job.project_path, environment) {
            Err(code) => Judged::Refused(code),
            Ok(entry) if entry.protected_branches_only && !job.is_ref_protected => {
                Judged::Refused(RefusalCode::RefNotProtected)
            }
            Ok(entry) => Judged::AllowedCluster(*cluster, access, entry),
        }
    }
}

/// Returns the entry that lets a project have an environment.
fn allowed<'a>(access: &'a CiAccess, project_path: &str, environment: &str) -> Result<&'a AccessEntry, RefusalCode> {
    let entry = access.entry(project_path).ok_or(RefusalCode::ProjectNotAllowed)?;
    if !entry.resource_management {
        return Err(RefusalCode::NotEnabled);
    }
    if !entry.allows_environment(environment) {
        return Err(RefusalCode::EnvironmentNotAllowed);
    }
    Ok(entry)
}

impl AccessPolicy {
    /// Reads everything anew.
    ///
    /// # Errors
    /// [`StoreError`]; then what was known stays.
    pub(super) async fn read(&self, store: &Store, now: UnixSeconds) -> Result<(), StoreError> {
        let mut clusters = Clusters::default();
        let before = self.clusters.load_full();
        for cluster in store.clusters().await? {
            let stored = StoredConfig::read(store, cluster.id, None).await?;
            // The configuration was written by a newer version and cannot be read: the known one stays in force.
            let known = before.by_name.get(&cluster.name).filter(|known| known.id == cluster.id);
            let access = match stored.map(|stored| stored.config) {
                Some(Ok(config)) => config.ci_access,
                Some(Err(_)) => known.map(|known| known.access.clone()).unwrap_or_default(),
                None => CiAccess::default(),
            };
            let since = match known {
                Some(known) if known.access == access => known.since,
                Some(_) => now,
                // A process that was there before may have judged by it since it was stored.
                None => store.cluster_config_since(cluster.id).await?.unwrap_or(now),
            };
            clusters.names.insert(cluster.id, cluster.name.clone());
            clusters.by_name.insert(cluster.name, CachedCluster { id: cluster.id, access, since });
        }
        self.clusters.store(Arc::new(clusters));
        Ok(())
    }

    /// Remembers the jobs that were prepared before this process.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(super) async fn remember(&self, store: &Store) -> Result<(), StoreError> {
        let newest_first = store.prepared_jobs(u32::try_from(PREPARED_MAX).unwrap_or(u32::MAX)).await?;
        for (cluster, job) in newest_first.into_iter().rev() {
            self.note_prepared(cluster, job);
        }
        Ok(())
    }

    /// Remembers that a job is prepared, until the returned guard is dropped without `keep`.
    pub(super) fn noted(&self, cluster: ClusterId, job: u64) -> PreparedGuard<'_> {
        self.note_prepared(cluster, job);
        PreparedGuard { access: self, job: (cluster, job), is_stored: false }
    }

    /// Remembers that a job is prepared.
    fn note_prepared(&self, cluster: ClusterId, job: u64) {
        let mut prepared = self.prepared.write();
        if !prepared.known.insert((cluster, job)) {
            return;
        }
        prepared.order.push_back((cluster, job));
        if prepared.order.len() > PREPARED_MAX
            && let Some(oldest) = prepared.order.pop_front()
        {
            prepared.known.remove(&oldest);
        }
    }

    /// Forgets prepared jobs whose environments were stopped, here or by another process.
    ///
    /// # Errors
    /// [`StoreError`]; the next call reads the same stops again.
    pub(super) async fn read_stops(&self, store: &Store, now: UnixSeconds) -> Result<(), StoreError> {
        let known = (*self.stops_read.lock()).map_or(now, |known| known.min(now));
        let again = i64::try_from(STOPS_AGAIN.as_secs()).unwrap_or(i64::MAX);
        let stopped = store.stopped_jobs(UnixSeconds::new(known.get().saturating_sub(again))).await?;
        self.forget_prepared(&stopped);
        *self.stops_read.lock() = Some(now);
        Ok(())
    }

    /// Forgets that jobs are prepared.
    pub(super) fn forget_prepared(&self, jobs: &[(ClusterId, u64)]) {
        let mut prepared = self.prepared.write();
        let mut is_less = false;
        for job in jobs {
            is_less |= prepared.known.remove(job);
        }
        if is_less {
            let Prepared { known, order } = &mut *prepared;
            order.retain(|job| known.contains(job));
        }
    }

    fn is_prepared(&self, cluster: ClusterId, job: u64) -> bool {
        self.prepared.read().known.contains(&(cluster, job))
    }

    /// Returns a cluster's id.
    pub(super) fn cluster(&self, name: &ClusterName) -> Option<ClusterId> {
        self.clusters.load().by_name.get(name).map(|known| known.id)
    }

    /// Returns all clusters.
    pub(super) fn clusters(&self) -> Vec<(ClusterId, ClusterName)> {
        self.clusters.load().names.iter().map(|(id, name)| (*id, name.clone())).collect()
    }

    /// Returns a cluster's name.
    pub(super) fn name(&self, id: ClusterId) -> Option<ClusterName> {
        self.clusters.load().names.get(&id).cloned()
    }

    /// Returns the access entry of a project on a cluster, and the namespaces there that are the default of some
    /// project.
    pub(super) fn of_project(&self, agent: &ClusterName, project_path: &str) -> (Option<AccessEntry>, Vec<String>) {
        let clusters = self.clusters.load();
        let Some(CachedCluster { access, .. }) = clusters.by_name.get(agent) else { return (None, Vec::new()) };
        (access.entry(project_path).cloned(), access.default_namespaces())
    }

    /// Decides about a request, from memory alone.
    pub(super) fn verdict(&self, request: &JobRequest) -> AccessVerdict {
        match self.clusters.load().judge(request) {
            Judged::Met(met) => AccessVerdict::Met(met),
            Judged::Refused(code) => AccessVerdict::Refused(code),
            Judged::AllowedCluster(cluster, access, entry) => {
                let (entry, default_namespaces) = (entry.clone(), access.default_namespaces());
                AccessVerdict::AllowedCluster(AllowedCluster { cluster, entry, default_namespaces })
            }
        }
    }

    /// Returns whether something has to be made before a job runs.
    pub(super) fn unmet(&self, request: &JobRequest) -> Unmet {
        match self.clusters.load().judge(request) {
            Judged::Met(met) => Unmet::Met(met),
            // A job is not held up by objects that it may not have.
            Judged::Refused(_) => Unmet::Met(Met::NotEnabled),
            Judged::AllowedCluster(cluster, ..) if self.is_prepared(cluster, request.job.job_id) => {
                Unmet::Met(Met::Completed)
            }
            Judged::AllowedCluster(..) => Unmet::Unmet,
        }
    }

    /// Decides again whether a preparation may be carried out: the configuration may have changed since the request.
    /// `objects` are the objects to apply.
    ///
    /// # Errors
    /// The rule of the configuration that forbids it, for people.
    pub(super) fn still_allows(
        &self,
        environment: &StoredEnvironment,
        preparation: &Preparation,
        objects: &[Value],
    ) -> Result<(), &'static str> {
        let clusters = self.clusters.load();
        let known = clusters.known(environment.cluster);
        // An operator needs no entry, but stays within the border of one.
        let mut entry = known.and_then(|known| known.access.entry(&environment.project_path));
        if preparation.job.is_some() {
            let known = known.ok_or(RefusalCode::ProjectNotAllowed.text())?;
            let allowed = allowed(&known.access, &environment.project_path, &environment.name);
            let allowed = allowed.map_err(RefusalCode::text)?;
            // A preparation without an identity is never applied as the agent once jobs have to act as themselves.
            if allowed.access_as == AccessAs::CiJob && preparation.identity.is_none() {
                return Err("jobs act as themselves by now");
            }
            // Whether the job's branch was protected is no longer known; before the configuration required it, that was
            // not checked.
            if allowed.protected_branches_only && preparation.made_at < known.since {
                return Err(RefusalCode::RefNotProtected.text());
            }
            entry = Some(allowed);
        }
        let border = Border {
            default_namespace: entry.and_then(|entry| entry.default_namespace.as_deref()),
            default_namespaces: &known.map(|known| known.access.default_namespaces()).unwrap_or_default(),
        };
        if manifest::is_within(objects, border) { Ok(()) } else { Err("the default namespaces are others by now") }
    }

    /// Returns the namespaces on a cluster that environments share, which are no environment's to delete.
    pub(super) fn kept_namespaces(&self, cluster: ClusterId) -> Vec<String> {
        let clusters = self.clusters.load();
        clusters.known(cluster).map(|known| known.access.default_namespaces()).unwrap_or_default()
    }

    /// Returns whether recorded objects of an environment are removed as the agent itself, by the current
    /// configuration; `None` if it has no entry for the project any more.
    pub(super) fn removes_as_agent(&self, environment: &StoredEnvironment) -> Option<bool> {
        let clusters = self.clusters.load();
        let entry = clusters.known(environment.cluster)?.access.entry(&environment.project_path)?;
        Some(entry.access_as == AccessAs::Agent)
    }
}
