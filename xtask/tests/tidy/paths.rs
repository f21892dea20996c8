//! Every path that a source names: those of `use`, written out one by one, and those in the code.

use super::lex::{Kind, Token};

/// A path in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path<'a> {
    /// Its names; a glob ends in `*`.
    pub(crate) names: Vec<&'a str>,
    /// Its line, from 1.
    pub(crate) line: usize,
}

/// Returns all paths of more than one name, and single names that `use` brings in.
pub(crate) fn paths<'a>(tokens: &[Token<'a>]) -> Vec<Path<'a>> {
    let mut found = Vec::new();
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        if token.is("use") {
            index = tree(tokens, index + 1, &[], &mut found);
        } else if token.kind == Kind::Name {
            let (names, next) = path(tokens, index);
            if names.len() > 1 {
                found.push(Path { names, line: token.line });
            }
            index = next;
        } else {
            index += 1;
        }
    }
    found
}

fn is_separator(tokens: &[Token<'_>], index: usize) -> bool {
    let is_colon = |index: usize| tokens.get(index).is_some_and(|token| token.is(":"));
    is_colon(index) && is_colon(index + 1)
}

/// Reads `a::b::c` and returns its names and the index after it.
fn path<'a>(tokens: &[Token<'a>], start: usize) -> (Vec<&'a str>, usize) {
    let (mut names, mut index) = (Vec::new(), start);
    while let Some(token) = tokens.get(index).filter(|token| token.kind == Kind::Name) {
        names.push(token.text);
        index += 1;
        if !is_separator(tokens, index) {
            break;
        }
        index += 2;
    }
    (names, index)
}

/// Reads one branch of a `use`, and returns the index after it.
fn tree<'a>(tokens: &[Token<'a>], start: usize, before: &[&'a str], found: &mut Vec<Path<'a>>) -> usize {
    let start = if is_separator(tokens, start) { start + 2 } else { start };
    let line = tokens.get(start).map_or(0, |token| token.line);
    let (own, mut index) = path(tokens, start);
    let names: Vec<_> = before.iter().copied().chain(own).collect();
    match tokens.get(index) {
        Some(token) if token.is("*") => {
            found.push(Path { names: names.into_iter().chain(["*"]).collect(), line });
            index + 1
        }
        Some(token) if token.is("{") => {
            index += 1;
            while let Some(token) = tokens.get(index) {
                if token.is("}") {
                    return index + 1;
                }
                // Each branch takes at least one token, so this ends.
                index = if token.is(",") { index + 1 } else { tree(tokens, index, &names, found).max(index + 1) };
            }
            index
        }
        _ => {
            // `use a::{self}` names `a` itself. A path in code that ends in `self` does not exist.
            let names = match names.split_last() {
                Some((last, rest)) if *last == "self" && !rest.is_empty() => rest.to_vec(),
                Some(_) | None => names,
            };
            // `a as b` was read as the name `a`; the name that it is given does not matter.
            let is_renamed = tokens.get(index).is_some_and(|token| token.is("as"));
            found.push(Path { names, line });
            if is_renamed { index + 2 } else { index }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lex::lex;
    use super::*;

    #[track_caller]
    fn check(source: &str, expected: &[&str]) {
        let tokens = lex(source);
        let found: Vec<_> = paths(&tokens).into_iter().map(|path| path.names.join("::")).collect();
        assert_eq!(found, expected, "{source}");
    }

    #[test]
    fn use_is_written_out() {
        check("use a::b;", &["a::b"]);
        check("use a;", &["a"]);
        check("pub(crate) use ::a::b as c;", &["a::b"]);
        check("use a::{b, c::{self, d}, e as f, g::*};", &["a::b", "a::c", "a::c::d", "a::e", "a::g::*"]);
        check("use {a::b, crate::c};", &["a::b", "crate::c"]);
        check("use super::super::a; let use_ = 1;", &["super::super::a"]);
    }

    #[test]
    fn paths_in_code_are_found_and_names_alone_are_not() {
        check("fn f(x: crate::a::B) -> c { d::e::<f::G>(h) }", &["crate::a::B", "d::e", "f::G"]);
        check("x: y, a ? b : c", &[]);
        check("impl<T: a::B> T { } // c::d", &["a::B"]);
        check("macro!($crate::a::b)", &["crate::a::b"]);
    }
}
