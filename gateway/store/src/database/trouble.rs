//! Classifies failures of a database (outage, unwritable file) and renders their causes.

use std::fmt;

/// Returns whether a failure means that the database did not answer, and says nothing about the statement.
pub(crate) fn is_outage(error: &sqlx::Error) -> bool {
    if let sqlx::Error::Database(error) = error {
        return match sqlite_code(&**error) {
            // SQLITE_CANTOPEN, SQLITE_NOTADB, SQLITE_IOERR_READ, SQLITE_IOERR_SHORT_READ.
            Some(code) => matches!(code & 0xff, 14 | 26) || matches!(code, 266 | 522),
            None => error.code().is_some_and(|code| is_servers_trouble(&code)),
        };
    }
    matches!(error, sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_))
        || matches!(error, sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed)
}

/// Returns whether a failure means that a file cannot be written by any process: a full disk or quota, or one that
/// became read-only.
pub(crate) fn is_unwritable(error: &sqlx::Error) -> bool {
    // SQLITE_READONLY, SQLITE_IOERR, SQLITE_FULL.
    let code = error.as_database_error().and_then(sqlite_code);
    !is_outage(error) && code.is_some_and(|code| matches!(code & 0xff, 8 | 10 | 13))
}

/// Returns SQLite's extended result code, whose low byte is the primary one; `None` for PostgreSQL's, which are no numbers of it.
fn sqlite_code(error: &dyn sqlx::error::DatabaseError) -> Option<u32> {
    error.try_downcast_ref::<sqlx::sqlite::SqliteError>()?;
    error.code()?.parse().ok()
}

/// Returns whether a code of PostgreSQL (documentation, appendix A) is about the server: the connection (class 08), no
/// more connections (`53300`), an end or a start (`57P01` to `57P03`, `57P05`), the system below it (class 58).
fn is_servers_trouble(code: &str) -> bool {
    code.starts_with("08") || code.starts_with("58") || matches!(code, "53300" | "57P01" | "57P02" | "57P03" | "57P05")
}

/// Renders the cause that the database or the system gave, once; sqlx repeats most of it.
pub(crate) fn cause(error: &sqlx::Error) -> impl fmt::Display + '_ {
    Cause(error)
}

struct Cause<'a>(&'a sqlx::Error);

impl fmt::Display for Cause<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the library adds kinds; their own words are good enough")]
        match self.0 {
            sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                formatter.write_str("it did not answer in time")
            }
            sqlx::Error::Io(error) => write!(formatter, "{error}"),
            sqlx::Error::Database(error) => formatter.write_str(error.message()),
            sqlx::Error::Tls(error) => write!(formatter, "TLS: {error}"),
            sqlx::Error::Configuration(error) => write!(formatter, "{error}"),
            sqlx::Error::PoolTimedOut => formatter.write_str("no connection could be had in time"),
            sqlx::Error::PoolClosed => formatter.write_str("its connections are closed"),
            other => write!(formatter, "{other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_trouble_is_told_from_a_statements() {
        for code in ["08006", "57P01", "57P03", "53300", "58030"] {
            assert!(is_servers_trouble(code), "{code}");
        }
        for code in ["23505", "40001", "57014", "25006", "53100", "42P01"] {
            assert!(!is_servers_trouble(code), "{code}");
        }
    }

    #[test]
    fn cause_is_said_once() {
        let refused = sqlx::Error::Io(std::io::Error::other("Connection refused"));
        assert_eq!(cause(&refused).to_string(), "Connection refused");
        let late = sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
        assert_eq!(cause(&late).to_string(), "it did not answer in time");
    }
}
