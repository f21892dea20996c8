//! Sign-in of programs (RFC 8628): a program asks, and polls until its user has decided.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::body::{JsonObject, text};
use super::confirm::DEVICE_PATH;
use super::openapi::{bodies, failures, values};
use super::problem::{ApiProblem, ProblemRow};
use super::{ApiShared, Caller, answer};
use gateway_auth::device::{DEVICE_AGE_MAX, DevicePollAnswer, MachineName, NoDevice, POLL_INTERVAL, RequestingMachine};
use gateway_net::audit::{Actor, AuditEvent, Text};
use gateway_store::{Note, Terms, TokenCreation, wall_clock};
use gateway_types::opaque::Opaque;
use gateway_types::token::TokenKind;

/// Lifetime of a sign-in's token.
const TOKEN_LIFE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

#[derive(Serialize, ToSchema)]
#[schema(as = DeviceCodes)]
pub(super) struct CodesBody {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: String,
    expires_in: u64,
    interval: u64,
}

// Members of RFC 6749, section 5.1, and those that the command line shows.
#[derive(Serialize, ToSchema)]
#[schema(as = DeviceToken)]
pub(super) struct Granted {
    access_token: String,
    #[schema(schema_with = values::token_type)]
    token_type: &'static str,
    expires_in: u64,
    /// When it ends.
    #[schema(format = DateTime)]
    expires_at: String,
    token_id: String,
    user: String,
}

#[utoipa::path(
    post,
    path = "/device",
    operation_id = "askForSignIn",
    summary = "Begin the sign-in of a program (RFC 8628, section 3.1)",
    request_body = Option<bodies::DeviceRequest>,
    security(),
    responses(
        (status = 200, description = "The codes.", body = CodesBody),
        failures::SmallBody,
        (status = 429, description = "Too many attempts (`too_many_requests`); `limit` names which"),
        (status = 503, description = "`overloaded`; `limit` names what does not answer"),
    ),
)]
pub(super) async fn ask(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    body: JsonObject,
) -> Result<Response, ProblemRow> {
    let machine = body.read(|fields| {
        let machine: Option<String> = fields.optional("machine", text);
        Some(MachineName::of(&machine.unwrap_or_default()))
    })?;
    let codes =
        api.devices.ask(RequestingMachine { machine, peer: caller.peer }, Instant::now()).map_err(
            |error| match error {
                NoDevice::Randomness(error) => error.into(),
                NoDevice::AddressFull => ProblemRow::from(ApiProblem::TooMany { limit: "sign_ins_per_address" }),
            },
        )?;
    // A program that was given a code may poll with it after a restart.
    api.devices.journal().written().await;
    let uri = api.site.public(DEVICE_PATH);
    let answer = CodesBody {
        device_code: codes.device.reveal(),
        user_code: codes.user.to_string(),
        verification_uri_complete: format!("{uri}?user_code={}", codes.user),
        verification_uri: uri,
        expires_in: DEVICE_AGE_MAX.as_secs(),
        interval: POLL_INTERVAL.as_secs(),
    };
    Ok(answer::json(StatusCode::OK, &answer))
}

#[utoipa::path(
    post,
    path = "/device/token",
    operation_id = "pollForToken",
    summary = "Ask for the token of a sign-in (RFC 8628, section 3.4)",
    request_body = bodies::DeviceTokenRequest,
    security(),
    responses(
        (status = 200, description = "The token: the user has confirmed.", body = Granted),
        failures::Conflicting,
        failures::Mistaken,
        (status = 400, description = "`authorization_pending`, `slow_down`, `expired_token`, `access_denied`, or \
            `bad_request`"),
        (status = 413, description = "The body is larger than 64 KiB (`too_large`)"),
        (status = 415, description = "The body is not JSON (`bad_request`)"),
        (status = 503, description = "`overloaded`; `limit` names what does not answer"),
    ),
)]
pub(super) async fn poll(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    body: JsonObject,
) -> Result<Response, ProblemRow> {
    let code = body.read(|fields| {
        // Some programs send it because the RFC has it; there is no other way here.
        for name in ["grant_type", "client_id"] {
            drop(fields.optional(name, text::<String>));
        }
        fields.required("device_code", |value| value.as_str().map(str::to_owned).ok_or("has to be a text".to_owned()))
    })?;
    let device = Opaque::parse(&code).ok_or(ApiProblem::ExpiredToken)?.digest();
    // The place in the log comes first: nothing is made without one.
    let slot = api.audit.slot().await?;
    let (user, asking) = match api.devices.fetch(&device, Instant::now()).await? {
        DevicePollAnswer::Approved { user, asking } => (user, asking),
        DevicePollAnswer::Pending => return Err(ApiProblem::AuthorizationPending.into()),
        DevicePollAnswer::SlowDown(interval) => {
            let interval = u16::try_from(interval.as_secs()).unwrap_or(u16::MAX);
            return Err(ApiProblem::SlowDown { interval }.into());
        }
        DevicePollAnswer::Denied => return Err(ApiProblem::AccessDenied.into()),
        DevicePollAnswer::Expired => return Err(ApiProblem::ExpiredToken.into()),
    };
    let now = wall_clock();
    let note = Note::of(&format!("gateway login on {}", asking.machine));
    let terms = Terms { note, expires_at: Some(now.later(TOKEN_LIFE)) };
    let created = api.store.create_own_user_token(&user, &terms, now).await;
    api.devices.conclude(&device, matches!(created, Ok(TokenCreation::Made(_))), Instant::now()).await;
    let made = match created? {
        TokenCreation::Made(made) => made,
        TokenCreation::TooMany => return Err(ApiProblem::Conflict { reason: "too_many_tokens" }.into()),
        TokenCreation::NoSuchWorkspace => return Err(ApiProblem::NotFound.into()),
    };
    let expires_at = now.later(TOKEN_LIFE).to_string();
    let event = AuditEvent::TokenCreated {
        by: Actor::User(Text::of(&user)),
        token: Text::of(made.id),
        subject_kind: TokenKind::User.as_str(),
        subject: Text::of(&user),
        expires_at: Some(Text::new(&expires_at)),
        note: terms.note.as_ref().map(|note| Text::new(note.as_str())),
    };
    slot.record(caller.did(event));
    let granted = Granted {
        access_token: made.token.reveal().to_owned(),
        token_type: "Bearer",
        expires_in: TOKEN_LIFE.as_secs(),
        expires_at,
        token_id: made.id.to_string(),
        user: user.to_string(),
    };
    Ok(answer::json(StatusCode::OK, &granted))
}
