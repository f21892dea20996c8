//! Templates of workspaces (`agents_dir/NAME/workspace_templates/TEMPLATE.yaml`): a devfile of an operator's, with parameters that users
//! fill in, and defaults for the rest of a request.
//!
//! A value never becomes structure. `{{parameters.NAME}}` is a reference to a variable of the devfile, and rendering adds a variable of
//! that name, so that the devfile's own rules put the value in: after the YAML was read, inside of one scalar, and once. What a devfile
//! takes verbatim (`metadata`, values of `variables`), and the few values that are no text, rendering puts in itself, in the tree.
//! The result is a devfile as users send it, and is checked as those are.

mod parameter;
mod read;
mod render;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::document::{Node, Problem};
use crate::project::Project;
use gateway_types::IdleLimit;

pub use self::parameter::{BadValue, Parameter, ParameterKind, ParameterPattern};
pub use crate::environment::template::TemplateName;

/// The largest template, in bytes.
pub const TEMPLATE_BYTES_MAX: usize = 256 * 1024;

/// Most parameters of a template.
pub const PARAMETERS_MAX: usize = 32;

/// Most options of a parameter.
pub const OPTIONS_MAX: usize = 64;

/// Longest name of a parameter, in characters.
pub const PARAMETER_NAME_MAX: usize = 63;

/// Longest value of a parameter, in bytes.
pub const VALUE_BYTES_MAX: usize = 4 * 1024;

/// Most bytes of all values together: they are in each answer about their workspace.
pub const VALUES_BYTES_MAX: usize = 16 * 1024;

/// Values of parameters by their names.
pub type ParameterValues = BTreeMap<String, String>;

/// A template that keeps every rule.
#[derive(Clone, Debug)]
pub struct WorkspaceTemplate {
    title: Option<String>,
    description: Option<String>,
    parameters: Vec<Parameter>,
    /// The devfile with its references, a map.
    devfile: Arc<Node>,
    /// With references, if there are any.
    projects: Vec<Project>,
    editor: Option<String>,
    idle: IdleLimit,
}

/// What a template is made into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedWorkspace {
    /// The devfile, as YAML. It was not checked.
    pub devfile: String,
    /// Projects to clone, for a request that names none.
    pub projects: Vec<Project>,
    /// The editor, for a request that names none.
    pub editor: Option<String>,
    /// Time after which the workspace is stopped without use, for a request that says nothing of it.
    pub idle: IdleLimit,
    /// The value of each parameter: what was given, or else its default.
    pub values: ParameterValues,
}

/// What is wrong with the value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterFault {
    /// The parameter; empty for all together.
    pub parameter: String,
    /// The fault. Repeats no value.
    pub fault: BadValue,
}

impl WorkspaceTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// All mistakes, from the first line to the last, each with its place in the file; never empty.
    pub fn parse(bytes: &[u8]) -> Result<Self, Vec<Problem>> {
        read::template(bytes)
    }

    /// Returns its title, for people.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// Returns what it is for, for people.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Returns its parameters, in the order of the file; no name is there twice.
    #[must_use]
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Returns the projects that it has cloned, as they are written: with references to parameters.
    #[must_use]
    pub fn projects(&self) -> &[Project] {
        &self.projects
    }

    /// Returns the editor that it takes, if it says one.
    #[must_use]
    pub fn editor(&self) -> Option<&str> {
        self.editor.as_deref()
    }

    /// Makes a devfile, and the rest of a request, of values.
    ///
    /// # Errors
    /// What is wrong with values: one entry for each parameter, in the order of the file, then those that it does not have; never empty.
    pub fn render(&self, given: &ParameterValues) -> Result<RenderedWorkspace, Vec<ParameterFault>> {
        render::render(self, given)
    }
}

/// Returns whether a text can be the name of a parameter: letters, digits, dashes and underscores, of which the first is a letter.
#[must_use]
pub fn is_parameter_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    text.len() <= PARAMETER_NAME_MAX
        && text.bytes().all(inner)
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests;
