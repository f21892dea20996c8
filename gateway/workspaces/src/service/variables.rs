//! Rules for the variables of a workspace.

use std::collections::HashSet;

use thiserror::Error;

use gateway_store::{Variable, VariableKind};

/// Most variables of one workspace.
pub const VARIABLES_MAX: usize = 256;

/// Longest name of a variable, in bytes: that of a key in a Secret (Kubernetes API, core/v1).
const NAME_BYTES_MAX: usize = 253;

/// All values together, in bytes. A Secret holds 1 MiB at most, and the gateway's own are beside them.
pub const VARIABLES_BYTES_MAX: usize = 512 * 1024;

/// Prefixes of the gateway's own variables, in any case; and its own file.
const RESERVED: [&str; 3] = ["gw-", "gw_", "agent-token"];

/// Problem of one variable. No value is repeated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadVariable {
    /// Not a name that a shell could use.
    #[error(
        "variable {number}: the name of an environment variable has letters, digits and underscores, and begins with no digit"
    )]
    EnvName {
        /// Index of the variable, from 0.
        number: usize,
    },
    /// Not a name that a file can have there.
    #[error(
        "variable {number}: the name of a file has letters, digits, `-`, `_` and `.`, and does not begin with `..`"
    )]
    FileName {
        /// Index of the variable, from 0.
        number: usize,
    },
    /// One of the gateway's own.
    #[error("variable {number}: names that begin with gw- or gw_, and agent-token, are the gateway's own")]
    Reserved {
        /// Index of the variable, from 0.
        number: usize,
    },
    /// There is another of that kind and name.
    #[error("variable {number}: is there twice")]
    Twice {
        /// Index of the variable, from 0.
        number: usize,
    },
    /// A value that no environment can hold.
    #[error("variable {number}: the value of an environment variable has no NUL character")]
    Nul {
        /// Index of the variable, from 0.
        number: usize,
    },
    /// Too many.
    #[error("there are more than {VARIABLES_MAX} variables")]
    Number,
    /// Too long.
    #[error("the variables have more than {VARIABLES_BYTES_MAX} bytes together")]
    Size,
}

/// Returns all problems.
#[must_use]
pub fn check(variables: &[Variable]) -> Vec<BadVariable> {
    let mut wrong = Vec::new();
    if variables.len() > VARIABLES_MAX {
        wrong.push(BadVariable::Number);
    }
    let bytes = |variable: &Variable| variable.name.len().saturating_add(variable.value.reveal().len());
    if variables.iter().map(bytes).fold(0, usize::saturating_add) > VARIABLES_BYTES_MAX {
        wrong.push(BadVariable::Size);
    }
    let mut seen = HashSet::new();
    for (number, variable) in variables.iter().take(VARIABLES_MAX).enumerate() {
        wrong.extend(check_one(number, variable));
        if !seen.insert((variable.kind, variable.name.as_str())) {
            wrong.push(BadVariable::Twice { number });
        }
    }
    wrong
}

fn check_one(number: usize, variable: &Variable) -> Option<BadVariable> {
    let name = variable.name.as_bytes();
    let is_good = match variable.kind {
        VariableKind::Env => is_env_name(name),
        VariableKind::File => is_file_name(name),
    };
    if !is_good || name.len() > NAME_BYTES_MAX {
        return Some(match variable.kind {
            VariableKind::Env => BadVariable::EnvName { number },
            VariableKind::File => BadVariable::FileName { number },
        });
    }
    let is_reserved = |own: &&str| name.get(..own.len()).is_some_and(|head| head.eq_ignore_ascii_case(own.as_bytes()));
    if RESERVED.iter().any(is_reserved) {
        return Some(BadVariable::Reserved { number });
    }
    let has_nul = variable.kind == VariableKind::Env && variable.value.reveal().contains('\0');
    has_nul.then_some(BadVariable::Nul { number })
}

fn is_env_name(name: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    name.first().is_some_and(|first| !first.is_ascii_digit()) && name.iter().all(plain)
}

fn is_file_name(name: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.is_empty() && name != b"." && !name.starts_with(b"..") && name.iter().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway_store::SecretText;

    fn variable(kind: VariableKind, name: &str, value: &str) -> Variable {
        Variable { kind, name: name.to_owned(), value: SecretText::new(value.to_owned()) }
    }

    #[track_caller]
    fn check_name(kind: VariableKind, name: &str, expected: &[BadVariable]) {
        assert_eq!(check(&[variable(kind, name, "secret-value")]), expected, "{name:?}");
    }

    #[test]
    fn names_are_those_that_shells_and_secrets_take() {
        for name in ["A", "_a1", "PATH"] {
            check_name(VariableKind::Env, name, &[]);
        }
        for name in ["", "1A", "a-b", "a b", "a=b", "A\n", "ä", &"a".repeat(254)] {
            check_name(VariableKind::Env, name, &[BadVariable::EnvName { number: 0 }]);
        }
        for name in ["id_rsa", ".npmrc", "a.b-c", "1"] {
            check_name(VariableKind::File, name, &[]);
        }
        for name in ["", ".", "..", "..data", "a/b", "a b", &"a".repeat(254)] {
            check_name(VariableKind::File, name, &[BadVariable::FileName { number: 0 }]);
        }
        for (kind, name) in
            [(VariableKind::Env, "GW_TOKEN"), (VariableKind::File, "gw-x"), (VariableKind::File, "agent-token")]
        {
            check_name(kind, name, &[BadVariable::Reserved { number: 0 }]);
        }
    }

    #[test]
    fn all_mistakes_are_told_and_no_value() {
        let wrong = check(&[
            variable(VariableKind::Env, "A", "one\0"),
            variable(VariableKind::Env, "A", "secret-value"),
            variable(VariableKind::File, "A", ""),
            variable(VariableKind::File, "/", "secret-value"),
        ]);
        assert_eq!(
            wrong,
            [BadVariable::Nul { number: 0 }, BadVariable::Twice { number: 1 }, BadVariable::FileName { number: 3 }]
        );
        assert!(!format!("{wrong:?}").contains("secret"));
    }

    #[test]
    fn number_and_size_are_bounded() {
        let many: Vec<_> =
            (0..=VARIABLES_MAX).map(|number| variable(VariableKind::Env, &format!("A{number}"), "")).collect();
        assert_eq!(check(&many), [BadVariable::Number]);
        let large = variable(VariableKind::File, "a", &"x".repeat(VARIABLES_BYTES_MAX));
        assert_eq!(check(&[large]), [BadVariable::Size]);
    }
}
