//! How far the start of a workspace's pod is, as its cluster agent sees it.

use crate::wire;

/// Steps of a start, of which so many are done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartProgress {
    /// All steps that this start has, in their order.
    pub steps: Vec<StartStep>,
    /// Number of those that are done, at most all.
    pub done: usize,
}

/// Step of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartStep {
    /// The pod has a node.
    Node,
    /// Agent and editor are copied into the pod.
    Tools,
    /// The projects are cloned.
    Projects,
    /// The images are on the node, and the containers run.
    Containers,
    /// The workspace's agent is connected.
    Agent,
}

impl StartStep {
    const ALL: [Self; 5] = [Self::Node, Self::Tools, Self::Projects, Self::Containers, Self::Agent];

    /// Returns its name in the API and in the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Tools => "tools",
            Self::Projects => "projects",
            Self::Containers => "containers",
            Self::Agent => "agent",
        }
    }

    /// Returns the step of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.as_str() == name)
    }

    const fn to_wire(self) -> wire::StartStep {
        match self {
            Self::Node => wire::StartStep::Node,
            Self::Tools => wire::StartStep::Tools,
            Self::Projects => wire::StartStep::Projects,
            Self::Containers => wire::StartStep::Containers,
            Self::Agent => wire::StartStep::Agent,
        }
    }
}

impl StartProgress {
    pub(super) fn to_wire(&self) -> wire::Start {
        let steps = self.steps.iter().take(StartStep::ALL.len()).map(|step| step.to_wire() as i32).collect();
        wire::Start { steps, done: u32::try_from(self.done).unwrap_or(u32::MAX) }
    }

    /// Reads what any agent sends: a step of a later version is left out, and so is what goes beyond the steps that there are.
    pub(super) fn from_wire(start: &wire::Start) -> Self {
        let known = |number: &i32| StartStep::ALL.into_iter().find(|step| step.to_wire() as i32 == *number);
        let done = usize::try_from(start.done).unwrap_or(usize::MAX);
        let steps: Vec<_> = start.steps.iter().take(StartStep::ALL.len()).map(known).collect();
        let done = steps.iter().take(done).flatten().count();
        Self { steps: steps.into_iter().flatten().collect(), done }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_are_not_known_are_left_out_and_counted_out() {
        let read = |steps: &[i32], done| StartProgress::from_wire(&wire::Start { steps: steps.to_vec(), done });
        assert_eq!(
            read(&[1, 77, 4], 2),
            StartProgress { steps: vec![StartStep::Node, StartStep::Containers], done: 1 }
        );
        assert_eq!(read(&[1], u32::MAX).done, 1, "not more than there are");
        assert_eq!(read(&[1; 1_000], 0).steps.len(), 5);
        assert_eq!(read(&[0, -1, i32::MAX], 3), StartProgress::default());
    }

    #[test]
    fn names_lead_back_to_their_steps() {
        for step in StartStep::ALL {
            assert_eq!(StartStep::named(step.as_str()), Some(step));
        }
        assert_eq!(StartStep::named("Node"), None);
    }
}
