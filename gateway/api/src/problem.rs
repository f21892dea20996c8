//! Refusals of the API: one table, as problem documents (RFC 9457).
//!
//! All words are fixed; nothing of the request is repeated.

mod environment;
pub(super) mod line;
mod quota;

use axum::response::IntoResponse;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use utoipa::ToSchema;

pub(super) use self::quota::QuotaRow;
use super::environments::view::ObjectErrorRow;
use super::state::BlockerRow;
use gateway_auth::cache::Unavailable;
use gateway_environments::refusal::RefusalCode;
use gateway_http::fields::GATEWAY_ERROR;
use gateway_store::StoreError;
use gateway_types::token::NoRandomness;

/// Most problems of one body that are reported.
const INVALID_MAX: usize = 32;

/// Most problems of one devfile that are reported.
const PLACES_MAX: usize = 100;

/// Reason the API refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiProblem {
    /// No user is signed in, as far as this request can prove.
    SignInRequired,
    /// There is no such thing, or it is not the user's: the same answer.
    NotFound,
    /// The user may see it, but not do that.
    Forbidden,
    /// Not the kind of request that is understood here.
    BadRequest {
        /// The name of the rule it breaks.
        reason: &'static str,
    },
    /// The method is not for this path.
    MethodNotAllowed,
    /// The body is not JSON.
    NotJson,
    /// The body or the query has mistakes, listed beside.
    Invalid,
    /// The body is too large.
    TooLarge,
    /// The present state does not allow it.
    Conflict {
        /// The name of the rule.
        reason: &'static str,
    },
    /// It has been changed since it was read (RFC 9110, section 13.1.1).
    Changed,
    /// A quota of the cluster, or of the user there, does not allow it; the limits are listed beside.
    QuotaExceeded {
        /// Kind of the quota.
        reason: &'static str,
    },
    /// Workspaces of that executor are not made here.
    ExecutorDisabled,
    /// The token of a CI job is not good for this.
    NotSuchJob {
        /// Fault of the token.
        reason: &'static str,
    },
    /// The subject of the request is not known yet, and may be soon.
    NotYet {
        /// Event that is awaited.
        reason: &'static str,
    },
    /// A caller tries too often.
    TooMany {
        /// The name of the limit.
        limit: &'static str,
    },
    /// A limit is reached, or the store does not answer.
    Overloaded {
        /// The name of the limit.
        limit: &'static str,
    },
    /// Only operators may do that.
    NotOperator,
    /// A request to the hook of the CI system does not show its secret.
    NotTheHook,
    /// Environments have a table of their own.
    Environment(RefusalCode),
    /// RFC 8628, section 3.5: the user has not decided yet.
    AuthorizationPending,
    /// RFC 8628, section 3.5: wait longer between polls.
    SlowDown {
        /// The new interval, in seconds.
        interval: u16,
    },
    /// RFC 8628, section 3.5: begin again.
    ExpiredToken,
    /// RFC 8628, section 3.5: the user said no.
    AccessDenied,
}

