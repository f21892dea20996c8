//! gRPC server reflection, so that `grpcurl list` works on the agents' listener.

use http::{Request, Response};
use hyper::body::Incoming;
use tonic::service::{Routes, RoutesBuilder};
use tower_service::Service;
use tunnel_proto::FILE_DESCRIPTOR_SET;

use super::body::AgentBody;

/// Answers everything on the agents' listener that is not the tunnel: reflection, and UNIMPLEMENTED for the rest.
#[derive(Clone, Debug)]
pub(super) struct Reflection {
    routes: Routes,
}

impl Reflection {
    pub(super) fn new() -> Self {
        let mut routes = RoutesBuilder::default();
        let service = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .build_v1();
        match service {
            Ok(service) => {
                routes.add_service(service);
            }
            // The descriptors are compiled in and covered by a test.
            Err(error) => tracing::error!(%error, "reflection is off: the descriptors cannot be read"),
        }
        Self { routes: routes.routes().prepare() }
    }

    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<AgentBody> {
        match self.routes.clone().call(request).await {
            Ok(response) => response.map(AgentBody::Tonic),
            Err(never) => match never {},
        }
    }
}
