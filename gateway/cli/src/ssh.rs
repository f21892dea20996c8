//! `gateway ssh` and `gateway ssh-config`: the system's own ssh, with the gateway as its way. SSH stays end to end:
//! nothing of it is read here.

mod command;
mod include;
mod probe;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use self::command::{SshClient, SshTarget, Unquotable};
use self::probe::{Probe, has_server};
use super::credentials::{Remote, TOKEN_FILE_VARIABLE, signed_in};
use super::forward::parse_workspace;
use super::{Console, Exit};
use gateway_types::{Port, SSH_USER, WorkspaceName};

const SSH_EXAMPLES: &str = "\
Examples:
  gateway ssh my-app                             a shell in my-app
  gateway ssh my-app -l dev --port 2222          as another user, on the port where an sshd of its own listens
  gateway ssh my-app -- make test                one command; its exit status is this one's
  gateway ssh my-app -- -L 3000:127.0.0.1:3000   whatever else ssh can do

Workspaces in Kubernetes have an SSH server that needs no key and no password (port 60022, user workspace), and so has a machine \
whose agent runs with --ssh-server. Elsewhere one has to listen in the workspace. Keys of servers are remembered by the workspace's \
name, in ~/.ssh/gateway_known_hosts.";

const CONFIG_EXAMPLES: &str = "\
Examples:
  gateway ssh-config --write                     once; from then on:
  ssh my-app.gateway
  scp big.tar my-app.gateway:
  rsync -a src/ my-app.gateway:src/
  code --remote ssh-remote+my-app.gateway

Without --write the lines are printed. With it they go into ~/.ssh/gateway.config, and one line at the top of ~/.ssh/config \
includes them; everything else there stays as it is.";

/// The file with the lines for ssh, beside ssh's own configuration.
const FILE: &str = "gateway.config";

/// Flags of `gateway ssh`.
#[derive(Clone, Debug, Args)]
#[command(after_help = SSH_EXAMPLES)]
pub struct SshArgs {
    /// The workspace.
    #[arg(value_name = "NAME", value_parser = parse_workspace)]
    pub workspace: WorkspaceName,
    /// User to log in as [default: workspace on port 60022, else what ssh's own configuration says].
    #[arg(long, short, value_name = "USER")]
    pub login: Option<OsString>,
    /// The port on which the workspace's SSH server listens [default: 60022 where the agent offers SSH, else 22].
    #[arg(long, short, value_name = "PORT")]
    pub port: Option<Port>,
    /// The gateway, and the identity there.
    #[command(flatten)]
    pub remote: Remote,
    /// Further arguments of ssh: options, or a command.
    #[arg(last = true, value_name = "SSH ARGUMENTS")]
    pub arguments: Vec<OsString>,
}

/// Flags of `gateway ssh-config`.
#[derive(Clone, Debug, Args)]
#[command(after_help = CONFIG_EXAMPLES)]
pub struct SshConfigArgs {
    /// Put the lines where ssh reads them.
    #[arg(long)]
    pub write: bool,
    /// Only tell, by the exit status, whether ssh is to use the server of a workspace's agent: what the lines themselves ask. With
    /// another port than 22 or 60022 it is not.
    #[arg(long, value_name = "NAME[:PORT]", conflicts_with = "write")]
    pub probe: Option<Probe>,
    /// The gateway, and the identity there.
    #[command(flatten)]
    pub remote: Remote,
}

