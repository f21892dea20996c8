mod properties;

use serde_json::json;

use super::*;
use crate::environment::facts::testing::info;

/// A namespace whose name and annotations the cases say.
fn namespace(lines: &str) -> String {
    format!("objects:\n  - apiVersion: v1\n    kind: Namespace\n    metadata:\n      name: a\n{lines}")
}

fn name() -> TemplateName {
    "custom".parse().unwrap()
}

fn parse(text: &str) -> Result<Template, Vec<String>> {
    Template::parse(&name(), text.as_bytes()).map_err(|problems| told(&problems))
}

fn told(problems: &[Problem]) -> Vec<String> {
    let place = |problem: &Problem| match (problem.line, problem.column) {
        (Some(line), Some(column)) => format!("{line}:{column}: "),
        (Some(_) | None, _) => String::new(),
    };
    let path = |problem: &Problem| if problem.path.is_empty() { String::new() } else { format!("{}: ", problem.path) };
    problems.iter().map(|problem| format!("{}{}{}", place(problem), path(problem), problem.message)).collect()
}

#[track_caller]
fn check_problems(text: &str, expected: &[&str]) {
    assert_eq!(
        parse(text).map(|template| template.text().to_owned()),
        Err(expected.iter().map(ToString::to_string).collect()),
        "{text}"
    );
}

fn render(text: &str, info: &TemplateVars) -> Result<RenderedTemplate, Vec<String>> {
    parse(text)?.render(info).map_err(|problems| told(&problems))
}

#[test]
fn built_in_template_makes_a_namespace_and_a_binding_for_its_jobs() {
    let rendered = Template::built_in().render(&info()).unwrap();
    assert_eq!((rendered.template.as_str(), rendered.deletion), ("default", Deletion::OnStop));
    let namespace = "review-feature-1-1q251u-42-7";
    assert_eq!(rendered.objects[0]["metadata"]["name"], namespace);
    assert_eq!(rendered.objects[1]["metadata"], json!({"name": format!("bind-{namespace}"), "namespace": namespace}));
    assert_eq!(rendered.objects[1]["subjects"][0]["name"], "gitlab:project_env:42:review-feature-1-1q251u");
    assert_eq!(rendered.objects[1]["roleRef"]["name"], "admin");
    assert_eq!(rendered.objects.len(), 2);
}

#[test]
fn names_of_templates_are_labels() {
    for good in ["default", "a", "review-app2"] {
        assert_eq!(good.parse::<TemplateName>().map(|name| name.to_string()).as_deref(), Ok(good));
    }
    for bad in ["", "A", "a.b", "../default", "a_b", "-a", &"a".repeat(64)] {
        assert_eq!(bad.parse::<TemplateName>(), Err(BadTemplateName), "{bad}");
    }
}

#[test]
fn unknown_variables_and_other_actions_are_told_with_line_and_column() {
    let known = variable::known();
    check_problems(
        &namespace(
            "      labels: {a: '{{ .no.such }}'}\n      annotations:\n        b: ä {{ .agent.id }} {{.agent}}\n",
        ),
        &[
            &format!("6:20: unknown variable \".no.such\"; known are {known}"),
            &format!("8:30: unknown variable \".agent\"; known are {known}"),
        ],
    );
    let unsupported = "is not supported: only variables such as {{ .environment.slug }}, comments {{/* … */}} and the trim \
                       markers {{- and -}} are";
    check_problems(
        &namespace("      labels: {a: '{{ len .agent.name }}{{ }}'}\n"),
        &[&format!("6:20: the action \"len .agent.name\" {unsupported}"), "6:41: the action is empty"],
    );
    check_problems("objects: [] # {{\n", &["1:15: the action has no end: }} is missing"]);
}

