//! A cluster, and what workspaces in it are made of.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_cluster::FIELD_MANAGER;
use agent_cluster::kube::Client;
use agent_cluster::kube::client::Body;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tunnel_proto::reconcile::{Intent, NamespaceMode};
use tunnel_proto::state::{ActualState, DesiredState};

use crate::fake::Fake;
use crate::peer::Peer;
use crate::trouble::Trouble;

/// A cluster and the trouble on the way to it.
pub(crate) struct World {
    pub(crate) admin: Client,
    pub(crate) trouble: Trouble,
    pub(crate) fake: Option<Fake>,
    pub(crate) mode: NamespaceMode,
    /// The agent's name; another one for each test on a real server.
    pub(crate) cluster: String,
}

/// A workspace of a world.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) namespace: String,
    cluster: String,
}

/// The namespace mode of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Unique,
    Shared,
}

pub(crate) const MODES: [Mode; 2] = [Mode::Unique, Mode::Shared];

impl World {
    /// One in memory.
    pub(crate) async fn fake(mode: Mode) -> Self {
        let fake = Fake::default();
        Self::new(fake.client(), Some(fake), mode, "c".to_owned()).await
    }

    /// A real one.
    #[cfg(feature = "real-server")]
    pub(crate) async fn real(mode: Mode) -> Self {
        use agent_cluster::kube::Config;
        use agent_cluster::kube::config::{KubeConfigOptions, Kubeconfig};
        let path = std::env::var_os("AGENT_CLUSTER_TEST_KUBECONFIG")
            .expect("AGENT_CLUSTER_TEST_KUBECONFIG names a kubeconfig");
        let kubeconfig = Kubeconfig::read_from(path).expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a configuration");
        let client = Client::try_from(config).expect("a client");
        let cluster = format!("t{:08x}", rand::random::<u32>());
        Self::new(client, None, mode, cluster).await
    }

    async fn new(admin: Client, fake: Option<Fake>, mode: Mode, cluster: String) -> Self {
        let mode = match mode {
            Mode::Unique => NamespaceMode::Unique,
            Mode::Shared => NamespaceMode::Shared(format!("shared-{cluster}")),
        };
        let world = Self { admin, trouble: Trouble::default(), fake, mode, cluster };
        if let NamespaceMode::Shared(namespace) = &world.mode {
            world.make_namespace(namespace, &json!({})).await;
        }
        world
    }

    /// The same cluster, for another agent.
    pub(crate) fn again(&self) -> Self {
        Self {
            admin: self.admin.clone(),
            trouble: self.trouble.clone(),
            fake: self.fake.clone(),
            mode: self.mode.clone(),
            cluster: self.cluster.clone(),
        }
    }

    pub(crate) async fn make_namespace(&self, name: &str, labels: &Value) {
        let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        self.make("/api/v1/namespaces", &made).await;
    }

    /// Starts an agent behind the trouble.
    pub(crate) async fn agent(&self) -> Peer {
        let client = self.trouble.wrap(self.admin.clone());
        Peer::start(client, &self.cluster, self.mode.clone()).await
    }

