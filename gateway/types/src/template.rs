//! Templates for names made from a credential's values: fixed text with placeholders such as `{pod}`.
//!
//! Two different credentials must never give the same name: that would give one workspace two agents. One placeholder
//! is always unambiguous. Several are separated by exactly one `--` between each two of them, which no value may
//! contain; then every name can be read in one way only.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::{BadUserName, BadWorkspaceName, UserName, WORKSPACE_NAME_BYTES_MAX, WorkspaceName};

/// Longest template, in bytes.
const TEMPLATE_BYTES_MAX: usize = 512;

/// Separator of two placeholders.
const SEPARATOR: &str = "--";

/// The text is not a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadTemplate {
    /// Empty, or too long for a name.
    #[error("a template has 1 to {TEMPLATE_BYTES_MAX} characters")]
    Length,
    /// A brace without its partner, or nothing between two.
    #[error("a placeholder is a name in braces such as {{pod}}")]
    Braces,
    /// Fixed text that no name can have.
    #[error("outside its placeholders, the name of a workspace uses a-z, 0-9 and dashes only")]
    Character,
    /// Two placeholders that could not be told apart.
    #[error("between two placeholders there must be exactly one `--`, so that no two credentials give the same name")]
    Separator,
    /// More than one placeholder where one is allowed.
    #[error("a user's name is made from one placeholder at most")]
    Several,
    /// Fixed text that is no name.
    #[error("{0}")]
    Workspace(BadWorkspaceName),
    /// Fixed text that is no name.
    #[error("{0}")]
    User(BadUserName),
}

/// Reason why a template gave no name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoName {
    /// The credential has no value for a placeholder.
    #[error("the credential has no value for the placeholder {{{0}}}")]
    Missing(Box<str>),
    /// The value could be confused with the text around it.
    #[error("the credential's value for the placeholder {{{0}}} cannot be part of a name")]
    Value(Box<str>),
    /// The result is not the name of a workspace.
    #[error("the rule's result for the credential is not the name of a workspace: {0}")]
    Workspace(BadWorkspaceName),
    /// The result is not the name of a user.
    #[error("the rule's result for the credential is not the name of a user")]
    User,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(Box<str>),
    Value(Box<str>),
}

/// Makes names of workspaces: `{pod}`, `ci-{project_path}--{job_id}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceTemplate(Vec<TemplatePart>);

/// Makes names of users: `ci-bot`, `{user_login}`, `{user_login}@example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserTemplate(Vec<TemplatePart>);

impl WorkspaceTemplate {
    /// Returns the names of the placeholders.
    pub fn placeholders(&self) -> impl Iterator<Item = &str> {
        placeholders(&self.0)
    }

    /// Makes the name for a credential that has `value` for each placeholder.
    ///
    /// # Errors
    /// [`NoName`] when the credential lacks a value, or the result is not a valid, unambiguous name.
    pub fn name(&self, value: impl Fn(&str) -> Option<String>) -> Result<WorkspaceName, NoName> {
        let is_several = self.placeholders().nth(1).is_some();
        let fits = |value: &str| {
            let is_confusing = value.contains(SEPARATOR) || value.starts_with('-') || value.ends_with('-');
            !value.is_empty() && value.len() <= WORKSPACE_NAME_BYTES_MAX && !(is_several && is_confusing)
        };
        render(&self.0, value, fits)?.parse().map_err(NoName::Workspace)
    }
}

impl UserTemplate {
    /// Returns the names of the placeholders.
    pub fn placeholders(&self) -> impl Iterator<Item = &str> {
        placeholders(&self.0)
    }

    /// Makes the name for a credential that has `value` for the placeholder.
    ///
    /// # Errors
    /// [`NoName`].
    pub fn name(&self, value: impl Fn(&str) -> Option<String>) -> Result<UserName, NoName> {
        render(&self.0, value, |value| !value.is_empty())?.parse().map_err(|BadUserName| NoName::User)
    }
}

fn placeholders(parts: &[TemplatePart]) -> impl Iterator<Item = &str> {
    parts.iter().filter_map(|part| match part {
        TemplatePart::Text(_) => None,
        TemplatePart::Value(name) => Some(&**name),
    })
}

