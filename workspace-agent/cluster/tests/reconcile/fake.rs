//! A Kubernetes API server in memory, as much of it as a cluster agent asks: objects with versions, uids and finalizers,
//! preconditions, server-side apply as far as who owns fields is not looked at, lists and watches. And what controllers do with a
//! Deployment: they see at once how many pods it wants; pods are made by tests.

mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use agent_cluster::kube::Client;
use agent_cluster::kube::client::Body;
use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use self::words::{answer, line, missing, no_such_path, query, status};

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// What one place in the API is: a collection, and perhaps an object in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Group and version.
    api: String,
    namespace: String,
    plural: String,
    name: String,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<Place, Value>,
    version: u64,
    events: Vec<(u64, &'static str, Place, Value)>,
    watches: Vec<(Place, BTreeMap<String, String>, mpsc::Sender<Bytes>)>,
    /// Namespaces stay until [`Fake::finish_namespace`].
    namespaces_linger: bool,
    /// Claims that are stored as they were made: applied for the first time after that, they are written anew as they are.
    claims_as_made: BTreeSet<Place>,
    /// Kinds that not every server has: group, version, kind, plural.
    kinds: Vec<[&'static str; 4]>,
    /// Their groups are not in the list of groups.
    lists_no_groups: bool,
}

/// The server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fake(Arc<Mutex<State>>);

impl Fake {
    pub(crate) fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    pub(crate) fn let_namespaces_linger(&self) {
        self.0.lock().expect("the state").namespaces_linger = true;
    }

    /// Gives the server a kind of namespaced objects, as a CustomResourceDefinition does.
    pub(crate) fn install(&self, group: &'static str, version: &'static str, kind: &'static str, plural: &'static str) {
        self.0.lock().expect("the state").kinds.push([group, version, kind, plural]);
    }

    /// Takes a version of a kind away; the objects stay, and are there in other versions.
    pub(crate) fn uninstall(&self, group: &str, version: &str) {
        self.0.lock().expect("the state").kinds.retain(|kind| kind[0] != group || kind[1] != version);
    }

    /// Has the list of groups be that of a server which has just started: what is installed is served and not in it.
    pub(crate) fn list_no_groups(&self) {
        self.0.lock().expect("the state").lists_no_groups = true;
    }

    /// Does what the namespace controller does.
    pub(crate) fn finish_namespace(&self, name: &str) {
        self.0.lock().expect("the state").drop_namespace(name);
    }

    /// Takes objects away that were held by finalizers which are gone.
    pub(crate) fn drop_finalized(&self, namespace: &str) {
        let mut state = self.0.lock().expect("the state");
        let is_free = |value: &Value| {
            let held = value["metadata"]["finalizers"].as_array().is_some_and(|held| !held.is_empty());
            !held && !value["metadata"]["deletionTimestamp"].is_null()
        };
        let gone: Vec<_> =
            state.objects.iter().filter(|(at, value)| at.namespace == namespace && is_free(value)).collect();
        let gone: Vec<_> = gone.into_iter().map(|(place, value)| (place.clone(), value.clone())).collect();
        for (place, value) in gone {
            state.store(place, value, "DELETED");
        }
    }

    fn answer(&self, request: &http::request::Parts, body: &[u8]) -> Answer {
        let mut state = self.0.lock().expect("the state");
        let query = query(request.uri.query().unwrap_or_default());
        if let Some(about) = state.discover(request.uri.path()) {
            return answer(200, &about);
        }
        let Some(place) = Place::parse(request.uri.path()).and_then(|place| state.served(place)) else {
            return no_such_path();
        };
        if query.get("watch").is_some_and(|watch| watch == "true") {
            return state.watch(place, query);
        }
        let result = match request.method {
            Method::GET if place.name.is_empty() => Ok(state.list(&place, &query)),
            Method::GET => state.get(&place),
            Method::POST => state.create(place, body),
            Method::PUT => state.replace(&place, body),
            Method::PATCH => state.apply(place, body, query.get("force").is_some_and(|force| force == "true")),
            Method::DELETE => state.delete(&place, body),
            _ => Err((405, "no such method".to_owned())),
        };
        match result {
            Ok(value) => answer(200, &value),
            Err((404, message)) => missing(&message),
            Err((code, message)) => status(code, &message, &json!({})),
        }
    }
}

/// Kinds that every server has.
const GROUPS: [&str; 7] = [
    "/v1",
    "version",
    "apps/v1",
    "batch/v1",
    "networking.k8s.io/v1",
    "rbac.authorization.k8s.io/v1",
    "coordination.k8s.io/v1",
];

impl Place {
    fn parse(path: &str) -> Option<Self> {
        let parts: Vec<_> = path.trim_matches('/').split('/').collect();
        let (api, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => (format!("/{version}"), rest),
            ["apis", group, version, rest @ ..] => (format!("{group}/{version}"), rest),
            ["version"] => ("version".to_owned(), &["version", "version"][..]),
            _ => return None,
        };
        let (namespace, plural, name) = match rest {
            ["namespaces", namespace, plural, name] => (*namespace, *plural, *name),
            ["namespaces", namespace, plural] => (*namespace, *plural, ""),
            [plural, name] => ("", *plural, *name),
            [plural] => ("", *plural, ""),
            _ => return None,
        };
        Some(Self { api, namespace: namespace.into(), plural: plural.into(), name: name.into() })
    }

    fn holds(&self, other: &Self) -> bool {
        let anywhere = self.namespace.is_empty() || self.namespace == other.namespace;
        self.api == other.api && self.plural == other.plural && anywhere
    }
}

type Outcome = Result<Value, (u16, String)>;

impl State {
    /// Tells of groups and their versions, or of the kinds in a version.
    fn discover(&self, path: &str) -> Option<Value> {
        let version = |version: &str| json!({"version": version});
        let about = |kind: &[&str; 4]| {
            let versions = self.kinds.iter().filter(|other| other[0] == kind[0]).map(|other| version(other[1]));
            json!({"name": kind[0], "preferredVersion": version(kind[1]), "versions": versions.collect::<Vec<_>>()})
        };
        if path == "/apis" {
            let groups = self.kinds.iter().filter(|_| !self.lists_no_groups).map(about);
            return Some(json!({"kind": "APIGroupList", "groups": groups.collect::<Vec<_>>()}));
        }
        let rest = path.strip_prefix("/apis/")?;
        let Some((group, version)) = rest.split_once('/') else {
            return self.kinds.iter().find(|kind| kind[0] == rest).map(about);
        };
        let kinds: Vec<_> = self.kinds.iter().filter(|kind| kind[0] == group && kind[1] == version).collect();
        kinds.first()?;
        let resource = |kind: &&[&str; 4]| json!({"name": kind[3], "kind": kind[2], "namespaced": true});
        Some(json!({"resources": kinds.iter().map(resource).collect::<Vec<_>>()}))
    }

    /// Returns where what a path names is kept, if it is served: objects are the same in all versions.
    fn served(&self, place: Place) -> Option<Place> {
        if GROUPS.contains(&place.api.as_str()) {
            return Some(place);
        }
        let (group, version) = place.api.split_once('/')?;
        let is_it = |kind: &&[&str; 4]| kind[0] == group && kind[1] == version && kind[3] == place.plural;
        let kind = self.kinds.iter().find(is_it)?;
        Some(Place { api: kind[0].to_owned(), ..place })
    }

    fn get(&self, place: &Place) -> Outcome {
        if place.api == "version" {
            return Ok(json!({"gitVersion": "v1.34.0-fake"}));
        }
        self.objects.get(place).cloned().ok_or_else(|| (404, format!("{} \"{}\" not found", place.plural, place.name)))
    }

    fn list(&self, place: &Place, query: &BTreeMap<String, String>) -> Value {
        let found = self.objects.iter().filter(|(at, value)| place.holds(at) && selected(value, query));
        let items: Vec<_> = found.map(|(_, value)| value.clone()).collect();
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": self.version.to_string()}, "items": items})
    }

    fn watch(&mut self, place: Place, query: BTreeMap<String, String>) -> Answer {
        let since: u64 = query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or_default();
        let (sender, receiver) = mpsc::channel(10_000);
        for (version, kind, at, value) in &self.events {
            if *version > since && place.holds(at) && selected(value, &query) {
                drop(sender.try_send(line(kind, value)));
            }
        }
        self.watches.push((place, query, sender));
        let lines = stream::unfold(receiver, |mut receiver| async {
            let line = receiver.recv().await?;
            Some((Ok::<_, Infallible>(Frame::data(line)), receiver))
        });
        Response::new(BodyExt::boxed_unsync(StreamBody::new(lines)))
    }

    fn create(&mut self, collection: Place, body: &[u8]) -> Outcome {
        let value: Value = serde_json::from_slice(body).map_err(|error| (400, error.to_string()))?;
        let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let place = Place { name, ..collection };
        if self.objects.contains_key(&place) {
            return Err((409, format!("{} \"{}\" already exists", place.plural, place.name)));
        }
        self.insert(place, value)
    }

    fn insert(&mut self, place: Place, mut value: Value) -> Outcome {
        let namespace = Place {
            api: "/v1".into(),
            namespace: String::new(),
            plural: "namespaces".into(),
            name: place.namespace.clone(),
        };
        if !place.namespace.is_empty() {
            let Some(namespace) = self.objects.get(&namespace) else {
                return Err((404, format!("namespaces \"{}\" not found", place.namespace)));
            };
            if !namespace["metadata"]["deletionTimestamp"].is_null() {
                return Err((403, format!("namespace {} is being terminated", place.namespace)));
            }
        }
        value["metadata"]["uid"] = json!(format!("uid-{}", self.version + 1));
        if value["metadata"]["generation"].is_null() {
            value["metadata"]["generation"] = json!(1);
        }
        observe(&place, &mut value);
        Ok(self.store(place, value, "ADDED"))
    }

    fn store(&mut self, place: Place, mut value: Value, kind: &'static str) -> Value {
        // No object has the version of an empty store.
        self.version = self.version.max(1) + 1;
        value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if kind == "DELETED" {
            self.objects.remove(&place);
        } else {
            self.objects.insert(place.clone(), value.clone());
        }
        self.events.push((self.version, kind, place.clone(), value.clone()));
        self.watches.retain(|(at, query, sender)| {
            !(at.holds(&place) && selected(&value, query)) || sender.try_send(line(kind, &value)).is_ok()
        });
        value
    }

    fn replace(&mut self, place: &Place, body: &[u8]) -> Outcome {
        let live = self.get(place)?;
        let value: Value = serde_json::from_slice(body).map_err(|error| (400, error.to_string()))?;
        if value["metadata"]["resourceVersion"] != live["metadata"]["resourceVersion"] {
            return Err((409, "the object has been modified".into()));
        }
        if value == live { Ok(live) } else { Ok(self.store(place.clone(), value, "MODIFIED")) }
    }

    fn apply(&mut self, place: Place, body: &[u8], is_forced: bool) -> Outcome {
        let mut value: Value = serde_json::from_slice(body).map_err(|error| (400, error.to_string()))?;
        let version = value["metadata"].as_object_mut().and_then(|metadata| metadata.remove("resourceVersion"));
        let live = self.objects.get(&place).cloned();
        if let (Some(live), Some(version)) = (&live, version)
            && live["metadata"]["resourceVersion"] != version
        {
            return Err((409, "the object has been modified".into()));
        }
        let Some(live) = live else {
            if place.plural == "persistentvolumeclaims" {
                self.claims_as_made.insert(place.clone());
            }
            return self.insert(place, value);
        };
        if !is_forced {
            // What others have not set is taken without a word, as by the real one.
            let mut merged = live.clone();
            if !merge(&mut merged, &value) {
                return Err((409, "Apply failed with 1 conflict: conflict with \"kubectl\"".into()));
            }
            return Ok(self.store(place, merged, "MODIFIED"));
        }
        if live["type"] != value["type"] && place.plural == "secrets" {
            return Err((422, "type: Invalid value: field is immutable".into()));
        }
        for name in ["uid", "resourceVersion", "generation", "deletionTimestamp", "finalizers"] {
            if !live["metadata"][name].is_null() {
                value["metadata"][name] = live["metadata"][name].clone();
            }
        }
        if !live["status"].is_null() {
            value["status"] = live["status"].clone();
        }
        if place.plural == "deployments" && live["spec"] != value["spec"] {
            value["metadata"]["generation"] = json!(live["metadata"]["generation"].as_i64().unwrap_or_default() + 1);
            observe(&place, &mut value);
        }
        let is_stored_so = !self.claims_as_made.remove(&place);
        if value == live && is_stored_so { Ok(live) } else { Ok(self.store(place, value, "MODIFIED")) }
    }

    fn delete(&mut self, place: &Place, body: &[u8]) -> Outcome {
        let mut live = self.get(place)?;
        let options: Value = serde_json::from_slice(body).unwrap_or_default();
        for name in ["uid", "resourceVersion"] {
            let wanted = &options["preconditions"][name];
            if !wanted.is_null() && *wanted != live["metadata"][name] {
                return Err((409, format!("the {name} in the precondition does not match")));
            }
        }
        let is_held = live["metadata"]["finalizers"].as_array().is_some_and(|held| !held.is_empty());
        if is_held || (place.plural == "namespaces" && self.namespaces_linger) {
            if live["metadata"]["deletionTimestamp"].is_null() {
                live["metadata"]["deletionTimestamp"] = json!("2026-11-21T10:00:00Z");
                live = self.store(place.clone(), live, "MODIFIED");
            }
            return Ok(live);
        }
        if place.plural == "namespaces" {
            self.drop_namespace(&place.name);
            return Ok(live);
        }
        Ok(self.store(place.clone(), live, "DELETED"))
    }

    fn drop_namespace(&mut self, name: &str) {
        let is_in = |place: &Place| place.namespace == name || (place.plural == "namespaces" && place.name == name);
        let gone: Vec<_> = self.objects.iter().filter(|(place, _)| is_in(place)).collect();
        let gone: Vec<_> = gone.into_iter().map(|(place, value)| (place.clone(), value.clone())).collect();
        for (place, value) in gone {
            self.store(place, value, "DELETED");
        }
    }
}

/// Does what the controller of Deployments does first.
fn observe(place: &Place, value: &mut Value) {
    if place.plural == "deployments" {
        value["status"]["observedGeneration"] = value["metadata"]["generation"].clone();
    }
}

/// Puts what is said into an object; returns whether it says nothing else already.
fn merge(into: &mut Value, said: &Value) -> bool {
    let (Some(map), Some(said)) = (into.as_object_mut(), said.as_object()) else { return into == said };
    said.iter().all(|(key, said)| match map.get_mut(key) {
        Some(there) => merge(there, said),
        None => map.insert(key.clone(), said.clone()).is_none(),
    })
}

fn selected(value: &Value, query: &BTreeMap<String, String>) -> bool {
    let labels = query.get("labelSelector").map(String::as_str).unwrap_or_default();
    let fields = query.get("fieldSelector").map(String::as_str).unwrap_or_default();
    let label = |wanted: &str| match wanted.split_once('=') {
        Some((name, wanted)) => value["metadata"]["labels"][name] == wanted,
        None => !value["metadata"]["labels"][wanted].is_null(),
    };
    let field = |wanted: &str| match wanted.split_once('=') {
        Some(("metadata.name", wanted)) => value["metadata"]["name"] == wanted,
        Some((name, wanted)) => value[name] == wanted,
        None => false,
    };
    let all = |text: &str, is: &dyn Fn(&str) -> bool| text.split(',').filter(|part| !part.is_empty()).all(is);
    all(labels, &label) && all(fields, &field)
}

impl tower_service::Service<Request<Body>> for Fake {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let fake = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.expect("a body");
            Ok(fake.answer(&head, &body))
        })
    }
}
