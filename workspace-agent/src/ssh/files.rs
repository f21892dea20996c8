//! What a server reads: its configuration (sshd_config(5)) and the list of users (passwd(5)). Pure.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use thiserror::Error;
use tunnel_proto::ssh::SSH_USER;

/// Sessions of one connection at a time: editors open many, and sshd's own ten are too few for them.
const SESSIONS_MAX: u32 = 256;

/// Time in which a client has to sign in, in seconds. There is nothing to type.
const SIGN_IN_SECONDS: u32 = 30;

/// Variables that the server makes for each session, or that say something about another one.
const OF_A_SESSION: [&str; 9] = ["LOGNAME", "MAIL", "OLDPWD", "PWD", "SHLVL", "TERM", "_", "DISPLAY", "SSH_AUTH_SOCK"];

/// Search path of programs where the environment has none.
const USUAL_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What the server is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct SshFacts<'a> {
    /// Folder of the server, its shell and what the other end may run.
    pub(super) tools: &'a Path,
    /// The server's key.
    pub(super) host_key: &'a Path,
    /// The user's home.
    pub(super) home: &'a Path,
    /// The shell of sessions.
    pub(super) shell: &'a Path,
    /// The user, and its group.
    pub(super) user: (u32, u32),
    /// Options that name the programs which the server starts by their paths, and these, if it does: since OpenSSH 9.8 it is two
    /// programs, and three since 10.0.
    pub(super) parts: &'a [(&'static str, PathBuf)],
}

/// A path has a character that one of the files cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the path of the home, the shell, the key or the tools has a line end or a colon")]
pub(super) struct Unwritable;

/// Writes the server's configuration. `environment` is that of sessions, without the agent's own variables.
///
/// The tunnel has decided who comes, so that `none` is the way to sign in: OpenSSH lets a user in without a password who has an
/// empty one. Keys of a home would add nothing, and lock its owner out.
///
/// # Errors
/// [`Unwritable`].
pub(super) fn configuration(
    facts: &SshFacts<'_>,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<u8>, Unwritable> {
    let mut text = Vec::new();
    let mut line = |words: &[&[u8]]| {
        text.extend_from_slice(&words.join(&b' '));
        text.push(b'\n');
    };
    line(&[b"HostKey", &quoted(path(facts.host_key)?)]);
    for (option, program) in facts.parts {
        line(&[option.as_bytes(), &quoted(path(program)?)]);
    }
    let fixed = format!(
        "AllowUsers {SSH_USER}\n\
         AuthenticationMethods none\n\
         PasswordAuthentication yes\n\
         PermitEmptyPasswords yes\n\
         PubkeyAuthentication no\n\
         KbdInteractiveAuthentication no\n\
         UsePAM no\n\
         LoginGraceTime {SIGN_IN_SECONDS}\n\
         MaxSessions {SESSIONS_MAX}\n\
         LogLevel ERROR\n\
         PidFile none\n\
         PrintMotd no\n\
         PrintLastLog no\n\
         UseDNS no\n\
         X11Forwarding no\n\
         AllowAgentForwarding yes\n\
         AllowTcpForwarding yes\n\
         AllowStreamLocalForwarding yes\n\
         StreamLocalBindUnlink yes\n\
         AcceptEnv LANG LC_* COLORTERM\n\
         Subsystem sftp internal-sftp"
    );
    line(&[fixed.as_bytes()]);
    // One line, since only the first one counts.
    let set: Vec<_> = variables(facts, environment)?.iter().map(|variable| quoted(variable)).collect();
    let words: Vec<&[u8]> = std::iter::once(&b"SetEnv"[..]).chain(set.iter().map(Vec::as_slice)).collect();
    line(&words);
    Ok(text)
}

