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
use gateway_http::respond::Failure;
use gateway_types::Scheme;

/// Names under which the gateway is reached.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// Hosts of workspaces, and the public host.
    pub rules: HostRules,
    /// The public address, and the cookies that belong to it.
    pub site: Site,
}

impl Hosts {
    /// Resolves the authority of a request; `None` for the public host. A connection that names the same authority again
    /// gets the same address.
    ///
    /// # Errors
    /// [`Failure`] when the authority is missing, ambiguous, or none of this gateway's.
    pub(super) fn address(&self, parts: &Parts, origin: &Origin) -> Result<Option<Arc<Address>>, Failure> {
        let authority = authority_of(parts).map_err(BadHost::failure)?;
        let mut known = origin.address.lock();
        if let Some(known) = known.as_ref().filter(|known| *known.authority == *authority) {
            return Ok(Some(known.clone()));
        }
        let target = self.rules.parse(authority).map_err(|NoSuchHost| Failure::NoSuchHost)?;
        if origin.negotiated.tls && !server_name_agrees(origin.negotiated.server_name.as_deref(), authority) {
            return Err(Failure::Misdirected);
        }
        let HostTarget::Workspace { name, port } = target else { return Ok(None) };
        let host = self.rules.format(&name, port);
        let public_scheme = if self.site.is_https() { Scheme::Https } else { Scheme::Http };
        let scheme = Route::scheme_of(&origin.negotiated, public_scheme);
        let address = Arc::new(Address::new(authority, name, port, host, scheme, origin.peer));
        *known = Some(address.clone());
        Ok(Some(address))
    }

    /// Reads purpose and source of a request, as far as the policy wants them.
    pub(super) fn shape(&self, parts: &Parts, address: &Address, offered: &OfferedCredential) -> RequestShape {
        let Address { authority, name, .. } = address;
        let workspace_of = |host: &str| match self.rules.parse(host) {
            Ok(HostTarget::Workspace { name, .. }) => Some(name),
            Ok(HostTarget::Public) | Err(_) => None,
        };
        let here = Here { site: &self.site, authority, workspace: Some(name), workspace_of: &workspace_of };
        shape::read(&parts.method, &parts.headers, offered, here)
    }
}
