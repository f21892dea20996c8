//! Roles of objects, the inventories that own them, and their order.

use serde_json::Value;

use super::names::ObjectNames;

/// Role of an object. The order is that in which objects are stored, sent and applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The inventory of the objects in each message.
    CoreInventory,
    /// The pod.
    Deployment,
    /// Its name and ports inside the cluster.
    Service,
    /// A volume: first the workspace's own, then those of the devfile.
    Volume,
    /// Identity of the pod.
    ServiceAccount,
    /// Destinations of the pod; nothing reaches it.
    NetworkPolicy,
    /// Scripts that the pod runs.
    Scripts,
    /// The inventory of the objects that only full messages carry.
    SecretsInventory,
    /// The most that the namespace may take.
    ResourceQuota,
    /// The variables that are environment.
    EnvSecret,
    /// The variables that are files, and the agent's token.
    FileSecret,
}

/// One of a workspace's two inventories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Inventory {
    /// Of the objects in each message.
    Core,
    /// Of the objects that only full messages carry.
    Secrets,
}

/// Inventory that tracks an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The core inventory.
    Core,
    /// The secrets inventory.
    Secrets,
    /// None: it is this inventory.
    IsInventory(Inventory),
}

/// One Kubernetes object of a workspace.
#[derive(Clone, Debug, PartialEq)]
pub struct FrozenObject {
    /// Its role.
    pub role: Role,
    /// The object, as it is applied except for the parts that are filled in when sending.
    pub value: Value,
}

impl Role {
    /// Every role, in order.
    pub const ALL: [Self; 11] = [
        Self::CoreInventory,
        Self::Deployment,
        Self::Service,
        Self::Volume,
        Self::ServiceAccount,
        Self::NetworkPolicy,
        Self::Scripts,
        Self::SecretsInventory,
        Self::ResourceQuota,
        Self::EnvSecret,
        Self::FileSecret,
    ];

    /// Returns the inventory that tracks objects of this role. An inventory travels with all that it owns or not at
    /// all, so all objects that partial messages leave out are in the secrets inventory, also the quota.
    #[must_use]
    pub fn owner(self) -> Owner {
        match self {
            Self::CoreInventory => Owner::IsInventory(Inventory::Core),
            Self::SecretsInventory => Owner::IsInventory(Inventory::Secrets),
            Self::Deployment
            | Self::Service
            | Self::Volume
            | Self::ServiceAccount
            | Self::NetworkPolicy
            | Self::Scripts => Owner::Core,
            Self::ResourceQuota | Self::EnvSecret | Self::FileSecret => Owner::Secrets,
        }
    }

    /// Returns whether a workspace has exactly one object of this role, or at least one where there may be several.
    pub(super) fn is_required(self) -> bool {
        match self {
            Self::CoreInventory
            | Self::Deployment
            | Self::Service
            | Self::Volume
            | Self::ServiceAccount
            | Self::SecretsInventory
            | Self::EnvSecret
            | Self::FileSecret => true,
            Self::NetworkPolicy | Self::Scripts | Self::ResourceQuota => false,
        }
    }

    /// Returns the group and version that objects of this role have.
    pub(super) fn api_version(self) -> &'static str {
        match self {
            Self::Deployment => "apps/v1",
            Self::NetworkPolicy => "networking.k8s.io/v1",
            Self::CoreInventory
            | Self::Service
            | Self::Volume
            | Self::ServiceAccount
            | Self::Scripts
            | Self::SecretsInventory
            | Self::ResourceQuota
            | Self::EnvSecret
            | Self::FileSecret => "v1",
        }
    }

    /// Returns the kind that objects of this role have.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::CoreInventory | Self::Scripts | Self::SecretsInventory => "ConfigMap",
            Self::Deployment => "Deployment",
            Self::Service => "Service",
            Self::Volume => "PersistentVolumeClaim",
            Self::ServiceAccount => "ServiceAccount",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::ResourceQuota => "ResourceQuota",
            Self::EnvSecret | Self::FileSecret => "Secret",
        }
    }

    /// Recognises an object by its kind and name. `None` for objects that no workspace has.
    pub(super) fn of(kind: &str, name: &str, names: &ObjectNames) -> Option<Self> {
        let fits = |role: &Self| {
            role.kind() == kind
                && match role {
                    Self::CoreInventory => name == names.core_inventory(),
                    Self::SecretsInventory => name == names.secrets_inventory(),
                    Self::Scripts => name == names.scripts(),
                    Self::EnvSecret => name == names.env(),
                    Self::FileSecret => name == names.file(),
                    Self::Volume => name == names.data() || name.starts_with(&names.volume("")),
                    Self::Deployment
                    | Self::Service
                    | Self::ServiceAccount
                    | Self::NetworkPolicy
                    | Self::ResourceQuota => name == names.workspace,
                }
        };
        Self::ALL.into_iter().find(fits)
    }
}

impl Inventory {
    /// Returns the role of the inventory itself.
    #[must_use]
    pub fn role(self) -> Role {
        match self {
            Self::Core => Role::CoreInventory,
            Self::Secrets => Role::SecretsInventory,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_listed_in_their_order() {
        assert!(Role::ALL.is_sorted());
    }

    #[test]
    fn object_is_recognised_by_kind_and_name() {
        let names = ObjectNames::new("a");
        let of = |kind, name| Role::of(kind, name, &names);
        assert_eq!(of("ConfigMap", "a-workspace-inventory"), Some(Role::CoreInventory));
        assert_eq!(of("ConfigMap", "a-scripts"), Some(Role::Scripts));
        assert_eq!(of("PersistentVolumeClaim", "a-data"), Some(Role::Volume));
        assert_eq!(of("PersistentVolumeClaim", "a.m2"), Some(Role::Volume));
        assert_eq!(of("PersistentVolumeClaim", "a-m2"), None);
        assert_eq!(of("Secret", "a-env"), Some(Role::EnvSecret));
        assert_eq!(of("Secret", "a"), None);
        assert_eq!(of("Deployment", "b"), None);
        assert_eq!(of("Namespace", "a"), None);
        assert_eq!(of("ClusterRole", "a"), None);
    }
}
