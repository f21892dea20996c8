//! The recorded frozen configs: what versions of this program stored, and what has to stay readable and the same for ever.
//!
//! `frozen/vVERSION/NAME.json` is a frozen config as that version made it from `NAME.devfile.yaml`, `NAME.cluster.json` and
//! `NAME.facts.json` beside it. A set that has been released is never changed: somewhere there are workspaces like it. A version
//! that generates something else gets a set of its own.
//!
//! `v0.1.0-pre.1` is what was made before 0.1.0 was released, with text in which Kubernetes put variables and with the cloud's
//! metadata address open by default. `v0.1.0-pre.2` is what was made before workspaces had a home, a name for their user and projects.
//! Nothing makes these any more; they are here as older versions' sets, and are not changed.

#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot read its records has to fail loudly")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use workspace_spec::cluster_config::ClusterConfig;
use workspace_spec::devfile;
use workspace_spec::editor;
use workspace_spec::frozen::{Facts, FrozenConfig, freeze};
use workspace_spec::project::Project;

fn sets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frozen")
}

/// Returns what a folder has, by name.
fn inside(folder: &Path) -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let named = |path: PathBuf| (path.file_name().expect("a name").to_string_lossy().into_owned(), path);
    entries.map(|entry| named(entry.expect("an entry").path())).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Generates what the inputs of a record make today.
fn generate(set: &Path, name: &str) -> FrozenConfig {
    let input = |kind: &str| read(&set.join(format!("{name}.{kind}")));
    let facts: BTreeMap<String, String> = serde_json::from_str(&input("facts.json")).expect("facts");
    let fact = |key: &str| facts.get(key).map(String::as_str).unwrap_or_else(|| panic!("{name}: no {key}"));
    let devfile =
        devfile::parse(input("devfile.yaml").as_bytes()).unwrap_or_else(|problems| panic!("{name}: {problems}"));
    let config = ClusterConfig::from_json(&input("cluster.json")).expect("a configuration");
    let projects: Vec<Project> = facts
        .get("projects")
        .iter()
        .flat_map(|all| all.split(' '))
        .map(|one| one.parse().expect("a project"))
        .collect();
    let facts = Facts {
        workspace: &fact("workspace").parse().expect("a workspace's name"),
        cluster: &fact("cluster").parse().expect("a cluster's name"),
        namespace: fact("namespace"),
        owner: &fact("owner").parse().expect("a user's name"),
        zone: &fact("zone").parse().expect("a zone"),
        public_url: fact("public_url"),
        agents_url: fact("agents_url"),
        projects: &projects,
        editor: editor::choose(&config.editors, facts.get("editor").map(String::as_str)).expect("an editor"),
    };
    freeze(&devfile, &config, &facts).unwrap_or_else(|problems| panic!("{name}: {problems:?}"))
}

/// Returns the names of a set's records.
fn names(set: &Path) -> Vec<String> {
    inside(set).keys().filter_map(|file| file.strip_suffix(".devfile.yaml")).map(str::to_owned).collect()
}

#[test]
fn recorded_configs_of_every_version_are_accepted_and_sent_byte_for_byte() {
    let sets = inside(&sets());
    for first in ["v0.1.0-pre.1", "v0.1.0-pre.2", "v0.1.0"] {
        assert!(sets.contains_key(first), "a recorded set is gone: {sets:?}");
    }
    for (version, set) in sets {
        let names = names(&set);
        assert!(names.len() >= 6, "{version} has {names:?}");
        for name in names {
            let recorded = read(&set.join(format!("{name}.json")));
            let recorded = recorded.strip_suffix('\n').unwrap_or(&recorded);
            let frozen = FrozenConfig::from_json(recorded).unwrap_or_else(|problems| {
                panic!("{version}/{name}: workspaces like this one exist and cannot be read any more: {problems:?}")
            });
            let sent = frozen.to_json();
            let message = "workspaces like this one exist and would be changed in their clusters";
            assert_eq!(sent, recorded, "{version}/{name}: {message}");
        }
    }
}

#[test]
fn this_version_generates_what_is_recorded_of_it() {
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    let set = sets().join(version);
    assert!(
        set.is_dir(),
        "there is no set of {version}: copy the inputs of the last one (NAME.devfile.yaml, .cluster.json, .facts.json) to {}, \
         and add what is new since then",
        set.display()
    );
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("frozen").join(version);
    fs::create_dir_all(&made).expect("a folder");
    let mut other = Vec::new();
    for name in names(&set) {
        let file = format!("{name}.json");
        let today = format!("{}\n", generate(&set, &name).to_json());
        if fs::read_to_string(set.join(&file)).ok().as_deref() != Some(today.as_str()) {
            fs::write(made.join(&file), today).expect("written");
            other.push(file);
        }
    }
    assert!(
        other.is_empty(),
        "{version} makes something else than is recorded of it: {other:?}. What it makes is in {}. Workspaces that exist keep what \
         they have, so nothing breaks; but was it meant? If so: while {version} is not released, put these files in the place of \
         the recorded ones; if it is released, do not touch its set, raise the version, and record a new one.",
        made.display()
    );
}
