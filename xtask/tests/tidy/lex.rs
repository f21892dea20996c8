//! Rust source to tokens: enough to tell code from comments and texts.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name or keyword; of a raw one, the part after `r#`.
    Name,
    /// A text, character or number.
    Literal,
    /// A lifetime or label.
    Lifetime,
    /// One character of punctuation.
    Mark,
}

/// One token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    /// What it is.
    pub(crate) kind: Kind,
    /// Its text.
    pub(crate) text: &'a str,
    /// Its line, from 1.
    pub(crate) line: usize,
}

impl Token<'_> {
    /// Returns whether it is this name or mark.
    pub(crate) fn is(&self, text: &str) -> bool {
        self.text == text && matches!(self.kind, Kind::Name | Kind::Mark)
    }
}

/// Cuts a source into tokens; spaces and comments are left out.
pub(crate) fn lex(source: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (source, 1);
    while !rest.is_empty() {
        let (kind, length) = first(rest);
        let (text, after) = rest.split_at_checked(length.max(1)).unwrap_or((rest, ""));
        if let Some(kind) = kind {
            let name = if kind == Kind::Name { text.trim_start_matches("r#") } else { text };
            tokens.push(Token { kind, text: name, line });
        }
        line += text.matches('\n').count();
        rest = after;
    }
    tokens
}

/// Returns what stands first, `None` for what is no token, and its length in bytes.
fn first(rest: &str) -> (Option<Kind>, usize) {
    let mut characters = rest.chars();
    let (Some(one), two) = (characters.next(), characters.next()) else {
        return (None, 0);
    };
    if one.is_whitespace() {
        return (None, one.len_utf8());
    }
    if rest.starts_with("//") {
        return (None, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (None, comment(rest));
    }
    let unprefixed = rest.trim_start_matches(['b', 'c', 'r']);
    let prefix = rest.len() - unprefixed.len();
    if prefix <= 2 && rest.starts_with(['b', 'c', 'r', '"']) {
        let is_raw = rest.get(..prefix).is_some_and(|prefix| prefix.ends_with('r'));
        if is_raw && let Some(length) = raw(unprefixed) {
            return (Some(Kind::Literal), prefix + length);
        }
        if !is_raw && unprefixed.starts_with('"') {
            return (Some(Kind::Literal), prefix + quoted(unprefixed, '"'));
        }
        if rest.starts_with("b'") {
            return (Some(Kind::Literal), 1 + quoted(unprefixed, '\''));
        }
    }
    if one == '\'' {
        return quote(rest, two);
    }
    if one.is_ascii_digit() {
        return (Some(Kind::Literal), number(rest));
    }
    let raw_name = if rest.starts_with("r#") { 2 } else { 0 };
    match rest.get(raw_name..).map_or(0, name) {
        0 => (Some(Kind::Mark), one.len_utf8()),
        length => (Some(Kind::Name), raw_name + length),
    }
}

fn name(rest: &str) -> usize {
    if rest.starts_with(|first: char| first.is_ascii_digit()) {
        return 0;
    }
    rest.find(|other: char| !other.is_alphanumeric() && other != '_').unwrap_or(rest.len())
}

/// A character, or a lifetime: `'a'` or `'a`.
fn quote(rest: &str, second: Option<char>) -> (Option<Kind>, usize) {
    let second = second.unwrap_or(' ');
    let after = 1 + second.len_utf8();
    if second == '\\' || rest.get(after..).is_some_and(|rest| rest.starts_with('\'')) {
        return (Some(Kind::Literal), quoted(rest, '\''));
    }
    (Some(Kind::Lifetime), 1 + rest.get(1..).map_or(0, name))
}

/// `1_000`, `0xff`, `1.5`, but not the dots of `0..9` or of a method call.
fn number(rest: &str) -> usize {
    let word = |rest: &str| rest.find(|other: char| !other.is_alphanumeric() && other != '_').unwrap_or(rest.len());
    let whole = word(rest);
    let fraction = rest.get(whole..).and_then(|rest| rest.strip_prefix('.'));
    match fraction {
        Some(fraction) if fraction.starts_with(|first: char| first.is_ascii_digit()) => whole + 1 + word(fraction),
        Some(_) | None => whole,
    }
}

/// Length of a text from its opening to its closing quote; a backslash takes the next character along.
fn quoted(rest: &str, quote: char) -> usize {
    let mut characters = rest.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if character == quote {
            return at + 1;
        }
    }
    rest.len()
}

/// Length of `#"…"#` with any number of `#`; `None` if it is no raw text.
fn raw(rest: &str) -> Option<usize> {
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let inside = rest.get(hashes..)?.strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let length = inside.find(&close).map_or(inside.len(), |at| at + close.len());
    Some(hashes + 1 + length)
}

/// Length of a comment that may hold others.
fn comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(here) = rest.get(at..).filter(|here| !here.is_empty()) {
        if here.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if here.starts_with("*/") {
            (depth, at) = (depth.saturating_sub(1), at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += here.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// Returns where the bracket that opens at `open` has been closed: the index after it.
pub(crate) fn after_group(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        if token.kind != Kind::Mark {
            continue;
        }
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return index + 1;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// Returns the value of a plain text literal.
pub(crate) fn text_of<'a>(token: &Token<'a>) -> Option<&'a str> {
    token.text.strip_prefix('"')?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, expected: &[&str]) {
        let found: Vec<_> = lex(source).into_iter().map(|token| token.text).collect();
        assert_eq!(found, expected, "{source}");
    }

    #[test]
    fn comments_and_texts_are_not_code() {
        check("a // b\nc", &["a", "c"]);
        check("a /* b /* c */ d */ e", &["a", "e"]);
        check(r#"a "b // \" c" d"#, &["a", r#""b // \" c""#, "d"]);
        check(r###"a r#"b " c"# d"###, &["a", r###"r#"b " c"#"###, "d"]);
        check("br\"x\" b'y' c\"z\"", &["br\"x\"", "b'y'", "c\"z\""]);
        check("r\"\\\" a", &["r\"\\\"", "a"]);
    }

    #[test]
    fn lifetimes_are_not_characters() {
        check("'a 'b' '\\'' 'static", &["'a", "'b'", "'\\''", "'static"]);
        check("x<'a>('\"')", &["x", "<", "'a", ">", "(", "'\"'", ")"]);
    }

    #[test]
    fn names_and_numbers_end_where_they_end() {
        check("r#type crab b c r", &["type", "crab", "b", "c", "r"]);
        check("0..9 1.5 x.0.y 1_u8", &["0", ".", ".", "9", "1.5", "x", ".", "0", ".", "y", "1_u8"]);
        check("ä::ö", &["ä", ":", ":", "ö"]);
    }

    #[test]
    fn lines_are_counted_through_texts_and_comments() {
        let lines: Vec<_> = lex("a\n\"b\nc\" d /* \n */ e").into_iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 2, 3, 4]);
    }
}
