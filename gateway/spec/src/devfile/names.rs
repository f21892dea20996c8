//! Rules that names keep, whatever they name.

use super::SHOWN_NAME_MAX;
use crate::document::{Problems, ValueAt, show};
use crate::syntax::is_dns_label;

/// Prefixes of our own names, in any case.
const RESERVED: [&str; 2] = ["gw-", "gw_"];

/// Returns whether only we may give a name.
pub(super) fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|prefix| name.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix)))
}

/// Notes a problem if a name is reserved. Returns whether it is.
pub(super) fn refuse_reserved(name: &str, at: &ValueAt<'_>, problems: &mut Problems) -> bool {
    let is_reserved = is_reserved(name);
    if is_reserved {
        at.object(problems, "must not begin with gw- or gw_, which are reserved");
    }
    is_reserved
}

/// Reads a name that becomes one in Kubernetes. Returns it also with a problem, so that references to it are sound.
pub(super) fn label<'n>(at: &ValueAt<'n>, problems: &mut Problems) -> Option<&'n str> {
    let name = at.text(problems)?;
    if !refuse_reserved(name, at, problems) && !is_dns_label(name) {
        let message =
            "must be a DNS label, since it becomes a Kubernetes name: at most 63 of a-z, 0-9 and dashes inside";
        at.object(problems, format!("{message}; it is {}", show(name)));
    }
    Some(name)
}

/// Reads a name that people see and nothing else uses.
pub(super) fn shown(at: &ValueAt<'_>, problems: &mut Problems) -> Option<String> {
    let name = at.text(problems)?;
    if name.chars().count() > SHOWN_NAME_MAX || name.contains(char::is_control) {
        at.object(problems, format!("must be one line of at most {SHOWN_NAME_MAX} characters"));
    }
    Some(name.to_owned())
}
