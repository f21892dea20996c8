//! A gateway that has environments made, and the agent that it calls.

use std::time::Duration;

use agent_cluster::call::CallEnd;
use agent_cluster::environments::Environments;
use agent_cluster::{FIELD_MANAGER, Options};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tunnel_proto::environments::{
    Apply, Call, CallAnswer, CallIdentity, CallProgress, Decoder, Done, ObjectErrorCode, ObjectRef, ObjectStep, Remove,
    Scope,
};

use crate::world::World;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(150);

/// A cluster, and what is called for in it.
pub(super) struct Desk {
    pub(super) world: World,
    /// The agent's own namespace.
    pub(super) home: String,
}

/// One environment.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) scope: Scope,
    pub(super) namespace: String,
}

/// An agent that answers one call.
pub(super) struct Calling {
    channel: DuplexStream,
    decoder: Decoder<CallAnswer>,
    agent: JoinSet<CallEnd>,
    pub(super) progress: Vec<CallProgress>,
}

/// What a call came to.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) progress: Vec<CallProgress>,
    pub(super) done: Done,
}

impl Desk {
    pub(super) async fn new(world: World) -> Self {
        let home = format!("agents-{}", world.cluster);
        world.make_namespace(&home, &json!({})).await;
        Self { world, home }
    }

    /// The same cluster, with an agent that was not there before and without trouble.
    pub(super) fn again(&self) -> Self {
        let world = World { trouble: crate::trouble::Trouble::default(), ..self.world.again() };
        Self { world, home: self.home.clone() }
    }

    pub(super) fn place(&self, name: &str) -> Place {
        let cluster = self.world.cluster.clone();
        let environment = format!("{name}-3-1");
        let inventory = format!("environment-{environment}-{cluster}");
        let scope = Scope { cluster, environment, inventory, identity: None, kept_namespaces: Vec::new() };
        Place { namespace: format!("{name}-{}", self.world.cluster), scope }
    }

    /// Starts the agent.
    pub(super) fn agent(&self) -> Environments {
        let client = self.world.trouble.wrap(self.world.admin.clone());
        Environments::new(Options { client, field_manager: FIELD_MANAGER.to_owned() }, self.home.clone())
    }

    /// Has a call answered by an agent of its own.
    pub(super) async fn call(&self, call: &Call) -> Heard {
        Calling::begin(&self.agent(), call).await.heard().await
    }

    pub(super) async fn apply(&self, place: &Place, objects: &[Value], tracked: &[ObjectRef]) -> Heard {
        self.call(&place.apply(objects, tracked)).await
    }

    pub(super) async fn remove(&self, place: &Place, tracked: &[ObjectRef]) -> Heard {
        self.call(&place.remove(tracked)).await
    }

    /// Applies without an error; returns what is tracked then.
    pub(super) async fn applied(&self, place: &Place, objects: &[Value], tracked: &[ObjectRef]) -> Vec<ObjectRef> {
        let heard = self.apply(place, objects, tracked).await;
        assert_eq!((heard.done.errors.as_slice(), heard.done.left.as_slice()), (&[][..], &[][..]), "{heard:?}");
        heard.done.objects
    }

    /// Removes everything, and checks that nothing is left.
    pub(super) async fn removed(&self, place: &Place, tracked: &[ObjectRef]) {
        let heard = self.remove(place, tracked).await;
        assert_eq!(heard.done, Done::default(), "{heard:?}");
        assert_eq!(self.inventory(place).await, None);
    }

    /// Removes everything but what is not the environment's by now; returns the names of that.
    pub(super) async fn removed_but(&self, place: &Place, tracked: &[ObjectRef]) -> Vec<String> {
        let heard = self.remove(place, tracked).await;
        let Done { objects, errors, left } = &heard.done;
        assert_eq!((objects.as_slice(), left.as_slice()), (&[][..], &[][..]), "{heard:?}");
        assert!(errors.iter().all(|error| error.code == ObjectErrorCode::NotOwned), "{heard:?}");
        assert_eq!(self.inventory(place).await, None);
        let mut names: Vec<_> = errors.iter().filter_map(|error| Some(error.object.as_ref()?.name.clone())).collect();
        names.sort();
        names
    }

    /// Returns what the inventory tracks; `None` if there is none.
    pub(super) async fn inventory(&self, place: &Place) -> Option<Vec<String>> {
        let path = format!("/api/v1/namespaces/{}/configmaps/{}", self.home, place.scope.inventory);
        let map = self.world.get(&path).await?;
        Some(map["data"].as_object().map(|data| data.keys().cloned().collect()).unwrap_or_default())
    }

    pub(super) async fn has(&self, path: &str) -> bool {
        self.world.get(path).await.is_some()
    }
}

impl Place {
    /// An object as a manifest has it.
    pub(super) fn object(&self, api: &str, kind: &str, namespace: &str, name: &str, more: &Value) -> Value {
        let mut object = json!({"apiVersion": api, "kind": kind, "metadata": {"name": name,
            "labels": {"agent.gitlab.com/id-1": ""},
            "annotations": {"config.k8s.io/owning-inventory": self.scope.inventory}}});
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        for (key, value) in more.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        object
    }

    pub(super) fn own_namespace(&self) -> Value {
        self.object("v1", "Namespace", "", &self.namespace, &json!({}))
    }

