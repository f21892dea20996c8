//! Failures that several operations have in common. Each is a problem document.

use std::collections::BTreeMap;

use utoipa::IntoResponses;
use utoipa::openapi::RefOr;
use utoipa::openapi::response::{Response, ResponseBuilder};

/// Names sets of failures: statuses, and the words about each.
macro_rules! failures {
    ($($(#[$doc:meta])* $name:ident { $($status:literal: $words:expr,)+ })+) => {$(
        $(#[$doc])*
        pub(crate) enum $name {}

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                let described = |words: &str| RefOr::T(ResponseBuilder::new().description(words).build());
                BTreeMap::from([$((stringify!($status).to_owned(), described($words))),+])
            }
        }
    )+};
}

const SIGN_IN_REQUIRED: &str = "No user is signed in (`sign_in_required`)";
const NOT_AN_OPERATOR: &str = "`forbidden`: you are no operator: `environments.operators`, `auth.admins`";
const NO_OPERATOR: &str = "The user is no operator (`forbidden`); see `auth.admins` and `auth.admin_group`";
const NOT_NOW: &str = "`environments_off`, `not_enabled`, `no_environment` or `environment_busy`";
const AGENT_OR_STORE: &str = "`overloaded` with the limit, `store_unavailable`, or of the agent: `agent_absent`, \
    `agent_too_old`, `agent_displaced`";
const JOB_REFUSED: &str = "`sign_in_required`, or `job_refused`: `reason` says what is wrong with the job's token, \
    such as `credential_expired`, `credential_audience`, `credential_issuer`, `claim_missing`, \
    `another_environment` or `facts_in_token`";
const ENDED: &str = "It failed: `objects_failed` with `object_errors`, \
    `too_many_objects`, `environment_stopped`, `config_changed` or `environment_busy`; or `environments_off`, \
    `not_enabled`, `no_environment` or `project_deleted`";
const FOLLOWS_TOO_MUCH: &str = "You wait for or follow too much already (`too_many_requests`)";
const CALL_TIMEOUT: &str = "`call_timeout`";
const NOT_UNDERSTOOD: &str = "Malformed request (`bad_request`)";
const OVER_64_KIB: &str = "The body is larger than 64 KiB (`too_large`)";
const BODY_NOT_JSON: &str = "The body is not JSON (`bad_request`)";
const MISTAKES: &str = "Mistakes, each with its place (`invalid`)";
const TOO_LARGE: &str = "`too_large`";
const NOT_JSON: &str = "Not JSON (`bad_request`)";
const ENVIRONMENT_MISTAKES: &str = "`invalid` with the mistakes of the body, `facts_invalid`, `template_invalid` or \
    `objects_refused` with all that is wrong in `problems`";
const BODY_TOO_LARGE: &str = "The body is too large (`too_large`)";
const OVERLOADED: &str = "`overloaded`; `limit` names what does not answer";
const NOT_THE_OWNER: &str = "Only the owner may do that (`forbidden`)";
const NOT_FOUND: &str = "It does not exist or is not yours: the answer is the same (`not_found`)";
const UNKNOWN: &str = "`not_found`, also for an environment that is not the job's own; `no_such_agent`, \
    `no_such_environment` or `no_such_template`";
const CONFLICT: &str = "`conflict`; `reason` names the rule";

failures! {
    /// Failures of a method that is for operators.
    OperatorOnly {
        401: SIGN_IN_REQUIRED,
        403: NOT_AN_OPERATOR,
        409: NOT_NOW,
        503: AGENT_OR_STORE,
    }

    /// Failures of a method that jobs call too.
    ForJobs {
        401: JOB_REFUSED,
        503: AGENT_OR_STORE,
    }

    /// Failures of a method that is answered at the end.
    Ending {
        409: ENDED,
        429: FOLLOWS_TOO_MUCH,
        504: CALL_TIMEOUT,
    }

    /// Failures of a method with a body of no more than 64 KiB.
    SmallBody {
        400: NOT_UNDERSTOOD,
        413: OVER_64_KIB,
        415: BODY_NOT_JSON,
        422: MISTAKES,
    }

    /// Failures of a method with a body about environments.
    EnvironmentBody {
        400: NOT_UNDERSTOOD,
        413: TOO_LARGE,
        415: NOT_JSON,
        422: ENVIRONMENT_MISTAKES,
    }

    /// Failures of a method with a body about a workspace.
    WorkspaceBody {
        400: NOT_UNDERSTOOD,
        413: BODY_TOO_LARGE,
        415: BODY_NOT_JSON,
        422: MISTAKES,
    }

    /// Failures of a method that is for users.
    SignedIn {
        401: SIGN_IN_REQUIRED,
        503: OVERLOADED,
    }

    /// A user who is no operator.
    Operators {
        403: NO_OPERATOR,
    }

    /// Failures of a method that is for the owner of a workspace.
    OwnerOnly {
        403: NOT_THE_OWNER,
        404: NOT_FOUND,
    }

    /// Nothing of that name, or not the user's.
    NotYours {
        404: NOT_FOUND,
    }

    /// Nothing of that name, for what environments need.
    Unknown {
        404: UNKNOWN,
    }

    /// A state of an environment or of its agent that rules it out.
    NotNow {
        409: NOT_NOW,
    }

    /// A rule that rules it out.
    Conflicting {
        409: CONFLICT,
    }

    /// A query with mistakes.
    Mistaken {
        422: MISTAKES,
    }

    /// The agent does not answer in time.
    Late {
        504: CALL_TIMEOUT,
    }
}
