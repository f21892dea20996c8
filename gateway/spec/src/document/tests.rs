use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

const LIMIT: usize = 64 * 1024;

fn read(text: &str) -> (Option<Node>, Vec<String>) {
    read_bytes(text.as_bytes())
}

fn read_bytes(bytes: &[u8]) -> (Option<Node>, Vec<String>) {
    let mut problems = Problems::default();
    let node = parse(bytes, LIMIT, &mut problems);
    (node, problems.finish().iter().map(ToString::to_string).collect())
}

/// Writes a tree without places.
fn shape(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(text) => format!("#{text}"),
        Value::Text(text) => format!("{text:?}"),
        Value::List(nodes) => format!("[{}]", nodes.iter().map(shape).collect::<Vec<_>>().join(", ")),
        Value::Map(entries) => {
            let entry = |entry: &MapEntry| format!("{}: {}", entry.key, shape(&entry.node));
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    }
}

#[track_caller]
fn check(text: &str, expected: &str) {
    let (node, problems) = read(text);
    assert_eq!(problems, [""; 0], "{text}");
    assert_eq!(node.as_ref().map(shape).as_deref(), Some(expected), "{text}");
}

#[track_caller]
fn check_problems(text: &str, expected: &[&str]) {
    let (_, problems) = read(text);
    assert_eq!(problems, expected, "{text}");
}

#[test]
fn scalars_mean_what_version_1_2_says() {
    for (text, expected) in [
        ("", "null"),
        ("---\n", "null"),
        ("~", "null"),
        ("null", "null"),
        ("nUll", "\"nUll\""),
        ("true", "true"),
        ("False", "false"),
        ("yes", "\"yes\""),
        ("no", "\"no\""),
        ("off", "\"off\""),
        ("0755", "#0755"),
        ("0o17", "#0o17"),
        ("0o8", "\"0o8\""),
        ("0x1F", "#0x1F"),
        ("1.10", "#1.10"),
        ("-.5e+3", "#-.5e+3"),
        (".inf", "#.inf"),
        (".nan", "#.nan"),
        ("1e", "\"1e\""),
        ("2.2.0", "\"2.2.0\""),
        ("1_000", "\"1_000\""),
        (".", "\".\""),
        ("'1'", "\"1\""),
        ("\"true\"", "\"true\""),
        ("! 1", "\"1\""),
        ("!!str 1", "\"1\""),
        ("!!int 1", "#1"),
        ("!!int \"1\"", "#1"),
        ("!!bool 'true'", "true"),
        ("!!null ''", "null"),
        ("!<tag:yaml.org,2002:str> 1", "\"1\""),
        ("!!seq [a]", "[\"a\"]"),
        ("\u{feff}a: b", "{a: \"b\"}"),
    ] {
        check(text, expected);
    }
}

#[test]
fn text_arrives_byte_for_byte() {
    check("a: |\n  x && y \\\n    $(z) `q` \"'\n  \t#!\n", "{a: \"x && y \\\\\\n  $(z) `q` \\\"'\\n\\t#!\\n\"}");
    check("a: |-\n  x\n\n", "{a: \"x\"}");
    check("a: \"\\x1b[0m\\u00e4\\n\"", "{a: \"\\u{1b}[0mä\\n\"}");
    check("a: 'it''s'", "{a: \"it's\"}");
}

#[test]
fn aliases_and_merged_maps_are_written_out() {
    check("a: &x [1, b]\nc: *x\n", "{a: [#1, \"b\"], c: [#1, \"b\"]}");
    check("a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3, r: 4}\n", "{a: {p: #1, q: #2}, b: {q: #3, r: #4, p: #1}}");
    check("b: {<<: [{p: 1}, {p: 2, q: 2}]}\n", "{b: {p: #1, q: #2}}");
    check("b: {'<<': 1}\n", "{b: {<<: #1}}");
    check("&k a: 1\nb: *k\n", "{a: #1, b: \"a\"}");
}

