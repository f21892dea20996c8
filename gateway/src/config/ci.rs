//! `ci`: workspaces in jobs of CI systems (design, section 6.4).

use std::path::PathBuf;

use super::reader::Reader;
use super::value::FILE_PATHS;

/// Workspaces in jobs of CI systems.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ci {
    /// Programs of the workspace agent that jobs download from here, one for each architecture (`ci.agent_files`).
    pub agent_files: Vec<PathBuf>,
}

/// Reads `ci`.
pub(super) fn read(reader: &mut Reader) -> Ci {
    Ci { agent_files: reader.take("ci.agent_files", Vec::new(), &FILE_PATHS) }
}
