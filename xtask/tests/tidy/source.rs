//! What can be seen in the tokens of one file: attributes, test code, unfinished work.

use super::lex::{Kind, Token, after_group, lex, text_of};

/// An attribute of what follows it, or of the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attribute<'t, 'a> {
    /// What stands between the brackets.
    pub(crate) inside: &'t [Token<'a>],
    /// The index after it.
    pub(crate) end: usize,
    /// `#![…]`.
    pub(crate) is_inner: bool,
}

/// Reads the attribute that begins at `start`, if one does.
pub(crate) fn attribute<'t, 'a>(tokens: &'t [Token<'a>], start: usize) -> Option<Attribute<'t, 'a>> {
    if !tokens.get(start)?.is("#") {
        return None;
    }
    let is_inner = tokens.get(start + 1)?.is("!");
    let open = start + 1 + usize::from(is_inner);
    if !tokens.get(open)?.is("[") {
        return None;
    }
    let end = after_group(tokens, open);
    Some(Attribute { inside: tokens.get(open + 1..end - 1)?, end, is_inner })
}

impl Attribute<'_, '_> {
    /// Returns whether what it stands on is compiled for tests only (`cfg(test)`, `cfg(any(test, …))`).
    pub(crate) fn is_test(&self) -> bool {
        let is_cfg = self.inside.first().is_some_and(|token| token.is("cfg"));
        let has = |name: &str| self.inside.iter().any(|token| token.is(name));
        is_cfg && has("test") && !has("not")
    }

    /// Returns the file that a `path` attribute names.
    pub(crate) fn path(&self) -> Option<&str> {
        match self.inside {
            [name, equals, value] if name.is("path") && equals.is("=") => text_of(value),
            _ => None,
        }
    }
}

/// Returns the tokens without what is compiled for tests only.
pub(crate) fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut kept = Vec::with_capacity(tokens.len());
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        match attribute(tokens, index) {
            Some(attribute) if attribute.is_test() && attribute.is_inner => return Vec::new(),
            Some(attribute) if attribute.is_test() => index = after_item(tokens, attribute.end),
            Some(_) | None => {
                kept.push(*token);
                index += 1;
            }
        }
    }
    kept
}

/// Returns where the item, statement or field at `start` ends, its further attributes included.
fn after_item(tokens: &[Token<'_>], start: usize) -> usize {
    let mut index = start;
    while let Some(attribute) = attribute(tokens, index) {
        index = attribute.end;
    }
    let is_field = tokens.get(index + 1).is_some_and(|next| next.is(":") || next.is(",") || next.is("("))
        && !tokens.get(index).is_some_and(|first| first.is("pub"));
    while let Some(token) = tokens.get(index) {
        match token.text {
            ";" if token.kind == Kind::Mark => return index + 1,
            "," if is_field => return index + 1,
            // The end of what the item is in: it had no end of its own.
            "}" | ")" | "]" if token.kind == Kind::Mark => return index,
            "{" if token.kind == Kind::Mark => return after_group(tokens, index),
            "(" | "[" if token.kind == Kind::Mark => index = after_group(tokens, index),
            _ => index += 1,
        }
    }
    tokens.len()
}

/// Finds lint exceptions that do not say why.
pub(crate) fn exceptions_without_reason(path: &str, text: &str) -> Vec<String> {
    let tokens = lex(text);
    let mut problems = Vec::new();
    for start in 0..tokens.len() {
        let Some(attribute) = attribute(&tokens, start) else {
            continue;
        };
        for (index, token) in attribute.inside.iter().enumerate() {
            let opens = attribute.inside.get(index + 1).is_some_and(|next| next.is("("));
            if !opens || !(token.is("allow") || token.is("expect")) {
                continue;
            }
            let group = attribute.inside.get(index + 1..after_group(attribute.inside, index + 1)).unwrap_or(&[]);
            let has_reason = group.windows(3).any(|three| match three {
                [name, equals, value] => {
                    name.is("reason") && equals.is("=") && text_of(value).is_some_and(|reason| reason.len() > 8)
                }
                _ => false,
            });
            if !has_reason {
                problems.push(format!("{path}:{}: {} without a reason", token.line, token.text));
            }
        }
    }
    problems
}

/// Finds calls that stand for work that was left, and tests that are switched off.
pub(crate) fn unfinished(path: &str, text: &str) -> Vec<String> {
    let tokens = lex(text);
    let mut problems = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let is_call = tokens.get(index + 1).is_some_and(|next| next.is("!"));
        if is_call && ["dbg", "todo", "unimplemented"].iter().any(|name| token.is(name)) {
            problems.push(format!("{path}:{}: {}!", token.line, token.text));
        }
        if attribute(&tokens, index).is_some_and(|found| found.inside.first().is_some_and(|name| name.is("ignore"))) {
            problems.push(format!("{path}:{}: a test that is switched off", token.line));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_kept(source: &str, expected: &str) {
        let kept: Vec<_> = without_tests(&lex(source)).into_iter().map(|token| token.text).collect();
        assert_eq!(kept.join(" "), expected, "{source}");
    }

    #[test]
    fn what_is_for_tests_is_left_out_and_nothing_else() {
        check_kept("a; #[cfg(test)] mod tests { x } b", "a ; b");
        check_kept("#[cfg(test)] mod tests; b", "b");
        check_kept("#[cfg(test)] #[path = \"y\"] mod tests; b", "b");
        check_kept("#[cfg(any(test, feature = \"model\"))] pub fn f(a: [u8; 2]) -> X { { } } b", "b");
        check_kept("struct S { a: u8, #[cfg(test)] b: u8, c: u8 }", "struct S { a : u8 , c : u8 }");
        check_kept("#[cfg(test)] use a::{b, c}; d", "; d");
        check_kept("#![cfg(test)] a", "");
        check_kept("#[cfg(not(test))] mod a; b", "# [ cfg ( not ( test ) ) ] mod a ; b");
        check_kept("#[cfg(unix)] mod a;", "# [ cfg ( unix ) ] mod a ;");
    }

    #[test]
    fn exception_without_a_reason_is_found() {
        let check = |source: &str| exceptions_without_reason("a.rs", source).len();
        assert_eq!(check("#[allow(dead_code)] fn f() {}"), 1);
        assert_eq!(check("#![expect(clippy::panic)]"), 1);
        assert_eq!(check("#[cfg_attr(test, allow(dead_code))] fn f() {}"), 1);
        assert_eq!(check("#[expect(clippy::panic, reason = \"\")] fn f() {}"), 1);
        assert_eq!(check("#[expect(clippy::panic, reason = \"the table is a constant\")] fn f() {}"), 0);
        assert_eq!(check("// #[allow(dead_code)]\nfn f() { x.expect(\"y\") }"), 0);
    }

    #[test]
    fn unfinished_work_is_found() {
        let check = |source: &str| unfinished("a.rs", source).len();
        assert_eq!(check("fn f() { dbg!(1) }"), 1);
        assert_eq!(check("fn f() { todo!() }"), 1);
        assert_eq!(check("fn f() { unimplemented!() }"), 1);
        assert_eq!(check("#[test] #[ignore = \"slow\"] fn f() {}"), 1);
        assert_eq!(check("fn todo() -> bool { todo() != \"dbg!()\" }"), 0);
    }
}
