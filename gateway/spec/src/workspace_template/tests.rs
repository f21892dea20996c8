use super::*;
use crate::devfile;
use crate::document::{Problems, Value, parse};

mod properties;

/// A devfile around the lines of a container.
const DEVFILE: &str = "devfile:\n  schemaVersion: 2.2.0\n  components:\n  - name: main\n    attributes: {gateway/inject-editor: true}\n    \
    container:\n      image: a\n";

fn template(parameters: &str, more: &str) -> Result<WorkspaceTemplate, Vec<Problem>> {
    WorkspaceTemplate::parse(format!("parameters:\n{parameters}{DEVFILE}{more}").as_bytes())
}

fn values(pairs: &[(&str, &str)]) -> ParameterValues {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Returns what is wrong with a file.
#[track_caller]
fn wrong(parameters: &str, more: &str) -> Vec<String> {
    template(parameters, more).unwrap_err().iter().map(ToString::to_string).collect()
}

/// Returns what is wrong with values.
#[track_caller]
fn refused(template: &WorkspaceTemplate, pairs: &[(&str, &str)]) -> Vec<String> {
    let faults = template.render(&values(pairs)).unwrap_err();
    faults.iter().map(|one| format!("{} {}", one.parameter, one.fault)).collect()
}

/// Returns the environment of the only container.
#[track_caller]
fn env(template: &WorkspaceTemplate, pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let rendered = template.render(&values(pairs)).unwrap();
    devfile::parse(rendered.devfile.as_bytes()).unwrap().components[0].env.clone()
}

/// A template with a text parameter in a variable of the environment, in the devfile's metadata and in a variable of the devfile.
fn texts() -> WorkspaceTemplate {
    let more = "      env:\n      - {name: A, value: '<{{parameters.a}}>'}\n      - {name: B, value: '{{own}}'}\n  metadata: {name: x, tags: \
        ['{{ parameters.a }}']}\n  variables: {own: 'own {{parameters.a}}'}\n";
    template("- {name: a, required: false}\n", more).unwrap()
}

#[test]
fn values_stand_inside_of_the_scalars_that_refer_to_them() {
    let found = env(&texts(), &[("a", "one")]);
    assert_eq!(found, [("A".to_owned(), "<one>".to_owned()), ("B".to_owned(), "own one".to_owned())]);
    assert_eq!(env(&texts(), &[])[0].1, "<>");
}

#[test]
fn hostile_values_arrive_letter_for_letter_and_change_nothing_else() {
    for value in [
        "\"",
        "'",
        "\\",
        "\n- {name: evil, value: x}\n",
        "x\"}\n  - name: evil\n",
        "{{own}}",
        "{{parameters.a}}",
        "{{",
        "}}",
        "{",
        "&x *x",
        "*x",
        "!!int 1",
        "| \n x",
        "#",
        " # x",
        ": ",
        "- ",
        "---\n",
        "...",
        "\t",
        "\r\n",
        "\u{85}",
        "\u{2028}",
        "\u{feff}",
        "\u{1b}[0m",
        "\u{7f}",
        "null",
        "true",
        "1",
        "~",
        "<<: ",
        "%YAML",
        "@",
        "`",
        "${HOME}",
        "$(id)",
    ] {
        let found = env(&texts(), &[("a", value)]);
        assert_eq!(found[0].1, format!("<{value}>"), "{value:?}");
        assert_eq!(found[1].1, format!("own {value}"), "{value:?}");
        assert_eq!(found.len(), 2, "{value:?}");
    }
    // A half of a reference in a value, and the other half behind it, are no reference.
    let split = template(
        "- {name: a, required: false}\n",
        "      env: [{name: A, value: '{{parameters.a}}{own}}'}]\n  variables: {own: x}\n",
    );
    assert_eq!(env(&split.unwrap(), &[("a", "{")])[0].1, "{{own}}");
}

#[test]
fn values_have_a_length_and_no_end_of_text() {
    let template = texts();
    let long = "x".repeat(VALUE_BYTES_MAX);
    assert_eq!(env(&template, &[("a", &long)])[0].1.len(), VALUE_BYTES_MAX + 2);
    assert_eq!(refused(&template, &[("a", &format!("{long}x"))]), ["a is longer than 4096 bytes"]);
    assert_eq!(refused(&template, &[("a", &"x".repeat(64 * 1024))]), ["a is longer than 4096 bytes"]);
    assert_eq!(refused(&template, &[("a", "x\0")]), ["a holds U+0000, which no value can"]);
    let names: Vec<String> = (0..5).map(|number| format!("p{number}")).collect();
    let parameters: String = names.iter().map(|name| format!("- {{name: {name}}}\n")).collect();
    let all: String = names.iter().map(|name| format!("{{{{parameters.{name}}}}}")).collect();
    let many = self::template(&parameters, &format!("      env: [{{name: A, value: '{all}'}}]\n")).unwrap();
    let pairs: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), long.as_str())).collect();
    assert_eq!(refused(&many, &pairs), [" are longer than 16384 bytes together"]);
}

