//! One line at the top of a user's ssh configuration, and nothing else of it touched. Pure, and on bytes: such files
//! need not be UTF-8.

/// Returns the configuration with a line that includes the first of `names` at its top; `None` if one of them is
/// included there already, for every host.
pub(super) fn with_include(present: &[u8], names: &[&str]) -> Option<Vec<u8>> {
    let first = names.first()?;
    if includes(present, names) {
        return None;
    }
    let mut changed = format!("Include {first}\n").into_bytes();
    if !present.is_empty() {
        changed.push(b'\n');
        changed.extend_from_slice(present);
    }
    Some(changed)
}

/// Searches the lines that count for every host: those before the first `Host` or `Match`.
fn includes(present: &[u8], names: &[&str]) -> bool {
    for line in present.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii();
        let (keyword, rest) = split_keyword(line);
        if keyword.eq_ignore_ascii_case(b"host") || keyword.eq_ignore_ascii_case(b"match") {
            return false;
        }
        if keyword.eq_ignore_ascii_case(b"include") && names.iter().any(|name| has_word(rest, name)) {
            return true;
        }
    }
    false
}

/// Splits at the spaces, the equals sign or the quote that end a keyword.
fn split_keyword(line: &[u8]) -> (&[u8], &[u8]) {
    let end = line.iter().position(|byte| byte.is_ascii_whitespace() || matches!(byte, b'=' | b'"'));
    let (keyword, rest) = line.split_at_checked(end.unwrap_or(line.len())).unwrap_or((line, b""));
    let rest = rest.trim_ascii_start();
    (keyword, rest.strip_prefix(b"=").unwrap_or(rest).trim_ascii_start())
}

/// Returns whether one of the words of `rest` is `name`, with quotes around it or not.
fn has_word(rest: &[u8], name: &str) -> bool {
    let bare = name.trim_matches('"').as_bytes();
    let mut rest = rest;
    while !rest.is_empty() {
        let (word, after) = if let Some(quoted) = rest.strip_prefix(b"\"") {
            split_at(quoted, |byte| byte == b'"')
        } else {
            split_at(rest, |byte| byte.is_ascii_whitespace())
        };
        if word == bare {
            return true;
        }
        rest = after.trim_ascii_start();
    }
    false
}

/// Splits around the first byte that ends a word.
fn split_at(text: &[u8], ends: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    match text.iter().position(|byte| ends(*byte)) {
        Some(end) => (text.get(..end).unwrap_or_default(), text.get(end + 1..).unwrap_or_default()),
        None => (text, b""),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: [&str; 3] = ["\"/h/dev/.ssh/gateway.config\"", "~/.ssh/gateway.config", "gateway.config"];

    #[test]
    fn line_is_added_at_the_top_once() {
        assert_eq!(with_include(b"", &NAMES).as_deref(), Some(&b"Include \"/h/dev/.ssh/gateway.config\"\n"[..]));
        let present = b"# mine\r\nHost *\r\n\tUser \xff\n";
        let changed = with_include(present, &NAMES).expect("changed");
        assert!(changed.starts_with(b"Include \"/h/dev/.ssh/gateway.config\"\n\n# mine"));
        assert!(changed.ends_with(present));
        assert_eq!(with_include(&changed, &NAMES), None);
    }

    #[test]
    fn line_that_is_there_in_any_spelling_is_found() {
        for present in [
            "Include gateway.config",
            "include ~/.ssh/gateway.config\nHost a",
            "  INCLUDE\t\"/h/dev/.ssh/gateway.config\"  \r\n",
            "Include other.config gateway.config",
            "Include=gateway.config",
            "Include \"a b\" \"gateway.config\"",
            "Port 22\n\nInclude = \"gateway.config\"",
        ] {
            assert_eq!(with_include(present.as_bytes(), &NAMES), None, "{present}");
        }
        for present in [
            "Host x\n  Include gateway.config",
            "Match all\nInclude gateway.config",
            "# Include gateway.config",
            "Include mygateway.config",
            "Include gateway.config.old",
            "Includes gateway.config",
            "Include",
            "Host=x\nInclude gateway.config",
        ] {
            assert!(with_include(present.as_bytes(), &NAMES).is_some(), "{present}");
        }
    }

    proptest! {
        #[test]
        fn rest_is_kept_and_a_second_time_changes_nothing(
            present in prop::collection::vec(
                prop_oneof![
                    Just(b"Host *\n".to_vec()),
                    Just(b"Include gateway.config\n".to_vec()),
                    Just(b"Include x\n".to_vec()),
                    prop::collection::vec(any::<u8>(), 0..20),
                ],
                0..8,
            )
        ) {
            let present = present.concat();
            if let Some(changed) = with_include(&present, &NAMES) {
                prop_assert!(changed.ends_with(&present));
                prop_assert!(changed.starts_with(b"Include \""));
                prop_assert_eq!(with_include(&changed, &NAMES), None);
            }
        }
    }
}
