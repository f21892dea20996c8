//! The image of `deploy/images/`: what can be said of it without building it. Its instructions are whole, what it copies exists, and what it
//! promises is what the scripts of a workspace expect. Images of gateway and agent are `packaging/`'s.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a failed expectation is how a test fails"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use workspace_spec::cluster_config::ClusterConfig;
use workspace_spec::devfile;
use workspace_spec::editor::Chosen;
use workspace_spec::frozen::{Facts, SCRIPTS_DIR, TOOLS_DIR, TOOLS_IMAGE_DIR, freeze};

const IMAGES: [&str; 1] = ["tools"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// One instruction of a Dockerfile.
#[derive(Clone, Debug)]
struct Step {
    /// Which `FROM` it comes after, from 1.
    stage: usize,
    name: String,
    text: String,
}

/// Reads a Dockerfile: lines that go on are joined, comments are left out.
fn steps(image: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut stage, mut goes_on) = (0, false);
    for line in read(&format!("deploy/images/{image}.Dockerfile")).lines() {
        if line.trim_start().starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let text = line.trim_end().trim_end_matches('\\');
        if goes_on {
            let last = steps.last_mut().expect("a line goes on from another");
            last.text.push('\n');
            last.text.push_str(text);
        } else {
            let (name, rest) = text.split_once(' ').unwrap_or_else(|| panic!("{image}: {line}"));
            stage += usize::from(name == "FROM");
            steps.push(Step { stage, name: name.to_owned(), text: rest.trim().to_owned() });
        }
        goes_on = line.trim_end().ends_with('\\');
    }
    assert!(!goes_on, "{image}: the last line goes on");
    steps
}

/// Returns the instructions of the stage that the image is made of.
fn last_stage(image: &str) -> Vec<Step> {
    let steps = steps(image);
    let last = steps.last().unwrap().stage;
    steps.into_iter().filter(|step| step.stage == last).collect()
}

fn named<'s>(steps: &'s [Step], name: &str) -> Vec<&'s str> {
    steps.iter().filter(|step| step.name == name).map(|step| step.text.as_str()).collect()
}

fn list(text: &str) -> Vec<String> {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text} is no list: {error}"))
}

#[test]
fn each_image_has_a_version_of_everything_and_runs_as_nobody() {
    let known = ["ARG", "FROM", "RUN", "WORKDIR", "COPY", "ENV", "USER", "EXPOSE", "ENTRYPOINT", "CMD"];
    let found: BTreeSet<PathBuf> =
        fs::read_dir(root().join("deploy/images")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let files = found.iter().filter(|path| path.extension().is_some_and(|end| end == "Dockerfile"));
    assert_eq!(files.count(), IMAGES.len(), "{found:?}");
    for image in IMAGES {
        let steps = steps(image);
        assert!(steps.iter().all(|step| known.contains(&step.name.as_str())), "{image}: {steps:?}");
        let arguments = named(&steps, "ARG");
        for from in named(&steps, "FROM") {
            let base = from.split_whitespace().next().unwrap();
            let Some(variable) = base.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) else {
                assert_eq!(base, "scratch", "{image}");
                continue;
            };
            let default = arguments.iter().find_map(|one| one.strip_prefix(variable)?.strip_prefix('='));
            let (_, tag) = default.and_then(|one| one.split_once(':')).unwrap_or_else(|| panic!("{image}: {from}"));
            assert!(tag.contains('.') && !tag.contains("latest"), "{image}: {base} is {tag}");
        }
        let last = last_stage(image);
        let user = named(&last, "USER");
        let [user] = user.as_slice() else { panic!("{image} says {} times who it runs as", user.len()) };
        let (user, group) = user.split_once(':').unwrap();
        // Kubernetes refuses to run a name where nobody but root is forbidden.
        assert!(user.parse::<u32>().is_ok_and(|id| id > 0) && group.parse::<u32>().is_ok(), "{image}: {user}");
    }
    let version = read("rust-toolchain.toml");
    let version = version.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap().trim_matches('"');
    for image in IMAGES {
        let build =
            named(&steps(image), "ARG").into_iter().find(|one| one.starts_with("BUILD_IMAGE=")).map(str::to_owned);
        assert!(build.is_some_and(|one| one.starts_with(&format!("BUILD_IMAGE=rust:{version}-"))), "{image}");
    }
}

