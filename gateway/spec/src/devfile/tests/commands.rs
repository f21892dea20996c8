//! What commands and events have to say.

use super::*;

const OTHER_COMMAND: &str = "is not supported: a command is an exec or an apply";

#[test]
fn commands_are_execs_and_applies_of_containers() {
    let with = |command: &str| format!("- {{name: v, volume: {{}}}}\ncommands:\n- {command}\n");
    check_with(
        &with("{id: a, exec: {component: main, commandLine: x, hotReloadCapable: false, label: l, workingDir: /}}"),
        &[],
    );
    check_with(&with("{id: a, apply: {component: main}}"), &[]);
    for (command, expected) in [
        ("{exec: {component: main, commandLine: x}}", ".id: is missing".to_owned()),
        ("{id: GW-a, exec: {component: main, commandLine: x}}", format!(".id: {RESERVED}")),
        ("{id: a b, exec: {component: main, commandLine: x}}", format!(".id: {LABEL} \"a b\"")),
        ("{id: a}", ": has no type: it must have an exec or an apply".to_owned()),
        (
            "{id: a, exec: {component: main, commandLine: x}, apply: {component: main}}",
            ": is an exec and an apply: it can be one of them".to_owned(),
        ),
        ("{id: a, composite: {}}", format!(".composite: {OTHER_COMMAND}")),
        (
            "{id: a, name: b, apply: {component: main}}",
            ".name: unknown key; known here: id, exec, apply, attributes".to_owned(),
        ),
        ("{id: a, exec: {commandLine: x}}", ".exec.component: is missing".to_owned()),
        ("{id: a, exec: {component: gw-x, commandLine: x}}", format!(".exec.component: {RESERVED}")),
        (
            "{id: a, exec: {component: x, commandLine: x}}",
            ".exec.component: no component has the name \"x\"".to_owned(),
        ),
        ("{id: a, apply: {component: v}}", ".apply.component: \"v\" is a volume, not a container".to_owned()),
        ("{id: a, exec: {component: main}}", ".exec.commandLine: is missing".to_owned()),
        ("{id: a, exec: {component: main, commandLine: ''}}", ".exec.commandLine: is empty".to_owned()),
        (
            "{id: a, exec: {component: main, commandLine: 1}}",
            ".exec.commandLine: must be text, and 1 is a number: put it in quotes".to_owned(),
        ),
        ("{id: a, exec: {component: main, commandLine: x, label: gw-x}}", format!(".exec.label: {RESERVED}")),
        (
            "{id: a, apply: {component: main, label: \"a\\nb\"}}",
            ".apply.label: must be one line of at most 256 characters".to_owned(),
        ),
        (
            "{id: a, exec: {component: main, commandLine: x, hotReloadCapable: true}}",
            ".exec.hotReloadCapable: must be false: nothing here starts a command again".to_owned(),
        ),
        (
            "{id: a, exec: {component: main, commandLine: x, workingDir: \"a\\nb\"}}",
            ".exec.workingDir: must be a path of one line and at most 4095 bytes".to_owned(),
        ),
        (
            "{id: a, exec: {component: main, commandLine: x, group: {}}}",
            ".exec.group: is not supported: commands run by events alone".to_owned(),
        ),
        (
            "{id: a, exec: {component: main, commandLine: x, env: []}}",
            ".exec.env: is not supported: set variables in the container, or in the line".to_owned(),
        ),
        (
            "{id: a, exec: {component: main, commandLine: x, line: y}}",
            ".exec.line: unknown key; known here: component, commandLine, label, workingDir, hotReloadCapable"
                .to_owned(),
        ),
        (
            "{id: a, apply: {component: main, commandLine: y}}",
            ".apply.commandLine: unknown key; known here: component, label".to_owned(),
        ),
        ("text", ": must be a map, not text".to_owned()),
    ] {
        check_with(&with(command), &[&format!("line 9, commands[0]{expected}")]);
    }
}

#[test]
fn commands_are_a_list_without_an_id_twice() {
    check_with(
        "commands:\n- {id: a, apply: {component: main}}\n- {id: a, apply: {component: main}}\n",
        &["line 9, commands[1].id: is the id of another command, on line 8"],
    );
    check_with("commands: {a: 1}\n", &["line 7, commands: must be a list, not a map"]);
}

#[test]
fn events_name_commands_that_can_run_then() {
    const COMMANDS: &str = "\
- {name: side, container: {image: c}}
commands:
- {id: run, exec: {component: main, commandLine: x}}
- {id: beside, exec: {component: side, commandLine: x}}
- {id: once, apply: {component: side}}
- {id: self, apply: {component: main}}
- {id: broken, exec: {component: main}}
events:
";
    let broken = "line 13, commands[4].exec.commandLine: is missing";
    for (events, expected) in [
        ("  {preStart: [once], postStart: [run]}", ""),
        ("  {postStart: [run, beside], preStop: [], postStop: }", ""),
        ("  {postStart: [broken]}", ""),
        ("  {postStart: [none]}", "postStart[0]: no command has the id \"none\""),
        ("  {postStart: [once]}", "postStart[0]: \"once\" is an apply: only exec commands can run after the start"),
        ("  {preStart: [run]}", "preStart[0]: \"run\" is an exec: only apply commands can run before the start"),
        ("  {preStart: [self]}", "preStart[0]: \"self\" applies the main component, which cannot end before the start"),
        (
            "  {preStart: [once], postStart: [beside]}",
            "postStart[0]: \"beside\" runs in a container that preStart applies, which has ended by then",
        ),
        ("  {postStart: [run, run]}", "postStart[1]: \"run\" is there twice; the first is on line 15"),
        ("  {postStart: [gw-start]}", "postStart[0]: must not begin with gw- or gw_, which are reserved"),
        ("  {postStart: [1]}", "postStart[0]: must be text, and 1 is a number: put it in quotes"),
        ("  {postStart: run}", "postStart: must be a list, not text"),
        ("  {preStop: [run]}", "preStop: is not supported: only preStart and postStart are"),
        ("  {postStop: [run]}", "postStop: is not supported: only preStart and postStart are"),
        ("  {onSave: [run]}", "onSave: unknown key; known here: preStart, postStart, preStop, postStop"),
    ] {
        let expected = format!("line 15, events.{expected}");
        let expected: &[&str] = if expected.ends_with("events.") { &[broken] } else { &[broken, &expected] };
        check_with(&format!("{COMMANDS}{events}\n"), expected);
    }
}
