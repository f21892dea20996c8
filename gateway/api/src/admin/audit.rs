//! A search of the audit log of all replicas, which the database has.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, StatusCode, Uri};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::query::Filters;
use crate::list::{self, PageRequest};
use crate::openapi::{failures, parameters};
use crate::problem::ProblemRow;
use crate::{ApiParts, ApiShared, Caller, answer};
use gateway_auth::policy::OperatorGrant;
use gateway_net::audit::as_in_lines;
use gateway_store::{AuditFilter, AuditPage, FoundRecord};
use gateway_types::UnixSeconds;

/// Keeps cursors of this list apart from others.
const CURSOR: &str = "al";

/// Cursor of the rest of an export.
const NEXT_CURSOR: HeaderName = HeaderName::from_static("gateway-next-cursor");

/// Largest size of the lines of one answer, in bytes; its cursor leads to the rest. Few lines have more than some hundred bytes.
const LINES_BYTES_MAX: usize = 1024 * 1024;

/// Records that are read at once for an export.
const EXPORT_PART: u32 = 200;

/// Reads of one export: a search for something rare looks at many records, and finds few.
const EXPORT_READS_MAX: u32 = 100;

/// Records that are asked for.
#[derive(Debug)]
pub struct AuditQuery {
    part: String,
    actor: String,
    workspace: String,
    event: String,
    since: Option<UnixSeconds>,
    until: Option<UnixSeconds>,
    is_export: bool,
    page: PageRequest<i64>,
}

impl AuditQuery {
    /// Reads `q`, `actor`, `workspace`, `event`, `since`, `until`, `format`, `limit` and `cursor`.
    ///
    /// # Errors
    /// `invalid` with all mistakes of the query.
    pub fn read(uri: &Uri) -> Result<Self, ProblemRow> {
        let known = ["q", "actor", "workspace", "event", "since", "until", "format"];
        let (page, narrowed) = PageRequest::read_filtered(uri, CURSOR, &known)?;
        let mut filters = Filters::new(narrowed);
        let read = Self {
            part: as_in_lines(&filters.part("q")).to_lowercase(),
            actor: filters.text("actor"),
            workspace: filters.text("workspace"),
            event: filters.text("event"),
            since: filters.value("since"),
            until: filters.value("until"),
            is_export: filters.word("format", &[("json", false), ("jsonl", true)]).unwrap_or_default(),
            page,
        };
        filters.finish()?;
        Ok(read)
    }

    /// Returns the search before a record, or from the newest one on.
    fn filter(&self, before: Option<i64>, limit: u32) -> AuditFilter<'_> {
        AuditFilter {
            part: &self.part,
            actor: &self.actor,
            workspace: &self.workspace,
            event: &self.event,
            since: self.since,
            until: self.until,
            before,
            limit,
        }
    }
}

