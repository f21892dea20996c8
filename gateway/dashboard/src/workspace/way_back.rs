//! Way back of a visitor to the place that they came from, once the workspace is there.

use http::HeaderMap;
use http::header::REFERER;

use gateway_agents::registry::LiveSession;
use gateway_api::ApiShared;
use gateway_api::page::only;
use gateway_auth::sign_in::path::ReturnPath;
use gateway_auth::site::WORKSPACE_PAGES;
use gateway_http::host::HostTarget;
use gateway_http::paths::PathPlace;
use gateway_store::{ManagedWorkspace, wall_clock};
use gateway_types::{ActualState, DesiredState, WorkspaceName};

/// Place that a visitor came from, and wants to get back to.
pub(super) struct Back {
    /// A host of this workspace, or that of `paths_url` with a path of this workspace.
    pub(super) host: String,
    pub(super) path: ReturnPath,
}

/// Way back of a visitor, in the query of the page's address and in its forms.
pub(super) struct WayBack {
    pub(super) back: Option<Back>,
    /// The visitor has pressed the button, and waits for the workspace.
    pub(super) follows: bool,
}

impl WayBack {
    /// Reads a query or a form. Invalid values are left out: they only say where to go afterwards.
    pub(super) fn read(api: &ApiShared, name: &WorkspaceName, form: &[u8]) -> Self {
        let path = ReturnPath::parse_or_root(&only(form, "return").unwrap_or_default());
        let host = only(form, "host").filter(|host| match api.rules.parse(host) {
            // Only in its one spelling, so that it cannot have anything else in it.
            Ok(HostTarget::Workspace { name: of, port }) => of == *name && api.rules.format(&of, port) == *host,
            Ok(HostTarget::Paths) => api.rules.paths_host() == Some(host) && is_of(&path, name),
            Ok(HostTarget::Public) | Err(_) => false,
        });
        Self { back: host.map(|host| Back { host, path }), follows: only(form, "follow").as_deref() == Some("1") }
    }

    /// Adds the page that the link was on, as the browser names it, if it belongs to the host that the visitor came
    /// from: the failure page repeats nothing of a request, so it cannot name it.
    pub(super) fn or_from(mut self, api: &ApiShared, headers: &HeaderMap) -> Self {
        let referrer = headers.get(REFERER).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let Some((authority, path)) = authority_and_path(referrer) else { return self };
        let place = PathPlace::parse;
        if let Some(back) = self.back.as_mut() {
            let is_there = match api.rules.parse(authority) {
                Ok(HostTarget::Workspace { name, port }) => {
                    api.rules.format(&name, port) == back.host && back.path.as_str() == "/"
                }
                // The same port of the same workspace, of which the failure page has named the beginning.
                Ok(HostTarget::Paths) => {
                    api.rules.paths_host() == Some(&back.host)
                        && place(path_of(path)) == place(path_of(back.path.as_str()))
                }
                Ok(HostTarget::Public) | Err(_) => false,
            };
            if is_there {
                back.path = ReturnPath::parse_or_root(path);
            }
        }
        self
    }

    /// Writes the address of the page with its query.
    pub(super) fn address(&self, name: &WorkspaceName, follows: bool) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if let Some(Back { host, path }) = &self.back {
            query.append_pair("host", host).append_pair("return", path.as_str());
        }
        if follows {
            query.append_pair("follow", "1");
        }
        format!("{WORKSPACE_PAGES}{name}?{}", query.finish())
    }
}

/// Returns whether a path on the origin of `paths_url` is of this workspace.
fn is_of(path: &ReturnPath, name: &WorkspaceName) -> bool {
    matches!(PathPlace::parse(path_of(path.as_str())), PathPlace::Workspace { name: of, .. } if of == *name)
}

fn path_of(path: &str) -> &str {
    path.split(['?', '#']).next().unwrap_or_default()
}

/// Splits an address into its authority and the rest, which begins with a slash.
fn authority_and_path(address: &str) -> Option<(&str, &str)> {
    let (_, rest) = address.split_once("://")?;
    rest.split_at_checked(rest.find('/')?)
}

/// Returns whether the place that a visitor waits for answers already, although the cluster does not count the workspace as running
/// yet: the agent of this start is there, and an app listens.
pub(super) async fn serves(api: &ApiShared, managed: &ManagedWorkspace, session: &LiveSession, place: &Back) -> bool {
    let life = &managed.lifecycle;
    let is_of_this_start = || {
        let wanted_for = wall_clock().get().saturating_sub(life.desired_at.get());
        u64::try_from(wanted_for).is_ok_and(|seconds| session.since.elapsed().as_secs() <= seconds)
    };
    let starts = life.desired == DesiredState::Running && life.actual == ActualState::Starting && is_of_this_start();
    let port = match api.rules.parse(&place.host) {
        Ok(HostTarget::Workspace { port, .. }) => port.or(session.default_port()),
        Ok(HostTarget::Paths) => match PathPlace::parse(path_of(place.path.as_str())) {
            PathPlace::Workspace { port, .. } => port.or(session.default_port()),
            PathPlace::Gateway(_) => None,
        },
        Ok(HostTarget::Public) | Err(_) => None,
    };
    match port.filter(|_| starts) {
        Some(port) => session.listening().await.is_some_and(|ports| ports.contains(&port)),
        None => false,
    }
}
