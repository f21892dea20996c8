//! The devfile of a project, found with this machine's git, as this user: the gateway has no git, and no business in the repository.

use std::path::Path;
use std::process::{Command, Stdio};

use workspace_spec::project::Project;

/// Names under which a project has its devfile (devfile 2.2.0), the first one found wins.
const NAMES: [&str; 2] = [".devfile.yaml", "devfile.yaml"];

/// Longest time for git, in seconds of silence of the server.
const SILENCE_SECONDS: &str = "20";

/// What came of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FoundDevfile {
    /// Its name, and its text.
    Found(&'static str, String),
    /// The project has none.
    None,
    /// Git could not look, for this reason.
    Unknown(String),
}

/// Looks for the devfile of a project: a shallow fetch without its files, then the one file. Whatever fails is said, and stops nothing.
pub(super) fn devfile(project: &Project) -> FoundDevfile {
    match tempfile::tempdir() {
        Ok(folder) => look(project, folder.path()),
        Err(error) => FoundDevfile::Unknown(format!("there is no folder for it: {error}")),
    }
}

fn look(project: &Project, folder: &Path) -> FoundDevfile {
    let mut clone = git();
    clone.args(["clone", "--quiet", "--depth", "1", "--no-checkout", "--filter=blob:none", "--no-tags"]);
    if let Some(reference) = &project.reference {
        clone.args(["--branch", reference]);
    }
    // The order of git-clone(1): options, then the URL, which begins with no dash.
    clone.arg("--").arg(&project.url).arg(folder);
    if let Err(why) = said(&mut clone) {
        return FoundDevfile::Unknown(why);
    }
    for name in NAMES {
        let mut listed = git();
        listed.arg("-C").arg(folder).args(["ls-tree", "--name-only", "HEAD", "--", name]);
        match said(&mut listed) {
            Ok(names) if names.trim_end() == name => {}
            Ok(_) => continue,
            Err(why) => return FoundDevfile::Unknown(why),
        }
        let mut show = git();
        show.arg("-C").arg(folder).args(["show", &format!("HEAD:{name}")]);
        return said(&mut show).map_or_else(FoundDevfile::Unknown, |text| FoundDevfile::Found(name, text));
    }
    FoundDevfile::None
}

/// Runs git, which asks no one anything. Returns what it printed, or its last line of complaint.
fn said(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("git cannot be run: {error}"))?;
    if output.status.success() {
        return String::from_utf8(output.stdout).map_err(|_| "it is not text in UTF-8".to_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let last = words.lines().rev().find(|line| !line.trim().is_empty());
    Err(last.map_or_else(|| format!("git ended with {}", output.status), str::to_owned))
}

fn git() -> Command {
    let mut git = Command::new("git");
    git.env("GIT_TERMINAL_PROMPT", "0").env("GIT_ALLOW_PROTOCOL", "https:http");
    git.args(["-c", "http.lowSpeedLimit=1000", "-c", &format!("http.lowSpeedTime={SILENCE_SECONDS}")]);
    git
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_looked_at_is_said() {
        let project = |url: &str| Project { url: url.to_owned(), reference: None };
        let FoundDevfile::Unknown(why) = devfile(&project("http://127.0.0.1:1/a.git")) else { panic!("found") };
        assert!(why.contains("127.0.0.1") || why.contains("git cannot be run"), "{why}");
        // No other kind of transport, whatever a URL says.
        assert!(matches!(devfile(&project("file:///etc")), FoundDevfile::Unknown(_)));
        assert!(matches!(devfile(&project("ext::sh -c id")), FoundDevfile::Unknown(_)));
    }
}
