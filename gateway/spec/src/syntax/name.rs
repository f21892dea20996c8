//! Names (Kubernetes documentation, "Object Names and IDs", "Labels and Selectors").

/// Longest DNS label, label value, and name part of a label's key, in characters.
pub const LABEL_NAME_MAX: usize = 63;

/// Longest DNS subdomain, in characters.
const SUBDOMAIN_MAX: usize = 253;

/// Longest image reference, in characters. Registries take less; this only bounds a message.
const IMAGE_MAX: usize = 1024;

/// Returns whether a text is a DNS label (RFC 1123): `a-z`, `0-9` and dashes inside, at most 63 characters.
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=LABEL_NAME_MAX).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Returns whether a text is DNS labels with dots between them, at most 253 characters.
#[must_use]
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN_MAX && text.split('.').all(is_dns_label)
}

/// Returns whether a text may be a label's value: empty, or as [`is_qualified_name`], at most 63 characters.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_qualified_name(text)
}

/// Returns whether a text may be the key of a label or annotation: a name, or `example.com/name`.
#[must_use]
pub fn is_annotation_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_qualified_name(name),
        None => is_qualified_name(text),
    }
}

/// Letters, digits, and inside of them dashes, underscores and dots.
fn is_qualified_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_end = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
    text.len() <= LABEL_NAME_MAX
        && text.bytes().all(inner)
        && is_end(text.chars().next())
        && is_end(text.chars().next_back())
}

/// Returns whether a text may name an environment variable that each shell can read.
#[must_use]
pub fn is_variable(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !text.is_empty()
        && text.len() <= SUBDOMAIN_MAX
        && text.bytes().all(inner)
        && !text.starts_with(|first: char| first.is_ascii_digit())
}

/// Returns whether a text can be a reference to an image: the letters of one, and not how the reference ends up.
#[must_use]
pub fn is_image(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@[]".contains(&byte);
    (1..=IMAGE_MAX).contains(&text.len())
        && text.bytes().all(inner)
        && text.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '[')
        && text.ends_with(|last: char| last.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(is: fn(&str) -> bool, good: &[&str], bad: &[&str]) {
        for text in good {
            assert!(is(text), "{text:?} should be accepted");
        }
        for text in bad {
            assert!(!is(text), "{text:?} should be refused");
        }
    }

    #[test]
    fn dns_labels_are_told_from_other_text() {
        let longest = "a".repeat(63);
        let longer = "a".repeat(64);
        check(
            is_dns_label,
            &["a", "0", "a-b", "a--b", &longest],
            &["", "-a", "a-", "A", "a_b", "a.b", "ä", &longer, "a\n"],
        );
        check(
            is_dns_subdomain,
            &["a", "a.b-c.d"],
            &["", ".", "a.", ".a", "a..b", "a.B", &format!("a{}", ".a".repeat(127))],
        );
    }

    #[test]
    fn label_keys_and_values_are_told_from_other_text() {
        let longer = "a".repeat(64);
        check(is_label_value, &["", "a", "A.b_c-9"], &["-a", "a.", "a b", "a/b", &longer]);
        check(
            is_annotation_key,
            &["a", "A_b.c", "example.com/a"],
            &["", "/a", "a/", "a/b/c", "Example.com/a", "a/-b", &longer],
        );
    }

    #[test]
    fn variables_and_images_are_told_from_other_text() {
        check(is_variable, &["A", "_a9"], &["", "9a", "A-B", "A.B", "A=B", "A B", "Ä"]);
        check(
            is_image,
            &["a", "registry.example.com:5000/team/image:1.0", "a@sha256:0123abcd", "[::1]:5000/a"],
            &["", "-a", "a:", "a b", "a;b", "$(a)", "a\nb", "a'"],
        );
    }
}
