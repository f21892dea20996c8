//! Flags of `gateway backup`, `gateway restore` and `gateway key`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::Output;

const BACKUP_EXAMPLES: &str = "\
Examples:
  gateway backup --to /backups/gateway-monday.backup          database and keys, while the gateway runs
  gateway backup --to /backups/monday.backup --without-key    the keys are kept elsewhere
  gateway backup --check /backups/gateway-monday.backup       whole, and what is in it

With PostgreSQL the file has the keys alone: pg_dump backs up the database. Who has a file with keys can read all secrets in it.";

const RESTORE_EXAMPLES: &str = "\
Examples:
  gateway restore --from /backups/gateway-monday.backup --config gateway.toml
  gateway restore --from /backups/gateway-monday.backup --replace     puts what is there aside

No gateway may run with the database. All browsers have to sign in again; what was revoked or made since the backup has to be revoked \
or made again. With PostgreSQL, run pg_restore first: this brings the keys back and settles the database.";

const KEY_EXAMPLES: &str = "\
Examples:
  gateway key list                              the keys of store.key_file, and what each of them seals
  gateway key add                               1: a new key that opens and seals nothing yet
  gateway key promote                           2: the new key seals
  gateway key reseal                            3: what is stored is sealed with it
  gateway key drop                              4: the old keys go

After 1, 2 and 4, give all replicas the same file and send each of them SIGHUP before you go on. No request fails meanwhile.";

const LIST_KEYS_EXAMPLES: &str = "\
Examples:
  gateway key list
  gateway key list -o json";

const ADD_EXAMPLES: &str = "\
Examples:
  gateway key add && pkill -HUP -x gateway";

const PROMOTE_EXAMPLES: &str = "\
Examples:
  gateway key promote && pkill -HUP -x gateway";

const RESEAL_EXAMPLES: &str = "\
Examples:
  gateway key reseal
  gateway key reseal -o json

It may be stopped and run again at any time.";

const DROP_EXAMPLES: &str = "\
Examples:
  gateway key drop && pkill -HUP -x gateway

It is refused while anything is sealed with one of the keys that would go.";

/// Flags of `gateway backup`.
#[derive(Clone, Debug, Args)]
#[command(after_help = BACKUP_EXAMPLES)]
pub struct BackupArgs {
    /// File to write; it must not be there yet.
    #[arg(long, value_name = "FILE", required_unless_present = "check")]
    pub to: Option<PathBuf>,
    /// Leave the keys of `store.key_file` out.
    #[arg(long)]
    pub without_key: bool,
    /// Read this backup whole, and make none.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["to", "without_key"])]
    pub check: Option<PathBuf>,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Flags of `gateway restore`.
#[derive(Clone, Debug, Args)]
#[command(after_help = RESTORE_EXAMPLES)]
pub struct RestoreArgs {
    /// Backup to bring back.
    #[arg(long, value_name = "FILE")]
    pub from: PathBuf,
    /// Put a database and keys that are there aside, under other names.
    #[arg(long)]
    pub replace: bool,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Flags of `gateway key`.
#[derive(Clone, Debug, Args)]
#[command(after_help = KEY_EXAMPLES)]
pub struct KeyArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: KeyCommand,
}

/// Subcommands of `gateway key`.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum KeyCommand {
    /// List the keys of `store.key_file`, and how many stored secrets each of them seals.
    #[command(after_help = LIST_KEYS_EXAMPLES)]
    List(KeyOutput),
    /// Add a new key to the file: it opens, and seals nothing yet.
    #[command(after_help = ADD_EXAMPLES)]
    Add(KeyOutput),
    /// Put the last key of the file first: it seals from then on.
    #[command(after_help = PROMOTE_EXAMPLES)]
    Promote(KeyOutput),
    /// Seal everything that is stored with the first key.
    #[command(after_help = RESEAL_EXAMPLES)]
    Reseal(KeyOutput),
    /// Remove all keys but the first from the file.
    #[command(after_help = DROP_EXAMPLES)]
    Drop(KeyOutput),
}

/// Flags of the subcommands of `gateway key`.
#[derive(Clone, Copy, Debug, Args)]
pub struct KeyOutput {
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}
