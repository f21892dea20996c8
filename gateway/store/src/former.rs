//! Names of deleted workspaces, held back for their owners.
//!
//! Browsers keep data stored by a workspace's pages under its address: service workers, storage, cached files. The
//! service workers would answer for the name's next owner, who could also read the storage. So a name becomes free for
//! other owners only after a time; its owner may have it back at once.

use std::time::Duration;

use super::database::{Transaction, sql};
use super::{StoreError, WorkspaceId};
use gateway_types::{UnixSeconds, UserName, WorkspaceName};

/// Time for which a name is held back.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameHold(pub(super) Duration);

impl NameHold {
    /// Records the owner of a name, right before its workspace is deleted. Deletes names that are free for all users by
    /// now.
    pub(super) async fn leave(
        self,
        transaction: &mut Transaction,
        workspace: WorkspaceId,
        now: UnixSeconds,
    ) -> Result<(), StoreError> {
        if self.0.is_zero() {
            return Ok(());
        }
        let forget = sql("DELETE FROM former_names WHERE left_at <= $1").bind(self.since(now));
        forget.execute(&mut *transaction).await?;
        sql("INSERT INTO former_names (name, owner, left_at) SELECT name, owner, $2 FROM workspaces WHERE id = $1 \
             ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, left_at = excluded.left_at")
        .bind(workspace.0)
        .bind(now.get())
        .execute(transaction)
        .await?;
        Ok(())
    }

    /// Returns the time from which a new workspace of `owner` may have a name; `None` if it may now.
    pub(super) async fn held_until(
        self,
        transaction: &mut Transaction,
        name: &WorkspaceName,
        owner: &UserName,
        now: UnixSeconds,
    ) -> Result<Option<UnixSeconds>, StoreError> {
        let row = sql("SELECT left_at FROM former_names WHERE name = $1 AND owner <> $2 AND left_at > $3")
            .bind(name.as_str())
            .bind(owner.as_str())
            .bind(self.since(now))
            .fetch_optional(transaction)
            .await?;
        row.map(|row| Ok(UnixSeconds::new(row.get("left_at")?).later(self.0))).transpose()
    }

    fn since(self, now: UnixSeconds) -> i64 {
        now.get().saturating_sub(i64::try_from(self.0.as_secs()).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::super::each::each;
    use super::super::{Store, TokenUse};
    use super::*;

    const HOLD: Duration = Duration::from_secs(100);

    fn at(seconds: i64) -> UnixSeconds {
        UnixSeconds::new(seconds)
    }

    /// Makes a workspace of `owner` for a job that is over at 10, and has it cleared away at `end` by another job.
    async fn lives(store: &Store, name: &str, owner: &str, end: i64) {
        let (name, owner): (WorkspaceName, UserName) = (name.parse().unwrap(), owner.parse().unwrap());
        let other: WorkspaceName = "another".parse().unwrap();
        let by = |use_id, workspace, until| TokenUse {
            issuer: "https://ci.test",
            use_id,
            token_hash: &[7; 32],
            process_hash: &[1; 32],
            workspace,
            owner: &owner,
            create: true,
            until: at(until),
            expires_at: at(until),
        };
        store.use_token(&by("first", &name, 10), at(1)).await.unwrap();
        store.use_token(&by("second", &other, 10_000), at(end)).await.unwrap();
        assert!(store.workspace(&name).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn name_goes_to_another_owner_after_a_time_and_to_its_own_at_once() {
        each(async |store| {
            let store = Store { name_hold: NameHold(HOLD), ..store.clone() };
            lives(&store, "shop", "ada", 50).await;
            let (shop, bob): (WorkspaceName, UserName) = ("shop".parse().unwrap(), "bob".parse().unwrap());
            let refused = store.create_agent_token(&shop, &bob, at(149)).await.unwrap_err();
            assert!(matches!(refused, StoreError::NameHeld { until, .. } if until == at(150)), "{refused:?}");
            assert!(store.workspace(&shop).await.unwrap().is_none(), "nothing was made");
            store.create_agent_token(&shop, &"ada".parse().unwrap(), at(51)).await.unwrap();
        })
        .await;
        each(async |store| {
            let store = Store { name_hold: NameHold(HOLD), ..store.clone() };
            lives(&store, "shop", "ada", 50).await;
            store.create_agent_token(&"shop".parse().unwrap(), &"bob".parse().unwrap(), at(150)).await.unwrap();
        })
        .await;
        each(async |store| {
            let store = Store { name_hold: NameHold(Duration::ZERO), ..store.clone() };
            lives(&store, "shop", "ada", 50).await;
            store.create_agent_token(&"shop".parse().unwrap(), &"bob".parse().unwrap(), at(51)).await.unwrap();
        })
        .await;
    }
}
