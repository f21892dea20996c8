mod commands;
mod components;
mod containers;
mod file;
mod hostile;

use super::*;
use crate::workspace_template::WorkspaceTemplate;

/// A sound file of six lines; cases add lines to its container, its list of components, or itself.
const SMALL: &str = "\
schemaVersion: 2.2.0
components:
- name: main
  attributes: {gateway/inject-editor: true}
  container:
    image: a/b:1
";

const RESERVED: &str = "must not begin with gw- or gw_, which are reserved";

const LABEL: &str =
    "must be a DNS label, since it becomes a Kubernetes name: at most 63 of a-z, 0-9 and dashes inside; it is";

/// A file that uses what there is.
const FULL: &str = include_str!("tests/full.yaml");

fn told(text: &str) -> Vec<String> {
    match parse(text.as_bytes()) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.0.iter().map(ToString::to_string).collect(),
    }
}

/// Expects exactly these problems of a file.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    assert_eq!(told(text), expected, "{text}");
}

/// Expects exactly these problems of the small file with more lines, which begin on line 7.
#[track_caller]
fn check_with(lines: &str, expected: &[&str]) {
    check(&format!("{SMALL}{lines}"), expected);
}

#[test]
fn default_devfile_keeps_every_rule() {
    let devfile = parse(DEFAULT_DEVFILE.as_bytes()).unwrap();
    assert_eq!(devfile.components.len(), 1);
    assert!(devfile.components[0].is_main && devfile.components[0].override_command);
    assert_eq!(devfile.events, LifecycleEvents::default());
}

#[test]
fn documented_files_keep_every_rule() {
    let document = include_str!("../../../../docs/workspace-files.md");
    let mut blocks = document.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    assert_eq!(parse(blocks.next().unwrap().as_bytes()).map(|_| ()), Ok(()));
    let template = WorkspaceTemplate::parse(blocks.next().unwrap().as_bytes()).unwrap();
    let rendered = template.render(&[("team".to_owned(), "shop".to_owned())].into()).unwrap();
    assert_eq!(parse(rendered.devfile.as_bytes()).unwrap().components[0].endpoints[0].target_port, 3000);
    for _ in 0..2 {
        assert!(crate::cluster_config::parse(blocks.next().unwrap().as_bytes()).is_ok());
    }
    assert_eq!(blocks.next(), None);
}

#[test]
fn full_devfile_is_read_as_it_says() {
    let devfile = parse(FULL.as_bytes()).unwrap();
    assert_eq!(devfile.name.as_deref(), Some("Shop, frontend"));
    let [main, database, seed] = devfile.components.as_slice() else { panic!("three containers") };
    assert_eq!(
        *main,
        Component {
            name: "tooling".to_owned(),
            image: "registry.example.com/team/tooling:24.04".to_owned(),
            is_main: true,
            override_command: false,
            command: vec!["/bin/sh".to_owned(), "-c".to_owned()],
            args: vec!["exec \"$0\" '${HOME}' `id` && sleep 1d # {{.State}}".to_owned(), String::new()],
            env: vec![("NODE_ENV".to_owned(), "development".to_owned()), ("EMPTY".to_owned(), String::new())],
            memory_request: Some("512Mi".to_owned()),
            memory_limit: Some("2Gi".to_owned()),
            cpu_request: Some("250m".to_owned()),
            cpu_limit: Some("2".to_owned()),
            endpoints: vec![
                Endpoint {
                    name: "web".to_owned(),
                    target_port: 3000,
                    exposure: Exposure::Public,
                    protocol: "http".to_owned(),
                    secure: true,
                    speaks: PortProtocol::Http1,
                    host: PortHost::Auto,
                    proposed: None,
                },
                Endpoint {
                    name: "debug".to_owned(),
                    target_port: 9229,
                    exposure: Exposure::None,
                    protocol: "tcp".to_owned(),
                    secure: false,
                    speaks: PortProtocol::Tcp,
                    host: PortHost::Auto,
                    proposed: None,
                },
            ],
            volume_mounts: vec![
                VolumeMount { name: "cache".to_owned(), path: Some("/var/cache/app".to_owned()) },
                VolumeMount { name: "scratch".to_owned(), path: None },
            ],
        }
    );
    assert!(!database.is_main && !database.override_command);
    assert_eq!(database.args, ["postgres", "-c", "shared_buffers=64MB"]);
    assert_eq!(seed.name, "seed");
    let volumes: Vec<_> =
        devfile.volumes.iter().map(|it| (it.name.as_str(), it.size.as_deref(), it.ephemeral)).collect();
    assert_eq!(volumes, [("cache", Some("10Gi"), false), ("scratch", None, true)]);
    assert_eq!(devfile.commands.len(), 3);
    assert_eq!(
        devfile.commands[0].kind,
        CommandKind::Exec {
            component: "tooling".to_owned(),
            command_line: "cd shop && npm ci\nnpm run dev -- --port=3000 > \"/tmp/$USER.log\" 2>&1 &\n".to_owned(),
            label: Some("Start the server".to_owned()),
            working_dir: Some("${PROJECT_SOURCE}/shop".to_owned()),
        }
    );
    assert_eq!(devfile.commands[1].kind.component(), "tooling");
    assert_eq!(devfile.events.pre_start, ["load"]);
    assert_eq!(devfile.events.post_start, ["serve", "hello"]);
}

