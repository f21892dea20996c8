//! Agents that have a session at a replica that lives, for those who need to know of many at once. One query for each question.

use std::collections::HashSet;

use super::database::{Row, sql_of};
use super::replicas::{clock, clocked};
use super::{ClusterId, Incarnation, Store, StoreError};
use gateway_types::WorkspaceName;

impl Store {
    /// Returns the workspaces in CI systems whose agent has a session while a job of theirs has not ended.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn connected_jobs(&self) -> Result<Vec<WorkspaceName>, StoreError> {
        let statement = clocked!(
            "SELECT name FROM ci_runs JOIN sessions ON kind = 1 AND subject = ci_runs.workspace_id \
             JOIN replicas ON replicas.id = sessions.owner JOIN workspaces ON workspaces.id = ci_runs.workspace_id \
             WHERE ended_at IS NULL AND expires_at > ",
            ""
        );
        statement.fetch_all(&self.readers).await?.iter().map(name).collect()
    }

    /// Returns the workspaces in CI systems whose job is to end, and whose agent has a session at this replica.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn stopped_jobs_at(&self, replica: Incarnation) -> Result<Vec<WorkspaceName>, StoreError> {
        let statement = super::database::sql(
            "SELECT name FROM ci_runs JOIN sessions ON kind = 1 AND subject = ci_runs.workspace_id \
             JOIN workspaces ON workspaces.id = ci_runs.workspace_id \
             WHERE ended_at IS NULL AND stop_at IS NOT NULL AND sessions.owner = $1",
        );
        statement.bind(replica.0).fetch_all(&self.readers).await?.iter().map(name).collect()
    }

    /// Returns those of some workspaces whose agent has a session.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn connected_workspaces(&self, of: &[&WorkspaceName]) -> Result<HashSet<WorkspaceName>, StoreError> {
        macro_rules! connected {
            ($kind:ident, $names:literal) => {
                concat!(
                    "SELECT name FROM sessions JOIN replicas ON replicas.id = sessions.owner \
                     JOIN workspaces ON workspaces.id = subject WHERE kind = 1 AND name IN (",
                    $names,
                    ") AND expires_at > ",
                    clock!($kind)
                )
            };
        }
        let statement = sql_of(
            connected!(sqlite, "SELECT value FROM json_each($1)"),
            connected!(postgres, "SELECT jsonb_array_elements_text($1::jsonb)"),
        );
        let names: Vec<&str> = of.iter().map(|name| name.as_str()).collect();
        let rows = statement.bind(serde_json::Value::from(names).to_string()).fetch_all(&self.readers).await?;
        rows.iter().map(name).collect()
    }

    /// Returns the clusters whose agent has a session.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn connected_clusters(&self) -> Result<HashSet<ClusterId>, StoreError> {
        let statement = clocked!(
            "SELECT subject FROM sessions JOIN replicas ON replicas.id = sessions.owner WHERE kind = 2 AND expires_at > ",
            ""
        );
        statement.fetch_all(&self.readers).await?.iter().map(|row| Ok(ClusterId(row.get("subject")?))).collect()
    }
}

fn name(row: &Row) -> Result<WorkspaceName, StoreError> {
    let corrupt = |_| StoreError::Corrupt { table: "workspaces", column: "name" };
    row.get::<&str>("name")?.parse().map_err(corrupt)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::each::each;
    use crate::{NewCi, NewCiRun, NewReplica, Quotas, ReplicaState, Runs, SessionClaim, SessionKey, WorkspaceId};
    use gateway_types::{ActualState, UnixSeconds};

    const NOW: UnixSeconds = UnixSeconds::new(1_000);

    async fn job(store: &Store, name: &str) -> WorkspaceId {
        let key = format!("cache of {name}");
        let new = NewCi {
            name: &name.parse().unwrap(),
            owner: &"ann".parse().unwrap(),
            provider: &"lab".parse().unwrap(),
            cache_key: &key,
            project: None,
            tags: &[],
            devfile: "",
            variables: &[],
            ports: &[],
            quotas: Quotas::default(),
        };
        let made = store.create_ci(&new, NOW).await.unwrap();
        let (life, run_key) = (&made.lifecycle, format!("run of {name}"));
        let next = life.observe(ActualState::Starting, None, NOW);
        let new = NewCiRun { key: &run_key, token: None };
        store.begin_run(made.workspace.id, life.revision, &next, &new, NOW).await.unwrap().unwrap();
        made.workspace.id
    }

    async fn stops(store: &Store, workspace: WorkspaceId) {
        let Runs::Ci(mut ci) = store.managed_by_id(workspace).await.unwrap().unwrap().runs else { panic!("no job") };
        ci.run.as_mut().unwrap().stop_at = Some(NOW);
        assert!(store.put_run(workspace, &ci, NOW).await.unwrap());
    }

    #[tokio::test]
    async fn agents_are_connected_while_a_replica_that_lives_has_their_session() {
        each(async |store| {
            let mut replicas = Vec::new();
            for _ in 0..2 {
                let lease = Duration::from_secs(60);
                let new =
                    NewReplica { peer_url: "https://a:1", version: "1", zone: "z", public_url: "https://z", lease };
                replicas.push(store.add_replica(&new).await.unwrap().unwrap());
            }
            let jobs = [job(store, "one").await, job(store, "two").await, job(store, "three").await];
            let names = ["one", "two", "three"].map(|name| name.parse().unwrap());
            let cluster = store.ensure_cluster(&"prod".parse().unwrap(), NOW).await.unwrap().id;
            let claims = async |owner, key| {
                store
                    .claim_sessions(owner, &[SessionClaim { key, instance: 7, known: None, is_late: false }])
                    .await
                    .unwrap()
                    .unwrap();
            };
            claims(replicas[0], SessionKey::Workspace(jobs[0])).await;
            claims(replicas[1], SessionKey::Workspace(jobs[1])).await;
            claims(replicas[1], SessionKey::Cluster(cluster)).await;
            let connected = async || {
                let mut jobs = store.connected_jobs().await.unwrap();
                jobs.sort();
                let clusters = store.connected_clusters().await.unwrap();
                let of_them = store.connected_workspaces(&names.iter().collect::<Vec<_>>()).await.unwrap();
                assert_eq!(of_them.len(), jobs.len(), "{of_them:?}");
                (jobs.iter().map(ToString::to_string).collect::<Vec<_>>(), clusters.contains(&cluster))
            };
            assert_eq!(connected().await, (vec!["one".to_owned(), "two".to_owned()], true));
            stops(store, jobs[0]).await;
            let stopped = store.stopped_jobs_at(replicas[0]).await.unwrap();
            assert_eq!(stopped.iter().map(ToString::to_string).collect::<Vec<_>>(), ["one"]);
            assert_eq!(store.stopped_jobs_at(replicas[1]).await.unwrap(), []);
            store.renew_replica(replicas[1], ReplicaState::Serving, Duration::ZERO).await.unwrap();
            assert_eq!(connected().await, (vec!["one".to_owned()], false));
        })
        .await;
    }
}
