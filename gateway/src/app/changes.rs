//! Changes that begin here go to other replicas, and theirs to the parts of this process that wait for changes.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tunnel_link::drain::Drain;

use gateway_environments::elsewhere::{EnvironmentChange, OwnEnvironmentChanges};
use gateway_environments::service::Environments;
use gateway_net::telemetry::Metrics;
use gateway_replicas::changes::sender::OwnChanges;
use gateway_replicas::changes::{Change, ChangeSink, feed, sender};
use gateway_replicas::replica::Replica;
use gateway_store::{ChangedRow, Store};
use gateway_workspaces::changes::{ChangeNews, ChangeNotice, Changes, Subscriber};

/// Parts of this process whose changes travel.
#[derive(Clone, Debug)]
pub(super) struct Travelling {
    pub(super) changes: Changes,
    pub(super) environments: Environments,
}

impl Travelling {
    /// Starts the tasks that send what begins here, and that read what others have stored.
    pub(super) fn execute(
        &self,
        replica: Arc<Replica>,
        store: Store,
        metrics: &Metrics,
        background: &Drain,
        closed: &CancellationToken,
    ) {
        let own = Arc::new(OwnChanges::default());
        background.spawn(follow_workspaces(self.changes.listen(), own.clone(), closed.clone()));
        background.spawn(follow_environments(self.environments.own_changes(), own.clone(), closed.clone()));
        background.spawn(sender::send(replica, own, metrics.clone(), closed.clone()));
        background.spawn(feed::read(store, Arc::new(self.clone()), metrics.clone(), closed.clone()));
    }
}

impl ChangeSink for Travelling {
    fn announced(&self, change: Change) {
        match change {
            Change::Workspace { workspace, cluster } => {
                self.changes.publish_from_elsewhere(ChangeNews::Change(ChangeNotice { workspace, cluster }));
            }
            Change::Environment { environment, is_wanted: true } => {
                self.environments.changed_elsewhere(EnvironmentChange::Wanted(environment));
            }
            Change::Environment { environment, is_wanted: false } => {
                self.environments.changed_elsewhere(EnvironmentChange::Settled(environment));
            }
            Change::Event { environment, event } => {
                self.environments.changed_elsewhere(EnvironmentChange::Event(environment, event));
            }
            Change::Everything => {
                self.changes.publish_from_elsewhere(ChangeNews::Missed);
                self.environments.changed_elsewhere(EnvironmentChange::Everything);
            }
        }
    }

    fn found(&self, row: ChangedRow) {
        match row {
            ChangedRow::Workspace { workspace, cluster } => self.announced(Change::Workspace { workspace, cluster }),
            ChangedRow::Environment(environment) => self.environments.stored(environment),
        }
    }
}

/// Hands changes of workspaces to the sender until `stop`.
async fn follow_workspaces(mut subscriber: Subscriber, own: Arc<OwnChanges>, stop: CancellationToken) {
    while let Some(news) = stop.run_until_cancelled(subscriber.next_own()).await {
        own.add(match news {
            ChangeNews::Change(ChangeNotice { workspace, cluster }) => Change::Workspace { workspace, cluster },
            ChangeNews::Missed => Change::Everything,
        });
    }
}

/// Hands changes of environments to the sender until `stop`.
async fn follow_environments(mut subscriber: OwnEnvironmentChanges, own: Arc<OwnChanges>, stop: CancellationToken) {
    while let Some(change) = stop.run_until_cancelled(subscriber.next()).await {
        own.add(match change {
            EnvironmentChange::Wanted(environment) => Change::Environment { environment, is_wanted: true },
            EnvironmentChange::Settled(environment) => Change::Environment { environment, is_wanted: false },
            EnvironmentChange::Event(environment, event) => Change::Event { environment, event },
            EnvironmentChange::Everything => Change::Everything,
        });
    }
}
