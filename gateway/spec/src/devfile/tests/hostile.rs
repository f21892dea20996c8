//! Files of people who mean harm: each ends in a named problem, or in a devfile that keeps every rule.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::syntax::is_dns_label;

/// What shells, YAML and Kubernetes make something of.
const NASTY: [&str; 14] = [
    "$(reboot)",
    "`id`",
    "; rm -rf /",
    "&& x",
    "| x",
    "> /etc/x",
    "' x",
    "\" x",
    "${HOME}",
    "$(A)",
    "-rf",
    "../../x",
    "#",
    "\\\n",
];

#[test]
fn alias_bomb_is_refused_by_name() {
    let mut bomb = format!("{SMALL}attributes:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        writeln!(bomb, "  a{level}: &a{level} [{aliases}]").unwrap();
    }
    check(&bomb, &["line 12: the file has more than 50000 values, counting what its aliases repeat"]);
}

#[test]
fn file_of_more_than_3_mib_is_refused_before_it_is_read() {
    let text = format!("{SMALL}# {}\n", "x".repeat(DEVFILE_BYTES_MAX));
    check(&text, &["the file is larger than 3 MiB"]);
    let room = DEVFILE_BYTES_MAX - SMALL.len() - 2;
    check(&format!("{SMALL}# {}", "x".repeat(room)), &[]);
}

#[test]
fn deep_nesting_is_refused_by_name() {
    let deep = "line 7: lists and maps nest deeper than 32 levels";
    check_with(&format!("attributes: {{a: {}}}", "[".repeat(1000)), &[deep]);
    check_with(&format!("attributes: {}", "{a: ".repeat(500_000)), &[deep]);
    let lists = format!("attributes:\n  a:\n  {}", "- ".repeat(500_000));
    check_with(&lists, &["line 9: lists and maps nest deeper than 32 levels"]);
}

#[test]
fn long_files_of_one_thing_repeated_are_refused_in_time_that_grows_with_them() {
    // What took the square of it would not end here.
    let long = DEVFILE_BYTES_MAX / 16;
    for piece in [
        "[",
        "]",
        "{",
        "}",
        "[a,",
        "{a: ",
        "- ",
        "? ",
        ": ",
        "a: ",
        "a: b\n",
        "&a ",
        "*a ",
        "!a ",
        "!!str ",
        "'",
        "\"",
        "\\",
        "#",
        "# \n",
        "\n",
        " ",
        "\t",
        "\r",
        "|\n",
        ">\n ",
        "%",
        "%A b\n",
        "---\n",
        "...\n",
        "{{",
        "}}",
        "x",
        "ä",
        "\u{feff}",
        ",",
        "[[]",
        "- a\n",
        "<<: ",
        "? a\n: b\n",
        "a:\n ",
        "- - \n",
        "\u{2028}",
        "{a,",
        "'' ",
    ] {
        for head in ["", "schemaVersion: ", "variables: {a: b}\nattributes: \"", "components:\n- ", "attributes: ["] {
            let text = format!("{head}{}", piece.repeat(long / piece.len()));
            assert!(parse(text.as_bytes()).is_err(), "{head}{piece}");
        }
    }
}

#[test]
fn variables_cannot_make_a_file_grow_without_bound() {
    let references = "{{a}}".repeat(10_000);
    let text =
        format!("{SMALL}    env: [{{name: A, value: '{references}'}}]\nvariables: {{a: '{}'}}\n", "x".repeat(1_000));
    check(
        &text,
        &["line 7, components[0].container.env[0].value: the file is larger than 3 MiB with its variables put in"],
    );
    let doubled: String =
        (1..100).map(|level| format!("  v{level}: '{{{{v{}}}}}{{{{v{}}}}}'\n", level - 1, level - 1)).collect();
    check_with(&format!("    args: []\nvariables:\n  v0: x\n{doubled}"), &[]);
}

#[test]
fn second_document_is_refused() {
    check_with("---\nschemaVersion: 2.2.0\n", &["line 7: the file holds more than one YAML document"]);
    check(&format!("---\n{SMALL}...\n"), &[]);
}

#[test]
fn duplicate_keys_are_all_told() {
    check_with(
        "    image: evil\nschemaVersion: 2.2.0\n",
        &[
            "line 7, components[0].container.image: is there twice; the first is on line 6",
            "line 8, schemaVersion: is there twice; the first is on line 1",
        ],
    );
}

#[test]
fn shell_metacharacters_are_refused_in_names_and_arrive_unchanged_in_lines() {
    for nasty in NASTY {
        let quoted = serde_json::to_string(nasty).unwrap();
        for (lines, places) in [
            (format!("- {{name: {quoted}, volume: {{}}}}\n"), 1),
            (format!("    endpoints: [{{name: {quoted}, targetPort: 80}}]\n"), 1),
            (format!("    env: [{{name: {quoted}, value: x}}]\n"), 1),
            (format!("commands:\n- {{id: {quoted}, apply: {{component: {quoted}}}}}\n"), 2),
            (format!("events: {{postStart: [{quoted}]}}\n"), 1),
            (format!("    volumeMounts: [{{name: {quoted}}}]\n"), 1),
            (format!("    image: {quoted}\n").replace("    image", "- name: b\n  container:\n    image"), 1),
            (format!("    memoryLimit: {quoted}\n"), 1),
            (format!("    endpoints: [{{name: a, targetPort: 80, protocol: {quoted}}}]\n"), 1),
        ] {
            let told = told(&format!("{SMALL}{lines}"));
            assert_eq!(told.len(), places, "{lines}{told:?}");
        }
        let text = format!(
            "{SMALL}    env: [{{name: A, value: {quoted}}}]\n- name: b\n  container: {{image: c, command: \
             [{quoted}], args: [{quoted}]}}\n\
             commands:\n- {{id: a, exec: {{component: main, commandLine: {quoted}}}}}\n"
        );
        let devfile = parse(text.as_bytes()).unwrap();
        assert_eq!(devfile.components[0].env[0].1, nasty);
        assert_eq!((devfile.components[1].command[0].as_str(), devfile.components[1].args[0].as_str()), (nasty, nasty));
        let CommandKind::Exec { command_line, .. } = &devfile.commands[0].kind else { panic!("an exec") };
        assert_eq!(command_line, nasty);
    }
}