impl ApiProblem {
    /// Returns the code, which is part of the contract with programs.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::SignInRequired => "sign_in_required",
            Self::NotFound => "not_found",
            Self::Forbidden | Self::NotOperator => "forbidden",
            Self::BadRequest { .. } | Self::MethodNotAllowed | Self::NotJson => "bad_request",
            Self::Invalid => "invalid",
            Self::TooLarge => "too_large",
            Self::Conflict { .. } | Self::Changed => "conflict",
            Self::QuotaExceeded { .. } => "quota_exceeded",
            Self::ExecutorDisabled => "executor_disabled",
            Self::NotSuchJob { .. } => "job_refused",
            Self::NotYet { .. } => "not_yet",
            Self::NotTheHook => "hook_refused",
            Self::Environment(code) => code.as_str(),
            Self::TooMany { .. } => "too_many_requests",
            Self::Overloaded { .. } => "overloaded",
            Self::AuthorizationPending => "authorization_pending",
            Self::SlowDown { .. } => "slow_down",
            Self::ExpiredToken => "expired_token",
            Self::AccessDenied => "access_denied",
        }
    }

    /// Returns the status.
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::SignInRequired | Self::NotTheHook => StatusCode::UNAUTHORIZED,
            Self::Environment(code) => environment::status(code),
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Forbidden | Self::NotOperator => StatusCode::FORBIDDEN,
            Self::BadRequest { .. }
            | Self::AuthorizationPending
            | Self::SlowDown { .. }
            | Self::ExpiredToken
            | Self::AccessDenied => StatusCode::BAD_REQUEST,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Conflict { .. } | Self::QuotaExceeded { .. } | Self::ExecutorDisabled => StatusCode::CONFLICT,
            Self::NotSuchJob { .. } => StatusCode::UNAUTHORIZED,
            Self::Changed => StatusCode::PRECONDITION_FAILED,
            Self::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Overloaded { .. } | Self::NotYet { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns title and text for people.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::SignInRequired => {
                ("Sign in first", "This request proves no user: it has no token, or one that is not good.")
            }
            Self::NotFound => ("Not found", "There is nothing of that name, or it is not yours to see."),
            Self::Forbidden => ("Not allowed", "You may see this, but only its owner may do that."),
            Self::BadRequest { .. } => ("Bad request", "The request is not one that the API understands."),
            Self::MethodNotAllowed => ("Method not allowed", "The method is not for this path."),
            Self::NotJson => ("Not JSON", "The body has to be JSON, with the content type application/json."),
            Self::Invalid => ("Mistakes in the request", "Each mistake is listed with its place."),
            Self::TooLarge => ("Too large", "The body is larger than this path takes."),
            Self::Conflict { reason: "not_managed" } => (
                "Conflict",
                "This workspace is not run by the gateway: its agent is started and stopped where it runs.",
            ),
            Self::Conflict { .. } => ("Conflict", "What is there now does not allow that."),
            Self::Changed => ("Changed meanwhile", "It is not what it was when you read it: read it again."),
            Self::QuotaExceeded { .. } => (
                "Over quota",
                "That would be more than a quota of the cluster allows. Stop or terminate a workspace first.",
            ),
            Self::ExecutorDisabled => (
                "Executor disabled",
                "Workspaces are not made in CI systems here: the operator has not set ci.enabled.",
            ),
            Self::NotSuchJob { .. } => ("Job refused", "The request has no token of a CI job that this is for."),
            Self::NotYet { .. } => ("Not known yet", "The gateway may know what this is about soon: try again."),
            Self::NotOperator => (
                "Not allowed",
                "Only operators may do that: users in auth.admins or of auth.admin_group; environments.operators for \
                 environments and orphans.",
            ),
            Self::NotTheHook => ("Hook refused", "The request has not the secret of the system hook."),
            Self::Environment(code) => (environment::title(code), code.text()),
            Self::TooMany { .. } => ("Too many attempts", "Wait before you try again."),
            Self::Overloaded { .. } => ("Overloaded", "The gateway cannot do that now: try again soon."),
            Self::AuthorizationPending => ("Not decided yet", "The user has not confirmed the code yet."),
            Self::SlowDown { .. } => ("Too fast", "Wait longer before you ask again."),
            Self::ExpiredToken => ("Expired", "The code is unknown, used or too old: begin again."),
            Self::AccessDenied => ("Denied", "The user refused."),
        }
    }

    fn retry_after(self) -> Option<u16> {
        match self {
            Self::Overloaded { .. } => Some(1),
            // A little less often than a CI system is asked for the state of a pipeline.
            Self::NotYet { .. } => Some(5),
            Self::TooMany { .. } => Some(60),
            Self::SlowDown { interval } => Some(interval),
            Self::Environment(code) => environment::retry_after(code),
            Self::SignInRequired
            | Self::NotTheHook
            | Self::NotOperator
            | Self::NotFound
            | Self::Forbidden
            | Self::BadRequest { .. }
            | Self::MethodNotAllowed
            | Self::NotJson
            | Self::Invalid
            | Self::TooLarge
            | Self::Conflict { .. }
            | Self::Changed
            | Self::QuotaExceeded { .. }
            | Self::ExecutorDisabled
            | Self::NotSuchJob { .. }
            | Self::AuthorizationPending
            | Self::ExpiredToken
            | Self::AccessDenied => None,
        }
    }

    /// Returns the member that names the limit or rule.
    fn detail(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::TooMany { limit } | Self::Overloaded { limit } => Some(("limit", limit)),
            Self::BadRequest { reason }
            | Self::Conflict { reason }
            | Self::QuotaExceeded { reason }
            | Self::NotSuchJob { reason }
            | Self::NotYet { reason } => Some(("reason", reason)),
            Self::MethodNotAllowed => Some(("reason", "method_not_allowed")),
            Self::NotJson => Some(("reason", "not_json")),
            Self::NotOperator => Some(("reason", "not_an_operator")),
            Self::Environment(RefusalCode::Overloaded) => Some(("limit", "environments")),
            Self::SignInRequired
            | Self::NotTheHook
            | Self::Environment(_)
            | Self::NotFound
            | Self::Forbidden
            | Self::Invalid
            | Self::TooLarge
            | Self::Changed
            | Self::ExecutorDisabled
            | Self::AuthorizationPending
            | Self::SlowDown { .. }
            | Self::ExpiredToken
            | Self::AccessDenied => None,
        }
    }
}

