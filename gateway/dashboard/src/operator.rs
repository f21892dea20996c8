//! Pages for operators: everything that runs, who uses it, what was refused and why. They show what the API under `/admin` says, and
//! read their filters as it does.

mod columns;

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::{StatusCode, Uri};
use serde::Serialize;
use serde_json::Value;

use self::columns::Columns;
use super::frame::{Frame, Section, page};
use super::see_other;
use gateway_api::admin::{agents, audit, health, refusals, settings, users, workspaces};
use gateway_api::page::{browser, check_form, only};
use gateway_api::problem::{ApiProblem, Fault, ProblemRow};
use gateway_api::{ApiShared, Caller, body, replicas};
use gateway_auth::policy::OperatorGrant;

/// Path of the first of these pages.
pub(super) const PATH: &str = "/operator";

/// A page, by the last part of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topic {
    Health,
    Workspaces,
    Users,
    Agents,
    Refusals,
    Audit,
    Configuration,
}

impl Topic {
    const ALL: [Self; 7] =
        [Self::Health, Self::Workspaces, Self::Users, Self::Agents, Self::Refusals, Self::Audit, Self::Configuration];

    fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|topic| topic.word() == word)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::Workspaces => "workspaces",
            Self::Users => "users",
            Self::Agents => "agents",
            Self::Refusals => "refusals",
            Self::Audit => "audit",
            Self::Configuration => "configuration",
        }
    }

    /// Returns the fields of its filter: name and label.
    fn filters(self) -> &'static [[&'static str; 2]] {
        match self {
            Self::Workspaces => &[["q", "Name or owner"], ["state", "State"], ["owner", "Owner"]],
            Self::Users => &[["q", "Name"], ["state", "State"]],
            Self::Agents => &[["q", "Workspace"]],
            Self::Refusals => &[["code", "Code"], ["user", "User"], ["workspace", "Workspace"], ["trace", "Trace"]],
            Self::Audit => &[
                ["q", "Text"],
                ["actor", "Actor"],
                ["workspace", "Workspace"],
                ["event", "Event"],
                ["since", "Since"],
                ["until", "Until"],
            ],
            Self::Health | Self::Configuration => &[],
        }
    }
}

#[derive(Template)]
#[template(path = "operator.html")]
struct OperatorPage {
    frame: Frame,
    topics: Vec<TopicLink>,
    title: &'static str,
    filters: Vec<FilterField>,
    tables: Vec<Table>,
    faults: Vec<Fault>,
    said: Option<String>,
    next: Option<String>,
    /// Address of the same as lines of JSON.
    export: Option<String>,
    has_user_forms: bool,
}

struct TopicLink {
    word: &'static str,
    is_here: bool,
}

struct FilterField {
    name: &'static str,
    label: &'static str,
    value: String,
}

/// A table of one kind of thing.
struct Table {
    title: &'static str,
    heads: Vec<&'static str>,
    rows: Vec<Line>,
}

struct Line {
    cells: Vec<String>,
    /// The user that forms of the line are about, and whether they are disabled.
    user: Option<(String, bool)>,
}

impl Table {
    fn new(title: &'static str, columns: Columns, rows: &impl Serialize) -> Self {
        let rows = match serde_json::to_value(rows) {
            Ok(Value::Array(rows)) => rows,
            Ok(one @ Value::Object(_)) => vec![one],
            Ok(_) | Err(_) => Vec::new(),
        };
        let line =
            |row: &Value| Line { cells: columns.iter().map(|[name, _]| cell(&row[*name])).collect(), user: None };
        let heads = columns.iter().map(|[_, head]| *head).collect();
        Self { title, heads, rows: rows.iter().map(line).collect() }
    }
}

/// Writes a value of the API for a person.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(cell).collect::<Vec<_>>().join(", "),
        Value::Object(members) => {
            members.iter().map(|(name, value)| format!("{name} {}", cell(value))).collect::<Vec<_>>().join(", ")
        }
        Value::Number(_) => value.to_string(),
    }
}

/// Shows the first page.
///
/// Cancel safety: safe.
pub(super) async fn first(State(api): State<Arc<ApiShared>>, caller: Caller, uri: Uri) -> Result<Response, ProblemRow> {
    answer(&api, &caller, Topic::Health, &uri, None).await
}

