//! `cargo xtask`: makes what is installed. No container runtime, no registry and no packaging tool is involved, and the same source
//! gives the same bytes.
//!
//! - `image`: the command that writes images
//! - `debian`: the command that writes Debian packages, and what is in them
//! - `contents`: what is in each image, and how it is run
//! - `programs`: static programs, built or taken, and looked at
//! - `repository`: where the source is, of which commit and time
//! - `parts`: the parts list of a program
//! - `tree`: files as a tar archive that depends on nothing else
//! - `blob`, `layout`: digests, layers, manifests and index of an image

mod blob;
mod contents;
mod debian;
mod image;
mod layout;
mod parts;
mod programs;
mod repository;
mod tree;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Makes what is installed: container images and Debian packages.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Image(image::Arguments),
    Deb(debian::Arguments),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Image(arguments) => image::run(&arguments),
        Command::Deb(arguments) => debian::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            repository::say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
