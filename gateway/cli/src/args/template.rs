//! Flags about templates of workspaces.

use std::str::FromStr;

use clap::Args;

use crate::Output;
use crate::credentials::Remote;
use gateway_types::ClusterName;

const TEMPLATES_EXAMPLES: &str = which!(
    "\
Examples:
  gateway workspace templates                                 of the only cluster
  gateway workspace templates --agent cluster-1
  gateway workspace templates --agent cluster-1 -o json       with descriptions, options and patterns",
    "\n\nA template is a file of the operator's, in agents_dir. gateway workspace create --template makes a workspace from one."
);

/// Flags of `gateway workspace templates`.
#[derive(Clone, Debug, Args)]
#[command(after_help = TEMPLATES_EXAMPLES)]
pub struct TemplatesArgs {
    /// The cluster, by the name of its agent [default: the only one].
    #[arg(long, value_name = "NAME")]
    pub agent: Option<ClusterName>,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}

/// A parameter of a template with its value, as `KEY=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenParameter {
    /// Name of the parameter.
    pub name: String,
    /// What follows the first `=`, as it is.
    pub value: String,
}

impl FromStr for GivenParameter {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once('=').ok_or("has to be KEY=VALUE")?;
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }
}
