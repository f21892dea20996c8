//! A bounded set of changes: each workspace and environment once, and the latest events. Pure.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use gateway_store::{ClusterId, EnvironmentId, WorkspaceId};

use super::Change;
use crate::wire;

/// Most workspaces and environments of a set. More count as everything.
pub const CHANGES_MAX: usize = 1_024;

/// Most events of a set. Of more, the older ones are missed, as by any reader that is slow.
pub const EVENTS_MAX: usize = 256;

/// Longest event, in bytes. A longer one is missed.
pub const EVENT_BYTES_MAX: usize = 2_048;

/// Changes that are sent or received together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeSet {
    workspaces: BTreeMap<WorkspaceId, Option<ClusterId>>,
    /// Environments, and whether their desired state changed.
    environments: BTreeMap<EnvironmentId, bool>,
    events: VecDeque<(EnvironmentId, Bytes)>,
    is_everything: bool,
}

impl ChangeSet {
    /// Adds a change.
    pub fn add(&mut self, change: Change) {
        match change {
            Change::Everything => self.everything(),
            Change::Event { environment, event } => self.event(environment, event),
            Change::Workspace { .. } | Change::Environment { .. } if self.is_everything => {}
            Change::Workspace { workspace, cluster } => {
                let known = self.workspaces.entry(workspace).or_default();
                // A change by one that does not know the cluster is one of the same workspace.
                *known = cluster.or(*known);
            }
            Change::Environment { environment, is_wanted } => {
                *self.environments.entry(environment).or_default() |= is_wanted;
            }
        }
        if self.workspaces.len() + self.environments.len() > CHANGES_MAX {
            self.everything();
        }
    }

    /// Adds the changes of another set, which are later.
    pub fn merge(&mut self, later: &Self) {
        later.changes().for_each(|change| self.add(change));
    }