#[test]
fn repeated_references_cannot_grow_a_devfile_beyond_its_bound() {
    let many = "{{parameters.a}}".repeat(1000);
    let template = template("- {name: a}\n", &format!("      env: [{{name: A, value: '{many}'}}]\n")).unwrap();
    let rendered = template.render(&values(&[("a", &"x".repeat(VALUE_BYTES_MAX))])).unwrap();
    let problems = devfile::parse(rendered.devfile.as_bytes()).unwrap_err();
    assert!(problems.to_string().contains("larger than 3 MiB with its variables put in"), "{problems}");
}

#[test]
fn each_kind_takes_its_values_and_no_other() {
    let template = template(
        "- {name: text}\n- {name: size, options: [small, 2]}\n- {name: tag, pattern: '[a-z]+(\\.[a-z]+)?'}\n- {name: count, kind: number}\n\
         - {name: flag, kind: boolean, required: true}\n",
        "      env: [{name: A, value: '{{parameters.text}}{{parameters.size}}{{parameters.tag}}{{parameters.count}}{{parameters.flag}}'}]\n",
    )
    .unwrap();
    let good = [("text", "t"), ("size", "2"), ("tag", "a.b"), ("count", "-0.5"), ("flag", "true")];
    assert_eq!(env(&template, &good)[0].1, "t2a.b-0.5true");
    assert_eq!(
        refused(&template, &[]),
        ["text is missing", "size is missing", "tag is missing", "count is missing", "flag is missing"]
    );
    let bad = [("text", ""), ("size", "large"), ("tag", "a.b\n"), ("count", "1e3"), ("flag", "yes"), ("more", "x")];
    assert_eq!(
        refused(&template, &bad),
        [
            "text is missing",
            "size has to be one of: small, 2",
            "tag has to match the pattern [a-z]+(\\.[a-z]+)?",
            "count has to be a decimal number, such as 4, -1 or 0.5",
            "flag has to be true or false",
            "more is no parameter of the template",
        ]
    );
    for number in ["", "+1", "1.", ".5", "0x1", "١", "--1", "1 ", &"1".repeat(33)] {
        let found = refused(&template, &[&good[..3], &[("count", number), ("flag", "false")]].concat());
        assert!(found[0].starts_with("count "), "{number}: {found:?}");
    }
}

#[test]
fn value_that_is_left_out_is_the_default_and_an_empty_one_is_none() {
    let template = template(
        "- {name: a, default: main}\n- {name: b, default: 3000, kind: number}\n- {name: c, kind: boolean}\n- {name: d, required: false, options: [x]}\n\
         - {name: e, default: true, kind: boolean}\n- {name: f, default: x, required: true}\n",
        "      env: [{name: A, value: '{{parameters.a}} {{parameters.b}} {{parameters.c}} {{parameters.d}} {{parameters.e}} {{parameters.f}}'}]\n",
    )
    .unwrap();
    assert_eq!(env(&template, &[])[0].1, "main 3000 false  true x");
    assert_eq!(env(&template, &[("a", ""), ("c", ""), ("d", "x")])[0].1, " 3000 false x true x");
    assert_eq!(
        refused(&template, &[("b", ""), ("f", "")]),
        ["b has to be a decimal number, such as 4, -1 or 0.5", "f is missing"]
    );
    let rendered = template.render(&values(&[("a", "x")])).unwrap();
    let all = values(&[("a", "x"), ("b", "3000"), ("c", "false"), ("d", ""), ("e", "true"), ("f", "x")]);
    assert_eq!(rendered.values, all);
}

