//! Rotates tokens: gives a token a successor.

use std::time::Duration;

use super::database::{About, sql};
use super::tokens::{Holder, insert, read_hash, read_token};
use super::{NewToken, Store, StoreError, Terms, TokenId, TokenRecord, TokenRotation, TokenSubject};
use gateway_types::token::Token;
use gateway_types::{UnixSeconds, UserName};

impl Store {
    /// Makes a new token of the same subject, and lets the old one end after `overlap`, unless it ends sooner. The new
    /// one is valid for `lasting`, or for the old one's full lifetime. `of` is the required owner of the token, which
    /// is a user's own or that of an agent of theirs; `None` accepts any owner.
    ///
    /// # Errors
    /// A failed database or random source; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn rotate_token(
        &self,
        of: Option<&UserName>,
        id: TokenId,
        overlap: Duration,
        lasting: Option<Duration>,
        now: UnixSeconds,
    ) -> Result<TokenRotation, StoreError> {
        let mut transaction = self.write(About::Token(id.0)).await?;
        let statement = "SELECT tokens.id, kind, workspace_id, workspaces.name, owner, user_name, cluster_id, \
             clusters.name AS cluster, hash, hint, tokens.created_at, expires_at, revoked_at, note, replaced_by \
             FROM tokens LEFT JOIN workspaces ON workspaces.id = workspace_id \
             LEFT JOIN clusters ON clusters.id = cluster_id WHERE tokens.id = $1";
        let row = sql(statement).bind(id.0).fetch_optional(&mut transaction).await?;
        let Some(row) = row else { return Ok(TokenRotation::NoSuchToken) };
        let (old, old_hash) = (read_token(&row)?, read_hash(&row)?);
        let whose: Option<&str> = row.get("user_name")?;
        let whose = whose.or(row.get("owner")?);
        if of.is_some_and(|of| whose != Some(of.as_str())) {
            return Ok(TokenRotation::NoSuchToken);
        }
        if !old.is_live(now) || old.replaced_by.is_some() {
            return Ok(TokenRotation::NotLive);
        }
        let (until, expires_at) = ends(&old, overlap, lasting, now);
        let token = Token::generate(old.subject.kind())?;
        let holder = match &old.subject {
            TokenSubject::Agent { workspace_id, .. } => Holder::Agent(*workspace_id),
            TokenSubject::User { user } => Holder::User(user),
            TokenSubject::Cluster { cluster_id, .. } => Holder::Cluster(*cluster_id),
        };
        let terms = Terms { note: old.note.clone(), expires_at };
        let successor = insert(&mut transaction, &token, holder, &terms, now).await?;
        sql("UPDATE tokens SET expires_at = $1, replaced_by = $2 WHERE id = $3")
            .bind(until.get())
            .bind(successor.0)
            .bind(id.0)
            .execute(&mut transaction)
            .await?;
        transaction.commit().await?;
        Ok(TokenRotation::Done { successor: NewToken { id: successor, token }, expires_at, until, old_hash })
    }
}

/// Returns the ends of a rotated token and of its successor.
fn ends(
    old: &TokenRecord,
    overlap: Duration,
    lasting: Option<Duration>,
    now: UnixSeconds,
) -> (UnixSeconds, Option<UnixSeconds>) {
    let until = now.later(overlap);
    let until = old.expires_at.map_or(until, |ends| ends.min(until));
    let lasting = lasting.or_else(|| {
        let seconds = old.expires_at?.get().saturating_sub(old.created_at.get());
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
    });
    (until, lasting.map(|time| now.later(time)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rotation_lengthens_no_token_and_shortens_no_successor(
            created in 0..1_000_i64,
            life in prop::option::of(1..10_000_i64),
            age in 0..10_000_i64,
            overlap in 0..10_000_u64,
            lasting in prop::option::of(1..10_000_u64),
        ) {
            let old = TokenRecord {
                id: TokenId(1),
                subject: TokenSubject::User { user: "ann".parse().unwrap() },
                hint: String::new(),
                created_at: UnixSeconds::new(created),
                expires_at: life.map(|life| UnixSeconds::new(created + life)),
                revoked_at: None,
                note: None,
                replaced_by: None,
            };
            let now = UnixSeconds::new(created + age);
            prop_assume!(old.is_live(now));
            let lasting = lasting.map(Duration::from_secs);
            let (until, successor) = ends(&old, Duration::from_secs(overlap), lasting, now);
            prop_assert!(old.expires_at.is_none_or(|ends| until <= ends), "the old one gets no longer");
            prop_assert!(until <= now.later(Duration::from_secs(overlap)), "it ends with the overlap");
            prop_assert!(until >= now);
            match (lasting, life) {
                (Some(lasting), _) => prop_assert_eq!(successor, Some(now.later(lasting))),
                (None, Some(life)) => prop_assert_eq!(successor, Some(UnixSeconds::new(now.get() + life))),
                (None, None) => prop_assert_eq!(successor, None, "what had no end has none"),
            }
        }
    }
}
