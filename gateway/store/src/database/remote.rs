//! Statements for a database behind a test's network.

use super::{Row, Statement, sqlite_rows};
use crate::remote::{Answer, RemoteConnection, RemoteDatabase, RemoteWork};

type Connection = Box<dyn RemoteConnection>;

async fn run(connection: &mut Connection, work: RemoteWork) -> Result<Answer, sqlx::Error> {
    connection.run(work).await?.0
}

pub(super) async fn begin(database: &dyn RemoteDatabase) -> Result<Connection, sqlx::Error> {
    let mut connection = database.connect().await?;
    run(&mut connection, RemoteWork::Begin).await?;
    Ok(connection)
}

pub(super) async fn commit(mut connection: Connection) -> Result<(), sqlx::Error> {
    run(&mut connection, RemoteWork::Commit).await.map(drop)
}

pub(super) async fn execute(database: &dyn RemoteDatabase, statement: Statement<'_>) -> Result<u64, sqlx::Error> {
    execute_on(&mut database.connect().await?, statement).await
}

pub(super) async fn execute_on(connection: &mut Connection, statement: Statement<'_>) -> Result<u64, sqlx::Error> {
    run(connection, RemoteWork::Execute(statement.for_remote())).await?.changed()
}

pub(super) async fn fetch_all(
    database: &dyn RemoteDatabase,
    statement: Statement<'_>,
) -> Result<Vec<Row>, sqlx::Error> {
    fetch_all_on(&mut database.connect().await?, statement).await
}

pub(super) async fn fetch_all_on(
    connection: &mut Connection,
    statement: Statement<'_>,
) -> Result<Vec<Row>, sqlx::Error> {
    Ok(sqlite_rows(run(connection, RemoteWork::Fetch(statement.for_remote())).await?.rows()?))
}