#[test]
fn missing_values_are_told_each_where_it_is_used_and_documented_defaults_are_none() {
    let mut bare = info();
    (bare.environment.tier, bare.user, bare.environment.url) = (None, None, None);
    (bare.ci_pipeline, bare.ci_job) = (None, None);
    let text = namespace(
        "      labels:\n        a: '{{ .environment.tier }}'\n        b: x {{ .user.id }}{{ .user.username }}\n",
    );
    assert_eq!(
        render(&text, &bare).unwrap_err(),
        [
            "7:13: .environment.tier has no value here",
            "8:14: .user.id has no value here",
            "8:28: .user.username has no value here"
        ]
    );
    assert!(render(&text, &info()).is_ok());
    // In a comment of YAML it is used, as in Go.
    assert_eq!(render("# {{ .user.id }}\nobjects: []\n", &bare).unwrap_err(), ["1:3: .user.id has no value here"]);
    let defaults =
        namespace("      labels: {a: '{{ .environment.url }}', b: {{ .ci_job.id }}, c: '{{ .ci_pipeline.id }}'}\n");
    let rendered = render(&defaults, &bare).unwrap();
    assert_eq!(rendered.objects[0]["metadata"]["labels"], json!({"a": "", "b": 0, "c": "0"}));
}

#[test]
fn places_are_those_of_the_file_whatever_was_trimmed() {
    let text = "{{- /* one\ntwo\nthree */ -}}\n\n\nobjects:\n  - name: '{{ .project.id -}}\n\n  x'\n    name: 2\n    name: 3\n";
    check_problems(
        text,
        &[
            "10:5: objects[0].name: is there twice; the first is on line 7",
            "11:5: objects[0].name: is there twice; the first is on line 7",
        ],
    );
    // Behind a variable, columns count its letters.
    check_problems(
        "objects: [{ {{ .project.id }}: 1, b: 2, b: 3}]\n",
        &["1:41: objects[0].b: is there twice; the first is on line 1"],
    );
}

#[test]
fn problems_speak_of_variables_and_never_of_what_stood_for_them() {
    let text = namespace("      labels: {'{{ .project.slug }}': 1, '{{ .project.slug }}': [*x]}\n");
    check_problems(
        &text,
        &[
            "6:66: objects[0].metadata.labels.\"{{ .project.slug }}\"[0]: repeats the anchor \"x\", which is not there before it",
        ],
    );
    check_problems(
        "objects: []\ndelete_resources: 'on_{{ .environment.slug }}'\n",
        &["2:19: delete_resources: must be on_stop or never; it is \"on_{{ .environment.slug }}\""],
    );
    for text in ["objects: [] # \u{f0000}", "objects: ['\u{ffffd}']"] {
        let told = parse(text).unwrap_err();
        assert!(told[0].contains("private-use"), "{told:?}");
    }
    for escape in ["\\U000F0001", "\\U000fffff", "\\uDB80\\uDC00"] {
        let told = parse(&namespace(&format!("      labels: {{a: \"{escape}\"}}\n")));
        assert_eq!(told.is_err(), escape != "\\U000fffff", "{escape}: {told:?}");
    }
}

#[test]
fn two_keys_that_become_one_are_an_error() {
    let text = namespace("      labels: {'a-{{ .project.id }}': x, 'a-{{ .agent.id }}': y}\n");
    assert!(render(&text, &info()).is_ok());
    let mut same = info();
    same.agent.id = same.project.id;
    assert_eq!(
        render(&text, &same).unwrap_err(),
        ["6:42: objects[0].metadata.labels.\"a-{{ .agent.id }}\": is there twice, now that the values are in"]
    );
}

#[test]
fn huge_output_is_refused_before_it_is_made() {
    let mut long = info();
    long.project.path = "p".repeat(1024);
    let many = "{{ .project.path }}".repeat(65);
    let told = render(&namespace(&format!("      labels: {{a: '{many}'}}\n")), &long).unwrap_err();
    assert_eq!(told, ["6:19: objects[0].metadata.labels.a: is more than 64 KiB, now that the values are in"]);
    let some = "{{ .project.path }}".repeat(60);
    let lines: String = (0..5).map(|line| format!("        a{line}: '{some}'\n")).collect();
    let told = render(&namespace(&format!("      labels:\n{lines}")), &long).unwrap_err();
    assert_eq!(
        told,
        ["11:13: objects[0].metadata.labels.a4: is more than 256 KiB with all before it, now that the values are in"]
    );
    // Aliases repeat what stands for values, and values count each time.
    let repeated = format!("objects:\n  - a: &a '{some}'\n    b: [*a, *a, *a, *a, *a, *a, *a]\n");
    assert!(render(&repeated, &long).unwrap_err()[0].contains("is more than 256 KiB"));
}