fn render(
    parts: &[TemplatePart],
    value: impl Fn(&str) -> Option<String>,
    fits: impl Fn(&str) -> bool,
) -> Result<String, NoName> {
    let mut text = String::new();
    for part in parts {
        match part {
            TemplatePart::Text(fixed) => text.push_str(fixed),
            TemplatePart::Value(name) => {
                let value = value(name).ok_or_else(|| NoName::Missing(name.clone()))?;
                if !fits(&value) {
                    return Err(NoName::Value(name.clone()));
                }
                text.push_str(&value);
            }
        }
    }
    Ok(text)
}

fn parse(text: &str) -> Result<Vec<TemplatePart>, BadTemplate> {
    if text.is_empty() || text.len() > TEMPLATE_BYTES_MAX {
        return Err(BadTemplate::Length);
    }
    let is_name = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
    let (mut parts, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let (fixed, after) = rest.split_at(rest.find(['{', '}']).unwrap_or(rest.len()));
        if !fixed.is_empty() {
            parts.push(TemplatePart::Text(fixed.into()));
        }
        rest = after;
        if rest.is_empty() {
            break;
        }
        let inside = rest.strip_prefix('{').ok_or(BadTemplate::Braces)?;
        let (name, after) = inside.split_once('}').ok_or(BadTemplate::Braces)?;
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(BadTemplate::Braces);
        }
        parts.push(TemplatePart::Value(name.into()));
        rest = after;
    }
    Ok(parts)
}

impl FromStr for WorkspaceTemplate {
    type Err = BadTemplate;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = parse(text)?;
        let is_of_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        for (index, part) in parts.iter().enumerate() {
            let after_value = index.checked_sub(1).and_then(|before| parts.get(before));
            let before_value = parts.get(index + 1);
            match part {
                TemplatePart::Text(fixed) => {
                    if !fixed.bytes().all(is_of_name) {
                        return Err(BadTemplate::Character);
                    }
                    // `---` would be two overlapping separators.
                    let separates = fixed.matches(SEPARATOR).count() == 1 && !fixed.contains("---");
                    if after_value.is_some() && before_value.is_some() && !separates {
                        return Err(BadTemplate::Separator);
                    }
                }
                TemplatePart::Value(_) if matches!(after_value, Some(TemplatePart::Value(_))) => {
                    return Err(BadTemplate::Separator);
                }
                TemplatePart::Value(_) => {}
            }
        }
        let template = Self(parts);
        if template.placeholders().next().is_none() {
            template.name(|_| None).map_err(|error| match error {
                NoName::Workspace(bad) => BadTemplate::Workspace(bad),
                NoName::Missing(_) | NoName::Value(_) | NoName::User => BadTemplate::Character,
            })?;
        }
        Ok(template)
    }
}

impl FromStr for UserTemplate {
    type Err = BadTemplate;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let template = Self(parse(text)?);
        match template.placeholders().count() {
            0 => drop(text.parse::<UserName>().map_err(BadTemplate::User)?),
            1 => {}
            _ => return Err(BadTemplate::Several),
        }
        Ok(template)
    }
}

fn display(parts: &[TemplatePart], formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    parts.iter().try_for_each(|part| match part {
        TemplatePart::Text(fixed) => formatter.write_str(fixed),
        TemplatePart::Value(name) => write!(formatter, "{{{name}}}"),
    })
}

impl fmt::Display for WorkspaceTemplate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        display(&self.0, formatter)
    }
}

