//! Proof and room that a call needs before a byte of its message is read.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use http::{Request, Response};
use tower::Service as _;

use super::TEMPLATE_BYTES_MAX;
use super::prerequisites::OfJob;
use super::provisioner::{OfOperator, Room};
use super::wire::prerequisites_server::PrerequisitesServer;
use super::wire::provisioner_server::ProvisionerServer;
use crate::environments::caller::{JobCaller, operator};
use crate::problem::ProblemRow;
use crate::{ApiShared, BODY_BYTES_MAX, Caller};

/// Proof and room that the calls of a method need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// A job, or an operator who names one.
    Job,
    /// Any user.
    User,
    /// An operator.
    Operator,
    /// An operator with room for a template.
    Template,
    /// An operator with room for a template and for a stream.
    TemplateAndStream,
}

/// A service for one call that was admitted.
pub(super) enum Admitted {
    Prerequisites(PrerequisitesServer<OfJob>),
    Provisioner(ProvisionerServer<OfOperator>),
}

impl Admission {
    /// Returns what a method needs, by the path of its calls; `None` if there is no such method.
    pub(super) fn of(path: &str) -> Option<Self> {
        Some(match path.strip_prefix("/environments.v1.")? {
            "Prerequisites/Unmet" | "Prerequisites/Complete" | "Prerequisites/SetState" | "Prerequisites/Show" => {
                Self::Job
            }
            "Provisioner/GetDefaultEnvironmentTemplate" => Self::User,
            "Provisioner/GetEnvironmentTemplate" | "Provisioner/DeleteEnvironment" => Self::Operator,
            "Provisioner/RenderEnvironmentTemplate" => Self::Template,
            "Provisioner/EnsureEnvironment" => Self::TemplateAndStream,
            _ => return None,
        })
    }

    /// Admits a call of a caller, or refuses it.
    pub(super) fn admit(self, api: Arc<ApiShared>, caller: Caller) -> Result<Admitted, ProblemRow> {
        let (bytes_max, room) = match self {
            Self::Job => {
                let asker = JobCaller::of(&api, &caller)?;
                let server = PrerequisitesServer::new(OfJob { api, asker });
                return Ok(Admitted::Prerequisites(server.max_decoding_message_size(BODY_BYTES_MAX)));
            }
            Self::User => {
                caller.user()?;
                (BODY_BYTES_MAX, Room::default())
            }
            Self::Operator => {
                operator(&api, &caller)?;
                (BODY_BYTES_MAX, Room::default())
            }
            Self::Template => {
                let user = operator(&api, &caller)?;
                (TEMPLATE_BYTES_MAX, Room { stream: None, upload: Some(api.uploads.take(&user)?) })
            }
            Self::TemplateAndStream => {
                let user = operator(&api, &caller)?;
                let stream = Some(JobCaller::Operator(user.clone()).permit(&api)?);
                (TEMPLATE_BYTES_MAX, Room { stream, upload: Some(api.uploads.take(&user)?) })
            }
        };
        let server = ProvisionerServer::new(OfOperator::new(api, caller, room));
        Ok(Admitted::Provisioner(server.max_decoding_message_size(bytes_max)))
    }
}

impl Admitted {
    /// Reads the message and answers the call. Room for the message is given back before this returns.
    pub(super) async fn answer(self, request: Request<Body>) -> Response<tonic::body::Body> {
        let answered: Result<_, Infallible> = match self {
            Self::Prerequisites(mut server) => server.call(request).await,
            Self::Provisioner(mut server) => server.call(request).await,
        };
        let Ok(response) = answered;
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::DESCRIPTORS;

    #[test]
    fn every_method_of_the_schema_is_answered_and_no_other() {
        let methods = methods_of(DESCRIPTORS);
        assert_eq!(methods.len(), 9, "{methods:?}");
        for path in methods {
            assert!(Admission::of(&path).is_some(), "{path}");
        }
        for path in ["/environments.v1.Provisioner/Nothing", "/environments.v1.Other/Unmet", "/x", "environments.v1"] {
            assert!(Admission::of(path).is_none(), "{path}");
        }
    }

    /// Reads the paths of all methods out of descriptors (`google/protobuf/descriptor.proto`).
    fn methods_of(bytes: &[u8]) -> Vec<String> {
        #[derive(Clone, PartialEq, prost::Message)]
        struct Set {
            #[prost(message, repeated, tag = "1")]
            file: Vec<File>,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        struct File {
            #[prost(string, tag = "2")]
            package: String,
            #[prost(message, repeated, tag = "6")]
            service: Vec<Named>,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        struct Named {
            #[prost(string, tag = "1")]
            name: String,
            #[prost(message, repeated, tag = "2")]
            method: Vec<Only>,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        struct Only {
            #[prost(string, tag = "1")]
            name: String,
        }
        let set: Set = prost::Message::decode(bytes).unwrap();
        let mut paths = Vec::new();
        for file in &set.file {
            for service in &file.service {
                paths.extend(service.method.iter().map(|m| format!("/{}.{}/{}", file.package, service.name, m.name)));
            }
        }
        paths
    }
}
