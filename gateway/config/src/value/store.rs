//! The URL of the database: `store.url`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ::url::Url;
use thiserror::Error;

use super::ValueKind;
use gateway_types::Secret;

/// Location of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// `sqlite://PATH`: one file; a relative path starts at the folder of the file that has it, else at the working directory.
    SqliteFile(PathBuf),
    /// `sqlite::memory:`: gone when the process ends.
    SqliteMemory,
    /// `postgres://…`: a database on a server.
    Postgres(PostgresUrl),
}

/// Reason why a text is not a [`StoreUrl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadStoreUrl {
    /// The scheme is of neither database.
    #[error("this version has SQLite and PostgreSQL")]
    Scheme,
    /// `sqlite://` without a path.
    #[error("the file's path is missing")]
    NoPath,
    /// `?` or `#` in the path, or a NUL.
    #[error("the path cannot contain `?`, `#` or NUL")]
    Character,
    /// It begins like a URL of PostgreSQL and is none.
    #[error("not a URL: special characters of a user or password have to be written as %XX")]
    NotUrl,
    /// No server is named.
    #[error("the server's host is missing; a socket's folder is named with `?host=/run/postgresql`")]
    NoHost,
    /// No database is named.
    #[error("the name of the database is missing behind the host")]
    NoDatabase,
    /// A parameter after `?` that is not known.
    #[error(
        "a parameter behind `?` is not known; there are sslmode, sslrootcert, sslcert, sslkey, host, port, \
         application_name, options and statement-cache-capacity"
    )]
    Parameter,
    /// `sslmode` is no known mode.
    #[error("sslmode has to be disable, prefer, require, verify-ca or verify-full")]
    SslMode,
    /// A number that is not one.
    #[error("port and statement-cache-capacity have to be numbers")]
    Number,
}

impl FromStr for StoreUrl {
    type Err = BadStoreUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "sqlite::memory:" {
            return Ok(Self::SqliteMemory);
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return text.parse().map(Self::Postgres);
        }
        let path = text.strip_prefix("sqlite://").ok_or(BadStoreUrl::Scheme)?;
        if path.is_empty() {
            return Err(BadStoreUrl::NoPath);
        }
        if path.contains(['?', '#', '\0']) {
            return Err(BadStoreUrl::Character);
        }
        Ok(Self::SqliteFile(PathBuf::from(path)))
    }
}

impl StoreUrl {
    /// Anchors relative paths in it at a folder.
    fn anchored(self, folder: &Path) -> Self {
        match self {
            Self::SqliteFile(path) => Self::SqliteFile(folder.join(path)),
            Self::SqliteMemory => Self::SqliteMemory,
            Self::Postgres(url) => Self::Postgres(url.anchored(folder)),
        }
    }
}

impl fmt::Display for StoreUrl {
    /// Writes the URL with a mask for the password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SqliteFile(path) => write!(formatter, "sqlite://{}", path.display()),
            Self::SqliteMemory => formatter.write_str("sqlite::memory:"),
            Self::Postgres(url) => url.fmt(formatter),
        }
    }
}

/// A `postgres://` URL (PostgreSQL documentation, section 34.1.1.2). `Debug` and `Display` mask the password.
///
/// Invariants: it names a server and a database, and only parameters that have an effect.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    whole: Secret,
    shown: String,
    has_password: bool,
}

impl PostgresUrl {
    /// Returns the URL with the password. Every caller is a place to review.
    #[must_use]
    pub fn reveal(&self) -> &str {
        self.whole.reveal()
    }

    /// Anchors relative paths of certificates and keys at a folder.
    fn anchored(self, folder: &Path) -> Self {
        const FILES: [&str; 3] = ["sslrootcert", "sslcert", "sslkey"];
        let Ok(mut url) = Url::parse(self.reveal()) else { return self };
        let pairs: Vec<(String, String)> =
            url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        if !pairs.iter().any(|(name, value)| FILES.contains(&name.as_str()) && Path::new(value).is_relative()) {
            return self;
        }
        let anchored = pairs.into_iter().map(|(name, value)| match FILES.contains(&name.as_str()) {
            true => (name, folder.join(value).display().to_string()),
            false => (name, value),
        });
        url.query_pairs_mut().clear().extend_pairs(anchored.collect::<Vec<_>>());
        // The URL was valid, and still is.
        url.as_str().parse().unwrap_or(self)
    }

    /// Returns the files that a parameter names.
    #[must_use]
    pub fn file(&self, parameter: &str) -> Option<PathBuf> {
        let url = Url::parse(self.reveal()).ok()?;
        url.query_pairs().find(|(name, _)| name == parameter).map(|(_, value)| PathBuf::from(value.into_owned()))
    }

    /// Tells whether there is a password in it.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.has_password
    }
}

