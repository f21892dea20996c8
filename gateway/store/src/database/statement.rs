//! A statement and the values for its parameters, independent of the database that will run it.

use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::types::{Json, JsonRawValue};
use sqlx::{Postgres, Sqlite};

/// Begins a statement that both databases understand.
pub(crate) fn sql<'q>(text: &'static str) -> Statement<'q> {
    sql_of(text, text)
}

/// Begins a statement with a text for each database. The parameters are the same.
pub(crate) fn sql_of<'q>(sqlite: &'static str, postgres: &'static str) -> Statement<'q> {
    Statement { sqlite, postgres, values: Vec::new() }
}

/// A statement with values for its first parameters.
#[derive(Debug)]
pub(crate) struct Statement<'q> {
    sqlite: &'static str,
    postgres: &'static str,
    values: Vec<Value<'q>>,
}

/// The value of a parameter.
#[derive(Debug)]
pub(crate) enum Value<'q> {
    /// A number or NULL.
    Integer(Option<i64>),
    /// A text or NULL.
    Text(Option<&'q str>),
    /// A text that was made for this, or NULL.
    Owned(Option<String>),
    /// Bytes.
    Bytes(&'q [u8]),
    /// A JSON text, for a column that holds JSON.
    Json(&'q str),
}

impl<'q> Statement<'q> {
    /// Gives the next parameter its value.
    pub(crate) fn bind(mut self, value: impl Into<Value<'q>>) -> Self {
        self.values.push(value.into());
        self
    }

    pub(super) fn for_sqlite(self) -> Query<'static, Sqlite, SqliteArguments> {
        self.values.into_iter().fold(sqlx::query(self.sqlite), |query, value| match value {
            Value::Integer(number) => query.bind(number),
            Value::Text(text) => query.bind(text),
            Value::Owned(text) => query.bind(text),
            Value::Bytes(bytes) => query.bind(bytes),
            Value::Json(text) => query.bind(text),
        })
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn for_remote(self) -> crate::remote::RemoteStatement {
        crate::remote::RemoteStatement::new(self.sqlite, self.values)
    }

    /// Fails for a [`Value::Json`] that is not JSON.
    pub(super) fn for_postgres(self) -> Result<Query<'static, Postgres, PgArguments>, sqlx::Error> {
        let mut query = sqlx::query(self.postgres);
        for value in self.values {
            query = match value {
                Value::Integer(number) => query.bind(number),
                Value::Text(text) => query.bind(text),
                Value::Owned(text) => query.bind(text),
                Value::Bytes(bytes) => query.bind(bytes),
                Value::Json(text) => {
                    let json: &JsonRawValue =
                        serde_json::from_str(text).map_err(|error| sqlx::Error::Encode(error.into()))?;
                    query.bind(Json(json))
                }
            };
        }
        Ok(query)
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Integer(Some(number))
    }
}

impl From<Option<i64>> for Value<'_> {
    fn from(number: Option<i64>) -> Self {
        Self::Integer(number)
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Self::Integer(Some(number.into()))
    }
}

impl From<u16> for Value<'_> {
    fn from(number: u16) -> Self {
        Self::Integer(Some(number.into()))
    }
}

impl<'q> From<&'q str> for Value<'q> {
    fn from(text: &'q str) -> Self {
        Self::Text(Some(text))
    }
}

impl<'q> From<Option<&'q str>> for Value<'q> {
    fn from(text: Option<&'q str>) -> Self {
        Self::Text(text)
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::Owned(Some(text))
    }
}

impl From<Option<String>> for Value<'_> {
    fn from(text: Option<String>) -> Self {
        Self::Owned(text)
    }
}

impl<'q> From<&'q [u8]> for Value<'q> {
    fn from(bytes: &'q [u8]) -> Self {
        Self::Bytes(bytes)
    }
}