impl fmt::Display for UserTemplate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        display(&self.0, formatter)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn workspace(text: &str) -> Result<WorkspaceTemplate, BadTemplate> {
        text.parse()
    }

    fn name(template: &str, values: &[(&str, &str)]) -> Result<String, NoName> {
        let value = |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        workspace(template).unwrap().name(value).map(|name| name.to_string())
    }

    #[test]
    fn template_without_an_unmistakable_name_is_refused() {
        for text in ["app", "{pod}", "ci-{job}", "{namespace}--{pod}", "{a}-x--{b}", "x{a}--y-{b}--{c}z"] {
            assert_eq!(workspace(text).map(|template| template.to_string()), Ok(text.to_owned()));
        }
        for (text, wrong) in [
            ("", BadTemplate::Length),
            ("{", BadTemplate::Braces),
            ("}", BadTemplate::Braces),
            ("{}", BadTemplate::Braces),
            ("{a{b}}", BadTemplate::Braces),
            ("{a b}", BadTemplate::Braces),
            ("A{pod}", BadTemplate::Character),
            ("a.{pod}", BadTemplate::Character),
            ("{a}{b}", BadTemplate::Separator),
            ("{a}-{b}", BadTemplate::Separator),
            ("{a}---{b}", BadTemplate::Separator),
            ("{a}--x--{b}", BadTemplate::Separator),
            ("8080-app", BadTemplate::Workspace(BadWorkspaceName::LooksLikePort)),
        ] {
            assert_eq!(workspace(text), Err(wrong), "{text:?}");
        }
        assert_eq!(workspace(&"a".repeat(513)), Err(BadTemplate::Length));
    }

    #[test]
    fn name_is_made_only_of_what_cannot_be_mistaken() {
        assert_eq!(name("{pod}", &[("pod", "app-1")]).as_deref(), Ok("app-1"));
        assert_eq!(name("{pod}", &[("pod", "app--1")]).as_deref(), Ok("app--1"), "alone, it is unmistakable");
        assert_eq!(name("{ns}--{pod}", &[("ns", "a-b"), ("pod", "c")]).as_deref(), Ok("a-b--c"));
        assert_eq!(name("{ns}--{pod}", &[("ns", "a--b"), ("pod", "c")]), Err(NoName::Value("ns".into())));
        assert_eq!(name("{ns}--{pod}", &[("ns", "a-"), ("pod", "c")]), Err(NoName::Value("ns".into())));
        assert_eq!(name("{pod}", &[("pod", "")]), Err(NoName::Value("pod".into())));
        assert_eq!(name("{pod}", &[]), Err(NoName::Missing("pod".into())));
        for bad in ["app.1", "App", "-app", "8080-app", "a/b", "app\n", "ä"] {
            assert!(name("{pod}", &[("pod", bad)]).is_err(), "{bad:?}");
        }
        assert!(name("x-{pod}", &[("pod", &"a".repeat(56))]).is_err(), "too long");
    }

    #[test]
    fn owner_has_one_placeholder_at_most() {
        let owner = |template: &str, login: &str| {
            template.parse::<UserTemplate>().unwrap().name(|_| Some(login.to_owned())).map(|name| name.to_string())
        };
        assert_eq!(owner("ci-bot", "alice").as_deref(), Ok("ci-bot"));
        assert_eq!(owner("{user_login}", "alice").as_deref(), Ok("alice"));
        assert_eq!(owner("{user_login}@example.com", "alice").as_deref(), Ok("alice@example.com"));
        assert_eq!(owner("{user_login}", "a b"), Err(NoName::User));
        assert_eq!(owner("{user_login}", ""), Err(NoName::Value("user_login".into())));
        assert_eq!("{a}{b}".parse::<UserTemplate>(), Err(BadTemplate::Several));
        assert_eq!("a b".parse::<UserTemplate>(), Err(BadTemplate::User(BadUserName)));
    }

    proptest! {
        #[test]
        fn different_credentials_never_give_the_same_name(
            one in ("[a-z0-9-]{1,6}", "[a-z0-9-]{1,6}", "[a-z0-9-]{1,6}"),
            other in ("[a-z0-9-]{1,6}", "[a-z0-9-]{1,6}", "[a-z0-9-]{1,6}"),
            template in prop_oneof![Just("{0}"), Just("{0}--{1}"), Just("w-{0}-x--{1}--y-{2}-z"), Just("{0}-a--{1}")],
        ) {
            let template = workspace(template).unwrap();
            let pick = |values: &(String, String, String), name: &str| Some(match name {
                "0" => values.0.clone(),
                "1" => values.1.clone(),
                _ => values.2.clone(),
            });
            let (left, right) = (template.name(|name| pick(&one, name)), template.name(|name| pick(&other, name)));
            if let (Ok(left), Ok(right)) = (left, right)
                && left == right
            {
                for placeholder in template.placeholders() {
                    prop_assert_eq!(pick(&one, placeholder), pick(&other, placeholder));
                }
            }
        }

        #[test]
        fn any_text_is_answered(text: String) {
            drop(workspace(&text).map(|template| template.name(|_| Some(text.clone()))));
            drop(text.parse::<UserTemplate>());
        }
    }
}