impl FromStr for PostgresUrl {
    type Err = BadStoreUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let url = Url::parse(text).map_err(|_| BadStoreUrl::NotUrl)?;
        if !matches!(url.scheme(), "postgres" | "postgresql") || url.fragment().is_some() {
            return Err(BadStoreUrl::NotUrl);
        }
        let mut has_host = url.host_str().is_some_and(|host| !host.is_empty());
        for (name, value) in url.query_pairs() {
            match &*name {
                "host" => has_host |= !value.is_empty(),
                "sslmode" => check(
                    ["disable", "prefer", "require", "verify-ca", "verify-full"].contains(&&*value),
                    BadStoreUrl::SslMode,
                )?,
                "port" => check(value.parse::<u16>().is_ok(), BadStoreUrl::Number)?,
                "statement-cache-capacity" => check(value.parse::<u16>().is_ok(), BadStoreUrl::Number)?,
                "sslrootcert" | "sslcert" | "sslkey" | "application_name" | "options" => {}
                _ => return Err(BadStoreUrl::Parameter),
            }
        }
        check(has_host, BadStoreUrl::NoHost)?;
        check(!url.path().trim_start_matches('/').is_empty(), BadStoreUrl::NoDatabase)?;
        let has_password = url.password().is_some();
        let mut shown = url.clone();
        if has_password {
            // It has a host or no user, so it can have a password.
            shown.set_password(Some(Secret::MASK)).map_err(|()| BadStoreUrl::NotUrl)?;
        }
        let shown = String::from(shown);
        Ok(Self { whole: Secret::new(text.to_owned()), shown, has_password })
    }
}

fn check(holds: bool, otherwise: BadStoreUrl) -> Result<(), BadStoreUrl> {
    if holds { Ok(()) } else { Err(otherwise) }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.shown)
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.shown)
    }
}

pub(crate) const STORE_URL: ValueKind<StoreUrl> =
    ValueKind::of_text("`sqlite://` and a path, `sqlite::memory:`, or `postgres://USER@HOST/DATABASE`")
        .anchored(StoreUrl::anchored);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_url_is_a_file_or_memory_or_a_server() {
        assert_eq!("sqlite::memory:".parse(), Ok(StoreUrl::SqliteMemory));
        assert_eq!("sqlite:///var/lib/g.db".parse(), Ok(StoreUrl::SqliteFile("/var/lib/g.db".into())));
        assert_eq!("sqlite://".parse::<StoreUrl>(), Err(BadStoreUrl::NoPath));
        assert_eq!("sqlite://a?mode=ro".parse::<StoreUrl>(), Err(BadStoreUrl::Character));
        for text in ["", "gateway.db", "mysql://h/db", "postgres:h/db", "Postgres://h/db", "sqlite:gateway.db"] {
            assert_eq!(text.parse::<StoreUrl>(), Err(BadStoreUrl::Scheme), "{text:?}");
        }
        for text in [
            "postgres://h/db",
            "postgresql://u@h:5433/db",
            "postgres:///db?host=/run/postgresql",
            "postgres://u:p@[::1]/db?sslmode=verify-full&sslrootcert=/etc/ca.pem&application_name=gw",
        ] {
            assert!(matches!(text.parse(), Ok(StoreUrl::Postgres(url)) if url.reveal() == text), "{text:?}");
        }
    }

    #[test]
    fn mistakes_in_a_url_of_postgresql_are_named() {
        for (text, expected) in [
            ("postgres://u:p@h:port/db", BadStoreUrl::NotUrl),
            ("postgres://u:p#x@h/db", BadStoreUrl::NotUrl),
            ("postgres:///db", BadStoreUrl::NoHost),
            ("postgres://h", BadStoreUrl::NoDatabase),
            ("postgres://h/", BadStoreUrl::NoDatabase),
            ("postgres://h/db?sslmode=allow", BadStoreUrl::SslMode),
            ("postgres://h/db?ssl=true", BadStoreUrl::Parameter),
            ("postgres://h/db?password=hunter2", BadStoreUrl::Parameter),
            ("postgres://h/db?port=x", BadStoreUrl::Number),
        ] {
            assert_eq!(text.parse::<StoreUrl>(), Err(expected), "{text:?}");
        }
    }

    #[test]
    fn password_of_a_store_url_is_never_shown() {
        let url: StoreUrl = "postgres://gateway:hunter2@db.example/gateway?sslmode=require".parse().unwrap();
        let shown = "postgres://gateway:********@db.example/gateway?sslmode=require";
        assert_eq!(url.to_string(), shown);
        assert_eq!(format!("{url:?}"), format!("Postgres({shown})"));
        let StoreUrl::Postgres(url) = url else { panic!("it is PostgreSQL's") };
        assert!(url.has_password() && url.reveal().contains("hunter2"));
    }
}
