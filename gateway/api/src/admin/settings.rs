//! The configuration in force, with masks for secrets.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::openapi::{failures, values};
use crate::problem::ProblemRow;
use crate::{ApiParts, ApiShared, Caller, answer};
use gateway_auth::policy::OperatorGrant;

/// The configuration of the replica that answers.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdminConfiguration)]
pub struct SettingList {
    /// By key.
    pub settings: Vec<SettingRow>,
}

/// A key with its value.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdminSetting)]
pub struct SettingRow {
    pub(crate) key: String,
    /// As the file would spell it; a mask for a secret, and null for no value.
    #[schema(required)]
    pub(crate) value: Option<String>,
    /// Layer that it came from.
    #[schema(schema_with = values::setting_origin)]
    pub(crate) origin: &'static str,
}

/// Returns every key with its value, as `gateway config show` does.
pub fn list(api: &ApiParts, _grant: &OperatorGrant) -> SettingList {
    let row = |setting: &super::EffectiveSetting| SettingRow {
        key: setting.key.clone(),
        value: setting.value.clone(),
        origin: setting.origin,
    };
    SettingList { settings: api.admin.settings.load().iter().map(row).collect() }
}

#[utoipa::path(
    get,
    path = "/admin/config",
    operation_id = "getConfiguration",
    summary = "The configuration in force at this replica, with masks for secrets; for operators",
    responses(
        (status = 200, description = "Every key.", body = SettingList),
        failures::SignedIn,
        failures::Operators,
    ),
)]
pub(crate) async fn show(State(api): State<Arc<ApiShared>>, caller: Caller) -> Result<Response, ProblemRow> {
    let grant = caller.operator(&api)?;
    Ok(answer::json(StatusCode::OK, &list(&api, &grant)))
}
