//! Statements about clusters and their configurations.

use super::database::{About, Row, Transaction, sql};
use super::{ClusterId, Store, StoreError, json};
use gateway_types::{ClusterName, UnixSeconds};

/// A Kubernetes cluster whose agent reconciles workspaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Its id.
    pub id: ClusterId,
    /// Its name, unique.
    pub name: ClusterName,
    /// Time of its creation.
    pub created_at: UnixSeconds,
}

/// A version of a cluster's configuration, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConfigVersion(pub(super) i64);

impl ConfigVersion {
    /// Wraps a number.
    #[must_use]
    pub fn new(number: i64) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[must_use]
    pub fn get(self) -> i64 {
        self.0
    }
}

impl std::fmt::Display for ConfigVersion {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Store {
    /// Returns all clusters, by name.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn clusters(&self) -> Result<Vec<Cluster>, StoreError> {
        let rows = sql("SELECT id, name, created_at FROM clusters ORDER BY name").fetch_all(&self.readers).await?;
        rows.iter().map(read_cluster).collect()
    }

    /// Returns the cluster of that name.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn cluster(&self, name: &ClusterName) -> Result<Option<Cluster>, StoreError> {
        let statement = sql("SELECT id, name, created_at FROM clusters WHERE name = $1").bind(name.as_str());
        let row = statement.fetch_optional(&self.readers).await?;
        row.as_ref().map(read_cluster).transpose()
    }

    /// Returns the cluster of that name; creates it if there is none.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn ensure_cluster(&self, name: &ClusterName, now: UnixSeconds) -> Result<Cluster, StoreError> {
        if let Some(cluster) = self.cluster(name).await? {
            return Ok(cluster);
        }
        sql("INSERT INTO clusters (name, created_at) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING")
            .bind(name.as_str())
            .bind(now.get())
            .execute(&self.writer)
            .await?;
        let statement = sql("SELECT id, name, created_at FROM clusters WHERE name = $1").bind(name.as_str());
        read_cluster(&statement.fetch_one(&self.writer).await?)
    }

    /// Stores a configuration as the newest version, and returns its number; that of the newest version if the configuration
    /// is equal to it.
    ///
    /// # Errors
    /// [`StoreError::NotJson`], or a failed database; then nothing is stored.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it stores everything or nothing.
    pub async fn put_cluster_config(
        &self,
        cluster: ClusterId,
        config: &str,
        now: UnixSeconds,
    ) -> Result<ConfigVersion, StoreError> {
        let config = json::given(config, "cluster_configs", "config")?;
        let transaction = self.write(About::Cluster(cluster.0)).await?;
        put(transaction, cluster, &config, now).await
    }

    /// Returns the newest configuration of a cluster. A cluster without one gets `default`, which never overwrites a
    /// configuration stored concurrently.
    ///
    /// # Errors
    /// As for [`Store::put_cluster_config`].
    ///
    /// # Cancel safety
    /// Dropped before it returns, it stores everything or nothing.
    pub async fn ensure_cluster_config(
        &self,
        cluster: ClusterId,
        default: &str,
        now: UnixSeconds,
    ) -> Result<(ConfigVersion, String), StoreError> {
        if let Some(config) = self.cluster_config(cluster, None).await? {
            return Ok(config);
        }
        let default = json::given(default, "cluster_configs", "config")?;
        let mut transaction = self.write(About::Cluster(cluster.0)).await?;
        if let Some(config) = newest(&mut transaction, cluster).await? {
            return Ok(config);
        }
        let version = put(transaction, cluster, &default, now).await?;
        Ok((version, default))
    }

    /// Like [`Store::put_cluster_config`], unless the cluster has workspaces that are not terminated and `fits` rejects
    /// the newest configuration as a predecessor: then nothing is stored, and `None` returned. No workspace is created
    /// meanwhile.
    ///
    /// # Errors
    /// As for [`Store::put_cluster_config`].
    ///
    /// # Cancel safety
    /// Dropped before it returns, it stores everything or nothing.
    pub async fn put_fitting_cluster_config(
        &self,
        cluster: ClusterId,
        config: &str,
        fits: impl Fn(&str) -> bool,
        now: UnixSeconds,
    ) -> Result<Option<ConfigVersion>, StoreError> {
        let config = json::given(config, "cluster_configs", "config")?;
        let mut transaction = self.write(About::Cluster(cluster.0)).await?;
        let newest = newest(&mut transaction, cluster).await?;
        if newest.is_some_and(|(_, before)| !fits(&before)) && is_occupied(&mut transaction, cluster).await? {
            return Ok(None);
        }
        put(transaction, cluster, &config, now).await.map(Some)
    }

    /// Returns the time at which the newest version of a cluster's configuration was stored.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn cluster_config_since(&self, cluster: ClusterId) -> Result<Option<UnixSeconds>, StoreError> {
        let statement =
            sql("SELECT created_at FROM cluster_configs WHERE cluster_id = $1 ORDER BY version DESC LIMIT 1");
        let row = statement.bind(cluster.0).fetch_optional(&self.readers).await?;
        row.as_ref().map(|row| Ok(UnixSeconds::new(row.get("created_at")?))).transpose()
    }

    /// Returns a version of a cluster's configuration with its number; `None` asks for the newest.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn cluster_config(
        &self,
        cluster: ClusterId,
        version: Option<ConfigVersion>,
    ) -> Result<Option<(ConfigVersion, String)>, StoreError> {
        let statement = match version {
            Some(version) => sql("SELECT version, config FROM cluster_configs WHERE cluster_id = $1 AND version = $2")
                .bind(cluster.0)
                .bind(version.0),
            None => sql(NEWEST).bind(cluster.0),
        };
        let row = statement.fetch_optional(&self.readers).await?;
        row.as_ref().map(read_config).transpose()
    }
}

