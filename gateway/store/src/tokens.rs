//! Statements about tokens.

use super::database::{About, Row, StatementTarget, sql, sql_of};
use super::workspaces::{find_or_create, find_own};
use super::{
    ClusterId, NewToken, Store, StoreError, Terms, TokenCreation, TokenId, TokenRecord, TokenSubject, WorkspaceId,
};
use gateway_types::token::{Token, TokenKind};
use gateway_types::{ClusterName, UnixSeconds, UserName, WorkspaceName};

/// Live tokens that one user may have, and that the agent of one workspace may have, for tokens created by users
/// themselves.
pub const TOKENS_LIVE_MAX: u32 = 100;

/// Query of all columns, to be completed with a condition.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT tokens.id, kind, workspace_id, workspaces.name, user_name, cluster_id, clusters.name AS cluster, hint, \
             tokens.created_at, expires_at, revoked_at, note, replaced_by \
             FROM tokens LEFT JOIN workspaces ON workspaces.id = workspace_id LEFT JOIN clusters ON clusters.id = cluster_id ",
            $rest
        )
    };
}

/// Query of the tokens of a list of ids that are not valid any more.
macro_rules! ended {
    ($list:literal) => {
        concat!(
            "SELECT list.id, tokens.id IS NULL OR revoked_at IS NOT NULL AS revoked FROM (",
            $list,
            ") AS list LEFT JOIN tokens ON tokens.id = list.id \
             WHERE tokens.id IS NULL OR revoked_at IS NOT NULL OR expires_at <= $2 ORDER BY list.id"
        )
    };
}

impl Store {
    /// Makes a token for the agent of a workspace, and the workspace itself, as an `external` one, if there is none.
    ///
    /// # Errors
    /// [`StoreError::OtherOwner`] when the workspace belongs to another user; else a failed database or random source.
    /// Then nothing is stored.
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
        let mut transaction = self.write(About::Nothing).await?;
        let workspace_id = find_or_create(&mut transaction, workspace, self.name_hold, owner, now).await?;
        let id = insert(&mut transaction, &token, Holder::Agent(workspace_id), terms, now).await?;
        transaction.commit().await?;
        Ok(NewToken { id, token })
    }

    /// Makes a token for the agent of an existing workspace of `owner`, at the user's own request.
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
    ) -> Result<TokenCreation, StoreError> {
        let token = Token::generate(TokenKind::Agent)?;
        let mut transaction = self.write(About::Workspace(workspace.as_str())).await?;
        let Some(workspace_id) = find_own(&mut transaction, workspace, owner).await? else {
            return Ok(TokenCreation::NoSuchWorkspace);
        };
        let statement = "SELECT count(*) AS live FROM tokens WHERE workspace_id = $1 AND revoked_at IS NULL \
             AND (expires_at IS NULL OR expires_at > $2)";
        let live = sql(statement).bind(workspace_id.0).bind(now.get()).fetch_one(&mut transaction).await?;
        if live.get::<i64>("live")? >= i64::from(TOKENS_LIVE_MAX) {
            return Ok(TokenCreation::TooMany);
        }
        let id = insert(&mut transaction, &token, Holder::Agent(workspace_id), terms, now).await?;
        transaction.commit().await?;
        Ok(TokenCreation::Made(NewToken { id, token }))
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
        let id = insert(&self.writer, &token, Holder::User(user), terms, now).await?;
        Ok(NewToken { id, token })
    }

    /// Makes a token for programs of a user, at the user's own request.
    ///
    /// # Errors
    /// A failed database or random source; then nothing is stored.
    pub async fn create_own_user_token(
        &self,
        user: &UserName,
        terms: &Terms,
        now: UnixSeconds,
    ) -> Result<TokenCreation, StoreError> {
        let token = Token::generate(TokenKind::User)?;
        let mut transaction = self.write(About::TokensOf(user.as_str())).await?;
        let statement = "SELECT count(*) AS live FROM tokens WHERE user_name = $1 AND revoked_at IS NULL \
             AND (expires_at IS NULL OR expires_at > $2)";
        let live = sql(statement).bind(user.as_str()).bind(now.get()).fetch_one(&mut transaction).await?;
        if live.get::<i64>("live")? >= i64::from(TOKENS_LIVE_MAX) {
            return Ok(TokenCreation::TooMany);
        }
        let id = insert(&mut transaction, &token, Holder::User(user), terms, now).await?;
        transaction.commit().await?;
        Ok(TokenCreation::Made(NewToken { id, token }))
    }

    /// Makes a token for the agent of a cluster, and the cluster itself if there is none.
    ///
    /// # Errors
    /// A failed database or random source; then no token is stored.
    pub async fn create_cluster_token_with(
        &self,
        cluster: &ClusterName,
        terms: &Terms,
        now: UnixSeconds,
    ) -> Result<NewToken, StoreError> {
        let token = Token::generate(TokenKind::Cluster)?;
        let cluster = self.ensure_cluster(cluster, now).await?;
        let id = insert(&self.writer, &token, Holder::Cluster(cluster.id), terms, now).await?;
        Ok(NewToken { id, token })
    }

    /// Returns the token with that hash, live or not: [`TokenRecord::is_live`] decides.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn token_by_hash(&self, hash: &[u8; 32]) -> Result<Option<TokenRecord>, StoreError> {
        let row = sql(select!("WHERE hash = $1")).bind(hash.as_slice()).fetch_optional(&self.readers).await?;
        row.map(|row| read_token(&row)).transpose()
    }

    /// Returns all tokens, live or not, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn list_tokens(&self) -> Result<Vec<TokenRecord>, StoreError> {
        let rows = sql(select!("ORDER BY tokens.id")).fetch_all(&self.readers).await?;
        rows.iter().map(read_token).collect()
    }

    /// Returns up to `limit` tokens of a user and of the agents of their workspaces, live or not, oldest first, from
    /// the one after `after` on.
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
            "WHERE tokens.id IN (SELECT id FROM tokens WHERE user_name = $1 UNION SELECT theirs.id FROM workspaces \
             JOIN tokens AS theirs ON theirs.workspace_id = workspaces.id WHERE owner = $1) \
             AND tokens.id > $2 ORDER BY tokens.id LIMIT $3"
        );
        let query = sql(statement).bind(user.as_str()).bind(after.map_or(0, |id| id.0)).bind(limit);
        let rows = query.fetch_all(&self.readers).await?;
        rows.iter().map(read_token).collect()
    }

    /// Returns the ids of those of these tokens that are not valid any more, and whether each was revoked (and did not
    /// only expire).
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn ended_tokens(&self, ids: &[TokenId], now: UnixSeconds) -> Result<Vec<(TokenId, bool)>, StoreError> {
        let statement = sql_of(
            ended!("SELECT value AS id FROM json_each($1)"),
            ended!("SELECT value::bigint AS id FROM jsonb_array_elements_text($1::jsonb)"),
        );
        let list: Vec<String> = ids.iter().map(|id| id.0.to_string()).collect();
        let list = format!("[{}]", list.join(","));
        let rows = statement.bind(list).bind(now.get()).fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok((TokenId(row.get("id")?), row.get("revoked")?))).collect()
    }

    /// Revokes a token and returns whether there is one of that id. A repetition changes nothing: the first time stays.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn revoke_token(&self, id: TokenId, now: UnixSeconds) -> Result<bool, StoreError> {
        let statement = "UPDATE tokens SET revoked_at = coalesce(revoked_at, $1) WHERE id = $2";
        let done = sql(statement).bind(now.get()).bind(id.0).execute(&self.writer).await?;
        Ok(done > 0)
    }

    /// Revokes a token of a user, or of the agent of a workspace of theirs, and returns its hash; `None` when there is
    /// none of that id, or it belongs to another user.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn revoke_own_token(
        &self,
        user: &UserName,
        id: TokenId,
        now: UnixSeconds,
    ) -> Result<Option<[u8; 32]>, StoreError> {
        let statement = "UPDATE tokens SET revoked_at = coalesce(revoked_at, $1) WHERE id = $2 AND (user_name = $3 \
             OR workspace_id IN (SELECT id FROM workspaces WHERE owner = $3)) RETURNING hash";
        let query = sql(statement).bind(now.get()).bind(id.0).bind(user.as_str());
        let row = query.fetch_optional(&self.writer).await?;
        row.map(|row| read_hash(&row)).transpose()
    }
}

