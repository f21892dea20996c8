//! A store, a configuration, and a cluster in memory that does what a cluster's agent does with the objects of
//! environments: it writes and deletes only what bears the environment's mark.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, oneshot};
use tunnel_proto::environments::{Call, CallProgress, Done, ObjectError, ObjectErrorCode, ObjectRef, ObjectStep};

use super::super::super::call::{CallError, Calls};
use super::super::super::request::JobFacts;
use super::super::*;
use workspace_spec::cluster_config::{AccessAs, AccessEntry, CiAccess, ClusterConfig};

pub(super) const NS: &str =
    "  - apiVersion: v1\n    kind: Namespace\n    metadata: {name: \"{{ .environment.slug }}\"}\n";

/// A template with an account in the default namespace of the project's access entry.
pub(super) const SHARED: &str = "objects:\n  - apiVersion: v1\n    kind: ServiceAccount\n    metadata: {name: s}\n";

/// A template with service accounts, by name.
pub(super) fn template(accounts: &[&str], deletion: &str) -> String {
    let account = |name: &&str| {
        format!(
            "  - apiVersion: v1\n    kind: ServiceAccount\n    metadata: {{name: {name}, namespace: \"{{{{ .environment.slug }}}}\"}}\n"
        )
    };
    let accounts: String = accounts.iter().map(account).collect();
    format!("objects:\n{NS}{accounts}apply_resources: on_start\ndelete_resources: {deletion}\n")
}

pub(super) type Name = (String, String, String);

pub(super) fn name_of(object: &ObjectRef) -> Name {
    (object.kind.clone(), object.namespace.clone(), object.name.clone())
}

/// A call that waits for its answer.
pub(super) struct Pending {
    pub(super) call: Call,
    answer: oneshot::Sender<Result<Done, CallError>>,
}

#[derive(Default)]
pub(super) struct World {
    /// What is in the cluster, and whose mark it bears.
    pub(super) objects: BTreeMap<Name, String>,
    pub(super) pending: Option<Pending>,
    /// Every call that was made.
    pub(super) calls: Vec<Call>,
    pub(super) is_absent: bool,
    /// How often an environment had two calls at a time.
    overlaps: usize,
    /// Calls are answered as they come.
    pub(super) is_prompt: bool,
    /// Calls of many environments, each answered when it gets a permit of this: what they are, in order, and how many.
    pub(super) crowd: Option<Arc<Semaphore>>,
    pub(super) at_once: usize,
    pub(super) most_at_once: usize,
}

/// The cluster.
#[derive(Clone, Default)]
pub(super) struct Cluster {
    pub(super) world: Arc<Mutex<World>>,
    pub(super) began: Arc<Notify>,
}

/// Takes a call back that nobody waits for any more.
struct CalledOff(Arc<Mutex<World>>);

impl Drop for CalledOff {
    fn drop(&mut self) {
        self.0.lock().pending = None;
    }
}

impl Calls for Cluster {
    fn call<'a>(
        &'a self,
        _: &'a ClusterName,
        call: &'a Call,
        progress: &'a (dyn Fn(CallProgress) + Send + Sync),
    ) -> BoxFuture<'a, Result<Done, CallError>> {
        Box::pin(async move {
            let crowd = self.world.lock().crowd.clone();
            if let Some(crowd) = crowd {
                return self.call_of_many(call, &crowd).await;
            }
            let answered = {
                let mut world = self.world.lock();
                if world.is_absent {
                    return Err(CallError::Absent);
                }
                if world.pending.is_some() {
                    // The controller catches the panic, and tries again.
                    world.overlaps += 1;
                    self.began.notify_one();
                    panic!("two calls of one environment at a time");
                }
                world.calls.push(call.clone());
                let (answer, answered) = oneshot::channel();
                world.pending = Some(Pending { call: call.clone(), answer });
                answered
            };
            let _called_off = CalledOff(self.world.clone());
            let is_prompt = self.world.lock().is_prompt;
            if is_prompt {
                self.answer(usize::MAX, None);
            } else {
                self.began.notify_one();
            }
            let done = answered.await.unwrap_or(Err(CallError::NoAnswer))?;
            for object in &done.objects {
                progress(CallProgress { object: object.clone(), step: ObjectStep::Applied, message: String::new() });
            }
            Ok(done)
        })
    }
}

impl Cluster {
    async fn call_of_many(&self, call: &Call, crowd: &Semaphore) -> Result<Done, CallError> {
        {
            let mut world = self.world.lock();
            world.calls.push(call.clone());
            world.at_once += 1;
            world.most_at_once = world.most_at_once.max(world.at_once);
        }
        self.began.notify_one();
        crowd.acquire().await.unwrap().forget();
        let mut world = self.world.lock();
        world.at_once -= 1;
        let mark = call.scope().inventory.clone();
        Ok(match call {
            Call::Apply(apply) => {
                let wanted: Vec<serde_json::Value> = serde_json::from_slice(&apply.objects).unwrap();
                world.apply(&wanted, &apply.tracked, &mark, usize::MAX)
            }
            Call::Remove(remove) => world.remove(&remove.tracked, &mark, usize::MAX),
        })
    }

