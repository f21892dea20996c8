//! The tunnel's wire format and its rules.
//!
//! Pure: no sockets, no clock, no randomness, no runtime; time comes in as an argument. The gateway, the agent, the
//! simulation and the fuzz targets all drive the same [`mux::Mux`].
//!
//! * [`frame`], [`hello`], [`reason`], [`id`]: the messages on the wire, as domain types
//! * [`version`], [`handshake`]: the agreement before the first channel
//! * [`mux`]: channels, credit, scheduling, keepalive: one session's machine
//! * [`state`], [`reconcile`]: states of workspaces, and the conversation about them with cluster agents
//! * [`environments`]: calls to cluster agents for environments of CI jobs
//! * [`orphans`]: calls to cluster agents about workspaces that are in their clusters
//! * [`git`]: the call for credentials of git servers, beside the tunnel
//! * [`inspector`]: the port under which agents serve their request inspector
//! * [`listening`]: the ports of a workspace on which something listens
//! * [`target`]: the far end of a channel
//! * [`terminal`]: the port under which agents serve terminals
//! * [`limit`]: every bound, with its reason

pub mod environments;
pub mod frame;
pub mod git;
pub mod handshake;
pub mod hello;
pub mod id;
pub mod inspector;
pub mod limit;
pub mod listening;
pub mod mux;
pub mod orphans;
pub mod reason;
pub mod reconcile;
pub mod ssh;
pub mod state;
pub mod target;
pub mod terminal;
pub mod version;
mod wire;

/// The schema as an encoded `FileDescriptorSet`, for gRPC server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("../schema/tunnel.v1.binpb");
