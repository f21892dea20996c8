//! The terminal that an agent serves by itself, beside the ports of its machine.

/// The port under which an agent serves terminals, as HTTP/1.1. No channel to it leaves the agent's process: a loopback
/// socket would be open to every user of the machine.
pub const TERMINAL_PORT: u16 = 60_002;

/// The port under which workspaces that the gateway makes have their editor.
pub const EDITOR_PORT: u16 = 60_001;

/// Field of a request to [`TERMINAL_PORT`] that names the user who asks, as the gateway knows them.
pub const USER_FIELD: &str = "gateway-user";

/// Field of a request to [`TERMINAL_PORT`] with the access of the user: [`ACCESS_OWNER`] or [`ACCESS_SHARED`].
pub const ACCESS_FIELD: &str = "gateway-access";

/// The user owns the workspace, and may type.
pub const ACCESS_OWNER: &str = "owner";

/// The port is shared with the user, who may look.
pub const ACCESS_SHARED: &str = "shared";
