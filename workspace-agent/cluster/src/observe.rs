//! Watches of the cluster: Deployments and pods of this agent's workspaces, and warnings about their objects. Changes
//! are reported; what they mean is the gateway's to decide.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event as Happening, Pod};
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tunnel_proto::reconcile::{NamespaceMode, Terms};

use crate::conversation::ConversationShared;
use crate::object::CLUSTER_LABEL;
use crate::view::place;
use crate::watch::ObjectWatch;

/// Objects in one page of the first list: as many as fit into memory beside everything else.
const PAGE: u32 = 200;

/// Follows Deployments. Never ends.
pub(crate) async fn deployments(client: Client, terms: Terms, shared: Arc<ConversationShared>) {
    let mut there = BTreeSet::new();
    follow::<Deployment>("Deployments", api(client, &terms), ours(&terms), |event| {
        shared.change(|books| {
            let changed = match event {
                Event::Init => {
                    there.clear();
                    None
                }
                Event::InitApply(deployment) => {
                    there.extend(deployment.metadata.name.clone());
                    books.view.deployment(&deployment)
                }
                Event::InitDone => {
                    books.view.only_deployments(&there);
                    books.view.deployments_listed();
                    books.refresh_all();
                    None
                }
                Event::Apply(deployment) => books.view.deployment(&deployment),
                Event::Delete(deployment) => books.view.deployment_gone(&deployment),
            };
            changed.into_iter().for_each(|name| books.refresh(&name));
        });
        shared.moved();
    })
    .await;
}

/// Follows pods. Never ends.
pub(crate) async fn pods(client: Client, terms: Terms, shared: Arc<ConversationShared>) {
    let mut there = BTreeSet::new();
    follow::<Pod>("pods", api(client, &terms), ours(&terms), |event| {
        shared.change(|books| {
            let changed = match event {
                Event::Init => {
                    there.clear();
                    Vec::new()
                }
                Event::InitApply(pod) => {
                    there.insert(place(&pod.metadata));
                    books.view.pod(&pod).into_iter().collect()
                }
                Event::InitDone => {
                    books.view.only_pods(&there);
                    books.view.pods_listed();
                    books.refresh_all();
                    Vec::new()
                }
                Event::Apply(pod) => books.view.pod(&pod).into_iter().collect(),
                Event::Delete(pod) => books.view.pod_gone(&place(&pod.metadata)).into_iter().collect(),
            };
            changed.iter().for_each(|name| books.refresh(name));
        });
        shared.moved();
    })
    .await;
}

/// Follows warnings. Never ends.
pub(crate) async fn warnings(client: Client, terms: Terms, shared: Arc<ConversationShared>) {
    // Events carry no labels of the objects that they are about.
    let config = watcher::Config::default().fields("type=Warning").page_size(PAGE);
    let mut there = BTreeSet::new();
    follow::<Happening>("events", api(client, &terms), config, |event| {
        shared.change(|books| {
            let changed = match event {
                Event::Init => {
                    there.clear();
                    Vec::new()
                }
                Event::InitApply(happening) => {
                    there.insert(place(&happening.metadata));
                    books.view.event(&happening).into_iter().collect()
                }
                Event::InitDone => books.view.only_events(&there),
                Event::Apply(happening) => books.view.event(&happening).into_iter().collect(),
                Event::Delete(happening) => books.view.event_gone(&place(&happening.metadata)).into_iter().collect(),
            };
            changed.iter().for_each(|name| books.refresh(name));
        });
    })
    .await;
}

fn api<K>(client: Client, terms: &Terms) -> kube::Api<K>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
{
    match &terms.namespaces {
        NamespaceMode::Unique => kube::Api::all(client),
        NamespaceMode::Shared(namespace) => kube::Api::namespaced(client, namespace),
    }
}

fn ours(terms: &Terms) -> watcher::Config {
    watcher::Config::default().labels(&format!("{CLUSTER_LABEL}={}", terms.cluster)).page_size(PAGE)
}

async fn follow<K>(what: &'static str, api: kube::Api<K>, config: watcher::Config, mut each: impl FnMut(Event<K>))
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut watch = ObjectWatch::new(what, api, config);
    loop {
        each(watch.next().await);
    }
}
