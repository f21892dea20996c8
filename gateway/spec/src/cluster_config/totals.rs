//! Limits of what several workspaces take together.

use gateway_types::quota::{Quota, Quotas};
use serde::{Deserialize, Serialize};

use super::{ClusterConfig, amounts};
use crate::document::{Problems, Value, ValueAt};
use crate::syntax::Quantity;

/// Limits of processors, memory and storage of several workspaces together; a missing one is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResourceTotals {
    /// Processors, as a Kubernetes quantity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Bytes of memory, as a Kubernetes quantity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Bytes of claims, as a Kubernetes quantity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
}

impl ResourceTotals {
    /// Returns whether containers have to say what they ask for, so that they can be counted.
    pub(super) fn counts_containers(&self) -> bool {
        self.cpu.is_some() || self.memory.is_some()
    }

    fn quota(totals: Option<&Self>, workspaces: Option<u32>, running: Option<u32>) -> Quota {
        let none = Self::default();
        let totals = totals.unwrap_or(&none);
        let read = |text: &Option<String>| text.as_deref().and_then(|text| text.parse::<Quantity>().ok());
        Quota {
            workspaces: workspaces.map(u64::from),
            running: running.map(u64::from),
            cpu_millis: read(&totals.cpu).map(Quantity::millis),
            memory_bytes: read(&totals.memory).map(Quantity::whole),
            storage_bytes: read(&totals.storage).map(Quantity::whole),
        }
    }
}

impl ClusterConfig {
    /// Returns the limits of what workspaces take together.
    #[must_use]
    pub fn quotas(&self) -> Quotas {
        Quotas {
            cluster: ResourceTotals::quota(self.resource_quota.as_ref(), self.quota, self.running_quota),
            user: ResourceTotals::quota(
                self.resource_quota_per_user.as_ref(),
                self.quota_per_user,
                self.running_quota_per_user,
            ),
        }
    }
}

/// Reads limits. An empty map says nothing.
pub(super) fn read(at: &ValueAt<'_>, problems: &mut Problems) -> Option<ResourceTotals> {
    if at.node.value == Value::Map(Vec::new()) {
        return None;
    }
    let mut fields = at.fields(problems)?;
    let mut take = |key| fields.take(key).and_then(|at| amounts::read_text(at, problems));
    let totals = ResourceTotals { cpu: take("cpu"), memory: take("memory"), storage: take("storage") };
    fields.finish(problems);
    Some(totals)
}
