//! Statements about tokens of CI jobs, each of which is valid for one process.

use std::collections::BTreeSet;

use super::database::{About, Transaction, sql};
use super::former::NameHold;
use super::workspaces::find_or_create;
use super::{Executor, Store, StoreError, WorkspaceId};
use gateway_types::{UnixSeconds, UserName, WorkspaceName};

/// Obsolete rows that one use deletes at most, so that no single use takes long.
const CLEARED_MAX: u32 = 100;

/// A token of a CI job, shown by a process.
#[derive(Clone, Debug)]
pub struct TokenUse<'a> {
    /// The issuer.
    pub issuer: &'a str,
    /// Id of the token, or of its job, unique at the issuer.
    pub use_id: &'a str,
    /// SHA-256 of the token.
    pub token_hash: &'a [u8; 32],
    /// SHA-256 of a secret that only this process knows.
    pub process_hash: &'a [u8; 32],
    /// The workspace that it stands for.
    pub workspace: &'a WorkspaceName,
    /// Required owner of the workspace.
    pub owner: &'a UserName,
    /// Creates the workspace if there is none.
    pub create: bool,
    /// Time until which the process may come back.
    pub until: UnixSeconds,
    /// End of the token's validity for any process, used or not.
    pub expires_at: UnixSeconds,
}

/// Outcome of using a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenUseOutcome {
    /// First use.
    First,
    /// Used before by this process, which may come back until then.
    Again(UnixSeconds),
    /// Used before by another process.
    ByAnother,
    /// There is no such workspace, and it is not to be created.
    NoWorkspace,
}

/// A token that was used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedToken {
    /// Its issuer.
    pub issuer: String,
    /// Its id, unique at the issuer.
    pub use_id: String,
    /// The workspace that it stood for.
    pub workspace: WorkspaceName,
    /// The workspace's current owner.
    pub owner: UserName,
    /// Time until which its process may come back.
    pub until: UnixSeconds,
}

impl Store {
    /// Uses a token up, for one process. Atomic: of two concurrent processes, one is the first.
    ///
    /// # Errors
    /// [`StoreError::OtherOwner`] when the workspace belongs to another user, else a failed database; nothing is used
    /// then.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn use_token(&self, token: &TokenUse<'_>, now: UnixSeconds) -> Result<TokenUseOutcome, StoreError> {
        let mut transaction = self.write(About::Use(token.use_id)).await?;
        let found = sql("SELECT process_hash, until FROM agent_token_uses WHERE issuer = $1 AND use_id = $2")
            .bind(token.issuer)
            .bind(token.use_id)
            .fetch_optional(&mut transaction)
            .await?;
        let workspace = if token.create && found.is_none() {
            Some(find_or_create(&mut transaction, token.workspace, self.name_hold, token.owner, now).await?)
        } else {
            let row = sql("SELECT id, owner FROM workspaces WHERE name = $1")
                .bind(token.workspace.as_str())
                .fetch_optional(&mut transaction)
                .await?;
            row.map(|row| match row.get::<&str>("owner")? == token.owner.as_str() {
                true => Ok(WorkspaceId(row.get("id")?)),
                false => Err(StoreError::OtherOwner(token.workspace.clone())),
            })
            .transpose()?
        };
        let Some(workspace) = workspace else { return Ok(TokenUseOutcome::NoWorkspace) };
        if let Some(row) = found {
            if row.get::<&[u8]>("process_hash")? != token.process_hash {
                return Ok(TokenUseOutcome::ByAnother);
            }
            return Ok(TokenUseOutcome::Again(UnixSeconds::new(row.get("until")?)));
        }
        clear(&mut transaction, workspace, now, self.name_hold).await?;
        sql("INSERT INTO agent_token_uses (issuer, use_id, token_hash, process_hash, workspace_id, used_at, until, \
             forget_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)")
        .bind(token.issuer)
        .bind(token.use_id)
        .bind(token.token_hash.as_slice())
        .bind(token.process_hash.as_slice())
        .bind(workspace.0)
        .bind(now.get())
        .bind(token.until.get())
        .bind(token.until.max(token.expires_at).get())
        .execute(&mut transaction)
        .await?;
        transaction.commit().await?;
        Ok(TokenUseOutcome::First)
    }

    /// Returns the use of a token that was valid at its use, if its process may still come back with it.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn used_token(&self, token_hash: &[u8; 32], now: UnixSeconds) -> Result<Option<UsedToken>, StoreError> {
        let statement = "SELECT issuer, use_id, name, owner, until FROM agent_token_uses \
             JOIN workspaces ON workspaces.id = workspace_id WHERE token_hash = $1 AND until > $2";
        let row = sql(statement).bind(token_hash.as_slice()).bind(now.get()).fetch_optional(&self.readers).await?;
        let Some(row) = row else { return Ok(None) };
        let corrupt = |column| StoreError::Corrupt { table: "workspaces", column };
        Ok(Some(UsedToken {
            issuer: row.get("issuer")?,
            use_id: row.get("use_id")?,
            workspace: row.get::<&str>("name")?.parse().map_err(|_| corrupt("name"))?,
            owner: row.get::<&str>("owner")?.parse().map_err(|_| corrupt("owner"))?,
            until: UnixSeconds::new(row.get("until")?),
        }))
    }
}

