//! Arguments for ssh, and the lines of its configuration. Pure.
//!
//! Three readers unquote in turn: ssh expands `%`, the user's shell runs the proxy command, and this program gets its
//! arguments. A text that cannot pass all of them unharmed is refused.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use thiserror::Error;

use gateway_types::PublicUrl;
use gateway_types::{Port, SSH_PORT, SSH_USER, WorkspaceName};

/// File with the keys of workspaces' SSH servers, beside ssh's own file.
const KNOWN_HOSTS: &str = "gateway_known_hosts";

/// Program and flags that ssh calls.
#[derive(Clone, Debug)]
pub(super) struct SshClient {
    pub(super) program: PathBuf,
    pub(super) gateway: PublicUrl,
    pub(super) token_file: Option<PathBuf>,
    pub(super) ca_file: Option<PathBuf>,
}

/// A path has a character that ssh's configuration cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a path has a line end, a double quote or a backslash, or is not UTF-8, which ssh's configuration cannot hold")]
pub(super) struct Unquotable;

/// Port of a workspace for ssh.
#[derive(Clone, Debug)]
pub(super) struct SshTarget<'a> {
    pub(super) workspace: &'a WorkspaceName,
    pub(super) port: Port,
    /// The server is the agent's: it is known apart from another one of the workspace, as ssh tells ports of a host apart.
    pub(super) has_server: bool,
}

impl<'a> SshTarget<'a> {
    /// Chooses the port: the one that was asked for, the one of the agent's server if there is one, or that of every SSH server.
    pub(super) fn new(workspace: &'a WorkspaceName, asked: Option<Port>, has_server: bool) -> Option<Self> {
        let port = asked.or(Port::new(if has_server { SSH_PORT } else { 22 }))?;
        Some(Self { workspace, port, has_server: port.is_ssh() })
    }

    /// Returns the name by which the server's key is remembered.
    fn alias(&self) -> String {
        let Self { workspace, has_server, .. } = self;
        if *has_server { format!("[{workspace}.gateway]:{SSH_PORT}") } else { format!("{workspace}.gateway") }
    }
}

impl SshClient {
    /// Writes the proxy command for a host and port, which may be ssh's own `%h` and `%p`.
    fn proxy_command(&self, host: &str, port: &str) -> Result<String, Unquotable> {
        self.words(&["forward", "--stdio"], &[host, port])
    }

    /// Writes a command of this program for the user's shell, with words before and after those that say who asks.
    fn words(&self, before: &[&str], after: &[&str]) -> Result<String, Unquotable> {
        let mut words = vec![word(&self.program)?];
        words.extend(before.iter().map(|word| (*word).to_owned()));
        words.push("--gateway".to_owned());
        words.push(shell(&self.gateway.to_string())?);
        for (flag, path) in [("--token-file", &self.token_file), ("--ca-file", &self.ca_file)] {
            if let Some(path) = path {
                words.push(flag.to_owned());
                words.push(word(path)?);
            }
        }
        words.extend(after.iter().map(|word| (*word).to_owned()));
        Ok(words.join(" "))
    }

    /// Makes ssh's arguments for one workspace.
    ///
    /// # Errors
    /// [`Unquotable`].
    pub(super) fn arguments(
        &self,
        target: &SshTarget<'_>,
        login: Option<&OsStr>,
        folder: &Path,
    ) -> Result<Vec<OsString>, Unquotable> {
        let known_hosts = known_hosts(folder)?;
        let SshTarget { workspace, port, .. } = target;
        let options = [
            format!("ProxyCommand={}", self.proxy_command(workspace.as_str(), &port.to_string())?),
            format!("HostKeyAlias={}", target.alias()),
            format!("UserKnownHostsFile={known_hosts}"),
            "StrictHostKeyChecking=accept-new".to_owned(),
        ];
        let mut arguments = Vec::new();
        for option in options {
            arguments.extend(["-o".into(), option.into()]);
        }
        if let Some(login) = login {
            arguments.extend(["-l".into(), login.into()]);
        }
        arguments.push(format!("{workspace}.gateway").into());
        Ok(arguments)
    }

    /// Writes the lines for ssh's configuration. Which port a workspace has, and so which user, is asked anew for each connection:
    /// workspaces come and go.
    ///
    /// # Errors
    /// [`Unquotable`].
    pub(super) fn block(&self, folder: &Path) -> Result<String, Unquotable> {
        let proxy_command = self.proxy_command("%h", "%p")?;
        let probe = self.words(&["ssh-config", "--probe", "%h:%p"], &[])?;
        let known_hosts = known_hosts(folder)?;
        Ok(format!(
            "# Workspaces behind {}, by the names that they have there. Written by `gateway ssh-config`.\n\
             Match host *.gateway exec \"{probe}\"\n\
             \x20   Port {SSH_PORT}\n\
             \x20   User {SSH_USER}\n\
             Host *.gateway\n\
             \x20   ProxyCommand {proxy_command}\n\
             \x20   UserKnownHostsFile {known_hosts}\n\
             \x20   StrictHostKeyChecking accept-new\n",
            self.gateway
        ))
    }
}

fn known_hosts(folder: &Path) -> Result<String, Unquotable> {
    quoted(&folder.join(KNOWN_HOSTS).to_str().ok_or(Unquotable)?.replace('%', "%%"))
}