#[test]
fn files_above_their_bounds_are_refused() {
    check_problems(&format!("objects: []{}", " ".repeat(TEMPLATE_BYTES_MAX)), &["the file is larger than 64 KiB"]);
    let many = format!("objects:\n{}", "- {}\n".repeat(OBJECTS_MAX + 1));
    check_problems(&many, &["2:3: objects: has 101 objects, and must not have more than 100"]);
    assert!(parse(&format!("objects:\n{}", "- {}\n".repeat(OBJECTS_MAX))).is_ok());
    let deep = parse(&format!("objects: {}", "[".repeat(1000))).unwrap_err();
    assert!(deep.len() == 1 && deep[0].ends_with(": lists and maps nest deeper than 32 levels"), "{deep:?}");
    let long = "{{.user.id}}".repeat(TEMPLATE_BYTES_MAX / 12 - 2);
    assert!(parse(&format!("objects: [] #{long}")).is_ok(), "the most actions that a file can have");
}

#[test]
fn rendered_text_reads_back_and_actions_in_it_are_text() {
    let text =
        namespace("      annotations: {a: '{{ .environment.name }}', b: 1.5, c: ~, d: [true, 'no', \"x\\ny\"]}\n");
    let mut hostile = info();
    hostile.environment.name = "{{ .project.id }}: [\"'".to_owned();
    let rendered = render(&(text + "delete_resources: never\n"), &hostile).unwrap();
    assert_eq!(rendered.objects[0]["metadata"]["annotations"]["a"], "{{ .project.id }}: [\"'");
    for written in [rendered.to_yaml(), rendered.to_json().to_string()] {
        assert_eq!(RenderedTemplate::parse(&name(), written.as_bytes()).as_ref(), Ok(&rendered), "{written}");
    }
    let told = RenderedTemplate::parse(&name(), b"objects: 1\nmore: 2\n").unwrap_err();
    assert_eq!(told.len(), 2, "{told:?}");
}

#[test]
fn plain_scalars_mean_what_go_reads() {
    for (written, meant) in [
        ("yes", json!(true)),
        ("N", json!(false)),
        ("yEs", json!("yEs")),
        ("~", json!(null)),
        ("0755", json!(493)),
        ("-0755", json!(-493)),
        ("0o17", json!(15)),
        ("08", json!(8)),
        ("0o8", json!("0o8")),
        ("0x1F", json!(31)),
        ("-0x1F", json!(-31)),
        ("0x", json!("0x")),
        ("0b101", json!(5)),
        ("1_000", json!(1000)),
        ("_1", json!("_1")),
        ("+12", json!(12)),
        ("+", json!("+")),
        ("9223372036854775807", json!(i64::MAX)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("18446744073709551615", json!(u64::MAX)),
        ("18446744073709551616", json!(18_446_744_073_709_551_616.0)),
        (".5", json!(0.5)),
        ("1.", json!(1)),
        ("1e3", json!(1000)),
        ("1e400", json!("1e400")),
        ("1.5e-3", json!(0.0015)),
        ("1e", json!("1e")),
        (".", json!(".")),
        ("1.2.3", json!("1.2.3")),
        ("2026-11-21", json!("2026-11-21")),
        ("12:30:45", json!("12:30:45")),
        ("'0755'", json!("0755")),
        ("!!str 1", json!("1")),
    ] {
        let rendered = render(&namespace(&format!("    spec: {written}\n")), &info());
        assert_eq!(rendered.map(|rendered| rendered.objects[0]["spec"].clone()), Ok(meant), "{written}");
    }
}