#[test]
fn values_and_keys_know_their_places() {
    let (node, _) = read("\u{feff}a:\n  - ä: 1\n    b: [x,  y]\n");
    let Value::Map(entries) = node.unwrap().value else { panic!("a map") };
    assert_eq!(entries[0].place, Location { line: 1, column: 1 });
    let Value::List(items) = &entries[0].node.value else { panic!("a list") };
    let Value::Map(inner) = &items[0].value else { panic!("a map") };
    assert_eq!(inner[0].place, Location { line: 2, column: 5 });
    assert_eq!(inner[0].node.place, Location { line: 2, column: 8 });
    let Value::List(last) = &inner[1].node.value else { panic!("a list") };
    assert_eq!(last[1].place, Location { line: 3, column: 13 });
}

#[test]
fn bad_structure_is_told_with_its_place_and_all_at_once() {
    check_problems(
        "a: 1\na: 2\nb:\n  - x: 1\n    x: 2\n    x: 3\n? [k]\n: 1\n",
        &[
            "line 2, a: is there twice; the first is on line 1",
            "line 5, b[0].x: is there twice; the first is on line 4",
            "line 6, b[0].x: is there twice; the first is on line 4",
            "line 7: a key must be text",
        ],
    );
    check_problems(
        "a: *x\nb: *y\n",
        &[
            "line 1, a: repeats the anchor \"x\", which is not there before it",
            "line 2, b: repeats the anchor \"y\", which is not there before it",
        ],
    );
    check_problems("a: &x [1, *x]\n", &["line 1, a[1]: an alias stands inside of what it repeats"]);
    check_problems("a: {<<: 1}\n", &["line 1, a.\"<<\": takes a map or a list of maps"]);
    check_problems(
        "a: !!int x\nb: !secret y\nc: !!binary aGk=\nd: !x [1]\n",
        &[
            "line 1, a: is not what its tag \"tag:yaml.org,2002:int\" says",
            "line 2, b: has the tag \"!secret\", which is not known",
            "line 3, c: has the tag \"tag:yaml.org,2002:binary\", which is not known",
            "line 4, d: has the tag \"!x\", which is not known",
        ],
    );
    check_problems("a: \"x\\0y\"\n", &["line 1, a: holds U+0000, which no argument, file name or variable can hold"]);
    check_problems("a: 1\n---\nb: 2\n", &["line 2: the file holds more than one YAML document"]);
    check_problems("a:\n  b: [1}\n", &["line 2, a.b[0]: is not YAML: mismatched bracket '[' closed by '}'"]);
    check_problems("a: b: c\n", &["line 1: is not YAML: mapping values are not allowed in this context"]);
}

#[test]
fn bytes_that_are_no_text_are_told_with_their_place() {
    assert_eq!(read_bytes(b"a: 1\nb: \xff\n").1, ["line 2: the file is not UTF-8 text"]);
    assert_eq!(read_bytes(b"\xff\xfea\0").1, ["line 1: the file is not UTF-8 text"]);
    assert_eq!(read_bytes(b"a: 1\nb: \0\n").1, ["line 2: the file holds U+0000, which YAML does not allow"]);
    assert_eq!(read_bytes(b"a: \x1b[0m").1, ["line 1: the file holds U+001B, which YAML does not allow"]);
    let mut problems = Problems::default();
    assert_eq!(parse("ab: \u{7f}".as_bytes(), LIMIT, &mut problems), None);
    assert_eq!(problems.finish()[0].column, Some(5));
}

#[test]
fn file_above_the_limit_is_not_looked_at() {
    let text = format!("a: {}", "[".repeat(LIMIT));
    check_problems(&text, &["the file is larger than 64 KiB"]);
    assert_eq!(show_size(3 * 1024 * 1024), "3 MiB");
}

