//! Placeholders for actions while YAML is read: one private-use character for each (Unicode, plane 15), which no
//! template may contain itself, neither literally nor as an escape.

use super::language::Action;

/// The character of the first action; the others follow.
const FIRST: u32 = 0xf_0000;

/// The last character of the plane (U+FFFFE and U+FFFFF are no characters).
const LAST: u32 = 0xf_fffd;

/// High surrogates with which the plane's characters are written in UTF-16.
const SURROGATES: std::ops::RangeInclusive<u32> = 0xdb80..=0xdbbf;

/// Returns the character of an action; `None` if there are more actions than characters.
pub(super) fn of(index: usize) -> Option<char> {
    let code = FIRST.checked_add(u32::try_from(index).ok()?).filter(|code| *code <= LAST)?;
    char::from_u32(code)
}

/// Returns whether a character can stand for an action.
pub(super) fn is_mask(letter: char) -> bool {
    (FIRST..=LAST).contains(&u32::from(letter))
}

/// Returns the index of the action that a character can stand for.
pub(super) fn index(letter: char) -> Option<usize> {
    let index = u32::from(letter).checked_sub(FIRST)?;
    usize::try_from(index).ok()
}

/// Returns the action that a character stands for.
pub(super) fn action(letter: char, actions: &[Action]) -> Option<&Action> {
    actions.get(index(letter)?)
}

/// Finds the first character of the plane in a text, or the first escape that could become one, in bytes.
pub(super) fn find(text: &str) -> Option<usize> {
    text.char_indices()
        .find(|(at, letter)| match letter {
            '\\' => text.get(at + 1..).is_some_and(is_escaped),
            letter => is_mask(*letter),
        })
        .map(|(at, _)| at)
}

/// Returns whether the text after a backslash is an escape of one of the plane's characters (YAML 1.2.2, section 5.7).
fn is_escaped(rest: &str) -> bool {
    let digits = |digits: usize| rest.get(1..=digits).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    match rest.chars().next() {
        Some('U') => digits(8).is_some_and(|code| (FIRST..=LAST).contains(&code)),
        Some('u') => digits(4).is_some_and(|code| SURROGATES.contains(&code)),
        Some(_) | None => false,
    }
}

/// Returns whether a message shows a character, escaped or not.
pub(super) fn is_in(letter: char, message: &str) -> bool {
    message.contains(letter) || message.contains(&letter.escape_unicode().to_string())
}

/// Replaces placeholders in a message, escaped or not, by their actions.
pub(super) fn unmask(message: &str, actions: &[Action]) -> String {
    let mut shown = String::with_capacity(message.len());
    let mut rest = message;
    while let Some((before, after)) = rest.split_once("\\u{") {
        push(&mut shown, before, actions);
        let code = after.split_once('}').and_then(|(code, after)| Some((u32::from_str_radix(code, 16).ok()?, after)));
        match code.and_then(|(code, after)| Some((action(char::from_u32(code)?, actions)?, after))) {
            Some((action, after)) => {
                push_action(&mut shown, action);
                rest = after;
            }
            None => {
                shown.push_str("\\u{");
                rest = after;
            }
        }
    }
    push(&mut shown, rest, actions);
    shown
}

fn push(shown: &mut String, text: &str, actions: &[Action]) {
    for letter in text.chars() {
        match action(letter, actions) {
            Some(action) => push_action(shown, action),
            None => shown.push(letter),
        }
    }
}

fn push_action(shown: &mut String, action: &Action) {
    shown.push_str("{{ ");
    shown.push_str(action.variable.name());
    shown.push_str(" }}");
}
