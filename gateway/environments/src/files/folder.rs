//! Templates of environments among the files of `agents_dir`.

use std::path::Path;

use gateway_workspaces::agents_dir::FileRefusal;
use gateway_workspaces::agents_dir::templates::{self, TemplateKind};
use workspace_spec::document::Problem;
use workspace_spec::environment::template::{TEMPLATE_BYTES_MAX, Template, TemplateName};

/// The folder of each cluster agent's templates.
pub(super) const FOLDER: &str = EnvironmentKind::FOLDER;

/// Templates of environments.
pub(super) enum EnvironmentKind {}

impl TemplateKind for EnvironmentKind {
    const FOLDER: &'static str = "environment_templates";
    const BYTES_MAX: usize = TEMPLATE_BYTES_MAX;
    type Template = Template;

    fn parse(name: &TemplateName, bytes: &[u8]) -> Result<Template, Vec<Problem>> {
        Template::parse(name, bytes)
    }
}

/// Reads every template below a folder, and returns the problems of each that cannot be in force. A folder that cannot
/// be read at all is reported by the readers of configurations there.
#[must_use]
pub fn check(dir: &Path) -> Vec<FileRefusal> {
    templates::check::<EnvironmentKind>(dir)
}
