//! Ids as types, so that two numbers never swap silently. Each prints a short form for logs.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u64);

        impl $name {
            /// Wraps the number that stands on the wire.
            #[must_use]
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// Returns the number that stands on the wire.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// Returns the id after this one, or `None` when all are used up.
            #[must_use]
            pub fn next(self) -> Option<Self> {
                self.0.checked_add(1).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, concat!($prefix, "-{}"), self.0)
            }
        }
    };
}

id!(
    /// A byte stream inside a session. Ids grow and are never used again, so an old frame cannot meet a new channel.
    ChannelId,
    "ch"
);
id!(
    /// One agent's logical connection.
    SessionId,
    "s"
);

/// Bits of a session's id below the number of the replica's process start that gave it out.
pub const REPLICA_SHIFT: u32 = 40;

impl SessionId {
    /// Returns the number of the process start that gave the id out, where several replicas share one zone.
    #[must_use]
    pub const fn replica(self) -> u64 {
        self.0 >> REPLICA_SHIFT
    }
}
id!(
    /// Counts the sessions of one agent identity. Ordered: a higher one displaces a lower one (fencing).
    Generation,
    "g"
);