    pub(crate) fn workspace(&self, name: &str) -> Subject {
        let namespace = match &self.mode {
            NamespaceMode::Unique => format!("ws-{}-{name}", self.cluster),
            NamespaceMode::Shared(namespace) => namespace.clone(),
        };
        Subject { name: name.to_owned(), namespace, cluster: self.cluster.clone() }
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> (u16, Value) {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string().into_bytes()));
        let answer = self.admin.send(request.body(body).expect("a request")).await.expect("an answer");
        let (head, body) = answer.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        (head.status.as_u16(), serde_json::from_slice(&bytes).unwrap_or_default())
    }

    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        let (code, value) = self.ask(Method::GET, path, None).await;
        (code != 404).then_some(value)
    }

    pub(crate) async fn make(&self, path: &str, value: &Value) -> Value {
        let (code, made) = self.ask(Method::POST, path, Some(value)).await;
        assert!(code < 300, "{path}: {made}");
        made
    }

    /// Changes an object that is there.
    pub(crate) async fn change(&self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut value = self.get(path).await.expect("it is there");
        change(&mut value);
        let (code, changed) = self.ask(Method::PUT, path, Some(&value)).await;
        assert!(code < 300, "{path}: {changed}");
    }

    pub(crate) async fn delete(&self, path: &str) {
        let (code, deleted) = self.ask(Method::DELETE, path, Some(&json!({}))).await;
        assert!(code < 300, "{path}: {deleted}");
    }

    /// Waits until an object is as it should be.
    pub(crate) async fn until(&self, path: &str, what: &str, is_it: impl Fn(Option<&Value>) -> bool) {
        let waiting = async {
            while !is_it(self.get(path).await.as_ref()) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
        assert!(waited.is_ok(), "{path} is not {what}: {:?}", self.get(path).await);
    }

    /// Returns kinds and names of what carries a workspace's label, but for what the cluster makes by itself.
    pub(crate) async fn objects(&self, subject: &Subject) -> Vec<String> {
        let mut found = Vec::new();
        for (path, kind) in COLLECTIONS {
            let path = path.replace("{}", &subject.namespace);
            let selector = format!("labelSelector=workspace-gateway.dev%2Fworkspace%3D{}", subject.name);
            let listed = self.get(&format!("{path}?{selector}")).await.unwrap_or_default();
            let names = listed["items"].as_array().into_iter().flatten();
            found.extend(names.map(|item| format!("{kind} {}", item["metadata"]["name"].as_str().unwrap_or_default())));
        }
        found
    }

    /// Returns the version of each object of a workspace, which no controller of the cluster changes.
    pub(crate) async fn versions(&self, subject: &Subject) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for (path, kind) in COLLECTIONS {
            let path = path.replace("{}", &subject.namespace);
            let listed = self.get(&path).await.unwrap_or_default();
            for item in listed["items"].as_array().into_iter().flatten() {
                let metadata = &item["metadata"];
                let name = metadata["name"].as_str().unwrap_or_default();
                // Published into each namespace at some time after it was made.
                if name == "kube-root-ca.crt" {
                    continue;
                }
                let version = match kind {
                    // Controllers write into its status, which leaves the generation as it is.
                    "Deployment" => metadata["generation"].to_string(),
                    // The volume is bound at any time after it was applied: annotations, spec and status. Of its writers only the
                    // agent counts, whose entry has the time of its last write that changed something.
                    "PersistentVolumeClaim" if self.fake.is_none() => {
                        let entries = metadata["managedFields"].as_array().into_iter().flatten();
                        let own: Vec<_> = entries.filter(|entry| entry["manager"] == FIELD_MANAGER).collect();
                        assert!(!own.is_empty(), "{name} is the agent's: {metadata}");
                        json!(own).to_string()
                    }
                    _ => metadata["resourceVersion"].to_string(),
                };
                found.insert(format!("{kind} {name}"), version);
            }
        }
        found
    }

    /// Waits until nothing of a workspace is left.
    pub(crate) async fn check_gone(&self, subject: &Subject) {
        assert_eq!(self.objects(subject).await, [""; 0]);
        match self.mode {
            NamespaceMode::Unique => assert_eq!(self.get(&subject.namespace_path()).await, None),
            NamespaceMode::Shared(_) => assert!(self.get(&subject.namespace_path()).await.is_some()),
        }
    }
}

/// Kinds that workspaces are made of.
const COLLECTIONS: [(&str, &str); 5] = [
    ("/api/v1/namespaces/{}/configmaps", "ConfigMap"),
    ("/api/v1/namespaces/{}/services", "Service"),
    ("/api/v1/namespaces/{}/secrets", "Secret"),
    ("/api/v1/namespaces/{}/persistentvolumeclaims", "PersistentVolumeClaim"),
    ("/apis/apps/v1/namespaces/{}/deployments", "Deployment"),
];

