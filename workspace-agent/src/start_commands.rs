//! What became of the commands with which a workspace in a pod began, from the logs that its scripts write: one folder for each
//! container, in it `post-start.log` and a log for each command.
//!
//! The files are the user's, so anything may be in them: a bound holds for each, and nothing that is no file is opened.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use tunnel_proto::listening::{COMMANDS_MAX, StartCommand};

/// Most containers whose logs are read.
const CONTAINERS_MAX: usize = 32;

/// Bytes of `post-start.log` that are read, from its beginning: two lines for each command.
const EVENTS_BYTES_MAX: u64 = 16 * 1024;

/// Bytes of the end of a command's log in which its last line is.
const TAIL_BYTES: u64 = 1024;

/// Reads the logs below a folder. What cannot be read is left out.
pub(crate) fn read(logs: &Path) -> Vec<StartCommand> {
    let Ok(entries) = std::fs::read_dir(logs) else { return Vec::new() };
    let mut containers: Vec<String> =
        entries.flatten().take(CONTAINERS_MAX).filter_map(|entry| entry.file_name().into_string().ok()).collect();
    containers.sort();
    let mut found = Vec::new();
    for container in containers {
        let folder = logs.join(&container);
        let Some(events) = text(&folder.join("post-start.log"), SeekFrom::Start(0), EVENTS_BYTES_MAX) else { continue };
        for mut command in commands(&container, &events) {
            if command.has_failed() {
                let log = folder.join(format!("command-{}.log", command.id));
                let end = text(&log, SeekFrom::End(0), TAIL_BYTES).unwrap_or_default();
                command.last_line = last_line(&end).to_owned();
            }
            found.push(command);
        }
    }
    found.truncate(COMMANDS_MAX);
    found
}

/// Reads the lines `TIME ID begins` and `TIME ID ended with status NUMBER`. Pure.
fn commands(container: &str, events: &str) -> Vec<StartCommand> {
    let mut order: Vec<&str> = Vec::new();
    let mut ended: BTreeMap<&str, u32> = BTreeMap::new();
    for line in events.lines() {
        let mut words = line.split(' ').skip(1);
        let Some(id) = words.next().filter(|id| is_id(id)) else { continue };
        match words.collect::<Vec<_>>().as_slice() {
            ["begins"] if !order.contains(&id) && order.len() < COMMANDS_MAX => order.push(id),
            ["ended", "with", "status", status] => {
                ended.extend(status.parse().ok().map(|status| (id, status)));
            }
            _ => {}
        }
    }
    let command = |id: &str| StartCommand {
        container: container.to_owned(),
        id: id.to_owned(),
        status: ended.get(id).copied(),
        last_line: String::new(),
    };
    order.into_iter().map(command).collect()
}

/// Returns whether a text is an id of a devfile's command, and so a part of a file's name.
fn is_id(text: &str) -> bool {
    (1..=63).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn last_line(text: &str) -> &str {
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default()
}

/// Reads a part of a file: from its beginning, or up to its end. `None` for what is no file: a pipe would wait for a writer.
fn text(path: &Path, from: SeekFrom, bytes: u64) -> Option<String> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let mut file: File = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path).ok()?;
    let length = file.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
    if matches!(from, SeekFrom::End(_)) {
        file.seek(SeekFrom::Start(length.saturating_sub(bytes))).ok()?;
    }
    let mut read = Vec::new();
    file.take(bytes).read_to_end(&mut read).ok()?;
    Some(String::from_utf8_lossy(&read).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn command(container: &str, id: &str, status: Option<u32>, last_line: &str) -> StartCommand {
        StartCommand { container: container.to_owned(), id: id.to_owned(), status, last_line: last_line.to_owned() }
    }

    #[test]
    fn commands_are_told_in_their_order_with_what_a_failed_one_wrote_last() {
        let logs = tempfile::tempdir().expect("a folder");
        let main = logs.path().join("main");
        fs::create_dir(&main).expect("a folder");
        let events = "2026-11-27T10:00:00Z install begins\n2026-11-27T10:00:09Z install ended with status 243\n\
                      2026-11-27T10:00:09Z build begins\n2026-11-27T10:00:10Z build ended with status 0\n\
                      2026-11-27T10:00:10Z serve begins\n";
        fs::write(main.join("post-start.log"), events).expect("written");
        fs::write(main.join("command-install.log"), "npm error code EACCES\nnpm error mkdir /.npm\n\n")
            .expect("written");
        fs::create_dir(logs.path().join("without")).expect("a folder");
        let expected = [
            command("main", "install", Some(243), "npm error mkdir /.npm"),
            command("main", "build", Some(0), ""),
            command("main", "serve", None, ""),
        ];
        assert_eq!(read(logs.path()), expected);
        assert_eq!(read(&logs.path().join("nowhere")), []);
    }

    #[test]
    fn no_line_of_a_user_names_another_file_or_grows_the_list() {
        let hostile = "t ../../etc/passwd begins\nt ../x ended with status 1\nt a begins\nt a begins\nt b ended with status x\nnonsense\n\n";
        assert_eq!(commands("main", hostile), [command("main", "a", None, "")]);
        let many: String = (0..1000).map(|number| format!("t c{number} begins\n")).collect();
        assert_eq!(commands("main", &many).len(), COMMANDS_MAX);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn pipe_and_link_in_the_place_of_a_log_are_passed_over() {
        let logs = tempfile::tempdir().expect("a folder");
        let main = logs.path().join("main");
        fs::create_dir(&main).expect("a folder");
        let made = std::process::Command::new("mkfifo").arg(main.join("post-start.log")).status();
        if made.is_ok_and(|status| status.success()) {
            assert_eq!(read(logs.path()), []);
            fs::remove_file(main.join("post-start.log")).expect("removed");
        }
        std::os::unix::fs::symlink("/etc/passwd", main.join("post-start.log")).expect("a link");
        assert_eq!(read(logs.path()), []);
    }
}
