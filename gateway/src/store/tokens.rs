//! Statements about tokens.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use super::sqlite::BEGIN_WRITE;
use super::workspaces::find_or_create;
use super::{NewToken, Store, StoreError, TokenId, TokenRecord, TokenSubject, WorkspaceId};
use crate::auth::token::{Token, TokenKind};
use crate::model::{UnixSeconds, UserName, WorkspaceName};

impl Store {
    /// Makes a token for the agent of a workspace, and the workspace itself, as an `external` one, if there is none.
    ///
    /// # Errors
    /// [`StoreError::OtherOwner`] when the workspace is somebody else's; else a failed database or random source. Then
    /// nothing is stored.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it stores everything or nothing.
    pub async fn create_agent_token(
        &self,
        workspace: &WorkspaceName,
        owner: &UserName,
        now: UnixSeconds,
    ) -> Result<NewToken, StoreError> {
        let token = Token::generate(TokenKind::Agent)?;
        let mut transaction = self.writer.begin_with(BEGIN_WRITE).await?;
        let workspace_id = find_or_create(&mut transaction, workspace, owner, now).await?;
        let id = insert(&mut transaction, &token, Some(workspace_id), None, now).await?;
        transaction.commit().await?;
        Ok(NewToken { id, token })
    }

    /// Makes a token for programs of a user.
    ///
    /// # Errors
    /// A failed database or random source.
    pub async fn create_user_token(&self, user: &UserName, now: UnixSeconds) -> Result<NewToken, StoreError> {
        let token = Token::generate(TokenKind::User)?;
        let mut connection = self.writer.acquire().await?;
        let id = insert(&mut connection, &token, None, Some(user), now).await?;
        Ok(NewToken { id, token })
    }

    /// Returns the token with that hash, live or not: [`TokenRecord::is_live`] decides.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn token_by_hash(&self, hash: &[u8; 32]) -> Result<Option<TokenRecord>, StoreError> {
        let statement = "SELECT tokens.id, kind, workspace_id, name, user_name, hint, tokens.created_at, expires_at, revoked_at \
             FROM tokens LEFT JOIN workspaces ON workspaces.id = workspace_id WHERE hash = ?";
        let row = sqlx::query(statement).bind(hash.as_slice()).fetch_optional(&self.readers).await?;
        row.map(|row| read_token(&row)).transpose()
    }

    /// Returns all tokens, live or not, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn list_tokens(&self) -> Result<Vec<TokenRecord>, StoreError> {
        let statement = "SELECT tokens.id, kind, workspace_id, name, user_name, hint, tokens.created_at, expires_at, revoked_at \
             FROM tokens LEFT JOIN workspaces ON workspaces.id = workspace_id ORDER BY tokens.id";
        let rows = sqlx::query(statement).fetch_all(&self.readers).await?;
        rows.iter().map(read_token).collect()
    }

    /// Revokes a token and tells whether there is one of that id. Doing it again changes nothing: the first time stays.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn revoke_token(&self, id: TokenId, now: UnixSeconds) -> Result<bool, StoreError> {
        let statement = "UPDATE tokens SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?";
        let done = sqlx::query(statement).bind(now.get()).bind(id.0).execute(&self.writer).await?;
        Ok(done.rows_affected() > 0)
    }
}

async fn insert(
    connection: &mut SqliteConnection,
    token: &Token,
    workspace: Option<WorkspaceId>,
    user: Option<&UserName>,
    now: UnixSeconds,
) -> Result<TokenId, StoreError> {
    let done = sqlx::query(
        "INSERT INTO tokens (kind, workspace_id, user_name, hash, hint, created_at) VALUES (?, ?, ?, ?, ?, ?)",
    )
    .bind(token.kind().as_str())
    .bind(workspace.map(|id| id.0))
    .bind(user.map(UserName::as_str))
    .bind(token.hash().to_vec())
    .bind(token.hint())
    .bind(now.get())
    .execute(connection)
    .await?;
    Ok(TokenId(done.last_insert_rowid()))
}

fn read_token(row: &SqliteRow) -> Result<TokenRecord, StoreError> {
    let corrupt = |column| StoreError::Corrupt { table: "tokens", column };
    let subject = match row.try_get("kind")? {
        "agent" => TokenSubject::Agent {
            workspace_id: WorkspaceId(row.try_get("workspace_id")?),
            workspace: row.try_get::<&str, _>("name")?.parse().map_err(|_| corrupt("workspace_id"))?,
        },
        "user" => {
            TokenSubject::User { user: row.try_get::<&str, _>("user_name")?.parse().map_err(|_| corrupt("user_name"))? }
        }
        _ => return Err(corrupt("kind")),
    };
    let time = |column| row.try_get::<Option<i64>, _>(column).map(|time| time.map(UnixSeconds::new));
    Ok(TokenRecord {
        id: TokenId(row.try_get("id")?),
        subject,
        hint: row.try_get("hint")?,
        created_at: UnixSeconds::new(row.try_get("created_at")?),
        expires_at: time("expires_at")?,
        revoked_at: time("revoked_at")?,
    })
}
