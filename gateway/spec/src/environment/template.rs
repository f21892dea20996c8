//! Templates of environments: define an environment's objects in GitLab's template language, as far as that is
//! documented ("GitLab-managed Kubernetes resources"): variables, trim markers and comments of Go's text/template.
//!
//! The order differs from Go's, which puts values into the text and reads YAML afterwards, so that a value can become
//! structure. Here, each action is replaced by one character that stands in no template, the YAML is read with these,
//! and values are put into the resulting scalars. Whatever the values are, the tree stays the one that was written.
//!
//! Differences for authors of templates: values are text even if they look like something else, except that an unquoted
//! scalar of nothing but digits and numbers (`{{ .project.id }}`) is a number as it is in Go; a variable that has no
//! value and no documented default is an error.

mod language;
mod mask;
mod read;
mod render;
mod rendered;
mod scalar;
mod variable;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

pub use self::rendered::RenderedTemplate;
use super::facts::TemplateVars;
use crate::document::Problem;
use crate::syntax::is_dns_label;

/// The largest template, in bytes.
pub const TEMPLATE_BYTES_MAX: usize = 64 * 1024;

/// Most objects of an environment.
pub const OBJECTS_MAX: usize = 100;

/// The longest text that values are put into, in bytes.
pub const SCALAR_BYTES_MAX: usize = 64 * 1024;

/// Largest total size of an environment's objects, in bytes of text.
pub const RENDERED_BYTES_MAX: usize = 256 * 1024;

/// Name of the template that an environment gets if its job names none.
pub const DEFAULT_NAME: &str = "default";

/// Built-in template: a namespace, and the right for jobs of the environment to work in it.
const BUILT_IN: &str = include_str!("template/default.yaml");

/// The name of a template: a DNS label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TemplateName(Arc<str>);

/// The text is not the name of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the name of a template has 1 to 63 characters of a-z, 0-9 and inner dashes")]
pub struct BadTemplateName;

impl TemplateName {
    /// Returns the name of the template that an environment gets if its job names none.
    #[must_use]
    pub fn default_one() -> Self {
        Self(DEFAULT_NAME.into())
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TemplateName {
    type Err = BadTemplateName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if is_dns_label(text) { Ok(Self(text.into())) } else { Err(BadTemplateName) }
    }
}

impl fmt::Display for TemplateName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Time at which an environment's objects are deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deletion {
    /// Once the environment is stopped.
    #[default]
    OnStop,
    /// Never.
    Never,
}

impl Deletion {
    /// Returns the text in templates and in the store.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OnStop => "on_stop",
            Self::Never => "never",
        }
    }

    /// Parses the text of [`Deletion::as_str`].
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        [Self::OnStop, Self::Never].into_iter().find(|deletion| deletion.as_str() == text)
    }
}

/// A parsed template. Rendering fails only for missing values and for results that are too long or have a key twice.
#[derive(Clone, Debug)]
pub struct Template {
    name: TemplateName,
    text: Arc<str>,
    actions: Arc<[language::Action]>,
    body: read::Body,
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// All mistakes, from the first line to the last, each with its line and column in the file; never empty.
    pub fn parse(name: &TemplateName, bytes: &[u8]) -> Result<Self, Vec<Problem>> {
        read::template(name, bytes)
    }

    /// Returns the built-in template, for agents that have no other of the name `default`.
    #[must_use]
    #[expect(clippy::expect_used, reason = "the text is compiled in, and a test reads it")]
    pub fn built_in() -> Self {
        Self::parse(&TemplateName::default_one(), BUILT_IN.as_bytes()).expect("the built-in template can be read")
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &TemplateName {
        &self.name
    }

    /// Returns the source text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Fills facts into the objects.
    ///
    /// # Errors
    /// Every variable that has no value, and every text that becomes too long, each with its line and column in the
    /// file; two keys of a map that become one; never empty.
    pub fn render(&self, info: &TemplateVars) -> Result<RenderedTemplate, Vec<Problem>> {
        render::render(self, info)
    }
}

#[cfg(test)]
mod tests;
