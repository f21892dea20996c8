//! Events of a workspace, as the audit log in the database has them, for its owner.

use crate::words;
use gateway_api::audited::HANDED_OVER;
use gateway_store::{AuditFilter, Store, StoreError, Workspace, wall_clock};
use gateway_types::UnixSeconds;

/// Most records that are shown.
const RECORDS_MAX: u32 = 30;

/// Something that happened.
pub(super) struct HistoryLine {
    pub(super) when: String,
    pub(super) event: String,
    pub(super) actor: String,
}

/// Reads the last records. What is older than the workspace is another's of the same name, and what is older than its handing over its
/// former owner's: neither is shown.
///
/// # Errors
/// [`StoreError`].
pub(super) async fn lines(store: &Store, workspace: &Workspace) -> Result<Vec<HistoryLine>, StoreError> {
    let filter = AuditFilter {
        part: "",
        actor: "",
        workspace: workspace.name.as_str(),
        event: "",
        since: Some(workspace.created_at),
        until: None,
        before: None,
        limit: RECORDS_MAX,
    };
    let mut lines = Vec::new();
    for found in store.audit_records(&filter).await?.records {
        let record = found.record;
        let at = UnixSeconds::of_milliseconds(record.at_ms);
        lines.push(HistoryLine {
            when: words::ago(at, wall_clock()),
            event: record.event.replace('_', " "),
            actor: record.actor.unwrap_or_default(),
        });
        if record.event == HANDED_OVER {
            break;
        }
    }
    Ok(lines)
}
