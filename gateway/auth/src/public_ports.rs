//! Set of all public ports, fetched ahead of time: a request without a principal never waits for the store, and takes
//! the same time whether the workspace exists or not.

use std::collections::HashSet;

use parking_lot::RwLock;

use gateway_types::{Port, WorkspaceName};

/// The public ports of all workspaces, as far as this process knows.
#[derive(Debug, Default)]
pub struct PublicPorts {
    known: RwLock<KnownPorts>,
}

#[derive(Debug, Default)]
struct KnownPorts {
    open: HashSet<(WorkspaceName, Port)>,
    /// Counts the changes of single workspaces.
    changes: u64,
}

/// State at the time of a query to the store: an answer overtaken by a change must not undo it.
#[derive(Clone, Copy, Debug)]
pub struct QueryStart(u64);

impl PublicPorts {
    /// Returns whether a port is public.
    #[must_use]
    pub fn contains(&self, workspace: &WorkspaceName, port: Port) -> bool {
        let known = self.known.read();
        !known.open.is_empty() && known.open.contains(&(workspace.clone(), port))
    }

    /// Marks the begin of a query to the store for all public ports.
    #[must_use]
    pub fn ask(&self) -> QueryStart {
        QueryStart(self.known.read().changes)
    }

    /// Adopts the store's answer, unless a workspace was changed since the query: the next answer has both.
    pub fn replace(&self, asked: QueryStart, open: Vec<(WorkspaceName, Port)>) {
        let mut known = self.known.write();
        if known.changes == asked.0 {
            known.open = open.into_iter().collect();
        }
    }

    /// Applies a change of one workspace, effective from now on.
    pub fn change(&self, workspace: &WorkspaceName, ports: impl Iterator<Item = Port>) {
        let mut known = self.known.write();
        known.changes += 1;
        known.open.retain(|(name, _)| name != workspace);
        known.open.extend(ports.map(|port| (workspace.clone(), port)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_counts_at_once_and_no_older_answer_takes_it_back() {
        let (ports, name) = (PublicPorts::default(), "app".parse::<WorkspaceName>().unwrap());
        let port = |number| Port::new(number).unwrap();
        let asked = ports.ask();
        ports.change(&name, [port(80)].into_iter());
        ports.replace(asked, Vec::new());
        assert!(ports.contains(&name, port(80)), "the store was asked before the change");
        ports.replace(ports.ask(), vec![(name.clone(), port(80)), (name.clone(), port(81))]);
        assert!(ports.contains(&name, port(81)));
        ports.change(&name, std::iter::empty());
        assert!(!ports.contains(&name, port(80)) && !ports.contains(&name, port(81)));
    }
}
