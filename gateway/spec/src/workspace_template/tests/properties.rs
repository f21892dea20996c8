//! What holds for all templates and all values.

use proptest::prelude::*;

use super::*;
use crate::devfile::variables;
use crate::hostile_text::PIECES;

/// Texts that would do harm if they were read as YAML or searched for references.
fn hostile() -> impl Strategy<Value = String> {
    let own = ["{{own}}", "{{ parameters.b }}", "\u{85}", "\u{ffff}"];
    let piece = prop::sample::select([&PIECES[..], &own].concat());
    prop_oneof![
        4 => prop::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat()),
        2 => any::<String>().prop_map(|text| text.replace('\0', "")),
        1 => (1..VALUE_BYTES_MAX / 4).prop_map(|length| "{{x\"".repeat(length)),
    ]
    .prop_filter("a value has a length", |text| text.len() <= VALUE_BYTES_MAX)
}

/// Scalars with references, in every notation.
fn scalar() -> impl Strategy<Value = String> {
    let piece =
        prop::sample::select(vec!["{{parameters.a}}", "{{ parameters.b }}", "{{own}}", "x", "-", "/", "{", "}"]);
    (prop::collection::vec(piece, 1..5).prop_map(|pieces| pieces.concat()), 0..4).prop_map(
        |(text, style)| match style {
            0 => format!("'{text}'"),
            1 => format!("\"{text}\""),
            2 => format!("|-\n              {text}"),
            _ => format!(">\n              {text}"),
        },
    )
}

/// Templates whose values stand in lists, maps and texts. They are no good devfiles; that is checked afterwards.
fn any_template() -> impl Strategy<Value = String> {
    prop::collection::vec((scalar(), scalar(), scalar()), 1..4).prop_map(|parts| {
        let mut text = "parameters: [{name: a, required: false}, {name: b, required: false}, {name: c}]\ndevfile:\n  variables: {own: 'own \
            {{parameters.a}}'}\n  metadata: {name: '{{parameters.b}} {{own}}'}\n  c: '{{parameters.c}}'\n  parts:\n"
            .to_owned();
        for (one, two, three) in parts {
            text.push_str(&format!(
                "    - targetPort: {one}\n      secure: {two}\n      list:\n        - {three}\n        - {{k: 1, l: ~, m: [true]}}\n"
            ));
        }
        text
    })
}

/// Writes what a tree is without its scalars.
fn shape(node: &Node) -> String {
    match &node.value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => "scalar".to_owned(),
        Value::List(nodes) => format!("[{}]", nodes.iter().map(shape).collect::<Vec<_>>().join(",")),
        Value::Map(entries) => {
            let entry = |entry: &crate::document::MapEntry| format!("{}:{}", entry.key, shape(&entry.node));
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(","))
        }
    }
}

/// Returns a devfile as it is read: with its variables in their places, and without those that rendering added.
fn resolved(text: &str) -> Node {
    let mut problems = Problems::default();
    let mut root = parse(text.as_bytes(), devfile::DEVFILE_BYTES_MAX, &mut problems).unwrap();
    let known = variables::read(&root, &mut problems);
    variables::put_in(&mut root, &known, &mut problems);
    assert_eq!(problems.finish(), [], "{text}");
    if let Value::Map(entries) = &mut root.value {
        for entry in entries.iter_mut().filter(|entry| entry.key == "variables") {
            if let Value::Map(variables) = &mut entry.node.value {
                variables.retain(|variable| !variable.key.starts_with("parameters."));
            }
        }
    }
    root
}

