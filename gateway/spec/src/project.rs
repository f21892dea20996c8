//! Projects to clone into a workspace: where they are, which branch or tag, and the folders that they get.

use std::str::FromStr;

use thiserror::Error;

use crate::syntax::is_web_url;

/// Most projects of a workspace.
pub const PROJECTS_MAX: usize = 16;

/// Longest URL, and longest name of a branch or a tag, in bytes.
const URL_BYTES_MAX: usize = 2048;
const REFERENCE_BYTES_MAX: usize = 255;

/// Longest name of a folder, in characters.
const FOLDER_MAX: usize = 100;

/// A project to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// `https` or `http`, without credentials.
    pub url: String,
    /// A branch or a tag; `None` for the default branch.
    pub reference: Option<String>,
}

/// What is wrong with a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadProject {
    /// Not an absolute URL of a web server.
    #[error("is no URL of a web server")]
    Url,
    /// Others would see them: a definition is stored, and shown.
    #[error("has credentials in its URL, which others would see")]
    Credentials,
    /// Not a name by git-check-ref-format.
    #[error("the reference is no name of a branch or tag")]
    Reference,
}

impl Project {
    /// Splits `URL[@REFERENCE]`, whatever the parts are: the first `@` behind the host begins the reference.
    #[must_use]
    pub fn split(text: &str) -> Self {
        let path = text.find("://").and_then(|scheme| {
            let host = scheme + 3;
            text.get(host..)?.find('/').map(|slash| host + slash)
        });
        let at = path.and_then(|path| text.get(path..)?.find('@').map(|at| path + at));
        match at.and_then(|at| Some((text.get(..at)?, text.get(at + 1..)?))) {
            Some((url, reference)) => Self { url: url.to_owned(), reference: Some(reference.to_owned()) },
            None => Self { url: text.to_owned(), reference: None },
        }
    }

    /// Returns what is wrong with it.
    pub fn problems(&self) -> impl Iterator<Item = BadProject> + use<> {
        let has_credentials =
            url::Url::parse(&self.url).is_ok_and(|url| !url.username().is_empty() || url.password().is_some());
        let is_sound = self.reference.as_deref().is_none_or(is_reference);
        let url = (!is_project_url(&self.url)).then_some(BadProject::Url);
        let credentials = has_credentials.then_some(BadProject::Credentials);
        url.into_iter().chain(credentials).chain((!is_sound).then_some(BadProject::Reference))
    }

    /// Returns the name of the folder that it is cloned into: what its URL ends with, as far as that is plain.
    #[must_use]
    pub fn folder(&self) -> String {
        folder_of(&self.url)
    }
}

/// Reads `URL[@REFERENCE]`: see [`Project::split`].
impl FromStr for Project {
    type Err = BadProject;

    fn from_str(text: &str) -> Result<Self, BadProject> {
        let project = Self::split(text);
        match project.problems().next() {
            Some(problem) => Err(problem),
            None => Ok(project),
        }
    }
}

/// Returns whether a text is a URL that a project, or an archive, can be at.
pub(crate) fn is_project_url(url: &str) -> bool {
    url.len() <= URL_BYTES_MAX && is_web_url(url) && !url.contains(|letter: char| !letter.is_ascii_graphic())
}

/// Names the folder of a URL's project.
pub(crate) fn folder_of(url: &str) -> String {
    let path = if is_web_url(url) { url.split(['?', '#']).next().unwrap_or_default() } else { "" };
    let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let plain = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let name: String = last.strip_suffix(".git").unwrap_or(last).chars().filter(plain).take(FOLDER_MAX).collect();
    if name.trim_start_matches('.').is_empty() { "project".to_owned() } else { name.trim_start_matches('.').to_owned() }
}

/// Returns whether a text can be a branch or a tag (git-check-ref-format).
fn is_reference(text: &str) -> bool {
    (1..=REFERENCE_BYTES_MAX).contains(&text.len())
        && !text.starts_with(['-', '/'])
        && !text.ends_with(['/', '.'])
        && !text.contains("..")
        && !text.contains("//")
        && !text.contains("@{")
        && !text.split('/').any(|part| part.starts_with('.') || part.ends_with(".lock"))
        && !text.contains(|letter: char| letter.is_control() || " ~^:?*[\\".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn project_is_a_url_and_perhaps_a_reference() {
        let read = |text: &str| text.parse::<Project>().map(|project| (project.url, project.reference));
        let of = |url: &str, reference: Option<&str>| Ok((url.to_owned(), reference.map(str::to_owned)));
        let url = "https://git.example.com/team/app.git";
        assert_eq!(read(url), of(url, None));
        assert_eq!(read(&format!("{url}@feature/login@2")), of(url, Some("feature/login@2")));
        assert_eq!(read("http://localhost:3000/a@v1.0"), of("http://localhost:3000/a", Some("v1.0")));
        for (text, wrong) in [
            ("git@git.example.com:team/app.git", BadProject::Url),
            ("file:///etc", BadProject::Url),
            ("ext::sh -c id", BadProject::Url),
            ("", BadProject::Url),
            ("https://user:secret@git.example.com/app", BadProject::Credentials),
            ("https://git.example.com/app@", BadProject::Reference),
            ("https://git.example.com/app@--upload-pack=id", BadProject::Reference),
            ("https://git.example.com/app@a..b", BadProject::Reference),
        ] {
            assert_eq!(read(text), Err(wrong), "{text}");
        }
    }

    #[test]
    fn folder_is_the_last_part_of_the_path_and_never_hidden_nor_elsewhere() {
        for (url, folder) in [
            ("https://git.example.com/team/shop.git", "shop"),
            ("https://git.example.com/team/shop/?x=/y", "shop"),
            ("https://example.com/../..", "project"),
            ("https://example.com/a/%2e%2e$(id)", "2e2eid"),
            ("https://example.com", "example.com"),
            ("https://example.com/.git", "project"),
            ("", "project"),
            ("https://git.example.com/team/...", "project"),
            ("https://git.example.com/a%20b$(id)", "a20bid"),
        ] {
            assert_eq!(folder_of(url), folder, "{url}");
        }
    }
}