// One mistake in a body or query: its place, and the fault.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
pub(crate) struct Mistake {
    /// RFC 6901; `?name` for the query.
    pub(crate) pointer: String,
    pub(crate) detail: String,
}

// It quotes names from the document, because its author has to find them.
/// One thing that is wrong with a devfile, a template or its objects.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(as = Place)]
pub(super) struct FaultLocation {
    /// By which rule, where rules have names.
    #[schema(required = false)]
    pub(super) code: &'static str,
    /// Which value, as `components[2].container.image`; empty for the whole. Of an agent's own template the file comes
    /// first, as `environment_templates/default.yaml: objects[0].kind`.
    pub(super) path: String,
    #[schema(required)]
    pub(super) line: Option<u32>,
    #[schema(required)]
    pub(super) column: Option<u32>,
    pub(super) message: String,
}

/// An answer of the table. The trace id is added when it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProblemRow {
    refused: ApiProblem,
    mistakes: Vec<Mistake>,
    places: Vec<FaultLocation>,
    /// Boxed, as the next: few problems have them, and each handler returns this type.
    objects: Box<Objects>,
    quota: Option<Box<QuotaRow>>,
}

/// Report about objects in a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Objects {
    /// Fault of each.
    pub(super) errors: Vec<ObjectErrorRow>,
    /// Objects that have not gone yet.
    pub(super) left: Vec<BlockerRow>,
}

impl From<ApiProblem> for ProblemRow {
    fn from(refused: ApiProblem) -> Self {
        Self { refused, mistakes: Vec::new(), places: Vec::new(), objects: Box::default(), quota: None }
    }
}

impl From<StoreError> for ProblemRow {
    fn from(error: StoreError) -> Self {
        if !error.is_unanswered() {
            tracing::warn!(%error, "the store did not answer");
        }
        ApiProblem::Overloaded { limit: "store" }.into()
    }
}

impl From<Unavailable> for ProblemRow {
    fn from(_: Unavailable) -> Self {
        ApiProblem::Overloaded { limit: "store" }.into()
    }
}

