//! `gateway completions` and `gateway man`: files for shells and for `man`.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, Console, Exit};

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  gateway completions bash > ~/.local/share/bash-completion/completions/gateway
  gateway completions zsh > ~/.zfunc/_gateway
  gateway completions fish > ~/.config/fish/completions/gateway.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  gateway man ~/.local/share/man/man1";

/// Flags of `gateway completions`.
#[derive(Clone, Debug, Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: Shell,
}

/// Flags of `gateway man`.
#[derive(Clone, Debug, Args)]
#[command(after_help = MAN_EXAMPLES)]
pub struct ManArgs {
    /// The folder, which has to be there.
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

/// Runs `gateway completions`.
pub fn run_completions(args: &CompletionsArgs, console: &mut Console) -> Exit {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "gateway", &mut text);
    console.finish_with(String::from_utf8_lossy(&text).trim_end())
}

/// Runs `gateway man`.
pub fn run_man(args: &ManArgs, console: &mut Console) -> Exit {
    match clap_mangen::generate_to(Cli::command(), &args.folder) {
        Ok(()) => Exit::Success,
        Err(error) => {
            console.complain(format_args!("{} cannot be written: {error}", args.folder.display()));
            Exit::Failed
        }
    }
}