async fn put(
    mut transaction: Transaction,
    cluster: ClusterId,
    config: &str,
    now: UnixSeconds,
) -> Result<ConfigVersion, StoreError> {
    let version = match newest(&mut transaction, cluster).await? {
        Some((version, text)) if text == config => return Ok(version),
        Some((version, _)) => version.0 + 1,
        None => 1,
    };
    let row = sql("INSERT INTO cluster_configs (cluster_id, version, config, created_at) VALUES ($1, $2, $3, $4) \
         RETURNING version, config")
    .bind(cluster.0)
    .bind(version)
    .bind(json::value(config))
    .bind(now.get())
    .fetch_one(&mut transaction)
    .await?;
    let (version, kept) = read_config(&row)?;
    if kept != config {
        return Err(StoreError::Altered { table: "cluster_configs", column: "config" });
    }
    transaction.commit().await?;
    Ok(version)
}

/// Returns a cluster's newest configuration as the transaction sees it.
pub(super) async fn newest(
    transaction: &mut Transaction,
    cluster: ClusterId,
) -> Result<Option<(ConfigVersion, String)>, StoreError> {
    let row = sql(NEWEST).bind(cluster.0).fetch_optional(transaction).await?;
    row.as_ref().map(read_config).transpose()
}

/// Returns whether a cluster has workspaces that are not terminated.
async fn is_occupied(transaction: &mut Transaction, cluster: ClusterId) -> Result<bool, StoreError> {
    let statement = sql("SELECT lifecycles.workspace_id FROM lifecycles \
         JOIN kubernetes_workspaces ON kubernetes_workspaces.workspace_id = lifecycles.workspace_id \
         WHERE cluster_id = $1 AND NOT (desired = 'Terminated' AND actual = 'Terminated') LIMIT 1");
    Ok(statement.bind(cluster.0).fetch_optional(transaction).await?.is_some())
}

const NEWEST: &str = "SELECT version, config FROM cluster_configs WHERE cluster_id = $1 ORDER BY version DESC LIMIT 1";

fn read_cluster(row: &Row) -> Result<Cluster, StoreError> {
    let name = row.get::<&str>("name")?.parse();
    Ok(Cluster {
        id: ClusterId(row.get("id")?),
        name: name.map_err(|_| StoreError::Corrupt { table: "clusters", column: "name" })?,
        created_at: UnixSeconds::new(row.get("created_at")?),
    })
}

fn read_config(row: &Row) -> Result<(ConfigVersion, String), StoreError> {
    let config = json::read(row.json("config")?, "cluster_configs", "config")?;
    Ok((ConfigVersion(row.get("version")?), config))
}
