//! What can be seen in any text: its length, markers, names of places, files that it names.

use super::repository::{Repository, is_generated};

/// A file of this many lines is one to split soon.
const LINES_LONG: usize = 600;

/// No file may have more lines than this.
const LINES_MAX: usize = 800;

/// Endings of files that count as source.
const SOURCES: [&str; 9] = [".rs", ".proto", ".sql", ".sh", ".js", ".mjs", ".css", ".html", ".py"];

/// Words that people leave where something is to be done. In pieces, so that this file has none.
const MARKERS: [&str; 4] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];

/// Hosts of package registries: which one is used is the machine's own matter. In pieces for the same reason.
const HOSTS: [&str; 7] = [
    concat!("crates", ".io"),
    concat!("registry.npmjs", ".org"),
    concat!("registry.yarnpkg", ".com"),
    concat!("pypi", ".org"),
    concat!("files.pythonhosted", ".org"),
    concat!("proxy.golang", ".org"),
    concat!("rubygems", ".org"),
];

/// Homes in containers, which are the same everywhere. In pieces, too.
const HOMES_IN_CONTAINERS: [&str; 2] = [concat!("/ho", "me/workspace"), concat!("/ho", "me/node")];

/// Beginnings of paths that exist on somebody's machine only. In pieces, too.
const HOMES: [&str; 6] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Use", "rs/"),
    concat!("/wo", "rk/"),
    concat!("/buil", "ds/"),
    concat!("C:", "\\Users"),
];

/// Returns the files that are long, and those that are too long.
pub(crate) fn lengths(repository: &Repository) -> (Vec<String>, Vec<String>) {
    let is_source = |file: &&str| SOURCES.iter().any(|end| file.ends_with(end)) && !is_generated(file);
    let (mut long, mut too_long) = (Vec::new(), Vec::new());
    for file in repository.files().filter(is_source) {
        let lines = repository.read(file).lines().count();
        if lines > LINES_MAX {
            too_long.push(format!("{file} has {lines} lines; no more than {LINES_MAX} are allowed"));
        } else if lines > LINES_LONG {
            long.push(format!("{file} has {lines} lines; past {LINES_LONG} it is time to split it"));
        }
    }
    (long, too_long)
}

/// Finds markers of unfinished work.
pub(crate) fn markers(path: &str, text: &str) -> Vec<String> {
    let find = |(number, line): (usize, &str)| {
        let is_word = |character: char| character.is_alphanumeric() || character == '_';
        let found = line.split(|character| !is_word(character)).find(|word| MARKERS.contains(word))?;
        Some(format!("{path}:{}: {found}", number + 1))
    };
    text.lines().enumerate().filter_map(find).collect()
}

/// Finds names of package hosts and paths of one machine: `root` is where the repository is at the moment.
pub(crate) fn places(path: &str, text: &str, root: &str) -> Vec<String> {
    // A root such as `/app` would be found everywhere.
    let has_own_root = root.matches(['/', '\\']).count() > 1;
    let mut problems = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut tell = |what: &str| problems.push(format!("{path}:{}: {what}", number + 1));
        if let Some(host) = HOSTS.iter().find(|host| line.contains(*host)) {
            tell(&format!("names the package host {host}"));
        }
        let line = HOMES_IN_CONTAINERS.iter().fold(line.to_owned(), |line, home| line.replace(home, ""));
        let line = line.as_str();
        if HOMES.iter().any(|home| begins_path(line, home)) || (has_own_root && line.contains(root)) {
            tell("names a place on one machine");
        }
    }
    problems
}

/// Returns whether a path in a line begins with `home`, and not a longer path or a URL.
fn begins_path(line: &str, home: &str) -> bool {
    let before = |at: usize| line.get(..at).and_then(|before| before.chars().next_back());
    let is_part = |character: char| character.is_alphanumeric() || "._-/*}>)".contains(character);
    line.match_indices(home).any(|(at, _)| !before(at).is_some_and(is_part))
}

/// Returns the files and folders that a document names as code: `gateway/edge/src/lib.rs`, `tests/real/`.
pub(crate) fn named_files(document: &str) -> Vec<String> {
    // As ARCHITECTURE shortens them.
    let short = [("edge/", "gateway/edge/src/"), ("agents/", "gateway/agents/src/")];
    let folders = ["proto/", "gateway/", "workspace-agent/", "tests/", "docs/", "benches/", "deploy/", ".ci/"];
    let codes = document.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_path = |code: &&str| {
        folders.iter().any(|folder| code.starts_with(folder)) && !code.contains([' ', '*', '{', '<', '…'])
    };
    let whole = |code: &str| {
        let long = short.iter().find_map(|(short, long)| Some(format!("{long}{}", code.strip_prefix(short)?)));
        long.unwrap_or_else(|| code.to_owned())
    };
    codes.map(whole).filter(|code| is_path(&code.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::repository::Scratch;
    use super::*;

    #[test]
    fn long_files_are_told_and_too_long_ones_are_found() {
        let lines = |count: usize| "x\n".repeat(count);
        let scratch = Scratch::new(
            "lengths",
            &[
                ("a.rs", &lines(LINES_LONG)),
                ("b.rs", &lines(LINES_LONG + 1)),
                ("c.sh", &lines(LINES_MAX + 1)),
                ("d.md", &lines(LINES_MAX + 1)),
            ],
        );
        let (long, too_long) = lengths(&scratch.open());
        assert_eq!((long.len(), too_long.len()), (1, 1), "{long:?} {too_long:?}");
    }

    #[test]
    fn markers_are_found_as_words() {
        for marker in MARKERS {
            assert_eq!(markers("a.rs", &format!("x\n// {marker}: y")), [format!("a.rs:2: {marker}")]);
            assert_eq!(markers("a.rs", &format!("mktemp {marker}{marker} MY_{marker}")), [""; 0]);
        }
    }

    #[test]
    fn package_hosts_and_places_on_one_machine_are_found() {
        for host in HOSTS {
            assert_eq!(places("a", &format!("https://index.{host}/x"), "/a/b").len(), 1, "{host}");
        }
        for home in HOMES {
            assert_eq!(places("a", &format!("see {home}x"), "/a/b").len(), 1, "{home}");
        }
        assert_eq!(places("a", "cd /a/b/c", "/a/b").len(), 1);
        for home in HOMES {
            for before in ["target", "https://example.com", "GET tests", "$ROOT", "{port}"] {
                assert_eq!(places("a", &format!("{before}{home}x"), "/a/b"), [""; 0], "{before}{home}");
            }
        }
        assert_eq!(places("a", "/app/x", "/app"), [""; 0]);
        for home in HOMES_IN_CONTAINERS {
            assert_eq!(places("a", &format!("see {home}/x"), "/a/b"), [""; 0]);
        }
    }

    #[test]
    fn files_that_a_document_names_are_read() {
        let document = "`gateway/edge/src/lib.rs` and `cargo run`, `tests/real/`; `gateway demo`, `gateway/src/*.rs`, `edge/tcp.rs`";
        assert_eq!(named_files(document), ["gateway/edge/src/lib.rs", "tests/real/", "gateway/edge/src/tcp.rs"]);
    }
}
