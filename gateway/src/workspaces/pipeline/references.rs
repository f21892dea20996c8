//! `$(NAME)` in what a container's environment and arguments say, as Kubernetes reads it (Kubernetes documentation, "Define
//! Dependent Environment Variables"): a variable that was set before, `$$` for a dollar, and everything else as it is.

use std::collections::BTreeSet;

use crate::workspaces::shell;

/// Variables that can be referred to.
pub(super) type Known<'a> = BTreeSet<&'a str>;

/// Makes a word of a shell that has these variables.
pub(super) fn word(text: &str, known: &Known<'_>) -> String {
    let mut word = String::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        literal.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            literal.push('$');
            rest = after;
            continue;
        }
        let name = after.strip_prefix('(').and_then(|inside| inside.split_once(')'));
        match name {
            Some((name, after)) if known.contains(name) => {
                push(&mut word, &literal);
                literal.clear();
                word.push_str(&format!("\"${{{name}}}\""));
                rest = after;
            }
            Some((name, after)) => {
                literal.push_str(&format!("$({name})"));
                rest = after;
            }
            None => {
                literal.push('$');
                rest = after;
            }
        }
    }
    literal.push_str(rest);
    push(&mut word, &literal);
    if word.is_empty() { shell::word("") } else { word }
}

fn push(word: &mut String, literal: &str) {
    if !literal.is_empty() {
        word.push_str(&shell::word(literal));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_to_known_variables_count_and_everything_else_is_literal() {
        let known = Known::from(["A", "B_1"]);
        for (text, expected) in [
            ("", "''"),
            ("a", "'a'"),
            ("$(A)", "\"${A}\""),
            ("x$(A)y$(B_1)", "'x'\"${A}\"'y'\"${B_1}\""),
            ("$(C)$A$", "'$(C)$A$'"),
            ("$$(A)$$$$", "'$(A)$$'"),
            ("$(A", "'$(A'"),
            ("$(a;id)`id`", "'$(a;id)`id`'"),
            ("it's $(A)", "'it'\\''s '\"${A}\""),
        ] {
            assert_eq!(word(text, &known), expected, "{text}");
        }
    }
}
