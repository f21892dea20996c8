//! The request inspector that an agent serves by itself, beside the ports of its machine.

/// The port under which an agent serves its request inspector, as HTTP/1.1. As with [`TERMINAL_PORT`](crate::terminal::TERMINAL_PORT), no
/// channel to it leaves the agent's process, and the fields of [`terminal`](crate::terminal) name the user there. Its one user is the
/// workspace's owner.
pub const INSPECTOR_PORT: u16 = 60_003;
