//! Statements about variables of workspaces: secrets that are sent into their pods, and sealed until then.

use std::fmt;

use super::database::{Transaction, sql};
use super::{Store, StoreError, WorkspaceId};

/// A text that must not reach a log, a page or a terminal: `Debug` masks it, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// Wraps a secret text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the text itself. Every caller is a place to review.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretText(..)")
    }
}

/// Place of a variable in its workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum VariableKind {
    /// In the environment of its containers.
    Env,
    /// In a file.
    File,
}

impl VariableKind {
    /// Returns the kind as one lower-case word, as stored and printed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Env => "env",
            Self::File => "file",
        }
    }

    fn from_stored(text: &str) -> Option<Self> {
        match text {
            "env" => Some(Self::Env),
            "file" => Some(Self::File),
            _ => None,
        }
    }
}

/// A secret of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its place in the workspace.
    pub kind: VariableKind,
    /// Its name, unique among those of its kind.
    pub name: String,
    /// Its value.
    pub value: SecretText,
}

impl Store {
    /// Returns the variables of a workspace, the token of its agent among them, by kind and name.
    ///
    /// # Errors
    /// [`StoreError::Unsealable`] when one was changed behind the gateway's back; else a failed database.
    pub async fn variables(&self, workspace: WorkspaceId) -> Result<Vec<Variable>, StoreError> {
        let statement = sql("SELECT kind, name, sealed FROM variables WHERE workspace_id = $1 ORDER BY kind, name");
        let rows = statement.bind(workspace.0).fetch_all(&self.readers).await?;
        let corrupt = |column| StoreError::Corrupt { table: "variables", column };
        let mut variables = Vec::with_capacity(rows.len());
        for row in &rows {
            let kind = VariableKind::from_stored(row.get("kind")?).ok_or_else(|| corrupt("kind"))?;
            let name: String = row.get("name")?;
            let opened = self.sealer.open(&row_of(workspace, kind, &name), row.get("sealed")?);
            let value = opened.ok_or(StoreError::Unsealable { table: "variables" })?;
            let value = SecretText::new(String::from_utf8(value).map_err(|_| corrupt("sealed"))?);
            variables.push(Variable { kind, name, value });
        }
        Ok(variables)
    }

    pub(super) async fn insert_variable(
        &self,
        transaction: &mut Transaction,
        workspace: WorkspaceId,
        kind: VariableKind,
        name: &str,
        value: &str,
    ) -> Result<(), StoreError> {
        let sealed = self.sealer.seal(&row_of(workspace, kind, name), value.as_bytes())?;
        sql("INSERT INTO variables (workspace_id, kind, name, sealed) VALUES ($1, $2, $3, $4)")
            .bind(workspace.0)
            .bind(kind.as_str())
            .bind(name)
            .bind(sealed.as_slice())
            .execute(transaction)
            .await?;
        Ok(())
    }
}

/// Names the row that a sealed value belongs to. Ids are never used again, so neither is a name of a row.
fn row_of(workspace: WorkspaceId, kind: VariableKind, name: &str) -> String {
    format!("variables {} {} {name}", workspace.0, kind.as_str())
}