#[test]
fn depth_is_bounded_in_each_notation_and_through_aliases() {
    let deep = "lists and maps nest deeper than 32 levels";
    check(&format!("{}{}", "[".repeat(32), "]".repeat(32)), &format!("{}{}", "[".repeat(32), "]".repeat(32)));
    for (text, line) in [
        (format!("{}{}", "[".repeat(33), "]".repeat(33)), 1),
        ("[".repeat(LIMIT), 1),
        ("{a: ".repeat(LIMIT / 8), 1),
        ("- ".repeat(LIMIT / 4), 1),
        ((0..60).fold(String::new(), |text, level| format!("{text}{}a:\n", " ".repeat(level))), 33),
        (format!("a: &x {}1{}\nb: [[*x]]\n", "[".repeat(30), "]".repeat(30)), 2),
        ("? ".repeat(LIMIT / 4), 1),
    ] {
        check_problems(&text, &[format!("line {line}: {deep}").as_str()]);
    }
}

#[test]
fn alias_bombs_run_into_the_budget() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        writeln!(bomb, "a{level}: &a{level} [{aliases}]").unwrap();
    }
    check_problems(&bomb, &["line 5: the file has more than 50000 values, counting what its aliases repeat"]);
    let long = format!("a: &x {}\nb: [{}]\n", "y".repeat(LIMIT / 2), vec!["*x"; 100].join(", "));
    check_problems(&long, &["line 2: the file's anchors and aliases repeat more than 64 KiB"]);
    let many = format!("a: [{}]\n", "1,".repeat(VALUES_MAX));
    let mut problems = Problems::default();
    assert_eq!(parse(many.as_bytes(), 1024 * 1024, &mut problems), None);
    let message = "line 1: the file has more than 50000 values, counting what its aliases repeat";
    assert_eq!(problems.finish()[0].to_string(), message);
}

#[test]
fn problems_come_by_line_each_once_and_no_more_than_are_read() {
    let mut problems = Problems::default();
    for line in (1..=150).rev() {
        problems.add("a", Some(Location { line, column: 1 }), "is bad");
        problems.add("a", Some(Location { line, column: 1 }), "is bad");
    }
    problems.add("", None, "the whole file is bad");
    let told = problems.finish();
    assert_eq!(told.len(), 101);
    assert_eq!(told[0].to_string(), "the whole file is bad");
    assert_eq!(told[1].to_string(), "line 1, a: is bad");
    assert_eq!(told[100].to_string(), "and 51 more problems");
}

#[test]
fn keys_and_values_in_messages_are_escaped_and_shortened() {
    check_problems(
        "\"x\\e\\n\": 1\n\"x\\e\\n\": 2\n",
        &["line 2, \"x\\u{1b}\\n\": is there twice; the first is on line 1"],
    );
    let long = "k".repeat(100);
    let shown = format!("line 2, \"{}…\": is there twice; the first is on line 1", "k".repeat(60));
    check_problems(&format!("{long}: 1\n{long}: 2\n"), &[&shown]);
}

/// Pieces that make YAML interesting, in any order.
fn yaml_like() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "b: ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "\n",
        "\n  ",
        "\n    ",
        "&x ",
        "*x",
        "!!str ",
        "!t ",
        "'",
        "\"",
        "|\n  ",
        ">-\n",
        "# c",
        "<<: ",
        "? ",
        "---\n",
        "...\n",
        "%YAML 1.2\n",
        "\\",
        "\t",
        "\r\n",
        "1",
        "ä",
        "\u{feff}",
        "%TAG ! !\n",
        "~",
    ]);
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_bytes_are_a_tree_or_told_why_not(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let (node, problems) = read_bytes(&bytes);
        prop_assert!(node.is_some() || !problems.is_empty());
    }

    #[test]
    fn any_yaml_like_text_is_a_tree_or_told_why_not_and_the_same_each_time(text in yaml_like()) {
        let first = read(&text);
        prop_assert!(first.0.is_some() || !first.1.is_empty());
        prop_assert_eq!(first, read(&text));
    }
}
