//! What each object is for, which inventory owns it, and in which order they stand.

use serde_json::Value;

use super::names::Names;

/// What an object is for. The order is that in which they are stored, sent and applied (design, section 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The inventory of what each message carries.
    CoreInventory,
    /// The pod.
    Deployment,
    /// Its name and ports inside the cluster.
    Service,
    /// A volume: first the workspace's own, then those of the devfile.
    Volume,
    /// Who the pod is.
    ServiceAccount,
    /// What the pod may reach, and that nothing reaches it.
    NetworkPolicy,
    /// What the pod runs.
    Scripts,
    /// The inventory of what only full messages carry.
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
    /// Of what each message carries.
    Core,
    /// Of what only full messages carry.
    Secrets,
}

/// Which inventory tracks an object.
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
pub struct Object {
    /// What it is for.
    pub role: Role,
    /// The object, as it is applied but for what is filled in when sending.
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

    /// Returns which inventory tracks objects of this role. An inventory travels with all that it owns or not at all, so what
    /// partial messages leave out is in the secrets inventory, also the quota.
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

    /// Recognises an object by its kind and name. `None` for what a workspace does not consist of.
    pub(super) fn of(kind: &str, name: &str, names: &Names) -> Option<Self> {
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
        let names = Names::new("a");
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
