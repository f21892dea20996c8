//! Statements about tokens.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use super::sqlite::BEGIN_WRITE;
use super::workspaces::{find_or_create, find_own};
use super::{Created, NewToken, Store, StoreError, Terms, TokenId, TokenRecord, TokenSubject, WorkspaceId};
use crate::auth::token::{Token, TokenKind};
use crate::model::{UnixSeconds, UserName, WorkspaceName};

/// Live tokens that one user may have, and that the agent of one workspace may have, when they are made by users themselves.
pub const TOKENS_LIVE_MAX: u32 = 100;

/// A reading of all columns, to be ended with a condition.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT tokens.id, kind, workspace_id, name, user_name, hint, tokens.created_at, expires_at, revoked_at, note, \
             replaced_by FROM tokens LEFT JOIN workspaces ON workspaces.id = workspace_id ",
            $rest
        )
    };
}

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
        self.create_agent_token_with(workspace, owner, &Terms::default(), now).await
    }

    /// Like [`Store::create_agent_token`], with terms.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn create_agent_token_with(
        &self,
        workspace: &WorkspaceName,
        owner: &UserName,
        terms: &Terms,
        now: UnixSeconds,
    ) -> Result<NewToken, StoreError> {
        let token = Token::generate(TokenKind::Agent)?;
        let mut transaction = self.writer.begin_with(BEGIN_WRITE).await?;
        let workspace_id = find_or_create(&mut transaction, workspace, owner, now).await?;
        let id = insert(&mut transaction, &token, (Some(workspace_id), None), terms, now).await?;
        transaction.commit().await?;
        Ok(NewToken { id, token })
    }

    /// Makes a token for the agent of a workspace that is there and that `owner` owns, as users do themselves.
    ///
    /// # Errors
    /// A failed database or random source; then nothing is stored.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it stores everything or nothing.
    pub async fn create_own_agent_token(
        &self,
        workspace: &WorkspaceName,
        owner: &UserName,
        terms: &Terms,
        now: UnixSeconds,
    ) -> Result<Created, StoreError> {
        let token = Token::generate(TokenKind::Agent)?;
        let mut transaction = self.writer.begin_with(BEGIN_WRITE).await?;
        let Some(workspace_id) = find_own(&mut transaction, workspace, owner).await? else {
            return Ok(Created::NoSuchWorkspace);
        };
        let statement = "SELECT count(*) AS live FROM tokens WHERE workspace_id = ? AND revoked_at IS NULL \
             AND (expires_at IS NULL OR expires_at > ?)";
        let live = sqlx::query(statement).bind(workspace_id.0).bind(now.get()).fetch_one(&mut *transaction).await?;
        if live.try_get::<i64, _>("live")? >= i64::from(TOKENS_LIVE_MAX) {
            return Ok(Created::TooMany);
        }
        let id = insert(&mut transaction, &token, (Some(workspace_id), None), terms, now).await?;
        transaction.commit().await?;
        Ok(Created::Made(NewToken { id, token }))
    }

    /// Makes a token for programs of a user.
    ///
    /// # Errors
    /// A failed database or random source.
    pub async fn create_user_token(&self, user: &UserName, now: UnixSeconds) -> Result<NewToken, StoreError> {
        self.create_user_token_with(user, &Terms::default(), now).await
    }

    /// Like [`Store::create_user_token`], with terms.
    ///
    /// # Errors
    /// As there.
    pub async fn create_user_token_with(
        &self,
        user: &UserName,
        terms: &Terms,
        now: UnixSeconds,
    ) -> Result<NewToken, StoreError> {
        let token = Token::generate(TokenKind::User)?;
        let mut connection = self.writer.acquire().await?;
        let id = insert(&mut connection, &token, (None, Some(user)), terms, now).await?;
        Ok(NewToken { id, token })
    }

    /// Makes a token for programs of a user, as users do themselves.
    ///
    /// # Errors
    /// A failed database or random source; then nothing is stored.
    pub async fn create_own_user_token(
        &self,
        user: &UserName,
        terms: &Terms,
        now: UnixSeconds,
    ) -> Result<Created, StoreError> {
        let token = Token::generate(TokenKind::User)?;
        let mut transaction = self.writer.begin_with(BEGIN_WRITE).await?;
        let statement = "SELECT count(*) AS live FROM tokens WHERE user_name = ? AND revoked_at IS NULL \
             AND (expires_at IS NULL OR expires_at > ?)";
        let live = sqlx::query(statement).bind(user.as_str()).bind(now.get()).fetch_one(&mut *transaction).await?;
        if live.try_get::<i64, _>("live")? >= i64::from(TOKENS_LIVE_MAX) {
            return Ok(Created::TooMany);
        }
        let id = insert(&mut transaction, &token, (None, Some(user)), terms, now).await?;
        transaction.commit().await?;
        Ok(Created::Made(NewToken { id, token }))
    }

    /// Returns the token with that hash, live or not: [`TokenRecord::is_live`] decides.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn token_by_hash(&self, hash: &[u8; 32]) -> Result<Option<TokenRecord>, StoreError> {
        let row = sqlx::query(select!("WHERE hash = ?")).bind(hash.as_slice()).fetch_optional(&self.readers).await?;
        row.map(|row| read_token(&row)).transpose()
    }

    /// Returns all tokens, live or not, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn list_tokens(&self) -> Result<Vec<TokenRecord>, StoreError> {
        let rows = sqlx::query(select!("ORDER BY tokens.id")).fetch_all(&self.readers).await?;
        rows.iter().map(read_token).collect()
    }

    /// Returns up to `limit` tokens of a user and of the agents of their workspaces, live or not, oldest first, from the one
    /// behind `after` on.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn tokens_of(
        &self,
        user: &UserName,
        after: Option<TokenId>,
        limit: u32,
    ) -> Result<Vec<TokenRecord>, StoreError> {
        let statement = select!(
            "WHERE tokens.id IN (SELECT id FROM tokens WHERE user_name = ?1 UNION SELECT theirs.id FROM workspaces \
             JOIN tokens AS theirs ON theirs.workspace_id = workspaces.id WHERE owner = ?1) \
             AND tokens.id > ?2 ORDER BY tokens.id LIMIT ?3"
        );
        let query = sqlx::query(statement).bind(user.as_str()).bind(after.map_or(0, |id| id.0)).bind(limit);
        let rows = query.fetch_all(&self.readers).await?;
        rows.iter().map(read_token).collect()
    }

    /// Returns which of these tokens count no more, and whether each was revoked (and did not only expire).
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn ended_tokens(&self, ids: &[TokenId], now: UnixSeconds) -> Result<Vec<(TokenId, bool)>, StoreError> {
        let statement = "SELECT value AS id, tokens.id IS NULL OR revoked_at IS NOT NULL AS revoked \
             FROM json_each(?) LEFT JOIN tokens ON tokens.id = value \
             WHERE tokens.id IS NULL OR revoked_at IS NOT NULL OR expires_at <= ?";
        let list: Vec<String> = ids.iter().map(|id| id.0.to_string()).collect();
        let list = format!("[{}]", list.join(","));
        let rows = sqlx::query(statement).bind(list).bind(now.get()).fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok((TokenId(row.try_get("id")?), row.try_get("revoked")?))).collect()
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

    /// Revokes a token of a user, or of the agent of a workspace of theirs, and returns what it was known by; `None` when
    /// there is none of that id, or it is somebody else's.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn revoke_own_token(
        &self,
        user: &UserName,
        id: TokenId,
        now: UnixSeconds,
    ) -> Result<Option<[u8; 32]>, StoreError> {
        let statement = "UPDATE tokens SET revoked_at = coalesce(revoked_at, ?1) WHERE id = ?2 AND (user_name = ?3 \
             OR workspace_id IN (SELECT id FROM workspaces WHERE owner = ?3)) RETURNING hash";
        let query = sqlx::query(statement).bind(now.get()).bind(id.0).bind(user.as_str());
        let row = query.fetch_optional(&self.writer).await?;
        row.map(|row| read_hash(&row)).transpose()
    }
}

