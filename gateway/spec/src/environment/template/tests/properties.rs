//! What holds for all templates and all facts.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::environment::facts::{AgentFacts, EnvironmentFacts, NumberedFacts, ProjectFacts, UserFacts};
use crate::hostile_text::PIECES;

/// Texts that would do harm if they were read as YAML or as a template.
fn hostile() -> impl Strategy<Value = String> {
    let own = ["{{ .project.id }}", "\u{f0000}", "\u{f0001}", "kind: Secret", "\0"];
    let piece = prop::sample::select([&PIECES[..], &own].concat());
    prop_oneof![prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat()), any::<String>()]
}

prop_compose! {
    fn any_info()(
        ids in prop::array::uniform6(any::<u64>()),
        texts in prop::collection::vec(hostile(), 11),
        has in prop::array::uniform5(any::<bool>()),
    ) -> TemplateVars {
        let mut texts = texts.into_iter();
        let mut text = move || texts.next().unwrap_or_default();
        TemplateVars {
            agent: AgentFacts { id: ids[0], name: text(), url: text() },
            environment: EnvironmentFacts {
                id: ids[1],
                name: text(),
                slug: text(),
                page_url: text(),
                url: has[0].then(&mut text),
                tier: has[1].then(&mut text),
            },
            project: ProjectFacts { id: ids[2], slug: text(), path: text(), url: text() },
            ci_pipeline: has[2].then_some(NumberedFacts { id: ids[3] }),
            ci_job: has[3].then_some(NumberedFacts { id: ids[4] }),
            user: has[4].then(|| UserFacts { id: ids[5], username: text() }),
        }
    }
}

/// Scalars with variables, in every notation.
fn scalar() -> impl Strategy<Value = String> {
    let action = prop::sample::select(vec![
        "{{ .agent.id }}",
        "{{ .agent.name }}",
        "{{- .environment.name -}}",
        "{{ .environment.slug }}",
        "{{ .environment.url }}",
        "{{.project.id}}",
        "{{ .project.path }}",
        "{{ .ci_job.id }}",
        "{{/* nothing */}}",
        "{{ .environment.tier }}",
        "{{ .user.username }}",
    ]);
    let piece = prop_oneof![3 => action.prop_map(str::to_owned), 1 => "[a-z0-9./-]{1,4}"];
    let pieces = prop::collection::vec(piece, 1..4).prop_map(|pieces| pieces.concat());
    (pieces, 0..4).prop_map(|(text, style)| match style {
        0 => text,
        1 => format!("'{text}'"),
        2 => format!("\"{text}\""),
        _ => format!("|-\n            {text}"),
    })
}

/// Templates whose values stand in keys, lists, maps and texts.
fn any_template() -> impl Strategy<Value = String> {
    prop::collection::vec((scalar(), scalar(), scalar()), 1..4).prop_map(|objects| {
        let mut text = "objects:\n".to_owned();
        for (one, two, three) in objects {
            text.push_str("  - kind: X\n    a:\n");
            text.push_str(&format!(
                "        b: {one}\n        'k {{{{ .project.id }}}}': {two}\n        list:\n          - {three}\n"
            ));
        }
        text
    })
}

/// What a tree is without its texts and numbers: the template alone decides that.
fn shape(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "text".to_owned(),
        Value::Array(items) => format!("[{}]", items.iter().map(shape).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => {
            // Keys have values, too, and the order is theirs.
            let mut shapes: Vec<_> = fields.values().map(shape).collect();
            shapes.sort();
            format!("{{{}}}", shapes.join(","))
        }
    }
}

/// The facts that everything is compared with.
fn full() -> TemplateVars {
    info()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_facts_change_the_structure_of_what_a_template_makes(text in any_template(), facts in any_info()) {
        let Ok(template) = parse(&text) else { return Ok(()) };
        let mut facts = facts;
        // A tier or user that is not there is an error, which has a test of its own.
        facts.environment.tier.get_or_insert_default();
        facts.user.get_or_insert(UserFacts { id: 0, username: String::new() });
        let plain = template.render(&full()).unwrap();
        if let Ok(rendered) = template.render(&facts) {
            // Numbers of ids that are too large for a number of their own are still numbers.
            let (made, plain): (Vec<_>, Vec<_>) =
                (rendered.objects.iter().map(shape).collect(), plain.objects.iter().map(shape).collect());
            prop_assert_eq!(made, plain, "{}", text);
            let yaml = rendered.to_yaml();
            let json = rendered.to_json().to_string();
            // What is written is read as the same, unless YAML cannot hold it at all.
            if !json.contains("\\u0000") {
                let read = RenderedTemplate::parse(&name(), yaml.as_bytes());
                prop_assert_eq!(read, Ok(rendered), "{}", yaml);
            }
        }
    }

    #[test]
    fn values_arrive_letter_for_letter(value in hostile()) {
        let mut facts = full();
        facts.environment.name.clone_from(&value);
        let text = namespace("      annotations:\n        a: {{ .environment.name }}\n        b: '<{{ .environment.name }}>'\n        \
                              c: \"{{ .environment.name }}{{ .environment.name }}\"\n        d: |-\n          {{ .environment.name }}\n");
        let rendered = parse(&text).unwrap().render(&facts).unwrap();
        let expected = json!({"a": value, "b": format!("<{value}>"), "c": format!("{value}{value}"), "d": value});
        prop_assert_eq!(&rendered.objects[0]["metadata"]["annotations"], &expected);
    }

    #[test]
    fn any_bytes_are_a_template_or_told_why_not(bytes in prop::collection::vec(any::<u8>(), 0..300), facts in any_info()) {
        match Template::parse(&name(), &bytes) {
            Ok(template) => drop(template.render(&facts)),
            Err(problems) => prop_assert!(!problems.is_empty()),
        }
        drop(RenderedTemplate::parse(&name(), &bytes));
    }

    #[test]
    fn damaged_templates_are_read_or_refused_and_the_same_each_time(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..8_usize, "[ -~\n]{0,3}|\\{\\{|\\}\\}|-\\}\\}|\\{\\{- "), 1..5),
        facts in any_info(),
    ) {
        let mut bytes = include_bytes!("../../../../tests/environments/examples/trim-markers.yaml").to_vec();
        for (place, removed, added) in changes {
            let begin = place.index(bytes.len());
            let end = (begin + removed).min(bytes.len());
            bytes.splice(begin..end, added.into_bytes());
        }
        let first = Template::parse(&name(), &bytes);
        if let Ok(template) = &first {
            let made = |template: &Template| template.render(&facts).map(|rendered| rendered.objects);
            prop_assert_eq!(made(template), made(&Template::parse(&name(), &bytes).unwrap()));
        }
    }

    #[test]
    fn places_of_problems_are_inside_of_the_file(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "{{ .a }}", "{{- .b -}}", "{{/* \n */ -}}", "\n", "x: ", "- ", "[", "ä", "{{ .agent.id }}", "{{", "'", "&a ", "*b", "\r\n", "  ",
        ]), 0..30),
    ) {
        let text = pieces.concat();
        let lines: Vec<&str> = text.split('\n').collect();
        for problem in Template::parse(&name(), text.as_bytes()).err().into_iter().flatten() {
            if let (Some(line), Some(column)) = (problem.line, problem.column) {
                let line = lines.get(usize::try_from(line).unwrap() - 1);
                prop_assert!(line.is_some_and(|line| usize::try_from(column).unwrap() <= line.chars().count() + 2), "{problem:?}");
            }
        }
    }
}
