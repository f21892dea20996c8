//! A row of either database.

use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::types::{Json, JsonRawValue};
use sqlx::{Decode, Postgres, Row as _, Sqlite, Type};

/// One row of an answer.
pub(crate) enum Row {
    /// Of SQLite.
    Sqlite(SqliteRow),
    /// Of PostgreSQL.
    Postgres(PgRow),
}

/// Types that a column can be read as: `i64`, `bool`, `&str`, `String`, `&[u8]`, and `Option` of each.
pub(crate) trait Read<'r>: Type<Sqlite> + Decode<'r, Sqlite> + Type<Postgres> + Decode<'r, Postgres> {}

impl<'r, T> Read<'r> for T where T: Type<Sqlite> + Decode<'r, Sqlite> + Type<Postgres> + Decode<'r, Postgres> {}

impl Row {
    /// Reads a column.
    pub(crate) fn get<'r, T: Read<'r>>(&'r self, column: &str) -> Result<T, sqlx::Error> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        }
    }

    /// Reads a column that holds JSON. The order of keys and the spaces are the database's.
    pub(crate) fn json(&self, column: &str) -> Result<&str, sqlx::Error> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => Ok(row.try_get::<Json<&JsonRawValue>, _>(column)?.0.get()),
        }
    }
}
