//! Workspaces in jobs of CI systems (design, section 6.4).

pub mod downloads;
