//! Keeps templates in the store.

use super::files::{KeepTemplates, KeptTemplate};
use gateway_store::{Store, StoreError, wall_clock};
use gateway_types::ClusterName;
use workspace_spec::environment::template::TemplateName;

impl KeepTemplates for Store {
    async fn templates(&self) -> Result<Vec<KeptTemplate>, StoreError> {
        let mut all = Vec::new();
        for cluster in self.clusters().await? {
            for (name, text) in self.environment_templates(cluster.id).await? {
                let corrupt = |_| StoreError::Corrupt { table: "environment_templates", column: "name" };
                let name: TemplateName = name.parse().map_err(corrupt)?;
                all.push(KeptTemplate { cluster: cluster.name.clone(), name, text });
            }
        }
        Ok(all)
    }

    async fn put_template(&self, template: &KeptTemplate) -> Result<(), StoreError> {
        let cluster = self.ensure_cluster(&template.cluster, wall_clock()).await?;
        self.put_environment_template(cluster.id, template.name.as_str(), &template.text).await
    }

    async fn remove_template(&self, cluster: &ClusterName, name: &TemplateName) -> Result<(), StoreError> {
        if let Some(cluster) = self.cluster(cluster).await? {
            self.forget_environment_template(cluster.id, name.as_str()).await?;
        }
        Ok(())
    }
}