    pub(super) fn account(&self, namespace: &str, name: &str) -> Value {
        self.object("v1", "ServiceAccount", namespace, name, &json!({}))
    }

    pub(super) fn binding(&self, namespace: &str, name: &str) -> Value {
        let group = "rbac.authorization.k8s.io";
        let more = json!({"roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "admin"},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": "gitlab:project_env:3:review"}]});
        self.object(&format!("{group}/v1"), "RoleBinding", namespace, name, &more)
    }

    /// What the built-in template makes, and an account.
    pub(super) fn usual(&self) -> Vec<Value> {
        let namespace = &self.namespace;
        vec![self.own_namespace(), self.binding(namespace, "ci"), self.account(namespace, "app")]
    }

    pub(super) fn apply(&self, objects: &[Value], tracked: &[ObjectRef]) -> Call {
        let objects = Bytes::from(json!(objects).to_string());
        Call::Apply(Apply { scope: self.scope.clone(), objects, tracked: tracked.to_vec() })
    }

    pub(super) fn remove(&self, tracked: &[ObjectRef]) -> Call {
        Call::Remove(Remove { scope: self.scope.clone(), tracked: tracked.to_vec() })
    }

    pub(super) fn acting(&self) -> Self {
        let identity = CallIdentity {
            user: "gitlab:ci_job:7".into(),
            groups: vec!["gitlab:ci_job".into()],
            extra: vec![("agent.gitlab.com/project_id".into(), vec!["3".into()])],
        };
        Self { scope: Scope { identity: Some(identity), ..self.scope.clone() }, ..self.clone() }
    }

    pub(super) fn path(&self) -> String {
        format!("/api/v1/namespaces/{}", self.namespace)
    }

    pub(super) fn account_path(&self, name: &str) -> String {
        account_path(&self.namespace, name)
    }

    pub(super) fn binding_path(&self, name: &str) -> String {
        format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings/{name}", self.namespace)
    }
}

pub(super) fn account_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}")
}

/// What goes wrong with the usual objects where the namespace does, with this code.
pub(super) fn withheld(code: ObjectErrorCode) -> [(String, ObjectErrorCode); 3] {
    let others = ["ServiceAccount", "RoleBinding"].map(|kind| (kind.to_owned(), ObjectErrorCode::Conflict));
    let [account, binding] = others;
    [("Namespace".to_owned(), code), account, binding]
}

impl Calling {
    pub(super) async fn begin(environments: &Environments, call: &Call) -> Self {
        let (mut near, far) = duplex(64 * 1024);
        near.write_all(&call.encode()).await.expect("the agent listens");
        let permit = environments.permit().expect("there is room");
        let environments = environments.clone();
        let mut agent = JoinSet::new();
        agent.spawn(async move { environments.answer(permit, far, CancellationToken::new()).await });
        Self { channel: near, decoder: Decoder::default(), agent, progress: Vec::new() }
    }

    /// Takes the next answer; `None` at the end of the channel.
    async fn next(&mut self) -> Option<CallAnswer> {
        loop {
            if let Some(answer) = self.decoder.next_message().expect("what the agent says") {
                return Some(answer);
            }
            let mut piece = vec![0; 16 * 1024];
            match self.channel.read(&mut piece).await {
                Ok(0) | Err(_) => return None,
                Ok(read) => self.decoder.push(&piece[..read]),
            }
        }
    }

    /// Waits for the last answer; `None` if the agent ends without.
    pub(super) async fn done(&mut self) -> Option<Done> {
        let waiting = async {
            loop {
                match self.next().await? {
                    CallAnswer::Progress(progress) => self.progress.push(progress),
                    CallAnswer::Done(done) => return Some(done),
                }
            }
        };
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        waited.expect("an answer in time")
    }

    pub(super) async fn heard(mut self) -> Heard {
        let done = self.done().await.expect("an answer");
        assert_eq!(self.next().await, None, "it finishes with the last answer");
        assert_eq!(self.agent.join_next().await.expect("an agent").expect("no panic"), CallEnd::Answered);
        Heard { progress: self.progress, done }
    }

    /// The gateway goes away; returns how the agent ended.
    pub(super) async fn hang_up(self) -> CallEnd {
        let Self { channel, mut agent, .. } = self;
        drop(channel);
        let ended = tokio::time::timeout(PATIENCE, agent.join_next()).await.expect("it ends");
        ended.expect("an agent").expect("no panic")
    }

    /// As `kill -9` does.
    pub(super) async fn kill(mut self) {
        self.agent.shutdown().await;
    }
}

impl Heard {
    /// Returns which steps were said of the objects of a kind.
    pub(super) fn steps(&self, kind: &str) -> Vec<ObjectStep> {
        let of_it = self.progress.iter().filter(|progress| progress.object.kind == kind);
        of_it.map(|progress| progress.step).collect()
    }

    /// Returns what went wrong, by kind.
    pub(super) fn errors(&self) -> Vec<(String, ObjectErrorCode)> {
        let kind = |object: &Option<ObjectRef>| object.as_ref().map_or_else(String::new, |object| object.kind.clone());
        self.done.errors.iter().map(|error| (kind(&error.object), error.code)).collect()
    }

    /// Returns kinds of what is there.
    pub(super) fn kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<_> = self.done.objects.iter().map(|object| object.kind.as_str()).collect();
        kinds.sort_unstable();
        kinds
    }
}
