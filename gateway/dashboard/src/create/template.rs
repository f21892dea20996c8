//! The form of a template: which templates there are, and a field for each parameter of the one that was chosen.

use std::sync::Arc;

use super::{Fields, FormState, Target};
use gateway_api::ApiShared;
use gateway_api::lifecycle::template_problem;
use gateway_api::page::only;
use gateway_api::problem::{Fault, ProblemRow};
use gateway_types::ClusterName;
use gateway_workspaces::service::ClusterPlace;
use gateway_workspaces::workspace_templates::NoTemplate;
use workspace_spec::workspace_template::{
    Parameter, ParameterKind, ParameterValues, TemplateName, VALUE_BYTES_MAX, WorkspaceTemplate, is_parameter_name,
};

/// What the names of fields with parameters begin with.
const FIELD: &str = "parameter.";

/// What the API calls a parameter that is wrong.
const FAULT: &str = "template_parameters.";

/// Most parameters that are read of a form: more than a template has.
const READ_MAX: usize = 64;

/// A template that can be chosen.
pub(super) struct Offer {
    pub(super) cluster: String,
    pub(super) name: String,
    pub(super) title: String,
    pub(super) description: String,
    /// Whether its file can be used.
    pub(super) is_good: bool,
    pub(super) is_chosen: bool,
}

/// The form of a chosen template.
pub(super) struct TemplateForm {
    pub(super) title: String,
    pub(super) description: String,
    pub(super) parameters: Vec<ParameterField>,
    /// What is wrong with the name.
    pub(super) name_mistakes: Vec<String>,
    /// Whether it has projects of its own.
    pub(super) has_projects: bool,
}

/// A field of it.
pub(super) struct ParameterField {
    /// Name of the parameter, which is a part of ids too.
    pub(super) name: String,
    pub(super) title: String,
    pub(super) description: String,
    pub(super) control: Control,
    pub(super) value: String,
    pub(super) is_required: bool,
    /// Words about a pattern.
    pub(super) pattern: Option<String>,
    pub(super) mistakes: Vec<String>,
    pub(super) value_max: usize,
}

/// Kind of a field.
pub(super) enum Control {
    Line,
    /// For a value of several lines.
    Lines,
    Number,
    Checkbox,
    Choice(Vec<String>),
}

impl ParameterField {
    fn new(parameter: &Parameter, given: &ParameterValues, faults: &[Fault]) -> Self {
        let Parameter { name, title, description, kind, is_required, .. } = parameter;
        let value = given.get(name).map(String::as_str).or_else(|| parameter.unsaid()).unwrap_or_default();
        let of_this = |fault: &&Fault| fault.field.strip_prefix(FAULT) == Some(name);
        Self {
            name: name.clone(),
            title: title.as_deref().unwrap_or(name).to_owned(),
            description: description.clone().unwrap_or_default(),
            control: match kind {
                ParameterKind::Options(options) => Control::Choice(options.clone()),
                ParameterKind::Number => Control::Number,
                ParameterKind::Boolean => Control::Checkbox,
                ParameterKind::Text | ParameterKind::Pattern(_) if value.contains('\n') => Control::Lines,
                ParameterKind::Text | ParameterKind::Pattern(_) => Control::Line,
            },
            value: value.to_owned(),
            is_required: *is_required,
            pattern: kind.pattern().map(str::to_owned),
            mistakes: faults.iter().filter(of_this).map(|fault| fault.text.clone()).collect(),
            value_max: VALUE_BYTES_MAX,
        }
    }

    /// Returns the ids of what describes the field.
    pub(super) fn described_by(&self) -> String {
        let parts = [
            (!self.description.is_empty()).then_some("hint"),
            self.pattern.is_some().then_some("pattern"),
            (!self.mistakes.is_empty()).then_some("mistake"),
        ];
        let ids: Vec<_> = parts.into_iter().flatten().map(|part| format!("parameter-{}-{part}", self.name)).collect();
        ids.join(" ")
    }

    /// Returns whether an option is the one that counts.
    pub(super) fn is(&self, option: &str) -> bool {
        self.value == option
    }
}

