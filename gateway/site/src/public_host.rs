//! Serves the public host through stacks of tower layers, one for each kind of request.
//!
//! | stack | requests | layers, from the outside |
//! | --- | --- | --- |
//! | [`Kind::Api`] | paths below `/api`, and the pages that belong to it | identify, sign in first, report, follow, seal |
//! | [`Kind::Call`] | gRPC, by its media type | identify, report, follow, drop cookies, deadline |
//! | [`Kind::Page`] | all other paths | zone, sign-in pages, identify visitor |
//!
//! Layers and handlers know axum's types only. What the edge needs beyond a body travels in the extensions of an answer:
//! a failure of its table, the [`Delivery`] of a body, the [`EventStream`] of a stream.

pub(crate) mod layers;

use std::fmt;
use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::middleware::from_fn_with_state;
use futures_util::future::BoxFuture;
use http::{Request, Response};

use hyper::body::Incoming;
use tokio::time::Instant;

use tower::ServiceBuilder;

use gateway_api::stack::{Delivery, EdgeFailure, Stack, call, gather};
use gateway_api::{AdminParts, Api, ApiParts};
use gateway_auth::oidc::provider::Provider;
use gateway_auth::sign_in::SignIn;
use gateway_edge::body::ResponseBody;
use gateway_edge::event_streams::{EventStream, EventStreams};
use gateway_edge::service::{EdgeAnswer, Failures, Origin, PublicSite, RequestFacts, Visitors};
use gateway_types::UserName;
use gateway_types::principal::Principal;

/// Parts of the gateway that the public host works on, beside those of the API.
pub struct PublicParts {
    /// Parts of the API; the pages use them too.
    pub api: ApiParts,
    /// Finds the user of a request.
    pub visitors: Arc<Visitors>,
    /// Sign-in pages and one-time codes.
    pub sign_in: Arc<SignIn>,
    /// Provider that signs users in; `None` in dev mode.
    pub provider: Option<Provider>,
    /// Event streams that are open.
    pub followers: Arc<EventStreams>,
    /// Counts, logs and answers failures.
    pub failures: Arc<Failures>,
}

/// State of all layers and handlers of the public host.
pub(crate) struct Host {
    pub(crate) api: Api,
    pub(crate) visitors: Arc<Visitors>,
    pub(crate) sign_in: Arc<SignIn>,
    pub(crate) provider: Option<Provider>,
    pub(crate) followers: Arc<EventStreams>,
    pub(crate) failures: Arc<Failures>,
}

/// The public host.
#[derive(Clone)]
pub struct PublicHost {
    pub(crate) host: Arc<Host>,
    api: Stack,
    calls: Stack,
    pages: Stack,
}

impl fmt::Debug for PublicHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PublicHost").finish_non_exhaustive()
    }
}

/// Connection and time of a request, in its extensions.
#[derive(Clone)]
pub(crate) struct Arrival {
    pub(crate) origin: Arc<Origin>,
    /// Time at which the head was there.
    pub(crate) began: Instant,
    /// User found by a layer, for the log.
    pub(crate) user: Arc<OnceLock<UserName>>,
}

impl Arrival {
    /// Notes the user that a credential proved.
    fn found(&self, principal: Option<&Principal>) {
        if let Some(principal) = principal {
            // One layer of a stack identifies; a second finding would be the same.
            let _is_new = self.user.set(principal.user.clone()).is_ok();
        }
    }
}

/// Kind of a request, by which its stack is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Api,
    Call,
    Page,
}

impl Kind {
    fn of<B>(request: &Request<B>) -> Self {
        let path = request.uri().path();
        match () {
            () if Api::has(path) || is_page(path) || path == gateway_dashboard::LIVE => Self::Api,
            () if Api::is_grpc(request.method(), request.headers()) => Self::Call,
            () => Self::Page,
        }
    }
}

/// Returns whether a path has a page for people, which they may come to by a link.
fn is_page(path: &str) -> bool {
    path == gateway_api::DEVICE_PATH || gateway_dashboard::is_page(path)
}