impl Subject {
    pub(crate) fn namespace_path(&self) -> String {
        format!("/api/v1/namespaces/{}", self.namespace)
    }

    pub(crate) fn path(&self, plural: &str, name: &str) -> String {
        let api = if plural == "deployments" { "/apis/apps/v1" } else { "/api/v1" };
        format!("{api}/namespaces/{}/{plural}/{name}", self.namespace)
    }

    pub(crate) fn core(&self) -> String {
        format!("{}-workspace-inventory", self.name)
    }

    pub(crate) fn secrets(&self) -> String {
        format!("{}-secrets-inventory", self.name)
    }

    /// An object as a frozen configuration has it.
    pub(crate) fn object(&self, api: &str, kind: &str, name: &str, owner: &str, more: &Value) -> Value {
        let mut object = json!({"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": self.namespace,
            "labels": self.labels(), "annotations": {"config.k8s.io/owning-inventory": owner}}});
        for (key, value) in more.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        object
    }

    pub(crate) fn labels(&self) -> Value {
        json!({"workspace-gateway.dev/workspace": self.name, "workspace-gateway.dev/cluster": self.cluster})
    }

    pub(crate) fn inventory(&self, name: &str) -> Value {
        let mut labels = self.labels();
        labels["cli-utils.sigs.k8s.io/inventory-id"] = json!(name);
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": self.namespace, "labels": labels}})
    }

    pub(crate) fn deployment(&self, replicas: u32) -> Value {
        let pod = json!({"metadata": {"labels": self.labels()},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "example.net/app:1"}]}});
        let spec = json!({"replicas": replicas, "selector": {"matchLabels": self.labels()}, "template": pod});
        self.object("apps/v1", "Deployment", &self.name, &self.core(), &json!({"spec": spec}))
    }

    /// What a partial intent brings.
    pub(crate) fn partial(&self, replicas: u32) -> Vec<Value> {
        let service =
            json!({"spec": {"selector": self.labels(), "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}});
        let volume = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        let core = self.core();
        vec![
            self.inventory(&core),
            self.deployment(replicas),
            self.object("v1", "Service", &self.name, &core, &service),
            self.object("v1", "PersistentVolumeClaim", &format!("{}-data", self.name), &core, &volume),
            self.object("v1", "ConfigMap", &format!("{}-scripts", self.name), &core, &json!({"data": {"run": "true"}})),
        ]
    }

    /// What a full intent brings.
    pub(crate) fn full(&self, replicas: u32) -> Vec<Value> {
        let data = json!({"type": "Opaque", "data": {"TOKEN": "c2VjcmV0"}});
        let mut objects = self.partial(replicas);
        objects.push(self.inventory(&self.secrets()));
        objects.push(self.object("v1", "Secret", &format!("{}-env", self.name), &self.secrets(), &data));
        objects
    }

    pub(crate) fn intent(&self, generation: u64, desired: DesiredState, objects: &[Value]) -> Intent {
        Intent {
            workspace: self.name.clone(),
            namespace: self.namespace.clone(),
            generation,
            desired,
            actual: ActualState::Running,
            round: 0,
            config: Bytes::from(json!(objects).to_string()),
            pull_secrets: Vec::new(),
        }
    }

    pub(crate) fn running(&self, generation: u64) -> Intent {
        self.intent(generation, DesiredState::Running, &self.full(1))
    }

    pub(crate) fn stopped(&self, generation: u64) -> Intent {
        self.intent(generation, DesiredState::Stopped, &self.partial(0))
    }

    pub(crate) fn end(&self, generation: u64) -> Intent {
        let objects = [self.inventory(&self.core()), self.inventory(&self.secrets())];
        self.intent(generation, DesiredState::Terminated, &objects)
    }
}
