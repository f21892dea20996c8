//! Total parser of paths on the origin of `paths_url`, where a workspace's port is the beginning of a path:
//! `/NAME/PORT/…`. It is for installations without wildcard DNS.
//!
//! As for hosts ([`crate::host`]), it is a grammar and not a search: a name or a port that is written in any other way,
//! with an escape or a leading zero, is none. What follows the port belongs to the app, byte for byte.

use gateway_types::{Port, WorkspaceName};

/// Beginning of the paths that the gateway itself answers. No workspace's name begins with a dot.
const OWN: &str = "/.gateway/";

/// Meaning of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathPlace<'a> {
    /// A workspace.
    Workspace {
        /// The workspace.
        name: WorkspaceName,
        /// The port; `None` for the address of the workspace itself, `/NAME/`.
        port: Option<Port>,
        /// Beginning of the path, without a slash at its end: `/NAME/PORT` or `/NAME`.
        prefix: &'a str,
    },
    /// What the gateway itself answers.
    Gateway(OwnPath),
}

/// Path that belongs to no workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnPath {
    /// Nothing but the origin.
    Home,
    /// A reserved path, for the sign-in.
    Reserved,
    /// The address of a workspace or of a port without the slash at its end, without which a page's relative links would lead
    /// elsewhere.
    WithoutSlash,
    /// Anything else.
    Nothing,
}

impl From<OwnPath> for PathPlace<'_> {
    fn from(path: OwnPath) -> Self {
        Self::Gateway(path)
    }
}

impl<'a> PathPlace<'a> {
    /// Reads the path of a request, which begins with a slash.
    #[must_use]
    pub fn parse(path: &'a str) -> Self {
        if path == "/" {
            return OwnPath::Home.into();
        }
        if path.starts_with(OWN) {
            return OwnPath::Reserved.into();
        }
        let Some(rest) = path.strip_prefix('/') else { return OwnPath::Nothing.into() };
        let (name, after) = match rest.split_once('/') {
            Some((name, after)) => (name, Some(after)),
            None => (rest, None),
        };
        // Another script's name, which a browser would show as such in a host, is none here either.
        let Some(name) = name.parse::<WorkspaceName>().ok().filter(|name| !name.as_str().starts_with("xn--")) else {
            return OwnPath::Nothing.into();
        };
        let Some(after) = after else { return OwnPath::WithoutSlash.into() };
        let name_end = name.as_str().len() + 1;
        if after.is_empty() {
            return Self::Workspace { name, port: None, prefix: path.get(..name_end).unwrap_or_default() };
        }
        let (port, has_slash) = match after.split_once('/') {
            Some((port, _)) => (port, true),
            None => (after, false),
        };
        let Ok(known) = port.parse::<Port>() else { return OwnPath::Nothing.into() };
        if !has_slash {
            return OwnPath::WithoutSlash.into();
        }
        let prefix = path.get(..name_end + 1 + port.len()).unwrap_or_default();
        Self::Workspace { name, port: Some(known), prefix }
    }
}

/// Writes the path of a port of a workspace, or of the workspace itself; [`PathPlace::parse`] reads it back.
#[must_use]
pub fn format(name: &WorkspaceName, port: Option<Port>) -> String {
    match port {
        Some(port) => format!("/{name}/{port}/"),
        None => format!("/{name}/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: Option<(&str, Option<u16>, &str)>) {
        let expected = expected.map(|(name, port, prefix)| PathPlace::Workspace {
            name: name.parse().unwrap(),
            port: port.map(|port| Port::new(port).unwrap()),
            prefix,
        });
        let found = PathPlace::parse(path);
        match expected {
            Some(expected) => assert_eq!(found, expected, "{path}"),
            None => assert!(!matches!(found, PathPlace::Workspace { .. }), "{path}: {found:?}"),
        }
    }

    #[test]
    fn name_and_port_are_read_in_one_spelling_and_the_rest_is_the_apps() {
        check("/app/8080/", Some(("app", Some(8080), "/app/8080")));
        check("/app/8080/a//b/../%2F", Some(("app", Some(8080), "/app/8080")));
        check("/app/8080//evil.org/x", Some(("app", Some(8080), "/app/8080")));
        check("/app/", Some(("app", None, "/app")));
        for none in [
            "/app/08080/",
            "/app/0/",
            "/app/65536/",
            "/app/+80/",
            "/app/%38080/",
            "/%61pp/8080/",
            "/App/8080/",
            "//app/8080/",
            "/app//8080/",
            "/./app/8080/",
            "/../app/8080/",
            "/app/8080;x/",
            "/app/x",
            "/xn--app/8080/",
            "*",
            "",
            "/.gateway",
        ] {
            check(none, None);
        }
    }

    #[test]
    fn origin_own_paths_and_missing_slashes_are_told_apart() {
        assert_eq!(PathPlace::parse("/"), OwnPath::Home.into());
        assert_eq!(PathPlace::parse("/.gateway/sign-in"), OwnPath::Reserved.into());
        assert_eq!(PathPlace::parse("/app"), OwnPath::WithoutSlash.into());
        assert_eq!(PathPlace::parse("/app/8080"), OwnPath::WithoutSlash.into());
        assert_eq!(PathPlace::parse("/app/nothing"), OwnPath::Nothing.into());
    }

    #[test]
    fn written_path_is_read_back() {
        let name: WorkspaceName = "my-app".parse().unwrap();
        for port in [None, Port::new(1), Port::new(65_535)] {
            let path = format(&name, port);
            let PathPlace::Workspace { name: read, port: number, prefix } = PathPlace::parse(&path) else {
                panic!("{path}")
            };
            assert_eq!((read, number, format!("{prefix}/")), (name.clone(), port, path.clone()));
        }
    }
}