pub(super) fn read_hash(row: &SqliteRow) -> Result<[u8; 32], StoreError> {
    let hash: &[u8] = row.try_get("hash")?;
    hash.try_into().map_err(|_| StoreError::Corrupt { table: "tokens", column: "hash" })
}

pub(super) async fn insert(
    connection: &mut SqliteConnection,
    token: &Token,
    (workspace, user): (Option<WorkspaceId>, Option<&UserName>),
    terms: &Terms,
    now: UnixSeconds,
) -> Result<TokenId, StoreError> {
    let done = sqlx::query(
        "INSERT INTO tokens (kind, workspace_id, user_name, hash, hint, created_at, expires_at, note) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(token.kind().as_str())
    .bind(workspace.map(|id| id.0))
    .bind(user.map(UserName::as_str))
    .bind(token.hash().to_vec())
    .bind(token.hint())
    .bind(now.get())
    .bind(terms.expires_at.map(UnixSeconds::get))
    .bind(terms.note.as_ref().map(super::Note::as_str))
    .execute(connection)
    .await?;
    Ok(TokenId(done.last_insert_rowid()))
}

pub(super) fn read_token(row: &SqliteRow) -> Result<TokenRecord, StoreError> {
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
        note: row.try_get::<Option<&str>, _>("note")?.and_then(super::Note::of),
        replaced_by: row.try_get::<Option<i64>, _>("replaced_by")?.map(TokenId),
    })
}
