//! Statements about users' credentials for git servers. Secrets are sealed; what a list shows is not.
//!
//! A refresh token may be exchanged once, so of all gateways only one may try: it claims the row for a while, and writes the result
//! if the secret is still the one that it exchanged.

use super::database::{About, Row, sql};
use super::{SecretText, Store, StoreError};
use gateway_types::{GitHost, UnixSeconds, UserName};

/// Most credentials of one user.
pub const GIT_CREDENTIALS_MAX: usize = 32;

const TABLE: &str = "git_credentials";

/// Kind of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitCredentialKind {
    /// A password or token, given out as it is.
    Basic,
    /// A refresh token, exchanged for access tokens.
    Oauth,
}

impl GitCredentialKind {
    /// Returns the kind as one lower-case word, as stored and printed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Oauth => "oauth",
        }
    }

    fn from_stored(text: &str) -> Option<Self> {
        [Self::Basic, Self::Oauth].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A credential without its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitCredentialRow {
    /// The server.
    pub host: GitHost,
    /// Its kind.
    pub kind: GitCredentialKind,
    /// The user's name at that server.
    pub user: String,
    /// Time at which the server said that it does not count any more.
    pub refused_at: Option<UnixSeconds>,
    /// Time at which it was stored first.
    pub created_at: UnixSeconds,
}

/// A credential with its secrets, opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedGitCredential {
    /// What lists show of it.
    pub row: GitCredentialRow,
    /// Counts the changes of its secret.
    pub version: i64,
    /// The password, or the refresh token.
    pub secret: SecretText,
    /// The last access token.
    pub access: Option<SecretText>,
    /// Time until which the access token is given out.
    pub access_until: UnixSeconds,
    /// Time at which the access token ends.
    pub access_ends: UnixSeconds,
    /// Time until which one gateway exchanges the refresh token.
    pub refreshing_until: UnixSeconds,
}

/// A credential to store.
#[derive(Clone, Copy, Debug)]
pub struct NewGitCredential<'a> {
    /// Its kind.
    pub kind: GitCredentialKind,
    /// The user's name at the server.
    pub user: &'a str,
    /// The password, or the refresh token.
    pub secret: &'a SecretText,
}

/// Times of an access token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessTimes {
    /// Time until which it is given out.
    pub until: UnixSeconds,
    /// Time at which it ends.
    pub ends: UnixSeconds,
}

/// Names a version of a credential.
#[derive(Clone, Copy, Debug)]
pub struct GitCredentialKey<'a> {
    /// Its owner.
    pub owner: &'a UserName,
    /// The server.
    pub host: &'a GitHost,
    /// Counts the changes of its secret.
    pub version: i64,
}