/// Writes a text with its references resolved, as a person would.
fn written(text: &str, own: &str, a: &str, b: &str) -> String {
    let mut rest = text;
    let mut out = String::new();
    while !rest.is_empty() {
        let known = [("{{parameters.a}}", a), ("{{ parameters.b }}", b), ("{{own}}", own)];
        match known.into_iter().find_map(|(reference, value)| Some((rest.strip_prefix(reference)?, value))) {
            Some((after, value)) => {
                out.push_str(value);
                rest = after;
            }
            None => {
                out.extend(rest.chars().next());
                rest = rest.get(rest.chars().next().map_or(0, char::len_utf8)..).unwrap_or_default();
            }
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn values_change_scalars_and_no_structure(text in any_template(), a in hostile(), b in hostile(), c in "[a-z]{1,9}") {
        let template = WorkspaceTemplate::parse(text.as_bytes()).unwrap();
        let given = values(&[("a", &a), ("b", &b), ("c", &c)]);
        let rendered = template.render(&given).unwrap();
        let made = resolved(&rendered.devfile);
        prop_assert_eq!(shape(&made), shape(&template.devfile), "{}", rendered.devfile);
    }

    #[test]
    fn values_arrive_letter_for_letter(scalar in scalar(), a in hostile(), b in hostile()) {
        let text = format!("parameters: [{{name: a, required: false}}, {{name: b, required: false}}]\ndevfile:\n  variables: {{own: 'own'}}\n  all: \
            '{{{{parameters.a}}}}{{{{parameters.b}}}}'\n  metadata:\n    name: {scalar}\n  list:\n  - k: {scalar}\n");
        let mut problems = Problems::default();
        let source = parse(text.as_bytes(), TEMPLATE_BYTES_MAX, &mut problems).unwrap();
        let devfile = render::devfile(&inner(&source, "devfile"), &values(&[("a", &a), ("b", &b)]));
        let made = resolved(&crate::document::write(&devfile));
        let list = inner(&inner(&source, "devfile"), "list");
        let (Value::List(items), Value::List(found)) = (&list.value, &inner(&made, "list").value.clone()) else { panic!("lists") };
        let (Value::Text(source), Value::Text(found)) = (&inner(&items[0], "k").value, &inner(&found[0], "k").value.clone()) else {
            panic!("texts")
        };
        prop_assert_eq!(found, &written(source, "own", &a, &b));
        // Variables of a devfile are not put into its metadata, parameters are.
        let Value::Text(name) = inner(&inner(&made, "metadata"), "name").value else { panic!("a text") };
        prop_assert_eq!(name, written(source, "{{own}}", &a, &b));
    }

    #[test]
    fn any_bytes_are_a_template_or_told_why_not(bytes in prop::collection::vec(any::<u8>(), 0..300), value in hostile()) {
        match WorkspaceTemplate::parse(&bytes) {
            Ok(template) => drop(template.render(&values(&[("a", &value)]))),
            Err(problems) => prop_assert!(!problems.is_empty()),
        }
    }

    #[test]
    fn damaged_templates_are_read_or_refused_and_the_same_each_time(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..8_usize, "[ -~\n]{0,3}|\\{\\{|\\}\\}|parameters\\."), 1..5),
        value in hostile(),
    ) {
        let mut bytes = format!("parameters:\n- {{name: a, kind: text, default: x}}\n- {{name: b, options: [x, y]}}\n{DEVFILE}      env:\n      - {{name: A, \
            value: '{{{{parameters.a}}}} {{{{parameters.b}}}}'}}\nprojects: [{{url: 'https://x.test/{{{{parameters.b}}}}'}}]\n").into_bytes();
        for (place, removed, added) in changes {
            let begin = place.index(bytes.len());
            let end = (begin + removed).min(bytes.len());
            bytes.splice(begin..end, added.into_bytes());
        }
        let made = || WorkspaceTemplate::parse(&bytes).map(|template| template.render(&values(&[("a", &value), ("b", "x")])));
        let first = made();
        if let Ok(Ok(rendered)) = &first {
            // What is rendered is YAML, whatever else is wrong with it.
            resolved_or_refused(&rendered.devfile);
        }
        prop_assert_eq!(first, made());
    }
}

/// Checks that a devfile is YAML.
fn resolved_or_refused(text: &str) {
    let mut problems = Problems::default();
    assert!(parse(text.as_bytes(), devfile::DEVFILE_BYTES_MAX, &mut problems).is_some(), "{text}");
}

/// Returns the value of a key.
fn inner(node: &Node, key: &str) -> Node {
    let Value::Map(entries) = &node.value else { panic!("a map") };
    entries.iter().find(|entry| entry.key == key).unwrap_or_else(|| panic!("{key}")).node.clone()
}