/// Runs `gateway ssh`: becomes ssh, so that terminal, signals and exit status are ssh's own. Returns only if there is
/// no ssh to become.
pub async fn run_ssh(args: &SshArgs, env: &BTreeMap<String, String>, console: &mut Console) -> Exit {
    let usual = Port::new(22).filter(|_| args.port.is_none());
    let probe = Probe { workspace: args.workspace.clone(), port: args.port.or(usual) };
    let has_server = match signed_in(&args.remote, env) {
        Ok(signed_in) => has_server(&signed_in, &probe).await,
        // Told below.
        Err(_) => false,
    };
    let prepared = client(&args.remote, env).and_then(|(client, folder)| {
        make_folder(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let target = SshTarget::new(&args.workspace, args.port, has_server).ok_or("there is no port 22")?;
        let login = args.login.as_deref().or(target.has_server.then_some(OsStr::new(SSH_USER)));
        let arguments = client.arguments(&target, login, &folder);
        arguments.map_err(|error| error.to_string())
    });
    let arguments = match prepared {
        Ok(arguments) => arguments,
        Err(text) => {
            console.complain(text);
            return Exit::Failed;
        }
    };
    let error = Command::new("ssh").args(arguments).args(&args.arguments).exec();
    if error.kind() == io::ErrorKind::NotFound {
        console.complain("there is no ssh on this machine: install OpenSSH's client");
    } else {
        console.complain(format_args!("ssh cannot be run: {error}"));
    }
    Exit::Failed
}

/// Runs `gateway ssh-config`.
pub async fn run_ssh_config(args: &SshConfigArgs, env: &BTreeMap<String, String>, console: &mut Console) -> Exit {
    if let Some(probe) = &args.probe {
        return match signed_in(&args.remote, env) {
            Ok(signed_in) if has_server(&signed_in, probe).await => Exit::Success,
            Ok(_) | Err(_) => Exit::Failed,
        };
    }
    let made = client(&args.remote, env)
        .and_then(|(client, folder)| Ok((client.block(&folder).map_err(|error| error.to_string())?, folder)));
    let (block, folder) = match made {
        Ok(made) => made,
        Err(text) => {
            console.complain(text);
            return Exit::Failed;
        }
    };
    if !args.write {
        return console.finish_with(block.trim_end());
    }
    match write(&folder, &block) {
        Ok(()) => {
            console.hint(format_args!("try: ssh NAME.gateway (what was written: {})", folder.join(FILE).display()));
            Exit::Success
        }
        Err(text) => {
            console.complain(text);
            Exit::Failed
        }
    }
}

/// Finds the words with which ssh has to call this program, and the folder of ssh's files.
fn client(remote: &Remote, env: &BTreeMap<String, String>) -> Result<(SshClient, PathBuf), String> {
    let signed_in = signed_in(remote, env).map_err(|error| error.to_string())?;
    let program =
        std::env::current_exe().map_err(|error| format!("this program does not know where it is: {error}"))?;
    let absolute = |path: PathBuf| std::path::absolute(&path).map_err(|error| format!("{}: {error}", path.display()));
    let token_file = remote.token_file.clone().or_else(|| env.get(TOKEN_FILE_VARIABLE).map(PathBuf::from));
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let home = home.ok_or("there is no home directory, which has ssh's configuration: set HOME")?;
    let client = SshClient {
        program,
        gateway: signed_in.gateway,
        token_file: token_file.map(absolute).transpose()?,
        ca_file: signed_in.ca_file.map(absolute).transpose()?,
    };
    Ok((client, home.join(".ssh")))
}

/// Writes the lines, and one into ssh's own configuration that includes them.
fn write(folder: &Path, block: &str) -> Result<(), String> {
    let failed = |path: &Path, error: &io::Error| format!("{}: {error}", path.display());
    make_folder(folder).map_err(|error| failed(folder, &error))?;
    let ours = folder.join(FILE);
    replace(&ours, block.as_bytes()).map_err(|error| failed(&ours, &error))?;
    let config = folder.join("config");
    let present = match fs::read(&config) {
        Ok(present) => present,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(failed(&config, &error)),
    };
    let path = ours.to_str().and_then(|path| command::quoted(path).ok()).ok_or_else(|| Unquotable.to_string())?;
    let names = [path.as_str(), "~/.ssh/gateway.config", FILE];
    match include::with_include(&present, &names) {
        None => Ok(()),
        Some(changed) => replace(&config, &changed).map_err(|error| failed(&config, &error)),
    }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Replaces a file as a whole, and keeps its mode; for a link, the file that it leads to.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (path, mode) = match fs::canonicalize(path) {
        Ok(real) => {
            let mode = fs::metadata(&real)?.permissions().mode() & 0o7777;
            (real, mode)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => (path.to_owned(), 0o600),
        Err(error) => return Err(error),
    };
    let mut new = OsString::from(&path);
    new.push(".new");
    let new = PathBuf::from(new);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.sync_all()?;
    fs::rename(&new, &path)
}

#[cfg(test)]
mod tests;
