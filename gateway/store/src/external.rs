//! External workspaces: names for workspaces that run elsewhere. Their owners create and delete them.

use super::create::{CreateError, admit, delete_workspace, insert_workspace, make_room};
use super::database::{About, sql};
use super::{Executor, Store, StoreError, Workspace, WorkspaceId, named_ports};
use gateway_types::quota::Quotas;
use gateway_types::{NamedPort, UnixSeconds, UserName, WorkspaceName};

impl Store {
    /// Creates an external workspace with these named ports, each once; a user may have `most` of them.
    ///
    /// # Errors
    /// [`CreateError::NameTaken`] or [`CreateError::OverQuota`], or a failed database; then nothing is stored.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it stores everything or nothing.
    pub async fn create_external(
        &self,
        name: &WorkspaceName,
        owner: &UserName,
        most: Option<u32>,
        ports: &[NamedPort],
        now: UnixSeconds,
    ) -> Result<Workspace, CreateError> {
        let mut transaction = self.write(About::WorkspacesOf(owner.as_str())).await?;
        make_room(&mut transaction, name, owner, now, self.name_hold).await?;
        let statement = "SELECT count(*) AS theirs FROM workspaces WHERE owner = $1 AND executor = $2";
        let row = sql(statement).bind(owner.as_str()).bind(Executor::External.as_str());
        let theirs = row.fetch_one(&mut transaction).await?.get("theirs")?;
        admit(&Quotas::of_workspaces(None, most), 0, theirs)?;
        let mut workspace =
            insert_workspace(&mut transaction, name, self.name_hold, owner, Executor::External, now).await?;
        named_ports::insert(&mut transaction, workspace.id, ports).await?;
        workspace.ports = ports.into();
        transaction.commit().await?;
        Ok(workspace)
    }

    /// Deletes an external workspace, with its shares and the tokens of its agent: its owner may use the name again, and others
    /// once it is not held back any more. Of `owner` alone, if one is given. Returns whether there was one.
    ///
    /// # Errors
    /// [`StoreError::Database`]; then nothing is deleted.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it deletes everything or nothing.
    pub async fn delete_external(
        &self,
        name: &WorkspaceName,
        owner: Option<&UserName>,
        now: UnixSeconds,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.write(About::Workspace(name.as_str())).await?;
        let statement = sql("SELECT id, owner FROM workspaces WHERE name = $1 AND executor = $2");
        let statement = statement.bind(name.as_str()).bind(Executor::External.as_str());
        let Some(row) = statement.fetch_optional(&mut transaction).await? else { return Ok(false) };
        if let Some(owner) = owner
            && row.get::<&str>("owner")? != owner.as_str()
        {
            return Ok(false);
        }
        let is_deleted = delete_workspace(&mut transaction, WorkspaceId(row.get("id")?), now, self.name_hold).await?;
        transaction.commit().await?;
        Ok(is_deleted)
    }
}

/// Outcome of handing a workspace over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOver {
    /// It is the other user's now.
    Done,
    /// There is no such external workspace, or it is another user's.
    NoSuchWorkspace,
    /// The other user has as many as they may have.
    TooMany,
}