impl From<NoRandomness> for ProblemRow {
    fn from(_: NoRandomness) -> Self {
        tracing::error!("the system gave no random bytes");
        ApiProblem::Overloaded { limit: "randomness" }.into()
    }
}

/// A fault for people, beside the field of a form that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Name of the field; empty for the whole form.
    pub field: String,
    /// Line of the field's text.
    pub line: Option<usize>,
    /// What is wrong, and what to write instead.
    pub text: String,
}

impl ProblemRow {
    /// Lists mistakes.
    pub(crate) fn invalid(mut mistakes: Vec<Mistake>) -> Self {
        mistakes.truncate(INVALID_MAX);
        Self { mistakes, ..Self::from(ApiProblem::Invalid) }
    }

    /// Names one mistake.
    pub fn mistake(pointer: &str, detail: impl Into<String>) -> Self {
        Self::invalid(vec![Mistake { pointer: pointer.to_owned(), detail: detail.into() }])
    }

    /// Lists the faults of a devfile.
    pub(super) fn devfile(mut places: Vec<FaultLocation>) -> Self {
        places.truncate(PLACES_MAX);
        let mistake = Mistake { pointer: "/devfile".to_owned(), detail: "cannot be used; see problems".to_owned() };
        Self { mistakes: vec![mistake], places, ..Self::from(ApiProblem::Invalid) }
    }

    /// Lists the faults of a devfile that a template was made into.
    pub(super) fn rendered(mut places: Vec<FaultLocation>) -> Self {
        places.truncate(PLACES_MAX);
        let detail = "makes a devfile that cannot be used; see problems".to_owned();
        let mistake = Mistake { pointer: "/template".to_owned(), detail };
        Self { mistakes: vec![mistake], places, ..Self::from(ApiProblem::Invalid) }
    }

    /// Says why a cluster's agent did not list or remove orphans, in its words.
    pub(super) fn not_removed(message: String) -> Self {
        let error = ObjectErrorRow { object: None, code: "failed".to_owned(), message };
        let objects = Box::new(Objects { errors: vec![error], left: Vec::new() });
        Self { objects, ..Self::from(ApiProblem::Conflict { reason: "orphan_not_removed" }) }
    }

    /// Returns what is wrong, line by line, for a page that shows a form again.
    pub fn faults(&self) -> Vec<Fault> {
        let document = self.mistakes.first().map_or("devfile".to_owned(), |mistake| field(&mistake.pointer));
        let of_place = |place: &FaultLocation| Fault {
            field: document.clone(),
            line: place.line.and_then(|line| usize::try_from(line).ok()),
            text: match (place.line, place.path.is_empty()) {
                (Some(line), true) => format!("line {line}: {}", place.message),
                (Some(line), false) => format!("line {line}, {}: {}", place.path, place.message),
                (None, true) => place.message.clone(),
                (None, false) => format!("{}: {}", place.path, place.message),
            },
        };
        let of_mistake =
            |mistake: &Mistake| Fault { field: field(&mistake.pointer), line: None, text: mistake.detail.clone() };
        if !self.places.is_empty() {
            return self.places.iter().map(of_place).collect();
        }
        if !self.mistakes.is_empty() {
            return self.mistakes.iter().map(of_mistake).collect();
        }
        let conflict = if let ApiProblem::Conflict { reason } = self.refused { reason } else { "" };
        let text = match conflict {
            "name_taken" => "This name is taken: choose another one.",
            "template_invalid" => "The file of this template has mistakes: an operator has to correct it.",
            "too_many_tokens" => "You have as many tokens as a user may have: revoke one first.",
            "limits.external_workspaces_per_user" => {
                "You have as many workspaces of this kind as a user may have: delete one first."
            }
            _ => self.refused.words().1,
        };
        let quota = self.quota.as_ref().map(|quota| format!(" {}", quota.told())).unwrap_or_default();
        vec![Fault { field: String::new(), line: None, text: format!("{text}{quota}") }]
    }

