//! Labels of the ports on which something listens: the name that a person gave a port, else the name of the program there.
//!
//! Which process has a socket is in the links of its folder (proc_pid_fd(5)); those of other users, and of other containers of a pod,
//! cannot be read, and their ports stay without a label. What is read is bounded: a workspace may have thousands of processes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tunnel_proto::listening::label;

use crate::listening::listening_sockets;
use crate::ports::table;

/// Most processes that are looked at, and most open files of one of them.
const PROCESSES_MAX: usize = 4096;
const FILES_MAX: usize = 4096;

/// Programs that run others: the script is the better name.
const RUNTIMES: [&str; 9] = ["node", "python", "python3", "ruby", "java", "deno", "bun", "php", "perl"];

/// Longest script name that is shown behind the name of its runtime, in bytes.
const SCRIPT_BYTES_MAX: usize = 32;

/// Returns labels of some ports. Reads folders of `/proc`: blocks for as long as that takes.
pub(crate) fn of(ports: &[u16], names: &BTreeMap<u16, String>) -> BTreeMap<u16, String> {
    let mut labels: BTreeMap<u16, String> = BTreeMap::new();
    let mut sockets: BTreeMap<u64, u16> = BTreeMap::new();
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        sockets
            .extend(table(path).iter().flat_map(|table| listening_sockets(table)).map(|(port, inode)| (inode, port)));
    }
    sockets.retain(|_, port| ports.contains(port) && !names.contains_key(port));
    if !sockets.is_empty() {
        read_programs(Path::new("/proc"), &mut sockets, &mut labels);
    }
    labels.extend(ports.iter().filter_map(|port| Some((*port, names.get(port)?.clone()))));
    labels
}

/// Looks for the programs of sockets until all are found or all processes are looked at.
fn read_programs(proc: &Path, sockets: &mut BTreeMap<u64, u16>, labels: &mut BTreeMap<u16, String>) {
    let Ok(entries) = fs::read_dir(proc) else { return };
    let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let processes = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let processes = processes.filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_process));
    for process in processes.take(PROCESSES_MAX) {
        let Ok(files) = fs::read_dir(process.join("fd")) else { continue };
        let mut program: Option<Option<String>> = None;
        for file in files.take(FILES_MAX).filter_map(Result::ok) {
            let Some(inode) = fs::read_link(file.path()).ok().and_then(|link| inode(link.to_str()?)) else { continue };
            let Some(port) = sockets.remove(&inode) else { continue };
            let program = program.get_or_insert_with(|| read_program(&process));
            labels.extend(program.clone().map(|program| (port, program)));
        }
        if sockets.is_empty() {
            return;
        }
    }
}

/// Reads the number of a socket from the target of its link.
fn inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

fn read_program(process: &Path) -> Option<String> {
    let command = fs::read(process.join("cmdline")).ok()?;
    program(&String::from_utf8_lossy(&command))
}

/// Names a program by its command line (proc_pid_cmdline(5)): its file, and of a runtime the script that it runs. Nothing else of
/// the arguments is shown: there are secrets in them.
fn program(command: &str) -> Option<String> {
    let mut words = command.split('\0');
    let file = |word: &str| word.rsplit('/').next().unwrap_or_default().trim_start_matches('-').to_owned();
    // Some programs write a sentence there.
    let name = file(words.next()?.split(' ').next()?);
    if !RUNTIMES.contains(&name.as_str()) {
        return label(&name);
    }
    let script = words.next().filter(|word| !word.starts_with('-')).map(file);
    match script.filter(|script| !script.is_empty() && script.len() <= SCRIPT_BYTES_MAX) {
        Some(script) => label(&format!("{name} {script}")),
        None => label(&name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_named_by_their_file_and_runtimes_by_their_script() {
        for (command, expected) in [
            ("/usr/bin/postgres\0-D\0/data\0", Some("postgres")),
            ("nginx: master process /usr/sbin/nginx -g daemon off;", Some("nginx:")),
            ("node\0/projects/app/node_modules/.bin/vite\0--port=5173\0", Some("node vite")),
            ("python3\0-m\0http.server\0", Some("python3")),
            ("/usr/bin/python3\0/srv/app.py\0--token\0secret\0", Some("python3 app.py")),
            ("-bash\0", Some("bash")),
            ("", None),
            ("\0\0", None),
            ("/a/x\u{1b}[31m\0", Some("x [31m")),
        ] {
            assert_eq!(program(command).as_deref(), expected, "{command:?}");
        }
    }

    #[test]
    fn only_links_to_sockets_have_a_number() {
        assert_eq!(inode("socket:[4711]"), Some(4711));
        for link in ["pipe:[4711]", "/dev/null", "socket:[]", "socket:[x]", "socket:[1"] {
            assert_eq!(inode(link), None, "{link}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn port_has_the_name_of_its_program_unless_a_person_gave_it_one() {
        let app = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = app.local_addr().expect("bound").port();
        let found = of(&[port], &BTreeMap::new());
        let own = std::env::current_exe().expect("this program");
        let own = own.file_name().expect("a file").to_string_lossy().into_owned();
        assert_eq!(found.get(&port), label(&own).as_ref());
        let names = BTreeMap::from([(port, "web".to_owned())]);
        assert_eq!(of(&[port], &names), names);
        assert!(of(&[], &names).is_empty(), "only what listens is listed");
    }
}
