//! What the script puts into its folder, read by the shells of this machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::*;

/// What a job's script made of itself, in a folder that goes with it.
pub(super) struct Unpacked {
    folder: tempfile::TempDir,
    pub(super) job: PathBuf,
}

/// Has a shell run a script up to where it would begin.
pub(super) fn unpack(script: &str, words: &[&str]) -> Unpacked {
    let folder = tempfile::tempdir().unwrap();
    let (files, begins) = script.trim_end().rsplit_once('\n').unwrap();
    assert!(begins.starts_with("exec /bin/sh"), "{begins}");
    let file = folder.path().join("script");
    fs::write(&file, format!("{files}\nprintf %s \"$gw_job\"\n")).unwrap();
    let ran = shell(words, folder.path()).arg(&file).output().unwrap();
    assert!(ran.status.success() && ran.stderr.is_empty(), "{words:?} {ran:?}");
    let job = PathBuf::from(String::from_utf8(ran.stdout).unwrap());
    Unpacked { folder, job }
}

impl Unpacked {
    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.job.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Returns the environment that everything in the workspace has, as a shell makes it.
    pub(super) fn environment(&self, words: &[&str]) -> BTreeMap<String, String> {
        let line = "gw_job=$1 gw_projects=/p gw_source=/p/s gw_logs=/p/l; . \"$gw_job/environment.sh\"; exec env -0";
        let ran = shell(words, self.folder.path()).args(["-c", line, "sh"]).arg(&self.job).output().unwrap();
        assert!(ran.status.success() && ran.stderr.is_empty(), "{words:?} {ran:?}");
        let text = String::from_utf8(ran.stdout).unwrap();
        let pair = |pair: &str| pair.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        text.split('\0').filter_map(pair).collect()
    }
}

#[test]
fn commands_are_files_byte_for_byte_and_variables_are_literal() {
    let line = "echo 'it'\\''s' \"$HOME\" `id`\n\techo $((1 + 1)) # {{.x}}\r\n";
    let env = json!([
        {"name": "A", "value": "$(PROJECTS_ROOT)/a b"},
        {"name": "B", "value": "$(A):$$(A):$(C):$HOME:`id`"},
        {"name": "C", "value": "line\nline\n"},
    ]);
    let rest = json!({
        "commands": [
            {"id": "one", "exec": {"component": "main", "commandLine": line, "workingDir": "/projects/it's"}},
            {"id": "two", "exec": {"component": "main", "commandLine": "true"}},
        ],
        "events": {"postStart": ["two", "one"]},
    });
    let devfile = devfile_of(json!({"env": env}), Vec::new(), rest);
    let script = script_of(&generated(&devfile, &settings(), &Site::default()));
    for words in shells() {
        let unpacked = unpack(&script, &words);
        assert_eq!(unpacked.read("command-one"), line, "{words:?}");
        assert_eq!(
            unpacked.read("commands.sh"),
            "gw_folder_0() { cd -- \"${PROJECT_SOURCE}\"; }\nrun_command 'two' 0\n\
             gw_folder_1() { cd -- \"${PROJECTS_ROOT}\"'/it'\\''s'; }\nrun_command 'one' 1\n"
        );
        let environment = unpacked.environment(&words);
        assert_eq!(environment["A"], "$(PROJECTS_ROOT)/a b");
        assert_eq!(environment["B"], "$(A):$$(A):$(C):$HOME:`id`");
        assert_eq!(environment["C"], "line\nline\n");
        assert_eq!(environment["PROJECT_SOURCE"], "/p/s");
        assert_eq!(environment["GW_URL_TEMPLATE"], "https://{port}-shop.workspaces.example.net");
        assert_eq!(environment["VSCODE_PROXY_URI"], "https://{{port}}-shop.workspaces.example.net");
    }
}

#[test]
fn own_command_of_the_main_container_gets_its_words_as_they_are() {
    let mut main = main_component(json!({
        "command": ["printf"],
        "args": ["[%s]", "a b", "", "it's", "$(A)", "`id` $HOME", "*"],
        "env": [{"name": "A", "value": "x y"}],
    }));
    main["attributes"]["overrideCommand"] = json!(false);
    let devfile = read(&json!({"schemaVersion": "2.2.0", "components": [main]}));
    let script = script_of(&generated(&devfile, &settings(), &Site::default()));
    for words in shells() {
        let unpacked = unpack(&script, &words);
        let ran =
            shell(&words, unpacked.folder.path()).arg(unpacked.job.join("main.sh")).env("A", "x y").output().unwrap();
        assert_eq!(String::from_utf8(ran.stdout).unwrap(), "[a b][][it's][$(A)][`id` $HOME][*]", "{words:?}");
        assert!(unpacked.read("settings.sh").contains("supervise main"));
    }
}
