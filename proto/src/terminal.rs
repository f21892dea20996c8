//! The terminal that an agent serves by itself, beside the ports of its machine.

/// The port under which an agent serves terminals, as HTTP/1.1 (design, section 6.4). No channel to it leaves the agent's
/// process: a loopback socket would be open to every user of the machine.
pub const TERMINAL_PORT: u16 = 60_002;

/// The port under which workspaces that the gateway makes have their editor.
pub const EDITOR_PORT: u16 = 60_001;

/// Field of a request to [`TERMINAL_PORT`] that names whoever asks, as the gateway knows them.
pub const USER_FIELD: &str = "gateway-user";

/// Field of a request to [`TERMINAL_PORT`] that says what they may: [`ACCESS_OWNER`] or [`ACCESS_SHARED`].
pub const ACCESS_FIELD: &str = "gateway-access";

/// They own the workspace: they may type.
pub const ACCESS_OWNER: &str = "owner";

/// The port is shared with them: they may look.
pub const ACCESS_SHARED: &str = "shared";
