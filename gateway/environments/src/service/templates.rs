//! Reports templates that are not in force as their files are.

use super::Environments;
use crate::files::RefusedFile;
use gateway_types::ClusterName;
use workspace_spec::document::Problem;
use workspace_spec::environment::template::TemplateName;

impl Environments {
    /// Returns the problems of a cluster's template file as it is now: if there are any, an older version is in force,
    /// or none.
    #[must_use]
    pub fn template_problems(&self, agent: &ClusterName, name: &TemplateName) -> Vec<Problem> {
        self.inner.templates.problems(agent, name)
    }

    /// Returns the files of a cluster's templates that are not in force as they are.
    #[must_use]
    pub fn refused_templates(&self, agent: &ClusterName) -> Vec<RefusedFile> {
        self.inner.templates.refused(agent)
    }

    /// Returns whether there are any.
    #[must_use]
    pub fn has_refused_templates(&self, agent: &ClusterName) -> bool {
        self.inner.templates.has_refused(agent)
    }
}
