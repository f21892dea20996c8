//! Meaning of the names that requests carry: the public host, and the hosts of workspaces.

use std::sync::Arc;

use http::request::Parts;

use super::Origin;
use crate::address::Address;
use crate::forward::Route;
use gateway_auth::policy::RequestShape;
use gateway_auth::request::OfferedCredential;
use gateway_auth::shape::{self, Here};
use gateway_auth::site::Site;
use gateway_http::host::{BadHost, HostRules, HostTarget, NoSuchHost, authority_of, server_name_agrees};
use gateway_http::paths::{self, OwnPath, PathPlace};
use gateway_http::respond::Failure;
use gateway_types::{Port, Scheme};

/// Names under which the gateway is reached.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// Hosts of workspaces, and the public host.
    pub rules: HostRules,
    /// The public address, and the cookies that belong to it.
    pub site: Site,
}

/// Place that a request asks for.
pub(super) enum Place {
    /// A port of a workspace, or a workspace.
    Workspace(Arc<Address>),
    /// The public host.
    Public,
    /// What the gateway itself answers on the origin of `paths_url`.
    Paths(OwnPath),
}

impl Hosts {
    /// Resolves the authority of a request, and on the origin of `paths_url` its path. A connection that names the same
    /// authority again gets the same address.
    ///
    /// # Errors
    /// [`Failure`] when the authority is missing, ambiguous, or none of this gateway's.
    pub(super) fn place(&self, parts: &Parts, origin: &Origin) -> Result<Place, Failure> {
        let (authority, path) = (authority_of(parts).map_err(BadHost::failure)?, parts.uri.path());
        let mut known = origin.address.lock();
        if let Some(known) = known.as_ref().filter(|known| *known.authority == *authority && known.has(path)) {
            return Ok(Place::Workspace(known.clone()));
        }
        let target = self.rules.parse(authority).map_err(|NoSuchHost| Failure::NoSuchHost)?;
        if origin.negotiated.tls && !server_name_agrees(origin.negotiated.server_name.as_deref(), authority) {
            return Err(Failure::Misdirected);
        }
        let public_scheme = if self.site.is_https() { Scheme::Https } else { Scheme::Http };
        let scheme = Route::scheme_of(&origin.negotiated, public_scheme);
        let new = |name, port, host| Address::new(authority, name, port, host, scheme, origin.peer);
        let address = match target {
            HostTarget::Public => return Ok(Place::Public),
            HostTarget::Workspace { name, port } => {
                let host = self.rules.format(&name, port);
                new(name, port, host)
            }
            HostTarget::Paths => match PathPlace::parse(path) {
                PathPlace::Workspace { name, port, prefix } => {
                    new(name, port, self.rules.paths_host().unwrap_or_default().to_owned()).below(prefix)
                }
                PathPlace::Gateway(path) => return Ok(Place::Paths(path)),
            },
        };
        let address = Arc::new(address);
        *known = Some(address.clone());
        Ok(Place::Workspace(address))
    }

    /// Returns the address of a port of the same workspace, or of the workspace, reached in the same way.
    pub(super) fn beside(&self, address: &Address, port: Option<Port>) -> String {
        let by_path = || self.site.by_path(&paths::format(&address.name, port));
        let of_host = || self.site.workspace(&self.rules.format(&address.name, port), "/");
        address.is_by_path().then(by_path).flatten().unwrap_or_else(of_host)
    }

    /// Reads purpose and source of a request, as far as the policy wants them.
    pub(super) fn shape(&self, parts: &Parts, address: &Address, offered: &OfferedCredential) -> RequestShape {
        let Address { authority, name, .. } = address;
        let workspace_of = |host: &str| match self.rules.parse(host) {
            Ok(HostTarget::Workspace { name, .. }) => Some(name),
            Ok(HostTarget::Public | HostTarget::Paths) | Err(_) => None,
        };
        // On the origin of all workspaces by path, the browser tells its own pages from all others, and no more.
        let workspace = (!address.is_by_path()).then_some(name);
        let here = Here { site: &self.site, authority, workspace, workspace_of: &workspace_of };
        shape::read(&parts.method, &parts.headers, offered, here)
    }
}
