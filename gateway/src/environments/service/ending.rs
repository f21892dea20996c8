//! Environments that are to end: at the word of jobs and operators, because their project is gone, or because nothing can be
//! found out about them any more.

use super::*;

/// Environments that are read at a time.
const PAGE: u32 = 256;

/// Objects in one record of the audit log.
const OBJECTS_OF_RECORD: usize = 64;

impl Environments {
    /// Says what an environment is. Asked to stop, it loses nothing; once it is stopped, what is recorded of it is removed,
    /// unless its template says that it is kept.
    ///
    /// # Errors
    /// [`RefusalCode::NoSuchEnvironment`], or no store.
    pub async fn set_state(&self, id: u64, wanted: Wanted, by: By) -> Result<Environment, Refusal> {
        let id = EnvironmentId::new(id);
        let changed = self.inner.store.set_environment_state(id, wanted, None, self.inner.now()).await?;
        let changed = changed.ok_or(RefusalCode::NoSuchEnvironment)?;
        self.told(&changed, wanted.as_str(), &by);
        self.inner.hear_of_stops().await;
        self.shown(changed).await
    }

    /// Stops an environment and removes what is recorded of it, whatever its template says.
    ///
    /// # Errors
    /// As for [`Environments::set_state`].
    pub async fn remove(&self, id: u64, by: By) -> Result<Following, Refusal> {
        let id = EnvironmentId::new(id);
        let changed = self.inner.store.remove_environment(id, None, self.inner.now()).await?;
        let changed = changed.ok_or(RefusalCode::NoSuchEnvironment)?;
        self.told(&changed, "removed", &by);
        self.inner.hear_of_stops().await;
        Ok(Following::new(self, id, Awaited::Removal))
    }

    /// Forgets an environment without asking its cluster, for one whose agent never comes back. What was recorded of it is
    /// returned and in the audit log: from here on it is somebody else's to delete.
    ///
    /// # Errors
    /// As for [`Environments::set_state`].
    pub async fn forget(&self, id: u64, by: By) -> Result<Environment, Refusal> {
        let id = EnvironmentId::new(id);
        let store = &self.inner.store;
        // What was prepared in it is so no more, and what waits in it hears why.
        store.set_environment_state(id, EnvironmentState::Stopped, None, self.inner.now()).await?;
        self.inner.hear_of_stops().await;
        let forgotten = store.forget_environment(id).await?.ok_or(RefusalCode::NoSuchEnvironment)?;
        let objects = record::objects_from(&forgotten.tracked).unwrap_or_default();
        let names: Vec<String> = objects
            .iter()
            .map(|one| format!("{}/{} {} {}/{}", one.group, one.version, one.kind, one.namespace, one.name))
            .collect();
        let mut parts: Vec<&[String]> = names.chunks(OBJECTS_OF_RECORD).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        for part in parts {
            self.inner.audit.record(Record::new(AuditEvent::EnvironmentForgotten {
                by: by.actor(),
                environment: Text::of(id),
                project: Text::new(&forgotten.project_path),
                name: Text::new(&forgotten.name),
                inventory: Text::new(&forgotten.inventory),
                objects: part.iter().collect(),
            }));
        }
        self.inner.hub.tell(id, super::super::following::Told::Settled);
        self.shown(forgotten).await
    }

    /// Stops all environments of a project that is gone, and has nothing made for its jobs any more. Returns how many those
    /// are. Once that is written down, whoever looks after environments goes on where this ends.
    ///
    /// # Errors
    /// No store; then some may be stopped already.
    pub async fn sweep(&self, project_id: u64, by: By) -> Result<u32, Refusal> {
        let store = &self.inner.store;
        store.put_project_gone(project_id, self.inner.now()).await?;
        let filter = EnvironmentFilter { project_id: Some(project_id), ..EnvironmentFilter::default() };
        let mut all: Vec<EnvironmentId> = Vec::new();
        loop {
            let page = store.environments(filter, all.last().copied(), PAGE).await?;
            if page.is_empty() {
                break;
            }
            all.extend(page.iter().map(|environment| environment.id));
        }
        let environments = u32::try_from(all.len()).unwrap_or(u32::MAX);
        self.inner.audit.record(Record::new(AuditEvent::EnvironmentsSwept {
            by: by.actor(),
            project_id,
            environments,
        }));
        for id in all {
            self.inner.sweep_one(id).await?;
        }
        self.inner.hear_of_stops().await;
        Ok(environments)
    }
}

impl Inner {
    async fn sweep_one(&self, id: EnvironmentId) -> Result<(), StoreError> {
        let (state, reason) = (EnvironmentState::Stopped, Some("project_deleted"));
        self.store.set_environment_state(id, state, reason, self.now()).await?;
        self.wakes.wake(id);
        self.hub.tell(id, super::super::following::Told::Settled);
        Ok(())
    }

    /// Finishes sweeps that whoever asked for them did not see through, and hears of what other processes stopped.
    pub(in super::super) async fn finish_stops(&self) {
        let swept = async {
            for id in self.store.environments_to_sweep(PAGE).await? {
                tracing::info!(environment = %id, "an environment of a project that is gone is stopped");
                self.sweep_one(id).await?;
            }
            Ok::<_, StoreError>(())
        };
        if let Err(error) = swept.await {
            tracing::warn!(%error, "environments of projects that are gone cannot be stopped");
        }
        self.hear_of_stops().await;
    }

    /// Forgets that the jobs of stopped environments were prepared. What is not heard now is soon.
    async fn hear_of_stops(&self) {
        if let Err(error) = self.access.read_stops(&self.store, self.now()).await {
            tracing::warn!(%error, "cannot read which environments were stopped");
        }
    }
}
