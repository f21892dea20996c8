//! What is refused, by place and name.

use super::*;

fn problems_with(devfile: &Devfile, settings: &PipelineSettings, site: &Site) -> Vec<String> {
    match generate(devfile, settings, &site.facts()) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

/// Expects problems with these beginnings, in this order.
#[track_caller]
fn check(told: &[String], expected: &[&str]) {
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.starts_with(expected), "{told}\ninstead of {expected}");
    }
}

#[test]
fn all_that_ci_cannot_give_is_told_at_once() {
    let mount = json!([{"name": "m2", "path": "/opt/m2"}]);
    let more = vec![
        json!({"name": "waits", "attributes": {"overrideCommand": true}, "container": {"image": "a"}}),
        json!({"name": "db", "container": {
            "image": "postgres:18",
            "args": ["sh", "-c", "echo $HOME"],
            "env": [{"name": "P", "value": "a\"b"}],
            "endpoints": [{"name": "sql", "targetPort": 5432}],
            "volumeMounts": mount,
        }}),
        json!({"name": "seed", "container": {"image": "a"}}),
        json!({"name": "m2", "volume": {}}),
    ];
    let rest = json!({
        "commands": [
            {"id": "load", "apply": {"component": "seed"}},
            {"id": "inside", "exec": {"component": "db", "commandLine": "psql"}},
            {"id": "never", "exec": {"component": "db", "commandLine": "psql"}},
        ],
        "events": {"preStart": ["load"], "postStart": ["inside"]},
    });
    let main = json!({"volumeMounts": mount, "env": [{"name": "UID", "value": "1"}]});
    let told = problems_with(&devfile_of(main, more, rest), &settings(), &Site::default());
    check(
        &told,
        &[
            "component main: mounts the volume m2 at /opt/m2",
            "component main, variable UID: is read-only in some shells",
            "component waits: only waits (overrideCommand: true)",
            "component db: mounts the volume m2",
            "component db: endpoint sql is to be reached from outside",
            "component db: \"echo $HOME\" has a quote, $,",
            "component db, variable P: \"a\\\"b\" has a quote",
            "command load: runs before the start (preStart)",
            "command inside: runs in the component db",
        ],
    );
    assert!(told[4].ends_with("say `exposure: none`, and reach it from the main component as db:5432"), "{}", told[4]);
}

#[test]
fn entry_point_of_the_main_image_cannot_be_kept_without_saying_what_runs() {
    let with = |container: Value| {
        let mut main = main_component(container);
        main["attributes"]["overrideCommand"] = json!(false);
        read(&json!({"schemaVersion": "2.2.0", "components": [main]}))
    };
    let told = problems_with(&with(json!({"args": ["x"]})), &settings(), &Site::default());
    check(&told, &["component main: keeps its image's entry point"]);
    assert_eq!(problems_with(&with(json!({"command": ["x"]})), &settings(), &Site::default()), [""; 0]);
}

#[test]
fn variable_that_no_program_could_be_started_with_is_refused() {
    let of =
        |bytes: usize| devfile_of(json!({"env": [{"name": "A", "value": "x".repeat(bytes)}]}), Vec::new(), json!({}));
    let told = problems_with(&of(128 * 1024 - 2), &settings(), &Site::default());
    check(&told, &["component main, variable A: is longer than 128 KiB"]);
    assert_eq!(problems_with(&of(128 * 1024 - 3), &settings(), &Site::default()), [""; 0]);
    // The workspace's own, of which files may be longer, unless the CI system hands on no more.
    let none = devfile_of(json!({}), Vec::new(), json!({}));
    let own = |is_file, bytes| Site {
        variables: vec![VariableName { name: "OWN".to_owned(), is_file, bytes }],
        ..Site::default()
    };
    let told = problems_with(&none, &settings(), &own(false, 128 * 1024 - 4));
    check(&told, &["variable OWN: is longer than 128 KiB with its name"]);
    assert_eq!(problems_with(&none, &settings(), &own(false, 128 * 1024 - 5)), [""; 0]);
    assert_eq!(problems_with(&none, &settings(), &own(true, 500_000)), [""; 0]);
    let narrow = PipelineSettings { value_bytes_max: 98_256, ..settings() };
    for is_file in [false, true] {
        let told = problems_with(&none, &narrow, &own(is_file, 98_257));
        check(&told, &["variable OWN: its value is longer than 98256 bytes"]);
        assert_eq!(problems_with(&none, &narrow, &own(is_file, 98_256)), [""; 0]);
    }
}