impl PublicHost {
    /// Makes the stacks.
    #[must_use]
    pub fn new(parts: PublicParts) -> Self {
        let PublicParts { api, visitors, sign_in, provider, followers, failures } = parts;
        let host = Arc::new(Host {
            api: Api::new(api, gateway_dashboard::router()),
            visitors,
            sign_in,
            provider,
            followers,
            failures,
        });
        let identify = || from_fn_with_state(host.clone(), layers::identify);
        let report = || from_fn_with_state(host.clone(), layers::report);
        let follow = || from_fn_with_state(host.clone(), layers::follow);
        let api = ServiceBuilder::new()
            .layer(identify())
            .layer(from_fn_with_state(host.clone(), layers::sign_in_first))
            .layer(report())
            .layer(follow())
            .service(host.api.documents());
        let calls =
            ServiceBuilder::new().layer(identify()).layer(report()).layer(follow()).service(host.api.services());
        let pages = ServiceBuilder::new()
            .layer(from_fn_with_state(host.clone(), layers::zone))
            .layer(from_fn_with_state(host.clone(), layers::sign_in_pages))
            .layer(from_fn_with_state(host.clone(), layers::identify_visitor))
            .service(gateway_dashboard::files());
        Self { host, api: Stack::new(api), calls: Stack::new(calls), pages: Stack::new(pages) }
    }

    /// Returns the sign-in, for links that the operator asks for.
    #[must_use]
    pub fn sign_in(&self) -> &SignIn {
        &self.host.sign_in
    }

    /// Returns the provider that signs users in; `None` in dev mode.
    #[must_use]
    pub fn provider(&self) -> Option<&Provider> {
        self.host.provider.as_ref()
    }

    /// Returns what only operators see.
    #[must_use]
    pub fn admin(&self) -> &AdminParts {
        &self.host.api.parts().admin
    }

    fn stack(&self, kind: Kind) -> Stack {
        match kind {
            Kind::Api => self.api.clone(),
            Kind::Call => self.calls.clone(),
            Kind::Page => self.pages.clone(),
        }
    }
}

impl PublicSite for PublicHost {
    fn answer<'a>(
        &'a self,
        request: Request<Incoming>,
        origin: &'a Arc<Origin>,
        known: &'a mut RequestFacts,
    ) -> BoxFuture<'a, Result<Response<ResponseBody>, EdgeAnswer>> {
        // On the heap, so that requests to workspaces do not carry it: ten thousand may be under way.
        Box::pin(async move {
            let stack = self.stack(Kind::of(&request));
            let arrival = Arrival { origin: origin.clone(), began: known.began(), user: Arc::default() };
            let user = arrival.user.clone();
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(arrival);
            let response = call(stack, request).await;
            known.user = user.get().cloned();
            match response.extensions().get::<EdgeFailure>() {
                Some(EdgeFailure(failure)) => Err(EdgeAnswer::from(*failure)),
                None => Ok(deliver(response).await),
            }
        })
    }
}

/// Makes the body that the edge sends.
async fn deliver(mut response: Response<Body>) -> Response<ResponseBody> {
    let delivery = response.extensions_mut().remove::<Delivery>();
    let followed = response.extensions_mut().remove::<Arc<EventStream>>();
    match delivery {
        Some(Delivery::Events | Delivery::Messages) => response.map(|body| ResponseBody::events(body, followed)),
        Some(Delivery::File(bytes)) => response.map(|body| ResponseBody::file(body, bytes)),
        None => {
            let (parts, body) = response.into_parts();
            Response::from_parts(parts, ResponseBody::from(gather(body).await))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_is_chosen_by_path_and_then_by_media_type() {
        let kind = |method: &str, path: &str, media: &str| {
            Kind::of(&Request::builder().method(method).uri(path).header("content-type", media).body(()).unwrap())
        };
        assert_eq!(kind("GET", "/api/v1/whoami", ""), Kind::Api);
        assert_eq!(kind("POST", "/api/v1/whoami", "application/grpc"), Kind::Api);
        assert_eq!(kind("POST", "/workspaces/app", "application/x-www-form-urlencoded"), Kind::Api);
        assert_eq!(kind("POST", "/grpc.Service/Method", "application/grpc"), Kind::Call);
        assert_eq!(kind("GET", "/grpc.Service/Method", "application/grpc"), Kind::Page);
        for page in ["/", "/create", "/me", "/help", "/live", "/operator", "/operator/users", "/.gateway/device"] {
            assert_eq!(kind("GET", page, ""), Kind::Api, "{page}");
        }
        for other in ["/workspaces", "/livestock", "/.gateway/device/", "/apis"] {
            assert_eq!(kind("GET", other, ""), Kind::Page, "{other}");
        }
        assert_eq!(kind("GET", "/assets/look.css", ""), Kind::Page);
        assert_eq!(kind("GET", "/.gateway/sign-in", ""), Kind::Page);
    }
}