    /// Returns whether the request is none that a page of ours sends.
    pub fn is_malformed(&self) -> bool {
        matches!(self.refused, ApiProblem::BadRequest { .. } | ApiProblem::SignInRequired)
    }

    /// Returns the status of its answer.
    pub fn status(&self) -> StatusCode {
        self.refused.status()
    }

    /// Writes the document; `{trace}` is filled in by [`seal`](super::answer::seal).
    fn document(&self) -> serde_json::Value {
        let (title, text) = self.refused.words();
        let mut document = serde_json::json!({
            "type": "about:blank",
            "title": title,
            "status": self.refused.status().as_u16(),
            "detail": text,
            "code": self.refused.code(),
        });
        let Some(members) = document.as_object_mut() else { return document };
        if let Some((name, value)) = self.refused.detail() {
            members.insert(name.to_owned(), value.into());
        }
        if let ApiProblem::SlowDown { interval } = self.refused {
            members.insert("interval".to_owned(), interval.into());
        }
        if self.refused.is_of_device_flow() {
            // Programs that know RFC 6749, section 5.2 look for this member.
            members.insert("error".to_owned(), self.refused.code().into());
        }
        if !self.mistakes.is_empty() {
            let mistakes = self.mistakes.iter();
            let list = mistakes.map(|one| serde_json::json!({"pointer": one.pointer, "detail": one.detail}));
            members.insert("errors".to_owned(), list.collect());
        }
        if !self.places.is_empty() {
            members.insert("problems".to_owned(), self.places.iter().map(FaultLocation::told).collect());
        }
        if let Some(quota) = &self.quota {
            members.insert("quota".to_owned(), serde_json::json!(quota));
        }
        if !self.objects.errors.is_empty() {
            members.insert("object_errors".to_owned(), serde_json::json!(self.objects.errors));
        }
        if !self.objects.left.is_empty() {
            members.insert("left".to_owned(), serde_json::json!(self.objects.left));
        }
        document
    }
}

impl FaultLocation {
    /// Writes it as JSON.
    pub(super) fn told(&self) -> serde_json::Value {
        let Self { code, path, line, column, message } = self;
        let mut told = serde_json::json!({"path": path, "line": line, "column": column, "message": message});
        if let (false, Some(members)) = (code.is_empty(), told.as_object_mut()) {
            members.insert("code".to_owned(), (*code).into());
        }
        told
    }
}

/// Returns the field of a form for a place in a body: its first member, of the parameters of a template each.
fn field(pointer: &str) -> String {
    let mut parts = pointer.trim_start_matches('/').split('/');
    match (parts.next().unwrap_or_default(), parts.next()) {
        (parameters @ "template_parameters", Some(name)) => format!("{parameters}.{name}"),
        (member, _) => member.to_owned(),
    }
}

impl ApiProblem {
    fn is_of_device_flow(self) -> bool {
        matches!(self, Self::AuthorizationPending | Self::SlowDown { .. } | Self::ExpiredToken | Self::AccessDenied)
    }
}

/// The document of a problem before it is sent, and its code.
#[derive(Clone, Debug)]
pub(super) struct ProblemBody {
    pub(super) document: serde_json::Value,
    pub(super) code: &'static str,
    /// The limit or rule, where the code covers several.
    pub(super) detail: Option<&'static str>,
}

impl IntoResponse for ProblemRow {
    fn into_response(self) -> axum::response::Response {
        let mut response = Response::new(axum::body::Body::from(Bytes::new()));
        *response.status_mut() = self.refused.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(GATEWAY_ERROR, HeaderValue::from_static(self.refused.code()));
        if let Some(seconds) = self.refused.retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.refused.status() == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"gateway\""));
        }
        let (code, detail) = (self.refused.code(), self.refused.detail().map(|(_, name)| name));
        response.extensions_mut().insert(ProblemBody { document: self.document(), code, detail });
        response
    }
}