    /// Does up to so many steps of the call that waits, as an agent would, and returns what it would answer.
    pub(super) fn work(&self, steps: usize) -> Option<Done> {
        let mut world = self.world.lock();
        let call = world.pending.as_ref()?.call.clone();
        let mark = call.scope().inventory.clone();
        Some(match call {
            Call::Apply(apply) => {
                let wanted: Vec<serde_json::Value> = serde_json::from_slice(&apply.objects).unwrap();
                for object in &wanted {
                    let marked = object.pointer("/metadata/annotations/config.k8s.io~1owning-inventory");
                    assert_eq!(marked.and_then(|mark| mark.as_str()), Some(mark.as_str()));
                }
                world.apply(&wanted, &apply.tracked, &mark, steps)
            }
            Call::Remove(remove) => world.remove(&remove.tracked, &mark, steps),
        })
    }

    /// Does so and answers; `instead` is said instead of what came of it.
    pub(super) fn answer(&self, steps: usize, instead: Option<Result<Done, CallError>>) {
        let Some(done) = self.work(steps) else { return };
        if let Some(pending) = self.world.lock().pending.take() {
            pending.answer.send(instead.unwrap_or(Ok(done))).ok();
        }
    }

    /// Returns the names of what bears a mark.
    pub(super) fn marked(&self, mark: &str) -> Vec<Name> {
        let world = self.world.lock();
        world.objects.iter().filter(|(_, owner)| *owner == mark).map(|(name, _)| name.clone()).collect()
    }
}

fn reference(object: &serde_json::Value) -> ObjectRef {
    let text = |pointer: &str| object.pointer(pointer).and_then(|text| text.as_str()).unwrap_or_default().to_owned();
    ObjectRef {
        group: String::new(),
        version: "v1".to_owned(),
        kind: text("/kind"),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
        uid: format!("uid-{}", text("/metadata/name")),
    }
}

impl World {
    fn there(&self, of: &[ObjectRef], mark: &str) -> Vec<ObjectRef> {
        of.iter()
            .filter(|object| self.objects.get(&name_of(object)).is_some_and(|owner| owner == mark))
            .cloned()
            .collect()
    }

    fn apply(&mut self, wanted: &[serde_json::Value], tracked: &[ObjectRef], mark: &str, steps: usize) -> Done {
        let wanted: Vec<ObjectRef> = wanted.iter().map(reference).collect();
        let is_strange = |object: &&ObjectRef| self.objects.get(&name_of(object)).is_some_and(|owner| owner != mark);
        let errors: Vec<ObjectError> = wanted
            .iter()
            .filter(is_strange)
            .map(|object| ObjectError {
                object: Some(object.clone()),
                code: ObjectErrorCode::NotOwned,
                message: "not owned".to_owned(),
            })
            .collect();
        if errors.is_empty() {
            let pruned = tracked.iter().filter(|old| !wanted.iter().any(|new| name_of(new) == name_of(old)));
            let pruned: Vec<Name> = pruned.map(name_of).collect();
            for object in wanted.iter().take(steps) {
                self.objects.insert(name_of(object), mark.to_owned());
            }
            for name in pruned.into_iter().take(steps.saturating_sub(wanted.len())) {
                self.delete(&name, mark);
            }
        }
        let all: Vec<ObjectRef> = wanted.iter().chain(tracked).cloned().collect();
        Done { objects: self.there(&all, mark), errors, left: Vec::new() }
    }

    fn remove(&mut self, tracked: &[ObjectRef], mark: &str, steps: usize) -> Done {
        for object in tracked.iter().rev().take(steps) {
            self.delete(&name_of(object), mark);
        }
        let is_strange = |object: &&ObjectRef| self.objects.get(&name_of(object)).is_some_and(|owner| owner != mark);
        let error = |object: &ObjectRef| ObjectError {
            object: Some(object.clone()),
            code: ObjectErrorCode::NotOwned,
            message: "it is not of this environment".to_owned(),
        };
        let errors = tracked.iter().filter(is_strange).map(error).collect();
        Done { objects: self.there(tracked, mark), errors, left: Vec::new() }
    }

    fn delete(&mut self, name: &Name, mark: &str) {
        if self.objects.get(name).is_some_and(|owner| owner == mark) {
            self.objects.remove(name);
        }
    }
}

