//! Stops, removes and forgets environments: at the request of jobs and operators, because their project is gone, or
//! because their cluster cannot be asked any more.

use super::*;

/// Environments that are read at a time.
const PAGE: u32 = 256;

/// Objects in one record of the audit log.
const OBJECTS_OF_RECORD: usize = 64;

/// Failures in a row after which a sweep leaves the remaining environments for later: then the store does not answer,
/// and no single environment is at fault.
const SWEEP_FAILURES_MAX: u32 = 3;

impl Environments {
    /// Sets the desired state of an environment. The objects are removed once it is stopped, unless its template says
    /// that they are kept. A stopped environment stays stopped if asked to stop again, and becomes available only by a
    /// job.
    ///
    /// # Errors
    /// [`RefusalCode::NoSuchEnvironment`], [`RefusalCode::EnvironmentStopped`] for one that is to be available again, or no
    /// store.
    pub async fn set_state(
        &self,
        id: u64,
        wanted: DesiredEnvironment,
        by: impl Into<OnRecord> + Send,
    ) -> Result<Environment, EnvironmentRefusal> {
        let by = by.into();
        let id = EnvironmentId::new(id);
        let set = self.inner.store.set_environment_state(id, wanted, None, self.inner.now()).await?;
        let StateSet { environment, is_changed } = set.ok_or(RefusalCode::NoSuchEnvironment)?;
        if wanted == EnvironmentState::Available && environment.state == EnvironmentState::Stopped {
            return Err(RefusalCode::EnvironmentStopped.into());
        }
        if is_changed {
            self.told(&environment, wanted.as_str(), by);
        } else {
            // A repeated request ends the pause of a removal.
            self.inner.wake(id);
        }
        self.inner.hear_of_stops().await;
        self.shown(environment).await
    }

    /// Stops an environment and removes its recorded objects, whatever its template says.
    ///
    /// # Errors
    /// As for [`Environments::set_state`].
    pub async fn remove(&self, id: u64, by: impl Into<OnRecord> + Send) -> Result<ProgressStream, EnvironmentRefusal> {
        let by = by.into();
        let id = EnvironmentId::new(id);
        let changed = self.inner.store.remove_environment(id, None, self.inner.now()).await?;
        let changed = changed.ok_or(RefusalCode::NoSuchEnvironment)?;
        // Subscribed before the controller is woken, so that all later events are seen.
        let following = ProgressStream::new(self, id, AwaitedEnd::Removal);
        self.told(&changed, "removed", by);
        self.inner.hear_of_stops().await;
        Ok(following)
    }

    /// Forgets an environment without asking its cluster, for one whose agent never comes back. None of its objects is
    /// removed by that, and a call under way is not cancelled. The recorded objects are returned and in the audit log:
    /// from here on, deleting them is left to others.
    ///
    /// # Errors
    /// As for [`Environments::set_state`].
    pub async fn forget(&self, id: u64, by: impl Into<OnRecord> + Send) -> Result<Environment, EnvironmentRefusal> {
        let by = by.into();
        let id = EnvironmentId::new(id);
        // In one step, and not stopped first: a failure between the two would leave a stop, which has everything
        // removed.
        let forgotten = self.inner.store.forget_environment(id).await?;
        let ForgottenEnvironment { environment: forgotten, prepared } =
            forgotten.ok_or(RefusalCode::NoSuchEnvironment)?;
        self.inner.access.forget_prepared(&prepared);
        let objects = record::objects_from(&forgotten.tracked).unwrap_or_default();
        let names: Vec<String> = objects
            .iter()
            .map(|one| format!("{}/{} {} {}/{}", one.group, one.version, one.kind, one.namespace, one.name))
            .collect();
        let mut parts: Vec<&[String]> = names.chunks(OBJECTS_OF_RECORD).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        let record = |part: &[String]| {
            AuditRecord::new(AuditEvent::EnvironmentForgotten {
                by: by.by().actor(),
                environment: Text::of(id),
                project: Text::new(&forgotten.project_path),
                name: Text::new(&forgotten.name),
                inventory: Text::new(&forgotten.inventory),
                objects: part.iter().collect(),
            })
        };
        let records = parts.into_iter().map(record).collect();
        by.record_all(records);
        self.inner.tell(id, super::super::progress::Notification::Settled);
        self.shown(forgotten).await
    }

    /// Stops all environments of a project that is gone, and refuses preparations for its jobs from now on. Returns the
    /// number of environments. Once this is stored, the controller continues a sweep that ends early.
    ///
    /// # Errors
    /// No store; some may be stopped already then, and one that cannot be stopped now does not keep others from it.
    pub async fn sweep(&self, project_id: u64, by: impl Into<OnRecord> + Send) -> Result<u32, EnvironmentRefusal> {
        let by = by.into();
        let store = &self.inner.store;
        store.put_project_gone(project_id, self.inner.now()).await?;
        let all = store.environments_of_project(project_id).await?;
        let environments = u32::try_from(all.len()).unwrap_or(u32::MAX);
        let event = AuditEvent::EnvironmentsSwept { by: by.by().actor(), project_id, environments };
        by.record(AuditRecord::new(event));
        let swept = self.inner.sweep_all(all).await;
        self.inner.hear_of_stops().await;
        swept?;
        Ok(environments)
    }
}

impl EnvironmentsShared {
    /// Stops environments whose project is gone, as many of them as it can.
    ///
    /// # Errors
    /// Error of the last environment that could not be stopped.
    async fn sweep_all(&self, ids: Vec<EnvironmentId>) -> Result<(), StoreError> {
        let (mut failed, mut in_a_row) = (None, 0);
        for id in ids {
            match self.store.stop_environment(id, Some("project_deleted"), self.now()).await {
                Ok(()) => {
                    in_a_row = 0;
                    self.wake(id);
                    self.tell(id, super::super::progress::Notification::Settled);
                }
                Err(error) => {
                    tracing::warn!(environment = %id, %error, "an environment of a project that is gone is not stopped");
                    failed = Some(error);
                    in_a_row += 1;
                }
            }
            if in_a_row >= SWEEP_FAILURES_MAX {
                break;
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Finishes incomplete sweeps, and reads the stops by other processes.
    pub(in super::super) async fn finish_stops(&self) {
        match self.store.environments_to_sweep(PAGE).await {
            Ok(ids) if ids.is_empty() => {}
            Ok(ids) => {
                tracing::info!(environments = ids.len(), "environments of projects that are gone are stopped");
                // Failures are logged, and tried again at the next look.
                self.sweep_all(ids).await.ok();
            }
            Err(error) => tracing::warn!(%error, "cannot read which projects are gone"),
        }
        self.hear_of_stops().await;
    }

    /// Forgets the prepared jobs of stopped environments. A failure is made up for by the next read.
    async fn hear_of_stops(&self) {
        if let Err(error) = self.access.read_stops(&self.store, self.now()).await {
            tracing::warn!(%error, "cannot read which environments were stopped");
        }
    }
}