#[test]
fn numbers_and_truths_become_some_where_a_devfile_wants_them() {
    let more = "      cpuLimit: '{{parameters.count}}'\n      endpoints:\n      - {name: web, targetPort: '{{parameters.count}}', secure: '{{parameters.flag}}'}\n\
        \x20     env: [{name: A, value: '{{parameters.count}}{{parameters.flag}}'}]\n";
    let template = template("- {name: count, kind: number}\n- {name: flag, kind: boolean}\n", more).unwrap();
    let rendered = template.render(&values(&[("count", "3000"), ("flag", "true")])).unwrap();
    let main = devfile::parse(rendered.devfile.as_bytes()).unwrap().components.remove(0);
    assert_eq!((main.endpoints[0].target_port, main.endpoints[0].secure), (3000, true));
    assert_eq!((main.cpu_limit.as_deref(), main.env[0].1.as_str()), (Some("3000"), "3000true"));
    let rendered = template.render(&values(&[("count", "-1")])).unwrap();
    let problems = devfile::parse(rendered.devfile.as_bytes()).unwrap_err().to_string();
    assert!(problems.contains("targetPort: must be a whole number"), "{problems}");
}

/// Keys that rendering knows are those that a devfile reads so.
#[test]
fn keys_of_numbers_and_truths_are_those_of_devfiles() {
    let text = "schemaVersion: 2.2.0\ncomponents:\n- name: main\n  attributes: {gateway/inject-editor: x, overrideCommand: x}\n  container:\n    image: a\n    \
        endpoints: [{name: web, targetPort: x, secure: x}]\n- {name: v, volume: {ephemeral: x}}\n- {name: other, attributes: {gl/inject-editor: x}, \
        container: {image: b}}\ncommands: [{id: c, exec: {component: main, commandLine: x, hotReloadCapable: x}}]\n";
    let problems = devfile::parse(text.as_bytes()).unwrap_err().0;
    let keys = |message: &str| {
        let mut keys: Vec<_> = problems
            .iter()
            .filter(|problem| problem.message.starts_with(message))
            .map(|problem| problem.path.rsplit('.').next().unwrap().to_owned())
            .collect();
        keys.sort();
        keys
    };
    let sorted = |known: &[&str]| {
        let mut known: Vec<_> = known.iter().map(|key| (*key).to_owned()).collect();
        known.sort();
        known
    };
    assert_eq!(keys("must be a whole number"), sorted(&devfile::NUMBER_KEYS), "{problems:?}");
    assert_eq!(keys("must be true or false"), sorted(&devfile::BOOLEAN_KEYS), "{problems:?}");
}

#[test]
fn projects_editor_and_idle_time_are_defaults_with_values_in_them() {
    let more = "projects:\n- {url: 'https://git.example/{{parameters.repo}}.git', ref: '{{parameters.branch}}'}\n- {url: https://git.example/lib.git}\n\
        editor: none\nidle_minutes: 0\n";
    let template = template("- {name: repo}\n- {name: branch, required: false}\n", more).unwrap();
    let rendered = template.render(&values(&[("repo", "app"), ("branch", "main")])).unwrap();
    let project =
        |url: &str, reference: Option<&str>| Project { url: url.to_owned(), reference: reference.map(str::to_owned) };
    let lib = project("https://git.example/lib.git", None);
    assert_eq!(rendered.projects, [project("https://git.example/app.git", Some("main")), lib.clone()]);
    assert_eq!((rendered.editor.as_deref(), rendered.idle), (Some("none"), IdleLimit::Off));
    let rendered = template.render(&values(&[("repo", "app")])).unwrap();
    assert_eq!(rendered.projects, [project("https://git.example/app.git", None), lib]);
    assert_eq!(
        refused(&template, &[("repo", "a b"), ("branch", "--upload-pack=id")]),
        [
            "repo makes a project that is no URL of a web server",
            "branch makes a project that the reference is no name of a branch or tag"
        ]
    );
}