/// All of it.
pub(super) struct Stage {
    pub(super) store: Store,
    pub(super) cluster: Cluster,
    pub(super) environments: Environments,
    pub(super) registry: Arc<Registry>,
    pub(super) now: Arc<AtomicI64>,
}

pub(super) fn entry(access_as: AccessAs) -> AccessEntry {
    AccessEntry {
        id: "group/app".to_owned(),
        default_namespace: None,
        access_as,
        environments: vec!["review/*".to_owned(), "production".to_owned()],
        protected_branches_only: false,
        resource_management: true,
    }
}

pub(super) async fn configure(store: &Store, entry: AccessEntry) {
    let cluster = store.ensure_cluster(&"prod".parse().unwrap(), UnixSeconds::new(1)).await.unwrap();
    let ci_access = CiAccess { projects: vec![entry], groups: Vec::new() };
    let config = ClusterConfig { ci_access, ..ClusterConfig::default() };
    store.put_cluster_config(cluster.id, &config.to_json(), UnixSeconds::new(1)).await.unwrap();
}

async fn open(store: &Store, registry: &Arc<Registry>, cluster: &Cluster, now: &Arc<AtomicI64>) -> Environments {
    let templates = TemplateFiles::new(None);
    templates.begin(store).await.unwrap();
    let clock = now.clone();
    let token_ids: gateway_net::audit::TokenIds = Box::new(|_| Box::pin(async { None }));
    let log =
        gateway_config::AuditLog { path: None, rotate_bytes: 1 << 20, keep: 1, keep_days: 0, keep_access_days: 0 };
    let (audit, _) = Audit::open(&log, || 0, token_ids, Default::default()).unwrap();
    let parts = EnvironmentsParts {
        store: store.clone(),
        registry: registry.clone(),
        peers: None,
        templates,
        audit,
        metrics: Metrics::default(),
        settings: gateway_config::Environments::default(),
        public_url: "https://gw.example/".to_owned(),
        clock: Arc::new(move || UnixSeconds::new(clock.load(Ordering::Relaxed))),
    };
    Environments::open_with(parts, Box::new(cluster.clone())).await.unwrap()
}

impl Stage {
    pub(super) async fn new() -> Self {
        Self::with(entry(AccessAs::Agent)).await
    }

    pub(super) async fn with(entry: AccessEntry) -> Self {
        Self::on(Store::open("sqlite::memory:").await.unwrap(), entry).await
    }

    pub(super) async fn on(store: Store, entry: AccessEntry) -> Self {
        configure(&store, entry).await;
        let prod = store.cluster(&"prod".parse().unwrap()).await.unwrap().unwrap().id;
        let templates = [
            ("one", template(&[], "on_stop")),
            ("two", template(&["a"], "on_stop")),
            ("three", template(&["b", "c"], "on_stop")),
            ("kept", template(&["a"], "never")),
            ("shared", SHARED.to_owned()),
        ];
        for (name, text) in templates {
            store.put_environment_template(prod, name, &text).await.unwrap();
        }
        let (registry, cluster) = (Arc::new(Registry::new(10, 1)), Cluster::default());
        let now = Arc::new(AtomicI64::new(1000));
        let environments = open(&store, &registry, &cluster, &now).await;
        Self { store, cluster, environments, registry, now }
    }

    /// As after a start of the gateway.
    pub(super) async fn restart(&mut self) {
        self.environments = open(&self.store, &self.registry, &self.cluster, &self.now).await;
    }

    /// Another replica with the same store, which does no work.
    pub(super) async fn beside(&self) -> Environments {
        open(&self.store, &self.registry, &self.cluster, &self.now).await
    }

    pub(super) fn later(&self, seconds: i64) {
        self.now.fetch_add(seconds, Ordering::Relaxed);
    }

    /// Returns what runs all that is due.
    pub(super) fn run(&self, stop: &CancellationToken) -> impl Future<Output = ()> + Send + 'static {
        let configs = tokio::sync::watch::Sender::new(0).subscribe();
        self.environments.clone().run(self.registry.clone(), configs, stop.clone(), stop.clone())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.cluster.world.lock().overlaps, 0, "two calls of one environment at a time");
        }
    }
}

/// A job of `group/app` with the environment `review/1`.
pub(super) fn request(job_id: u64, template: &str) -> JobRequest {
    JobRequest {
        agent: "prod".parse().unwrap(),
        template: Some(template.parse().unwrap()),
        is_disabled: false,
        url: None,
        job: JobFacts {
            project_id: 42,
            project_path: "group/app".to_owned(),
            environment: Some("review/1".to_owned()),
            tier: None,
            action: None,
            is_ref_protected: false,
            pipeline_id: Some(9),
            job_id,
            user_id: 3,
            username: "ann".to_owned(),
        },
    }
}