/// Deletes uses that are over, and external workspaces of jobs that cannot come back any more: each job makes one, and
/// nothing else would ever delete them. Workspaces with a share or a token are kept; so is `kept`.
async fn clear(
    transaction: &mut Transaction,
    kept: WorkspaceId,
    now: UnixSeconds,
    hold: NameHold,
) -> Result<(), StoreError> {
    let over = "DELETE FROM agent_token_uses WHERE (issuer, use_id) IN \
         (SELECT issuer, use_id FROM agent_token_uses WHERE forget_at <= $1 LIMIT $2) RETURNING workspace_id";
    let rows = sql(over).bind(now.get()).bind(CLEARED_MAX).fetch_all(&mut *transaction).await?;
    let used = rows.iter().map(|row| row.get::<i64>("workspace_id")).collect::<Result<BTreeSet<_>, _>>()?;
    for workspace in used.into_iter().filter(|workspace| *workspace != kept.0) {
        let is_left = "SELECT 1 AS one FROM workspaces WHERE id = $1 AND executor = $2 \
             AND NOT EXISTS (SELECT 1 FROM tokens WHERE workspace_id = $1) \
             AND NOT EXISTS (SELECT 1 FROM shares WHERE workspace_id = $1) \
             AND NOT EXISTS (SELECT 1 FROM agent_token_uses WHERE workspace_id = $1)";
        let is_left = sql(is_left).bind(workspace).bind(Executor::External.as_str());
        if is_left.fetch_optional(&mut *transaction).await?.is_some() {
            hold.leave(transaction, WorkspaceId(workspace), now).await?;
            sql("DELETE FROM workspaces WHERE id = $1").bind(workspace).execute(&mut *transaction).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::each::{each, warm};
    use super::*;
    use gateway_types::{Audience, Port, Share};

    const ISSUER: &str = "https://ci.test";

    fn at(seconds: i64) -> UnixSeconds {
        UnixSeconds::new(seconds)
    }

    struct UsedNames(WorkspaceName, UserName);

    impl UsedNames {
        fn new() -> Self {
            Self("job".parse().unwrap(), "alice".parse().unwrap())
        }

        fn by<'a>(&'a self, use_id: &'a str, process_hash: &'a [u8; 32]) -> TokenUse<'a> {
            let (until, expires_at) = (at(100), at(200));
            let (workspace, owner) = (&self.0, &self.1);
            let token_hash = &[7; 32];
            TokenUse {
                issuer: ISSUER,
                use_id,
                token_hash,
                process_hash,
                workspace,
                owner,
                create: true,
                until,
                expires_at,
            }
        }
    }

    #[tokio::test]
    async fn token_is_good_for_the_process_that_used_it_first() {
        each(async |store| {
            let names = UsedNames::new();
            let (one, other) = ([1; 32], [2; 32]);
            assert_eq!(store.use_token(&names.by("a", &one), at(1)).await.unwrap(), TokenUseOutcome::First);
            assert_eq!(store.use_token(&names.by("a", &one), at(2)).await.unwrap(), TokenUseOutcome::Again(at(100)));
            assert_eq!(store.use_token(&names.by("a", &other), at(2)).await.unwrap(), TokenUseOutcome::ByAnother);
            assert_eq!(
                store.use_token(&names.by("b", &other), at(2)).await.unwrap(),
                TokenUseOutcome::First,
                "another token"
            );
            let elsewhere = TokenUse { issuer: "https://other.test", ..names.by("a", &other) };
            assert_eq!(store.use_token(&elsewhere, at(2)).await.unwrap(), TokenUseOutcome::First, "of another issuer");
            let workspace = store.workspace(&names.0).await.unwrap().unwrap();
            assert_eq!(workspace.owner, names.1);
        })
        .await;
    }

    #[tokio::test]
    async fn used_token_is_known_again_until_its_process_may_not_come_back() {
        each(async |store| {
            let names = UsedNames::new();
            assert_eq!(store.used_token(&[7; 32], at(1)).await.unwrap(), None);
            store.use_token(&names.by("a", &[1; 32]), at(1)).await.unwrap();
            let used = store.used_token(&[7; 32], at(99)).await.unwrap().unwrap();
            assert_eq!((used.issuer.as_str(), used.use_id.as_str(), used.until), (ISSUER, "a", at(100)));
            assert_eq!((used.workspace, used.owner), (names.0.clone(), names.1.clone()));
            assert_eq!(store.used_token(&[7; 32], at(100)).await.unwrap(), None);
            assert_eq!(
                store.use_token(&names.by("a", &[2; 32]), at(199)).await.unwrap(),
                TokenUseOutcome::ByAnother,
                "still spent"
            );
            // A use that no process can repeat any more makes room.
            assert_eq!(store.use_token(&names.by("b", &[1; 32]), at(200)).await.unwrap(), TokenUseOutcome::First);
            assert_eq!(store.use_token(&names.by("a", &[2; 32]), at(200)).await.unwrap(), TokenUseOutcome::First);
        })
        .await;
    }

    #[tokio::test]
    async fn workspace_of_a_job_goes_when_nobody_of_it_can_come_any_more_unless_somebody_uses_it_otherwise() {
        each(async |store| {
            let named = |name: &str| UsedNames(name.parse().unwrap(), "alice".parse().unwrap());
            let is_there = async |name: &str| store.workspace(&name.parse().unwrap()).await.unwrap().is_some();
            for name in ["job-1", "job-2", "shared", "with-token", "used-again"] {
                store.use_token(&named(name).by(name, &[1; 32]), at(1)).await.unwrap();
            }
            let share = Share { port: Port::new(3000).unwrap(), audience: Audience::SignedIn, expires_at: None };
            let alice = "alice".parse().unwrap();
            store.share(&"shared".parse().unwrap(), &share, &alice, at(2)).await.unwrap();
            store.create_agent_token(&"with-token".parse().unwrap(), &alice, at(2)).await.unwrap();
            let again = named("used-again");
            let later = TokenUse { until: at(900), expires_at: at(900), ..again.by("later", &[1; 32]) };
            store.use_token(&later, at(3)).await.unwrap();
            let other = named("other");
            store
                .use_token(&TokenUse { use_id: "b", workspace: &other.0, owner: &other.1, ..later.clone() }, at(199))
                .await
                .unwrap();
            assert!(is_there("job-1").await && is_there("job-2").await, "their tokens are still good");
            // The next job of the same workspace.
            store.use_token(&named("job-2").by("next", &[1; 32]), at(200)).await.unwrap();
            let left = async |names: &[&str]| {
                for name in names {
                    assert!(is_there(name).await, "{name}");
                }
            };
            left(&["job-2", "shared", "with-token", "used-again", "other"]).await;
            assert!(!is_there("job-1").await);
        })
        .await;
    }

    #[tokio::test]
    async fn token_makes_no_workspace_that_is_not_to_be_made_and_takes_none_of_others() {
        each(async |store| {
            let names = UsedNames::new();
            let found_only = TokenUse { create: false, ..names.by("a", &[1; 32]) };
            assert_eq!(store.use_token(&found_only, at(1)).await.unwrap(), TokenUseOutcome::NoWorkspace);
            store.create_agent_token(&names.0, &"bob".parse().unwrap(), at(1)).await.unwrap();
            for token in [found_only, names.by("a", &[1; 32])] {
                let refused = store.use_token(&token, at(2)).await;
                assert!(matches!(refused, Err(StoreError::OtherOwner(_))), "{refused:?}");
            }
            assert_eq!(store.used_token(&[7; 32], at(3)).await.unwrap(), None, "nothing was used");
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn of_many_processes_that_come_with_one_token_at_once_one_is_the_first() {
        each(async |store| {
            warm(store).await;
            let mut tasks = tokio::task::JoinSet::new();
            for number in 0..12 {
                let store = store.clone();
                tasks.spawn(async move {
                    let names = UsedNames::new();
                    store.use_token(&names.by("a", &[number; 32]), at(1)).await.unwrap()
                });
            }
            let mut first = 0;
            while let Some(ended) = tasks.join_next().await {
                first += u32::from(ended.unwrap() == TokenUseOutcome::First);
            }
            assert_eq!(first, 1);
        })
        .await;
    }
}
