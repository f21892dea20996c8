//! What the gateway itself answers on the origin of `paths_url`: the way to the dashboard, the sign-in, and slashes.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, LOCATION};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use tokio::time::Instant;

use super::anonymous::overloaded;
use super::{Edge, EdgeAnswer, Origin};
use crate::address::Address;
use crate::body::ResponseBody;
use gateway_http::paths::{self, OwnPath};
use gateway_http::respond::Failure;
use gateway_types::Port;

impl Edge {
    /// Answers a path that belongs to no workspace.
    pub(super) async fn paths_page(
        &self,
        path: OwnPath,
        parts: &Parts,
        origin: &Origin,
        now: Instant,
    ) -> Result<Response<ResponseBody>, EdgeAnswer> {
        let is_read = parts.method == Method::GET || parts.method == Method::HEAD;
        let location = match path {
            OwnPath::Reserved => {
                let host = self.hosts.rules.paths_host().unwrap_or_default();
                return Ok(self.sign_in_page(parts, origin, host, now).await?.map(ResponseBody::from));
            }
            OwnPath::Home if is_read => self.hosts.site.public("/"),
            OwnPath::WithoutSlash => with_query(&format!("{}/", parts.uri.path()), parts),
            OwnPath::Home | OwnPath::Nothing => String::new(),
        };
        origin.guest.ask(now.into_std()).map_err(overloaded)?;
        let location = HeaderValue::try_from(location).ok().filter(|location| !location.is_empty());
        Ok(led(location.ok_or(Failure::NoSuchPage)?).map(ResponseBody::from))
    }

    /// Leads from the address of a workspace to its default port.
    pub(super) fn led_to_port(&self, parts: &Parts, address: &Address, port: Port) -> Response<ResponseBody> {
        let location = with_query(&paths::format(&address.name, Some(port)), parts);
        led(HeaderValue::try_from(location).unwrap_or(HeaderValue::from_static("/"))).map(ResponseBody::from)
    }
}

fn with_query(path: &str, parts: &Parts) -> String {
    match parts.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    }
}

/// Makes a redirect that keeps the method (RFC 9110, section 15.4.8), and is not kept: a port may change.
fn led(location: HeaderValue) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    response.headers_mut().insert(LOCATION, location);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
