//! The states of a workspace that a cluster agent runs for its owner: the desired and the actual one.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::wire;

/// The text names no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a state: one of {expected}")]
pub struct BadState {
    expected: &'static str,
}

macro_rules! states {
    ($(#[$doc:meta])* $type:ident, $expected:literal; $($(#[$state_doc:meta])* $name:ident;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $type {
            $($(#[$state_doc])* $name,)*
        }

        impl $type {
            /// Every state, for tables and tests.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the state as it is written everywhere.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            pub(crate) fn to_wire(self) -> i32 {
                match self { $(Self::$name => wire::$type::$name as i32,)* }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.pad(self.as_str())
            }
        }

        impl FromStr for $type {
            type Err = BadState;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|state| state.as_str() == text).ok_or(BadState { expected: $expected })
            }
        }
    };
}

states! {
    /// Desired state of a workspace.
    DesiredState, "Running, Stopped, RestartRequested, Terminated";
    /// Usable.
    Running;
    /// Scaled to nothing; its storage is kept.
    Stopped;
    /// To be stopped, and to run again as soon as it has.
    RestartRequested;
    /// Gone with its storage. Final.
    Terminated;
}

states! {
    /// Actual state of a workspace.
    ActualState, "CreationRequested, Starting, Running, Stopping, Stopped, Failed, Error, Terminating, Terminated, Unknown";
    /// Asked for; nothing was done yet.
    CreationRequested;
    /// Becoming usable.
    Starting;
    /// Usable.
    Running;
    /// Scaling down.
    Stopping;
    /// Scaled to nothing; its storage is kept.
    Stopped;
    /// Everything was applied, but the workload is not healthy.
    Failed;
    /// Something could not be applied.
    Error;
    /// Being deleted.
    Terminating;
    /// Gone with its storage. Final.
    Terminated;
    /// Cannot be told.
    Unknown;
}

impl DesiredState {
    /// A number that is not known here is no state: acting on a guess could delete a user's storage.
    pub(crate) fn from_wire(number: i32) -> Option<Self> {
        match wire::DesiredState::try_from(number).ok()? {
            wire::DesiredState::Unknown => None,
            wire::DesiredState::Running => Some(Self::Running),
            wire::DesiredState::Stopped => Some(Self::Stopped),
            wire::DesiredState::Terminated => Some(Self::Terminated),
            wire::DesiredState::RestartRequested => Some(Self::RestartRequested),
        }
    }

    /// Returns the number of pods of the workspace that are to run.
    #[must_use]
    pub fn replicas(self) -> u32 {
        match self {
            Self::Running => 1,
            Self::Stopped | Self::RestartRequested | Self::Terminated => 0,
        }
    }
}

impl ActualState {
    pub(crate) fn from_wire(number: i32) -> Self {
        match wire::ActualState::try_from(number) {
            Ok(wire::ActualState::CreationRequested) => Self::CreationRequested,
            Ok(wire::ActualState::Starting) => Self::Starting,
            Ok(wire::ActualState::Running) => Self::Running,
            Ok(wire::ActualState::Stopping) => Self::Stopping,
            Ok(wire::ActualState::Stopped) => Self::Stopped,
            Ok(wire::ActualState::Failed) => Self::Failed,
            Ok(wire::ActualState::Error) => Self::Error,
            Ok(wire::ActualState::Terminating) => Self::Terminating,
            Ok(wire::ActualState::Terminated) => Self::Terminated,
            Ok(wire::ActualState::Unknown) | Err(_) => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_survive_text_and_wire() {
        for state in DesiredState::ALL.iter().copied() {
            assert_eq!(state.to_string().parse(), Ok(state));
            assert_eq!(DesiredState::from_wire(state.to_wire()), Some(state));
        }
        for state in ActualState::ALL.iter().copied() {
            assert_eq!(state.to_string().parse(), Ok(state));
            assert_eq!(ActualState::from_wire(state.to_wire()), state);
        }
    }

    #[test]
    fn unknown_numbers_never_become_an_intent() {
        assert_eq!(DesiredState::from_wire(0), None);
        assert_eq!(DesiredState::from_wire(99), None);
        assert_eq!(ActualState::from_wire(99), ActualState::Unknown);
        assert_eq!(
            "running".parse::<DesiredState>().map_err(|error| error.to_string()).err().as_deref(),
            Some("not a state: one of Running, Stopped, RestartRequested, Terminated")
        );
    }

    #[test]
    fn only_a_running_workspace_has_pods() {
        let running: Vec<_> = DesiredState::ALL.iter().filter(|state| state.replicas() > 0).collect();
        assert_eq!(running, [&DesiredState::Running]);
    }
}
