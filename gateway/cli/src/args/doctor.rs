//! Flags of `gateway doctor`.

use std::path::PathBuf;

use clap::Args;

use crate::{ListenArgs, Output};
use gateway_types::PublicUrl;

const EXAMPLES: &str = "\
Examples:
  gateway doctor                                with the gateway.toml of this folder
  gateway doctor --config /etc/gateway/gateway.toml --slow
  gateway doctor --agents-url https://agents.example.com --ca-file ca.pem
  gateway doctor --strict -o json               for a probe: warnings count too

Run it on the gateway's machine, with the configuration and as the user that the gateway runs with, while the gateway runs. \
It looks at names, certificates, clocks, the database, files, the identity provider and limits, and asks the gateway through \
whatever is in front of it, as browsers and agents do. It changes nothing: it makes small files where the gateway writes and \
removes them, and has the identity provider refuse a made-up code, to learn whether it accepts the client's secret. The proxy of \
HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY is used.

Each finding says what is wrong, why it matters and how to mend it; docs/guide/doctor.md has all of them. A check that was left \
out says why, and never counts as passed.

Exit codes: 0 nothing is wrong, or only warnings without --strict; 1 something is wrong; 2 wrong usage.";

/// Flags of `gateway doctor`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// URL at which agents reach the gateway [default: `ci.agents_url` of the configuration, else the public host with the port of
    /// `listen.agents`].
    #[arg(long, value_name = "URL")]
    pub agents_url: Option<PublicUrl>,
    /// PEM file of authorities to trust beside the system's, for the certificates of the gateway and its front.
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Also wait for 35 seconds, to see whether the front cuts what is silent.
    #[arg(long)]
    pub slow: bool,
    /// Fail for warnings too.
    #[arg(long)]
    pub strict: bool,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Addresses.
    #[command(flatten)]
    pub listen: ListenArgs,
}