impl TemplateForm {
    /// Makes the form of the template that fields name; `None` if there is no such template that can be used.
    pub(super) fn new(api: &ApiShared, state: &FormState) -> Option<Self> {
        let template = find(api, &state.fields)?.ok()?;
        let FormState { fields, faults, .. } = state;
        let field = |parameter| ParameterField::new(parameter, &fields.parameters, faults);
        let of_name = |fault: &&Fault| fault.field == "name";
        Some(Self {
            title: template.title().unwrap_or(&fields.template).to_owned(),
            description: template.description().unwrap_or_default().to_owned(),
            parameters: template.parameters().iter().map(field).collect(),
            name_mistakes: faults.iter().filter(of_name).map(|fault| fault.text.clone()).collect(),
            has_projects: !template.projects().is_empty(),
        })
    }
}

impl FormState {
    /// Returns the id of the field in the form of a template that a fault belongs to; empty for the whole form.
    pub(super) fn place_of(fault: &Fault) -> String {
        match (fault.field.strip_prefix(FAULT), fault.field.as_str()) {
            (Some(name), _) => format!("parameter-{name}"),
            (None, name @ ("name" | "projects" | "editor" | "idle_minutes" | "display_name")) => {
                format!("template-{name}")
            }
            (None, _) => String::new(),
        }
    }

    /// Returns the name that people read of that field.
    pub(super) fn name_of(fault: &Fault) -> &str {
        fault.field.strip_prefix(FAULT).unwrap_or(&fault.field)
    }
}

/// Returns the templates of clusters that take workspaces, by cluster and name.
pub(super) fn offers(api: &ApiShared, clusters: &[ClusterPlace], fields: &Fields) -> Vec<Offer> {
    let mut offers = Vec::new();
    for place in clusters {
        for listed in api.lifecycles.templates().list(&place.name) {
            let (title, description) = match &listed.template {
                Ok(template) => (template.title(), template.description()),
                Err(_) => (None, None),
            };
            offers.push(Offer {
                cluster: place.name.to_string(),
                title: title.unwrap_or(&listed.name).to_owned(),
                description: description.unwrap_or_default().to_owned(),
                is_good: listed.template.is_ok(),
                is_chosen: fields.agent == place.name.as_str() && fields.template == listed.name,
                name: listed.name,
            });
        }
    }
    offers
}

/// Returns why the template that a link names cannot be shown.
pub(super) fn problem(api: &ApiShared, target: Target, fields: &Fields) -> Option<ProblemRow> {
    if target != Target::Template {
        return None;
    }
    find(api, fields).unwrap_or(Err(NoTemplate::NotFound)).err().map(template_problem)
}

/// Finds the template that fields name; `None` if they can name none.
fn find(api: &ApiShared, fields: &Fields) -> Option<Result<Arc<WorkspaceTemplate>, NoTemplate>> {
    let cluster: ClusterName = fields.agent.parse().ok()?;
    let name: TemplateName = fields.template.parse().ok()?;
    Some(api.lifecycles.templates().get(&cluster, &name))
}

/// Reads the values of parameters from a form.
pub(super) fn read(form: &[u8]) -> ParameterValues {
    let named = form_urlencoded::parse(form).filter_map(|(key, _)| Some(key.strip_prefix(FIELD)?.to_owned()));
    let names = named.filter(|name| is_parameter_name(name)).take(READ_MAX);
    let value = |name: String| {
        let value = only(form, &format!("{FIELD}{name}"))?.replace("\r\n", "\n");
        Some((name, value))
    };
    names.filter_map(value).collect()
}

/// Adds what a browser leaves out: a box that is not checked.
pub(super) fn add_unchecked(api: &ApiShared, fields: &mut Fields) {
    let Some(Ok(template)) = find(api, fields) else { return };
    for parameter in template.parameters().iter().filter(|parameter| parameter.kind == ParameterKind::Boolean) {
        fields.parameters.entry(parameter.name.clone()).or_insert_with(|| "false".to_owned());
    }
}
