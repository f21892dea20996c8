//! Statements about the named ports of workspaces.

use super::database::{Row, Transaction, sql};
use super::{Store, StoreError, WorkspaceId};
use gateway_types::{NamedPort, Port, WorkspaceName};

impl Store {
    /// Returns the named ports of a workspace, by port.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn named_ports(&self, workspace: WorkspaceId) -> Result<Vec<NamedPort>, StoreError> {
        let statement =
            "SELECT port, name, protocol, host, proposed FROM named_ports WHERE workspace_id = $1 ORDER BY port";
        let rows = sql(statement).bind(workspace.0).fetch_all(&self.readers).await?;
        rows.iter().map(read).collect()
    }

    /// The same by the workspace's name; none if there is no such workspace.
    pub(super) async fn named_ports_of(&self, workspace: &WorkspaceName) -> Result<Vec<NamedPort>, StoreError> {
        let statement = "SELECT port, name, protocol, host, proposed FROM named_ports \
             WHERE workspace_id = (SELECT id FROM workspaces WHERE name = $1) ORDER BY port";
        let rows = sql(statement).bind(workspace.as_str()).fetch_all(&self.readers).await?;
        rows.iter().map(read).collect()
    }
}

/// Inserts the named ports of a new workspace, of which each port is there once.
pub(super) async fn insert(
    transaction: &mut Transaction,
    workspace: WorkspaceId,
    ports: &[NamedPort],
) -> Result<(), StoreError> {
    for NamedPort { port, name, protocol, host, proposed } in ports {
        let proposed = proposed.as_ref().map(ToString::to_string);
        sql("INSERT INTO named_ports (workspace_id, port, name, protocol, host, proposed) VALUES ($1, $2, $3, $4, $5, $6)")
            .bind(workspace.0)
            .bind(port.get())
            .bind(name.as_ref().map(|name| name.as_str()))
            .bind(protocol.as_str())
            .bind(host.as_str())
            .bind(proposed.as_deref())
            .execute(&mut *transaction)
            .await?;
    }
    Ok(())
}

fn read(row: &Row) -> Result<NamedPort, StoreError> {
    let corrupt = |column| StoreError::Corrupt { table: "named_ports", column };
    let port = u16::try_from(row.get::<i64>("port")?).ok().and_then(Port::new);
    let name = row.get::<Option<&str>>("name")?.map(str::parse).transpose();
    let proposed = row.get::<Option<&str>>("proposed")?.map(str::parse).transpose();
    Ok(NamedPort {
        port: port.ok_or_else(|| corrupt("port"))?,
        name: name.map_err(|_| corrupt("name"))?,
        protocol: row.get::<&str>("protocol")?.parse().map_err(|_| corrupt("protocol"))?,
        host: row.get::<&str>("host")?.parse().map_err(|_| corrupt("host"))?,
        proposed: proposed.map_err(|_| corrupt("proposed"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::each::each;
    use super::*;
    use gateway_types::{Audience, PortHost, PortProtocol, UnixSeconds};

    const NOW: UnixSeconds = UnixSeconds::new(1_000);

    #[tokio::test]
    async fn named_ports_come_back_with_the_workspace_and_go_with_it() {
        each(async |store| {
            let (name, ann) = ("a".parse().unwrap(), "ann".parse().unwrap());
            let port = |number| NamedPort::new(Port::new(number).unwrap());
            let ports = [
                NamedPort { name: Some("web".parse().unwrap()), proposed: Some(Audience::Public), ..port(80) },
                NamedPort { protocol: PortProtocol::Https, host: PortHost::Localhost, ..port(8443) },
            ];
            let made = store.create_external(&name, &ann, None, &ports, NOW).await.unwrap();
            assert_eq!(*made.ports, ports);
            let found = store.workspace(&name).await.unwrap().unwrap();
            assert_eq!(*found.ports, ports);
            assert_eq!(*store.workspace_or_none(&name).await.unwrap().unwrap().ports, ports);
            assert!(store.delete_external(&name, None, NOW).await.unwrap());
            let again = store.create_external(&name, &ann, None, &[], NOW).await.unwrap();
            assert_eq!(store.named_ports(again.id).await.unwrap(), []);
        })
        .await;
    }
}
