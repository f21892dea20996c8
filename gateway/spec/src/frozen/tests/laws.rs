//! What holds for any devfile and configuration.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::*;
use super::{Site, read};
use crate::cluster_config::{Amounts, Resources};
use crate::devfile;

/// Text with everything that means something to a shell, to YAML or to JSON.
fn hostile() -> impl Strategy<Value = String> {
    "[ -~é\u{1f600}\n\t]{0,40}|[$`'\"\\\\;&|<>(){}\n#!*?~ ]{1,12}".prop_filter("a line", |line| !line.is_empty())
}

fn component(number: usize) -> impl Strategy<Value = Value> {
    let env = prop::collection::btree_map("[A-F][A-Z0-9_]{0,6}", hostile(), 0..4);
    let endpoints = prop::collection::btree_set(1_u16..60000, 0..3);
    let amounts = prop::sample::select(vec![None, Some("100m"), Some("1"), Some("2")]);
    let exposure = prop::sample::select(vec!["public", "internal", "none"]);
    let words = prop::collection::vec(hostile(), 0..3);
    (env, endpoints, amounts, exposure, words, any::<bool>(), 0..3_usize).prop_map(
        move |(env, ports, cpu, exposure, words, overrides, volumes)| {
            let list: Vec<_> = env.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
            // Ports are for the whole file: each component has its own part of them.
            let endpoint = |port: u16| {
                let port = port / 4 * 4 + u16::try_from(number).expect("a few") + 1;
                json!({"name": format!("e{number}-{port}"), "targetPort": port, "exposure": exposure})
            };
            let mut endpoints: Vec<_> = ports.into_iter().map(endpoint).collect();
            endpoints.dedup();
            let mut container = json!({"image": "registry.example.com/a:1", "env": list, "endpoints": endpoints});
            if let Some(cpu) = cpu {
                container["cpuLimit"] = json!(cpu);
            }
            if !overrides {
                container["args"] = json!(words);
            }
            container["volumeMounts"] = (0..volumes).map(|volume| json!({"name": format!("v{volume}")})).collect();
            let mut attributes = json!({"overrideCommand": overrides});
            if number == 0 {
                attributes["gateway/inject-editor"] = json!(true);
            }
            json!({"name": format!("c{number}"), "attributes": attributes, "container": container})
        },
    )
}

fn command(number: usize) -> impl Strategy<Value = Value> {
    let folder = prop::option::of("[ -~]{1,20}");
    (0..3_usize, hostile(), folder).prop_map(move |(component, line, folder)| {
        let mut exec = json!({"component": format!("c{component}"), "commandLine": line});
        if let Some(folder) = folder {
            exec["workingDir"] = json!(folder);
        }
        json!({"id": format!("x{number}"), "exec": exec})
    })
}

fn any_devfile() -> impl Strategy<Value = Value> {
    let components = (component(0), component(1), component(2));
    let commands = (command(0), command(1), command(2));
    let events = prop::collection::btree_set(0..3_usize, 0..=3);
    let volumes = prop::collection::vec((prop::option::of("[1-9]Gi"), any::<bool>()), 3);
    (components, commands, events, volumes).prop_map(|((a, b, c), (x, y, z), events, volumes)| {
        let mut components = vec![b, a, c];
        components.extend(volumes.into_iter().enumerate().map(|(number, (size, ephemeral))| {
            let mut volume = json!({"ephemeral": ephemeral});
            if let Some(size) = size {
                volume["size"] = json!(size);
            }
            json!({"name": format!("v{number}"), "volume": volume})
        }));
        let after: Vec<_> = events.into_iter().map(|number| format!("x{number}")).collect();
        json!({"schemaVersion": "2.2.0", "components": components, "commands": [x, y, z], "events": {"postStart": after}})
    })
}

fn any_config() -> impl Strategy<Value = ClusterConfig> {
    let labels = prop::collection::btree_map("[a-z]{1,6}", "[a-z0-9]{1,6}", 0..3);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (labels.clone(), labels, flags).prop_map(|(labels, annotations, (policy, users, bounded, shared))| {
        let amounts = |cpu: &str, memory: &str| Amounts { cpu: cpu.to_owned(), memory: memory.to_owned() };
        let resources = Resources { requests: amounts("1", "1Gi"), limits: amounts("2", "2Gi") };
        let most = Resources { requests: amounts("16", "16Gi"), limits: amounts("32", "32Gi") };
        let mut config = ClusterConfig {
            labels,
            annotations,
            user_namespaces: users,
            allow_privilege_escalation: users,
            default_resources: bounded.then_some(resources),
            max_resources: (bounded && !shared).then_some(most),
            shared_namespace: shared.then(|| "ws-mine".to_owned()),
            ..super::config()
        };
        config.network_policy.enabled = policy;
        config
    })
}