/// Returns the variables of sessions, as `NAME=VALUE`. Those with a line end are left out: no configuration can hold them.
fn variables(
    facts: &SshFacts<'_>,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<Vec<u8>>, Unwritable> {
    let assigned = |name: &OsStr, value: &[u8]| [name.as_bytes(), b"=", value].concat();
    let mut search = None;
    let mut user = None;
    let mut set = Vec::new();
    for (name, value) in environment {
        match name.as_bytes() {
            b"PATH" => search = Some(value),
            b"USER" => user = Some(value),
            b"HOME" | b"SHELL" => {}
            name if name.starts_with(b"SSH_") || OF_A_SESSION.iter().any(|own| own.as_bytes() == name) => {}
            _ => set.push(assigned(&name, value.as_bytes())),
        }
    }
    let ours = facts.tools.join("bin");
    let search = search.as_deref().map_or(USUAL_PATH, OsStrExt::as_bytes);
    // The image's own programs come first.
    set.push(assigned(OsStr::new("PATH"), &[search, b":", path(&ours)?].concat()));
    set.push(assigned(OsStr::new("HOME"), path(facts.home)?));
    set.push(assigned(OsStr::new("SHELL"), path(facts.shell)?));
    for (name, value) in user.iter().flat_map(|user| [("USER", user), ("LOGNAME", user)]) {
        set.push(assigned(OsStr::new(name), value.as_bytes()));
    }
    set.retain(|variable| !variable.iter().any(|byte| matches!(byte, b'\n' | b'\r' | 0)));
    Ok(set)
}