impl Store {
    /// Returns a user's credentials, by host.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn git_credentials_of(&self, owner: &UserName) -> Result<Vec<GitCredentialRow>, StoreError> {
        let statement =
            "SELECT host, kind, user_name, refused_at, created_at FROM git_credentials WHERE owner = $1 ORDER BY host";
        let rows = sql(statement).bind(owner.as_str()).fetch_all(&self.readers).await?;
        rows.iter().map(read_row).collect()
    }

    /// Returns a user's credential for a server.
    ///
    /// # Errors
    /// [`StoreError::Unsealable`] when it was changed behind the gateway's back; else a failed database.
    pub async fn git_credential(
        &self,
        owner: &UserName,
        host: &GitHost,
    ) -> Result<Option<SealedGitCredential>, StoreError> {
        // Not from a replica's readers that may lag behind: the newest version decides.
        let statement = sql("SELECT * FROM git_credentials WHERE owner = $1 AND host = $2");
        let row = statement.bind(owner.as_str()).bind(host.as_str()).fetch_optional(&self.writer).await?;
        let Some(row) = row else { return Ok(None) };
        let open = |what: &str, sealed: &[u8]| {
            let opened = self.sealer.open(&row_of(owner, host, what), sealed);
            let text = opened.and_then(|bytes| String::from_utf8(bytes).ok());
            text.map(SecretText::new).ok_or(StoreError::Unsealable { table: TABLE })
        };
        Ok(Some(SealedGitCredential {
            row: read_row(&row)?,
            version: row.get("version")?,
            secret: open("secret", row.get("secret_sealed")?)?,
            access: row.get::<Option<&[u8]>>("access_sealed")?.map(|sealed| open("access", sealed)).transpose()?,
            access_until: UnixSeconds::new(row.get("access_until")?),
            access_ends: UnixSeconds::new(row.get("access_ends")?),
            refreshing_until: UnixSeconds::new(row.get("refreshing_until")?),
        }))
    }

    /// Stores a credential in the place of the one for the same server, if there is one. Returns whether it did: not if the user has
    /// [`GIT_CREDENTIALS_MAX`] for others.
    ///
    /// # Errors
    /// [`StoreError::Randomness`] or a failed database; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it stores everything or nothing.
    pub async fn put_git_credential(
        &self,
        owner: &UserName,
        host: &GitHost,
        new: NewGitCredential<'_>,
        now: UnixSeconds,
    ) -> Result<bool, StoreError> {
        let sealed = self.sealer.seal(&row_of(owner, host, "secret"), new.secret.reveal().as_bytes())?;
        let mut transaction = self.write(About::TokensOf(owner.as_str())).await?;
        let others = "SELECT count(*) AS others FROM git_credentials WHERE owner = $1 AND host <> $2";
        let row = sql(others).bind(owner.as_str()).bind(host.as_str()).fetch_one(&mut transaction).await?;
        if usize::try_from(row.get::<i64>("others")?).is_ok_and(|others| others >= GIT_CREDENTIALS_MAX) {
            return Ok(false);
        }
        sql("INSERT INTO git_credentials (owner, host, kind, user_name, secret_sealed, version, access_until, access_ends, \
             refreshing_until, created_at) VALUES ($1, $2, $3, $4, $5, 1, 0, 0, 0, $6) ON CONFLICT (owner, host) DO UPDATE SET \
             kind = excluded.kind, user_name = excluded.user_name, secret_sealed = excluded.secret_sealed, \
             version = git_credentials.version + 1, access_sealed = NULL, access_until = 0, access_ends = 0, \
             refreshing_until = 0, refused_at = NULL")
            .bind(owner.as_str())
            .bind(host.as_str())
            .bind(new.kind.as_str())
            .bind(new.user)
            .bind(sealed.as_slice())
            .bind(now.get())
            .execute(&mut transaction)
            .await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Deletes a credential and returns whether there was one.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn remove_git_credential(&self, owner: &UserName, host: &GitHost) -> Result<bool, StoreError> {
        let statement = sql("DELETE FROM git_credentials WHERE owner = $1 AND host = $2");
        Ok(statement.bind(owner.as_str()).bind(host.as_str()).execute(&self.writer).await? > 0)
    }

    /// Claims the exchange of a refresh token until a time. Returns whether the claim is the caller's: not while another one lasts, nor
    /// for a version that is over.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn claim_git_refresh(
        &self,
        key: GitCredentialKey<'_>,
        now: UnixSeconds,
        until: UnixSeconds,
    ) -> Result<bool, StoreError> {
        let statement = "UPDATE git_credentials SET refreshing_until = $1 \
             WHERE owner = $2 AND host = $3 AND version = $4 AND refreshing_until <= $5 AND refused_at IS NULL";
        let statement = sql(statement).bind(until.get()).bind(key.owner.as_str()).bind(key.host.as_str());
        Ok(statement.bind(key.version).bind(now.get()).execute(&self.writer).await? > 0)
    }

    /// Stores what a refresh token was exchanged for, with the refresh token that counts from now on, and ends the claim. Returns
    /// whether it did: not for a version that is over.
    ///
    /// # Errors
    /// [`StoreError::Randomness`] or a failed database.
    pub async fn put_git_access(
        &self,
        key: GitCredentialKey<'_>,
        refresh: &SecretText,
        access: &SecretText,
        times: AccessTimes,
    ) -> Result<bool, StoreError> {
        let GitCredentialKey { owner, host, version } = key;
        let secret = self.sealer.seal(&row_of(owner, host, "secret"), refresh.reveal().as_bytes())?;
        let access = self.sealer.seal(&row_of(owner, host, "access"), access.reveal().as_bytes())?;
        let statement = "UPDATE git_credentials SET secret_sealed = $1, access_sealed = $2, access_until = $3, access_ends = $4, \
             refreshing_until = 0, version = version + 1 WHERE owner = $5 AND host = $6 AND version = $7";
        let statement = sql(statement)
            .bind(secret.as_slice())
            .bind(access.as_slice())
            .bind(times.until.get())
            .bind(times.ends.get());
        let statement = statement.bind(owner.as_str()).bind(host.as_str()).bind(version);
        Ok(statement.execute(&self.writer).await? > 0)
    }

    /// Ends the claim on an exchange that failed; `refused_at` notes that the refresh token does not count any more.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn end_git_refresh(
        &self,
        key: GitCredentialKey<'_>,
        refused_at: Option<UnixSeconds>,
    ) -> Result<(), StoreError> {
        let statement = "UPDATE git_credentials SET refreshing_until = 0, refused_at = $1 \
             WHERE owner = $2 AND host = $3 AND version = $4";
        let statement = sql(statement).bind(refused_at.map(UnixSeconds::get)).bind(key.owner.as_str());
        statement.bind(key.host.as_str()).bind(key.version).execute(&self.writer).await?;
        Ok(())
    }

    /// Forgets the access token that a server refused, so that the next one asked for is new.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn forget_git_access(&self, owner: &UserName, host: &GitHost) -> Result<(), StoreError> {
        let statement =
            "UPDATE git_credentials SET access_sealed = NULL, access_until = 0 WHERE owner = $1 AND host = $2";
        sql(statement).bind(owner.as_str()).bind(host.as_str()).execute(&self.writer).await?;
        Ok(())
    }
}