/// A page of records, the newest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditRecords)]
pub struct AuditRecordPage {
    /// The newest first.
    pub records: Vec<AuditRecordRow>,
    /// For older records; `null` if there are none. A page may be short, or empty, and not be the last.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// A record of the audit log.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditRecord)]
pub struct AuditRecordRow {
    #[schema(format = DateTime)]
    pub(crate) at: String,
    /// Name of the event.
    pub(crate) event: String,
    /// Author: a user, or `operator/UID`, `job/PROJECT#NUMBER` or `hook`.
    #[schema(required)]
    pub(crate) actor: Option<String>,
    #[schema(required)]
    pub(crate) workspace: Option<String>,
    /// Address of the client.
    #[schema(required)]
    pub(crate) address: Option<String>,
    #[schema(required)]
    pub(crate) trace_id: Option<String>,
    /// The replica that made it; null for one gateway alone, and for commands on its machine.
    #[schema(required)]
    pub(crate) replica: Option<u64>,
    /// The line of the log.
    #[schema(value_type = Object)]
    pub(crate) record: Value,
}

/// Lines of an export, the newest first.
#[derive(Debug)]
pub(crate) struct AuditExport {
    /// JSON objects, each with a line's end.
    pub(crate) lines: String,
    /// Leads to older lines, if there may be some.
    pub(crate) next_cursor: Option<String>,
}

/// Returns a page of the records that fit, the newest first.
///
/// # Errors
/// `overloaded` if the store does not answer.
///
/// # Cancel safety
/// Safe.
pub async fn search(api: &ApiParts, _grant: &OperatorGrant, query: &AuditQuery) -> Result<AuditRecordPage, ProblemRow> {
    let page = api.store.audit_records(&query.filter(query.page.after, query.page.limit)).await?;
    let AuditPage { records, before } = within(page, LINES_BYTES_MAX);
    Ok(AuditRecordPage { records: records.into_iter().map(row).collect(), next_cursor: before.map(cursor) })
}

/// Returns lines of the records that fit, the newest first, up to a bound.
///
/// # Errors
/// `overloaded` if the store does not answer.
///
/// # Cancel safety
/// Safe.
pub(crate) async fn export(
    api: &ApiParts,
    _grant: &OperatorGrant,
    query: &AuditQuery,
) -> Result<AuditExport, ProblemRow> {
    let (mut lines, mut before) = (String::new(), query.page.after);
    for _ in 0..EXPORT_READS_MAX {
        let page = api.store.audit_records(&query.filter(before, EXPORT_PART)).await?;
        let end = page.before;
        let page = within(page, LINES_BYTES_MAX.saturating_sub(lines.len()));
        for found in &page.records {
            lines.push_str(&found.record.line);
            lines.push('\n');
        }
        before = page.before;
        if before.is_none() || before != end || lines.len() >= LINES_BYTES_MAX {
            break;
        }
    }
    Ok(AuditExport { lines, next_cursor: before.map(cursor) })
}

/// Cuts a page to those first records whose lines have so many bytes, but never to none.
fn within(mut page: AuditPage, bytes_max: usize) -> AuditPage {
    let mut bytes = 0_usize;
    let too_many = page.records.iter().position(|found| {
        bytes = bytes.saturating_add(found.record.line.len() + 1);
        bytes > bytes_max
    });
    if let Some(kept) = too_many.map(|place| place.max(1)).filter(|kept| *kept < page.records.len()) {
        page.records.truncate(kept);
        page.before = page.records.last().map(|last| last.id);
    }
    page
}

fn cursor(before: i64) -> String {
    list::encode(&before.to_string(), CURSOR)
}

fn row(found: FoundRecord) -> AuditRecordRow {
    let FoundRecord { replica, record, .. } = found;
    let at = UnixSeconds::of_milliseconds(record.at_ms);
    AuditRecordRow {
        at: at.to_string(),
        event: record.event,
        actor: record.actor,
        workspace: record.workspace,
        address: record.peer,
        trace_id: record.trace,
        replica,
        record: serde_json::from_str(&record.line).unwrap_or_default(),
    }
}

#[utoipa::path(
    get,
    path = "/admin/audit",
    operation_id = "searchAudit",
    summary = "Search the audit log of all replicas; for operators",
    description = "The newest first, as long as `audit.keep_days` says. With `format=jsonl`, the lines of the log, up to \
        some 2 MB; the header `gateway-next-cursor` leads to the rest. One request looks at 100,000 records at most, so a page may \
        be short, or empty, and not be the last. Records get there within a second.",
    params(parameters::PageQuery, parameters::AuditFilters),
    responses(
        (status = 200, description = "A page, the newest first.", content(
            (AuditRecordPage = "application/json"),
            (String = "application/jsonl"),
        )),
        failures::SignedIn,
        failures::Operators,
        failures::Mistaken,
    ),
)]
pub(crate) async fn show(State(api): State<Arc<ApiShared>>, caller: Caller, uri: Uri) -> Result<Response, ProblemRow> {
    let grant = caller.operator(&api)?;
    let query = AuditQuery::read(&uri)?;
    if !query.is_export {
        return Ok(answer::json(StatusCode::OK, &search(&api, &grant, &query).await?));
    }
    let AuditExport { lines, next_cursor } = export(&api, &grant, &query).await?;
    let mut response = Response::new(axum::body::Body::from(lines));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/jsonl"));
    if let Some(cursor) = next_cursor.and_then(|cursor| HeaderValue::try_from(cursor).ok()) {
        response.headers_mut().insert(NEXT_CURSOR, cursor);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway_net::audit::StoredRecord;

    fn found(id: i64, bytes: usize) -> FoundRecord {
        let record = StoredRecord {
            number: 1,
            at_ms: 1,
            event: String::new(),
            actor: None,
            workspace: None,
            peer: None,
            trace: None,
            line: "x".repeat(bytes),
        };
        FoundRecord { id, replica: None, record }
    }

    #[test]
    fn answer_is_cut_where_its_cursor_leads_on() {
        let page = |sizes: &[usize]| {
            let ids = (0_i64..).map(|number| 100 - number);
            AuditPage { records: ids.zip(sizes).map(|(id, bytes)| found(id, *bytes)).collect(), before: Some(1) }
        };
        let cut = |sizes: &[usize], most| {
            let page = within(page(sizes), most);
            (page.records.len(), page.before)
        };
        assert_eq!(cut(&[9, 9, 9], 30), (3, Some(1)), "all of it");
        assert_eq!(cut(&[9, 9, 9], 29), (2, Some(99)));
        assert_eq!(cut(&[9, 9, 9], 0), (1, Some(100)), "one at least: it would not go on");
        assert_eq!(cut(&[9], 0), (1, Some(1)));
        assert_eq!(cut(&[], 0), (0, Some(1)));
    }
}