impl Store {
    /// Gives an external workspace of `owner` to another user, who may have `most` of them. What the former owner gave out ends: shares,
    /// and the tokens of its agent.
    ///
    /// # Errors
    /// [`StoreError::Database`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn hand_over(
        &self,
        name: &WorkspaceName,
        owner: &UserName,
        to: &UserName,
        most: u32,
    ) -> Result<HandOver, StoreError> {
        let mut transaction = self.write(About::WorkspacesOf(to.as_str())).await?;
        let statement = "SELECT count(*) AS theirs FROM workspaces WHERE owner = $1 AND executor = $2";
        let row = sql(statement).bind(to.as_str()).bind(Executor::External.as_str());
        let theirs: i64 = row.fetch_one(&mut transaction).await?.get("theirs")?;
        if theirs >= i64::from(most) {
            return Ok(HandOver::TooMany);
        }
        let statement =
            "UPDATE workspaces SET owner = $1 WHERE name = $2 AND owner = $3 AND executor = $4 RETURNING id";
        let row = sql(statement).bind(to.as_str()).bind(name.as_str()).bind(owner.as_str());
        let row = row.bind(Executor::External.as_str()).fetch_optional(&mut transaction).await?;
        let Some(row) = row else { return Ok(HandOver::NoSuchWorkspace) };
        let id: i64 = row.get("id")?;
        for statement in [
            "DELETE FROM agent_token_uses WHERE workspace_id = $1",
            "DELETE FROM shares WHERE workspace_id = $1",
            "DELETE FROM tokens WHERE workspace_id = $1",
            "DELETE FROM pins WHERE workspace_id = $1",
        ] {
            sql(statement).bind(id).execute(&mut transaction).await?;
        }
        transaction.commit().await?;
        Ok(HandOver::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::super::each::each;
    use super::*;
    use gateway_types::{Audience, Port, Share};

    const NOW: UnixSeconds = UnixSeconds::new(1_000);

    fn name(text: &str) -> WorkspaceName {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn user_may_have_so_many_and_a_deleted_one_makes_room() {
        each(async |store| {
            let (ann, bob) = ("ann".parse().unwrap(), "bob".parse().unwrap());
            for number in ["a", "b"] {
                assert!(store.create_external(&name(number), &ann, Some(2), &[], NOW).await.is_ok());
            }
            let beyond = store.create_external(&name("c"), &ann, Some(2), &[], NOW).await;
            assert!(matches!(beyond, Err(CreateError::OverQuota(_))), "{beyond:?}");
            let taken = store.create_external(&name("a"), &bob, Some(2), &[], NOW).await;
            assert!(matches!(taken, Err(CreateError::NameTaken)), "{taken:?}");
            assert!(!store.delete_external(&name("a"), Some(&bob), NOW).await.unwrap(), "not theirs");
            assert!(store.delete_external(&name("a"), Some(&ann), NOW).await.unwrap());
            assert!(!store.delete_external(&name("a"), Some(&ann), NOW).await.unwrap(), "it is gone");
            let held = store.create_external(&name("a"), &bob, Some(2), &[], NOW).await;
            assert!(matches!(held, Err(CreateError::NameTaken)), "{held:?}");
            assert!(
                store.create_external(&name("a"), &ann, Some(2), &[], NOW).await.is_ok(),
                "the name is free for its owner"
            );
        })
        .await;
    }

    #[tokio::test]
    async fn workspace_that_is_handed_over_brings_nothing_of_its_former_owner() {
        each(async |store| {
            let (ann, bob) = ("ann".parse().unwrap(), "bob".parse().unwrap());
            let token = store.create_agent_token(&name("a"), &ann, NOW).await.unwrap();
            let share = Share { port: Port::new(80).unwrap(), audience: Audience::Public, expires_at: None };
            assert!(store.share(&name("a"), &share, &ann, NOW).await.unwrap());
            assert_eq!(store.hand_over(&name("a"), &bob, &bob, 10).await.unwrap(), HandOver::NoSuchWorkspace);
            assert_eq!(store.hand_over(&name("a"), &ann, &bob, 0).await.unwrap(), HandOver::TooMany);
            assert_eq!(store.hand_over(&name("a"), &ann, &bob, 1).await.unwrap(), HandOver::Done);
            let there = store.workspace(&name("a")).await.unwrap().unwrap();
            assert_eq!((there.owner, there.shares.len()), (bob, 0));
            assert!(store.list_tokens().await.unwrap().iter().all(|left| left.id != token.id));
        })
        .await;
    }

    #[tokio::test]
    async fn tokens_and_shares_go_with_it() {
        each(async |store| {
            let ann = "ann".parse().unwrap();
            let token = store.create_agent_token(&name("a"), &ann, NOW).await.unwrap();
            let share = Share { port: Port::new(80).unwrap(), audience: Audience::Public, expires_at: None };
            assert!(store.share(&name("a"), &share, &ann, NOW).await.unwrap());
            assert!(store.delete_external(&name("a"), None, NOW).await.unwrap());
            assert!(store.list_tokens().await.unwrap().iter().all(|left| left.id != token.id));
            store.create_external(&name("a"), &ann, None, &[], NOW).await.unwrap();
            let again = store.workspace(&name("a")).await.unwrap().unwrap();
            assert!(again.shares.is_empty(), "{again:?}");
        })
        .await;
    }
}
