//! What the audit records in the database, of all replicas, say of one workspace.

use super::ApiParts;
use gateway_store::{AuditFilter, FoundRecord, StoreError, Workspace};

/// Event from which on a workspace is its present owner's.
pub const HANDED_OVER: &str = "workspace_handed_over";

/// Reads the newest record of an event of a workspace. What is older than the workspace is another's of the same name.
///
/// # Errors
/// [`StoreError`].
///
/// Cancel safety: safe.
pub(super) async fn newest(
    parts: &ApiParts,
    workspace: &Workspace,
    event: &str,
) -> Result<Option<FoundRecord>, StoreError> {
    let filter = AuditFilter {
        workspace: workspace.name.as_str(),
        event,
        since: Some(workspace.created_at),
        limit: 1,
        ..AuditFilter::default()
    };
    Ok(parts.store.audit_records(&filter).await?.records.into_iter().next())
}