/// The same value with its keys in another order, where the map keeps one, and spelled as PostgreSQL does.
fn respelled(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut turned = Map::new();
            members.iter().rev().for_each(|(key, member)| {
                turned.insert(key.clone(), respelled(member));
            });
            Value::Object(turned)
        }
        Value::Array(items) => items.iter().map(respelled).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Checks that keys are sorted at every depth, in the text itself: a parser would sort them.
fn keys_are_sorted(text: &str) -> bool {
    let mut open: Vec<Option<String>> = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        match first {
            '{' | '[' => open.push(None),
            '}' | ']' => drop(open.pop()),
            '"' => {
                let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<String>();
                let word = stream.next().expect("a text").expect("a text");
                let end = stream.byte_offset();
                if rest[end..].starts_with(':') {
                    let before = open.last_mut().expect("an object");
                    if before.as_ref().is_some_and(|before| *before >= word) {
                        return false;
                    }
                    *before = Some(word);
                }
                rest = &rest[end..];
                continue;
            }
            ' ' | '\n' => return false,
            _ => {}
        }
        rest = &rest[first.len_utf8()..];
    }
    true
}

proptest! {
    #[test]
    fn same_input_makes_the_same_bytes_however_they_were_stored(devfile in any_devfile(), config in any_config()) {
        let site = Site::new("mine");
        let frozen = freeze(&read(&devfile), &config, &site.facts()).expect("frozen");
        let bytes = frozen.to_json();
        prop_assert!(keys_are_sorted(&bytes));
        let again = ClusterConfig::from_json(&config.to_json()).expect("a configuration");
        prop_assert_eq!(&freeze(&read(&devfile), &again, &site.facts()).expect("frozen").to_json(), &bytes);
        prop_assert_eq!(&FrozenConfig::from_json(&bytes).expect("accepted").to_json(), &bytes);
        let value: Value = serde_json::from_str(&bytes).expect("JSON");
        let stored = serde_json::to_string_pretty(&respelled(&value)).expect("JSON");
        let read_back = FrozenConfig::from_json(&stored).expect("accepted");
        prop_assert_eq!(&read_back.to_json(), &bytes);
        prop_assert_eq!(read_back, frozen);
    }

    #[test]
    fn devfiles_lines_and_words_arrive_as_they_are(devfile in any_devfile(), config in any_config()) {
        let site = Site::new("mine");
        let devfile = read(&devfile);
        let frozen = freeze(&devfile, &config, &site.facts()).expect("frozen");
        let scripts = &frozen.objects().iter().find(|object| object.role == Role::Scripts).expect("scripts").value["data"];
        for id in &devfile.events.post_start {
            let command = devfile.commands.iter().find(|command| command.id == *id).expect("a command");
            if let devfile::CommandKind::Exec { command_line, .. } = &command.kind {
                prop_assert_eq!(scripts[format!("command-{id}")].as_str(), Some(command_line.as_str()));
            }
        }
        let deployment = &frozen.objects()[1].value;
        let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().expect("containers");
        for (component, container) in devfile.components.iter().zip(containers) {
            prop_assert_eq!(container["name"].as_str(), Some(component.name.as_str()));
            // Where Kubernetes puts variables in, which is not everywhere: see `frozen::expansion`.
            let written = |text: &String| text.replace('$', "$$");
            let args: Vec<_> = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            prop_assert_eq!(args, component.args.iter().map(written).collect::<Vec<_>>());
            let variables = container["env"].as_array().expect("variables");
            let own = variables.len() - component.env.len();
            for ((name, value), variable) in component.env.iter().zip(&variables[own..]) {
                prop_assert_eq!(variable, &json!({"name": name, "value": written(value)}));
            }
        }
    }

    #[test]
    fn any_change_of_a_stored_config_is_refused_or_a_config_again(
        devfile in any_devfile(),
        place in any::<prop::sample::Index>(),
        with in prop::sample::select(vec![json!(null), json!(0), json!(""), json!([]), json!({}), json!("mine"), json!([null])]),
    ) {
        let site = Site::new("mine");
        let frozen = freeze(&read(&devfile), &super::config(), &site.facts()).expect("frozen");
        let mut value: Value = serde_json::from_str(&frozen.to_json()).expect("JSON");
        let mut pointers = Vec::new();
        collect(&value, String::new(), &mut pointers);
        *value.pointer_mut(&pointers[place.index(pointers.len())]).expect("a place") = with;
        if let Ok(accepted) = FrozenConfig::from_json(&value.to_string()) {
            let bytes = accepted.to_json();
            prop_assert_eq!(FrozenConfig::from_json(&bytes).expect("accepted").to_json(), bytes);
        }
    }
}

/// Lists the places in a value.
fn collect(value: &Value, at: String, pointers: &mut Vec<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(key, member)| {
            collect(member, format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), pointers);
        }),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| collect(item, format!("{at}/{index}"), pointers));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    pointers.push(at);
}