#[test]
fn mistakes_of_a_file_are_told_all_at_once_with_their_places() {
    let found = wrong(
        "- {name: a, default: x, options: [y]}\n- {name: a}\n- {name: 1a}\n- {name: b, kind: list}\n- {name: c, pattern: '('}\n- {name: d, kind: number, pattern: x}\n\
         - {name: e, more: 1}\n- {title: f}\n- {name: g, kind: number, default: x}\n",
        "      env: [{name: A, value: '{{parameters.a}} {{parameters.none}}'}, {name: '{{parameters.b}}', '{{parameters.c}}': x}]\n\
         \x20 variables: {parameters.x: y}\nmore: 1\n",
    );
    let expected = [
        "parameters[0].default: cannot be the default: it has to be one of: y",
        "parameters[1].name: is there twice: \"a\"",
        "parameters[2].name: must begin with a letter",
        "parameters[3].kind: must be text, number or boolean, not \"list\"",
        "parameters[4].pattern: is no regular expression: ",
        "parameters[5].pattern: does not go with another rule",
        "parameters[6].more: unknown key",
        "parameters[7].name: is missing",
        "parameters[8].default: cannot be the default: it has to be a decimal number",
        "refers to the parameter \"none\", which there is not",
        "a key cannot hold a parameter",
        "must not begin with parameters.",
        "more: unknown key; known here: title, description, parameters, devfile, projects, editor, idle_minutes",
        "parameters[5]: is used nowhere: write {{parameters.d}}",
    ];
    for part in expected {
        assert!(found.iter().any(|one| one.contains(part)), "{part}: {found:#?}");
    }
}

#[test]
fn references_that_are_misspelt_or_misplaced_are_mistakes() {
    for (text, part) in [
        ("{{parameters.a b}}", "is written {{parameters.NAME}}"),
        ("{{ parameters.}}", "refers to the parameter \"\""),
        ("{{parameters.a", "is written {{parameters.NAME}}"),
        ("{{parameters.A}}", "refers to the parameter \"A\""),
        ("{{parameters.a.b}}", "refers to the parameter \"a.b\""),
    ] {
        let found =
            wrong("- {name: a}\n", &format!("      env: [{{name: A, value: '{text} {{{{parameters.a}}}}'}}]\n"));
        assert!(found.len() == 1 && found[0].contains(part), "{text}: {found:?}");
    }
    for text in ["{{ .Values.parameters }}", "{{parameter}}", "parameters.a"] {
        let more =
            format!("      env: [{{name: A, value: '{{{{parameters.a}}}} {text}'}}]\n  variables: {{parameter: x}}\n");
        assert!(template("- {name: a}\n", &more).is_ok(), "{text}");
    }
}

#[test]
fn numbers_of_parameters_and_options_are_bounded() {
    let many = |count: usize| (0..count).map(|number| format!("- {{name: p{number}}}\n")).collect::<String>();
    let used: String = (0..33).map(|number| format!("{{{{parameters.p{number}}}}}")).collect();
    let found = wrong(&many(33), &format!("      env: [{{name: A, value: '{used}'}}]\n"));
    assert!(found.iter().any(|one| one.contains("are 33, and a template has at most 32 parameters")), "{found:?}");
    let options: Vec<String> = (0..65).map(|number| format!("o{number}")).collect();
    let found = wrong(
        &format!("- {{name: a, options: [{}]}}\n", options.join(", ")),
        "      env: [{name: A, value: '{{parameters.a}}'}]\n",
    );
    assert!(found[0].contains("must be 1 to 64 texts"), "{found:?}");
    let found =
        wrong("- {name: a, pattern: '(x{1000}){1000}'}\n", "      env: [{name: A, value: '{{parameters.a}}'}]\n");
    assert!(found[0].contains("is too large when it is compiled"), "{found:?}");
    let large = format!("title: {}\n", "x".repeat(TEMPLATE_BYTES_MAX));
    assert!(WorkspaceTemplate::parse(large.as_bytes()).unwrap_err()[0].message.contains("larger than 256 KiB"));
}

#[test]
fn devfile_of_a_file_is_checked_with_the_defaults_where_there_are_some() {
    let found = wrong("- {name: a, default: x}\n", "      memoryLimit: '{{parameters.a}}'\n");
    assert!(
        found.len() == 1 && found[0].contains("line 10, devfile.components[0].container.memoryLimit: "),
        "{found:?}"
    );
    let found = wrong("", "      no: 1\n");
    assert!(found[0].contains("devfile.components[0].container.no: unknown key"), "{found:?}");
    // What a user is to say is not known yet.
    assert!(template("- {name: a}\n", "      memoryLimit: '{{parameters.a}}'\n").is_ok());
    assert!(WorkspaceTemplate::parse(b"devfile: 1\n").is_err());
    assert!(WorkspaceTemplate::parse(b"title: x\n").unwrap_err()[0].to_string().contains("devfile: is missing"));
}
