//! Statements about users.

use std::sync::Arc;

use super::database::{About, Row, Transaction, sql};
use super::{Admission, Store, StoreError, User};
use gateway_types::principal::UserStatus;
use gateway_types::{GroupName, UnixSeconds, UserName};

impl Store {
    /// Admits a user authenticated by an identity provider, and stores their groups. The first time they get the
    /// `wanted` name, unless it is taken; from then on they keep it, whatever `wanted` is.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn admit(
        &self,
        issuer: &str,
        subject: &str,
        wanted: &UserName,
        groups: &[GroupName],
        now: UnixSeconds,
    ) -> Result<Admission, StoreError> {
        let mut transaction = self.write(About::Users).await?;
        let known = by_subject(&mut transaction, issuer, subject).await?;
        let there = match known {
            Some(user) => Some(user),
            None => by_name(&mut transaction, wanted).await?,
        };
        let is_theirs = |(of, named): &(String, String)| (of.as_str(), named.as_str()) == (issuer, subject);
        let name = match there {
            // A row without a subject was made by the operator; it stands for the first user to sign in under its name.
            Some(user) if !user.subject.as_ref().is_none_or(is_theirs) => return Ok(Admission::NameTaken),
            Some(user) if user.disabled_at.is_some() => return Ok(Admission::Disabled),
            Some(user) => user.name,
            None => wanted.clone(),
        };
        sql(
            "INSERT INTO users (name, issuer, subject, groups, created_at, last_seen) VALUES ($1, $2, $3, $4, $5, $6) \
             ON CONFLICT (name) DO UPDATE SET \
             issuer = excluded.issuer, subject = excluded.subject, groups = excluded.groups, last_seen = excluded.last_seen",
        )
        .bind(name.as_str())
        .bind(issuer)
        .bind(subject)
        .bind(write_groups(groups))
        .bind(now.get())
        .bind(now.get())
        .execute(&mut transaction)
        .await?;
        transaction.commit().await?;
        Ok(Admission::As(name))
    }

    /// Returns the status of a user; the default for one who never signed in with a provider.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn user_status(&self, name: &UserName) -> Result<UserStatus, StoreError> {
        let statement = "SELECT groups, last_seen, disabled_at FROM users WHERE name = $1";
        let row = sql(statement).bind(name.as_str()).fetch_optional(&self.readers).await?;
        let Some(row) = row else { return Ok(UserStatus::default()) };
        Ok(UserStatus {
            is_disabled: row.get::<Option<i64>>("disabled_at")?.is_some(),
            groups: read_groups(&row)?,
            signed_in_at: row.get::<Option<i64>>("last_seen")?.map(UnixSeconds::new),
        })
    }

    /// Returns whether a user of this name is known: they signed in with a provider, or the operator gave the name a token or a
    /// workspace.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn is_user_known(&self, name: &UserName) -> Result<bool, StoreError> {
        let statement = "SELECT 1 AS one WHERE EXISTS (SELECT 1 FROM users WHERE name = $1 AND subject IS NOT NULL) \
             OR EXISTS (SELECT 1 FROM tokens WHERE user_name = $1) OR EXISTS (SELECT 1 FROM workspaces WHERE owner = $1)";
        Ok(sql(statement).bind(name.as_str()).fetch_optional(&self.readers).await?.is_some())
    }

    /// Returns all users that have a row, by name.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn users(&self) -> Result<Vec<User>, StoreError> {
        let rows = sql("SELECT * FROM users ORDER BY name").fetch_all(&self.readers).await?;
        rows.iter().map(read_user).collect()
    }

    /// Disables a user and returns whether there is one of that name: a user who signed in, owns a workspace or has a
    /// token. A repetition changes nothing: the first time stays.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn disable_user(&self, name: &UserName, now: UnixSeconds) -> Result<bool, StoreError> {
        let statement = "INSERT INTO users (name, groups, created_at, disabled_at) SELECT $1, '[]', $2, $2 \
             WHERE EXISTS (SELECT 1 FROM users WHERE name = $1) OR EXISTS (SELECT 1 FROM tokens WHERE user_name = $1) \
             OR EXISTS (SELECT 1 FROM workspaces WHERE owner = $1) \
             ON CONFLICT (name) DO UPDATE SET disabled_at = coalesce(users.disabled_at, excluded.disabled_at)";
        let mut transaction = self.write(About::Users).await?;
        let done = sql(statement).bind(name.as_str()).bind(now.get()).execute(&mut transaction).await?;
        // The user's sessions stay ended, even if no process notices the disabling before they are enabled again.
        sql("DELETE FROM browser_sessions WHERE user_name = $1").bind(name.as_str()).execute(&mut transaction).await?;
        transaction.commit().await?;
        Ok(done > 0)
    }

    /// Enables a user again and returns whether there is one. Sessions that were ended stay ended.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn enable_user(&self, name: &UserName) -> Result<bool, StoreError> {
        let statement = "UPDATE users SET disabled_at = NULL WHERE name = $1";
        let done = sql(statement).bind(name.as_str()).execute(&self.writer).await?;
        Ok(done > 0)
    }

    /// Clears the groups of a user after a sign-out everywhere by the identity provider, until the next sign-in.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn forget_groups(&self, issuer: &str, subject: &str) -> Result<(), StoreError> {
        let statement = "UPDATE users SET groups = '[]' WHERE issuer = $1 AND subject = $2";
        sql(statement).bind(issuer).bind(subject).execute(&self.writer).await?;
        Ok(())
    }
}

async fn by_subject(connection: &mut Transaction, issuer: &str, subject: &str) -> Result<Option<User>, StoreError> {
    let statement = "SELECT * FROM users WHERE issuer = $1 AND subject = $2";
    let row = sql(statement).bind(issuer).bind(subject).fetch_optional(connection).await?;
    row.as_ref().map(read_user).transpose()
}

async fn by_name(connection: &mut Transaction, name: &UserName) -> Result<Option<User>, StoreError> {
    let statement = "SELECT * FROM users WHERE name = $1";
    let row = sql(statement).bind(name.as_str()).fetch_optional(connection).await?;
    row.as_ref().map(read_user).transpose()
}

fn write_groups(groups: &[GroupName]) -> String {
    serde_json::Value::from_iter(groups.iter().map(GroupName::as_str)).to_string()
}

pub(super) fn read_groups(row: &Row) -> Result<Arc<[GroupName]>, StoreError> {
    let corrupt = || StoreError::Corrupt { table: "users", column: "groups" };
    let texts: Vec<String> = serde_json::from_str(row.get("groups")?).map_err(|_| corrupt())?;
    texts.iter().map(|text| text.parse().map_err(|_| corrupt())).collect()
}

fn read_user(row: &Row) -> Result<User, StoreError> {
    let corrupt = |column| StoreError::Corrupt { table: "users", column };
    let time = |column| row.get::<Option<i64>>(column).map(|time| time.map(UnixSeconds::new));
    let issuer: Option<String> = row.get("issuer")?;
    let subject: Option<String> = row.get("subject")?;
    Ok(User {
        name: row.get::<&str>("name")?.parse().map_err(|_| corrupt("name"))?,
        subject: issuer.zip(subject),
        groups: read_groups(row)?,
        created_at: UnixSeconds::new(row.get("created_at")?),
        last_seen: time("last_seen")?,
        disabled_at: time("disabled_at")?,
    })
}

#[cfg(test)]
mod tests;
