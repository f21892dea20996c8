//! What a new workspace in a cluster is made of: what its request names, and what its template has for the rest.

use gateway_store::UsedTemplate;
use gateway_types::IdleLimit;

use super::{Contents, NewInCluster, NewWorkspace, WorkspaceError, Workspaces};

impl Workspaces {
    /// Puts a request and its template together.
    ///
    /// # Errors
    /// [`WorkspaceError::Template`], [`WorkspaceError::TemplateAndDevfile`], [`WorkspaceError::Parameters`].
    pub(super) fn contents(&self, new: &NewWorkspace, on: &NewInCluster) -> Result<Contents, WorkspaceError> {
        let asked = Contents {
            devfile: new.devfile.clone(),
            projects: on.projects.clone(),
            editor: on.editor.clone(),
            ports: new.ports.clone(),
            idle: new.idle,
            template: None,
        };
        let Some(request) = &on.template else { return Ok(asked) };
        if asked.devfile.is_some() {
            return Err(WorkspaceError::TemplateAndDevfile);
        }
        let template = self.templates.get(&on.cluster, &request.name)?;
        let rendered = template.render(&request.parameters).map_err(WorkspaceError::Parameters)?;
        Ok(Contents {
            devfile: Some(rendered.devfile.into()),
            projects: if asked.projects.is_empty() { rendered.projects } else { asked.projects },
            editor: asked.editor.or(rendered.editor),
            idle: if asked.idle == IdleLimit::Inherited { rendered.idle } else { asked.idle },
            template: Some(UsedTemplate { name: request.name.to_string(), parameters: rendered.values }),
            ports: asked.ports,
        })
    }
}