#[test]
fn bytes_that_no_process_or_database_can_hold_are_refused() {
    check_with(
        "    env: [{name: A, value: \"a\\0b\"}]\n",
        &["line 7, components[0].container.env[0].value: holds U+0000, which no argument, file name or variable \
             can hold"],
    );
    let problems = parse(b"schemaVersion: \"\xe4\"\n").unwrap_err();
    assert_eq!(problems.to_string(), "line 1: the file is not UTF-8 text");
}

#[test]
fn ten_thousand_mistakes_are_told_as_a_hundred() {
    let lines: String = (0..10_000).map(|number| format!("x{number}: 1\n")).collect();
    let problems = parse(format!("{SMALL}{lines}").as_bytes()).unwrap_err().0;
    assert_eq!(problems.len(), 101);
    assert_eq!(problems[100].to_string(), "and 9900 more problems");
}

/// What every devfile that is accepted keeps, whatever it was read from.
fn keeps_the_rules(devfile: &Devfile) {
    assert_eq!(devfile.components.iter().filter(|component| component.is_main).count(), 1);
    let mut names: Vec<_> = devfile.components.iter().map(|component| component.name.as_str()).collect();
    names.extend(devfile.volumes.iter().map(|volume| volume.name.as_str()));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    let mut ports: Vec<_> =
        devfile.components.iter().flat_map(|it| it.endpoints.iter().map(|it| it.target_port)).collect();
    let count = ports.len();
    ports.sort_unstable();
    ports.dedup();
    assert!(ports.len() == count && ports.iter().all(|port| ![0, EDITOR_PORT].contains(port)));
    let ids = devfile.commands.iter().map(|command| command.id.as_str());
    assert!(names.into_iter().chain(ids.clone()).all(|name| is_dns_label(name) && !name.starts_with("gw-")));
    for component in &devfile.components {
        assert!(!component.image.is_empty());
        assert!(!component.override_command || (component.command.is_empty() && component.args.is_empty()));
        for mount in &component.volume_mounts {
            assert!(devfile.volumes.iter().any(|volume| volume.name == mount.name));
        }
    }
    for command in &devfile.commands {
        assert!(devfile.components.iter().any(|component| component.name == command.kind.component()));
    }
    for id in devfile.events.pre_start.iter().chain(&devfile.events.post_start) {
        assert!(ids.clone().any(|known| known == id));
    }
}

fn check_any(text: &[u8]) {
    let first = parse(text);
    match &first {
        Ok(devfile) => keeps_the_rules(devfile),
        Err(problems) => assert!(!problems.0.is_empty()),
    }
    assert_eq!(first, parse(text));
}

/// A change of the full file: at a place, so many bytes are replaced by something.
fn mutation() -> impl Strategy<Value = (prop::sample::Index, usize, Vec<u8>)> {
    let piece = prop::sample::select(vec![
        "",
        "\n",
        "  ",
        "- ",
        ": ",
        "{",
        "}",
        "[",
        "]",
        "'",
        "\"",
        "&a ",
        "*a",
        "*env",
        "<<: *env",
        "gw-",
        "main",
        "true",
        "0",
        "65536",
        "{{",
        "}}",
        "{{registry}}",
        "~",
        "!!str ",
        "|",
        "name: ",
        "container: {}",
        "\u{0}",
        "ä",
        "cache",
        "load",
    ]);
    let piece =
        prop_oneof![4 => piece.prop_map(|it| it.as_bytes().to_vec()), 1 => prop::collection::vec(any::<u8>(), 0..4)];
    (any::<prop::sample::Index>(), 0..12_usize, piece)
}

/// Lines of the full file, in another order or twice.
fn shuffled() -> impl Strategy<Value = String> {
    let lines: Vec<&str> = FULL.lines().collect();
    prop::collection::vec(prop::sample::select(lines), 0..80).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check_any(&bytes);
    }

    #[test]
    fn damaged_files_are_read_or_refused_and_the_same_each_time(changes in prop::collection::vec(mutation(), 1..4)) {
        let mut bytes = FULL.as_bytes().to_vec();
        for (place, removed, added) in changes {
            let begin = place.index(bytes.len());
            let end = (begin + removed).min(bytes.len());
            bytes.splice(begin..end, added);
        }
        check_any(&bytes);
    }

    #[test]
    fn shuffled_files_are_read_or_refused(text in shuffled()) {
        check_any(text.as_bytes());
    }
}