    /// Returns the changes.
    pub fn changes(&self) -> impl Iterator<Item = Change> + '_ {
        let workspaces = self.workspaces.iter();
        let workspaces =
            workspaces.map(|(workspace, cluster)| Change::Workspace { workspace: *workspace, cluster: *cluster });
        let environments = self.environments.iter();
        let environments =
            environments.map(|(id, is_wanted)| Change::Environment { environment: *id, is_wanted: *is_wanted });
        let events = self.events.iter();
        let events = events.map(|(id, event)| Change::Event { environment: *id, event: event.clone() });
        self.is_everything.then_some(Change::Everything).into_iter().chain(workspaces).chain(environments).chain(events)
    }

    /// Returns whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && !self.is_everything
    }

    /// Returns how many workspaces, environments and events it names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.workspaces.len() + self.environments.len() + self.events.len()
    }

    /// Returns whether anything may have changed.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.is_everything
    }

    fn everything(&mut self) {
        self.workspaces.clear();
        self.environments.clear();
        self.is_everything = true;
    }

    fn event(&mut self, environment: EnvironmentId, event: Bytes) {
        if event.len() > EVENT_BYTES_MAX {
            return;
        }
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back((environment, event));
    }

    /// Converts it for the wire.
    pub(crate) fn to_wire(&self) -> wire::Announcement {
        let mut message = wire::Announcement { everything: self.is_everything, ..wire::Announcement::default() };
        for (workspace, cluster) in &self.workspaces {
            let cluster = cluster.map(|cluster| cluster.to_string()).unwrap_or_default();
            message.workspaces.push(wire::ChangedWorkspace { workspace: workspace.to_string(), cluster });
        }
        for (environment, is_wanted) in &self.environments {
            message.environments.push(wire::ChangedEnvironment { environment: environment.get(), wanted: *is_wanted });
        }
        for (environment, event) in &self.events {
            message.events.push(wire::EnvironmentEvent { environment: environment.get(), event: event.clone() });
        }
        message
    }

    /// Reads what another replica sent: its bounds are these, whatever it holds. A change that cannot be read may be any.
    pub(crate) fn from_wire(message: wire::Announcement) -> Self {
        let mut set = Self::default();
        if message.everything {
            set.add(Change::Everything);
        }
        for wire::ChangedWorkspace { workspace, cluster } in message.workspaces {
            let cluster = if cluster.is_empty() { Ok(None) } else { cluster.parse().map(Some) };
            set.add(match (workspace.parse(), cluster) {
                (Ok(workspace), Ok(cluster)) => Change::Workspace { workspace, cluster },
                (Err(_), _) | (_, Err(_)) => Change::Everything,
            });
        }
        for wire::ChangedEnvironment { environment, wanted } in message.environments {
            set.add(Change::Environment { environment: EnvironmentId::new(environment), is_wanted: wanted });
        }
        for wire::EnvironmentEvent { environment, event } in message.events {
            set.add(Change::Event { environment: EnvironmentId::new(environment), event });
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(number: usize, cluster: Option<&str>) -> Change {
        let cluster = cluster.map(|cluster| cluster.parse().expect("an id"));
        Change::Workspace { workspace: format!("w-{number}").parse().expect("an id"), cluster }
    }

    fn environment(number: u64, is_wanted: bool) -> Change {
        Change::Environment { environment: EnvironmentId::new(number), is_wanted }
    }

    fn event(number: u64, bytes: usize) -> Change {
        Change::Event { environment: EnvironmentId::new(number), event: vec![b'a'; bytes].into() }
    }

    fn set(changes: impl IntoIterator<Item = Change>) -> ChangeSet {
        let mut set = ChangeSet::default();
        changes.into_iter().for_each(|change| set.add(change));
        set
    }

    fn named(set: &ChangeSet) -> Vec<Change> {
        set.changes().collect()
    }

    #[test]
    fn object_is_named_once_and_what_is_known_of_it_stays_known() {
        let first = set([workspace(1, Some("c-1")), environment(1, true), workspace(1, None), environment(1, false)]);
        assert_eq!(named(&first), [workspace(1, Some("c-1")), environment(1, true)]);
        let mut merged = first;
        merged.merge(&set([workspace(2, None), environment(2, false), event(1, 3)]));
        merged.merge(&set([environment(2, true), event(1, 3)]));
        let all = [workspace(1, Some("c-1")), workspace(2, None), environment(1, true), environment(2, true)];
        assert_eq!(named(&merged), [&all[..], &[event(1, 3), event(1, 3)]].concat(), "events are not the same");
    }

    #[test]
    fn more_than_the_bound_is_everything_and_needs_no_memory() {
        let mut many = set((1..=CHANGES_MAX).map(|number| workspace(number, None)));
        assert!(!many.is_everything() && many.len() == CHANGES_MAX);
        many.add(environment(1, false));
        assert_eq!(named(&many), [Change::Everything]);
        many.add(workspace(1, None));
        many.merge(&set([environment(7, true)]));
        assert_eq!(named(&many), [Change::Everything]);
        let mut merged = set([workspace(1, None)]);
        merged.merge(&many);
        assert_eq!(named(&merged), [Change::Everything]);
    }

    #[test]
    fn events_have_a_bound_of_their_own_and_the_latest_are_kept() {
        let numbers = 1..=u64::try_from(EVENTS_MAX).expect("few") + 5;
        let many = set(numbers.map(|number| event(number, 1)));
        assert_eq!((many.len(), named(&many)[0].clone()), (EVENTS_MAX, event(6, 1)));
        assert!(set([event(1, EVENT_BYTES_MAX + 1)]).is_empty());
    }

    #[test]
    fn set_is_the_same_behind_the_wire() {
        let sent = set([workspace(1, Some("c-1")), workspace(2, None), environment(3, true), event(3, 9)]);
        assert_eq!(ChangeSet::from_wire(sent.to_wire()), sent);
        let everything = set([Change::Everything, event(3, 9)]);
        assert_eq!(ChangeSet::from_wire(everything.to_wire()), everything);
    }

    #[test]
    fn message_of_another_program_cannot_break_the_bounds() {
        let odd = |workspace: &str, cluster: &str| wire::ChangedWorkspace {
            workspace: workspace.into(),
            cluster: cluster.into(),
        };
        for odd in [odd("", ""), odd("w-1", "x"), odd("c-1", "")] {
            let message = wire::Announcement { workspaces: vec![odd], ..wire::Announcement::default() };
            assert_eq!(named(&ChangeSet::from_wire(message)), [Change::Everything]);
        }
        let environments =
            (0..=CHANGES_MAX as u64).map(|environment| wire::ChangedEnvironment { environment, wanted: true });
        let message = wire::Announcement { environments: environments.collect(), ..wire::Announcement::default() };
        assert_eq!(named(&ChangeSet::from_wire(message)), [Change::Everything]);
    }
}
