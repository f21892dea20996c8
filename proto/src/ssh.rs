//! The SSH server that an agent offers by itself, beside the ports of its machine.

/// The port under which an agent offers SSH. Nothing listens on it: each channel is joined with a server process of its own, since a
/// loopback socket without a password would be open to every user of the machine.
pub const SSH_PORT: u16 = 60_022;

/// The user of that server. Who may reach the port was decided before, so that the server has one user and no password.
pub const SSH_USER: &str = "workspace";
