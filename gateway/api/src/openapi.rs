//! The description of the API (OpenAPI 3.1), made of the types and handlers that serve it.
//!
//! `openapi.json` beside it is what is served. A test makes it anew and compares; to take over a change:
//! `UPDATE_OPENAPI=1 cargo test -p gateway-api openapi`.

pub(super) mod bodies;
pub(super) mod failures;
pub(super) mod parameters;
mod settle;
pub(super) mod values;

use serde_json::Value;
use utoipa::openapi::OpenApi;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi as _};

use self::settle::settle;
use super::environments::{hook, prepare, records, templates};
use super::{
    admin, agents, answer, ci, clusters, device, events, explain, external, git_credentials, idle, lifecycle, replicas,
    sessions, shares, tokens, whoami, workspace_templates, workspaces,
};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Workspace Gateway",
        version = "1",
        description = "A user's own workspaces, shares, tokens and sessions. Times are RFC 3339. Fields may be added to \
            answers, and codes to failures; none changes its meaning.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    servers((url = "/api/v1")),
    security(("bearer" = []), ("gatewayAuthorization" = []), ("session" = [])),
    modifiers(&Credentials),
    paths(
        answer::openapi,
        whoami::show,
        workspaces::list,
        lifecycle::create,
        workspaces::show,
        lifecycle::change,
        lifecycle::remove,
        events::follow,
        external::hand_over_asked,
        idle::keep,
        shares::show,
        shares::replace,
        admin::workspaces::show,
        admin::users::show,
        admin::users::disable_user,
        admin::users::enable_user,
        admin::agents::show,
        admin::agents::show_clusters,
        admin::audit::show,
        admin::refusals::show,
        admin::refusals::show_limits,
        admin::settings::show,
        admin::health::show,
        agents::list,
        agents::show,
        workspace_templates::list,
        clusters::usage,
        clusters::orphans,
        clusters::remove_orphan,
        explain::explain,
        replicas::list,
        tokens::list,
        tokens::create,
        tokens::revoke,
        tokens::rotate,
        git_credentials::list,
        git_credentials::put,
        git_credentials::remove,
        sessions::list,
        sessions::end_all,
        sessions::end,
        device::ask,
        device::poll,
        ci::pipeline,
        ci::agent,
        prepare::unmet,
        prepare::complete,
        prepare::ensure,
        records::list,
        records::show,
        records::change,
        records::remove,
        records::follow,
        templates::render,
        templates::list,
        templates::show,
        templates::default,
        hook::gitlab,
        hook::sweep,
    ),
    components(schemas(bodies::ProblemDocument)),
)]
struct Description;

/// Ways to prove who sends a request.
struct Credentials;

impl Modify for Credentials {
    fn modify(&self, document: &mut OpenApi) {
        let bearer = |text: &str| {
            SecurityScheme::Http(Http::builder().scheme(HttpAuthScheme::Bearer).description(Some(text)).build())
        };
        let key = |name: &str, text: &str| ApiKeyValue::with_description(name, text);
        let header = |name: &str, text: &str| SecurityScheme::ApiKey(ApiKey::Header(key(name, text)));
        let session = "The browser's session (`__Host-gateway_session` over TLS); only for requests of the public \
                       origin itself.";
        let job = "The `id_token` of a CI job, for the audience in `environments.audience`. Good for its own \
                   environment, and only here.";
        let schemes = [
            ("bearer", bearer("A token of a user, `gwu_…`.")),
            ("gatewayAuthorization", header("gateway-authorization", "The same, as `Bearer gwu_…`.")),
            ("session", SecurityScheme::ApiKey(ApiKey::Cookie(key("gateway_session", session)))),
            ("job", bearer(job)),
            ("hook", header("x-gitlab-token", "The secret of the system hook.")),
        ];
        document.components.get_or_insert_default().add_security_schemes_from_iter(schemes);
    }
}

/// Makes the document.
///
/// # Errors
/// The library cannot write what it made, which does not happen.
pub fn described() -> Result<Value, serde_json::Error> {
    let mut document = serde_json::to_value(Description::openapi())?;
    settle(&mut document);
    Ok(document)
}

#[cfg(test)]
mod tests;
