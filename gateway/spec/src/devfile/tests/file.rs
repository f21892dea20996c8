//! What a file as a whole has to say.

use super::*;

const ONE_PROJECT: &str = "is not supported: a workspace is made for one project";
const OWN_POD: &str = "is not supported: the pod is made by the gateway's rules alone";

#[test]
fn small_file_keeps_every_rule() {
    check(SMALL, &[]);
}

#[test]
fn schema_version_has_to_be_the_one_that_is_read() {
    let rest = SMALL.strip_prefix("schemaVersion: 2.2.0\n").unwrap();
    check(rest, &["line 1, schemaVersion: is missing"]);
    check(&format!("schemaVersion:\n{rest}"), &["line 1, schemaVersion: is missing"]);
    check(
        &format!("schemaVersion: 2.2\n{rest}"),
        &["line 1, schemaVersion: must be text, and 2.2 is a number: put it in quotes"],
    );
    check(&format!("schemaVersion: [2.2.0]\n{rest}"), &["line 1, schemaVersion: must be text, not a list"]);
    check(
        &format!("schemaVersion: 2.1.0\n{rest}"),
        &["line 1, schemaVersion: must be 2.2.0, the version that is supported, not \"2.1.0\""],
    );
}

#[test]
fn top_of_the_file_has_what_workspaces_have() {
    check("", &["line 1: must be a map, not nothing"]);
    check("just text", &["line 1: must be a map, not text"]);
    check("[a]", &["line 1: must be a map, not a list"]);
    check_with("parent: {id: x}\n", &["line 7, parent: is not supported: a devfile has to say everything itself"]);
    check_with("projects: [{name: a}]\n", &[&format!("line 7, projects: {ONE_PROJECT}")]);
    check_with("starterProjects: []\n", &[&format!("line 7, starterProjects: {ONE_PROJECT}")]);
    check_with("dependentProjects: [{name: a}]\n", &[&format!("line 7, dependentProjects: {ONE_PROJECT}")]);
    check_with("attributes: {pod-overrides: {spec: {}}}\n", &[&format!("line 7, attributes.pod-overrides: {OWN_POD}")]);
    check_with("attributes: 1\n", &["line 7, attributes: must be a map, not a number"]);
    check_with("metadata: {name: [x], else: 1}\n", &["line 7, metadata.name: must be text, not a list"]);
    check_with("metadata: {name: \"a\\nb\"}\n", &["line 7, metadata.name: must be one line of at most 256 characters"]);
    check_with("metadata: x\n", &["line 7, metadata: must be a map, not text"]);
    check_with(
        "volumes: []\n",
        &["line 7, volumes: unknown key; known here: schemaVersion, metadata, variables, attributes, components, \
             commands, events"],
    );
    check_with("parent:\nprojects: ~\n", &[]);
}

#[test]
fn variables_are_put_in_once_and_have_to_be_there() {
    let devfile = parse(
        format!(
            "{SMALL}    env: [{{name: A, value: 'x{{{{ a }}}}{{{{b.c}}}}y'}}]\nvariables: {{a: '{{{{b.c}}}}', \
             b.c: 'z'}}\n"
        )
        .as_bytes(),
    )
    .unwrap();
    assert_eq!(devfile.components[0].env, [("A".to_owned(), "x{{b.c}}zy".to_owned())]);
    check_with(
        "    env: [{name: A, value: '{{a}}{{b}}{{a}}'}]\ncommands:\n- {id: '{{c}}', apply: {component: main}}\n",
        &[
            "line 7, components[0].container.env[0].value: refers to the variable \"a\", which is not defined",
            "line 7, components[0].container.env[0].value: refers to the variable \"b\", which is not defined",
            &format!("line 9, commands[0].id: {LABEL} \"{{{{c}}}}\""),
            "line 9, commands[0].id: refers to the variable \"c\", which is not defined",
        ],
    );
    let name =
        "must be a name of letters, digits, dots, dashes and underscores that begins with a letter or digit; it is";
    for (variables, expected) in [
        ("{gw-a: x}", format!("variables.gw-a: {RESERVED}")),
        ("{GW_a: x}", format!("variables.GW_a: {RESERVED}")),
        ("{'a b': x}", format!("variables.\"a b\": {name} \"a b\"")),
        ("{.a: x}", format!("variables.\".a\": {name} \".a\"")),
        ("{a: 1.10}", "variables.a: must be text, and 1.10 is a number: put it in quotes".to_owned()),
        ("{a: [x]}", "variables.a: must be text, not a list".to_owned()),
        ("[a]", "variables: must be a map, not a list".to_owned()),
    ] {
        check_with(&format!("variables: {variables}\n"), &[&format!("line 7, {expected}")]);
    }
}