/// Shows one of the pages.
///
/// Cancel safety: safe.
pub(super) async fn show(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    Path(word): Path<String>,
    uri: Uri,
) -> Result<Response, ProblemRow> {
    let topic = Topic::named(&word).ok_or(ApiProblem::NotFound)?;
    answer(&api, &caller, topic, &uri, None).await
}

/// Disables or enables a user.
///
/// Cancel safety: as [`users::disable`] and [`users::enable`].
pub(super) async fn act(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    Path(word): Path<String>,
    request: Request,
) -> Result<Response, ProblemRow> {
    browser(&caller)?;
    let grant = caller.operator(&api)?;
    check_form(request.headers())?;
    if Topic::named(&word) != Some(Topic::Users) {
        return Err(ApiProblem::BadRequest { reason: "not_a_form" }.into());
    }
    let form = body::read(request.into_body()).await?;
    let malformed = || ApiProblem::BadRequest { reason: "no_action" };
    let name = only(&form, "user").and_then(|name| name.parse().ok()).ok_or_else(malformed)?;
    let changed = match only(&form, "action").as_deref() {
        Some("disable") => users::disable(&api, &grant, &caller, &name, false).await,
        Some("disable-and-stop") => users::disable(&api, &grant, &caller, &name, true).await,
        Some("enable") => users::enable(&api, &grant, &caller, &name).await,
        Some(_) | None => return Err(malformed().into()),
    };
    match changed {
        Ok(_) => Ok(see_other(&format!("{PATH}/users"))),
        Err(problem) => answer(&api, &caller, Topic::Users, &Uri::from_static("/operator/users"), Some(problem)).await,
    }
}

async fn answer(
    api: &ApiShared,
    caller: &Caller,
    topic: Topic,
    uri: &Uri,
    problem: Option<ProblemRow>,
) -> Result<Response, ProblemRow> {
    browser(caller)?;
    let grant = caller.operator(api)?;
    // Empty fields of a filter are no filter.
    let query = uri.query().unwrap_or_default();
    let given: Vec<_> = form_urlencoded::parse(query.as_bytes()).filter(|(_, value)| !value.is_empty()).collect();
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(&given).finish();
    let uri = format!("{PATH}?{query}").parse().unwrap_or_default();
    let (content, faults) = match content(api, &grant, topic, &uri).await {
        Ok(content) => (content, problem.as_ref().map(ProblemRow::faults).unwrap_or_default()),
        Err(problem) if problem.is(ApiProblem::Invalid) => (Content::default(), problem.faults()),
        Err(problem) => return Err(problem),
    };
    let status = match (&problem, faults.is_empty()) {
        (Some(problem), _) => problem.status(),
        (None, true) => StatusCode::OK,
        (None, false) => StatusCode::UNPROCESSABLE_ENTITY,
    };
    let value = |name: &str| given.iter().find(|(key, _)| key == name).map(|(_, value)| value.to_string());
    let filters =
        topic.filters().iter().map(|[name, label]| FilterField { name, label, value: value(name).unwrap_or_default() });
    let next = content.next.map(|cursor| {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(given.iter().filter(|(name, _)| name != "cursor" && name != "before"));
        format!("{PATH}/{}?{}", topic.word(), query.append_pair(content.cursor, &cursor).finish())
    });
    let export = (topic == Topic::Audit).then(|| format!("/api/v1/admin/audit?format=jsonl&{query}"));
    let topics = Topic::ALL.map(|each| TopicLink { word: each.word(), is_here: each == topic });
    let said = content.said;
    Ok(page(
        status,
        &OperatorPage {
            frame: Frame::new(api, caller.user()?, Section::Operator),
            topics: topics.into(),
            title: topic.word(),
            filters: filters.collect(),
            tables: content.tables,
            faults,
            said,
            next,
            export,
            has_user_forms: topic == Topic::Users,
        },
    ))
}

/// Content of a page.
#[derive(Default)]
struct Content {
    tables: Vec<Table>,
    said: Option<String>,
    next: Option<String>,
    /// Name of the parameter that has the cursor.
    cursor: &'static str,
}

