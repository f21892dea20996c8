//! `gateway workspace templates`, and what `gateway workspace create` says of a template.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::change::{BadOn, enabled_agents, the_only};
use crate::client::{ClientError, GatewayClient, shown};
use crate::place::complain;
use crate::{Console, CreateArgs, Exit, Output, TemplatesArgs, table};
use gateway_config::Config;
use gateway_store::{Store, StoreError};
use gateway_types::ClusterName;
use gateway_workspaces::service::TemplateRequest;
use gateway_workspaces::workspace_templates::{ListedTemplate, WorkspaceTemplates};
use workspace_spec::workspace_template::{Parameter, ParameterValues};

/// Error of a template whose file has mistakes, as the API names it.
const INVALID: &str = "template_invalid";

/// A template in a list: as a gateway's API has it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct TemplateRow {
    name: String,
    title: Option<String>,
    description: Option<String>,
    parameters: Vec<ParameterRow>,
    error: Option<String>,
    problems: Vec<ProblemRow>,
}

/// A parameter of one.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct ParameterRow {
    name: String,
    title: Option<String>,
    description: Option<String>,
    kind: String,
    default: Option<String>,
    options: Vec<String>,
    pattern: Option<String>,
    required: bool,
}

/// A mistake of its file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct ProblemRow {
    path: String,
    line: Option<u32>,
    column: Option<u32>,
    message: String,
}

#[derive(Deserialize)]
struct TemplateList {
    templates: Vec<Value>,
}

/// Returns the template that a command asks for.
pub(super) fn request(args: &CreateArgs) -> Result<Option<TemplateRequest>, BadOn> {
    let Some(name) = args.template.clone() else { return Ok(None) };
    let mut parameters = ParameterValues::new();
    for given in &args.parameters {
        if parameters.insert(given.name.clone(), given.value.clone()).is_some() {
            return Err(BadOn::ParameterTwice(shown(&given.name)));
        }
    }
    Ok(Some(TemplateRequest { name, parameters }))
}

/// Adds the template to a request: a gateway of before knows no such member.
pub(super) fn with_template(mut wanted: Value, args: &CreateArgs) -> Result<Value, BadOn> {
    if let (Value::Object(members), Some(TemplateRequest { name, parameters })) = (&mut wanted, request(args)?) {
        members.insert("template".to_owned(), json!(name.as_str()));
        members.insert("template_parameters".to_owned(), json!(parameters));
    }
    Ok(wanted)
}

/// Lists the templates of a gateway's cluster.
pub(super) async fn list(
    client: &GatewayClient,
    args: &TemplatesArgs,
    console: &mut Console,
) -> Result<Exit, ClientError> {
    let agent = match &args.agent {
        Some(agent) => agent.to_string(),
        None => match the_only(enabled_agents(client).await?) {
            Ok(agent) => agent,
            Err(error) => return Ok(complain(&error, console)),
        },
    };
    let TemplateList { templates } = client.get(&format!("/agents/{agent}/workspace-templates")).await?;
    Ok(console.finish_with(match args.output {
        // As the gateway sends it: a newer one may send more.
        Output::Json => format!("{:#}", json!(templates)),
        Output::Text => {
            let rows: Vec<TemplateRow> =
                templates.into_iter().filter_map(|row| serde_json::from_value(row).ok()).collect();
            show(&rows)
        }
    }))
}

/// Lists the templates that this machine's gateway has for a cluster.
pub(super) async fn list_here(
    store: &Store,
    config: &Config,
    args: &TemplatesArgs,
    console: &mut Console,
) -> Result<Exit, StoreError> {
    let known: Vec<ClusterName> = store.clusters().await?.into_iter().map(|cluster| cluster.name).collect();
    let agent = match &args.agent {
        Some(agent) => agent.to_string(),
        None => match the_only(known.iter().map(ToString::to_string).collect()) {
            Ok(agent) => agent,
            Err(error) => return Ok(complain(&error, console)),
        },
    };
    let Some(agent) = known.iter().find(|cluster| cluster.as_str() == agent) else {
        console.complain(format_args!("there is no cluster {agent}"));
        return Ok(Exit::Failed);
    };
    let listed = WorkspaceTemplates::open(config.agents_dir.clone()).await.list(agent);
    let rows: Vec<TemplateRow> = listed.into_iter().map(TemplateRow::from).collect();
    Ok(console.finish_with(match args.output {
        Output::Json => format!("{:#}", json!(rows)),
        Output::Text => show(&rows),
    }))
}

/// Writes which template a workspace was made from, for people.
pub(super) fn words(name: &str, parameters: Option<&BTreeMap<String, String>>) -> String {
    let value = |(name, value): (&String, &String)| format!("{}={}", shown(name), shown(value));
    let values: Vec<String> = parameters.into_iter().flatten().map(value).collect();
    if values.is_empty() { shown(name) } else { format!("{} ({})", shown(name), values.join(", ")) }
}

fn show(rows: &[TemplateRow]) -> String {
    let rows = rows.iter().map(|row| {
        let parameters: Vec<String> = row.parameters.iter().map(ParameterRow::words).collect();
        let about = match (&row.error, &row.title) {
            (Some(error), _) => row.problems.first().map_or_else(
                || format!("cannot be used: {}", shown(error)),
                |first| format!("cannot be used: {}", first.words()),
            ),
            (None, Some(title)) => shown(title),
            (None, None) => row.description.as_deref().map(shown).unwrap_or_default(),
        };
        [shown(&row.name), parameters.join(", "), about]
    });
    table::text(["TEMPLATE", "PARAMETERS", "ABOUT"], rows)
}

impl ParameterRow {
    /// Writes the parameter for people: what has to be given, and what it is otherwise.
    fn words(&self) -> String {
        let name = shown(&self.name);
        match &self.default {
            Some(default) if !default.is_empty() => format!("{name}={}", shown(default)),
            Some(_) | None if self.required => format!("{name} (required)"),
            Some(_) | None => name,
        }
    }
}

impl ProblemRow {
    fn words(&self) -> String {
        let line = self.line.map(|line| format!("line {line}, ")).unwrap_or_default();
        let path = if self.path.is_empty() { String::new() } else { format!("{}: ", shown(&self.path)) };
        format!("{line}{path}{}", shown(&self.message))
    }
}

impl From<&Parameter> for ParameterRow {
    fn from(parameter: &Parameter) -> Self {
        let Parameter { name, title, description, default, kind, is_required } = parameter;
        Self {
            name: name.clone(),
            title: title.clone(),
            description: description.clone(),
            kind: kind.as_str().to_owned(),
            default: default.clone(),
            options: kind.options().to_vec(),
            pattern: kind.pattern().map(str::to_owned),
            required: *is_required,
        }
    }
}

impl From<ListedTemplate> for TemplateRow {
    fn from(listed: ListedTemplate) -> Self {
        let ListedTemplate { name, template } = listed;
        match template {
            Ok(template) => Self {
                name,
                title: template.title().map(str::to_owned),
                description: template.description().map(str::to_owned),
                parameters: template.parameters().iter().map(ParameterRow::from).collect(),
                ..Self::default()
            },
            Err(problems) => Self {
                name,
                error: Some(INVALID.to_owned()),
                problems: problems
                    .into_iter()
                    .map(|one| ProblemRow { path: one.path, line: one.line, column: one.column, message: one.message })
                    .collect(),
                ..Self::default()
            },
        }
    }
}