#[test]
fn problems_of_all_kinds_are_told_together_by_line_with_columns() {
    let text = "\
schemaVersion: 2.3.0
parent: {uri: http://example.com}
components:
- name: Gl-Main
  container:
    image: a
    memoryLimit: 512
    env:
    - {name: 9A, value: 1.10}
- name: gw-x
  volume: {}
- name: v
  volume: {sise: 1}
commands:
- id: a
  exec: {component: nowhere, commandLine: x}
events:
  postStart: [a, b]
  preStop: [a]
surprise: 1
";
    check(
        text,
        &[
            "line 1, schemaVersion: must be 2.2.0, the version that is supported, not \"2.3.0\"",
            "line 2, parent: is not supported: a devfile has to say everything itself",
            "line 4, components: exactly one container must have the attribute gateway/inject-editor: true, and none \
             has; \
             editor and agent run there",
            "line 4, components[0].name: must be a DNS label, since it becomes a Kubernetes name: at most 63 of a-z, \
             0-9 and \
             dashes inside; it is \"Gl-Main\"",
            "line 7, components[0].container.memoryLimit: must be text, and 512 is a number: put it in quotes",
            "line 9, components[0].container.env[0].name: must be the name of an environment variable: letters, \
             digits and \
             underscores, no digit first; it is \"9A\"",
            "line 9, components[0].container.env[0].value: must be text, and 1.10 is a number: put it in quotes",
            "line 10, components[1].name: must not begin with gw- or gw_, which are reserved",
            "line 13, components[2].volume.sise: unknown key; known here: size, ephemeral",
            "line 16, commands[0].exec.component: no component has the name \"nowhere\"",
            "line 18, events.postStart[1]: no command has the id \"b\"",
            "line 19, events.preStop: is not supported: only preStart and postStart are",
            "line 20, surprise: unknown key; known here: schemaVersion, metadata, variables, attributes, components, \
             commands, events",
        ],
    );
    let problems = parse(text.as_bytes()).unwrap_err().0;
    assert_eq!((problems[5].line, problems[5].column), (Some(9), Some(14)));
    assert_eq!(problems[5].path, "components[0].container.env[0].name");
}

#[test]
fn problems_display_one_per_line() {
    let problems = parse(b"schemaVersion: 1\nx: 1\n").unwrap_err();
    assert_eq!(problems.to_string().lines().count(), 3);
}