/// Writes the list of users for the server: its own one first, with no password, then those of the machine, so that files of
/// theirs have names.
///
/// # Errors
/// [`Unwritable`].
pub(super) fn users(facts: &SshFacts<'_>, of_the_machine: &[u8]) -> Result<Vec<u8>, Unwritable> {
    let shell = facts.tools.join("shell");
    let (home, shell) = (path(facts.home)?, path(&shell)?);
    if [home, shell].iter().any(|path| path.contains(&b':')) {
        return Err(Unwritable);
    }
    let (user, group) = facts.user;
    let mut text = format!("{SSH_USER}::{user}:{group}:{SSH_USER}:").into_bytes();
    text.extend_from_slice(&[home, b":", shell, b"\n"].concat());
    let is_ours = |line: &[u8]| line.split(|byte| *byte == b':').next() == Some(SSH_USER.as_bytes());
    for line in of_the_machine.split(|byte| *byte == b'\n').filter(|line| is_entry(line, 7) && !is_ours(line)) {
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    Ok(text)
}

/// Writes the list of groups for the server: those of the machine, but for the one of terminals. With it, the server would give a
/// terminal to that group, which only root can.
pub(super) fn groups(of_the_machine: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let is_kept = |line: &&[u8]| is_entry(line, 4) && !line.starts_with(b"tty:");
    for line in of_the_machine.split(|byte| *byte == b'\n').filter(is_kept) {
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    if text.is_empty() {
        text.extend_from_slice(b"root:x:0:\n");
    }
    text
}

/// Returns whether a line of `/etc/passwd` or `/etc/group` is an entry, with this number of fields: not a comment, nor a reference
/// to another list (`+` and `-`).
fn is_entry(line: &[u8], fields: usize) -> bool {
    !line.starts_with(b"+")
        && !line.starts_with(b"-")
        && !line.starts_with(b"#")
        && line.split(|byte| *byte == b':').count() == fields
}

fn path(path: &Path) -> Result<&[u8], Unwritable> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.iter().any(|byte| matches!(byte, b'\n' | b'\r' | 0)) { Err(Unwritable) } else { Ok(bytes) }
}

/// Writes a word of the configuration (`argv_split` of OpenSSH's misc.c).
fn quoted(word: &[u8]) -> Vec<u8> {
    let mut text = vec![b'"'];
    for byte in word {
        if matches!(byte, b'"' | b'\\' | b'\'') {
            text.push(b'\\');
        }
        text.push(*byte);
    }
    text.push(b'"');
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn facts() -> SshFacts<'static> {
        SshFacts {
            tools: Path::new("/tools/ssh"),
            host_key: Path::new("/h/a b/key"),
            home: Path::new("/h"),
            shell: Path::new("/bin/bash"),
            user: (5001, 0),
            parts: &[],
        }
    }

    fn text(facts: &SshFacts<'_>, environment: &[(&str, &str)]) -> String {
        let environment = environment.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        String::from_utf8(configuration(facts, environment).expect("writable")).expect("text")
    }

    #[test]
    fn sessions_have_the_environment_and_nothing_of_another_session() {
        let text = text(
            &facts(),
            &[
                ("PATH", "/go/bin:/bin"),
                ("GREETING", "it's \"here\" \\ #1"),
                ("HOME", "/elsewhere"),
                ("SHELL", "/bin/sh"),
                ("USER", "me"),
                ("SSH_AUTH_SOCK", "/s"),
                ("SSH_CONNECTION", "1"),
                ("PWD", "/p"),
                ("SHLVL", "2"),
                ("LINES_OF", "a\nb"),
            ],
        );
        let set: Vec<_> = text.lines().filter(|line| line.starts_with("SetEnv ")).collect();
        assert_eq!(
            set,
            [
                r#"SetEnv "GREETING=it\'s \"here\" \\ #1" "PATH=/go/bin:/bin:/tools/ssh/bin" "HOME=/h" "SHELL=/bin/bash" "USER=me" "LOGNAME=me""#
            ]
        );
        assert!(text.starts_with("HostKey \"/h/a b/key\"\n") && !text.contains("Sshd"), "{text}");
    }

    #[test]
    fn programs_of_a_newer_server_are_named_and_a_path_is_never_missing() {
        let parts = [("SshdSessionPath", PathBuf::from("/tools/ssh/sshd-session"))];
        let text = text(&SshFacts { parts: &parts, ..facts() }, &[]);
        assert!(text.contains("\nSshdSessionPath \"/tools/ssh/sshd-session\"\n"), "{text}");
        assert!(
            text.contains("\"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/tools/ssh/bin\""),
            "{text}"
        );
    }

    #[test]
    fn first_user_has_no_password_and_the_others_keep_theirs() {
        let machine = b"# a\nroot:x:0:0:root:/root:/bin/bash\n+::::::\nworkspace:x:5001:0::/x:/bin/sh\nbroken\n";
        assert_eq!(
            String::from_utf8(users(&facts(), machine).expect("writable")).expect("text"),
            "workspace::5001:0:workspace:/h:/tools/ssh/shell\nroot:x:0:0:root:/root:/bin/bash\n"
        );
        assert_eq!(groups(b"root:x:0:\ntty:x:5:\n+:::\nstaff:x:50:me\n"), b"root:x:0:\nstaff:x:50:me\n");
        assert_eq!(groups(b""), b"root:x:0:\n");
    }

    #[test]
    fn paths_that_would_end_a_line_or_a_field_are_refused() {
        let none = std::iter::empty;
        for facts in [
            SshFacts { host_key: Path::new("/h\nPermitRootLogin yes"), ..facts() },
            SshFacts { home: Path::new("/h\rx"), ..facts() },
            SshFacts { shell: Path::new("/bin/\n"), ..facts() },
        ] {
            assert_eq!(configuration(&facts, none()).err(), Some(Unwritable), "{facts:?}");
        }
        assert_eq!(users(&SshFacts { home: Path::new("/h:0"), ..facts() }, b"").err(), Some(Unwritable));
    }

    proptest! {
        #[test]
        fn no_variable_becomes_another_line_or_word(name in "[A-Z]{1,4}", value in "\\PC{0,12}|.{0,12}") {
            let written = text(&facts(), &[(&name, &value)]);
            let usual = text(&facts(), &[]);
            prop_assert_eq!(written.lines().count(), usual.lines().count());
            let line = written.lines().last().expect("a line");
            // Each word has two quotes that are not escaped.
            let bare = line.replace("\\\\", "").replace("\\\"", "");
            let added = usize::from(!value.contains(['\n', '\r', '\0']));
            prop_assert!(bare.matches('"').count() <= 2 * (3 + added), "{}", line);
        }
    }
}
