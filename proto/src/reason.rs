//! Reasons of the end of a channel or session: stable numbers on the wire, one text per row for people.

use std::fmt;

use crate::wire;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $wire:ident, $text:literal;)*) => {
        /// Reason of the end of a channel or session. Unknown numbers of a newer peer become [`Reason::Unknown`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// Every reason, for tables and tests.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the stable number that stands on the wire.
            #[must_use]
            pub fn to_wire(self) -> i32 {
                match self { $(Self::$name => wire::Reason::$wire as i32,)* }
            }

            /// Reads the number on the wire; one that is not known here is [`Reason::Unknown`].
            #[must_use]
            pub fn from_wire(number: i32) -> Self {
                match wire::Reason::try_from(number) {
                    $(Ok(wire::Reason::$wire) => Self::$name,)*
                    Err(_) => Self::Unknown,
                }
            }

            /// Returns a fixed text for people.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

reasons! {
    /// A reason that this version does not know.
    Unknown = Unknown, "ended for a reason that this version does not know";
    /// The user or the app's client went away.
    Cancelled = Cancelled, "the other end went away";
    /// Nothing listens on the port.
    PortClosed = PortClosed, "nothing listens on the port";
    /// The agent does not expose the port.
    PortNotAllowed = PortNotAllowed, "the agent does not expose the port";
    /// The connection behind the other side broke: the app's, or that of a user of raw TCP.
    AppReset = AppReset, "the app's connection broke";
    /// A named wait ran out.
    TimedOut = TimedOut, "a wait ran out";
    /// A limit was reached.
    Overloaded = Overloaded, "a limit was reached";
    /// The other side broke a rule of the protocol.
    Protocol = Protocol, "a rule of the protocol was broken";
    /// A newer session of the same agent took over.
    Displaced = Displaced, "a newer session of the same agent took over";
    /// The process is going away.
    Shutdown = Shutdown, "the other side is shutting down";
    /// Access ended.
    Revoked = Revoked, "access was revoked";
    /// The link or the session is gone.
    SessionLost = SessionLost, "the session is gone";
    /// The workspace is not to run.
    WorkspaceStopped = WorkspaceStopped, "the workspace is not to run";
    /// The app does not speak TLS as it was to.
    AppTls = AppTls, "the app on the port does not speak TLS";
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_survives_the_wire_and_unknown_numbers_are_named_so() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_wire(reason.to_wire()), *reason);
        }
        assert_eq!(Reason::from_wire(9_999), Reason::Unknown);
        assert_eq!(Reason::from_wire(-1), Reason::Unknown);
    }
}