fn read_row(row: &Row) -> Result<GitCredentialRow, StoreError> {
    let corrupt = |column| StoreError::Corrupt { table: TABLE, column };
    Ok(GitCredentialRow {
        host: row.get::<&str>("host")?.parse().map_err(|_| corrupt("host"))?,
        kind: GitCredentialKind::from_stored(row.get("kind")?).ok_or_else(|| corrupt("kind"))?,
        user: row.get("user_name")?,
        refused_at: row.get::<Option<i64>>("refused_at")?.map(UnixSeconds::new),
        created_at: UnixSeconds::new(row.get("created_at")?),
    })
}

/// Names the place that a sealed value belongs to. A host has no spaces.
fn row_of(owner: &UserName, host: &GitHost, what: &str) -> String {
    format!("git_credentials {what} {host} {owner}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::each::each;

    fn at(seconds: i64) -> UnixSeconds {
        UnixSeconds::new(seconds)
    }

    fn secret(text: &str) -> SecretText {
        SecretText::new(text.to_owned())
    }

    fn names() -> (UserName, UserName, GitHost) {
        ("ann".parse().unwrap(), "bob".parse().unwrap(), "git.example.com".parse().unwrap())
    }

    async fn put(store: &Store, owner: &UserName, host: &GitHost, kind: GitCredentialKind, text: &str) -> bool {
        let secret = secret(text);
        let new = NewGitCredential { kind, user: "ann", secret: &secret };
        store.put_git_credential(owner, host, new, at(10)).await.unwrap()
    }

    #[tokio::test]
    async fn credential_is_its_owners_and_its_hosts_and_not_readable_in_the_database() {
        each(async |store| {
            let (ann, bob, host) = names();
            assert!(put(store, &ann, &host, GitCredentialKind::Basic, "hunter2").await);
            let found = store.git_credential(&ann, &host).await.unwrap().unwrap();
            assert_eq!((found.secret.reveal(), found.access, found.version), ("hunter2", None, 1));
            assert_eq!(store.git_credential(&bob, &host).await.unwrap(), None);
            assert_eq!(store.git_credential(&ann, &"git.example.com:8443".parse().unwrap()).await.unwrap(), None);
            let rows = store.git_credentials_of(&ann).await.unwrap();
            assert_eq!(rows, [found.row]);
            assert_eq!(store.git_credentials_of(&bob).await.unwrap(), []);

            let row = sql("SELECT secret_sealed FROM git_credentials").fetch_one(&store.readers).await.unwrap();
            let sealed: &[u8] = row.get("secret_sealed").unwrap();
            assert!(!sealed.windows(7).any(|bytes| bytes == b"hunter2"));
            // What is sealed for one user does not open for another.
            sql("UPDATE git_credentials SET owner = 'bob'").execute(&store.writer).await.unwrap();
            let moved = store.git_credential(&bob, &host).await;
            assert!(matches!(moved, Err(StoreError::Unsealable { table: TABLE })), "{moved:?}");
            assert!(store.remove_git_credential(&bob, &host).await.unwrap());
            assert!(!store.remove_git_credential(&bob, &host).await.unwrap());
        })
        .await;
    }

    #[tokio::test]
    async fn one_gateway_exchanges_a_refresh_token_and_an_older_ones_result_is_not_written() {
        each(async |store| {
            let (ann, _, host) = names();
            put(store, &ann, &host, GitCredentialKind::Oauth, "refresh-1").await;
            let key = |version| GitCredentialKey { owner: &ann, host: &host, version };
            assert!(store.claim_git_refresh(key(1), at(100), at(115)).await.unwrap());
            assert!(!store.claim_git_refresh(key(1), at(114), at(130)).await.unwrap(), "one at a time");
            let (refresh, access) = (secret("refresh-2"), secret("access-1"));
            assert!(
                store
                    .put_git_access(key(1), &refresh, &access, AccessTimes { until: at(150), ends: at(160) })
                    .await
                    .unwrap()
            );
            let found = store.git_credential(&ann, &host).await.unwrap().unwrap();
            assert_eq!((found.secret.reveal(), found.version, found.access_until), ("refresh-2", 2, at(150)));
            assert_eq!(found.access, Some(access.clone()));
            assert!(!store.claim_git_refresh(key(1), at(200), at(215)).await.unwrap(), "that version is over");
            assert!(store.claim_git_refresh(key(2), at(200), at(215)).await.unwrap(), "the claim has ended");
            assert!(store.claim_git_refresh(key(2), at(215), at(230)).await.unwrap(), "a claim ends with its time");

            // Its owner stores another one meanwhile: the result belongs to the old one.
            put(store, &ann, &host, GitCredentialKind::Oauth, "refresh-new").await;
            assert!(
                !store
                    .put_git_access(key(2), &refresh, &access, AccessTimes { until: at(300), ends: at(310) })
                    .await
                    .unwrap()
            );
            let found = store.git_credential(&ann, &host).await.unwrap().unwrap();
            assert_eq!((found.secret.reveal(), found.access, found.version), ("refresh-new", None, 3));
        })
        .await;
    }

    #[tokio::test]
    async fn refused_refresh_token_is_not_exchanged_again_until_there_is_another() {
        each(async |store| {
            let (ann, _, host) = names();
            put(store, &ann, &host, GitCredentialKind::Oauth, "refresh-1").await;
            let key = |version| GitCredentialKey { owner: &ann, host: &host, version };
            assert!(store.claim_git_refresh(key(1), at(1), at(16)).await.unwrap());
            store.end_git_refresh(key(1), Some(at(2))).await.unwrap();
            assert!(!store.claim_git_refresh(key(1), at(20), at(36)).await.unwrap());
            assert_eq!(store.git_credentials_of(&ann).await.unwrap()[0].refused_at, Some(at(2)));
            put(store, &ann, &host, GitCredentialKind::Oauth, "refresh-2").await;
            assert!(store.claim_git_refresh(key(2), at(20), at(36)).await.unwrap());
            let (refresh, access) = (secret("refresh-3"), secret("access-1"));
            assert!(
                store
                    .put_git_access(key(2), &refresh, &access, AccessTimes { until: at(50), ends: at(60) })
                    .await
                    .unwrap()
            );
            store.forget_git_access(&ann, &host).await.unwrap();
            let found = store.git_credential(&ann, &host).await.unwrap().unwrap();
            assert_eq!((found.access, found.secret.reveal()), (None, "refresh-3"));
        })
        .await;
    }

    #[tokio::test]
    async fn user_has_a_bounded_number_and_may_replace_each() {
        each(async |store| {
            let (ann, _, _) = names();
            let host = |number: usize| format!("git-{number}.example").parse::<GitHost>().unwrap();
            for number in 0..GIT_CREDENTIALS_MAX {
                assert!(put(store, &ann, &host(number), GitCredentialKind::Basic, "x").await);
            }
            assert!(!put(store, &ann, &host(GIT_CREDENTIALS_MAX), GitCredentialKind::Basic, "x").await);
            assert!(put(store, &ann, &host(0), GitCredentialKind::Basic, "y").await);
        })
        .await;
    }
}