#[test]
fn service_variable_that_would_tell_the_runner_what_it_may_take_is_refused() {
    let side = |name: &str| {
        let container = json!({"image": "a", "cpuRequest": "1", "env": [{"name": name, "value": "2"}]});
        devfile_of(json!({}), vec![json!({"name": "db", "container": container})], json!({}))
    };
    let told = problems_with(&side("KUBERNETES_SERVICE_CPU_REQUEST"), &settings(), &Site::default());
    check(&told, &["component db, variable KUBERNETES_SERVICE_CPU_REQUEST: is how a runner is told"]);
    assert_eq!(problems_with(&side("KUBERNETES_SERVICE_HOST"), &settings(), &Site::default()), [""; 0]);
}

#[test]
fn definition_that_no_ci_system_would_take_is_refused() {
    let commands: Vec<_> = (0..12)
        .map(|number| json!({"id": format!("c{number}"), "exec": {"component": "main", "commandLine": "x".repeat(100_000)}}))
        .collect();
    let ids: Vec<_> = (0..12).map(|number| format!("c{number}")).collect();
    let devfile = devfile_of(json!({}), Vec::new(), json!({"commands": commands, "events": {"postStart": ids}}));
    check(&problems_with(&devfile, &settings(), &Site::default()), &["the definition of the pipeline is larger"]);
}

#[test]
fn settings_and_facts_are_checked_too() {
    let settings = PipelineSettings {
        tags: vec!["$CI_RUNNER".to_owned(), "a b".to_owned()],
        job_timeout: Duration::from_secs(60),
        save_max: Duration::from_secs(60),
        inherit_variables: vec!["OK".to_owned(), "gw_VAR_1".to_owned(), "A-B".to_owned()],
        editor: Editor::Archive { url: "ftp://a".to_owned(), sha256: [0; 32] },
        agents: Vec::new(),
        proof: Proof::IdToken { audience: "$A".to_owned() },
        value_bytes_max: usize::MAX,
        ca_pem: Some("nothing".to_owned()),
    };
    let name = |name: &str, is_file| VariableName { name: name.to_owned(), is_file, bytes: 1 };
    let site = Site {
        project: Some(Project {
            url: "https://me:secret@example.com/a.git".to_owned(),
            reference: Some("--upload-pack=id".to_owned()),
        }),
        tags: vec![String::new()],
        variables: vec![
            name("A", false),
            name("../x", true),
            name("gw_x", false),
            name("PPID", false),
            name("a.b", true),
        ],
        public_url: "javascript:1".to_owned(),
        ..Site::default()
    };
    let facts = PipelineFacts { cache_key: "short", ..site.facts() };
    let devfile = devfile_of(json!({}), Vec::new(), json!({}));
    let told: Vec<String> =
        generate(&devfile, &settings, &facts).unwrap_err().iter().map(ToString::to_string).collect();
    check(
        &told,
        &[
            "tags, \"$CI_RUNNER\": is no tag",
            "job_timeout: must be from 10 minutes",
            "inherit_variables, gw_VAR_1: is not the name",
            "inherit_variables, A-B: is not the name",
            "editor_archive_url: is no URL",
            "agents: there is no program",
            "audience: must be",
            "ca_file: must be certificates",
            "cache_key: must be",
            "public_url: is no URL",
            "tags, \"\": is no tag",
            "project: has credentials",
            "project: the reference",
            "variable ../x: is not the name of a file",
            "variable gw_x: is not the name",
            "variable PPID: is read-only",
        ],
    );
    assert!(!told.join("\n").contains("secret"));
}