pub(super) fn read_hash(row: &Row) -> Result<[u8; 32], StoreError> {
    let hash: &[u8] = row.get("hash")?;
    hash.try_into().map_err(|_| StoreError::Corrupt { table: "tokens", column: "hash" })
}

/// Holder of a stored token.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holder<'a> {
    /// The agent of a workspace.
    Agent(WorkspaceId),
    /// A user.
    User(&'a UserName),
    /// The agent of a cluster.
    Cluster(ClusterId),
}

pub(super) async fn insert<'c>(
    on: impl Into<StatementTarget<'c>>,
    token: &Token,
    holder: Holder<'_>,
    terms: &Terms,
    now: UnixSeconds,
) -> Result<TokenId, StoreError> {
    let (workspace, user, cluster) = match holder {
        Holder::Agent(workspace) => (Some(workspace.0), None, None),
        Holder::User(user) => (None, Some(user.as_str()), None),
        Holder::Cluster(cluster) => (None, None, Some(cluster.0)),
    };
    let row = sql(
        "INSERT INTO tokens (kind, workspace_id, user_name, cluster_id, hash, hint, created_at, expires_at, note) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING id",
    )
    .bind(token.kind().as_str())
    .bind(workspace)
    .bind(user)
    .bind(cluster)
    .bind(token.hash().as_slice())
    .bind(token.hint())
    .bind(now.get())
    .bind(terms.expires_at.map(UnixSeconds::get))
    .bind(terms.note.as_ref().map(super::Note::as_str))
    .fetch_one(on)
    .await?;
    Ok(TokenId(row.get("id")?))
}

pub(super) fn read_token(row: &Row) -> Result<TokenRecord, StoreError> {
    let corrupt = |column| StoreError::Corrupt { table: "tokens", column };
    let subject = match row.get("kind")? {
        "agent" => TokenSubject::Agent {
            workspace_id: WorkspaceId(row.get("workspace_id")?),
            workspace: row.get::<&str>("name")?.parse().map_err(|_| corrupt("workspace_id"))?,
        },
        "user" => TokenSubject::User { user: row.get::<&str>("user_name")?.parse().map_err(|_| corrupt("user_name"))? },
        "cluster" => TokenSubject::Cluster {
            cluster_id: ClusterId(row.get("cluster_id")?),
            cluster: row.get::<&str>("cluster")?.parse().map_err(|_| corrupt("cluster_id"))?,
        },
        _ => return Err(corrupt("kind")),
    };
    let time = |column| row.get::<Option<i64>>(column).map(|time| time.map(UnixSeconds::new));
    Ok(TokenRecord {
        id: TokenId(row.get("id")?),
        subject,
        hint: row.get("hint")?,
        created_at: UnixSeconds::new(row.get("created_at")?),
        expires_at: time("expires_at")?,
        revoked_at: time("revoked_at")?,
        note: row.get::<Option<&str>>("note")?.and_then(super::Note::of),
        replaced_by: row.get::<Option<i64>>("replaced_by")?.map(TokenId),
    })
}
