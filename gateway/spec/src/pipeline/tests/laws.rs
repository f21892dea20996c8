//! What holds for any devfile: there are problems, or a definition that reads back and whose scripts say what the devfile says.

use proptest::prelude::*;

use super::files::unpack;
use super::*;
use crate::devfile::CommandKind;

/// Text with everything that means something to a shell, to YAML or to a CI system, and every other character too.
fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~é\u{1f600}\n\t]{1,40}",
        "[$`'\"\\\\;&|<>(){}\n\r#!*?~ -]{1,12}",
        "(\\$\\(A\\)|\\$\\$|\\$\\(B\\)|\\$[A-F]|\\$\\{A\\}|\\$\\[\\[ inputs.x \\]\\]|!reference \\[x\\]|a){1,5}",
        any::<String>().prop_filter("a line", |line| !line.is_empty()),
    ]
}

fn main_of(overrides: bool) -> impl Strategy<Value = Value> {
    let env = prop::collection::btree_map("[A-F][A-Z0-9_]{0,3}", hostile(), 0..5);
    let words = prop::collection::vec(hostile(), 0..3);
    let (command, ports) = (prop::collection::vec(hostile(), 0..2), prop::collection::btree_set(1_u16..60000, 0..3));
    (env, words, command, ports).prop_map(move |(env, args, command, ports)| {
        let env: Vec<_> = env.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let port = |port| json!({"name": format!("p{port}"), "targetPort": port});
        let endpoints: Vec<_> = ports.into_iter().map(port).collect();
        let mut container = json!({"env": env, "endpoints": endpoints});
        if !overrides {
            container["command"] = json!(command);
            container["args"] = json!(args);
        }
        let mut main = main_component(container);
        main["attributes"]["overrideCommand"] = json!(overrides);
        main
    })
}

fn side() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec!["E", "E", "KUBERNETES_SERVICE_MEMORY_LIMIT"]);
    (prop::collection::vec(hostile(), 0..2), name, prop_oneof!["[a-z]{1,4}", hostile()]).prop_map(
        |(args, name, value)| {
            let env = json!([{"name": name, "value": value}]);
            let container = json!({"image": "a:1", "args": args, "env": env, "memoryLimit": "1Gi"});
            json!({"name": "side", "container": container})
        },
    )
}

fn command(number: usize) -> impl Strategy<Value = Value> {
    let folder = prop::option::of("[ -~]{1,20}|/projects(/[ -~]{0,9})?");
    let component = prop::sample::select(vec!["main", "main", "main", "side"]);
    (component, hostile(), folder).prop_map(move |(component, line, folder)| {
        let mut exec = json!({"component": component, "commandLine": line});
        if let Some(folder) = folder {
            exec["workingDir"] = json!(folder);
        }
        json!({"id": format!("x{number}"), "exec": exec})
    })
}

fn any_devfile() -> impl Strategy<Value = Value> {
    let main = any::<bool>().prop_flat_map(main_of);
    let events = prop::collection::btree_set(0..3_usize, 0..=3);
    (main, prop::option::weighted(0.3, side()), (command(0), command(1), command(2)), events).prop_map(
        |(main, side, (x, y, z), events)| {
            let has_side = side.is_some();
            let components: Vec<_> = side.into_iter().chain([main]).collect();
            let known = |command: &Value| has_side || command["exec"]["component"] == "main";
            let commands: Vec<_> = [x, y, z].into_iter().filter(known).collect();
            let is_there = |id: &String| commands.iter().any(|command| command["id"] == **id);
            let after: Vec<_> = events.into_iter().map(|number| format!("x{number}")).filter(is_there).collect();
            json!({"schemaVersion": "2.2.0", "components": components, "commands": commands, "events": {"postStart": after}})
        },
    )
}

fn any_site() -> impl Strategy<Value = Site> {
    let project = prop::option::of(("[ -~]{0,20}", prop::option::of(hostile())));
    let tags = prop::collection::vec(hostile(), 0..2);
    let variables = prop::collection::vec((hostile(), any::<bool>()), 0..2);
    let odd = (project, tags, variables).prop_map(|(project, tags, variables)| Site {
        project: project.map(|(path, reference)| Project { url: format!("https://example.com/{path}"), reference }),
        tags,
        variables: variables.into_iter().map(|(name, is_file)| VariableName { name, is_file, bytes: 1 }).collect(),
        ..Site::default()
    });
    prop_oneof![3 => Just(()).prop_map(|()| Site::default()), 1 => odd]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_devfile_has_problems_or_becomes_what_it_says(text in any_devfile(), site in any_site()) {
        let Ok(devfile) = devfile::parse(text.to_string().as_bytes()) else { return Ok(()) };
        let Ok(Pipeline { yaml }) = generate(&devfile, &settings(), &site.facts()) else { return Ok(()) };
        let script = script_of(&yaml);
        prop_assert_eq!(&script, &script::text(&devfile, &settings(), &site.facts()));
        let main = devfile.components.iter().find(|component| component.is_main).unwrap();
        for words in shells() {
            let unpacked = unpack(&script, &words);
            for command in devfile.commands.iter().filter(|it| devfile.events.post_start.contains(&it.id)) {
                let CommandKind::Exec { command_line, .. } = &command.kind else { continue };
                prop_assert_eq!(&unpacked.read(&format!("command-{}", command.id)), command_line);
            }
            if site.variables.iter().all(|variable| variable.is_file) {
                let found = unpacked.environment(&words);
                for (name, value) in &main.env {
                    prop_assert_eq!(found.get(name), Some(value), "{} in {:?}", name, words);
                }
            }
            for name in ["settings.sh", "commands.sh", "agent.sh", "environment.sh", "job.sh"] {
                let checked = shell(&words, &unpacked.job).arg("-n").arg(unpacked.job.join(name)).output().unwrap();
                prop_assert!(checked.status.success(), "{} {:?}", name, checked);
            }
        }
    }
}