async fn content(api: &ApiShared, grant: &OperatorGrant, topic: Topic, uri: &Uri) -> Result<Content, ProblemRow> {
    Ok(match topic {
        Topic::Health => health(api, grant).await?,
        Topic::Workspaces => {
            let found = workspaces::list(api, grant, &workspaces::WorkspaceQuery::read(uri)?).await?;
            let tables = vec![Table::new("Workspaces of all users", columns::WORKSPACES, &found.workspaces)];
            Content { tables, next: found.next_cursor, cursor: "cursor", ..Content::default() }
        }
        Topic::Users => {
            let found = users::list(api, grant, &users::UserQuery::read(uri)?).await?;
            let mut table = Table::new("Users", columns::USERS, &found.users);
            for (line, user) in table.rows.iter_mut().zip(&found.users) {
                line.user = Some((user.name.clone(), user.disabled_at.is_some()));
            }
            Content { tables: vec![table], next: found.next_cursor, cursor: "cursor", ..Content::default() }
        }
        Topic::Agents => agents(api, grant, uri).await?,
        Topic::Refusals => {
            let list = refusals::list(api, grant, &refusals::RefusalQuery::read(uri)?);
            let tables = vec![
                Table::new("Limits that were hit", columns::LIMITS, &refusals::limits(api, grant).limits),
                Table::new("Requests that were refused", columns::REFUSALS, &list.refusals),
            ];
            Content { tables, said: Some("The last thousand of this replica.".to_owned()), ..Content::default() }
        }
        Topic::Audit => {
            let found = audit::search(api, grant, &audit::AuditQuery::read(uri)?).await?;
            let tables = vec![Table::new("Audit records of all replicas", columns::RECORDS, &rest_of(&found.records))];
            Content { tables, next: found.next_cursor, cursor: "before", ..Content::default() }
        }
        Topic::Configuration => {
            let tables =
                vec![Table::new("Configuration in force", columns::SETTINGS, &settings::list(api, grant).settings)];
            let said = Some("Secrets are masked. The configuration of this replica.".to_owned());
            Content { tables, said, ..Content::default() }
        }
    })
}

/// Returns records without what has a column of its own.
fn rest_of(records: &[audit::AuditRecordRow]) -> Value {
    let mut records = serde_json::to_value(records).unwrap_or_default();
    for record in records.as_array_mut().into_iter().flatten() {
        if let Some(rest) = record.get_mut("record").and_then(Value::as_object_mut) {
            rest.retain(|name, value| {
                let has_column =
                    ["event", "time", "v", "workspace", "peer", "by", "trace", "credential"].contains(&name.as_str());
                !has_column && !value.is_null()
            });
        }
    }
    records
}

async fn health(api: &ApiShared, grant: &OperatorGrant) -> Result<Content, ProblemRow> {
    let body = health::look(api, grant).await;
    let mut tables = vec![
        Table::new("Store", columns::STORE, &body.store),
        Table::new("Directory", columns::DIRECTORY, &body.directory),
    ];
    if let Some(issuer) = &body.identity_provider {
        tables.push(Table::new("Identity provider", columns::PROVIDER, issuer));
    }
    if !body.certificates.is_empty() {
        tables.push(Table::new("Certificates", columns::CERTIFICATES, &body.certificates));
    }
    let all = replicas::all(api).await?;
    if !all.is_empty() {
        tables.push(Table::new("Replicas", columns::REPLICAS, &all));
    }
    Ok(Content { tables, said: Some(format!("Version {}.", body.version)), ..Content::default() })
}

async fn agents(api: &ApiShared, grant: &OperatorGrant, uri: &Uri) -> Result<Content, ProblemRow> {
    let found = agents::list(api, grant, &agents::AgentQuery::read(uri)?).await?;
    let clusters = agents::clusters(api, grant).await?.clusters;
    let tables = vec![
        Table::new("Clusters", columns::CLUSTERS, &clusters),
        Table::new("Agents of workspaces", columns::AGENTS, &found.agents),
    ];
    let said = Some(format!("This gateway has version {}.", found.gateway_version));
    Ok(Content { tables, said, next: found.next_cursor, cursor: "cursor" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_api_are_words() {
        let values = serde_json::json!([null, true, false, "a", ["b", 1], {"c": 1}]);
        let cells: Vec<String> = values.as_array().unwrap().iter().map(cell).collect();
        assert_eq!(cells, ["", "yes", "no", "a", "b, 1", "c 1"]);
    }

    #[test]
    fn every_topic_is_found_by_its_word() {
        assert!(Topic::ALL.into_iter().all(|topic| Topic::named(topic.word()) == Some(topic)));
        assert_eq!(Topic::named(""), None);
    }
}