/// Writes a word of ssh's configuration.
///
/// # Errors
/// [`Unquotable`].
pub(super) fn quoted(text: &str) -> Result<String, Unquotable> {
    let is_plain = !text.chars().any(|character| character.is_control() || matches!(character, '"' | '\\'));
    if is_plain { Ok(format!("\"{text}\"")) } else { Err(Unquotable) }
}

fn word(path: &Path) -> Result<String, Unquotable> {
    shell(path.to_str().ok_or(Unquotable)?)
}

/// Writes a word for the shell that runs the proxy command, and for ssh before it.
fn shell(text: &str) -> Result<String, Unquotable> {
    if text.chars().any(|character| character.is_control() || matches!(character, '"' | '\\')) {
        return Err(Unquotable);
    }
    let expanded = text.replace('%', "%%");
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-:=%@+,".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        return Ok(expanded);
    }
    // Within single quotes only they themselves mean something (POSIX, 2.2.2).
    Ok(format!("'{}'", expanded.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn client(program: &str) -> SshClient {
        SshClient {
            program: program.into(),
            gateway: "https://gateway.example.com".parse().expect("a URL"),
            token_file: None,
            ca_file: None,
        }
    }

    #[test]
    fn ssh_is_told_the_way_and_where_keys_are() {
        let workspace = "my-app".parse().expect("a name");
        let port = Port::new(2222).expect("a port");
        let home = Path::new("/h/a b/.ssh");
        let client = SshClient { token_file: Some("/t".into()), ..client("/opt/my tools/gateway") };
        let target = SshTarget::new(&workspace, Some(port), true).expect("a target");
        let arguments = client.arguments(&target, Some(OsStr::new("dev")), home).expect("quotable");
        let arguments: Vec<_> = arguments.iter().map(|argument| argument.to_str().expect("text")).collect();
        assert_eq!(
            arguments,
            [
                "-o",
                "ProxyCommand='/opt/my tools/gateway' forward --stdio --gateway https://gateway.example.com \
                 --token-file /t my-app 2222",
                "-o",
                "HostKeyAlias=my-app.gateway",
                "-o",
                "UserKnownHostsFile=\"/h/a b/.ssh/gateway_known_hosts\"",
                "-o",
                "StrictHostKeyChecking=accept-new",
                "-l",
                "dev",
                "my-app.gateway",
            ]
        );
    }

    #[test]
    fn server_of_the_agent_is_taken_where_there_is_one_and_no_port_is_named() {
        let workspace = "my-app".parse().expect("a name");
        let told = |asked: Option<u16>, has_server| {
            let target = SshTarget::new(&workspace, asked.and_then(Port::new), has_server).expect("a target");
            (target.port.get(), target.alias())
        };
        let own = || (60_022, "[my-app.gateway]:60022".to_owned());
        let other = |port| (port, "my-app.gateway".to_owned());
        assert_eq!(told(None, true), own());
        assert_eq!(told(None, false), other(22));
        assert_eq!(told(Some(2222), true), other(2222));
        assert_eq!(told(Some(60_022), false), own());
    }

    #[test]
    fn configuration_holds_for_every_workspace() {
        let block = client("/usr/bin/gateway").block(Path::new("/h/100%/.ssh")).expect("quotable");
        assert_eq!(
            block,
            "# Workspaces behind https://gateway.example.com, by the names that they have there. Written by `gateway \
             ssh-config`.\n\
             Match host *.gateway exec \"/usr/bin/gateway ssh-config --probe %h:%p --gateway https://gateway.example.com\"\n    \
             Port 60022\n    \
             User workspace\n\
             Host *.gateway\n    \
             ProxyCommand /usr/bin/gateway forward --stdio --gateway https://gateway.example.com %h %p\n    \
             UserKnownHostsFile \"/h/100%%/.ssh/gateway_known_hosts\"\n    \
             StrictHostKeyChecking accept-new\n"
        );
    }

    #[test]
    fn paths_that_no_configuration_can_hold_are_refused() {
        for program in ["/a\nProxyCommand evil", "/a\"b", "/a\\b", "/a\rb"] {
            assert_eq!(client(program).block(Path::new("/h")).err(), Some(Unquotable), "{program:?}");
        }
        assert_eq!(client("/g").block(Path::new("/h\n")).err(), Some(Unquotable));
    }

    /// Reads what [`shell`] wrote as ssh and a shell do: `%%`, then quotes.
    fn read_back(written: &str) -> String {
        let expanded = written.replace("%%", "%");
        let mut text = String::new();
        let mut characters = expanded.chars();
        let mut is_quoted = false;
        while let Some(character) = characters.next() {
            match character {
                '\'' => is_quoted = !is_quoted,
                '\\' if !is_quoted => text.extend(characters.next()),
                other => text.push(other),
            }
        }
        assert!(!is_quoted);
        text
    }

    proptest! {
        #[test]
        fn quoted_words_come_out_as_they_went_in(text in "\\PC{0,20}") {
            if let Ok(written) = shell(&text) {
                prop_assert_eq!(read_back(&written), text);
            } else {
                prop_assert!(text.contains(['"', '\\']));
            }
        }

        #[test]
        fn no_word_ends_a_line_or_leaves_its_quotes(text in ".{0,20}") {
            if let Ok(written) = shell(&text) {
                prop_assert!(!written.contains(['\n', '\r', '\0']));
            }
            if let Ok(written) = quoted(&text) {
                prop_assert_eq!(written.matches('"').count(), 2);
            }
        }
    }
}