#[test]
fn what_is_run_is_a_shells_and_what_is_copied_exists() {
    for image in IMAGES {
        let steps = steps(image);
        for line in named(&steps, "RUN") {
            // Where a line goes on, Docker gives the shell one line.
            let status = Command::new("/bin/sh").args(["-n", "-c", &line.replace('\n', " ")]).status().unwrap();
            assert!(status.success(), "{image}: {line}");
        }
        let stages = named(&steps, "FROM");
        for copied in named(&steps, "COPY") {
            let words: Vec<&str> = copied.split_whitespace().collect();
            match words[0].strip_prefix("--from=") {
                Some(stage) => assert!(
                    stages.iter().any(|from| from.ends_with(&format!(" AS {stage}"))),
                    "{image}: no stage {stage}"
                ),
                None => assert!(root().join(words[0]).exists(), "{image}: there is no {}", words[0]),
            }
        }
    }
    // Everything is copied into the stages that build: nothing secret and nothing large lies where that begins.
    let ignored = read(".dockerignore");
    for path in [".git", "**/target", "gateway.key", "gateway.db*"] {
        assert!(ignored.lines().any(|line| line == path), "{path}");
    }
}

/// Generates a workspace, and returns its objects.
fn workspace() -> Vec<Value> {
    let config = ClusterConfig { enabled: true, tools_image: "tools:1".to_owned(), ..ClusterConfig::default() };
    let facts = Facts {
        workspace: &"mine".parse().unwrap(),
        cluster: &"prod".parse().unwrap(),
        namespace: "ws-mine",
        owner: &"ann".parse().unwrap(),
        zone: &"localhost".parse().unwrap(),
        public_url: "http://localhost:8080",
        agents_url: "http://localhost:8081",
        projects: &[],
        editor: Chosen::CodeServer,
    };
    let devfile = devfile::parse(devfile::DEFAULT_DEVFILE.as_bytes()).unwrap();
    let frozen = freeze(&devfile, &config, &facts).unwrap();
    frozen.objects().iter().map(|object| object.value.clone()).collect()
}

#[test]
fn tools_image_has_every_program_that_a_workspace_runs() {
    let objects = workspace();
    let scripts = objects.iter().find(|object| object["metadata"]["name"] == "mine-scripts").unwrap();
    let mut used = BTreeSet::new();
    // The first container's: it alone sees the image.
    assert!(
        scripts["data"]["prepare.sh"].as_str().unwrap().contains(&format!("cp -Rf {TOOLS_IMAGE_DIR}/. {TOOLS_DIR}/"))
    );
    for (name, text) in scripts["data"].as_object().unwrap().iter().filter(|(name, _)| *name != "prepare.sh") {
        for rest in text.as_str().unwrap().split(&format!("{TOOLS_DIR}/")).skip(1) {
            let end = rest.find(|letter: char| letter.is_whitespace() || "'\";".contains(letter));
            used.insert(rest[..end.unwrap_or(rest.len())].to_owned());
        }
        assert!(!text.as_str().unwrap().contains(TOOLS_IMAGE_DIR), "{name}: it is copied to {TOOLS_DIR}");
    }
    assert_eq!(used, BTreeSet::from(["bin/code-server", "bin/workspace-agent", "ssh"].map(str::to_owned)));
    let files: BTreeSet<String> = read("deploy/images/tools.files").lines().map(str::to_owned).collect();
    // The agent gets the folder of the SSH server, and finds its programs there.
    used.remove("ssh");
    used.extend(["sshd", "ssh-keygen", "shell"].map(|program| format!("ssh/{program}")));
    assert!(used.is_subset(&files), "{files:?}");

    let steps = last_stage("tools");
    let copied = named(&steps, "COPY");
    assert!(copied.iter().any(|one| one.ends_with(&format!(" {TOOLS_IMAGE_DIR}/bin/workspace-agent"))), "{copied:?}");
    assert!(copied.iter().any(|one| one.ends_with(&format!(" {TOOLS_IMAGE_DIR}/ssh"))), "{copied:?}");
    let run = named(&steps, "RUN").join("\n");
    // The link has to lead to the same when it has been copied: nowhere outside what is copied.
    assert!(run.contains(&format!("ln -s ../lib/code-server/bin/code-server {TOOLS_IMAGE_DIR}/bin/code-server")));
    assert!(run.contains(&format!("done < {TOOLS_IMAGE_DIR}/files")), "each file of the list is looked for");
    // What its container does, and as whom.
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let injector = &deployment["spec"]["template"]["spec"]["initContainers"][0];
    assert_eq!(serde_json::to_value(list(named(&steps, "CMD")[0])).unwrap(), injector["command"]);
    assert!(run.contains("test -x /bin/sh && git --version"));
    assert_eq!(named(&steps, "USER"), [format!("{}:0", injector["securityContext"]["runAsUser"])]);
    assert!(SCRIPTS_DIR.starts_with("/workspace-gateway/"));
}

#[test]
fn tools_have_the_program_without_a_client_of_kubernetes() {
    let steps = steps("tools");
    assert!(named(&steps, "RUN").iter().any(|line| line.ends_with("--bin workspace-agent-slim")));
    let copied = "/src/target/release/workspace-agent-slim ";
    assert!(named(&steps, "COPY").iter().any(|line| line.contains(copied)));
}
